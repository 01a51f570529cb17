//! The page tables of a 64-bit core: an identity mapping of the segment by the largest pages, made once.
//!
//! `mod.rs` puts them where no program reaches them. This is pure arithmetic over bytes.

/// The number of bytes of a page table.
pub(super) const TABLE: usize = 4096;
const HUGE: u64 = 2 << 20;
const GIANT: u64 = 1 << 30;

const PRESENT: u64 = 1;
const WRITE: u64 = 2;
const USER: u64 = 4;
/// The bits accessed and dirty, which are set so that the processor need not write them.
const USED: u64 = 0x60;
const LARGE: u64 = 0x80;
const NO_EXECUTE: u64 = 1 << 63;

/// The first offset behind the pages that have small pages of their own: nothing, the gate, the slots.
pub(super) const LOW: u64 = 0x10000;
/// The offset of the gate and its thunks, which are read-only.
pub(super) const GATE: u64 = 0x1000;
/// The offset of the ring's slots, which are writable.
pub(super) const SLOTS: u64 = 0x8000;

/// The offset of the last page of the gate, where the core lands to make an ordinary system call. The program can execute it as
/// well, because software virtualisation goes on at user privilege there.
pub(super) const LANDING: u64 = SLOTS - 0x1000;

/// The tables of all levels.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) bytes: Vec<u8>,
    /// The guest-physical address of the top table.
    pub(super) root: u64,
}

/// Returns the number of bytes that [`make`] returns for a segment of `bytes`.
pub(super) fn size(bytes: u64) -> usize {
    // These are the top, the second level, one table for each GiB, and one of small pages.
    (3 + bytes.div_ceil(GIANT) as usize) * TABLE
}

/// Makes the tables for a segment of `bytes` (a multiple of 2 MiB, at most 512 GiB) at guest-physical address 0. The tables
/// themselves lie at `at`. `giant` says that the processor has pages of 1 GiB.
pub(super) fn make(bytes: u64, at: u64, giant: bool) -> Tables {
    let mut out = vec![0_u8; size(bytes)];
    let mut used = 0_u64;
    let mut table = || {
        used += 1;
        used - 1
    };
    let address = |table: u64| at + table * TABLE as u64;
    let mut set = |table: u64, i: u64, entry: u64| {
        let place = table as usize * TABLE + i as usize * 8;
        out[place..place + 8].copy_from_slice(&entry.to_le_bytes());
    };
    let open = PRESENT | WRITE | USER;
    let (top, second) = (table(), table());
    set(top, 0, address(second) | open);
    for gigabyte in 0..bytes.div_ceil(GIANT) {
        let from = gigabyte * GIANT;
        if gigabyte > 0 && giant && from + GIANT <= bytes {
            set(second, gigabyte, from | open | LARGE | USED);
            continue;
        }
        let third = table();
        set(second, gigabyte, address(third) | open);
        for i in 0..512 {
            let page = from + i * HUGE;
            if page >= bytes {
                break;
            }
            if page > 0 {
                set(third, i, page | open | LARGE | USED);
                continue;
            }
            let small = table();
            set(third, 0, address(small) | open);
            for j in 1..512 {
                let page = j * 4096;
                let allowed = match page {
                    GATE..SLOTS => PRESENT | USER,
                    SLOTS..LOW => open | NO_EXECUTE,
                    _ => open,
                };
                set(small, j, page | allowed | USED);
            }
        }
    }
    Tables { bytes: out, root: address(top) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns what the processor finds: the physical address and whether a program may read, write and execute there.
    fn walk(t: &Tables, at: u64, address: u64) -> Option<(u64, bool, bool, bool)> {
        let mut table = t.root;
        let (mut user, mut write, mut execute) = (true, true, true);
        for level in (0..4).rev() {
            let i = address >> (12 + 9 * level) & 511;
            let place = (table - at + i * 8) as usize;
            let entry = u64::from_le_bytes(t.bytes[place..place + 8].try_into().unwrap());
            if entry & PRESENT == 0 {
                return None;
            }
            user &= entry & USER != 0;
            write &= entry & WRITE != 0;
            execute &= entry & NO_EXECUTE == 0;
            table = entry & 0x000f_ffff_ffff_f000;
            if level == 0 || entry & LARGE != 0 {
                let mask = (1 << (12 + 9 * level)) - 1;
                return Some((table & !mask | address & mask, user, write && user, execute && user));
            }
        }
        None
    }

    proptest! {
        #[test]
        fn the_segment_and_nothing_else_is_the_programs(
            pages in 1_u64..3000, giant: bool, address in 0_u64..8 << 30, any: u64,
        ) {
            let bytes = pages * HUGE;
            let at = bytes.next_multiple_of(GIANT);
            let tables = make(bytes, at, giant);
            for address in [address, any & 0x0000_7fff_ffff_ffff, bytes - 1, bytes, 4095] {
                let seen = walk(&tables, at, address);
                match address {
                    0..GATE => prop_assert_eq!(seen, None),
                    GATE..SLOTS => prop_assert_eq!(seen, Some((address, true, false, true))),
                    SLOTS..LOW => prop_assert_eq!(seen, Some((address, true, true, false))),
                    _ if address < bytes => prop_assert_eq!(seen, Some((address, true, true, true))),
                    _ => prop_assert_eq!(seen, None),
                }
            }
        }
    }
}
