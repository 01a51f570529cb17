//! Forked processes, and channels to them.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use atoll_channel::{Channel, Settings};

pub(crate) const SECONDS: Option<Duration> = Some(Duration::from_secs(20));

/// A forked process; killed and waited for when dropped.
pub(crate) struct Child {
    pub(crate) pid: i32,
}

impl Child {
    /// Runs `work` in a child, which then exits with 0, or with 101 if it panicked.
    pub(crate) fn run(work: impl FnOnce()) -> Child {
        // SAFETY: this process has one thread.
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

    pub(crate) fn kill(&self) {
        // SAFETY: no pointers; our own child, not waited for yet.
        assert_eq!(unsafe { libc::kill(self.pid, libc::SIGKILL) }, 0);
    }

    /// Waits for its end; true if it ended well.
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

/// A child that has the other end of a channel made over a socket, and this end.
pub(crate) fn with_child(settings: Settings, work: impl FnOnce(Channel)) -> (Child, Channel) {
    let (here, there) = UnixStream::pair().unwrap();
    let child = Child::run(|| {
        work(Channel::connect(&there, settings.mirrored(), None, SECONDS).unwrap());
    });
    drop(there);
    (child, Channel::connect(&here, settings, None, SECONDS).unwrap())
}
