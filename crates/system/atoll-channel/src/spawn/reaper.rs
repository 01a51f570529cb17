//! A thread that notices the ends of processes, whatever other threads wait for.
//!
//! `here.rs` gives it a descriptor for each process, and gets its number when the process has ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use rustix::event::epoll;

/// The number that stands for the thread's own end.
const STOP: u64 = u64::MAX;

/// The handle of the thread. Dropping it ends the thread.
pub(super) struct Reaper {
    epoll: Arc<OwnedFd>,
    /// A socket whose closing stops the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Starts the thread; `ended` is called with the number of each process that ends.
    pub(super) fn start(ended: impl Fn(u64) + Send + 'static) -> io::Result<Reaper> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let (stop, stopped) = UnixStream::pair()?;
        epoll::add(&epoll, &stopped, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        let thread = Builder::new().name("atoll reaper".into()).spawn({
            let epoll = epoll.clone();
            move || {
                // Stays open until the thread ends.
                let _stopped = stopped;
                let mut events = Vec::with_capacity(64);
                loop {
                    // An error means that the wait was interrupted.
                    let _ = epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None);
                    for event in events.drain(..) {
                        match event.data.u64() {
                            STOP => return,
                            number => ended(number),
                        }
                    }
                }
            }
        })?;
        Ok(Reaper { epoll, stop: Some(stop), thread: Some(thread) })
    }

    /// Reports `number` once when the process has ended; `pidfd` can be dropped after this call.
    pub(super) fn watch(&self, pidfd: &OwnedFd, number: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        Ok(epoll::add(&self.epoll, pidfd.as_fd(), epoll::EventData::new_u64(number), flags)?)
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
