//! Two processes of a measurement, each on a CPU of its own.
//!
//! The other process is forked from this one and does one piece of work; it ends with this one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::BenchError;
use super::pin::pin;
use crate::machine::usable_cpu_numbers;

/// The seconds after which a process of a measurement is ended by its own timer, because it hangs.
const LIMIT: u32 = 120;

/// The CPUs of the two processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cpus {
    pub(super) here: usize,
    pub(super) there: usize,
}

impl Cpus {
    /// Returns the CPUs asked for, or the first two that this process may use.
    pub(super) fn choose(asked: Option<&[usize]>) -> Result<Self, BenchError> {
        let usable = usable_cpu_numbers().unwrap_or_default();
        let [here, there] = match asked {
            Some(&[here, there]) if here != there => [here, there],
            _ => match usable[..] {
                [here, there, ..] => [here, there],
                _ => return Err(BenchError::OneCpu),
            },
        };
        if let Some(cpu) = [here, there].into_iter().find(|cpu| !usable.contains(cpu)) {
            return Err(BenchError::Cpu(cpu, usable));
        }
        Ok(Self { here, there })
    }
}

/// The other process, which is killed and waited for when this value is dropped.
pub(super) struct Other {
    pid: i32,
    waited: bool,
}

impl Other {
    /// Forks a process on `cpu` that does `work`. This process must have one thread.
    pub(super) fn start(
        cpu: usize,
        work: impl FnOnce() -> Result<(), BenchError>,
    ) -> Result<Self, BenchError> {
        // SAFETY: this process has one thread, so the child may do what it likes.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(BenchError::Other(format!("fork: {}", std::io::Error::last_os_error())));
        }
        if pid == 0 {
            // SAFETY: no pointers. The child ends with its parent, and by the timer's signal if it hangs.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::alarm(LIMIT);
            }
            pin(cpu);
            let done = catch_unwind(AssertUnwindSafe(work));
            let failed = match done {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => {
                    eprintln!("atoll: the other process: {error}");
                    1
                }
                Err(_) => 1,
            };
            // SAFETY: ends this process, without what the parent registered for its end.
            unsafe { libc::_exit(failed) };
        }
        Ok(Self { pid, waited: false })
    }

    /// Returns the process's number.
    pub(super) fn pid(&self) -> u32 {
        self.pid.cast_unsigned()
    }

    /// Waits for the process's end.
    pub(super) fn wait(mut self) -> Result<(), BenchError> {
        match self.reap() {
            0 => Ok(()),
            status => Err(BenchError::Other(format!("its wait status is {status:#x}"))),
        }
    }

    fn reap(&mut self) -> i32 {
        let mut status = 0;
        // SAFETY: status is valid for writes; the child is ours and not waited for yet.
        unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        self.waited = true;
        status
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if !self.waited {
            // SAFETY: a child that nobody waited for, so the number is still its.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.reap();
        }
    }
}
