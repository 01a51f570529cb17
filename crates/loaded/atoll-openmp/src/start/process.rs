//! A worker as a process: cloned from the process that needs it, with a page table, stack and TLS block of its own.
//!
//! `workers` calls `start`. The new process's first thread makes one pthread, which is the worker (glibc puts its TLS at the
//! top of a stack that we place in shared memory, a slot of `slots`). From then on the first thread only helps: it scans for
//! LRU, resolves faults where a thread does that, and ends the process when the program has ended (`lifeline`).

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use atoll_memory::control::MAX_WORKERS;
use atoll_memory::layout;
use atoll_memory::pager::fault::Fault;
use atoll_memory::pager::sample;
use atoll_memory::pager::scan::PERIOD_NS;
use atoll_memory::pager::{FaultError, Pager};
use atoll_memory::segment::fill::Which;
use atoll_memory::sys::{self, Errno};
use atoll_memory::uffd::{Delivery, EVENT_PAGEFAULT, Uffd};

use super::slots::Slot;
use super::{lifeline, linker_state, newer_libc, own_threads, signal, thread_list};
use crate::heap::mapped_over;
use crate::wrap::replay;
use crate::{arch, state};

use crate::workers::Entry;

const DEFAULT_STACK_BYTES: usize = 8 << 20;
/// The nanoseconds after which a new process is taken for stuck; doubled at each try.
const STUCK_NS: i64 = 10_000_000_000;
const TRIES: u32 = 4;

/// The address of each worker's signal stack of [`signal::STACK_BYTES`]; 0 if the worker was never started.
static ALTERNATES: [AtomicUsize; MAX_WORKERS] = [const { AtomicUsize::new(0) }; MAX_WORKERS];

/// The message from the starting worker to the started one. It lies in pinned memory: the new process's faults are not served
/// yet, and pages of the starter's stack that it mapped would be missing in the core map.
struct Start {
    index: usize,
    /// The page table of the process that is cloned.
    maker: usize,
    slot: Slot,
    entry: Entry,
    arg: *mut c_void,
    /// The state: 0 starting, 1 running, negative an errno.
    state: AtomicI32,
    pager: &'static Pager,
}

/// Starts worker `index` in a process of its own; returns when the worker is about to run `entry(arg)`.
///
/// # Errors
/// The errno of the call that was refused.
pub(crate) fn start(index: usize, stack_bytes: usize, entry: Entry, arg: *mut c_void) -> Result<(), Errno> {
    let Some(pager) = state::pager() else { return Err(Errno(libc::ENOSYS)) };
    let stack_bytes = if stack_bytes == 0 { default_stack_bytes() } else { stack_bytes };
    let slot = Slot::take(stack_bytes).ok_or(Errno(libc::ENOMEM))?;
    let alternate = ALTERNATES.get(index).ok_or(Errno(libc::EAGAIN))?;
    alternate.store(slot.alternate(), Ordering::Relaxed);
    let _blocked = state::SignalsBlocked::new();
    // The kernel makes private pages read-only in both processes: they are made writable again when the worker is there.
    let _set_up = super::segment::SetUp::begin(Some(Which::PrivateWritable));
    for doublings in 0..TRIES {
        // Shared with the new process, which may still read it after it was given up: never freed in that case.
        let start = Box::new(Start {
            index,
            maker: state::table(),
            slot,
            entry,
            arg,
            state: AtomicI32::new(0),
            pager,
        });
        let process = clone_process(&start)?;
        if let Some(started) = wait_for(&start, STUCK_NS << doublings) {
            return started;
        }
        std::mem::forget(start);
        // Another thread held one of glibc's locks at the moment of cloning, so in the copy the lock is held for ever.
        // SAFETY: the process is a child of this one and has done nothing yet.
        unsafe {
            let _ = sys::syscall(libc::SYS_kill, [process as usize, libc::SIGKILL as usize, 0, 0, 0, 0]);
            let wait = (libc::WEXITED | libc::__WALL) as usize;
            let _ = sys::syscall(libc::SYS_waitid, [libc::P_PID as usize, process as usize, 0, wait, 0, 0]);
        }
    }
    Err(Errno(libc::EAGAIN))
}

