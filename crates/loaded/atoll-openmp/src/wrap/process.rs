//! The begin and end of processes. `start::forked` makes what the program forks; `exec` and the ways of exiting make sure that no
//! worker is left.
//!
//! Called by the program. A child made by `vfork` runs with the program's memory and comes here, too: a process that is neither
//! the master nor a worker passes through.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use atoll_memory::control::{Control, ENDING_THEMSELVES, EXIT_WORKER, MAX_WORKERS};
use atoll_memory::spin::Spin;
use atoll_memory::sys::{self, Errno};
use atoll_nodes::numbers::Numbers;
use atoll_nodes::{ask, stack};

use super::lend::{self, Argument as _};
use super::{growth, paged, preloads, stdio};
use crate::start::forked::{self, ForkError};
use crate::state;

/// The calling process's part in the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// A program that is not managed, a child made by `vfork`, or the process whose threads are all workers.
    Other,
    Master,
    Worker,
}

fn role() -> (Role, Option<&'static Control>) {
    let Some(control) = state::control().filter(|_| super::separate()) else { return (Role::Other, None) };
    let me = sys::process();
    if control.program.load(Ordering::Relaxed) == me {
        return (Role::Master, Some(control));
    }
    let worker = control.figures[1..MAX_WORKERS].iter().any(|f| f.pid.load(Ordering::Relaxed) == me);
    (if worker { Role::Worker } else { Role::Other }, Some(control))
}

/// `getpid`: a worker gets the master's number, as a thread would.
#[unsafe(no_mangle)]
pub(super) extern "C" fn getpid() -> c_int {
    match state::control() {
        Some(_) if in_worker() && PROGRAM.load(Ordering::Relaxed) != 0 => PROGRAM.load(Ordering::Relaxed),
        Some(control) if in_worker() => control.program.load(Ordering::Relaxed),
        _ => sys::process(),
    }
}

/// The process that started the program, recorded at its start, because a worker's own parent is the program.
static PARENT: AtomicI32 = AtomicI32::new(0);
/// On another node than the origin, the program's process there and its group.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
static GROUP: AtomicI32 = AtomicI32::new(0);

/// On another node than the origin: what the origin's process is called, and so this node's workers, if the numbers mean the same
/// here. A program on another machine may send a signal to the process that it takes for itself.
pub(crate) fn adopt(origin: &Numbers) {
    if let Some(process) = origin.process_here() {
        PROGRAM.store(process, Ordering::Relaxed);
        PARENT.store(origin.parent, Ordering::Relaxed);
        GROUP.store(origin.group, Ordering::Relaxed);
    }
}

/// The program's process on the origin, called on another node of the same machine.
pub(crate) fn origin() -> Option<i32> {
    Some(PROGRAM.load(Ordering::Relaxed)).filter(|process| *process != 0)
}

/// `getpgrp`: a worker on another node is in the program's group.
#[unsafe(no_mangle)]
pub(super) extern "C" fn getpgrp() -> c_int {
    match GROUP.load(Ordering::Relaxed) {
        0 => sys::group(),
        origin => origin,
    }
}

/// `getppid`: a worker's parent is the program's.
#[unsafe(no_mangle)]
pub(super) extern "C" fn getppid() -> c_int {
    if in_worker() { PARENT.load(Ordering::Relaxed) } else { forked::parent_of_program(sys::parent()) }
}

/// Whether the calling thread is a worker in a process of its own.
pub(super) fn in_worker() -> bool {
    state::table() != 0 && super::separate()
}

pub(crate) fn kill(pid: i32, signal: c_int) {
    let _ = try_to_kill(pid, signal);
}

fn try_to_kill(pid: i32, signal: c_int) -> Result<usize, Errno> {
    // SAFETY: values only.
    unsafe { sys::syscall(libc::SYS_kill, [pid as usize, signal as usize, 0, 0, 0, 0]) }
}

/// Publishes the pager's last figures, which are guarded by its locks.
fn publish() {
    let Some(pager) = state::pager() else { return };
    stack::off_paged(move || {
        pager.publish_totals();
        pager.publish_distribution();
    });
}

