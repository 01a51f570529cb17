//! Has a test for every entry of the list, in each width that has it, on a segment of plain memory.
//!
//! An entry's test runs the case of its name, which is in the file of its kind beside this one.

mod files;
mod hostile;
mod memory;
mod process;
mod signals;
mod threads;
mod time;

use std::ffi::CString;

use super::*;
use crate::calls::list::for_each_call;

const LOW: u64 = 0x1000;
const BYTES: usize = 1 << 20;
/// Offsets in the segment.
const A: u64 = 0x2000;
const B: u64 = 0x4000;
const C: u64 = 0x6000;

struct Bench {
    d: Delegate,
    c: Caller,
    dir: tempfile::TempDir,
    _memory: crate::memory::Memory,
}

impl Bench {
    fn new(width: Width) -> Bench {
        let memory = crate::memory::Memory::private(None, BYTES).unwrap();
        let window = memory.window(0, LOW, BYTES as u64);
        let d = Delegate::new(About {
            width,
            window,
            discard: memory.discard(),
            threads: true,
            program: "/the/program".into(),
            space: Space::new(0x20000, 0xf0000),
        });
        Bench { d, c: Caller::default(), dir: tempfile::tempdir().unwrap(), _memory: memory }
    }

    fn led(&mut self, name: &str, a: &[u64]) -> Outcome {
        let call = CALLS.iter().find(|c| c.name == name).unwrap();
        let number = if self.d.is_32() { call.i386 } else { call.x86_64 };
        let mut arguments = [0; 6];
        arguments[..a.len()].copy_from_slice(a);
        self.d.serve(&mut self.c, number.unwrap(), arguments)
    }

    /// Makes the call and returns its value, negative where it failed.
    fn call(&mut self, name: &str, a: &[u64]) -> i64 {
        match self.led(name, a) {
            Outcome::Value(value) => value as i64,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Writes the path of a file of the test's own at an offset.
    fn path(&self, at: u64, name: &str) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let path = self.dir.path().join(name);
        let text = CString::new(path.as_os_str().as_bytes()).unwrap();
        self.d.window.write_bytes(at, text.as_bytes_with_nul()).unwrap();
        path
    }

    fn text(&self, at: u64, text: &str) {
        self.d.window.write_bytes(at, text.as_bytes()).unwrap();
        self.d.window.write(at + text.len() as u64, 0_u8).unwrap();
    }

    /// Makes a file with these bytes, writes its path at A, and opens it to read and write.
    fn file(&mut self, text: &str) -> u64 {
        std::fs::write(self.path(A, "file"), text).unwrap();
        let fd = if self.d.is_32() { "open" } else { "openat" };
        let fd = if fd == "open" {
            self.call("open", &[A, libc::O_RDWR as u64, 0])
        } else {
            self.call("openat", &[AT_FDCWD, A, libc::O_RDWR as u64, 0])
        };
        assert!(fd > 2, "{fd}");
        fd as u64
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.d.window.read_bytes(at, &mut bytes).unwrap();
        bytes
    }

    /// Writes a number as wide as the program's words.
    fn put(&self, at: u64, i: u64, value: u64) {
        if self.d.is_32() {
            self.d.window.write(at + 4 * i, value as u32).unwrap();
        } else {
            self.d.window.write(at + 8 * i, value).unwrap();
        }
    }

    fn get(&self, at: u64, i: u64) -> u64 {
        if self.d.is_32() {
            u64::from(self.d.window.read::<u32>(at + 4 * i).unwrap())
        } else {
            self.d.window.read(at + 8 * i).unwrap()
        }
    }
}

const AT_FDCWD: u64 = 0xffff_ff9c;

fn own_tid() -> u64 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u64 }
}

fn errno(number: i32) -> i64 {
    i64::from(-number)
}

/// Runs a case in each width that has the call.
fn each(name: &str, case: impl Fn(&mut Bench)) {
    let call = CALLS.iter().find(|c| c.name == name).unwrap();
    for (width, number) in [(Width::Bits32, call.i386), (Width::Bits64, call.x86_64)] {
        if number.is_some() {
            case(&mut Bench::new(width));
        }
    }
}

