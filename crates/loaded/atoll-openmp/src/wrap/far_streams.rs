//! Streams that another node has opened: the program's calls on them are carried out there (`nodes::calls`).
//!
//! A FILE, its buffer and its lock are libc's, and lie on the node that opened it, which its address tells. `stdin` is the
//! origin's on all nodes; `stdout` and `stderr` are each node's own. `stdio` asks here first. Formatted input reads an
//! unbuffered stream of this node's, which asks the other node for every byte; a thread there holds the stream's lock
//! meanwhile.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};

use atoll_memory::layout;
use atoll_memory::spin::Spin;

use super::{stdio, stream_calls, stream_lock, travel};
use crate::state::SignalsBlocked;
use atoll_nodes::{ORIGIN, calls};

/// The operations on a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Do {
    Read,
    Line,
    Write,
    Unread,
    Seek,
    Tell,
    Flush,
    IsAtEnd,
    HasFailed,
    Clear,
    Close,
    ClosePipe,
    Buffer,
    Number,
    Lock,
    Unlock,
}

const ALL: [Do; 16] = [
    Do::Read,
    Do::Line,
    Do::Write,
    Do::Unread,
    Do::Seek,
    Do::Tell,
    Do::Flush,
    Do::IsAtEnd,
    Do::HasFailed,
    Do::Clear,
    Do::Close,
    Do::ClosePipe,
    Do::Buffer,
    Do::Number,
    Do::Lock,
    Do::Unlock,
];

/// The most bytes of one message.
const TOGETHER: usize = 256 << 10;

/// A stream that another node has opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Far {
    node: u32,
    file: usize,
}

/// The stream, if it is another node's.
#[inline]
pub(super) fn of(file: usize) -> Option<Far> {
    let (node, nodes) = atoll_nodes::several()?;
    let owner = if layout::in_pinned(file) {
        ((file - layout::PINNED) / layout::part(layout::PINNED_BYTES, 0, nodes).1) as u32
    } else if stdio::is_standard_input(file) {
        ORIGIN
    } else {
        return None;
    };
    (owner != node && owner < nodes).then_some(Far { node: owner, file })
}

impl Far {
    fn call(self, what: Do, words: [u64; 2], bytes: &[u8]) -> calls::Reply {
        self.call_of([what as u64, self.file as u64, words[0], words[1]], bytes)
    }

    fn call_of(self, words: [u64; 4], bytes: &[u8]) -> calls::Reply {
        let reply = calls::call(self.node, words, bytes);
        if reply.errno != 0 {
            // SAFETY: errno is this thread's.
            unsafe { *libc::__errno_location() = reply.errno };
        }
        reply
    }

    fn int(self, what: Do, words: [u64; 2]) -> c_int {
        self.call(what, words, &[]).result as c_int
    }

