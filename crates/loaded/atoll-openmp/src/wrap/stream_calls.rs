//! The functions of the C library on one stream: called under its lock, or on the node that has the stream.
//!
//! `stdio` opens and closes streams and has longer transfers; `far_streams` asks other nodes.

use std::ffi::c_int;

use super::far_streams::{self, Far};
use super::lend::Argument as _;
use super::stream_lock::lock;

unsafe extern "C" {
    static mut stdin: usize;
    static mut stdout: usize;
    static mut stderr: usize;
}

/// Defines functions on one stream, which libc runs under the lock we took, or another node's libc if that node has the stream.
macro_rules! streams {
    ($($name:ident ( $($arg:ident : $kind:ident),* ) $file:ident elsewhere $far:ident $there:expr;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($arg: usize),*) -> usize {
            if let Some($far) = far_streams::of($file) {
                #[allow(unused_unsafe, reason = "some write to no memory of the caller's")]
                // SAFETY: the caller's arguments.
                return unsafe { $there } as usize;
            }
            let call = real!(stringify!($name), unsafe extern "C" fn($(wrap!(@usize $arg)),*) -> usize);
            let ($($arg,)*) = ($(wrap!(@lend $arg $kind),)*);
            // SAFETY: the caller's arguments.
            unsafe { call($($arg.at()),*) }
        }
    )*};
}

streams! {
    fgetc(file: file) file elsewhere far far.getc();
    getc(file: file) file elsewhere far far.getc();
    _IO_getc(file: file) file elsewhere far far.getc();
    getc_unlocked(file: v) file elsewhere far far.getc();
    fgetc_unlocked(file: v) file elsewhere far far.getc();
    ungetc(c: v, file: file) file elsewhere far far.ungetc(c);
    fputc(c: v, file: file) file elsewhere far far.putc(c);
    putc(c: v, file: file) file elsewhere far far.putc(c);
    _IO_putc(c: v, file: file) file elsewhere far far.putc(c);
    putc_unlocked(c: v, file: v) file elsewhere far far.putc(c);
    fputc_unlocked(c: v, file: v) file elsewhere far far.putc(c);
    fgets(to: v, n: v, file: file) file elsewhere far far.gets(to, n);
    fgets_unlocked(to: v, n: v, file: v) file elsewhere far far.gets(to, n);
    __fgets_chk(to: v, size: v, n: v, file: file) file elsewhere far far.gets(to, n.min(size));
    fseek(file: file, offset: v, whence: v) file elsewhere far far.seek(offset as i64, whence);
    fseeko(file: file, offset: v, whence: v) file elsewhere far far.seek(offset as i64, whence);
    fseeko64(file: file, offset: v, whence: v) file elsewhere far far.seek(offset as i64, whence);
    ftell(file: file) file elsewhere far far.tell();
    ftello(file: file) file elsewhere far far.tell();
    ftello64(file: file) file elsewhere far far.tell();
    rewind(file: file) file elsewhere far {
        far.seek(0, libc::SEEK_SET as usize);
        far.clear();
        0
    };
    fgetpos(file: file, to: v) file elsewhere far position(far, to);
    fgetpos64(file: file, to: v) file elsewhere far position(far, to);
    fsetpos(file: file, from: v) file elsewhere far far.seek(*(from as *const i64), libc::SEEK_SET as usize);
    fsetpos64(file: file, from: v) file elsewhere far far.seek(*(from as *const i64), libc::SEEK_SET as usize);
    setlinebuf(file: file) file elsewhere far far.buffer(libc::_IOLBF, 0);
    feof(file: file) file elsewhere far far.is_at_end();
    feof_unlocked(file: v) file elsewhere far far.is_at_end();
    ferror(file: file) file elsewhere far far.has_failed();
    ferror_unlocked(file: v) file elsewhere far far.has_failed();
    clearerr(file: file) file elsewhere far {
        far.clear();
        0
    };
    clearerr_unlocked(file: v) file elsewhere far {
        far.clear();
        0
    };
    fileno(file: file) file elsewhere far far.number();
    fileno_unlocked(file: v) file elsewhere far far.number();
}

/// `fgetpos`: writes a position that begins with the offset; the rest of it is about characters of several bytes.
///
/// # Safety
/// There is room for a position at `to`.
unsafe fn position(far: Far, to: usize) -> c_int {
    let offset = far.tell();
    if offset < 0 {
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::write_bytes(to as *mut u8, 0, 16);
        (to as *mut i64).write(offset);
    }
    0
}

// Functions on one stream, which libc runs under the lock we took.
wrap! {
    getw(file: file);
    putw(w: v, file: file);
    fwide(file: file, mode: v);
    fgetwc(file: file);
    getwc(file: file);
    fputwc(c: v, file: file);
    putwc(c: v, file: file);
    ungetwc(c: v, file: file);
    fgetws(to: v, n: v, file: file);
    fputws(from: v, file: file);
}

macro_rules! standard {
    ($($name:ident ( $($arg:ident),* ) $stream:ident;)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name($($arg: usize),*) -> usize {
            let call = real!(stringify!($name), unsafe extern "C" fn($(wrap!(@usize $arg)),*) -> usize);
            // SAFETY: the program's stream and arguments.
            unsafe {
                let _locked = lock($stream);
                call($($arg),*)
            }
        }
    )*};
}

/// `getchar`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getchar() -> usize {
    // SAFETY: the program's stream.
    unsafe { getc(stdin) }
}

/// `getchar_unlocked`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getchar_unlocked() -> usize {
    // SAFETY: the program's stream.
    unsafe { getc_unlocked(stdin) }
}

standard! {
    getwchar() stdin;
    putchar(c) stdout;
    putwchar(c) stdout;
    perror(text) stderr;
    psignal(signal, text) stderr;
}
