//! `omp_get_*` and `omp_set_*`: the program's questions about its team, and the control variables it sets.
//!
//! `fortran` has the same functions under Fortran's names; `affinity` has those about places.

use super::display;
use super::env;
use super::icv::{
    SCHED_AUTO, SCHED_DYNAMIC, SCHED_GUIDED, SCHED_MONOTONIC, SCHED_STATIC, SUPPORTED_ACTIVE_LEVELS,
};
use super::team::me;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

macro_rules! queries {
    ($($name:ident -> $result:ty = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name() -> $result {
            $value
        }
    )*};
}

queries! {
    omp_get_thread_num -> i32 = me().number() as i32;
    omp_get_num_threads -> i32 = me().team().threads() as i32;
    omp_get_max_threads -> i32 = me().icv().threads as i32;
    omp_get_num_procs -> i32 = { me(); env::cpus() as i32 };
    omp_in_parallel -> i32 = i32::from(me().team().nesting.active_level.get() > 0);
    omp_get_dynamic -> i32 = i32::from(me().icv().dynamic);
    omp_get_nested -> i32 = {
        let thread = me();
        i32::from(thread.icv().max_active_levels > thread.team().nesting.active_level.get().max(1))
    };
    omp_get_thread_limit -> i32 = i32::try_from(me().icv().thread_limit).unwrap_or(i32::MAX);
    omp_get_max_active_levels -> i32 = me().icv().max_active_levels as i32;
    omp_get_supported_active_levels -> i32 = SUPPORTED_ACTIVE_LEVELS as i32;
    omp_get_level -> i32 = me().team().nesting.level.get() as i32;
    omp_get_active_level -> i32 = me().team().nesting.active_level.get() as i32;
    omp_in_final -> i32 = i32::from(me().task().is_final.get());
    omp_get_cancellation -> i32 = { me(); i32::from(env::cancellation()) };
    omp_get_max_task_priority -> i32 = { me(); env::max_task_priority() };
    omp_get_default_device -> i32 = me().icv().default_device;
    omp_get_num_devices -> i32 = 0;
    omp_get_device_num -> i32 = 0;
    omp_get_initial_device -> i32 = 0;
    omp_is_initial_device -> i32 = 1;
    omp_get_num_teams -> i32 = me().team().nesting.teams.get().0 as i32;
    omp_get_team_num -> i32 = me().team().nesting.teams.get().1 as i32;
    omp_get_max_teams -> i32 = { me(); env::TEAMS.load(Ordering::Relaxed) };
    omp_get_teams_thread_limit -> i32 = { me(); env::TEAMS_THREAD_LIMIT.load(Ordering::Relaxed) };
    omp_get_wtime -> f64 = clock(libc::clock_gettime);
    omp_get_wtick -> f64 = clock(libc::clock_getres);
}

fn clock(read: unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> i32) -> f64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the clock exists on every Linux, and the call fills the zeroed place.
    let time = unsafe {
        read(libc::CLOCK_MONOTONIC, time.as_mut_ptr());
        time.assume_init()
    };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_num_threads(threads: i32) {
    me().set_icv(|icv| icv.threads = threads.max(1) as u32);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_dynamic(on: i32) {
    me().set_icv(|icv| icv.dynamic = on != 0);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_nested(on: i32) {
    me().set_icv(|icv| {
        if on == 0 {
            icv.max_active_levels = 1;
        } else if icv.max_active_levels == 1 {
            icv.max_active_levels = SUPPORTED_ACTIVE_LEVELS;
        }
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_max_active_levels(levels: i32) {
    if levels >= 0 {
        me().set_icv(|icv| icv.max_active_levels = (levels as u32).min(SUPPORTED_ACTIVE_LEVELS));
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_schedule(kind: u32, chunk: i32) {
    me().set_icv(|icv| match kind & !SCHED_MONOTONIC {
        SCHED_STATIC => (icv.schedule, icv.chunk) = (kind, chunk.max(0)),
        SCHED_DYNAMIC | SCHED_GUIDED => (icv.schedule, icv.chunk) = (kind, chunk.max(1)),
        SCHED_AUTO => icv.schedule = kind,
        _ => {}
    });
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_schedule(kind: *mut u32, chunk: *mut i32) {
    let icv = me().icv();
    // SAFETY: the program gives the places of two variables.
    unsafe {
        *kind = icv.schedule;
        *chunk = icv.chunk;
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_ancestor_thread_num(level: i32) -> i32 {
    let thread = me();
    thread.team().ancestor(thread.id(), level).map_or(-1, |(_, id)| id as i32)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_get_team_size(level: i32) -> i32 {
    let thread = me();
    thread.team().ancestor(thread.id(), level).map_or(-1, |(team, _)| team.threads() as i32)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_default_device(device: i32) {
    me().set_icv(|icv| icv.default_device = device.max(0));
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_num_teams(teams: i32) {
    me();
    env::TEAMS.store(teams.max(0), Ordering::Relaxed);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_set_teams_thread_limit(limit: i32) {
    me();
    env::TEAMS_THREAD_LIMIT.store(limit.max(0), Ordering::Relaxed);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_display_env(verbose: i32) {
    me();
    display::environment(&env::initial_icv(), verbose != 0);
}

/// Does nothing, as nothing is held that could be given back; -1 for devices that do not exist.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_pause_resource(kind: i32, device: i32) -> i32 {
    if (1..=2).contains(&kind) && device == 0 { 0 } else { -1 }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn omp_pause_resource_all(kind: i32) -> i32 {
    omp_pause_resource(kind, 0)
}

/// The program's message, as for `#pragma omp error at(execution)`.
pub(super) fn message(kind: &str, text: *const u8, length: usize) -> String {
    if text.is_null() {
        return format!("{kind} directive encountered");
    }
    // SAFETY: the program passes a text, which ends in 0 where no length is given.
    let bytes = unsafe {
        let length = if length == usize::MAX { libc::strlen(text.cast()) } else { length };
        std::slice::from_raw_parts(text, length)
    };
    format!("{kind} directive encountered: {}", String::from_utf8_lossy(bytes))
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_warning(text: *const u8, length: usize) {
    super::say(&message("warning", text, length));
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_error(text: *const u8, length: usize) {
    super::fatal(&message("error", text, length));
}
