//! Signals: what the program wants done about each, and which are pending.
//!
//! A backend that can interrupt its cores registers a catcher, and makes the frames that handlers run on. Without a catcher a
//! signal does what it does by default.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use super::{Caller, Delegate, Outcome, lock};
use crate::errno::{Errno, syscall};

type Served = Result<u64, Errno>;
type Led = Result<Outcome, Errno>;

const EINVAL: Errno = Errno(libc::EINVAL);
/// The greatest signal; signals are 1 to 64.
const SIGNALS: u64 = 64;

/// Returns the bit of a signal in a mask.
pub(crate) fn bit(signal: i32) -> u64 {
    1 << ((signal - 1) & 63)
}

/// Returns the signals that no mask stops.
fn unstoppable() -> u64 {
    bit(libc::SIGKILL) | bit(libc::SIGSTOP)
}

/// The program's action for a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Action {
    /// The offset of the handler, or 0 for the default and 1 for nothing.
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    /// The offset that a handler returns to.
    pub(crate) restorer: u64,
    /// The signals that are blocked while the handler runs.
    pub(crate) mask: u64,
}

/// The actions for all signals, and the pending ones.
#[derive(Debug)]
pub(crate) struct Signals {
    actions: Mutex<[Action; SIGNALS as usize + 1]>,
    pending: AtomicU64,
    /// Makes this machine deliver a signal to atoll.
    catcher: OnceLock<fn(i32)>,
}

impl Default for Signals {
    fn default() -> Signals {
        Signals {
            actions: Mutex::new([Action::default(); SIGNALS as usize + 1]),
            pending: AtomicU64::new(0),
            catcher: OnceLock::new(),
        }
    }
}

impl Signals {
    /// From now on `catcher` makes signals with handlers arrive here, where [`Signals::note`] notes them.
    pub(crate) fn bring_by(&self, catcher: fn(i32)) {
        let _ = self.catcher.set(catcher);
    }

    /// Notes that a signal came. Signal handlers call this.
    pub(crate) fn note(&self, signal: i32) {
        self.pending.fetch_or(bit(signal), Ordering::SeqCst);
    }

    /// Returns the next signal that is pending and not masked, with its action; it is then no longer pending.
    pub(crate) fn next(&self, mask: u64) -> Option<(i32, Action)> {
        loop {
            let ready = self.pending.load(Ordering::SeqCst) & !mask;
            if ready == 0 {
                return None;
            }
            let signal = ready.trailing_zeros() as i32 + 1;
            if self.pending.fetch_and(!bit(signal), Ordering::SeqCst) & bit(signal) != 0 {
                return Some((signal, self.take(signal)));
            }
        }
    }

    /// Whether an unmasked signal is pending.
    pub(crate) fn is_waiting(&self, mask: u64) -> bool {
        self.pending.load(Ordering::SeqCst) & !mask != 0
    }

    /// Returns the action for a signal that happens now.
    pub(crate) fn take(&self, signal: i32) -> Action {
        let mut actions = lock(&self.actions);
        let action = actions[signal as usize];
        if action.flags & libc::SA_RESETHAND as u64 != 0 {
            actions[signal as usize].handler = 0;
        }
        action
    }

    fn handler(&self, signal: i32) -> u64 {
        lock(&self.actions)[signal as usize].handler
    }
}

fn number(signal: u64) -> Result<i32, Errno> {
    if (1..=SIGNALS).contains(&signal) { Ok(signal as i32) } else { Err(EINVAL) }
}

fn read_action(d: &Delegate, at: u64) -> Result<Action, Errno> {
    if d.is_32() {
        let [handler, flags, restorer, low, high] = d.window.read::<[u32; 5]>(at)?.map(u64::from);
        return Ok(Action { handler, flags, restorer, mask: low | high << 32 });
    }
    let [handler, flags, restorer, mask] = d.window.read::<[u64; 4]>(at)?;
    Ok(Action { handler, flags, restorer, mask })
}

fn write_action(d: &Delegate, at: u64, a: Action) -> Result<(), Errno> {
    if d.is_32() {
        let words = [a.handler, a.flags, a.restorer, a.mask, a.mask >> 32].map(|n| n as u32);
        return d.window.write(at, words);
    }
    d.window.write(at, [a.handler, a.flags, a.restorer, a.mask])
}

pub(super) fn rt_sigaction(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Served {
    let signal = number(u64::from(a[0] as u32))?;
    if a[3] != 8 {
        return Err(EINVAL);
    }
    let new = if a[1] == 0 { None } else { Some(read_action(d, a[1])?) };
    if new.is_some() && bit(signal) & unstoppable() != 0 {
        return Err(EINVAL);
    }
    let mut actions = lock(&d.signals.actions);
    if a[2] != 0 {
        write_action(d, a[2], actions[signal as usize])?;
    }
    let Some(new) = new else { return Ok(0) };
    actions[signal as usize] = new;
    drop(actions);
    // Faults come to the backend in any case.
    if matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP | libc::SIGSYS
    ) {
        return Ok(0);
    }
    match (new.handler, d.signals.catcher.get()) {
        // SAFETY: a disposition of this process, which is the program's.
        (0, _) => unsafe { libc::signal(signal, libc::SIG_DFL) },
        // SAFETY: as above.
        (1, _) => unsafe { libc::signal(signal, libc::SIG_IGN) },
        (_, Some(catcher)) => {
            catcher(signal);
            0
        }
        (_, None) => 0,
    };
    Ok(0)
}

