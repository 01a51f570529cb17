//! Dependences as LLVM's compilers give them: an array of addresses with what the task does.
//!
//! The runtime's `depend` keeps the order.

use super::super::depend::{Access, Wanted};

/// `kmp_depend_info_t`.
#[repr(C)]
pub(super) struct Dependence {
    address: usize,
    bytes: usize,
    kind: u8,
}

const IN: u8 = 1;
const TOGETHER: u8 = 8;
const ALL: u8 = 0x80;
/// The address that stands for all memory, besides the flag.
const EVERYWHERE: usize = usize::MAX;

/// The dependences of all lists together; `None` where the lists are empty.
pub(super) fn wanted(lists: [(i32, *const Dependence); 2]) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    for (count, list) in lists {
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the program passes as many as it says.
            let Dependence { address, kind, .. } = unsafe { &*list.add(index) };
            match kind & !(TOGETHER | IN) {
                _ if kind & ALL != 0 || *address == EVERYWHERE => wanted.all = true,
                // Comes from an iterator without values, or from a depend object without dependences.
                0 if *kind == 0 => {}
                0 if kind & TOGETHER != 0 => wanted.list.push((*address, Access::Together)),
                0 => wanted.list.push((*address, Access::Read)),
                // `mutexinoutset` is ordered like `inout`, which the specification allows.
                _ => wanted.list.push((*address, Access::Write)),
            }
        }
    }
    (wanted.all || !wanted.list.is_empty()).then_some(wanted)
}
