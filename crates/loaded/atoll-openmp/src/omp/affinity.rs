//! The calls by which the program asks about places, and the affinity format.
//!
//! `places` binds the threads.

use super::env;
use super::places;
use super::team::{Team, Thread, me};
use atoll_memory::futex::Lock;
use std::ffi::CStr;
use std::fmt::Write;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_proc_bind() -> i32 {
    i32::from(me().icv().bind)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_num_places() -> i32 {
    me();
    places::count() as i32
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_place_num_procs(place: i32) -> i32 {
    me();
    places::cpus_of(place).len() as i32
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_place_proc_ids(place: i32, ids: *mut i32) {
    me();
    for (index, cpu) in places::cpus_of(place).into_iter().enumerate() {
        // SAFETY: the program's array has room for the place's CPUs.
        unsafe { *ids.add(index) = cpu as i32 };
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_place_num() -> i32 {
    let thread = me();
    // The first thread is bound only when its first region begins: until then it is said to be on the first place.
    if thread.place.get() < 0 && places::count() > 0 { 0 } else { thread.place.get() }
}

/// The numbers of the places in the partition, which is always all of them: members are bound to places but do not pass on a
/// part.
pub(crate) fn place_numbers() -> impl Iterator<Item = i32> {
    me();
    0..places::count() as i32
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_partition_num_places() -> i32 {
    omp_get_num_places()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_partition_place_nums(numbers: *mut i32) {
    for (index, place) in place_numbers().enumerate() {
        // SAFETY: the program's array has room for all places.
        unsafe { *numbers.add(index) = place };
    }
}

/// The affinity format that the program or the environment set; empty means [`USUAL`].
static FORMAT: Lock<Vec<u8>> = Lock::new(Vec::new());
const USUAL: &str = "level %L thread %i affinity %A";

pub(crate) fn omp_set_affinity_format_text(format: &[u8]) {
    me();
    *FORMAT.lock() = format.to_vec();
}

pub(crate) fn omp_get_affinity_format_text() -> Vec<u8> {
    me();
    let set = FORMAT.lock().clone();
    if !set.is_empty() {
        return set;
    }
    env::variable("OMP_AFFINITY_FORMAT").unwrap_or_else(|| USUAL.to_owned()).into_bytes()
}

/// The value of one field of the format, by its short name.
fn field(thread: &Thread, team: &Team, short: char) -> Option<String> {
    let number = |number: u32| Some(number.to_string());
    match short {
        't' => number(team.nesting.teams.get().1),
        'T' => number(team.nesting.teams.get().0),
        'L' => number(team.nesting.level.get()),
        'n' => number(thread.number()),
        'N' => number(team.threads()),
        'a' => {
            let level = team.nesting.level.get() as i32 - 1;
            Some(team.ancestor(thread.id(), level).map_or(-1, |(_, id)| id as i32).to_string())
        }
        'H' => Some(host()),
        // SAFETY: these calls have no preconditions.
        'P' => Some(unsafe { libc::getpid() }.to_string()),
        // SAFETY: as above.
        'i' => Some(format!("{:#x}", unsafe { libc::pthread_self() })),
        'A' => Some(ranges(&places::allowed_cpus())),
        _ => None,
    }
}

fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is as long as said, and stays zero-terminated.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// CPU numbers as text, such as `0-3,5`.
fn ranges(cpus: &[usize]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < cpus.len() {
        let mut last = at;
        while last + 1 < cpus.len() && cpus[last + 1] == cpus[last] + 1 {
            last += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let _ = if last == at {
            write!(text, "{comma}{}", cpus[at])
        } else {
            write!(text, "{comma}{}-{}", cpus[at], cpus[last])
        };
        at = last + 1;
    }
    text
}

const LONG_NAMES: [(&str, char); 10] = [
    ("team_num", 't'),
    ("num_teams", 'T'),
    ("nesting_level", 'L'),
    ("thread_num", 'n'),
    ("num_threads", 'N'),
    ("ancestor_tnum", 'a'),
    ("host", 'H'),
    ("process_id", 'P'),
    ("native_thread_id", 'i'),
    ("thread_affinity", 'A'),
];

/// Fills in the fields of `format`, which are written `%[0][.][width](name or letter)`.
pub(crate) fn omp_capture_affinity_text(format: &[u8]) -> Vec<u8> {
    let thread = me();
    let team = thread.team();
    let own = if format.is_empty() { omp_get_affinity_format_text() } else { format.to_vec() };
    let format = String::from_utf8_lossy(&own);
    let mut out = String::new();
    let mut rest = format.chars().peekable();
    while let Some(char) = rest.next() {
        if char != '%' {
            out.push(char);
            continue;
        }
        if rest.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let zeros = rest.next_if_eq(&'0').is_some();
        let right = rest.next_if_eq(&'.').is_some();
        let mut width = 0;
        while let Some(digit) = rest.peek().and_then(|char| char.to_digit(10)) {
            width = (width * 10 + digit as usize).min(1024);
            rest.next();
        }
        let short = match rest.next() {
            Some('{') => {
                let name = rest.by_ref().take_while(|char| *char != '}').collect::<String>();
                LONG_NAMES.iter().find(|(long, _)| *long == name).map(|(_, short)| *short)
            }
            short => short,
        };
        let Some(value) = short.and_then(|short| field(thread, team, short)) else {
            out.push_str("undefined");
            continue;
        };
        let is_number = !matches!(short, Some('H' | 'A'));
        out.push_str(&padded(&value, width, right, zeros && is_number));
    }
    out.into_bytes()
}

/// Pads the value to a field of `width`: zeros go between a number's sign, or its `0x`, and its digits, as libgomp puts them.
fn padded(value: &str, width: usize, right: bool, zeros: bool) -> String {
    if zeros {
        let digits =
            value.find(|c: char| c != '-').map_or(0, |at| if value.starts_with("0x") { 2 } else { at });
        let (sign, digits) = value.split_at(digits);
        return format!("{sign}{digits:0>width$}", width = width.saturating_sub(sign.len()));
    }
    if right { format!("{value:>width$}") } else { format!("{value:<width$}") }
}

pub(crate) fn omp_display_affinity_text(format: &[u8]) {
    let mut line = omp_capture_affinity_text(format);
    line.push(b'\n');
    // SAFETY: the pointer and length are of one live buffer.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// The bytes of a C string; empty for null.
fn text<'a>(start: *const libc::c_char) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: the program gives a string.
    unsafe { CStr::from_ptr(start) }.to_bytes()
}

/// Copies `text` into a C buffer as far as it fits; returns the length of the whole text.
fn fill(buffer: *mut u8, size: usize, text: &[u8]) -> usize {
    if size > 0 {
        let fits = text.len().min(size - 1);
        // SAFETY: the program's buffer has `size` bytes.
        unsafe {
            buffer.copy_from_nonoverlapping(text.as_ptr(), fits);
            *buffer.add(fits) = 0;
        }
    }
    text.len()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_affinity_format(format: *const libc::c_char) {
    omp_set_affinity_format_text(text(format));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_affinity_format(buffer: *mut u8, size: usize) -> usize {
    fill(buffer, size, &omp_get_affinity_format_text())
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_display_affinity(format: *const libc::c_char) {
    omp_display_affinity_text(text(format));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_capture_affinity(
    buffer: *mut u8,
    size: usize,
    format: *const libc::c_char,
) -> usize {
    fill(buffer, size, &omp_capture_affinity_text(text(format)))
}

#[cfg(test)]
mod tests {
    use super::{padded, ranges};

    #[test]
    fn zeros_follow_the_sign_of_a_number() {
        assert_eq!(padded("7", 3, true, true), "007");
        assert_eq!(padded("-1", 4, true, true), "-001");
        assert_eq!(padded("0x7f", 8, true, true), "0x00007f");
        assert_eq!(padded("0x7f", 2, true, true), "0x7f");
        assert_eq!((padded("a", 3, true, false), padded("a", 3, false, false)), ("  a".into(), "a  ".into()));
    }

    #[test]
    fn cpus_are_printed_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[]), "");
    }
}
