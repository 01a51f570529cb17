//! Cases of calls about the process, and of those that no segment serves.

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