pub(super) fn rt_sigprocmask(d: &Delegate, c: &mut Caller, a: [u64; 6]) -> Served {
    if a[3] != 8 {
        return Err(EINVAL);
    }
    let before = c.mask;
    if a[1] != 0 {
        let set: u64 = d.window.read(a[1])?;
        c.mask = match a[0] as i32 {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return Err(EINVAL),
        } & !unstoppable();
    }
    if a[2] != 0 {
        d.window.write(a[2], before)?;
    }
    Ok(0)
}

/// Waits until a signal is pending that the mask lets through.
fn wait(d: &Delegate, mask: u64) -> Served {
    while !d.signals.is_waiting(mask) {
        // Signals interrupt the wait. The time limit is for a signal that came just before.
        // SAFETY: no pointers.
        unsafe { libc::poll(std::ptr::null_mut(), 0, 10) };
    }
    Err(Errno(libc::EINTR))
}

pub(super) fn rt_sigsuspend(d: &Delegate, c: &mut Caller, a: [u64; 6]) -> Served {
    if a[1] != 8 {
        return Err(EINVAL);
    }
    let mask = d.window.read::<u64>(a[0])? & !unstoppable();
    c.mask_after = Some(c.mask);
    c.mask = mask;
    wait(d, mask)
}

pub(super) fn pause(d: &Delegate, c: &mut Caller, _: [u64; 6]) -> Served {
    wait(d, c.mask)
}

pub(super) fn rt_sigreturn(_: &Delegate, _: &mut Caller, _: [u64; 6]) -> Led {
    Ok(Outcome::SignalReturn { old: false })
}

pub(super) fn sigreturn(_: &Delegate, _: &mut Caller, _: [u64; 6]) -> Led {
    Ok(Outcome::SignalReturn { old: true })
}

const SS_DISABLE: u64 = 2;

pub(super) fn sigaltstack(d: &Delegate, c: &mut Caller, a: [u64; 6]) -> Served {
    let before = c.signal_stack;
    if a[0] != 0 {
        let [at, flags, bytes] = if d.is_32() {
            d.window.read::<[u32; 3]>(a[0])?.map(u64::from)
        } else {
            [
                d.window.read::<u64>(a[0])?,
                u64::from(d.window.read::<u32>(a[0] + 8)?),
                d.window.read(a[0] + 16)?,
            ]
        };
        c.signal_stack = if flags & SS_DISABLE != 0 {
            None
        } else {
            d.window.address(at, bytes)?;
            Some((at, bytes))
        };
    }
    if a[1] != 0 {
        let (at, bytes) = before.unwrap_or((0, 0));
        let flags = if before.is_some() { 0 } else { SS_DISABLE };
        if d.is_32() {
            d.window.write(a[1], [at as u32, flags as u32, bytes as u32])?;
        } else {
            d.window.write(a[1], at)?;
            d.window.write(a[1] + 8, flags)?;
            d.window.write(a[1] + 16, bytes)?;
        }
    }
    Ok(0)
}

/// Sends a signal. A signal to the program itself that it does not handle ends the program.
fn send(d: &Delegate, host: libc::c_long, a: [u64; 6], process: i32, signal: u64) -> Led {
    let own = process == std::process::id() as i32;
    let ends = |signal| {
        let harmless = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT];
        let stops = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        !harmless.contains(&signal) && !stops.contains(&signal)
    };
    if own && let Ok(signal) = number(signal) {
        match d.signals.handler(signal) {
            0 if ends(signal) => return Ok(Outcome::Kill(signal)),
            handler if handler > 1 && d.signals.catcher.get().is_some() => {
                d.signals.note(signal);
                return Ok(Outcome::Value(0));
            }
            _ => {}
        }
    }
    // SAFETY: no pointers.
    unsafe { syscall(host, a) }.map(Outcome::Value)
}

pub(super) fn kill(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Led {
    let a = a.map(|n| i64::from(n as i32) as u64);
    send(d, libc::SYS_kill, a, a[0] as i32, a[1])
}

pub(super) fn tkill(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Led {
    let own = std::process::id();
    tgkill_by(d, [u64::from(own), a[0], a[1], 0, 0, 0])
}

pub(super) fn tgkill(d: &Delegate, _: &mut Caller, a: [u64; 6]) -> Led {
    tgkill_by(d, a)
}

fn tgkill_by(d: &Delegate, a: [u64; 6]) -> Led {
    let a = a.map(|n| i64::from(n as i32) as u64);
    send(d, libc::SYS_tgkill, a, a[0] as i32, a[2])
}
