//! `mprotect`, interposed: paged memory gets the rights that the program asks for, and is paged all the same.
//!
//! The kernel enforces the rights, as without atoll. The pager notes them (`pager/protections` of `atoll-memory`) and goes on bringing and taking pages,
//! which needs no right to a mapping. A fault that the rights forbid is the program's own: `start::signal` hands it over. Where workers are processes,
//! `protected_elsewhere` has the others follow. Memory that the program frees is usual again: `mapped_over` calls [`lift`].
//!
//! `mprotect` may be called by the handler of a fault, so nothing here allocates but for memory that is mapped over, or holds code.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::layout;
use atoll_memory::pager::Pager;
use atoll_memory::pager::protections::Allowed;
use atoll_memory::sys::{self, Errno};

use super::{large, mapped_over, mapping, overflow, protected_elsewhere};
use crate::start::{objects, signal, take_over};
use crate::state;
use crate::wrap::replay;

/// Bytes of what the pager may change the rights of as a whole, where the program has not changed them.
const STRETCH: usize = 2 << 20;

/// `mprotect`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mprotect(at: usize, len: usize, prot: c_int) -> c_int {
    if prot & libc::PROT_WRITE != 0 && objects::is_own_code_between(at, at.saturating_add(len)) {
        // Libraries that write jumps over the first instructions of `mmap` and its family (UCX's memory hooks, Open MPI's) would
        // go past what these functions do here.
        return mapping::status(Err(Errno(libc::EACCES)));
    }
    let changed = match state::pager() {
        Some(pager) if pager.first_paged(at, len).is_some() => change(pager, at, len, prot),
        _ => replay::protect(at, len, prot),
    };
    mapping::status(changed.map(|()| 0))
}

/// Gives `at..at + len`, some of which is paged memory, these rights.
pub(super) fn change(pager: &Pager, at: usize, len: usize, prot: c_int) -> Result<(), Errno> {
    if !at.is_multiple_of(4096) {
        return Err(Errno(libc::EINVAL));
    }
    let end = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(4096));
    let end = end.ok_or(Errno(libc::ENOMEM))?;
    let mut here = at;
    while here < end {
        let (from, to) = pager.first_paged(here, end - here).unwrap_or((end, end));
        if here < from {
            replay::protect(here, from - here, prot)?;
        }
        if from < to {
            change_paged(pager, from, to, prot)?;
        }
        here = to;
    }
    Ok(())
}

/// Gives paged memory of one stretch these rights.
fn change_paged(pager: &Pager, start: usize, end: usize, prot: c_int) -> Result<(), Errno> {
    let is_code = prot & libc::PROT_EXEC != 0;
    if !are_possible(pager) {
        // Pages are larger than what programs protect, or come from other nodes and past the rights of their mappings.
        if prot & libc::PROT_WRITE == 0 {
            say_once();
        }
        return if is_code { execute_all(pager, start, end) } else { Ok(()) };
    }
    let allowed = if is_code { Allowed::Everything } else { Allowed::of(prot) };
    let is_block = layout::in_arena(start) && !overflow::AREA.contains(&start);
    if !is_block || allowed == Allowed::Usual && mapped_over::lies_nothing() {
        // mimalloc asks for small blocks' memory so while the locks below may be held.
        return change_own(pager, start, end, allowed);
    }
    if !large::is_live(start, end) {
        return Err(Errno(libc::ENOMEM));
    }
    if is_code && take_over::is_taken() {
        change_own(pager, start, end, Allowed::Usual)?;
        return mapping::take_out(start, end - start, prot);
    }
    if mapped_over::lies_nothing() {
        return change_own(pager, start, end, allowed);
    }
    for (a, b) in mapped_over::between(start, end) {
        change_own(pager, a, b, allowed)?;
    }
    mapped_over::within(start, end).into_iter().try_for_each(|(a, b)| replay::protect(a, b - a, prot))
}

/// Says that protections have no effect to whom it matters: the program has a handler of the signal that it will not get.
fn say_once() {
    static SAID: AtomicBool = AtomicBool::new(false);
    let is_waited_for = signal::is_ours(libc::SIGSEGV)
        && ![libc::SIG_DFL, libc::SIG_IGN].contains(&signal::program_handler(libc::SIGSEGV).0);
    if is_waited_for && !SAID.swap(true, Ordering::Relaxed) {
        sys::complain(
            "atoll: mprotect has no effect on paged memory on several nodes: the program's handler of SIGSEGV will not hear of accesses to what it protects\n",
        );
    }
}

/// Whether memory of the arena can have rights of the program's own in this run.
pub(crate) fn are_possible(pager: &Pager) -> bool {
    !pager.is_segment() && pager.page_bytes() < STRETCH && !pager.control().settings.several_nodes()
}

/// Makes whole pages executable besides.
fn execute_all(pager: &Pager, start: usize, end: usize) -> Result<(), Errno> {
    let page = pager.page_bytes();
    let from = start & !(page - 1);
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    replay::protect(from, (end - from).next_multiple_of(page), all)
}

