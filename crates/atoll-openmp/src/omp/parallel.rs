//! Parallel regions: opened by a leader, executed by a team, closed by the leader again.
//!
//! `crew` finds the members; `barrier::join` ends their part. The combined constructs of `loops` and `sections`
//! fill the team's first work share between opening and launching.

use super::barrier;
use super::crew;
use super::env;
use super::places;
use super::task::Group;
use super::taskgroup;
use super::team::{Function, Team, Thread, me};
use super::workshare;
use crate::{futex, hooks};
use std::ptr;
use std::sync::atomic::Ordering;

/// How many threads a region gets that asks for `asked` (0: does not say).
fn resolve(thread: &Thread, asked: u32) -> u32 {
    let icv = thread.icv();
    let team = thread.team();
    if asked == 1 || team.active_level.get() >= icv.max_active_levels {
        return 1;
    }
    let mut threads = if asked == 0 { icv.threads } else { asked };
    if icv.dynamic {
        threads = threads.min(env::cpus());
    }
    if icv.thread_limit != u32::MAX {
        threads = threads.min((icv.thread_limit + 1).saturating_sub(futex::busy()));
    }
    threads.max(1)
}

/// Opens a region of the calling thread: a team with its members claimed, not yet at work.
pub(crate) fn open(thread: &Thread, asked: u32, flags: u32) -> &'static Team {
    let wanted = resolve(thread, asked);
    let team = Team::obtain(thread, wanted as usize);
    let found = if wanted > 1 { crew::muster(thread, team, wanted - 1) } else { 0 };
    if found > 0 {
        futex::busier(found);
    }
    let outside = thread.state.get();
    // SAFETY: every thread has a team.
    let parent = unsafe { &*outside.team };
    let level = parent.level.get() + 1;
    let mut icv = thread.icv();
    // The lists of OMP_NUM_THREADS and OMP_PROC_BIND have one entry for each level.
    if let Some(threads) = env::threads_at(level) {
        icv.threads = threads;
    }
    let bind = if flags & 7 != 0 && icv.bind != 0 { (flags & 7) as u8 } else { icv.bind };
    if let Some(bind) = env::bind_at(level) {
        icv.bind = bind;
    }
    team.level.set(level);
    team.active_level.set(parent.active_level.get() + u32::from(found > 0));
    team.parent.set(parent);
    team.parent_id.set(outside.id);
    team.teams.set(parent.teams.get());
    team.bind.set(bind);
    team.leader_place.set(thread.place.get());
    team.outside.set(Some(outside));
    team.settle(found + 1, icv);
    team
}

/// Sends the members off and makes the leader one of them. Its part of the region is still to be called.
pub(crate) fn launch(
    thread: &Thread,
    team: &'static Team,
    function: Function,
    data: *mut u8,
    call_site: usize,
) {
    hooks::before_region();
    team.function.set(Some(function));
    team.data.set(data);
    team.call_site.set(call_site);
    // SAFETY: the crew is the leader's to use.
    for (worker, id) in unsafe { &*team.crew.get() }.iter().zip(1..team.size.get()) {
        // SAFETY: workers are never freed.
        unsafe { &**worker }.send(team, id);
    }
    thread.state.set(team.state_of(0));
    places::bind_member(thread, team, 0);
    hooks::region_enter(function as usize, call_site, team.size.get() as usize);
}

/// Ends the region that the thread leads: waits for all, and is outside again.
pub(crate) fn close(thread: &Thread) {
    let team = thread.team();
    let Some(outside) = team.outside.take() else { return };
    barrier::join(thread, team);
    let followers = team.size.get() - 1;
    if followers > 0 {
        // SAFETY: the crew is the leader's to use.
        for worker in unsafe { &*team.crew.get() } {
            // SAFETY: workers are never freed.
            unsafe { &**worker }.dismiss();
        }
        futex::calmer(followers);
    }
    workshare::close(team);
    team.cancelled.store(false, Ordering::Relaxed);
    // What members mapped is there for the leader after the region.
    crate::wrap::replay::catch_up();
    thread.state.set(outside);
    places::bind_back(thread, team);
    team.put_back(thread);
}

/// A whole region.
pub(crate) fn region(function: Function, data: *mut u8, asked: u32, flags: u32, call_site: usize) {
    let thread = me();
    let team = open(thread, asked, flags);
    launch(thread, team, function, data, call_site);
    function(data);
    close(thread);
}

extern "C" fn parallel(function: Function, data: *mut u8, asked: u32, flags: u32, call_site: usize) {
    region(function, data, asked, flags, call_site);
}

extern "C" fn parallel_reductions(
    function: Function,
    data: *mut u8,
    asked: u32,
    flags: u32,
    call_site: usize,
) -> u32 {
    let thread = me();
    let team = open(thread, asked, flags);
    // SAFETY: the region's data begins with the array of its reductions.
    let reductions = unsafe { *data.cast::<*mut usize>() };
    let group = Group::open(ptr::null(), false);
    taskgroup::register(reductions, ptr::null_mut(), ptr::null(), team.size.get() as usize);
    // SAFETY: just opened.
    unsafe { &*group }.reductions.set(reductions);
    team.group.set(group);
    launch(thread, team, function, data, call_site);
    function(data);
    let size = team.size.get();
    close(thread);
    // SAFETY: the region's tasks are complete.
    unsafe { Group::close(group) };
    size
}

/// `void GOMP_parallel(fn, data, num_threads, flags)`: passes on where it was called from.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel(function: Function, data: *mut u8, asked: u32, flags: u32) {
    std::arch::naked_asm!("mov r8, [rsp]", "jmp {body}", body = sym parallel)
}

/// `unsigned GOMP_parallel_reductions(fn, data, num_threads, flags)`, likewise.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_reductions(function: Function, data: *mut u8, asked: u32, flags: u32) -> u32 {
    std::arch::naked_asm!("mov r8, [rsp]", "jmp {body}", body = sym parallel_reductions)
}

/// The older form of regions, in which the program calls the leader's part itself.
#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_start(function: Function, data: *mut u8, asked: u32) {
    let thread = me();
    let team = open(thread, asked, 0);
    launch(thread, team, function, data, 0);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_end() {
    close(me());
}
