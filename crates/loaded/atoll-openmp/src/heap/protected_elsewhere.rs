//! Memory protections where workers are processes: each has mappings of its own, and follows what another one has changed.
//!
//! What the program allows is noted in memory that all workers share, so a fault tells what the worker's own mapping lacks. What another worker has
//! allowed is allowed here at the first fault ([`allow`]). What it has forbidden is noted here, by the order of changes, and forbidden when this worker
//! enters its next region, or has a fault. Writes are noticed at once: userfaultfd write-protects the memory in all page tables, so that the next write is
//! a fault. Pages that a worker has mapped may be read until it follows.
//!
//! Rules, as a handler of faults follows: no allocation, no locks the program could hold, no arena access, no printing.

use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::control::MAX_WORKERS;
use atoll_memory::layout;
use atoll_memory::pager::Pager;
use atoll_memory::pager::protections::Allowed;
use atoll_memory::spin::{Held, Spin};
use atoll_memory::sys::{self, Errno};

use super::large;
use crate::state::{self, SignalsBlocked};
use crate::wrap::replay;

/// The changes that are kept. Who lacks more goes through all memory.
const KEPT: usize = 1024;

/// The last changes: first address and end of each, by the change's number.
static CHANGES: Spin<[(usize, usize); KEPT]> = Spin::new([(0, 0); KEPT]);
/// The number of changes.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The number of changes that each page table has followed.
static DONE: [AtomicUsize; MAX_WORKERS] = [const { AtomicUsize::new(0) }; MAX_WORKERS];
/// Held while rights are noted and given to a mapping, so that threads of one page table give it those that were noted last.
static ORDER: Spin<()> = Spin::new(());

/// Keeps others from changing rights while it lives, where that matters.
pub(super) struct InOrder {
    _order: Option<(Held<'static, ()>, SignalsBlocked)>,
}

/// Waits until nobody else changes rights.
pub(super) fn in_order() -> InOrder {
    InOrder {
        _order: replay::needed().then(|| {
            let blocked = SignalsBlocked::new();
            (ORDER.lock(), blocked)
        }),
    }
}

/// The calling worker has forbidden something in `start..end`, or made it executable.
pub(super) fn changed(pager: &Pager, start: usize, end: usize) {
    if !replay::needed() {
        return;
    }
    let _blocked = SignalsBlocked::new();
    let mut changes = CHANGES.lock();
    let number = COUNT.load(Ordering::Relaxed);
    changes[number % KEPT] = (start, end);
    // The calling worker lacks no change of its own.
    let _ = DONE[state::table()].compare_exchange(number, number + 1, Ordering::Relaxed, Ordering::Relaxed);
    // Release: pairs with the Acquire in `is_behind`.
    COUNT.store(number + 1, Ordering::Release);
    drop(changes);
    pager.forbid_writes_elsewhere(state::table(), start, end);
}

/// The new process of page table `table` has the mappings of its maker, of page table `maker`.
pub(crate) fn inherit(table: usize, maker: usize) {
    DONE[table].store(DONE[maker].load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether the calling worker lacks changes.
#[inline]
pub(crate) fn is_behind() -> bool {
    // Acquire: pairs with the Release in `changed`.
    let count = COUNT.load(Ordering::Acquire);
    count != 0 && DONE[state::table()].load(Ordering::Relaxed) < count
}

/// Follows the changes that the calling worker lacks.
#[inline]
pub(crate) fn catch_up() {
    if is_behind() {
        follow();
    }
}

/// As [`catch_up`], where the caller knows that there is something to be followed.
#[cold]
pub(crate) fn follow() {
    let (Some(pager), table) = (state::pager(), state::table()) else { return };
    let _blocked = SignalsBlocked::new();
    loop {
        let change = {
            let changes = CHANGES.lock();
            let (count, done) = (COUNT.load(Ordering::Acquire), DONE[table].load(Ordering::Relaxed));
            let lacks = count.saturating_sub(done);
            // Noted before it is done: what changes meanwhile is a change that comes after.
            DONE[table].store(if lacks > KEPT { count } else { count.min(done + 1) }, Ordering::Relaxed);
            match lacks {
                0 => return,
                1..=KEPT => Some(changes[done % KEPT]),
                _ => None,
            }
        };
        match change {
            Some((start, end)) => forbid(pager, start, end),
            None => {
                forbid(pager, layout::ARENA, large::top());
                pager.for_each_range(|start, end| forbid(pager, start, end));
            }
        }
    }
}

/// Gives the calling worker's mappings of `start..end` the rights that are noted, where these are not the usual ones. Of the others some may be none of the
/// arena's any more.
fn forbid(pager: &Pager, start: usize, end: usize) {
    let _order = ORDER.lock();
    let mut at = start;
    while let Some((from, to, allowed)) = pager.first_unusual(at, end) {
        if give(from, to, allowed).is_err() {
            sys::complain("atoll: a protection that one worker set could not be repeated in another\n");
        }
        at = to;
    }
}

fn give(start: usize, end: usize, allowed: Allowed) -> Result<(), Errno> {
    let words = [start, end - start, allowed.prot() as usize, 0, 0, 0];
    // SAFETY: the program's own memory, of which it wants that.
    unsafe { sys::syscall(libc::SYS_mprotect, words) }.map(drop)
}

/// Gives the calling worker's mapping of the 4K at `address` the rights that are noted. `false`: it lies over the arena, and is none of it.
pub(crate) fn allow(pager: &Pager, address: usize) -> bool {
    let start = address & !4095;
    if !state::are_workers_processes() || pager.page_at(address).is_none() || pager.is_covered(address) {
        return false;
    }
    let _blocked = SignalsBlocked::new();
    let _order = ORDER.lock();
    give(start, start + 4096, pager.allowed_at(start)).is_ok()
}

/// The same of `start..start + len`, which the kernel is about to use: it has no faults that a worker could see.
pub(crate) fn allow_all(pager: &Pager, start: usize, len: usize) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    catch_up();
    let mut at = start & !4095;
    while at < start + len {
        if pager.allowed_at(at) == Allowed::Usual {
            // Where the kernel refuses, so will the call.
            let _ = allow(pager, at);
        }
        at += 4096;
    }
}
