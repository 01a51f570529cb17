//! A thread that sees processes end, whoever waits for what meanwhile.
//!
//! `here.rs` gives it a descriptor for each process, and is told its number when it has ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use rustix::event::epoll;

/// Stands for the thread's own end.
const STOP: u64 = u64::MAX;

/// The thread. Dropped, it ends.
pub(super) struct Reaper {
    epoll: Arc<OwnedFd>,
    /// Closed to stop it.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Starts it; `ended` is told of each end.
    pub(super) fn start(ended: impl Fn(u64) + Send + 'static) -> io::Result<Reaper> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let (stop, stopped) = UnixStream::pair()?;
        epoll::add(&epoll, &stopped, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        let thread = Builder::new().name("atoll reaper".into()).spawn({
            let epoll = epoll.clone();
            move || {
                // Open until the thread ends.
                let _stopped = stopped;
                let mut events = Vec::with_capacity(64);
                loop {
                    // An error: interrupted.
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

    /// Says `number` when the process has ended, once; `pidfd` can be dropped after that.
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
