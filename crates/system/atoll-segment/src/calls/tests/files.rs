//! Cases of calls about files and paths.

use super::*;

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
    assert_eq!(b.call("open", &[0, 0, 0]), errno(libc::EFAULT));
    no_memory(b, "open", &[A, libc::O_RDWR as u64]);
    for path in ["/proc/self/status", "/dev/null"] {
        b.text(A, path);
        assert!(b.call("open", &[A, 0, 0]) > 2, "{path}");
    }
}
pub(super) fn openat(b: &mut Bench) {
    b.path(A, "none");
    assert_eq!(b.call("openat", &[AT_FDCWD, A, 0, 0]), errno(libc::ENOENT));
    assert_eq!(b.call("openat", &[AT_FDCWD, 0, 0, 0]), errno(libc::EFAULT));
    no_memory(b, "openat", &[AT_FDCWD, A, libc::O_RDWR as u64]);
}
pub(super) fn creat(b: &mut Bench) {
    let path = b.path(A, "new");
    assert!(b.call("creat", &[A, 0o600]) > 2 && path.exists());
    assert_eq!(b.call("creat", &[0, 0o600]), errno(libc::EFAULT));
    no_memory(b, "creat", &[A, 0o600]);
}
/// Tests that a program cannot open memory as a file, by any name.
fn no_memory(b: &mut Bench, name: &str, a: &[u64]) {
    let link = b.path(C, "link");
    std::os::unix::fs::symlink("/proc/self/mem", &link).unwrap();
    let own = format!("/proc/{}/task/{}/mem", std::process::id(), own_tid());
    for path in ["/proc/self/mem", "/proc/thread-self/mem", &own, link.to_str().unwrap()] {
        b.text(A, path);
        assert_eq!(b.call(name, a), errno(libc::EACCES), "{name} {path}");
    }
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
    let fd = if b.d.is_32() { b.call("open", &[A, 0, 0]) } else { b.call("openat", &[AT_FDCWD, A, 0, 0]) };
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
