//! The program's own threads: each has its stack, and with it its thread-local storage, where all workers see it.
//!
//! `wrap::threads` makes them for the program. A region that such a thread begins finds the thread's variables in every worker,
//! as it does when the first thread begins it. A thread faults as the worker does whose page table it shares, with an executor
//! and a signal stack of its own. The next thread gets all of these once this one has ended: after it was joined, or, where
//! nobody joins it, once the kernel no longer knows it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use atoll_memory::spin::{Held, Spin};
use atoll_memory::sys::{self, Errno};

use super::cancelling::Uncancelled;
use super::signal;
use super::slots::Slot;
use crate::omp;
use crate::state::{self, SignalsBlocked};
use atoll_nodes::stack;

/// The main function of a thread of the program's.
pub(crate) type Routine = extern "C" fn(*mut c_void) -> *mut c_void;

/// Creates a thread by libc, from the place for its handle, attributes, routine and argument; returns libc's status.
pub(crate) type Create<'a> =
    &'a dyn Fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Routine, *mut c_void) -> c_int;

/// A thread of the program's own.
struct Own {
    slot: Slot,
    /// The address and bytes of a stack in paged memory that the program brought, which is pinned as long as the thread lives.
    pinned: Option<(usize, usize)>,
    table: usize,
    routine: Routine,
    argument: AtomicPtr<c_void>,
    /// The signal mask that the thread inherits.
    mask: u64,
    /// The kernel's number of the thread; 0 before it runs.
    kernel: AtomicI32,
    /// One more than the number of its executor; 0 if it has none yet.
    executor: AtomicUsize,
    /// The address of the OpenMP runtime's descriptor of the thread, for [`omp::retire`].
    openmp: AtomicUsize,
}

/// Threads that were made and not yet cleaned up after.
struct Threads {
    /// Threads that can be joined, by their `pthread_t`.
    joinable: BTreeMap<usize, Box<Own>>,
    /// Threads that nobody joins.
    #[expect(clippy::vec_box, reason = "each thread keeps the address of its own part")]
    detached: Vec<Box<Own>>,
}

static THREADS: Spin<Threads> = Spin::new(Threads { joinable: BTreeMap::new(), detached: Vec::new() });

/// Makes a thread of the program's.
///
/// # Safety
/// The same as for `pthread_create`.
pub(crate) unsafe fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
    create: Create<'_>,
) -> c_int {
    let _uncancelled = Uncancelled::new();
    // SAFETY: the caller's promise.
    let mut wanted = match unsafe { Wanted::read(attributes) } {
        Ok(wanted) => wanted,
        Err(error) => return error,
    };
    let blocked = SignalsBlocked::new();
    reap();
    let Some(own) = wanted.make(routine, argument, blocked.before()) else { return libc::EAGAIN };
    let mut attributes = wanted.attributes;
    let (stack, bytes) = wanted.stack.unwrap_or(own.slot.stack());
    // SAFETY: attributes that are initialised; the stack is the thread's own from here on.
    unsafe { libc::pthread_attr_setstack(&raw mut attributes, stack as *mut c_void, bytes) };
    let mut made = 0;
    // Held until the thread is entered, since it may be joined, or end, before this returns. A process that is cloned meanwhile
    // would find libc's own locks held.
    let mut threads = THREADS.lock();
    let own = Box::into_raw(own);
    let status = create(&raw mut made, &raw const attributes, begin, own.cast());
    // SAFETY: made by `Wanted::make`, and the new thread only reads it.
    let own = unsafe { Box::from_raw(own) };
    if status != 0 {
        drop(threads);
        own.take_apart();
    } else if wanted.detached {
        threads.detached.push(own);
    } else {
        threads.joinable.insert(made as usize, own);
    }
    wanted.give_back();
    if status == 0 {
        // SAFETY: the caller's promise.
        unsafe { *thread = made };
    }
    status
}

/// The attributes of a new thread.
struct Wanted {
    attributes: libc::pthread_attr_t,
    /// Whether these are libc's defaults, which must be destroyed.
    is_default: bool,
    stack_bytes: usize,
    /// The stack that the program brings, as address and bytes.
    stack: Option<(usize, usize)>,
    detached: bool,
}

unsafe extern "C" {
    fn pthread_getattr_default_np(attributes: *mut libc::pthread_attr_t) -> c_int;
    fn pthread_attr_getdetachstate(attributes: *const libc::pthread_attr_t, state: *mut c_int) -> c_int;
}