/// All cases: an entry without one does not compile.
mod cases {
    pub(super) use super::files::*;
    pub(super) use super::memory::*;
    pub(super) use super::process::*;
    pub(super) use super::signals::*;
    pub(super) use super::threads::*;
    pub(super) use super::time::*;
}

macro_rules! tests {
    ($($name:ident $i386:tt $x86_64:tt => $serve:expr;)*) => {
        $(#[test]
        fn $name() {
            each(stringify!($name), cases::$name);
        })*
    };
}

for_each_call!(tests);

#[test]
fn no_number_stands_for_two_calls() {
    for number in [|c: &Call| c.i386, |c: &Call| c.x86_64] {
        let mut numbers: Vec<_> = CALLS.iter().filter_map(number).collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
    }
}

#[test]
fn an_unknown_call_is_not_there() {
    for width in [Width::Bits32, Width::Bits64] {
        let mut bench = Bench::new(width);
        for number in [9999, u32::MAX] {
            let served = bench.d.serve(&mut bench.c, number, [0; 6]);
            assert_eq!(served, Outcome::Value(Errno(libc::ENOSYS).returned()));
        }
    }
}

/// Every pointer of every call that is passed on is tried outside the segment, wrapping round, and across the limit.
#[test]
fn a_pointer_that_leaves_the_segment_is_a_fault() {
    use super::pass::Kind;
    for width in [Width::Bits32, Width::Bits64] {
        let mut bench = Bench::new(width);
        let (end, fd) = (BYTES as u64, bench.file("x"));
        bench.text(A, "/nonexistent");
        for call in CALLS {
            let Serve::Pass(_, kinds) = call.serve else { continue };
            if (if bench.d.is_32() { call.i386 } else { call.x86_64 }).is_none() {
                continue;
            }
            for (i, kind) in kinds.iter().enumerate() {
                let mut a = [0_u64; 6];
                for (j, other) in kinds.iter().enumerate() {
                    a[j] = match other {
                        Kind::Fd => fd,
                        Kind::Path => A,
                        Kind::Buffer(_) | Kind::Fixed(_) | Kind::Maybe(_) => B,
                        Kind::Value | Kind::Signed => 0,
                    };
                }
                let bad = match *kind {
                    Kind::Path => vec![0, LOW - 1, end, 0xffff_ffff, u64::MAX],
                    Kind::Fixed(len) | Kind::Maybe(len) => {
                        vec![LOW - 1, end - len + 1, end, 0xffff_fffe, u64::MAX - 1]
                    }
                    Kind::Buffer(len) => {
                        a[len] = 16;
                        vec![0, LOW - 1, end - 15, end, 0xffff_fff8, u64::MAX - 7]
                    }
                    _ => continue,
                };
                for at in bad {
                    a[i] = at;
                    let Outcome::Value(value) = bench.led(call.name, &a) else { panic!("{}", call.name) };
                    assert_eq!(value as i64, errno(libc::EFAULT), "{} {i} at {at:#x}", call.name);
                }
            }
        }
    }
}

#[test]
fn the_user_is_told_of_what_cannot_be_delegated() {
    for width in [Width::Bits32, Width::Bits64] {
        let mut bench = Bench::new(width);
        for call in CALLS {
            let number = if bench.d.is_32() { call.i386 } else { call.x86_64 };
            let Some(number) = number else { continue };
            let refused = matches!(call.serve, Serve::Refuse);
            if refused || matches!(call.serve, Serve::Absent) {
                assert_eq!(bench.call(call.name, &[]), errno(libc::ENOSYS), "{}", call.name);
                assert_eq!(lock(&bench.d.told).contains(&number), refused, "{}", call.name);
            }
        }
        // A clone that makes no thread is a fork by another name.
        assert_eq!(bench.call("clone", &[libc::SIGCHLD as u64]), errno(libc::ENOSYS));
        assert!(lock(&bench.d.told).contains(&if bench.d.is_32() { 120 } else { 56 }));
    }
}
