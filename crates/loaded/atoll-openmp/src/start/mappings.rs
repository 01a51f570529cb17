//! The process's own mappings, as the kernel lists them.
//!
//! `share`, `late` and `linker_state` ask which memory of a loaded object lies where, and `constructor` which memory holds an address.
//! Source: proc(5); the kernel's `linux/fs.h` (`PROCMAP_QUERY`, Linux 6.11).

use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;

use atoll_memory::layout;
use atoll_memory::sys::{self, Errno};

/// A mapping: one line of /proc/self/maps.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) writable: bool,
    pub(crate) executable: bool,
    pub(crate) offset: u64,
    pub(crate) inode: u64,
}

impl Mapping {
    fn parse(line: &str) -> Option<Mapping> {
        let mut f = line.split_ascii_whitespace();
        let (a, b) = f.next()?.split_once('-')?;
        let permissions = f.next()?;
        let offset = u64::from_str_radix(f.next()?, 16).ok()?;
        let inode = f.nth(1)?.parse().ok()?;
        Some(Mapping {
            start: usize::from_str_radix(a, 16).ok()?,
            end: usize::from_str_radix(b, 16).ok()?,
            writable: permissions.as_bytes().get(1) == Some(&b'w'),
            executable: permissions.as_bytes().get(2) == Some(&b'x'),
            offset,
            inode,
        })
    }
}

/// The process's mappings outside the arena, whose stripes are many. The file is read a line at a time: what is allocated here
/// is pinned, and stays so.
pub(crate) fn all() -> Vec<Mapping> {
    let Ok(file) = std::fs::File::open("/proc/self/maps") else { return Vec::new() };
    let mut reader = BufReader::with_capacity(4096, file);
    let mut line = String::new();
    let mut mappings = Vec::new();
    while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
        mappings.extend(Mapping::parse(&line).filter(|m| !layout::in_arena(m.start)));
        line.clear();
    }
    mappings
}

/// What is asked of the kernel about one mapping, and its answer; zeros ask for no name and no build.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    permissions: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_size: u32,
    name: u64,
    build: u64,
}

/// The kernel's number of the question: `_IOWR('f', 17, struct procmap_query)`.
const QUERY: usize = 3 << 30 | size_of::<Query>() << 16 | (b'f' as usize) << 8 | 17;
/// Of the flags: the mapping that covers the address or else the next one, and only those with a file behind them.
const OR_NEXT: u64 = 0x10;
const WITH_FILE: u64 = 0x20;

/// The mappings with a file behind them that have a part in `start..end`, each by its first address and its end. A question for each is
/// answered in a microsecond, while the list of all takes a millisecond where libraries are many.
pub(crate) fn file_backed(start: usize, end: usize) -> Vec<(usize, usize)> {
    queried(start, end).unwrap_or_else(|| listed(start, end))
}

/// The same from the list of all.
fn listed(start: usize, end: usize) -> Vec<(usize, usize)> {
    let is_wanted = |m: &Mapping| m.inode != 0 && m.start < end && m.end > start;
    all().into_iter().filter(is_wanted).map(|m| (m.start, m.end)).collect()
}

/// The same by questions; `None` where the kernel takes none.
fn queried(start: usize, end: usize) -> Option<Vec<(usize, usize)>> {
    let file = std::fs::File::open("/proc/self/maps").ok()?;
    let (mut found, mut at) = (Vec::new(), start);
    while at < end {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            flags: OR_NEXT | WITH_FILE,
            address: at as u64,
            ..Query::default()
        };
        let arguments = [file.as_raw_fd() as usize, QUERY, &raw mut query as usize, 0, 0, 0];
        // SAFETY: the kernel writes to the query alone, as it holds no address of a buffer.
        match unsafe { sys::syscall(libc::SYS_ioctl, arguments) } {
            Ok(_) if query.start < end as u64 => found.push((query.start as usize, query.end as usize)),
            Ok(_) | Err(Errno(libc::ENOENT)) => break,
            Err(_) => return None,
        }
        at = query.end as usize;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of all mappings was read for each part of each library that came late: 300 times, half a second of a run of two.
    #[test]
    fn the_kernel_was_asked_for_all_mappings_to_find_a_few() {
        let all = all();
        let [low, high] = [all.first(), all.last()].map(|m| m.map_or(0, |m| m.start));
        let some = all.iter().find(|m| m.inode != 0).expect("the test's own file is mapped");
        for (start, end) in [(low, high), (some.start, some.end), (some.start, some.start + 1), (0, 4096)] {
            match queried(start, end) {
                Some(found) => assert_eq!(found, listed(start, end)),
                None => {
                    return atoll_skips::part(format_args!(
                        "this kernel tells of no single mapping: Linux 6.11 does"
                    ));
                }
            }
        }
    }
}