/// Clones the process that becomes the worker; returns its number. `start` must stay until the process has set its state.
fn clone_process(start: &Start) -> Result<i32, Errno> {
    let flags = libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_IO | libc::CLONE_SYSVSEM;
    // Asked of the kernel, because `getpid` of the program names the master.
    // SAFETY: no arguments.
    let starter = unsafe { sys::syscall(libc::SYS_getpid, [0; 6]) }? as i32;
    let master = start.pager.control().program.load(Ordering::Relaxed);
    // All workers are children of the master, whichever worker starts them, as the launcher looks after the master's children.
    let flags = if starter == master { flags } else { flags | libc::CLONE_PARENT };
    // SAFETY: the child gets a stack of its own in its slot; it reads `start`, which is shared. There is no exit signal, so the
    // program's wait() never sees workers.
    let process = own_threads::while_none_is_made(|| unsafe {
        libc::clone(
            first_thread,
            start.slot.boot_top() as *mut c_void,
            flags,
            std::ptr::from_ref(start).cast_mut().cast(),
        )
    });
    if process < 0 {
        // SAFETY: errno is this thread's.
        return Err(Errno(unsafe { *libc::__errno_location() }));
    }
    Ok(process)
}

/// Waits until the new process reports that it runs or why it cannot; `None` if it has done neither after `limit_ns`.
fn wait_for(start: &Start, limit_ns: i64) -> Option<Result<(), Errno>> {
    const LOOK_NS: i64 = 100_000_000;
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: LOOK_NS };
    for _ in 0..limit_ns / LOOK_NS {
        // Acquire: pairs with the Release in `set_word`.
        match start.state.load(Ordering::Acquire) {
            0 => {}
            1 => return Some(Ok(())),
            e => return Some(Err(Errno(-e))),
        }
        let word = start.state.as_ptr() as usize;
        // SAFETY: the word and the time are valid; a shared futex.
        let _ = unsafe {
            let timeout = (&raw const timeout) as usize;
            sys::syscall(libc::SYS_futex, [word, libc::FUTEX_WAIT as usize, 0, timeout, 0, 0])
        };
    }
    None
}

fn set_word(word: &AtomicI32, value: i32) {
    // Release: pairs with the Acquire in `wait_for`.
    word.store(value, Ordering::Release);
    // SAFETY: the word is valid; a shared futex.
    let _ = unsafe {
        sys::syscall(
            libc::SYS_futex,
            [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, i32::MAX as usize, 0, 0, 0],
        )
    };
}

fn default_stack_bytes() -> usize {
    // SAFETY: plain data; valid for writes.
    let limit = unsafe {
        let mut limit: libc::rlimit = MaybeUninit::zeroed().assume_init();
        libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit);
        limit.rlim_cur
    };
    if limit == libc::RLIM_INFINITY { DEFAULT_STACK_BYTES } else { (limit as usize).max(64 << 10) }
}

/// The main function of the new process's first thread. It runs on the boot stack with the starter's TLS while the starter
/// waits, so it does as little as possible.
extern "C" fn first_thread(arg: *mut c_void) -> c_int {
    // SAFETY: `start` is alive until its state is set.
    let start = unsafe { &*arg.cast::<Start>() };
    let (pager, index) = (start.pager, start.index);
    // SAFETY: plain system calls; the rseq area is the starter's, which this thread must not go on using.
    unsafe {
        if let Some(offset) = newer_libc::rseq_area() {
            let area = arch::thread_pointer().wrapping_add_signed(offset);
            let _ = sys::syscall(libc::SYS_rseq, [area, 32, 1, arch::RSEQ_SIGNATURE, 0, 0]);
        }
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        libc::pthread_attr_init(attributes.as_mut_ptr());
        thread_list::forget();
        linker_state::inherit(index, start.maker);
        replay::inherit(index, start.maker);
        start.slot.protect();
        let (stack, bytes) = start.slot.stack();
        let mut error = libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack as *mut c_void, bytes);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let mut thread: libc::pthread_t = 0;
        if error == 0 {
            error = libc::pthread_create(&raw mut thread, attributes.as_ptr(), worker_thread, arg);
        }
        if error != 0 {
            set_word(&start.state, -error);
            let _ = sys::syscall(libc::SYS_exit_group, [1, 0, 0, 0, 0, 0]);
        }
    }
    // The worker sets the state when it is ready, after which `start` is gone, so its values are read before.
    help(pager, index, None, &HELPER_UFFD[index])
}