impl Wanted {
    /// Reads `attributes`; null stands for libc's defaults. The error is libc's.
    ///
    /// # Safety
    /// `attributes` is null or initialised.
    unsafe fn read(attributes: *const libc::pthread_attr_t) -> Result<Wanted, c_int> {
        let mut copy = std::mem::MaybeUninit::<libc::pthread_attr_t>::zeroed();
        // SAFETY: by the caller's promise; what a copy refers to stays the original's.
        let copy = unsafe {
            if attributes.is_null() {
                match pthread_getattr_default_np(copy.as_mut_ptr()) {
                    0 => {}
                    error => return Err(error),
                }
            } else {
                copy.write(*attributes);
            }
            copy.assume_init()
        };
        let (mut stack, mut bytes, mut stack_bytes, mut state) = (std::ptr::null_mut(), 0, 0, 0);
        // SAFETY: attributes that are initialised, and places for what is asked.
        unsafe {
            libc::pthread_attr_getstack(&raw const copy, &raw mut stack, &raw mut bytes);
            libc::pthread_attr_getstacksize(&raw const copy, &raw mut stack_bytes);
            pthread_attr_getdetachstate(&raw const copy, &raw mut state);
        }
        // Without a stack of the program's, glibc answers with the negative of the size.
        let stack = (stack as isize > 0).then_some((stack as usize, bytes));
        Ok(Wanted {
            attributes: copy,
            is_default: attributes.is_null(),
            stack_bytes,
            stack,
            detached: state == libc::PTHREAD_CREATE_DETACHED,
        })
    }

    /// Makes the thread's own part: a slot with a stack, unless the program brings a stack that can serve.
    fn make(&mut self, routine: Routine, argument: *mut c_void, mask: u64) -> Option<Box<Own>> {
        let pinned = self.stack.filter(|stack| is_paged(*stack));
        if pinned.is_some_and(|stack| !pin(stack)) {
            // The kernel itself writes to this stack, so it must be pinned: if that fails the thread gets another stack of the
            // same size.
            self.stack = None;
        }
        let pinned = pinned.filter(|_| self.stack.is_some());
        let slot = match self.stack {
            Some(_) => Slot::without_stack(),
            None => Slot::take(self.stack_bytes),
        };
        let Some(slot) = slot else {
            pinned.into_iter().for_each(unpin);
            return None;
        };
        slot.protect();
        Some(Box::new(Own {
            slot,
            pinned,
            table: state::table(),
            routine,
            argument: AtomicPtr::new(argument),
            mask,
            kernel: AtomicI32::new(0),
            executor: AtomicUsize::new(0),
            openmp: AtomicUsize::new(0),
        }))
    }

    fn give_back(mut self) {
        if self.is_default {
            // SAFETY: libc's defaults, as it copied them for us.
            unsafe { libc::pthread_attr_destroy(&raw mut self.attributes) };
        }
    }
}

fn is_paged((start, bytes): (usize, usize)) -> bool {
    state::pager().is_some_and(|pager| !pager.is_segment() && pager.first_paged(start, bytes).is_some())
}

/// Bytes of the stacks that are pinned.
static PINNED: AtomicUsize = AtomicUsize::new(0);

/// Keeps a stack near and mapped in the calling thread's page table; `false` where that cannot be guaranteed, or where near memory would
/// have too little for all else.
fn pin((start, bytes): (usize, usize)) -> bool {
    let Some(pager) = state::pager() else { return true };
    if pager.control().settings.several_nodes() {
        return false;
    }
    let kept = PINNED.fetch_add(bytes, Ordering::Relaxed);
    let pinned = pager.has_room_for_long(kept, bytes) && {
        // SAFETY: signals are blocked, so that no fault of this thread's is being handled.
        let x = unsafe { state::executor(pager) };
        pager.pin(x, state::table(), start, bytes, true).is_ok()
    };
    if !pinned {
        PINNED.fetch_sub(bytes, Ordering::Relaxed);
    }
    pinned
}

fn unpin((start, bytes): (usize, usize)) {
    if let Some(pager) = state::pager() {
        PINNED.fetch_sub(bytes, Ordering::Relaxed);
        pager.unpin(start, bytes);
    }
}

/// The signals by which glibc cancels threads and has all of them change their user.
const OF_LIBC: u64 = 0b11 << (32 - 1);

thread_local! {
    /// The calling thread's own part, if it is a thread of the program's.
    static ME: Cell<*const Own> = const { Cell::new(std::ptr::null()) };
}

