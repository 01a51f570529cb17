//! SIGSEGV on several nodes, from touching memory that only another node has.
//!
//! Most memory that a program shares is paged and kept coherent. Workers' stacks, and the blocks that libc allocates for
//! itself, are not, and are mapped only on their own node (`heap::place`). A program that touches such memory on another node
//! ends with a message that says so. Files that the program mapped on another node are mapped here (`nodes::files`). Any other
//! SIGSEGV is the program's own.
//!
//! Rules: no allocation, no locks, no arena access, no printing unless the program ends.

use std::ffi::{c_int, c_void};
use std::fmt::Write;
use std::mem::MaybeUninit;

use atoll_memory::control::EXIT_SETUP;
use atoll_memory::layout;

use super::signal::{pass_on, real_sigaction};
use crate::state;
use crate::wrap::replay;
use atoll_memory::ending::Text;
use atoll_nodes::files::{self, Fetched};

/// The node that memory at `address` belongs to, and a description of the memory.
fn owner(address: usize, nodes: u32) -> Option<(usize, &'static str)> {
    let areas = [
        (
            layout::PINNED,
            layout::PINNED_BYTES,
            "a block that libc made, such as a stream or a copy of a string",
        ),
        (layout::STACKS, layout::STACKS_BYTES, "a variable on a worker's stack"),
    ];
    areas.into_iter().find_map(|(start, bytes, what)| {
        let offset = address.checked_sub(start).filter(|offset| *offset < bytes)?;
        Some((offset / layout::part(bytes, 0, nodes).1, what))
    })
}

/// Maps the memory at `address` in this worker if another worker or node has it mapped; returns whether it did.
fn is_mapped_elsewhere(address: usize) -> bool {
    let was_behind = replay::is_behind();
    if !was_behind {
        match files::fetch(address) {
            Fetched::Here if replay::is_behind() => {}
            Fetched::NotHere(owner) => {
                let mut text = Text::new();
                // The write cuts a text that does not fit.
                let _ = write!(
                    text,
                    "a file that node {owner} has mapped (at {address:#x}) is used on another machine, or by a user who may not \
                     take it: run this program without --nodes, or on nodes of one machine"
                );
                state::give_up(EXIT_SETUP, text.as_str());
            }
            _ => return false,
        }
    }
    replay::catch_up();
    true
}

unsafe extern "C" fn on_sigsegv(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's description of the signal.
    let (address, caused) = unsafe { ((*info).si_addr() as usize, (*info).si_code > 0) };
    if caused && atoll_nodes::active() && is_mapped_elsewhere(address) {
        return;
    }
    if caused
        && let Some((node, nodes)) = atoll_nodes::several()
        && let Some((owner, what)) = owner(address, nodes)
        && owner != node as usize
    {
        let mut text = Text::new();
        // The write cuts a text that does not fit.
        let _ = write!(
            text,
            "a worker of node {node} uses memory at {address:#x} that only node {owner} has ({what}): run this program \
             without --nodes, or have it share variables of the program's own"
        );
        state::give_up(EXIT_SETUP, text.as_str());
    }
    // SAFETY: the arguments of this handler.
    unsafe { pass_on(signal, info, context) };
}

/// Sets our handler of SIGSEGV.
pub(super) fn install() {
    // SAFETY: sigaction is plain data.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_sigsegv as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    real_sigaction(libc::SIGSEGV, &action);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_one_node_is_told_by_its_address() {
        let part = layout::part(layout::STACKS_BYTES, 2, 3).0;
        assert!(
            owner(layout::STACKS + part + 100, 3)
                .is_some_and(|(node, what)| node == 2 && what.contains("stack"))
        );
        assert!(owner(layout::PINNED, 3).is_some_and(|(node, _)| node == 0));
        assert_eq!(owner(8, 3), None);
        assert_eq!(owner(layout::ARENA, 3), None);
    }
}
