//! Forked processes for tests.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use atoll_transport::Peer;

/// A forked process; killed and waited for when dropped.
pub(crate) struct Child {
    pub(crate) pid: i32,
}

#[allow(dead_code, reason = "not every program of tests uses all of it")]
impl Child {
    /// Runs `work` in a child, which then exits with 0, or with 101 if it panicked.
    pub(crate) fn run(work: impl FnOnce()) -> Child {
        // SAFETY: other threads of this process, if it has any, only wait.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            // SAFETY: no pointers. The child ends with its parent, and by the same alarm.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::alarm(60);
            }
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends this process without its parent's destructors.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) };
        }
        Child { pid }
    }

    /// Forks a child that calls `first` and then only sleeps.
    pub(crate) fn idle(first: impl FnOnce()) -> Child {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let child = Child::run(|| {
            first();
            there.write_all(&[1]).unwrap();
            std::thread::sleep(std::time::Duration::from_secs(100));
        });
        drop(there);
        here.read_exact(&mut [0]).unwrap();
        child
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer::process(self.pid as u32).unwrap()
    }

    pub(crate) fn kill(&self) {
        // SAFETY: no pointers; our own child, not waited for yet.
        assert_eq!(unsafe { libc::kill(self.pid, libc::SIGKILL) }, 0);
    }

    /// Waits for its end; returns whether it ended well.
    pub(crate) fn ended_well(self) -> bool {
        let mut status = 0;
        // SAFETY: status is valid for writes.
        assert_eq!(unsafe { libc::waitpid(self.pid, &raw mut status, 0) }, self.pid);
        std::mem::forget(self);
        status == 0
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, not waited for yet.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}
