//! A worker as a process: cloned from whoever needs it, with a page table, stack and TLS block of its own.
//!
//! `workers` calls `start`; the new process's first thread makes one pthread, which is the worker (glibc gives it
//! its TLS at the top of a stack that we place in shared memory), and from then on only helps: it scans for LRU or
//! resolves faults where a thread does that. Stacks lie in slots, one a worker.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};

use atoll_memory::control::MAX_WORKERS;
use atoll_memory::layout;
use atoll_memory::pager::fault::Fault;
use atoll_memory::pager::sample;
use atoll_memory::pager::scan::PERIOD_NS;
use atoll_memory::pager::{FaultError, Pager};
use atoll_memory::segment::fill::Which;
use atoll_memory::sys::{self, Errno};
use atoll_memory::uffd::{Delivery, EVENT_PAGEFAULT, Uffd};

use super::signal;
use crate::{heap, state};

use crate::workers::Entry;

/// Bytes of a stack slot: address space only.
const SLOT: usize = layout::STACKS_BYTES / MAX_WORKERS;

/// Where the slot of worker `index` begins: unique among all nodes.
fn slot_of(index: usize) -> usize {
    if super::segment::is_on() {
        return super::segment::known_slot(index);
    }
    heap::place::stacks().start + index * SLOT
}
const BOOT_STACK: usize = 128 << 10;
const ALTERNATE: usize = 1 << 20;
const STACK: usize = 2 << 20;
const DEFAULT_STACK_BYTES: usize = 8 << 20;

/// Handed from the starting worker to the started one; in pinned memory, as the started one has no faults served yet: what it
/// maps of the starter's stack would be known to nobody.
struct Start {
    index: usize,
    stack_bytes: usize,
    entry: Entry,
    arg: *mut c_void,
    parent: i32,
    /// 0: starting; 1: runs; negative: errno.
    state: AtomicI32,
    pager: &'static Pager,
}

unsafe extern "C" {
    #[link_name = "__rseq_offset"]
    static RSEQ_OFFSET: isize;
    #[link_name = "__rseq_size"]
    static RSEQ_SIZE: u32;
}

/// Starts worker `index` in a process of its own; returns when it is about to run `entry(arg)`.
///
/// # Errors
/// The errno of what was refused.
pub(crate) fn start(index: usize, stack_bytes: usize, entry: Entry, arg: *mut c_void) -> Result<(), Errno> {
    let Some(pager) = state::pager() else { return Err(Errno(libc::ENOSYS)) };
    if index >= heap::place::stacks().len() / SLOT {
        return Err(Errno(libc::EAGAIN));
    }
    let _blocked = state::SignalsBlocked::new();
    let start = Box::new(Start {
        index,
        stack_bytes: if stack_bytes == 0 { default_stack_bytes() } else { stack_bytes },
        entry,
        arg,
        // The kernel's answer: the program's own `getpid` names the master.
        // SAFETY: no arguments.
        parent: unsafe { sys::syscall(libc::SYS_getpid, [0; 6]) }? as i32,
        state: AtomicI32::new(0),
        pager,
    });
    // The kernel makes private pages read-only in both processes: they are entered again when the worker is there.
    let _set_up = super::segment::SetUp::begin(Some(Which::PrivateWritable));
    if super::segment::is_on() {
        super::segment::slot(index, slot_bytes(start.stack_bytes)).ok_or(Errno(libc::ENOMEM))?;
    }
    let slot = slot_of(index);
    sys::in_core_files(slot, slot_bytes(start.stack_bytes), true);
    let flags = libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_IO | libc::CLONE_SYSVSEM;
    // SAFETY: the child gets a stack of its own in its slot; it reads `start`, which is shared, while this worker waits
    // below. No exit signal: the program's wait() never sees workers.
    let pid = unsafe {
        libc::clone(
            first_thread,
            (slot + BOOT_STACK) as *mut c_void,
            flags,
            std::ptr::from_ref(&*start).cast_mut().cast(),
        )
    };
    if pid < 0 {
        // SAFETY: errno is this thread's.
        return Err(Errno(unsafe { *libc::__errno_location() }));
    }
    let control = pager.control();
    control.figures[index].pid.store(pid, Ordering::Relaxed);
    control.workers.fetch_max(index as u32 + 1, Ordering::Release);
    loop {
        match start.state.load(Ordering::Acquire) {
            0 => wait_word(&start.state),
            1 => return Ok(()),
            e => return Err(Errno(-e)),
        }
    }
}

