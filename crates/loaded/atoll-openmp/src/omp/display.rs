//! `omp_display_env`: prints the values of the control variables.
//!
//! `env` calls it for OMP_DISPLAY_ENV, `routines` for the program.

use super::allocator_variable;
use super::env;
use super::icv::{Icv, SCHED_MONOTONIC, SUPPORTED_ACTIVE_LEVELS};
use super::places;
use std::fmt::Write;

fn truth(value: bool) -> &'static str {
    if value { "TRUE" } else { "FALSE" }
}

/// Prints the control variables in the form that the specification gives.
pub(crate) fn environment(icv: &Icv, verbose: bool) {
    let mut text = String::from("\nOPENMP DISPLAY ENVIRONMENT BEGIN\n");
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name} = '{value}'");
    };
    line("_OPENMP", "201511".to_owned());
    line("OMP_DYNAMIC", truth(icv.dynamic).to_owned());
    line("OMP_NESTED", truth(icv.max_active_levels > 1).to_owned());
    let threads = (0..).map_while(env::threads_at).map(|threads| threads.to_string()).collect::<Vec<_>>();
    line("OMP_NUM_THREADS", if threads.is_empty() { icv.threads.to_string() } else { threads.join(",") });
    let kind = ["STATIC", "STATIC", "DYNAMIC", "GUIDED", "AUTO"];
    let kind = kind.get((icv.schedule & !SCHED_MONOTONIC) as usize).copied().unwrap_or("AUTO");
    let modifier = match (icv.schedule & SCHED_MONOTONIC != 0, kind) {
        (true, "STATIC") | (false, "DYNAMIC" | "GUIDED" | "AUTO") => "",
        (true, _) => "MONOTONIC:",
        (false, _) => "NONMONOTONIC:",
    };
    let usual = i32::from(kind == "DYNAMIC" || kind == "GUIDED");
    let chunk = if icv.chunk == usual { String::new() } else { format!(",{}", icv.chunk) };
    line("OMP_SCHEDULE", format!("{modifier}{kind}{chunk}"));
    let name = |bind: u8| {
        ["FALSE", "TRUE", "PRIMARY", "CLOSE", "SPREAD"].get(usize::from(bind)).copied().unwrap_or("FALSE")
    };
    let binds = (0..).map_while(env::bind_at).map(name).collect::<Vec<_>>();
    line("OMP_PROC_BIND", if binds.is_empty() { name(icv.bind).to_owned() } else { binds.join(",") });
    let list = |place: i32| {
        let cpus = places::cpus_of(place).iter().map(ToString::to_string).collect::<Vec<_>>();
        format!("{{{}}}", cpus.join(","))
    };
    line("OMP_PLACES", (0..places::count() as i32).map(list).collect::<Vec<_>>().join(","));
    line("OMP_STACKSIZE", env::stack_bytes().to_string());
    let policy = if env::wait_policy() > 0 { "ACTIVE" } else { "PASSIVE" };
    line("OMP_WAIT_POLICY", policy.to_owned());
    line("OMP_THREAD_LIMIT", icv.thread_limit.to_string());
    line("OMP_MAX_ACTIVE_LEVELS", icv.max_active_levels.min(SUPPORTED_ACTIVE_LEVELS).to_string());
    let teams =
        |value: &std::sync::atomic::AtomicI32| value.load(std::sync::atomic::Ordering::Relaxed).to_string();
    line("OMP_NUM_TEAMS", teams(&env::TEAMS));
    line("OMP_TEAMS_THREAD_LIMIT", teams(&env::TEAMS_THREAD_LIMIT));
    line("OMP_CANCELLATION", truth(env::cancellation()).to_owned());
    line("OMP_DEFAULT_DEVICE", icv.default_device.to_string());
    line("OMP_MAX_TASK_PRIORITY", env::max_task_priority().to_string());
    line("OMP_DISPLAY_AFFINITY", "FALSE".to_owned());
    line("OMP_ALLOCATOR", allocator_variable::name(icv.allocator));
    line("OMP_TARGET_OFFLOAD", "DEFAULT".to_owned());
    if verbose {
        let bind = env::variable("GOMP_CPU_AFFINITY").unwrap_or_default();
        line("GOMP_CPU_AFFINITY", bind);
        line("GOMP_STACKSIZE", env::stack_bytes().to_string());
        line("GOMP_SPINCOUNT", env::spin_count().map_or("-1".to_owned(), |count| count.to_string()));
    }
    text.push_str("OPENMP DISPLAY ENVIRONMENT END\n");
    // SAFETY: the pointer and length are of one live string.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}
