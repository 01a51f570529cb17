//! The constructor: the first code that runs in the process, called by the dynamic linker with argc, argv, envp.
//!
//! The constructor decides whether this process is the program that `atoll run` is to manage; if so, it moves the process's
//! memory and starts the pager. Any other process, such as a launcher in front of the program, is left exactly as it was,
//! environment included, so that its children are examined in turn.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::Ordering;

use atoll_memory::control::{self, Control, EXIT_FAR, EXIT_SETUP, Handle};
use atoll_memory::{arena, layout, limits, sys, uffd};

use super::main_stack::Stack;
use super::share::{self, PinnedFile};
use super::{
    again, forked, imports, late, lifeline, mappings, nodes, objects, process, segment, signal, take_over,
    thread_list, unmanaged,
};
use crate::wrap::preloads;
use crate::{arch, heap, journal, state};
use atoll_nodes::stack::on_stack;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = constructor;

extern "C" fn constructor(_: c_int, _: *mut *mut c_char, envp: *mut *mut c_char) {
    // SAFETY: envp is the process's environment, NULL-terminated.
    let Some(value) = (unsafe { variable(envp, control::ENVIRONMENT) }) else { return };
    let Some(handle) = value.to_str().ok().and_then(Handle::parse) else { return };
    let objects = objects::loaded();
    if !objects.iter().any(objects::Object::is_openmp) {
        unmanaged::leave_alone(handle);
        preloads::begin(&objects);
        return take_over::watch(handle);
    }
    let Some((control, is_inherited)) = handle.map() else {
        return sys::complain(
            "atoll: a program of this run is left alone, as it was started with its descriptors closed and may not open the launcher's\n",
        );
    };
    // SAFETY: as above.
    if unsafe { variable(envp, control::ENVIRONMENT_PRELOAD) }.is_none()
        && take_over::applies(control)
        && imports::is_interpreter()
    {
        preloads::begin(&objects);
        return take_over::watch(handle);
    }
    if is_inherited {
        // SAFETY: no pointers.
        let _ = unsafe {
            sys::syscall(
                libc::SYS_fcntl,
                [handle.fd as usize, libc::F_SETFD as usize, libc::FD_CLOEXEC as usize, 0, 0, 0],
            )
        };
    }
    // A second OpenMP program of the same run has workers of its own, but only one program can use the control block.
    let me = std::process::id() as i32;
    if control.program.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        // SAFETY: as above.
        unsafe { clean(envp) };
        again::begin(handle, control, envp.cast_const().cast());
        let limit = if control.settings.has_asked_limit() { ", and --near is not applied to it" } else { "" };
        sys::complain(&format!(
            "atoll: a second OpenMP program of this run is left alone, as a run on several nodes, under a profiler or from a script's first line \
             manages one program{limit}\n"
        ));
        if control.settings.require != 0 {
            sys::complain("atoll: --require is given, so it is not started\n");
            control.failure.store(EXIT_SETUP, Ordering::Release);
            // SAFETY: ends the process before main.
            unsafe { libc::_exit(EXIT_SETUP) };
        }
        return;
    }
    // SAFETY: as above.
    journal::open(unsafe { variable(envp, atoll_profile_wire::ENVIRONMENT) });
    // SAFETY: nothing else runs yet.
    unsafe { clean(envp) };
    let mask = state::SignalsBlocked::new().before();
    control.blocked.store(mask, Ordering::Relaxed);
    let bias = objects.iter().find(|object| object.name.is_empty()).map_or(0, |object| object.base);
    control.program_bias.store(bias as u64, Ordering::Relaxed);
    forked::begin();
    if imports::calls_fork() {
        heap::shared::program_forks();
    }
    if let Err(message) = on_large_stack(|| set_up(control, &objects, envp as usize)) {
        sys::complain_whole(["atoll: ", &message, "\n"]);
        let _ = control.failure.compare_exchange(0, EXIT_SETUP, Ordering::Relaxed, Ordering::Relaxed);
        // The system call itself: the function of libc's name is atoll's own, which would tell the other nodes by way of an agent
        // that does not run yet, and wait for it for ever.
        let status = control.failure.load(Ordering::Relaxed) as usize;
        // SAFETY: ends the process before main.
        let _ = unsafe { sys::syscall(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    }
}

/// Runs `work` on a stack of its own, since the main stack may be as small as the shell's limit makes it, and is moved
/// meanwhile.
pub(super) fn on_large_stack(work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    const BYTES: usize = 1 << 20;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which nobody else knows.
    let stack = unsafe { sys::mmap(0, BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    let stack = stack.map_err(|e| format!("cannot make a stack for the set-up: {e}"))?;
    // SAFETY: the mapping is new, and nobody is on that stack afterwards.
    unsafe {
        let result = on_stack(stack + BYTES, work);
        let _ = sys::syscall(libc::SYS_munmap, [stack, BYTES, 0, 0, 0, 0]);
        result
    }
}

fn set_up(control: &'static Control, objects: &[objects::Object], in_stack: usize) -> Result<(), String> {
    limits::check().map_err(|limited| limited.to_string())?;
    heap::place::set(control.settings.node, control.settings.nodes);
    if control.settings.several_nodes() {
        atoll_nodes::heap::lie_in(heap::place::of_agent());
    }
    if control.settings.segment.is_on() {
        return set_up_segment(control, objects, in_stack);
    }
    let mut file = PinnedFile::create().map_err(|e| format!("cannot map shared memory at its place: {e}"))?;
    if !heap::small::init() {
        return Err("mimalloc does not take the pinned memory".into());
    }
    heap::overflow::begin();
    if control.settings.several_nodes() {
        crate::wrap::node_robust::begin();
    }
    state::set_heap_ready();
    let faults = open_faults(control)?;
    let pager = arena::create(control).map_err(|e| {
        if matches!(e, arena::SetupError::Far(_)) {
            control.failure.store(EXIT_FAR, Ordering::Relaxed);
        }
        e.to_string()
    })?;
    pager.set_pinned_file(file.fd());
    let kernel = |what: &'static str| move |e: sys::Errno| format!("cannot share {what}: {e}");
    if control.settings.several_nodes() {
        crate::wrap::begin_environment(in_stack);
        return nodes::set_up(control, pager, file, objects, in_stack, faults);
    }
    let mut contents = Vec::new();
    for object in objects.iter().filter(|o| !o.is_private()) {
        share::share_object(object, pager, &mut file, &mut contents)
            .map_err(kernel("the program's globals"))?;
    }
    if !control.settings.shared_tables() {
        share_tls(&mut file).map_err(kernel("the main thread's storage"))?;
        let stack = main_stack(in_stack).map_err(kernel("the main stack"))?;
        file.move_stack(stack.bottom, stack.used, stack.top).map_err(kernel("the main stack"))?;
        stack.keep_executable();
    }
    pager.attach_table(0, faults).map_err(|e| format!("cannot register the arena with userfaultfd: {e}"))?;
    state::set_serves_faults();
    control.workers.store(1, Ordering::Relaxed);
    control.figures[0].pid.store(std::process::id() as i32, Ordering::Relaxed);
    use_signal_stack()?;
    signal::install(pager);
    state::manage(pager);
    state::become_worker(0, 0);
    if let Err(e) = pager.check_near() {
        atoll_memory::ending::end(e);
    }
    late::begin(file, objects);
    process::master_helpers(pager, faults)?;
    control.start_ticks.store(sys::ticks(), Ordering::Relaxed);
    share::restore(contents);
    crate::wrap::init();
    Ok(())
}

/// Opens the userfaultfd descriptor by which faults are served.
pub(super) fn open_faults(control: &Control) -> Result<uffd::Uffd, String> {
    let delivery =
        if control.settings.fault_thread() { uffd::Delivery::Message } else { uffd::Delivery::Signal };
    uffd::Uffd::open(delivery).map_err(|e| {
        // For faults outside of system calls the kernel asks nobody's leave: only a filter says no.
        let (why, remedy) = match (e.0, delivery) {
            (libc::EPERM, uffd::Delivery::Signal) => (
                ", by a filter of this container or service",
                "docker run --security-opt seccomp=unconfined, or --device /dev/userfaultfd",
            ),
            (libc::ENOSYS, _) => ("", "without an emulator around the program, on Linux 5.19 or later"),
            _ => ("", "sysctl -w vm.unprivileged_userfaultfd=1, or give yourself access to /dev/userfaultfd"),
        };
        format!("cannot use userfaultfd: {e}{why}. Try: {remedy}; `atoll doctor` says more")
    })
}

/// Gives the first thread its signal stack. Also prepares for workers: how they hear of this process's end, and where glibc's
/// thread lists are.
pub(super) fn use_signal_stack() -> Result<(), String> {
    lifeline::begin();
    thread_list::find();
    if process::make_alternate_stack(0) {
        Ok(())
    } else {
        Err("there is no room for the workers' stacks".into())
    }
}

/// Sets up a program whose memory is a segment: nothing is paged and no fault is served.
fn set_up_segment(
    control: &'static Control,
    objects: &[objects::Object],
    in_stack: usize,
) -> Result<(), String> {
    let started = sys::ticks();
    segment::begin(control);
    let mut file = PinnedFile::of_moved().map_err(|e| format!("cannot make shared memory: {e}"))?;
    let made = segment::make(control)?;
    state::set_heap_ready();
    let pager = arena::beside_segment(control, &made).map_err(|e| e.to_string())?;
    pager.set_pinned_file(file.fd());
    let kernel = |what: &'static str| move |e: sys::Errno| format!("cannot share {what}: {e}");
    let mut contents = Vec::new();
    for object in objects.iter().filter(|o| !o.is_private()) {
        share::share_object(object, pager, &mut file, &mut contents)
            .map_err(kernel("the program's globals"))?;
    }
    share_tls(&mut file).map_err(kernel("the main thread's storage"))?;
    let stack = main_stack(in_stack).map_err(kernel("the main stack"))?;
    file.move_stack(stack.bottom, stack.used, stack.top).map_err(kernel("the main stack"))?;
    stack.keep_executable();
    share::restore(contents);
    control.workers.store(1, Ordering::Relaxed);
    control.figures[0].pid.store(std::process::id() as i32, Ordering::Relaxed);
    state::manage(pager);
    state::become_worker(0, 0);
    use_signal_stack().map_err(|_| "the segment is too small: raise --segment-size".to_owned())?;
    signal::install(pager);
    late::begin(file, objects);
    control.start_ticks.store(sys::ticks(), Ordering::Relaxed);
    crate::wrap::init();
    segment::ready(control, 0);
    control.segment.set_up_ticks.store(sys::ticks() - started, Ordering::Relaxed);
    Ok(())
}

/// Moves the mapping that holds the main thread's TLS and thread control block.
pub(super) fn share_tls(file: &mut PinnedFile) -> Result<(), sys::Errno> {
    let at = arch::thread_pointer();
    let found = mappings::all().into_iter().find(|m| m.start <= at && at < m.end);
    match found {
        Some(m) if m.writable && m.inode == 0 => file.move_here(m.start, m.end).map(drop),
        _ => Err(sys::Errno(libc::EFAULT)),
    }
}

/// The range of the main stack, with room to grow as the limit says (1 GiB where there is none).
pub(super) fn main_stack(in_stack: usize) -> Result<Stack, sys::Errno> {
    let mappings = mappings::all();
    let Some(i) = mappings.iter().position(|m| m.start <= in_stack && in_stack < m.end) else {
        return Err(sys::Errno(libc::EFAULT));
    };
    let stack = &mappings[i];
    // SAFETY: plain data.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: limit is valid for writes.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    let bytes = (limit.rlim_cur as usize).min(1 << 30).max(stack.end - stack.start) & !4095;
    let floor = i.checked_sub(1).map_or(0, |j| mappings[j].end + (1 << 20));
    let bottom = (stack.end - bytes).max(floor).min(stack.start);
    Ok(Stack { bottom, used: stack.start, top: stack.end, executable: stack.executable })
}

/// The value of environment variable `name`.
unsafe fn variable<'a>(envp: *mut *mut c_char, name: &str) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut at = envp;
        while !(*at).is_null() {
            let entry = CStr::from_ptr(*at);
            if let Some(rest) = entry.to_bytes().strip_prefix(name.as_bytes())
                && rest.first() == Some(&b'=')
            {
                return Some(CStr::from_ptr((*at).add(name.len() + 1)));
            }
            at = at.add(1);
        }
        None
    }
}

/// Removes what `atoll run` put there from the environment, so that children run untouched: LD_PRELOAD gets its earlier value.
unsafe fn clean(envp: *mut *mut c_char) {
    // SAFETY: the caller's promise; entries are only moved within the array.
    unsafe {
        let mut from = envp;
        let mut to = envp;
        while !(*from).is_null() {
            let entry = CStr::from_ptr(*from).to_bytes();
            let is =
                |name: &str| entry.strip_prefix(name.as_bytes()).is_some_and(|r| r.first() == Some(&b'='));
            if is(control::ENVIRONMENT_PRELOAD) {
                // The entry "ATOLL_SAVED_LD_PRELOAD=x" ends in "LD_PRELOAD=x".
                *to = (*from).add(control::ENVIRONMENT_PRELOAD.len() - "LD_PRELOAD".len());
                to = to.add(1);
            } else if !is(control::ENVIRONMENT) && !is(atoll_profile_wire::ENVIRONMENT) && !is("LD_PRELOAD") {
                *to = *from;
                to = to.add(1);
            }
            from = from.add(1);
        }
        *to = std::ptr::null_mut();
    }
}

const _: () = assert!(layout::PINNED < layout::STACKS);
