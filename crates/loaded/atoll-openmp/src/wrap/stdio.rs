//! Streams of the C library, common to all workers.
//!
//! This file has the opening, the closing and the longer transfers; `stream_calls` has the rest, `stream_lock` the locks.
//!
//! A FILE made after the program is managed lies in shared memory, buffer and lock included; only its lock's futex is private
//! to a process. So every function that takes a stream comes here first and takes the stream's own lock with a shared futex:
//! libc then finds the lock held by the caller, counts up and never waits. `stdin`, `stdout` and `stderr`, whose FILEs lie in
//! libc's private data, are replaced by shared ones at start. libc's list of open streams is private as well: our streams are
//! removed from it, kept here, and flushed when the program ends.
//!
//! Where workers are threads of one process libc's locks suffice, and only paged buffers matter here.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_memory::spin::{Held, Spin};
use atoll_memory::sys;

use super::lend::{self, Argument as _};
use super::paged::{self, Cut};
use super::stream_calls::putc;
use super::stream_lock::{FileLock, SHARED, lock};
use super::travel;
use super::{far_streams, growth};
use crate::arch;
use crate::heap::streams;
use crate::state::SignalsBlocked;

unsafe extern "C" {
    static mut stdin: usize;
    static mut stdout: usize;
    static mut stderr: usize;
    fn _IO_un_link(file: usize);
}
/// The open streams that libc's list does not contain.
static OPEN: Spin<Vec<usize>> = Spin::new(Vec::new());

/// A guard that keeps the list of streams unchanged while it lives.
pub(crate) struct Kept(Held<'static, Vec<usize>>);

/// Locks the list of streams for a fork. The caller blocks signals.
pub(crate) fn keep() -> Kept {
    Kept(OPEN.lock())
}

/// Frees the locks of all streams, in a process that the program forked: other threads may have held them.
pub(super) fn free_locks(kept: &Kept) {
    for file in kept.0.iter() {
        // SAFETY: an open stream, and no other thread exists.
        unsafe { FileLock::of(*file) }.into_iter().for_each(FileLock::reset);
    }
}

/// Moves a stream that was just opened from libc's private list to ours.
pub(super) fn opened(file: usize) -> usize {
    if file != 0 && SHARED.load(Ordering::Relaxed) {
        let _blocked = SignalsBlocked::new();
        // SAFETY: an open stream of this process's list.
        unsafe { _IO_un_link(file) };
        OPEN.lock().push(file);
    }
    file
}

fn closed(file: usize) {
    let _blocked = SignalsBlocked::new();
    let mut open = OPEN.lock();
    if let Some(i) = open.iter().position(|&f| f == file) {
        open.swap_remove(i);
    }
}

/// The stream for standard input, at the same address on all nodes.
static INPUT: AtomicUsize = AtomicUsize::new(0);

/// Replaces the standard streams by ones in shared memory.
pub(super) fn init() {
    if !super::separate() {
        return;
    }
    type Fdopen = unsafe extern "C" fn(c_int, *const c_char) -> usize;
    type Setvbuf = unsafe extern "C" fn(usize, usize, c_int, usize) -> c_int;
    let fdopen = real!("fdopen", Fdopen);
    SHARED.store(true, Ordering::Relaxed);
    streams::open(atoll_nodes::active());
    // SAFETY: nothing of the program has run: the streams are unused. A descriptor that is closed, or open the
    // other way, keeps its old stream.
    unsafe {
        let errno = *libc::__errno_location();
        for (fd, mode, variable) in
            [(0, c"r", &raw mut stdin), (1, c"w", &raw mut stdout), (2, c"w", &raw mut stderr)]
        {
            let file = fdopen(fd, mode.as_ptr());
            if file != 0 {
                *variable = opened(file);
                if fd == 0 {
                    INPUT.store(file, Ordering::Relaxed);
                } else if fd == 2 {
                    real!("setvbuf", Setvbuf)(file, 0, libc::_IONBF, 0);
                } else if fd == 1 && atoll_nodes::active() {
                    // What several nodes print meets in one file: by whole lines.
                    real!("setvbuf", Setvbuf)(file, 0, libc::_IOLBF, 0);
                }
            }
        }
        *libc::__errno_location() = errno;
    }
    streams::open(false);
}

/// Whether the stream is `stdin`, which is the origin's.
pub(super) fn is_standard_input(file: usize) -> bool {
    file != 0 && SHARED.load(Ordering::Relaxed) && file == INPUT.load(Ordering::Relaxed)
}

/// Flushes this node's standard output, before other nodes print what comes after it. Called where all of a node's workers
/// wait.
pub(crate) fn flush_standard() {
    /// Offsets of a FILE's `_IO_write_base` and `_IO_write_ptr`.
    const WRITTEN: [usize; 2] = [32, 40];
    // SAFETY: libc's variable.
    let file = unsafe { stdout };
    if file == 0 || !SHARED.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: a stream; another thread of the program's may be changing the words, and then flushes it itself later.
    let [base, end] = WRITTEN.map(|at| unsafe { ((file + at) as *const usize).read_volatile() });
    if base != end {
        let flush = real!("fflush_unlocked", unsafe extern "C" fn(usize) -> c_int);
        // SAFETY: a stream, whose lock is taken.
        unsafe {
            let _held = lock(file);
            flush(file);
        }
    }
}

/// Flushes every stream, as `exit` does, without waiting for locks whose holders may have ended.
pub(super) fn flush_at_exit() {
    let flush = real!("fflush_unlocked", unsafe extern "C" fn(usize) -> c_int);
    let open = {
        let _blocked = SignalsBlocked::new();
        std::mem::take(&mut *OPEN.lock())
    };
    for file in open {
        // SAFETY: streams that were opened and not closed.
        unsafe {
            let lock = FileLock::of(file);
            let mut tries = 0;
            while lock.is_some_and(|l| !l.try_acquire()) && tries < 100 {
                tries += 1;
                sys::sleep_ns(1_000_000);
            }
            flush(file);
        }
    }
}

macro_rules! openers {
    ($($name:ident ( $($arg:ident : $kind:ident),* );)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($arg: usize),*) -> usize {
            let call = real!(stringify!($name), unsafe extern "C" fn($(wrap!(@usize $arg)),*) -> usize);
            let ($($arg,)*) = ($(wrap!(@lend $arg $kind),)*);
            // SAFETY: the caller's arguments.
            opened(unsafe { call($($arg.at()),*) })
        }
    )*};
}