/// Ends all workers and waits until they have ended. Only the master calls this.
fn stop_workers(control: &Control) {
    static STOPPED: AtomicBool = AtomicBool::new(false);
    if STOPPED.swap(true, Ordering::AcqRel) {
        return;
    }
    // Release: pairs with the Acquire in the launcher, which reads this after it has seen a worker end.
    control.ending.store(1, Ordering::Release);
    publish();
    crate::start::segment::publish(control);
    let pids = || {
        let started = control.workers.load(Ordering::Acquire) as usize;
        let figures = &control.figures[1..started.clamp(1, MAX_WORKERS)];
        figures.iter().map(|f| f.pid.load(Ordering::Relaxed)).filter(|&p| p > 0)
    };
    pids().for_each(|p| kill(p, libc::SIGKILL));
    let mut until = None;
    for p in pids() {
        // A thread of the program's own may have started the worker just now. The program may have become another user, who may not end its
        // workers: they look at this word now and then.
        if try_to_kill(p, libc::SIGKILL) == Err(Errno(libc::EPERM)) {
            control.ending.store(ENDING_THEMSELVES, Ordering::Release);
            until.get_or_insert_with(|| sys::clock_ns(libc::CLOCK_MONOTONIC) + THEMSELVES_NS);
        }
        wait_for(p, until);
    }
}

/// Waits until worker `p` has ended, or until this time in nanoseconds.
fn wait_for(p: i32, until: Option<u64>) {
    let options = libc::WEXITED | libc::__WALL | until.map_or(0, |_| libc::WNOHANG);
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let at = info.as_mut_ptr() as usize;
        // A worker that another worker started is not a child of this process; init or a subreaper reaps it.
        // SAFETY: the kernel writes the structure, for which zeros are valid.
        let (waited, ended) = unsafe {
            let numbers = [libc::P_PID as usize, p as usize, at, options as usize, 0, 0];
            let waited = sys::syscall(libc::SYS_waitid, numbers);
            (waited, info.assume_init().si_pid() != 0)
        };
        let over = |until| sys::clock_ns(libc::CLOCK_MONOTONIC) >= until;
        if waited.is_err() || ended || until.is_none_or(over) {
            return;
        }
        sys::sleep_ns(1_000_000);
    }
}

/// How many nanoseconds the master waits for workers that it cannot kill.
const THEMSELVES_NS: u64 = 2_000_000_000;

/// Ends this node's part of the program, which has ended on the origin. Called by the node's agent.
pub(crate) fn end_node() -> ! {
    if let Some(control) = state::control() {
        stop_workers(control);
    }
    loop {
        // SAFETY: ends this process.
        let _ = unsafe { sys::syscall(libc::SYS_exit_group, [0; 6]) };
    }
}

/// Ends the program with `status` because a worker of another node ended it so. Called by the origin's agent.
pub(crate) fn end_by_node(status: c_int) -> ! {
    let Some(control) = state::control() else { state::give_up(EXIT_WORKER, "an agent without a program") };
    control.ending.store(1, Ordering::Release);
    let _ = control.exit_status.compare_exchange(0, (status & 0xff) + 1, Ordering::AcqRel, Ordering::Relaxed);
    kill(control.program.load(Ordering::Relaxed), libc::SIGKILL);
    loop {
        sys::sleep_ns(999_999_999);
    }
}

/// Runs `exit` for a worker of another node that called it, since the program's exit handlers are registered here. Called by
/// the origin's agent.
pub(crate) fn exit_for_node(status: c_int) {
    extern "C" fn run(status: *mut c_void) -> *mut c_void {
        // SAFETY: ends the process, as `exit` in any thread does.
        unsafe { libc::exit(status as usize as c_int) }
    }
    // The first worker may be waiting.
    if let Some(Err(e)) = state::pager().map(|pager| pager.end_parking(state::table())) {
        atoll_memory::ending::end(e);
    }
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the thread takes a number and ends the process.
    let error = unsafe {
        libc::pthread_create(&raw mut thread, std::ptr::null(), run, status as usize as *mut c_void)
    };
    if error != 0 {
        state::give_up(EXIT_WORKER, "no thread can be made to end the program");
    }
}

/// Tells the other nodes, if there are any, that the program ends; `handlers`: whether its exit handlers have yet to run.
fn tell_nodes(status: c_int, handlers: bool) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if atoll_nodes::active() && !TOLD.swap(true, Ordering::AcqRel) {
        // For ever: what a handler of the program's touches may lie on a node that is gone.
        state::block_asynchronous();
        ask::exit(status, handlers);
    }
}

/// Ends the whole program from a worker: kills the master, whose status is in the control block.
fn end_from_worker(control: &Control, status: c_int, handlers: bool) -> ! {
    // On another node than the origin the call does not return: the program ends there.
    tell_nodes(status, handlers);
    let _ = control.exit_status.compare_exchange(0, (status & 0xff) + 1, Ordering::AcqRel, Ordering::Relaxed);
    kill(control.program.load(Ordering::Relaxed), libc::SIGKILL);
    loop {
        // The master's end ends this process.
        sys::sleep_ns(999_999_999);
    }
}

