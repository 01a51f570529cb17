//! How much memory the machine has left: far memory is plain where that is plenty, and grows no further where it is little.
//!
//! Used by `auto`, once for some megabytes stored, and by lenders (`atoll-lend`), which keep a part of their host's memory free.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use crate::sys;

/// The machine is short of memory when less than one part in this number of its memory is available.
const SHORT_PART: u64 = 32;
/// The machine has plenty of memory when at least one part in this number of its memory is available.
const PLENTY_PART: u64 = 4;

/// How much memory the machine has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Left {
    /// Memory need not be saved.
    Plenty = 0,
    /// Memory is to be saved by compression.
    Some = 1,
    /// No more memory is to be taken.
    Little = 2,
}

/// The machine's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineMemory {
    /// All that there is.
    pub total: u64,
    /// What programs can still have.
    pub available: u64,
}

/// Reads the machine's memory; `None` where that cannot be read.
pub fn machine_memory() -> Option<MachineMemory> {
    // Closed without libc, by whose `close` a cancelled thread would end here, within its fault.
    let file = sys::open_briefly(c"/proc/meminfo").ok()?;
    let mut text = [0; 512];
    // SAFETY: a buffer of its size.
    let read = unsafe { sys::read(file, text.as_mut_ptr(), text.len()) }.unwrap_or(0);
    sys::close(file);
    memory_of(text.get(..read).unwrap_or_default())
}

/// The same from the beginning of /proc/meminfo.
fn memory_of(text: &[u8]) -> Option<MachineMemory> {
    let bytes = |name| kilobytes(text, name)?.checked_mul(1024);
    Some(MachineMemory { total: bytes(b"MemTotal:")?, available: bytes(b"MemAvailable:")? })
}

/// Reads how much memory the machine has left; [`Left::Plenty`] where that cannot be read.
pub(super) fn left() -> Left {
    left_of(machine_memory())
}

fn left_of(memory: Option<MachineMemory>) -> Left {
    match memory {
        Some(memory) if memory.available < memory.total / SHORT_PART => Left::Little,
        Some(memory) if memory.available < memory.total / PLENTY_PART => Left::Some,
        _ => Left::Plenty,
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
    fn a_machine_has_little_some_or_plenty_left() {
        let left = |text: &[u8]| left_of(memory_of(text));
        let text = |available: &str| {
            format!(
                "MemTotal:       24669408 kB\nMemFree:  1 kB\nMemAvailable:   {available} kB\nBuffers: 5 kB\n"
            )
        };
        assert_eq!(left(text("770000").as_bytes()), Left::Little);
        assert_eq!(left(text("780000").as_bytes()), Left::Some);
        assert_eq!(left(text("6100000").as_bytes()), Left::Some);
        assert_eq!(left(text("6200000").as_bytes()), Left::Plenty);
        for unread in ["", "MemTotal: 5 kB\n", "MemTotal: x\nMemAvailable: 99999999999999999999999 kB\n"] {
            assert_eq!(left(unread.as_bytes()), Left::Plenty, "{unread}");
        }
    }
}
