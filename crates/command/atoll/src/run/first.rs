//! The run's first launcher, as a later program's launcher sees it: where the first is killed, this one ends as well.
//!
//! `launch` begins it; the loaded library (`start/again.rs`) makes such launchers. A first launcher that ends in good order leaves processes
//! in the background alone, as a shell does.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use atoll_memory::control::{ENVIRONMENT_FIRST, Handle};

use super::process::Process;

/// Follows the first launcher, if the environment names one.
pub(crate) fn follow() {
    let handle = std::env::var(ENVIRONMENT_FIRST).ok().and_then(|text| Handle::parse(&text));
    let Some(handle) = handle else { return };
    let Some(launcher) = Process::open(handle.launcher) else { return };
    let Some((control, _)) = handle.map() else { return };
    // Without a thread nothing is followed, and the run goes on.
    let _ = std::thread::Builder::new().name("first launcher".into()).spawn(move || {
        let mut entry = libc::pollfd { fd: launcher.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, valid for the call.
        while unsafe { libc::poll(&raw mut entry, 1, -1) } <= 0 {}
        if control.over.load(Ordering::Acquire) == 0 {
            // SAFETY: numbers only. The program dies with its launcher.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    });
}
