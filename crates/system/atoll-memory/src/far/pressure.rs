//! Whether the machine has little memory left: compressed far memory then grows no further.
//!
//! Used by `auto`, once for some megabytes stored.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use rustix::fs::{self, CWD, Mode, OFlags};

/// A part of the machine's memory that is left to others.
const LEFT_PART: u64 = 32;

/// Whether less than a 32nd of the machine's memory is available; `false` where that cannot be read.
pub(super) fn machine_is_short() -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = fs::openat(CWD, c"/proc/meminfo", flags, Mode::empty()) else { return false };
    let mut text = [0; 512];
    let read = rustix::io::read(&file, &mut text).unwrap_or(0);
    is_short(text.get(..read).unwrap_or_default())
}

/// From the beginning of /proc/meminfo.
fn is_short(text: &[u8]) -> bool {
    match (kilobytes(text, b"MemTotal:"), kilobytes(text, b"MemAvailable:")) {
        (Some(total), Some(available)) => available < total / LEFT_PART,
        _ => false,
    }
}

/// The number behind a name at the beginning of a line.
fn kilobytes(text: &[u8], name: &[u8]) -> Option<u64> {
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    let digits = line.iter().skip_while(|byte| **byte == b' ').take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |sum: Option<u64>, digit| {
        sum.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_little_left_is_short() {
        let text = |available: &str| {
            format!(
                "MemTotal:       24669408 kB\nMemFree:  1 kB\nMemAvailable:   {available} kB\nBuffers: 5 kB\n"
            )
        };
        assert!(is_short(text("770000").as_bytes()));
        assert!(!is_short(text("780000").as_bytes()));
        for unread in ["", "MemTotal: 5 kB\n", "MemTotal: x\nMemAvailable: 99999999999999999999999 kB\n"] {
            assert!(!is_short(unread.as_bytes()), "{unread}");
        }
    }
}