/// Sleeps until the word is no longer zero; wakes now and then to look whether the other side still lives.
fn wait_word(word: &AtomicI32) {
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    // SAFETY: the word and the time are valid; a shared futex.
    let _ = unsafe {
        sys::syscall(
            libc::SYS_futex,
            [
                word.as_ptr() as usize,
                libc::FUTEX_WAIT as usize,
                0,
                std::ptr::from_ref(&timeout) as usize,
                0,
                0,
            ],
        )
    };
}

fn set_word(word: &AtomicI32, value: i32) {
    // Release: pairs with the Acquire in `start`.
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

/// Runs on the boot stack with the starter's TLS, while the starter waits: as little as possible.
extern "C" fn first_thread(arg: *mut c_void) -> c_int {
    // SAFETY: `start` is alive until its state is set.
    let start = unsafe { &*arg.cast::<Start>() };
    let (pager, index) = (start.pager, start.index);
    // SAFETY: plain system calls; the rseq area is the starter's, which this thread must not go on using.
    unsafe {
        let _ = sys::syscall(
            libc::SYS_prctl,
            [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize, 0, 0, 0, 0],
        );
        if sys::syscall(libc::SYS_getppid, [0; 6]) != Ok(start.parent as usize) {
            let _ = sys::syscall(libc::SYS_exit_group, [1, 0, 0, 0, 0, 0]);
        }
        if RSEQ_SIZE > 0 {
            let area = super::share::thread_pointer().wrapping_add_signed(RSEQ_OFFSET);
            let _ = sys::syscall(libc::SYS_rseq, [area, 32, 1, 0x5305_3053, 0, 0]);
        }
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        libc::pthread_attr_init(attributes.as_mut_ptr());
        let stack = slot_of(index) + STACK;
        let bytes = slot_bytes(start.stack_bytes).min(SLOT) - STACK;
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
    // The worker sets the state when it is ready, after which `start` is gone: take what is needed before.
    help(pager, index, None, &HELPER_UFFD[index])
}

/// The uffd of each worker process, for its helper thread; set by the worker.
static HELPER_UFFD: [AtomicI32; MAX_WORKERS] = [const { AtomicI32::new(-1) }; MAX_WORKERS];

/// Bytes of a slot with a stack of `stack_bytes` and the worker's variables.
fn slot_bytes(stack_bytes: usize) -> usize {
    STACK + (stack_bytes + tls_bytes()).next_multiple_of(4096)
}

/// Bytes of a slot whose worker brings its own stack, as the master does.
pub(super) fn least_slot_bytes() -> usize {
    STACK
}

/// Where worker `index` handles signals: [`signal::STACK_BYTES`] of its slot.
pub(crate) fn alternate_stack(index: usize) -> usize {
    slot_of(index) + ALTERNATE
}

/// Static TLS that a thread's stack must hold besides the stack proper.
fn tls_bytes() -> usize {
    // SAFETY: the symbol, where glibc has it, takes attributes and returns bytes.
    unsafe {
        let f =
            libc::dlvsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr(), c"GLIBC_PRIVATE".as_ptr());
        if f.is_null() {
            return 4 << 20;
        }
        let f: unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize = std::mem::transmute(f);
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        libc::pthread_attr_init(attributes.as_mut_ptr());
        f(attributes.as_ptr())
    }
}

/// The worker itself: attach this process's page table, then work.
extern "C" fn worker_thread(arg: *mut c_void) -> *mut c_void {
    // SAFETY: `start` is alive until its state is set.
    let start = unsafe { &*arg.cast::<Start>() };
    let (index, pager, entry, entry_arg) = (start.index, start.pager, start.entry, start.arg);
    state::become_worker(index, index);
    signal::use_stack(alternate_stack(index));
    let attached = (|| {
        if pager.is_segment() {
            super::segment::ready(pager.control(), index);
            return Ok(());
        }
        let delivery =
            if pager.control().settings.fault_thread() { Delivery::Message } else { Delivery::Signal };
        let uffd = Uffd::open(delivery)?;
        pager.attach_table(index, uffd)?;
        HELPER_UFFD[index].store(uffd.0, Ordering::Release);
        Ok::<(), Errno>(())
    })();
    // Signals meant for the program go to the master; a worker takes only what its own instructions cause.
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

/// What a process's helper thread does for ever. It may run with another worker's TLS: no errno, no
/// thread-locals, no libc.
fn help(pager: &'static Pager, table: usize, scanner: Option<()>, uffd: &AtomicI32) -> ! {
    let mut tail = 0u32;
    let (mut sampler, mut ticks) = (sample::Sampler::new(table), 0);
    let figures = &pager.control().figures[table];
    if pager.control().settings.fault_thread() {
        let index = pager.extra_executor();
        // SAFETY: an index of this thread's own, used once.
        if let Err(e) = unsafe { pager.make_executor(index, Some(table), table) } {
            signal::end(FaultError::Far(e));
        }
        // SAFETY: this thread's own executor.
        let x = unsafe { pager.executor(index) };
        while uffd.load(Ordering::Acquire) < 0 {
            sys::sleep_ns(100_000);
        }
        let uffd = Uffd(uffd.load(Ordering::Acquire));
        loop {
            if pager.scans() && !uffd.wait_readable(PERIOD_NS) {
                if scanner.is_some() {
                    pager.scan_tick();
                }
                pager.drop_mappings(table, &mut tail, figures);
                continue;
            }
            serve(pager, x, table, uffd);
        }
    }
    loop {
        if pager.samples() {
            sys::sleep_ns(sample::TICK_NS);
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
            sys::sleep_ns(PERIOD_NS);
            if scanner.is_some() {
                pager.scan_tick();
            }
            pager.drop_mappings(table, &mut tail, figures);
        } else if pager.is_segment() {
            // Nothing to do, ever: no timer disturbs the worker. Every signal is blocked here.
            // SAFETY: no arguments.
            let _ = unsafe { sys::syscall(libc::SYS_pause, [0; 6]) };
        } else {
            sys::sleep_ns(999_999_999);
        }
    }
}

/// Resolves one fault that arrived as a message.
fn serve(pager: &'static Pager, x: &mut atoll_memory::pager::executor::Executor, table: usize, uffd: Uffd) {
    let Ok(message) = uffd.read() else { return };
    if message.event != EVENT_PAGEFAULT {
        return;
    }
    let address = message.address as usize;
    // Bit 0: write; bit 1: write-protected.
    let fault = Fault { address, write: message.flags & 3 != 0, protection: message.flags & 2 != 0, table };
    if let Err(e) = pager.fault(x, fault) {
        signal::end(e);
    }
    let page = pager.page_bytes();
    uffd.wake(address & !(page - 1), page);
}

/// The master process's helper thread, where one is needed: the scan, or the handling of faults.
///
/// # Errors
/// A sentence for the user if the thread cannot be made.
pub(crate) fn master_helper(pager: &'static Pager, uffd: Uffd) -> Result<(), String> {
    HELPER_UFFD[0].store(uffd.0, Ordering::Release);
    if !pager.scans() && !pager.samples() && !pager.control().settings.fault_thread() {
        return Ok(());
    }
    extern "C" fn run(pager: *mut c_void) -> *mut c_void {
        // SAFETY: the leaked pager.
        let pager = unsafe { &*pager.cast::<Pager>() };
        help(pager, 0, Some(()), &HELPER_UFFD[0])
    }
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
    if error == 0 {
        Ok(())
    } else {
        Err(format!("cannot start the fault thread: {}", std::io::Error::from_raw_os_error(error)))
    }
}