/// The userfaultfd of each worker process, for its helper thread; set by the worker.
static HELPER_UFFD: [AtomicI32; MAX_WORKERS] = [const { AtomicI32::new(-1) }; MAX_WORKERS];

/// The address of worker `index`'s signal stack of [`signal::STACK_BYTES`].
pub(crate) fn alternate_stack(index: usize) -> usize {
    ALTERNATES[index].load(Ordering::Relaxed)
}

/// Gives worker `index`, a thread of this process, a signal stack; `false` where there is no room.
pub(crate) fn make_alternate_stack(index: usize) -> bool {
    let slot = Slot::without_stack();
    if let Some(slot) = slot {
        ALTERNATES[index].store(slot.alternate(), Ordering::Relaxed);
        signal::use_stack(slot.alternate());
        if index == 0 {
            atoll_nodes::stack::handles_signals_below(slot.alternate() + signal::STACK_BYTES);
        }
    }
    slot.is_some()
}

/// The main function of the worker: attaches this process's page table, then works.
extern "C" fn worker_thread(arg: *mut c_void) -> *mut c_void {
    // SAFETY: `start` is alive until its state is set.
    let start = unsafe { &*arg.cast::<Start>() };
    let (index, pager, entry, entry_arg) = (start.index, start.pager, start.entry, start.arg);
    let control = pager.control();
    // SAFETY: no arguments.
    let process = unsafe { sys::syscall(libc::SYS_getpid, [0; 6]) }.unwrap_or(0);
    control.figures[index].pid.store(process as i32, Ordering::Relaxed);
    control.workers.fetch_max(index as u32 + 1, Ordering::Release);
    let attached = sys::with_descriptors(|| {
        state::become_worker(index, index);
        signal::use_stack(alternate_stack(index));
        if pager.is_segment() {
            super::segment::ready(pager.control(), index);
            return Ok(());
        }
        let delivery =
            if pager.control().settings.fault_thread() { Delivery::Message } else { Delivery::Signal };
        let uffd = Uffd::open(delivery)?;
        // A list of parts is made only where it is needed: with a thread's first allocation it has a heap of its own, which is pinned.
        if mapped_over::are_none() {
            pager.attach_table(index, uffd)?;
        } else {
            // The kernel registers no range with a file's mapping in it.
            let end = layout::ARENA + layout::ARENA_BYTES;
            pager.attach_table_of(index, uffd, &mapped_over::between(layout::ARENA, end))?;
        }
        HELPER_UFFD[index].store(uffd.0, Ordering::Release);
        Ok::<(), Errno>(())
    });
    // Signals meant for the program go to the master; a worker takes only those that its own instructions cause.
    state::block_asynchronous();
    match attached {
        Ok(()) => set_word(&start.state, 1),
        Err(e) => {
            set_word(&start.state, -e.0);
            // SAFETY: ends this process.
            let _ = unsafe { sys::syscall(libc::SYS_exit_group, [1, 0, 0, 0, 0, 0]) };
        }
    }
    entry(entry_arg)
}

/// The nanoseconds that a helper thread with nothing to do waits at once.
const LONG_NS: i64 = 3_600_000_000_000;

/// The nanoseconds that a helper thread waits at once for faults to serve: whether its worker is to end it learns in between.
const SERVING_NS: i64 = 1_000_000_000;

