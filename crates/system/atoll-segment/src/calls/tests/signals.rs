//! Cases of calls about signals.

use super::*;

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
pub(super) fn tkill(b: &mut Bench) {
    to_itself(b, "tkill", &[own_tid()]);
}
pub(super) fn tgkill(b: &mut Bench) {
    to_itself(b, "tgkill", &[u64::from(std::process::id()), own_tid()]);
}
