//! The environment's variables, read once, before anything depends on them.
//!
//! Gives the first task's control variables (`icv`) and the few that belong to the program as a whole; `display` prints them
//! and `places` reads its own part.

use super::allocator_variable;
use super::display;
use super::icv::{
    BIND_CLOSE, BIND_FALSE, BIND_PRIMARY, BIND_SPREAD, BIND_TRUE, Icv, SCHED_AUTO, SCHED_DYNAMIC,
    SCHED_GUIDED, SCHED_MONOTONIC, SCHED_STATIC, SUPPORTED_ACTIVE_LEVELS,
};
use super::kmp;
use super::places;
use atoll_memory::futex::{self, Lock};
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// The greatest number of nesting levels in a list of the environment; deeper levels have no entry.
const LEVELS: usize = 16;
static THREADS: [AtomicU32; LEVELS] = [const { AtomicU32::new(0) }; LEVELS];
static BINDS: [AtomicU32; LEVELS] = [const { AtomicU32::new(u32::MAX) }; LEVELS];

static INITIAL: Lock<Icv> = Lock::new(Icv::initial(1));
static CPUS: AtomicU32 = AtomicU32::new(1);
static THROTTLES_TASKS: AtomicBool = AtomicBool::new(true);
static STACK: AtomicUsize = AtomicUsize::new(0);
static CANCELLATION: AtomicBool = AtomicBool::new(false);
static MAX_TASK_PRIORITY: AtomicI32 = AtomicI32::new(0);
static WAIT_POLICY: AtomicI32 = AtomicI32::new(-1);
static SPIN_COUNT: AtomicU64 = AtomicU64::new(u64::MAX);
pub(crate) static TEAMS: AtomicI32 = AtomicI32::new(0);
pub(crate) static TEAMS_THREAD_LIMIT: AtomicI32 = AtomicI32::new(0);

const UNREAD: u32 = 0;
const READING: u32 = 1;
const READ: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(UNREAD);

/// Reads the environment, unless that was done.
pub(crate) fn init() {
    match STATE.compare_exchange(UNREAD, READING, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            read();
            STATE.store(READ, Ordering::Release);
        }
        Err(_) => {
            while STATE.load(Ordering::Acquire) != READ {
                std::hint::spin_loop();
            }
        }
    }
}

pub(crate) fn initial_icv() -> Icv {
    *INITIAL.lock()
}

/// The number of CPUs that this program may use.
pub(crate) fn cpus() -> u32 {
    CPUS.load(Ordering::Relaxed)
}

/// Sets the size of the stacks of workers made from now on.
pub(crate) fn set_stack_bytes(bytes: usize) {
    STACK.store(bytes, Ordering::Relaxed);
}

/// The stack size of a new worker in bytes; 0 for the system's choice.
pub(crate) fn stack_bytes() -> usize {
    STACK.load(Ordering::Relaxed)
}

/// Whether a thread that has made many tasks executes the next ones at once.
#[inline]
pub(crate) fn throttles_tasks() -> bool {
    THROTTLES_TASKS.load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn cancellation() -> bool {
    CANCELLATION.load(Ordering::Relaxed)
}

pub(crate) fn max_task_priority() -> i32 {
    MAX_TASK_PRIORITY.load(Ordering::Relaxed)
}

pub(crate) fn wait_policy() -> i32 {
    WAIT_POLICY.load(Ordering::Relaxed)
}

/// The value of GOMP_SPINCOUNT, where given.
pub(crate) fn spin_count() -> Option<u64> {
    Some(SPIN_COUNT.load(Ordering::Relaxed)).filter(|count| *count != u64::MAX)
}

/// The number of threads for a region at nesting `level`, if the environment gave a list that long.
pub(crate) fn threads_at(level: u32) -> Option<u32> {
    THREADS.get(level as usize).map(|entry| entry.load(Ordering::Relaxed)).filter(|threads| *threads != 0)
}

/// The binding policy for regions at nesting `level`, if the environment gave a list that long.
pub(crate) fn bind_at(level: u32) -> Option<u8> {
    BINDS
        .get(level as usize)
        .map(|entry| entry.load(Ordering::Relaxed))
        .and_then(|bind| u8::try_from(bind).ok())
}

/// The value of a variable, without blanks around it.
pub(crate) fn variable(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name is a string; the value is copied at once.
    let value = unsafe {
        let value = libc::getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value).to_string_lossy().into_owned()
    };
    Some(value.trim().to_owned())
}

fn invalid(name: &str, value: &str) {
    super::say(&format!("Invalid value for environment variable {name}: {value}"));
}

/// The value of a variable as `parse` understands it; prints a complaint where it is not valid.
fn parsed<T>(name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    let value = variable(name)?;
    let result = parse(&value);
    if result.is_none() {
        invalid(name, &value);
    }
    result
}

fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// A switch as LLVM's own variables take it.
fn switch(value: &str) -> Option<bool> {
    match value {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

fn positive(value: &str) -> Option<u32> {
    value.parse::<u32>().ok().filter(|number| *number > 0)
}

/// Parses a size such as `64k` to bytes; without a unit it is in kilobytes.
fn size(value: &str) -> Option<usize> {
    size_of_unit(value, 10)
}

/// Parses a size to bytes, where no unit means a unit of 2 to the power of `shift` bytes.
fn size_of_unit(value: &str, shift: u32) -> Option<usize> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number = value[..digits].parse::<usize>().ok()?;
    let shift = match value[digits..].trim().to_ascii_lowercase().as_str() {
        "" => shift,
        "b" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// Parses a schedule, `[modifier:]kind[,chunk]`.
fn schedule(value: &str) -> Option<(u32, i32)> {
    let lower = value.to_ascii_lowercase();
    let (modifier, rest) = match lower.split_once(':') {
        Some((modifier, rest)) => (Some(modifier.trim()), rest.trim()),
        None => (None, lower.trim()),
    };
    let (kind, chunk) = match rest.split_once(',') {
        Some((kind, chunk)) => (kind.trim(), Some(chunk.trim().parse::<i32>().ok().filter(|c| *c >= 0)?)),
        None => (rest, None),
    };
    let (kind, smallest) = match kind {
        "static" => (SCHED_STATIC, 0),
        "dynamic" => (SCHED_DYNAMIC, 1),
        "guided" => (SCHED_GUIDED, 1),
        "auto" => (SCHED_AUTO, 0),
        _ => return None,
    };
    let monotonic = match modifier {
        Some("monotonic") => true,
        Some("nonmonotonic") => false,
        Some(_) => return None,
        None => kind == SCHED_STATIC,
    };
    let chunk = if kind == SCHED_AUTO { 0 } else { chunk.unwrap_or(smallest).max(smallest) };
    Some((kind | if monotonic { SCHED_MONOTONIC } else { 0 }, chunk))
}

fn bind(value: &str) -> Option<Vec<u8>> {
    value
        .to_ascii_lowercase()
        .split(',')
        .map(|entry| match entry.trim() {
            "false" => Some(BIND_FALSE),
            "true" => Some(BIND_TRUE),
            "master" | "primary" => Some(BIND_PRIMARY),
            "close" => Some(BIND_CLOSE),
            "spread" => Some(BIND_SPREAD),
            _ => None,
        })
        .collect()
}

fn threads(value: &str) -> Option<Vec<u32>> {
    value.split(',').map(|entry| positive(entry.trim())).collect()
}

/// The number of checks that a waiter makes in 200 µs. A sleeper takes some 70 µs to wake. A thread that spins for less than
/// that falls asleep before the one it woke comes round to wake it, and so at every barrier from then on.
fn patience() -> u32 {
    const LOOKS: u32 = 200;
    let quickest = (0..3)
        .map(|_| {
            let before = Instant::now();
            (0..LOOKS).for_each(|_| std::hint::spin_loop());
            before.elapsed().as_nanos()
        })
        .min();
    let nanoseconds = u32::try_from(quickest.unwrap_or(0)).unwrap_or(u32::MAX).max(1);
    (200_000u32.saturating_mul(LOOKS) / nanoseconds).clamp(1_000, 100_000)
}

/// How often waiters check before they sleep, with and without a CPU for each, and how often they let others have their CPU. They
/// check seldom without one each, since a spinner may keep a CPU from the thread it waits for, unless the user asks otherwise.
fn spins() -> (u32, u32, u32) {
    /// As many as bring every thread of a small team to a barrier; more of them gain nothing.
    const YIELDS: u32 = 20;
    let given = spin_count().map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    match (given, wait_policy()) {
        (Some(0), _) | (None, 0) => (0, 0, 0),
        (Some(count), _) => (count, count.min(100), YIELDS),
        (None, 1) => (u32::MAX, 1_000, YIELDS),
        _ => (patience(), 30, YIELDS),
    }
}

fn read() {
    let cpus = places::allowed_cpus().len().max(1) as u32;
    CPUS.store(cpus, Ordering::Relaxed);
    let mut icv = Icv::initial(cpus);
    if kmp::is_alone() {
        // Programs of LLVM's compilers start with another schedule than gcc's.
        (icv.schedule, icv.chunk) = (SCHED_STATIC, 0);
    }
    let mut nests = None;
    if let Some(dynamic) = parsed("OMP_DYNAMIC", truth) {
        icv.dynamic = dynamic;
    }
    if let Some(cancellation) = parsed("OMP_CANCELLATION", truth) {
        CANCELLATION.store(cancellation, Ordering::Relaxed);
    }
    if let Some(priority) =
        parsed("OMP_MAX_TASK_PRIORITY", |value| value.parse::<i32>().ok().filter(|p| *p >= 0))
    {
        MAX_TASK_PRIORITY.store(priority, Ordering::Relaxed);
    }
    if let Some(device) = parsed("OMP_DEFAULT_DEVICE", |value| value.parse::<i32>().ok().filter(|d| *d >= 0))
    {
        icv.default_device = device;
    }
    if let Some(limit) = parsed("OMP_THREAD_LIMIT", positive) {
        icv.thread_limit = limit;
    }
    if let Some((schedule, chunk)) = parsed("OMP_SCHEDULE", schedule) {
        // LLVM's runtime reports the user's schedule without the modifiers it implies.
        let says = variable("OMP_SCHEDULE").is_some_and(|value| value.contains(':'));
        let implied = kmp::is_alone() && !says && schedule & !SCHED_MONOTONIC == SCHED_STATIC;
        let schedule = if implied { SCHED_STATIC } else { schedule };
        (icv.schedule, icv.chunk) = (schedule, chunk);
    }
    if let Some(list) = parsed("OMP_NUM_THREADS", threads) {
        icv.threads = list[0];
        for (entry, threads) in THREADS.iter().zip(&list) {
            entry.store(if list.len() > 1 { *threads } else { 0 }, Ordering::Relaxed);
        }
        if list.len() > 1 {
            nests = Some(true);
        }
    }
    if let Some(list) = parsed("OMP_PROC_BIND", bind) {
        icv.bind = list[0];
        for (entry, bind) in BINDS.iter().zip(&list) {
            entry.store(if list.len() > 1 { u32::from(*bind) } else { u32::MAX }, Ordering::Relaxed);
        }
        if list.len() > 1 {
            nests = Some(true);
        }
    }
    if let Some(nested) = parsed("OMP_NESTED", truth) {
        nests = Some(nested);
    }
    if let Some(nests) = nests {
        icv.max_active_levels = if nests { SUPPORTED_ACTIVE_LEVELS } else { 1 };
    }
    if let Some(levels) = parsed("OMP_MAX_ACTIVE_LEVELS", |value| value.parse::<u32>().ok()) {
        icv.max_active_levels = levels.min(SUPPORTED_ACTIVE_LEVELS);
    }
    let stack = || ["OMP_STACKSIZE", "GOMP_STACKSIZE"].into_iter().find_map(|name| parsed(name, size));
    // The variable of Intel's and LLVM's runtimes is in bytes where it has no unit.
    if let Some(bytes) = stack().or_else(|| parsed("KMP_STACKSIZE", |value| size_of_unit(value, 0))) {
        STACK.store(bytes, Ordering::Relaxed);
    }
    kmp::say_ignored();
    if let Some(throttles) = parsed("KMP_ENABLE_TASK_THROTTLING", |value| truth(value).or(switch(value))) {
        THROTTLES_TASKS.store(throttles, Ordering::Relaxed);
    }
    if let Some(number) = parsed("OMP_NUM_TEAMS", positive) {
        TEAMS.store(number as i32, Ordering::Relaxed);
    }
    if let Some(limit) = parsed("OMP_TEAMS_THREAD_LIMIT", positive) {
        TEAMS_THREAD_LIMIT.store(limit as i32, Ordering::Relaxed);
    }
    let policy = parsed("OMP_WAIT_POLICY", |value| match value.to_ascii_lowercase().as_str() {
        "active" => Some(1),
        "passive" => Some(0),
        _ => None,
    });
    WAIT_POLICY.store(policy.unwrap_or(-1), Ordering::Relaxed);
    let count = parsed("GOMP_SPINCOUNT", |value| match value.to_ascii_lowercase().as_str() {
        "infinite" | "infinity" => Some(u64::MAX - 1),
        other => other.parse::<u64>().ok().map(|count| count.min(u64::MAX - 1)),
    });
    SPIN_COUNT.store(count.unwrap_or(u64::MAX), Ordering::Relaxed);
    if let Some(allocator) = parsed("OMP_ALLOCATOR", |value| {
        let handle = allocator_variable::make(&allocator_variable::parse(value)?);
        (handle != 0).then_some(handle)
    }) {
        icv.allocator = allocator;
    }
    let (spins, crowded, yields) = spins();
    futex::configure(spins, crowded, yields, atoll_nodes::cpus::of_workers(cpus));
    icv.bind = places::init(icv.bind);
    *INITIAL.lock() = icv;
    match variable("OMP_DISPLAY_ENV").map(|value| value.to_ascii_lowercase()).as_deref() {
        None | Some("false") => {}
        Some("true") => display::environment(&icv, false),
        Some("verbose") => display::environment(&icv, true),
        Some(other) => invalid("OMP_DISPLAY_ENV", other),
    }
}

#[cfg(test)]
mod tests {
    use super::{SCHED_DYNAMIC, SCHED_MONOTONIC, SCHED_STATIC, bind, schedule, size};

    #[test]
    fn schedules_are_read_as_libgomp_does() {
        assert_eq!(schedule("static"), Some((SCHED_STATIC | SCHED_MONOTONIC, 0)));
        assert_eq!(schedule("Dynamic , 7"), Some((SCHED_DYNAMIC, 7)));
        assert_eq!(schedule("monotonic:dynamic"), Some((SCHED_DYNAMIC | SCHED_MONOTONIC, 1)));
        assert_eq!(schedule("sometimes"), None);
        assert_eq!(schedule("dynamic,-1"), None);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("4"), Some(4096));
        assert_eq!(size("4 m"), Some(4 << 20));
        assert_eq!(size("x"), None);
        assert_eq!(bind("close,spread"), Some(vec![3, 4]));
    }
}