/// Gives memory that is the arena's own these rights.
fn change_own(pager: &Pager, start: usize, end: usize, allowed: Allowed) -> Result<(), Errno> {
    if allowed == Allowed::Usual {
        return make_usual(pager, start, end);
    }
    {
        let _order = protected_elsewhere::in_order();
        // Whoever has a fault from here on is to know whose it is.
        pager.note_allowed(start, end, allowed);
        large::make_pages_single(pager, start, end);
        protect(start, end, allowed)?;
    }
    protected_elsewhere::changed(pager, start, end);
    Ok(())
}

fn protect(start: usize, end: usize, allowed: Allowed) -> Result<(), Errno> {
    let words = [start, end - start, allowed.prot() as usize, 0, 0, 0];
    // SAFETY: the program's own memory, as it asks.
    unsafe { sys::syscall(libc::SYS_mprotect, words) }.map(drop)
}

/// Makes `start..end` usual again, one call for each part that is not and what lies near by. The rest may be far huge pages, whose mappings the pager keeps
/// without rights.
fn make_usual(pager: &Pager, start: usize, end: usize) -> Result<(), Errno> {
    let mut at = start;
    while let Some((from, mut to, _)) = pager.first_unusual(at, end) {
        while let Some((next, until, _)) = pager.first_unusual(to, end)
            && next / STRETCH <= (to - 1) / STRETCH + 1
        {
            to = until;
        }
        let _order = protected_elsewhere::in_order();
        protect(from, to, Allowed::Usual)?;
        pager.note_allowed(from, to, Allowed::Usual);
        at = to;
    }
    Ok(())
}

/// Makes `start..end` usual again, which the program gives up.
///
/// # Errors
/// The kernel's: it has no room for another mapping.
pub(super) fn lift(start: usize, end: usize) -> Result<(), Errno> {
    match state::pager().filter(|pager| !pager.all_is_usual() && start < end) {
        Some(pager) => make_usual(pager, start, end),
        None => Ok(()),
    }
}

/// Whether some memory of the program's has other rights than usual.
pub(super) fn are_any() -> bool {
    state::pager().is_some_and(|pager| !pager.all_is_usual())
}

/// Whether to note the rights of so many bytes would take too much of near memory: more than a part in 256 of it.
pub(super) fn are_too_many(bytes: usize) -> bool {
    const TIMES: u64 = 64;
    state::control().is_some_and(|control| bytes as u64 / TIMES > control.near())
}

/// Gives new memory of the program's at `at`, in the arena, the rights with which it is mapped. Addresses that are reserved by the terabyte are
/// usual memory.
///
/// # Errors
/// The kernel's: it has no room for another mapping. The memory is usual.
pub(super) fn begin(at: usize, len: usize, prot: c_int) -> Result<(), Errno> {
    let usual = libc::PROT_READ | libc::PROT_WRITE;
    let is_noted = prot & usual != usual && prot & libc::PROT_EXEC == 0 && !are_too_many(len);
    let Some(pager) = state::pager().filter(|_| is_noted) else { return Ok(()) };
    change(pager, at, len, prot).inspect_err(|_| {
        // It was usual before, so the kernel has room for that.
        let _ = lift(at, at + len);
    })
}

/// Calls `change` while `start..end` is usual, which gets the rights back that it had.
pub(super) fn while_usual(start: usize, end: usize, change: impl FnOnce()) -> Result<(), Errno> {
    let parts = of(start, end);
    lift(start, end)?;
    change();
    again(&parts, start, start)
}

/// A part of memory that is not usual: its first address, its end, and what the program allows.
pub(super) type Part = (usize, usize, Allowed);

/// The parts of `start..end` that are not usual.
pub(super) fn of(start: usize, end: usize) -> Vec<Part> {
    let Some(pager) = state::pager() else { return Vec::new() };
    let mut parts = Vec::new();
    let mut at = start;
    while let Some(part) = pager.first_unusual(at, end) {
        at = part.1;
        parts.push(part);
    }
    parts
}

/// Gives memory at `to` the rights that `parts` had of memory at `from`.
pub(super) fn again(parts: &[Part], from: usize, to: usize) -> Result<(), Errno> {
    let Some(pager) = state::pager() else { return Ok(()) };
    let mut parts = parts.iter().filter(|(a, b, _)| a < b);
    parts.try_for_each(|&(a, b, allowed)| change_own(pager, a - from + to, b - from + to, allowed))
}

/// What the program allows of the end of `range`, in the arena.
pub(super) fn at_end(range: Range<usize>) -> Allowed {
    state::pager().map_or(Allowed::Usual, |pager| pager.allowed_at(range.end - 1))
}

/// Allows so much of `range`, which is usual.
pub(super) fn again_of(allowed: Allowed, range: Range<usize>) -> Result<(), Errno> {
    again(&[(range.start, range.end, allowed)], range.start, range.start)
}