/// Runs a process's helper thread, which never ends. It may run with another worker's TLS: no errno, no thread-locals, no libc.
fn help(pager: &'static Pager, table: usize, scanner: Option<()>, uffd: &AtomicI32) -> ! {
    let mut tail = 0u32;
    let (mut sampler, mut ticks) = (sample::Sampler::new(table), 0);
    let figures = &pager.control().figures[table];
    // The master's own threads take signals that come for it.
    let wait = |fd: i32, ns: i64| lifeline::wait(fd, ns, (table != 0).then(|| pager.control()));
    if pager.control().settings.fault_thread() {
        let index = pager.borrow_executor(table, true).unwrap_or_else(|e| atoll_memory::ending::end(e));
        // SAFETY: this thread's own executor.
        let x = unsafe { pager.executor(index) };
        while uffd.load(Ordering::Acquire) < 0 {
            sys::sleep_ns(100_000);
        }
        let uffd = Uffd(uffd.load(Ordering::Acquire));
        let period = if pager.scans() { PERIOD_NS } else { SERVING_NS };
        loop {
            if serve(pager, x, table, uffd) || wait(uffd.0, period) || !pager.scans() {
                continue;
            }
            if scanner.is_some() {
                pager.scan_tick();
            }
            pager.drop_mappings(table, &mut tail, figures);
        }
    }
    loop {
        if pager.samples() {
            wait(-1, sample::TICK_NS);
            pager.sample_tick(table, &mut sampler, figures);
            ticks += 1;
            if !pager.scans() || ticks % (PERIOD_NS / sample::TICK_NS) != 0 {
                continue;
            }
            if scanner.is_some() {
                pager.scan_tick();
            }
            pager.drop_mappings(table, &mut tail, figures);
        } else if pager.scans() {
            wait(-1, PERIOD_NS);
            if scanner.is_some() {
                pager.scan_tick();
            }
            pager.drop_mappings(table, &mut tail, figures);
        } else {
            wait(-1, LONG_NS);
        }
    }
}

/// Resolves one fault that arrived as a message; `false` if there is no message.
fn serve(
    pager: &'static Pager,
    x: &mut atoll_memory::pager::executor::Executor,
    table: usize,
    uffd: Uffd,
) -> bool {
    let Ok(message) = uffd.read() else { return false };
    if message.event != EVENT_PAGEFAULT {
        return true;
    }
    let address = message.address as usize;
    // Bit 0: write; bit 1: write-protected.
    let fault = Fault { address, write: message.flags & 3 != 0, protection: message.flags & 2 != 0, table };
    if let Err(e) = pager.fault(x, fault) {
        atoll_memory::ending::end(e);
    }
    let page = pager.page_bytes();
    uffd.wake(address & !(page - 1), page);
    true
}

/// The master process's helper threads.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// How many helper threads the master process has, which are none of the program's.
pub(super) fn helpers() -> usize {
    HELPERS.load(Ordering::Relaxed)
}

/// Starts the master process's helper threads: one where it is needed to scan or to handle faults, and one that gives lenders back
/// what they want where pages lie in their memory.
///
/// # Errors
/// A sentence for the user if a thread cannot be made.
pub(crate) fn master_helpers(pager: &'static Pager, uffd: Uffd) -> Result<(), String> {
    HELPER_UFFD[0].store(uffd.0, Ordering::Release);
    extern "C" fn run(pager: *mut c_void) -> *mut c_void {
        // SAFETY: the leaked pager.
        let pager = unsafe { &*pager.cast::<Pager>() };
        help(pager, 0, Some(()), &HELPER_UFFD[0])
    }
    extern "C" fn give_back(pager: *mut c_void) -> *mut c_void {
        // SAFETY: the leaked pager.
        let pager = unsafe { &*pager.cast::<Pager>() };
        let Err(error) = pager.give_back_to_lenders();
        atoll_memory::ending::end(FaultError::Far(error))
    }
    if pager.scans() || pager.samples() || pager.control().settings.fault_thread() {
        helper(pager, run).map_err(|e| format!("cannot start the fault thread: {e}"))?;
    }
    if pager.borrows() {
        helper(pager, give_back).map_err(|e| format!("cannot start the lenders' thread: {e}"))?;
    }
    Ok(())
}

/// Starts a helper thread of the master process.
///
/// # Errors
/// The kernel's, where no thread can be made.
pub(super) fn helper(
    pager: &'static Pager,
    run: extern "C" fn(*mut c_void) -> *mut c_void,
) -> Result<(), std::io::Error> {
    HELPERS.fetch_add(1, Ordering::Relaxed);
    let _blocked = state::set_all_blocked();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the thread never ends; it inherits blocked signals.
    let error = unsafe {
        libc::pthread_create(
            &raw mut thread,
            std::ptr::null(),
            run,
            std::ptr::from_ref(pager).cast_mut().cast(),
        )
    };
    if error == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(error)) }
}