/// The first function of such a thread.
extern "C" fn begin(own: *mut c_void) -> *mut c_void {
    let uncancelled = Uncancelled::new();
    // SAFETY: freed only when this thread has ended.
    let own = unsafe { &*own.cast::<Own>() };
    if own.pinned.is_some() {
        // The allocator's first call asks the kernel for random numbers, with a buffer that may not be paged.
        let top = own.slot.alternate() + signal::STACK_BYTES;
        // SAFETY: the thread does not handle signals there yet.
        unsafe { stack::call_at(settle, own.as_ptr(), top) };
    } else {
        settle(own.as_ptr());
    }
    drop(uncancelled);
    (own.routine)(own.argument.load(Ordering::Relaxed))
}

/// Prepares such a thread before the program's own code.
extern "C" fn settle(own: *mut c_void) {
    // SAFETY: passed by `begin`.
    let own = unsafe { &*own.cast::<Own>() };
    ME.set(own);
    drop(std::hint::black_box(Box::new(0u64)));
    // SAFETY: no arguments.
    let number = unsafe { sys::syscall(libc::SYS_gettid, [0; 6]) }.unwrap_or(0);
    own.kernel.store(number as i32, Ordering::Relaxed);
    signal::use_stack(own.slot.alternate());
    own.executor.store(sys::with_descriptors(|| state::begin_thread(own.table)) + 1, Ordering::Relaxed);
    // Another mask is one that the thread's attributes ask for. glibc lets its own signals through in any case.
    if state::mask() | OF_LIBC == SignalsBlocked::MASK | OF_LIBC {
        state::set_mask(own.mask);
    }
}

/// Whether the calling thread is one that the program made.
pub(crate) fn is_own() -> bool {
    !ME.get().is_null()
}

/// Notes the descriptor that the OpenMP runtime made for the calling thread.
pub(crate) fn note_openmp(descriptor: usize) {
    // SAFETY: null, or the calling thread's own part.
    if let Some(own) = unsafe { ME.get().as_ref() } {
        own.openmp.store(descriptor, Ordering::Relaxed);
    }
}

/// Notes that `thread` was joined.
pub(crate) fn joined(thread: libc::pthread_t) {
    let _blocked = SignalsBlocked::new();
    let own = THREADS.lock().joinable.remove(&(thread as usize));
    if let Some(own) = own {
        own.take_apart();
    }
}

/// Notes that nobody will join `thread`.
pub(crate) fn detached(thread: libc::pthread_t) {
    let _blocked = SignalsBlocked::new();
    let mut threads = THREADS.lock();
    if let Some(own) = threads.joinable.remove(&(thread as usize)) {
        threads.detached.push(own);
    }
}

/// Clones a process with `clone`, while no thread of the program's is in the middle of being made: in the copy, such a thread
/// would hold libc's locks for ever. Returns in the calling process only.
pub(super) fn while_none_is_made<R>(clone: impl FnOnce() -> R) -> R {
    let _blocked = SignalsBlocked::new();
    let _threads = THREADS.lock();
    clone()
}

/// A guard while which no thread of the program's is in the middle of being made.
pub(super) struct Kept {
    _threads: Held<'static, Threads>,
}

/// Locks out the making of threads, for a fork. The caller blocks signals.
pub(super) fn keep() -> Kept {
    Kept { _threads: THREADS.lock() }
}

/// Cleans up after detached threads that have ended. Each call looks at a few, and the next call at others.
fn reap() {
    const LOOK: usize = 32;
    let mut gone = Vec::new();
    {
        let mut threads = THREADS.lock();
        let detached = &mut threads.detached;
        for _ in 0..detached.len().min(LOOK) {
            let Some(own) = detached.pop() else { break };
            if own.is_gone() {
                gone.push(own);
            } else {
                detached.insert(0, own);
            }
        }
    }
    for own in gone {
        own.take_apart();
    }
}

impl Own {
    fn as_ptr(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Whether the kernel no longer knows the thread.
    fn is_gone(&self) -> bool {
        let number = self.kernel.load(Ordering::Relaxed) as usize;
        // SAFETY: values only; signal 0 asks.
        number != 0
            && unsafe { sys::syscall(libc::SYS_tkill, [number, 0, 0, 0, 0, 0]) == Err(Errno(libc::ESRCH)) }
    }

    /// Frees all that the ended thread had.
    fn take_apart(self) {
        if let Some(executor) = self.executor.load(Ordering::Relaxed).checked_sub(1) {
            state::end_thread(executor, self.table);
        }
        omp::retire(self.openmp.load(Ordering::Relaxed));
        self.pinned.into_iter().for_each(unpin);
        self.slot.give_back();
    }
}