/// The functions that workers registered to be called at exit, with their arguments.
static LATE: Spin<Vec<(usize, usize)>> = Spin::new(Vec::new());

/// Whether this process was forked by the program.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Sets up the ends of a process that the program forked.
pub(super) fn in_forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Calls what workers registered, and flushes the streams.
fn finish() {
    loop {
        let Some((f, argument)) = LATE.lock().pop() else { break };
        // SAFETY: registered with `__cxa_atexit`.
        unsafe {
            let f: unsafe extern "C" fn(usize) = std::mem::transmute::<usize, unsafe extern "C" fn(usize)>(f);
            f(argument);
        }
    }
    stdio::flush_at_exit();
}

/// The last action of `exit`, in whichever process it was called.
extern "C" fn last(status: c_int, _: *mut c_void) {
    let (role, Some(control)) = role() else {
        // Workers are threads, which end with the process, or this process was forked.
        if FORKED.load(Ordering::Relaxed) {
            finish();
        }
        return publish();
    };
    if role == Role::Other {
        return;
    }
    finish();
    match role {
        Role::Master => {
            tell_nodes(status, false);
            stop_workers(control);
        }
        _ => {
            publish();
            end_from_worker(control, status, true)
        }
    }
}

static QUICK_STATUS: AtomicI32 = AtomicI32::new(0);

extern "C" fn last_quick(_: *mut c_void) {
    if let (role @ (Role::Master | Role::Worker), Some(control)) = role() {
        let status = QUICK_STATUS.load(Ordering::Relaxed);
        match role {
            Role::Master => {
                tell_nodes(status, false);
                stop_workers(control);
            }
            _ => end_from_worker(control, status, false),
        }
    }
}

/// Notes the program's parent, and registers the last actions of `exit` and `quick_exit`: handlers run in reverse order, and
/// none is registered before ours.
pub(super) fn init() {
    PARENT.store(sys::parent(), Ordering::Relaxed);
    unsafe extern "C" {
        fn on_exit(f: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
        fn __cxa_at_quick_exit(f: extern "C" fn(*mut c_void), object: *mut c_void) -> c_int;
    }
    // SAFETY: functions that live as long as the process.
    unsafe {
        on_exit(last, std::ptr::null_mut());
        __cxa_at_quick_exit(last_quick, std::ptr::null_mut());
    }
}

/// `__cxa_atexit`, which `atexit` and C++ call. libc's list is private, so a worker's entries are kept here for the master's
/// exit.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __cxa_atexit(f: usize, argument: usize, object: usize) -> c_int {
    if in_worker() {
        LATE.lock().push((f, argument));
        return 0;
    }
    let call = real!("__cxa_atexit", unsafe extern "C" fn(usize, usize, usize) -> c_int);
    // SAFETY: the caller's function.
    unsafe { call(f, argument, object) }
}

/// `quick_exit`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    QUICK_STATUS.store(status, Ordering::Relaxed);
    let call = real!("quick_exit", unsafe extern "C" fn(c_int) -> !);
    // SAFETY: ends the process.
    unsafe { call(status) }
}

fn end_now(status: c_int) {
    if let (role @ (Role::Master | Role::Worker), Some(control)) = role() {
        match role {
            Role::Master => {
                tell_nodes(status, false);
                stop_workers(control);
            }
            _ => end_from_worker(control, status, false),
        }
    }
}

macro_rules! exits {
    ($($name:ident)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(status: c_int) -> ! {
            end_now(status);
            let call = real!(stringify!($name), unsafe extern "C" fn(c_int) -> !);
            // SAFETY: ends the process.
            unsafe { call(status) }
        }
    )*};
}

exits! { _exit _Exit }

/// `pthread_exit`: refused in a worker, since its team would wait for it for ever.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_exit(result: *mut c_void) -> ! {
    if in_worker() {
        state::give_up(EXIT_WORKER, "the program called pthread_exit in a worker of an OpenMP team");
    }
    let call = real!("pthread_exit", unsafe extern "C" fn(*mut c_void) -> !);
    // SAFETY: ends the thread.
    unsafe { call(result) }
}

fn refuse(why: &ForkError) -> c_int {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        sys::complain(&format!("atoll: fork failed: {why}\n"));
    }
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = why.number() };
    -1
}

/// Defines calls that duplicate the process, whose memory would be shared where it must be copied.
macro_rules! forks {
    ($($name:ident ( $($arg:ident),* ) $handlers:literal;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($arg: usize),*) -> c_int {
            let call = real!(stringify!($name), unsafe extern "C" fn($(wrap!(@usize $arg)),*) -> c_int);
            // SAFETY: the caller's arguments.
            let call = || unsafe { call($($arg),*) };
            forked::fork($handlers, call).unwrap_or_else(|e| refuse(&e))
        }
    )*};
}