    /// Reads up to `len` bytes to `to`; returns their number.
    ///
    /// # Safety
    /// There is room for `len` bytes at `to`.
    pub(super) unsafe fn read(self, to: usize, len: usize) -> usize {
        let mut done = 0;
        while done < len {
            let wanted = (len - done).min(TOGETHER);
            let bytes = self.call(Do::Read, [wanted as u64, 0], &[]).bytes;
            let n = bytes.len().min(wanted);
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (to + done) as *mut u8, n) };
            done += n;
            if n < wanted {
                break;
            }
        }
        done
    }

    /// Writes `len` bytes from `from`; returns the number written.
    ///
    /// # Safety
    /// There are `len` bytes at `from`.
    pub(super) unsafe fn write(self, from: usize, len: usize) -> usize {
        let mut done = 0;
        while done < len {
            let part = (len - done).min(TOGETHER);
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts((from + done) as *const u8, part) };
            let n = (self.call(Do::Write, [0, 0], bytes).result as usize).min(part);
            done += n;
            if n < part {
                break;
            }
        }
        done
    }

    pub(super) fn getc(self) -> c_int {
        let bytes = self.call(Do::Read, [1, 0], &[]).bytes;
        bytes.first().map_or(libc::EOF, |byte| (*byte).into())
    }

    pub(super) fn putc(self, c: usize) -> c_int {
        let byte = c as u8;
        if self.call(Do::Write, [0, 0], &[byte]).result == 1 { byte.into() } else { libc::EOF }
    }

    pub(super) fn ungetc(self, c: usize) -> c_int {
        self.int(Do::Unread, [c as u64, 0])
    }

    /// Reads a line with its delimiter, of at most `most` bytes.
    fn line(self, end: u8, most: usize) -> Vec<u8> {
        self.call(Do::Line, [end.into(), most as u64], &[]).bytes
    }

    /// `fgets`.
    ///
    /// # Safety
    /// There is room for `n` bytes at `to`.
    pub(super) unsafe fn gets(self, to: usize, n: usize) -> usize {
        let n = n as c_int;
        if n < 1 {
            return 0;
        }
        let bytes = if n == 1 { Vec::new() } else { self.line(b'\n', n as usize - 1) };
        if bytes.is_empty() && n > 1 {
            return 0;
        }
        // SAFETY: the caller's promise; with the zero behind them the bytes are at most `n`.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len());
            ((to + bytes.len()) as *mut u8).write(0);
        }
        to
    }

    /// `getdelim`.
    ///
    /// # Safety
    /// The same as for libc's function.
    pub(super) unsafe fn getdelim(self, to: usize, n: usize, end: usize) -> isize {
        let bytes = self.line(end as u8, usize::MAX);
        if bytes.is_empty() {
            return -1;
        }
        // SAFETY: the caller's variables.
        unsafe {
            let (block, size) = (to as *mut *mut c_void, n as *mut usize);
            if (*block).is_null() || *size < bytes.len() + 1 {
                let new = travel::program_block(bytes.len() + 1);
                if new == 0 {
                    *libc::__errno_location() = libc::ENOMEM;
                    return -1;
                }
                libc::free(*block);
                (*block, *size) = (new as *mut c_void, bytes.len() + 1);
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), (*block).cast(), bytes.len());
            (*block).cast::<u8>().add(bytes.len()).write(0);
        }
        bytes.len() as isize
    }

    pub(super) fn seek(self, offset: i64, whence: usize) -> c_int {
        self.int(Do::Seek, [offset as u64, whence as u64])
    }

    pub(super) fn tell(self) -> i64 {
        self.call(Do::Tell, [0; 2], &[]).result
    }

    pub(super) fn flush(self) -> c_int {
        self.int(Do::Flush, [0; 2])
    }

    pub(super) fn is_at_end(self) -> c_int {
        self.int(Do::IsAtEnd, [0; 2])
    }

    pub(super) fn has_failed(self) -> c_int {
        self.int(Do::HasFailed, [0; 2])
    }

    pub(super) fn clear(self) {
        self.int(Do::Clear, [0; 2]);
    }

    pub(super) fn close(self, pipe: bool) -> c_int {
        self.int(if pipe { Do::ClosePipe } else { Do::Close }, [0; 2])
    }

    pub(super) fn buffer(self, mode: c_int, size: usize) -> c_int {
        self.int(Do::Buffer, [mode as u64, size as u64])
    }

    pub(super) fn number(self) -> c_int {
        self.int(Do::Number, [0; 2])
    }

    /// Takes the stream's lock: a thread of its node holds it for this worker, and carries out the worker's calls meanwhile.
    pub(super) fn lock(self) {
        self.call_of([calls::HOLD, Do::Lock as u64, self.file as u64, 0], &[]);
    }

    /// Frees the stream's lock.
    pub(super) fn unlock(self) {
        self.call_of([calls::LET_GO, Do::Unlock as u64, self.file as u64, 0], &[]);
    }
}

/// Carries out another node's call on a stream of this node.
pub(super) fn carry_out(words: [u64; 4], bytes: &[u8]) -> calls::Reply {
    let [what, file, a, b] = words;
    let (file, mut reply) = (file as usize, calls::Reply::default());
    let Some(what) = ALL.get(what as usize) else { return reply };
    // SAFETY: an open stream, as the program there says; errno is this thread's.
    unsafe {
        *libc::__errno_location() = 0;
        reply.result = match what {
            Do::Read => {
                reply.bytes = vec![0; (a as usize).min(TOGETHER)];
                let at = reply.bytes.as_mut_ptr() as usize;
                let n = stdio::fread(at, 1, reply.bytes.len(), file);
                reply.bytes.truncate(n);
                0
            }
            Do::Line => {
                reply.bytes = line(file, a as c_int, b as usize);
                0
            }
            Do::Write => stdio::fwrite(bytes.as_ptr() as usize, 1, bytes.len(), file) as i64,
            Do::Unread => i64::from(stream_calls::ungetc(a as usize, file) as c_int),
            Do::Seek => i64::from(stream_calls::fseeko(file, a as usize, b as usize) as c_int),
            Do::Tell => stream_calls::ftello(file) as i64,
            Do::Flush => stdio::fflush(file).into(),
            Do::IsAtEnd => i64::from(stream_calls::feof(file) as c_int),
            Do::HasFailed => i64::from(stream_calls::ferror(file) as c_int),
            Do::Clear => {
                stream_calls::clearerr(file);
                0
            }
            Do::Close => i64::from(stdio::fclose(file) as c_int),
            Do::ClosePipe => i64::from(stdio::pclose(file) as c_int),
            Do::Buffer => stdio::setvbuf(file, 0, a as c_int, b as usize).into(),
            Do::Number => i64::from(stream_calls::fileno(file) as c_int),
            Do::Lock => {
                stream_lock::flockfile(file);
                0
            }
            Do::Unlock => {
                stream_lock::funlockfile(file);
                0
            }
        };
        reply.errno = *libc::__errno_location();
    }
    reply
}