openers! {
    fopen(path: s, mode: s);
    fopen64(path: s, mode: s);
    fdopen(fd: v, mode: s);
    tmpfile();
    tmpfile64();
    fmemopen(memory: v, len: v, mode: v);
}

/// `popen`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn popen(command: usize, mode: usize) -> usize {
    let call = real!("popen", unsafe extern "C" fn(usize, usize) -> usize);
    growth::expect();
    let (command, mode) = (wrap!(@lend command s), wrap!(@lend mode s));
    // SAFETY: the caller's arguments.
    opened(unsafe { call(command.at(), mode.at()) })
}

/// Streams into blocks that libc makes, each with the address of the variable through which the program gets the block once the
/// stream is closed.
static BLOCKS: Spin<Vec<(usize, usize)>> = Spin::new(Vec::new());

macro_rules! block_openers {
    ($($name:ident)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(to: usize, len: usize) -> usize {
            let call = real!(stringify!($name), unsafe extern "C" fn(usize, usize) -> usize);
            // SAFETY: the caller's arguments.
            let file = opened(unsafe { call(to, len) });
            if file != 0 && SHARED.load(Ordering::Relaxed) {
                let _blocked = SignalsBlocked::new();
                BLOCKS.lock().push((file, to));
            }
            file
        }
    )*};
}

block_openers! { open_memstream open_wmemstream }

/// Makes the block of a closed stream, if it has one, the program's.
fn block_closed(file: usize) {
    let place = {
        let _blocked = SignalsBlocked::new();
        let mut blocks = BLOCKS.lock();
        let at = blocks.iter().position(|(stream, _)| *stream == file);
        at.map(|at| blocks.swap_remove(at).1)
    };
    if let Some(to) = place {
        // SAFETY: the variable that the program gave when it opened the stream.
        unsafe { travel::moved_at(to) };
    }
}

