//! Cases of calls about threads.

use super::*;

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