forks! {
    fork() true;
    __fork() true;
    _Fork() false;
    forkpty(fd, name, settings, size) true;
    daemon(directory, close) true;
}

/// The arguments of a new program, in pinned memory.
struct Strings {
    path: usize,
    arguments: usize,
    environment: usize,
    _lists: [Vec<usize>; 2],
    _copies: Vec<Vec<u8>>,
}

impl Strings {
    /// # Safety
    /// `path` is a string or null; the others are NULL-terminated lists of strings, or null.
    unsafe fn new(path: usize, arguments: usize, environment: usize) -> Strings {
        let mut copies = Vec::new();
        let mut list = |at: usize| {
            let mut pinned = Vec::new();
            if at == 0 {
                return (0, pinned);
            }
            let mut p = at as *const usize;
            // SAFETY: the caller's promise.
            unsafe {
                while *p != 0 {
                    pinned.push(paged::pinned_string(*p, &mut copies));
                    p = p.add(1);
                }
            }
            pinned.push(0);
            (pinned.as_ptr() as usize, pinned)
        };
        let (arguments, first) = list(arguments);
        let (mut environment, mut second) = list(environment);
        if environment != 0 {
            // SAFETY: the strings of the list, and its end.
            unsafe { preloads::keep(&mut second, &mut copies) };
            environment = second.as_ptr() as usize;
        }
        // SAFETY: the caller's promise.
        let path = if path == 0 { 0 } else { unsafe { paged::pinned_string(path, &mut copies) } };
        Strings { path, arguments, environment, _lists: [first, second], _copies: copies }
    }
}

type Spawn = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> c_int;

macro_rules! spawns {
    ($($name:ident)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(
            to: usize, path: usize, actions: usize, attributes: usize, arguments: usize, environment: usize,
        ) -> c_int {
            let call = real!(stringify!($name), Spawn);
            growth::expect();
            // SAFETY: the caller's arguments.
            unsafe {
                if paged::active().is_none() && !preloads::are_changed(environment) {
                    return call(to, path, actions, attributes, arguments, environment);
                }
                let s = Strings::new(path, arguments, environment);
                let to = lend::memory(to, 4, true);
                call(to.at(), s.path, actions, attributes, s.arguments, s.environment)
            }
        }
    )*};
}

spawns! { posix_spawn posix_spawnp pidfd_spawn pidfd_spawnp }

/// `system`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn system(command: usize) -> c_int {
    let call = real!("system", unsafe extern "C" fn(usize) -> c_int);
    growth::expect();
    let mut copies = Vec::new();
    // SAFETY: the caller's string.
    unsafe {
        let command = if command == 0 { 0 } else { paged::pinned_string(command, &mut copies) };
        call(command)
    }
}

/// The file that `execvp` would run; `None` if libc's own call will report an error.
fn executable(name: &CStr, search: bool) -> Option<std::ffi::CString> {
    use std::ffi::CString;
    let runs = |path: &CStr| {
        // SAFETY: a C string; plain data.
        unsafe {
            let mut st: libc::stat = std::mem::zeroed();
            let (here, path, at) = (libc::AT_FDCWD as usize, path.as_ptr() as usize, (&raw mut st) as usize);
            sys::syscall(libc::SYS_faccessat, [here, path, libc::X_OK as usize, 0, 0, 0]).is_ok()
                && sys::syscall(libc::SYS_newfstatat, [here, path, at, 0, 0, 0]).is_ok()
                && st.st_mode & libc::S_IFMT == libc::S_IFREG
        }
    };
    if !search || name.to_bytes().contains(&b'/') {
        return runs(name).then(|| name.to_owned());
    }
    // SAFETY: a C string.
    let path = unsafe { super::environment::getenv(c"PATH".as_ptr()) };
    let path = if path.is_null() {
        c"/bin:/usr/bin"
    } else {
        // SAFETY: libc's string.
        unsafe { CStr::from_ptr(path) }
    };
    path.to_bytes().split(|&b| b == b':').find_map(|directory| {
        let mut full = directory.to_vec();
        if !full.is_empty() {
            full.push(b'/');
        }
        full.extend_from_slice(name.to_bytes());
        CString::new(full).ok().filter(|f| runs(f))
    })
}

/// A pointer to the [`Request`] of a worker that wants the master to exec; 0 if there is none.
static REQUEST: AtomicUsize = AtomicUsize::new(0);