macro_rules! reopeners {
    ($($name:ident)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(path: usize, mode: usize, file: usize) -> usize {
            let call = real!(stringify!($name), unsafe extern "C" fn(usize, usize, usize) -> usize);
            // SAFETY: the caller's arguments.
            unsafe {
                let (path, _locked) = (lend::string(path, false), lock(file));
                let result = call(path.at(), mode, file);
                closed(file);
                opened(result)
            }
        }
    )*};
}

reopeners! { freopen freopen64 }

macro_rules! closers {
    ($($name:ident $pipe:literal;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(file: usize) -> usize {
            if let Some(far) = far_streams::of(file) {
                return far.close($pipe) as usize;
            }
            let call = real!(stringify!($name), unsafe extern "C" fn(usize) -> usize);
            if SHARED.load(Ordering::Relaxed) {
                closed(file);
                // The lock is freed with the stream: wait until nobody uses it, but leave it free.
                // SAFETY: the caller's stream.
                drop(unsafe { lock(file) });
            }
            // SAFETY: the caller's stream.
            let result = unsafe { call(file) };
            block_closed(file);
            result
        }
    )*};
}

closers! {
    fclose false;
    pclose true;
}

/// `fflush`; without a stream, all of them.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fflush(file: usize) -> c_int {
    let call = real!("fflush", unsafe extern "C" fn(usize) -> c_int);
    if let Some(far) = far_streams::of(file) {
        return far.flush();
    }
    if file != 0 || !SHARED.load(Ordering::Relaxed) {
        // SAFETY: the caller's stream.
        unsafe {
            let _locked = lock(file);
            return call(file);
        }
    }
    let open = {
        let _blocked = SignalsBlocked::new();
        OPEN.lock().clone()
    };
    // SAFETY: no stream: libc flushes what its own list still has.
    let mut result = unsafe { call(0) };
    for file in open {
        // SAFETY: open streams (closing one meanwhile is the program's race, as with libc).
        unsafe {
            let _locked = lock(file);
            // Only streams with bytes to write are flushed: flushing input would drop what was read ahead.
            if *(file as *const i32) & CURRENTLY_PUTTING != 0 {
                result |= call(file);
            }
        }
    }
    result
}

/// The bit in the `_flags` of a FILE that is being written.
const CURRENTLY_PUTTING: i32 = 0x800;

/// Transfers `n` items of `size` bytes, in pieces of paged memory; returns the number of whole items.
fn items(at: usize, size: usize, n: usize, cut: Cut, mut one: impl FnMut(usize, usize) -> usize) -> usize {
    let Some(bytes) = size.checked_mul(n).filter(|&b| b > 0) else { return 0 };
    let done = paged::with(at, bytes, cut, |at, n, _| one(at, n) as isize) as usize;
    if done == bytes { n } else { done / size }
}

type Transfer = unsafe extern "C" fn(usize, usize, usize, usize) -> usize;

macro_rules! transfers {
    ($($name:ident $cut:ident $locks:literal $there:ident;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(at: usize, size: usize, n: usize, file: usize) -> usize {
            if let Some(far) = far_streams::of(file) {
                let Some(bytes) = size.checked_mul(n).filter(|&bytes| bytes > 0) else { return 0 };
                // SAFETY: the caller's buffer.
                return unsafe { far.$there(at, bytes) } / size;
            }
            let call = real!(stringify!($name), Transfer);
            // SAFETY: the caller's buffer and stream.
            unsafe {
                let _locked = $locks.then(|| lock(file));
                items(at, size, n, Cut::$cut, |at, bytes| call(at, 1, bytes, file))
            }
        }
    )*};
}

transfers! {
    fread Fill true read;
    fread_unlocked Fill false read;
    fwrite Drain true write;
    fwrite_unlocked Drain false write;
}

/// glibc's `fread` under `_FORTIFY_SOURCE`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __fread_chk(
    at: usize,
    have: usize,
    size: usize,
    n: usize,
    file: usize,
) -> usize {
    if size.checked_mul(n).is_none_or(|bytes| bytes > have) {
        let call = real!("__fread_chk", unsafe extern "C" fn(usize, usize, usize, usize, usize) -> usize);
        // SAFETY: ends the program.
        return unsafe { call(at, have, size, n, file) };
    }
    // SAFETY: the caller's promise.
    unsafe { fread(at, size, n, file) }
}