/// Reads a line of a stream of this node's.
///
/// # Safety
/// `file` is an open stream.
unsafe fn line(file: usize, end: c_int, most: usize) -> Vec<u8> {
    let mut line = Vec::new();
    // SAFETY: the caller's promise.
    unsafe {
        stream_lock::flockfile(file);
        while line.len() < most {
            let c = stream_calls::getc(file) as c_int;
            if c == libc::EOF {
                break;
            }
            line.push(c as u8);
            if c == end {
                break;
            }
        }
        stream_lock::funlockfile(file);
    }
    line
}

/// libc's `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> isize>,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> isize>,
    seek: usize,
    close: usize,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> usize;
}

unsafe extern "C" fn read(cookie: *mut c_void, to: *mut c_char, len: usize) -> isize {
    // SAFETY: libc passes the room.
    of(cookie as usize).map_or(-1, |far| unsafe { far.read(to as usize, len) as isize })
}

/// This node's unbuffered streams, by the streams that they read.
static READERS: Spin<BTreeMap<usize, usize>> = Spin::new(BTreeMap::new());

/// Returns the stream to read in place of `file`, with its lock taken; for `variadic.c`.
///
/// # Safety
/// `file` is an open stream.
#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_begin_input(file: usize) -> usize {
    let Some(far) = of(file) else {
        // SAFETY: the caller's promise.
        unsafe { stream_lock::take_lock(file) };
        return file;
    };
    far.lock();
    let known = {
        let _blocked = SignalsBlocked::new();
        READERS.lock().get(&file).copied()
    };
    let reader = known.unwrap_or_else(|| {
        let functions = Functions { read: Some(read), write: None, seek: 0, close: 0 };
        // SAFETY: the cookie is an address, the functions live for ever, and the stream is new.
        unsafe {
            let reader = stdio::opened(fopencookie(file as *mut c_void, c"r".as_ptr(), functions));
            stdio::setvbuf(reader, 0, libc::_IONBF, 0);
            let _blocked = SignalsBlocked::new();
            READERS.lock().insert(file, reader);
            reader
        }
    });
    // SAFETY: a stream of this node's.
    unsafe { stream_lock::take_lock(reader) };
    reader
}

/// Ends the input that [`atoll_begin_input`] began; for `variadic.c`.
///
/// # Safety
/// The arguments are the argument and the result of [`atoll_begin_input`].
#[unsafe(no_mangle)]
unsafe extern "C" fn atoll_end_input(file: usize, reader: usize) {
    /// Offsets of a FILE's `_IO_read_ptr` and `_IO_read_end`.
    const UNREAD: [usize; 2] = [8, 16];
    // SAFETY: a stream of this node's, whose lock is taken.
    unsafe {
        if let Some(far) = of(file) {
            let [mut at, end] = UNREAD.map(|at| *((reader + at) as *const usize));
            let mut unread = Vec::new();
            while at < end {
                unread.push(*(at as *const u8));
                at += 1;
            }
            real!("__fpurge", unsafe extern "C" fn(usize))(reader);
            // The other stream may later get data after an end of file that was seen.
            real!("clearerr_unlocked", unsafe extern "C" fn(usize))(reader);
            for byte in unread.into_iter().rev() {
                far.ungetc(byte.into());
            }
            stream_lock::give_lock_back(reader);
            far.unlock();
        } else {
            stream_lock::give_lock_back(file);
        }
    }
}
