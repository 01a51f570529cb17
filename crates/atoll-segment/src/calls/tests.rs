//! A test for every entry of the list, in each width that has it, on a segment of plain memory.

use std::ffi::CString;

use super::*;
use crate::calls::list::for_each_call;

const LOW: u64 = 0x1000;
const BYTES: usize = 1 << 20;
/// Places in the segment.
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

    /// The call's value, negative where it failed.
    fn call(&mut self, name: &str, a: &[u64]) -> i64 {
        match self.led(name, a) {
            Outcome::Value(value) => value as i64,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Puts the path of a file of the test's own at an offset.
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

    /// A file with these bytes, its path at A, open to read and write.
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

    /// A number as wide as the program's words.
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

/// Every pointer of every call that is passed on: outside, wrapping round, straddling the limit.
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

mod cases {
    use super::*;

    macro_rules! as_this_process {
        ($($name:ident $expected:expr;)*) => {
            $(pub(super) fn $name(b: &mut Bench) {
                // SAFETY: these calls take no pointers.
                #[allow(unused_unsafe, reason = "one list for safe and unsafe ones")]
                #[allow(clippy::cast_lossless, reason = "of several types")]
                let expected = unsafe { $expected } as i64;
                assert_eq!(b.call(stringify!($name), &[0, 1, 0, 0, 0, 0]), expected);
            })*
        };
    }
    as_this_process! {
        getpid libc::getpid();
        getppid libc::getppid();
        gettid libc::syscall(libc::SYS_gettid);
        getpgrp libc::getpgrp();
        getuid libc::getuid();
        getgid libc::getgid();
        geteuid libc::geteuid();
        getegid libc::getegid();
        getuid16 libc::getuid().min(65534);
        getgid16 libc::getgid().min(65534);
        geteuid16 libc::geteuid().min(65534);
        getegid16 libc::getegid().min(65534);
        sched_yield 0;
        alarm 0;
        fork -libc::ENOSYS;
        vfork -libc::ENOSYS;
        execve -libc::ENOSYS;
        execveat -libc::ENOSYS;
        clone3 -libc::ENOSYS;
        rseq -libc::ENOSYS;
        set_robust_list -libc::ENOSYS;
        msync -libc::ENOSYS;
    }

    pub(super) fn read(b: &mut Bench) {
        let fd = b.file("hello");
        assert_eq!(b.call("read", &[fd, B, 100]), 5);
        assert_eq!(b.bytes(B, 5), b"hello");
        let limit = b.d.limit();
        assert_eq!(b.call("read", &[fd, limit - 10, 11]), errno(libc::EFAULT));
        b.d.hide(fd as i32);
        assert_eq!(b.call("read", &[fd, B, 1]), errno(libc::EBADF));
    }
    pub(super) fn write(b: &mut Bench) {
        let fd = b.file("");
        b.text(B, "some");
        assert_eq!(b.call("write", &[fd, B, 4]), 4);
        assert_eq!(std::fs::read(b.path(A, "file")).unwrap(), b"some");
    }
    pub(super) fn open(b: &mut Bench) {
        b.path(A, "new");
        assert!(b.call("open", &[A, (libc::O_CREAT | libc::O_RDWR) as u64, 0o600]) > 2);
        b.path(A, "none");
        assert_eq!(b.call("open", &[A, 0, 0]), errno(libc::ENOENT));
    }
    pub(super) fn openat(b: &mut Bench) {
        b.path(A, "none");
        assert_eq!(b.call("openat", &[AT_FDCWD, A, 0, 0]), errno(libc::ENOENT));
    }
    pub(super) fn creat(b: &mut Bench) {
        let path = b.path(A, "new");
        assert!(b.call("creat", &[A, 0o600]) > 2 && path.exists());
    }
    pub(super) fn close(b: &mut Bench) {
        let fd = b.file("");
        assert_eq!(b.call("close", &[fd]), 0);
        assert_eq!(b.call("close", &[u64::MAX]), errno(libc::EBADF));
    }
    pub(super) fn lseek(b: &mut Bench) {
        let fd = b.file("0123456789");
        let back = if b.d.is_32() { 0xffff_fffd } else { -3_i64 as u64 };
        assert_eq!(b.call("lseek", &[fd, back, libc::SEEK_END as u64]), 7);
    }
    pub(super) fn _llseek(b: &mut Bench) {
        let fd = b.file("");
        assert_eq!(b.call("_llseek", &[fd, 1, 2, B, libc::SEEK_SET as u64]), 0);
        assert_eq!(b.d.window.read::<u64>(B).unwrap(), 1 << 32 | 2);
        assert_eq!(b.call("_llseek", &[fd, 1, 2, 0, 0]), errno(libc::EFAULT));
    }
    pub(super) fn pread64(b: &mut Bench) {
        let fd = b.file("0123456789");
        assert_eq!(b.call("pread64", &[fd, B, 3, 4, 0]), 3);
        assert_eq!(b.bytes(B, 3), b"456");
        assert_eq!(b.call("pread64", &[fd, 0, 3, 4, 0]), errno(libc::EFAULT));
    }
    pub(super) fn pwrite64(b: &mut Bench) {
        let fd = b.file("0123456789");
        b.text(B, "ab");
        assert_eq!(b.call("pwrite64", &[fd, B, 2, 4, 0]), 2);
        assert_eq!(std::fs::read(b.path(A, "file")).unwrap(), b"0123ab6789");
    }
    fn two_buffers(b: &Bench) {
        for (i, value) in [B, 3, C, 4].into_iter().enumerate() {
            b.put(A + 0x100, i as u64, value);
        }
    }
    pub(super) fn readv(b: &mut Bench) {
        let fd = b.file("0123456789");
        two_buffers(b);
        assert_eq!(b.call("readv", &[fd, A + 0x100, 2]), 7);
        assert_eq!((b.bytes(B, 4), b.bytes(C, 4)), (b"012\0".to_vec(), b"3456".to_vec()));
        let limit = b.d.limit();
        b.put(A + 0x100, 2, limit - 3);
        assert_eq!(b.call("readv", &[fd, A + 0x100, 2]), errno(libc::EFAULT));
        assert_eq!(b.call("readv", &[fd, A + 0x100, 0xffff_ffff]), errno(libc::EINVAL));
        assert_eq!(b.call("readv", &[fd, limit - 4, 2]), errno(libc::EFAULT));
    }
    pub(super) fn writev(b: &mut Bench) {
        let fd = b.file("");
        two_buffers(b);
        b.text(B, "abc");
        b.text(C, "defg");
        assert_eq!(b.call("writev", &[fd, A + 0x100, 2]), 7);
        assert_eq!(std::fs::read(b.path(A, "file")).unwrap(), b"abcdefg");
    }
    fn size_64(b: &mut Bench, name: &str, a: &[u64], at: u64) {
        assert_eq!(b.call(name, a), 0, "{name}");
        assert_eq!(b.d.window.read::<u64>(at + 48).unwrap(), 5);
    }
    pub(super) fn stat(b: &mut Bench) {
        b.file("12345");
        size_64(b, "stat", &[A, B], B);
    }
    pub(super) fn lstat(b: &mut Bench) {
        b.file("12345");
        size_64(b, "lstat", &[A, B], B);
    }
    pub(super) fn fstat(b: &mut Bench) {
        let fd = b.file("12345");
        size_64(b, "fstat", &[fd, B], B);
    }
    pub(super) fn newfstatat(b: &mut Bench) {
        b.file("12345");
        size_64(b, "newfstatat", &[AT_FDCWD, A, B, 0], B);
    }
    fn size_32(b: &mut Bench, name: &str, a: &[u64]) {
        assert_eq!(b.call(name, a), 0, "{name}");
        assert_eq!(b.d.window.read::<u64>(B + 44).unwrap(), 5);
        assert_eq!(b.d.window.read::<u32>(B + 16).unwrap() & libc::S_IFMT, libc::S_IFREG);
        let outside = b.d.limit() - 95;
        let a: Vec<u64> = a.iter().map(|&v| if v == B { outside } else { v }).collect();
        assert_eq!(b.call(name, &a), errno(libc::EFAULT));
    }
    pub(super) fn stat64(b: &mut Bench) {
        b.file("12345");
        size_32(b, "stat64", &[A, B]);
    }
    pub(super) fn lstat64(b: &mut Bench) {
        b.file("12345");
        size_32(b, "lstat64", &[A, B]);
    }
    pub(super) fn fstat64(b: &mut Bench) {
        let fd = b.file("12345");
        size_32(b, "fstat64", &[fd, B]);
    }
    pub(super) fn fstatat64(b: &mut Bench) {
        b.file("12345");
        size_32(b, "fstatat64", &[AT_FDCWD, A, B, 0]);
    }
    pub(super) fn statx(b: &mut Bench) {
        b.file("12345");
        assert_eq!(b.call("statx", &[AT_FDCWD, A, 0, 0xfff, B]), 0);
        assert_eq!(b.d.window.read::<u64>(B + 40).unwrap(), 5);
    }
    pub(super) fn access(b: &mut Bench) {
        b.file("");
        assert_eq!(b.call("access", &[A, 0]), 0);
    }
    pub(super) fn faccessat(b: &mut Bench) {
        b.file("");
        assert_eq!(b.call("faccessat", &[AT_FDCWD, A, 0]), 0);
    }
    pub(super) fn faccessat2(b: &mut Bench) {
        b.file("");
        assert_eq!(b.call("faccessat2", &[AT_FDCWD, A, 0, 0]), 0);
    }
    fn second(b: &mut Bench, name: &str, a: &[u64]) -> PathBuf {
        b.file("x");
        let other = b.path(C, "other");
        assert_eq!(b.call(name, a), 0, "{name}");
        other
    }
    pub(super) fn link(b: &mut Bench) {
        assert!(second(b, "link", &[A, C]).exists());
    }
    pub(super) fn symlink(b: &mut Bench) {
        assert!(second(b, "symlink", &[A, C]).is_symlink());
    }
    pub(super) fn rename(b: &mut Bench) {
        assert!(second(b, "rename", &[A, C]).exists());
    }
    pub(super) fn renameat(b: &mut Bench) {
        assert!(second(b, "renameat", &[AT_FDCWD, A, AT_FDCWD, C]).exists());
    }
    pub(super) fn renameat2(b: &mut Bench) {
        assert!(second(b, "renameat2", &[AT_FDCWD, A, AT_FDCWD, C, 0]).exists());
    }
    pub(super) fn unlink(b: &mut Bench) {
        b.file("");
        assert_eq!(b.call("unlink", &[A]), 0);
        assert!(!b.path(A, "file").exists());
    }
    pub(super) fn unlinkat(b: &mut Bench) {
        b.file("");
        assert_eq!(b.call("unlinkat", &[AT_FDCWD, A, 0]), 0);
    }
    pub(super) fn mkdir(b: &mut Bench) {
        let path = b.path(A, "dir");
        assert_eq!(b.call("mkdir", &[A, 0o700]), 0);
        assert!(path.is_dir());
    }
    pub(super) fn mkdirat(b: &mut Bench) {
        let path = b.path(A, "dir");
        assert_eq!(b.call("mkdirat", &[AT_FDCWD, A, 0o700]), 0);
        assert!(path.is_dir());
    }
    pub(super) fn rmdir(b: &mut Bench) {
        std::fs::create_dir(b.path(A, "dir")).unwrap();
        assert_eq!(b.call("rmdir", &[A]), 0);
    }
    pub(super) fn chmod(b: &mut Bench) {
        b.file("");
        assert_eq!(b.call("chmod", &[A, 0o600]), 0);
    }
    pub(super) fn fchmod(b: &mut Bench) {
        let fd = b.file("");
        assert_eq!(b.call("fchmod", &[fd, 0o600]), 0);
    }
    pub(super) fn umask(b: &mut Bench) {
        let before = b.call("umask", &[0o022]) as u64;
        assert_eq!(b.call("umask", &[before]), 0o022);
    }
    pub(super) fn chdir(b: &mut Bench) {
        b.text(A, ".");
        assert_eq!(b.call("chdir", &[A]), 0);
    }
    pub(super) fn getcwd(b: &mut Bench) {
        assert!(b.call("getcwd", &[B, 4096]) > 1);
        assert_eq!(b.bytes(B, 1), b"/");
    }
    pub(super) fn readlink(b: &mut Bench) {
        b.text(A, "/proc/self/exe");
        assert_eq!(b.call("readlink", &[A, B, 100]), 12);
        assert_eq!(b.bytes(B, 12), b"/the/program");
        assert_eq!(b.call("readlink", &[A, B, 4]), 4);
        assert_eq!(b.call("readlink", &[A, 0, 4]), errno(libc::EFAULT));
    }
    pub(super) fn readlinkat(b: &mut Bench) {
        std::os::unix::fs::symlink("to", b.path(A, "link")).unwrap();
        assert_eq!(b.call("readlinkat", &[AT_FDCWD, A, B, 100]), 2);
        assert_eq!(b.bytes(B, 2), b"to");
    }
    pub(super) fn getdents64(b: &mut Bench) {
        b.path(A, ".");
        let fd =
            if b.d.is_32() { b.call("open", &[A, 0, 0]) } else { b.call("openat", &[AT_FDCWD, A, 0, 0]) };
        assert!(b.call("getdents64", &[fd as u64, B, 1000]) > 0);
    }
    fn cut(b: &mut Bench, name: &str, by_path: bool, a: &[u64]) {
        let fd = b.file("0123456789");
        let a = [&[if by_path { A } else { fd }], a].concat();
        assert_eq!(b.call(name, &a), 0, "{name}");
        assert_eq!(std::fs::read(b.path(A, "file")).unwrap(), b"0123");
    }
    pub(super) fn truncate(b: &mut Bench) {
        cut(b, "truncate", true, &[4]);
    }
    pub(super) fn ftruncate(b: &mut Bench) {
        cut(b, "ftruncate", false, &[4]);
    }
    pub(super) fn truncate64(b: &mut Bench) {
        cut(b, "truncate64", true, &[4, 0]);
    }
    pub(super) fn ftruncate64(b: &mut Bench) {
        cut(b, "ftruncate64", false, &[4, 0]);
    }
    pub(super) fn fsync(b: &mut Bench) {
        let fd = b.file("");
        assert_eq!(b.call("fsync", &[fd]), 0);
    }
    pub(super) fn fdatasync(b: &mut Bench) {
        let fd = b.file("");
        assert_eq!(b.call("fdatasync", &[fd]), 0);
    }
    pub(super) fn dup(b: &mut Bench) {
        let fd = b.file("");
        assert!(b.call("dup", &[fd]) > 2);
    }
    pub(super) fn dup2(b: &mut Bench) {
        let fd = b.file("");
        assert_eq!(b.call("dup2", &[fd, fd]), fd as i64);
        b.d.hide(900);
        assert_eq!(b.call("dup2", &[fd, 900]), errno(libc::EBADF));
    }
    pub(super) fn dup3(b: &mut Bench) {
        let fd = b.file("");
        assert_eq!(b.call("dup3", &[fd, fd, 0]), errno(libc::EINVAL));
    }
    fn ends(b: &mut Bench, name: &str) {
        assert_eq!(b.call(name, &[B, 0]), 0);
        let (from, to) = (b.d.window.read::<u32>(B).unwrap(), b.d.window.read::<u32>(B + 4).unwrap());
        b.text(C, "x");
        assert_eq!(b.call("write", &[u64::from(to), C, 1]), 1);
        assert_eq!(b.call("read", &[u64::from(from), C + 8, 9]), 1);
    }
    pub(super) fn pipe(b: &mut Bench) {
        ends(b, "pipe");
    }
    pub(super) fn pipe2(b: &mut Bench) {
        ends(b, "pipe2");
    }
    fn control(b: &mut Bench, name: &str) {
        let fd = b.file("");
        assert_eq!(b.call(name, &[fd, libc::F_SETFD as u64, 1]), 0);
        assert_eq!(b.call(name, &[fd, libc::F_GETFD as u64]), 1);
        assert_eq!(b.call(name, &[fd, libc::F_GETLK as u64, B]), errno(libc::EINVAL));
    }
    pub(super) fn fcntl(b: &mut Bench) {
        control(b, "fcntl");
    }
    pub(super) fn fcntl64(b: &mut Bench) {
        control(b, "fcntl64");
    }
    pub(super) fn ioctl(b: &mut Bench) {
        let fd = b.file("12345");
        assert_eq!(b.call("ioctl", &[fd, libc::FIONREAD, B]), 0);
        assert_eq!(b.d.window.read::<u32>(B).unwrap(), 5);
        assert_eq!(b.call("ioctl", &[fd, libc::FIONREAD, 1]), errno(libc::EFAULT));
        assert_eq!(b.call("ioctl", &[fd, 0xdead, B]), errno(libc::ENOTTY));
    }
    pub(super) fn poll(b: &mut Bench) {
        let fd = b.file("");
        b.d.window.write(B, [fd as u32, libc::POLLIN as u32]).unwrap();
        assert_eq!(b.call("poll", &[B, 1, 0]), 1);
        assert_eq!(b.call("poll", &[B, 0xffff_ffff, 0]), errno(libc::EFAULT));
    }

    pub(super) fn time(b: &mut Bench) {
        let now = b.call("time", &[B]);
        assert!(now > 1 << 30 && b.get(B, 0) as i64 == now);
        assert_eq!(b.call("time", &[1]), errno(libc::EFAULT));
    }
    pub(super) fn gettimeofday(b: &mut Bench) {
        assert_eq!(b.call("gettimeofday", &[B, C]), 0);
        assert!(b.get(B, 0) > 1 << 30 && b.get(B, 1) < 1_000_000);
    }
    fn clock(b: &mut Bench, name: &str) {
        let clock = libc::CLOCK_REALTIME as u64;
        assert_eq!(b.call(name, &[clock, B]), 0);
        assert!(b.get(B, 0) > 1 << 30 && b.d.window.read::<u32>(B + 4).unwrap() < 1_000_000_000);
        let straddles = b.d.limit() - 4;
        assert_eq!(b.call(name, &[clock, straddles]), errno(libc::EFAULT));
    }
    pub(super) fn clock_gettime(b: &mut Bench) {
        clock(b, "clock_gettime");
    }
    pub(super) fn clock_gettime64(b: &mut Bench) {
        clock(b, "clock_gettime64");
    }
    pub(super) fn clock_getres(b: &mut Bench) {
        assert_eq!(b.call("clock_getres", &[1, B]), 0);
        assert_eq!(b.get(B, 1), 1);
        assert_eq!(b.call("clock_getres", &[1, 0]), 0);
    }
    pub(super) fn clock_getres_time64(b: &mut Bench) {
        assert_eq!(b.call("clock_getres_time64", &[1, B]), 0);
        assert_eq!(b.d.window.read::<u64>(B + 8).unwrap(), 1);
    }
    pub(super) fn nanosleep(b: &mut Bench) {
        b.put(B, 1, 1000);
        assert_eq!(b.call("nanosleep", &[B, C]), 0);
        b.put(B, 1, 2_000_000_000);
        assert_eq!(b.call("nanosleep", &[B, C]), errno(libc::EINVAL));
        assert_eq!(b.call("nanosleep", &[0, 0]), errno(libc::EFAULT));
    }
    pub(super) fn clock_nanosleep(b: &mut Bench) {
        b.put(B, 1, 1000);
        assert_eq!(b.call("clock_nanosleep", &[1, 0, B, C]), 0);
    }
    pub(super) fn clock_nanosleep_time64(b: &mut Bench) {
        b.d.window.write(B, [0_u64, 1000]).unwrap();
        assert_eq!(b.call("clock_nanosleep_time64", &[1, 0, B, 0]), 0);
    }
    pub(super) fn times(b: &mut Bench) {
        assert!(b.call("times", &[B]) > 0 && b.call("times", &[0]) > 0);
    }
    pub(super) fn setitimer(b: &mut Bench) {
        assert_eq!(b.call("setitimer", &[0, B, C]), 0);
        assert_eq!(b.call("setitimer", &[0, B, 0]), 0);
        assert_eq!(b.call("setitimer", &[0, 1, 0]), errno(libc::EFAULT));
    }

    pub(super) fn brk(b: &mut Bench) {
        let start = b.call("brk", &[0]) as u64;
        assert_eq!(b.call("brk", &[start + 0x2000]) as u64, start + 0x2000);
        b.text(start + 0x1800, "dirt");
        b.call("brk", &[start + 0x1000]);
        b.call("brk", &[start + 0x2000]);
        assert_eq!(b.bytes(start + 0x1800, 4), [0; 4], "what is taken again is zeros");
        let limit = b.d.limit();
        assert_eq!(b.call("brk", &[limit]) as u64, start + 0x2000);
    }
    const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    fn anonymous(b: &mut Bench, len: u64) -> i64 {
        let name = if b.d.is_32() { "mmap2" } else { "mmap" };
        b.call(name, &[0, len, 3, ANONYMOUS, u64::MAX, 0])
    }
    fn map(b: &mut Bench, name: &str) {
        let at = b.call(name, &[0, 0x3000, 3, ANONYMOUS, u64::MAX, 0]) as u64;
        assert!(at > 0x20000 && at.is_multiple_of(4096));
        let fd = b.file("content");
        let file = b.call(name, &[0, 0x1000, 1, libc::MAP_PRIVATE as u64, fd, 0]) as u64;
        assert_eq!(b.bytes(file, 8), b"content\0");
        assert_eq!(b.call(name, &[0, 0x1000, 1, libc::MAP_SHARED as u64, fd, 0]), errno(libc::ENODEV));
        let fixed = ANONYMOUS | libc::MAP_FIXED as u64;
        assert_eq!(b.call(name, &[at, 0x1000, 3, fixed, u64::MAX, 0]) as u64, at);
        let limit = b.d.limit();
        assert_eq!(b.call(name, &[limit - 0x1000, 0x2000, 3, fixed, u64::MAX, 0]), errno(libc::ENOMEM));
        assert_eq!(b.call(name, &[0, 0, 3, ANONYMOUS, u64::MAX, 0]), errno(libc::EINVAL));
        assert_eq!(b.call(name, &[0, 0xffff_f000, 3, ANONYMOUS, u64::MAX, 0]), errno(libc::ENOMEM));
    }
    pub(super) fn mmap(b: &mut Bench) {
        map(b, "mmap");
    }
    pub(super) fn mmap2(b: &mut Bench) {
        map(b, "mmap2");
    }
    pub(super) fn old_mmap(b: &mut Bench) {
        b.d.window.write(B, [0_u32, 0x1000, 3, ANONYMOUS as u32, u32::MAX, 0]).unwrap();
        assert!(b.call("old_mmap", &[B]) > 0x20000);
        assert_eq!(b.call("old_mmap", &[0]), errno(libc::EFAULT));
    }
    pub(super) fn munmap(b: &mut Bench) {
        let at = anonymous(b, 0x2000) as u64;
        b.text(at, "dirt");
        assert_eq!(b.call("munmap", &[at, 0x2000]), 0);
        assert_eq!(anonymous(b, 0x2000) as u64, at);
        assert_eq!(b.bytes(at, 4), [0; 4]);
        assert_eq!(b.call("munmap", &[at + 1, 1]), errno(libc::EINVAL));
    }
    pub(super) fn mremap(b: &mut Bench) {
        let below = anonymous(b, 0x1000) as u64;
        let at = anonymous(b, 0x1000) as u64;
        b.text(at, "kept");
        let moved = b.call("mremap", &[at, 0x1000, 0x3000, libc::MREMAP_MAYMOVE as u64]) as u64;
        assert_ne!(moved, at);
        assert_eq!((b.bytes(moved, 4), b.bytes(at, 4)), (b"kept".to_vec(), vec![0; 4]));
        assert_eq!(b.call("mremap", &[moved, 0x3000, 0x1000, 0]) as u64, moved);
        assert_eq!(b.call("mremap", &[below, 0x9000, 0xa000, 0]), errno(libc::EFAULT));
    }
    pub(super) fn mprotect(b: &mut Bench) {
        assert_eq!(b.call("mprotect", &[A, 0x1000, 1]), 0);
        let limit = b.d.limit();
        assert_eq!(b.call("mprotect", &[limit, 0x1000, 1]), errno(libc::ENOMEM));
    }
    pub(super) fn madvise(b: &mut Bench) {
        let at = anonymous(b, 0x2000) as u64;
        b.text(at, "dirt");
        assert_eq!(b.call("madvise", &[at, 0x1000, libc::MADV_DONTNEED as u64]), 0);
        assert_eq!(b.bytes(at, 4), [0; 4]);
        assert_eq!(b.call("madvise", &[A, 0x1000, libc::MADV_DONTNEED as u64]), errno(libc::ENOMEM));
        assert_eq!(b.call("madvise", &[A, 0x1000, libc::MADV_HUGEPAGE as u64]), 0);
    }
    pub(super) fn mlock(b: &mut Bench) {
        assert_eq!(b.call("mlock", &[A, 0x1000]), 0);
    }
    pub(super) fn munlock(b: &mut Bench) {
        assert_eq!(b.call("munlock", &[0, 0x1000]), errno(libc::ENOMEM));
    }

    pub(super) fn uname(b: &mut Bench) {
        assert_eq!(b.call("uname", &[B]), 0);
        assert_eq!(b.bytes(B, 5), b"Linux");
        let machine: &[u8] = if b.d.is_32() { b"i686\0" } else { b"x86_6" };
        assert_eq!(b.bytes(B + 4 * 65, 5), machine);
        let straddles = b.d.limit() - 389;
        assert_eq!(b.call("uname", &[straddles]), errno(libc::EFAULT));
    }
    pub(super) fn sysinfo(b: &mut Bench) {
        assert_eq!(b.call("sysinfo", &[B]), 0);
        assert!(b.get(B, 0) > 0 && b.get(B, 4) > 1000);
        assert_eq!(b.call("sysinfo", &[0]), errno(libc::EFAULT));
    }
    pub(super) fn getrlimit(b: &mut Bench) {
        assert_eq!(b.call("getrlimit", &[u64::from(libc::RLIMIT_STACK), B]), 0);
        assert!(b.get(B, 0) > 0);
    }
    pub(super) fn ugetrlimit(b: &mut Bench) {
        assert_eq!(b.call("ugetrlimit", &[u64::from(libc::RLIMIT_STACK), B]), 0);
        assert_eq!(b.call("ugetrlimit", &[u64::from(libc::RLIMIT_STACK), 0]), errno(libc::EFAULT));
    }
    pub(super) fn prlimit64(b: &mut Bench) {
        assert_eq!(b.call("prlimit64", &[0, u64::from(libc::RLIMIT_STACK), 0, B]), 0);
        assert_eq!(b.call("prlimit64", &[0, u64::from(libc::RLIMIT_STACK), B, 0]), errno(libc::EPERM));
    }
    pub(super) fn getrusage(b: &mut Bench) {
        assert_eq!(b.call("getrusage", &[0, B]), 0);
        assert!(b.get(B, 4) > 0, "the most memory it had");
        assert_eq!(b.call("getrusage", &[0, 0]), errno(libc::EFAULT));
    }
    pub(super) fn getrandom(b: &mut Bench) {
        assert_eq!(b.call("getrandom", &[B, 32, 0]), 32);
        assert_ne!(b.bytes(B, 32), [0; 32]);
    }
    pub(super) fn getcpu(b: &mut Bench) {
        assert_eq!(b.call("getcpu", &[B, 0, 0]), 0);
    }
    pub(super) fn prctl(b: &mut Bench) {
        b.text(A, "name");
        assert_eq!(b.call("prctl", &[libc::PR_SET_NAME as u64, A]), 0);
        assert_eq!(b.call("prctl", &[libc::PR_SET_SECCOMP as u64, 1]), errno(libc::EINVAL));
    }
    pub(super) fn sched_getaffinity(b: &mut Bench) {
        let bytes = b.call("sched_getaffinity", &[0, 128, B]);
        assert!(bytes > 0);
        b.d.threads = false;
        assert_eq!(b.call("sched_getaffinity", &[0, 128, B]), bytes);
        let ones: u32 = b.bytes(B, bytes as usize).iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(ones, 1, "where there can be one core");
    }
    pub(super) fn sched_setaffinity(b: &mut Bench) {
        let bytes = b.call("sched_getaffinity", &[0, 128, B]) as u64;
        assert_eq!(b.call("sched_setaffinity", &[0, bytes, B]), 0);
        assert_eq!(b.call("sched_setaffinity", &[0, bytes, 0]), errno(libc::EFAULT));
    }

    pub(super) fn set_thread_area(b: &mut Bench) {
        b.d.window.write(B, [u32::MAX, 0x1234, 0xfffff, 0x51]).unwrap();
        let expected = Outcome::ThreadPointer { base: 0x1234 };
        assert_eq!(b.led("set_thread_area", &[B]), expected);
        assert_eq!(b.d.window.read::<u32>(B).unwrap(), THREAD_DESCRIPTOR);
        b.d.window.write(B, 14_u32).unwrap();
        assert_eq!(b.call("set_thread_area", &[B]), errno(libc::EINVAL));
        assert_eq!(b.call("set_thread_area", &[0]), errno(libc::EFAULT));
    }
    pub(super) fn arch_prctl(b: &mut Bench) {
        const SET_FS: u64 = 0x1002;
        if b.d.is_32() {
            return assert_eq!(b.call("arch_prctl", &[SET_FS, A]), errno(libc::EINVAL));
        }
        assert_eq!(b.led("arch_prctl", &[SET_FS, A]), Outcome::ThreadPointer { base: A });
        assert_eq!(b.call("arch_prctl", &[0x1003, B]), 0);
        assert_eq!(b.d.window.read::<u64>(B).unwrap(), A);
        assert_eq!(b.call("arch_prctl", &[SET_FS, 0]), errno(libc::EPERM));
    }
    pub(super) fn set_tid_address(b: &mut Bench) {
        assert!(b.call("set_tid_address", &[B]) > 0);
        b.d.window.write(B, 7_u32).unwrap();
        b.d.core_ended(&b.c);
        assert_eq!(b.d.window.read::<u32>(B).unwrap(), 0);
    }
    fn words(b: &mut Bench, name: &str) {
        b.d.window.write(B, 5_u32).unwrap();
        b.d.window.write(C, [0_u64; 2]).unwrap();
        let (wait, wake) = (libc::FUTEX_WAIT as u64, libc::FUTEX_WAKE as u64);
        assert_eq!(b.call(name, &[B, wait, 6, 0]), errno(libc::EAGAIN));
        assert_eq!(b.call(name, &[B, wait, 5, C]), errno(libc::ETIMEDOUT));
        assert_eq!(b.call(name, &[B, wake, 1]), 0);
        assert_eq!(b.call(name, &[B, libc::FUTEX_REQUEUE as u64, 0, 0, 1]), errno(libc::EFAULT));
        assert_eq!(b.call(name, &[0, wake, 1]), errno(libc::EFAULT));
        assert_eq!(b.call(name, &[B, libc::FUTEX_LOCK_PI as u64, 1]), errno(libc::ENOSYS));
    }
    pub(super) fn futex(b: &mut Bench) {
        words(b, "futex");
    }
    pub(super) fn futex_time64(b: &mut Bench) {
        words(b, "futex_time64");
    }
    pub(super) fn clone(b: &mut Bench) {
        let shares =
            libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
        let thread = (shares | libc::CLONE_CHILD_CLEARTID) as u64;
        let a = if b.d.is_32() { [thread, A, 0, 0, B] } else { [thread, A, 0, B, 0] };
        let Outcome::Clone(request) = b.led("clone", &a) else { panic!("no core") };
        assert_eq!((request.stack, request.clear_at_end), (A, B));
        let outside = if b.d.is_32() { [thread, A, 0, 0, 1] } else { [thread, A, 0, 1, 0] };
        assert_eq!(b.call("clone", &outside), errno(libc::EFAULT));
        let limit = b.d.limit();
        assert_eq!(b.call("clone", &[thread, limit + 16, 0, B, B]), errno(libc::EFAULT));
        assert_eq!(b.call("clone", &[libc::SIGCHLD as u64, 0, 0, 0, 0]), errno(libc::ENOSYS));
        b.d.threads = false;
        assert_eq!(b.call("clone", &a), errno(libc::ENOSYS));
    }
    pub(super) fn exit(b: &mut Bench) {
        assert_eq!(b.led("exit", &[0x103]), Outcome::EndCore(3));
    }
    pub(super) fn exit_group(b: &mut Bench) {
        assert_eq!(b.led("exit_group", &[7]), Outcome::End(7));
    }

    pub(super) fn rt_sigaction(b: &mut Bench) {
        for (i, value) in [0x1234, 0, 0, 0, 0].into_iter().enumerate() {
            b.put(B, i as u64, value);
        }
        let signal = libc::SIGUSR2 as u64;
        assert_eq!(b.call("rt_sigaction", &[signal, B, 0, 8]), 0);
        assert_eq!(b.call("rt_sigaction", &[signal, 0, C, 8]), 0);
        assert_eq!(b.get(C, 0), 0x1234);
        assert_eq!(b.call("rt_sigaction", &[65, 0, 0, 8]), errno(libc::EINVAL));
        assert_eq!(b.call("rt_sigaction", &[libc::SIGKILL as u64, B, 0, 8]), errno(libc::EINVAL));
        assert_eq!(b.call("rt_sigaction", &[signal, 1, 0, 8]), errno(libc::EFAULT));
        assert_eq!(b.call("rt_sigaction", &[signal, 0, 1, 8]), errno(libc::EFAULT));
    }
    pub(super) fn rt_sigprocmask(b: &mut Bench) {
        b.d.window.write(B, u64::MAX).unwrap();
        assert_eq!(b.call("rt_sigprocmask", &[libc::SIG_BLOCK as u64, B, 0, 8]), 0);
        assert_eq!(b.c.mask, !(bit(libc::SIGKILL) | bit(libc::SIGSTOP)));
        b.d.window.write(B, bit(libc::SIGUSR1)).unwrap();
        assert_eq!(b.call("rt_sigprocmask", &[libc::SIG_SETMASK as u64, B, C, 8]), 0);
        assert_eq!(b.c.mask, bit(libc::SIGUSR1));
        assert_eq!(b.call("rt_sigprocmask", &[9, B, 0, 8]), errno(libc::EINVAL));
        assert_eq!(b.call("rt_sigprocmask", &[0, 1, 0, 8]), errno(libc::EFAULT));
    }
    pub(super) fn rt_sigsuspend(b: &mut Bench) {
        b.d.signals.note(libc::SIGUSR1);
        b.d.window.write(B, 0_u64).unwrap();
        b.c.mask = 4;
        assert_eq!(b.call("rt_sigsuspend", &[B, 8]), errno(libc::EINTR));
        assert_eq!((b.c.mask, b.c.mask_after), (0, Some(4)));
    }
    pub(super) fn pause(b: &mut Bench) {
        b.d.signals.note(libc::SIGUSR1);
        assert_eq!(b.call("pause", &[]), errno(libc::EINTR));
    }
    pub(super) fn rt_sigreturn(b: &mut Bench) {
        assert_eq!(b.led("rt_sigreturn", &[]), Outcome::SignalReturn { old: false });
    }
    pub(super) fn sigreturn(b: &mut Bench) {
        assert_eq!(b.led("sigreturn", &[]), Outcome::SignalReturn { old: true });
    }
    pub(super) fn sigaltstack(b: &mut Bench) {
        b.put(B, 0, 0x8000);
        b.put(B, 2, 0x1000);
        assert_eq!(b.call("sigaltstack", &[B, 0]), 0);
        assert_eq!(b.c.signal_stack, Some((0x8000, 0x1000)));
        assert_eq!(b.call("sigaltstack", &[0, C]), 0);
        assert_eq!((b.get(C, 0), b.get(C, 2)), (0x8000, 0x1000));
        b.put(B, 0, b.d.limit());
        assert_eq!(b.call("sigaltstack", &[B, 0]), errno(libc::EFAULT));
    }
    fn to_itself(b: &mut Bench, name: &str, a: &[u64]) {
        let with = |signal: i32| [a, &[signal as u64]].concat();
        assert_eq!(b.call(name, &with(0)), 0);
        assert_eq!(b.led(name, &with(libc::SIGABRT)), Outcome::Kill(libc::SIGABRT));
        assert_eq!(b.call(name, &with(libc::SIGCHLD)), 0);
    }
    pub(super) fn kill(b: &mut Bench) {
        to_itself(b, "kill", &[u64::from(std::process::id())]);
    }
    fn own_tid() -> u64 {
        // SAFETY: no arguments.
        unsafe { libc::syscall(libc::SYS_gettid) as u64 }
    }
    pub(super) fn tkill(b: &mut Bench) {
        to_itself(b, "tkill", &[own_tid()]);
    }
    pub(super) fn tgkill(b: &mut Bench) {
        to_itself(b, "tgkill", &[u64::from(std::process::id()), own_tid()]);
    }
}