struct Request {
    strings: Strings,
    mask: u64,
}

/// Replaces the master by another program. Ends the workers first.
fn become_other(control: &Control, strings: &Strings, mask: Option<u64>) -> ! {
    stop_workers(control);
    if let Some(mask) = mask {
        state::set_mask(mask);
    }
    // SAFETY: pinned strings.
    let _ = unsafe {
        sys::syscall(libc::SYS_execve, [strings.path, strings.arguments, strings.environment, 0, 0, 0])
    };
    sys::complain("atoll: exec failed after the workers were ended: the program cannot go on\n");
    // SAFETY: ends the process.
    let _ = unsafe { sys::syscall(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]) };
    end_from_worker(control, 127, false)
}

/// Serves the exec that a worker asked for with SIGBUS; called by the handler in the master, returns if there is no request.
pub(crate) fn serve_request() {
    let (Role::Master, Some(control)) = role() else { return };
    let at = REQUEST.swap(0, Ordering::AcqRel) as *const Request;
    // SAFETY: null, or a request that was leaked by the worker.
    if let Some(request) = unsafe { at.as_ref() } {
        become_other(control, &request.strings, Some(request.mask));
    }
}

type Execve = unsafe extern "C" fn(usize, usize, usize) -> c_int;

/// Replaces the program, if the calling process belongs to it.
///
/// # Safety
/// The same as for `execve`.
unsafe fn exec(path: usize, arguments: usize, environment: usize, search: bool) -> c_int {
    let call = if search { real!("execvpe", Execve) } else { real!("execve", Execve) };
    let (role, control) = role();
    // SAFETY: the caller's strings.
    unsafe {
        let mut strings = Strings::new(path, arguments, environment);
        if let (Role::Master | Role::Worker, Some(control)) = (role, control)
            && path != 0
            && let Some(file) = executable(CStr::from_ptr(strings.path as *const c_char), search)
            && runs_directly(&file)
        {
            strings.path = file.into_raw() as usize;
            if role == Role::Master {
                become_other(control, &strings, None);
            }
            let mask = state::set_mask(u64::MAX);
            let request = Box::into_raw(Box::new(Request { strings, mask }));
            let first = REQUEST.compare_exchange(0, request as usize, Ordering::AcqRel, Ordering::Relaxed);
            if first.is_ok() {
                kill(control.program.load(Ordering::Relaxed), libc::SIGBUS);
            }
            loop {
                // The master ends this process, now or for another worker's request.
                sys::sleep_ns(500_000_000);
            }
        }
        call(strings.path, strings.arguments, strings.environment)
    }
}

/// Whether the kernel itself runs the file. (A script without `#!` is for libc's `execvp`.)
fn runs_directly(file: &CStr) -> bool {
    let mut head = [0u8; 4];
    // SAFETY: a C string, a buffer of its size.
    unsafe {
        let path = file.as_ptr() as usize;
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        let Ok(fd) = sys::syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path, flags, 0, 0, 0]) else {
            // The file is executable but not readable, so it is a binary.
            return true;
        };
        let n = sys::syscall(libc::SYS_read, [fd, head.as_mut_ptr() as usize, 4, 0, 0, 0]).unwrap_or(0);
        let _ = sys::syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        n >= 2 && (head.starts_with(b"#!") || head == *b"\x7fELF")
    }
}

fn environment() -> usize {
    unsafe extern "C" {
        static mut environ: usize;
    }
    // SAFETY: reading the variable.
    unsafe { environ }
}

/// `execve`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execve(path: usize, arguments: usize, environment: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { exec(path, arguments, environment, false) }
}

/// `execv`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execv(path: usize, arguments: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { exec(path, arguments, environment(), false) }
}

/// `execvp`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execvp(path: usize, arguments: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { exec(path, arguments, environment(), true) }
}

/// `execvpe`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execvpe(path: usize, arguments: usize, environment: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { exec(path, arguments, environment, true) }
}

/// `fexecve`: executes the file by the descriptor's name under /proc.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fexecve(fd: c_int, arguments: usize, environment: usize) -> c_int {
    if state::pager().is_none() {
        let call = real!("fexecve", unsafe extern "C" fn(c_int, usize, usize) -> c_int);
        // SAFETY: the caller's arguments.
        return unsafe {
            let strings = Strings::new(0, arguments, environment);
            call(fd, strings.arguments, strings.environment)
        };
    }
    let path = format!("/proc/self/fd/{fd}\0");
    // SAFETY: our string, the caller's lists.
    unsafe { exec(path.as_ptr() as usize, arguments, environment, false) }
}
