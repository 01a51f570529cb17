//! Makes the stack that a program finds when it begins: arguments, environment and the auxiliary vector.
//!
//! It is the same for every backend, after the System V ABI's process initialization for i386 and x86-64.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::errno::{EFAULT, Errno};
use crate::image::Width;
use crate::window::Window;

/// What the program is told about itself.
#[derive(Debug)]
pub struct Start<'a> {
    /// The file that runs.
    pub path: &'a Path,
    /// The program's arguments, the name first.
    pub arguments: &'a [std::ffi::OsString],
    /// `NAME=value` of each variable.
    pub environment: &'a [std::ffi::OsString],
}

/// The places of things in the segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    /// The first instruction.
    pub(crate) entry: u64,
    /// The offset of the program headers, and their number.
    pub(crate) headers: Option<(u64, u64)>,
    /// The shared object whose entry a 32-bit program calls for a system call: its offset, and its entry's.
    pub(crate) gate: Option<(u64, u64)>,
    /// The first offset above the stack.
    pub(crate) stack: u64,
}

/// Writes the arguments, the environment and the auxiliary vector on the stack; returns the stack pointer to begin with.
///
/// # Errors
/// EFAULT (the kernel would say E2BIG) if they do not fit into `room` bytes.
pub(crate) fn stack(
    window: &Window,
    width: Width,
    places: Places,
    start: &Start<'_>,
    room: u64,
) -> Result<u64, Errno> {
    let mut writer = Writer { window, at: places.stack, floor: places.stack.saturating_sub(room) };
    let word = if width == Width::Bits32 { 4_u64 } else { 8 };
    let path = writer.text(start.path.as_os_str().as_bytes())?;
    let environment =
        start.environment.iter().map(|v| writer.text(v.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let arguments =
        start.arguments.iter().map(|v| writer.text(v.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let platform = writer.text(if width == Width::Bits32 { b"i686" } else { b"x86_64" })?;
    let random = writer.put(&random())?;

    // SAFETY: no pointers.
    let own = |key| unsafe { libc::getauxval(key) };
    let (headers, count) = places.headers.unwrap_or((0, 0));
    let mut auxiliary = vec![
        (libc::AT_HWCAP, own(libc::AT_HWCAP)),
        (libc::AT_HWCAP2, 0),
        (libc::AT_PAGESZ, 4096),
        (libc::AT_CLKTCK, own(libc::AT_CLKTCK)),
        (libc::AT_PHDR, headers),
        (libc::AT_PHENT, if width == Width::Bits32 { 32 } else { 56 }),
        (libc::AT_PHNUM, count),
        (libc::AT_BASE, 0),
        (libc::AT_FLAGS, 0),
        (libc::AT_ENTRY, places.entry),
        (libc::AT_UID, own(libc::AT_UID)),
        (libc::AT_EUID, own(libc::AT_EUID)),
        (libc::AT_GID, own(libc::AT_GID)),
        (libc::AT_EGID, own(libc::AT_EGID)),
        (libc::AT_SECURE, 0),
        (libc::AT_RANDOM, random),
        (libc::AT_EXECFN, path),
        (libc::AT_PLATFORM, platform),
    ];
    if let Some((object, entry)) = places.gate {
        auxiliary.extend([(AT_SYSINFO, entry), (libc::AT_SYSINFO_EHDR, object)]);
    }
    auxiliary.push((libc::AT_NULL, 0));

    let mut words = vec![arguments.len() as u64];
    words.extend(arguments);
    words.push(0);
    words.extend(environment);
    words.push(0);
    words.extend(auxiliary.iter().flat_map(|&(key, value)| [key, value]));
    let at = writer.at.checked_sub(words.len() as u64 * word).ok_or(EFAULT)? & !15;
    if at < writer.floor {
        return Err(EFAULT);
    }
    for (i, &value) in words.iter().enumerate() {
        let to = at + i as u64 * word;
        // Hardware capabilities and offsets fit 32 bits for a 32-bit program.
        if word == 4 { window.write(to, value as u32)? } else { window.write(to, value)? }
    }
    Ok(at)
}

/// The entry of the auxiliary vector that tells i386 programs what to call for a system call.
const AT_SYSINFO: u64 = 32;

/// Returns 16 random bytes, for the program's stack guards.
fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    // SAFETY: the buffer is ours. Should the call fail, the program's stack guards are zeros, which is allowed.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    bytes
}

/// Writes from the top of the stack downwards.
struct Writer<'a> {
    window: &'a Window,
    at: u64,
    floor: u64,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<u64, Errno> {
        let at = self.at.checked_sub(bytes.len() as u64).filter(|&at| at >= self.floor).ok_or(EFAULT)?;
        self.window.write_bytes(at, bytes)?;
        self.at = at;
        Ok(at)
    }

    fn text(&mut self, bytes: &[u8]) -> Result<u64, Errno> {
        self.put(&[0])?;
        self.put(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_where_the_abi_says() {
        for width in [Width::Bits32, Width::Bits64] {
            let mut memory = vec![0_u8; 0x4000];
            // SAFETY: the test keeps the memory.
            let window = unsafe { Window::new(memory.as_mut_ptr(), 0, 0x4000) };
            let start = Start {
                path: Path::new("/bin/app"),
                arguments: &["app".into(), "one".into()],
                environment: &["A=b".into()],
            };
            let places = Places {
                entry: 0x123,
                headers: Some((0x34, 7)),
                gate: Some((0xe000, 0xf000)),
                stack: 0x4000,
            };
            let at = stack(&window, width, places, &start, 0x1000).unwrap();
            assert_eq!(at % 16, 0);
            let word = |i: u64| match width {
                Width::Bits32 => u64::from(window.read::<u32>(at + 4 * i).unwrap()),
                Width::Bits64 => window.read::<u64>(at + 8 * i).unwrap(),
            };
            assert_eq!(word(0), 2);
            assert_eq!(window.text(word(2), 10).unwrap().to_bytes(), b"one");
            assert_eq!((word(3), word(5)), (0, 0));
            assert_eq!(window.text(word(4), 10).unwrap().to_bytes(), b"A=b");
            let pairs: Vec<_> =
                (0..).map(|i| (word(6 + 2 * i), word(7 + 2 * i))).take_while(|p| p.0 != 0).collect();
            for pair in [(libc::AT_ENTRY, 0x123), (libc::AT_PHNUM, 7), (AT_SYSINFO, 0xf000)] {
                assert!(pairs.contains(&pair), "{pair:?}");
            }
            assert!(stack(&window, width, places, &start, 100).is_err());
        }
    }
}