macro_rules! put_string {
    ($($name:ident by $write:ident;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(text: usize, file: usize) -> c_int {
            // SAFETY: the caller's string and stream.
            unsafe {
                let len = libc::strlen(text as *const c_char);
                if $write(text, 1, len, file) == len { 1 } else { libc::EOF }
            }
        }
    )*};
}

put_string! {
    fputs by fwrite;
    fputs_unlocked by fwrite_unlocked;
}

/// `puts`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn puts(text: *const c_char) -> c_int {
    // SAFETY: the caller's string.
    unsafe {
        let file = stdout;
        let _locked = lock(file);
        // Where workers are threads, libc's own lock keeps the text and the end of its line together.
        let threads = !SHARED.load(Ordering::Relaxed);
        if threads {
            real!("flockfile", unsafe extern "C" fn(usize))(file);
        }
        let failed = fputs(text as usize, file) < 0 || putc(usize::from(b'\n'), file) as c_int == libc::EOF;
        if threads {
            real!("funlockfile", unsafe extern "C" fn(usize))(file);
        }
        if failed {
            return libc::EOF;
        }
        let len = libc::strlen(text) + 1;
        c_int::try_from(len).unwrap_or(c_int::MAX)
    }
}

/// `setvbuf`: a buffer in paged memory is replaced by one that libc makes.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setvbuf(file: usize, buffer: usize, mode: c_int, size: usize) -> c_int {
    if let Some(far) = far_streams::of(file) {
        return far.buffer(mode, size);
    }
    let call = real!("setvbuf", unsafe extern "C" fn(usize, usize, c_int, usize) -> c_int);
    // SAFETY: the caller's stream; the new buffer is pinned and never freed.
    unsafe {
        let _locked = lock(file);
        let mut buffer = buffer;
        if mode != libc::_IONBF && paged::active().is_some_and(|p| p.first_paged(buffer, size).is_some()) {
            buffer = Vec::leak(vec![0u8; size]).as_mut_ptr() as usize;
        }
        call(file, buffer, mode, size)
    }
}

/// `setbuffer`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setbuffer(file: usize, buffer: usize, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { setvbuf(file, buffer, if buffer == 0 { libc::_IONBF } else { libc::_IOFBF }, size) };
}

/// `setbuf`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setbuf(file: usize, buffer: usize) {
    // SAFETY: the caller's promise.
    unsafe { setbuffer(file, buffer, libc::BUFSIZ as usize) };
}

/// Exports names whose code is in `variadic.c`: a jump leaves all arguments where they are.
macro_rules! jump {
    ($($name:ident to $target:ident;)*) => {$(
        unsafe extern "C" {
            fn $target();
        }

        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name() {
            arch::jump_to!($target)
        }
    )*};
}

jump! {
    printf to atoll_printf;
    fprintf to atoll_fprintf;
    vprintf to atoll_vprintf;
    vfprintf to atoll_vfprintf;
    dprintf to atoll_dprintf;
    vdprintf to atoll_vdprintf;
    __printf_chk to atoll_printf_chk;
    __fprintf_chk to atoll_fprintf_chk;
    __vprintf_chk to atoll_vprintf_chk;
    __vfprintf_chk to atoll_vfprintf_chk;
    __dprintf_chk to atoll_dprintf_chk;
    __vdprintf_chk to atoll_vdprintf_chk;
    wprintf to atoll_wprintf;
    fwprintf to atoll_fwprintf;
    vwprintf to atoll_vwprintf;
    vfwprintf to atoll_vfwprintf;
    scanf to atoll_scanf;
    fscanf to atoll_fscanf;
    vscanf to atoll_vscanf;
    vfscanf to atoll_vfscanf;
    __isoc99_scanf to atoll_isoc99_scanf;
    __isoc99_fscanf to atoll_isoc99_fscanf;
    __isoc99_vscanf to atoll_isoc99_vscanf;
    __isoc99_vfscanf to atoll_isoc99_vfscanf;
    asprintf to atoll_asprintf;
    __asprintf to atoll_asprintf_too;
    __asprintf_chk to atoll_asprintf_chk;
    sscanf to atoll_sscanf;
    __isoc99_sscanf to atoll_isoc99_sscanf;
    execl to atoll_execl;
    execlp to atoll_execlp;
    execle to atoll_execle;
    pthread_once to atoll_pthread_once;
    call_once to atoll_call_once;
}
