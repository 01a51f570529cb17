//! Cases of calls about time.

use super::*;

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
