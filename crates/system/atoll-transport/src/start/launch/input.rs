//! The launcher's standard input, which goes to node 0.
//!
//! A thread reads the next piece when node 0's program has taken the one before, so that nothing piles up.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

use super::Event;
use crate::start::frame::PIECE;

/// Reads standard input while it lives.
pub(super) struct Input {
    more: Sender<()>,
    /// A descriptor whose closing ends the thread's wait.
    _alive: OwnedFd,
}

impl Input {
    /// Starts the thread, which reads nothing until it is asked for more.
    pub(super) fn start(events: Sender<Event>) -> io::Result<Input> {
        let (gone, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        let (more, asked) = channel();
        thread::Builder::new().name("input".into()).spawn(move || {
            while asked.recv().is_ok() {
                let Some(bytes) = read(&gone) else { return };
                let end = bytes.is_empty();
                if events.send(Event::Input(bytes)).is_err() || end {
                    return;
                }
            }
        })?;
        Ok(Input { more, _alive: alive })
    }

    /// Asks for the next piece, as the last one was taken.
    pub(super) fn more(&self) {
        // After the end of the input there is no more, and the thread has ended.
        let _ = self.more.send(());
    }
}

/// The next piece, empty at the end; `None` if nobody wants it any more.
fn read(gone: &OwnedFd) -> Option<Vec<u8>> {
    let stdin = rustix::stdio::stdin();
    // Reading a terminal in the background would stop the launcher.
    if tcgetpgrp(stdin).is_ok_and(|group| group != getpgrp()) {
        return Some(Vec::new());
    }
    loop {
        let mut files =
            [PollFd::new(&stdin, PollFlags::IN), PollFd::from_borrowed_fd(gone.as_fd(), PollFlags::IN)];
        match poll(&mut files, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return Some(Vec::new()),
            Ok(_) => {}
        }
        let [ready, gone] = files.map(|file| !file.revents().is_empty());
        if gone {
            return None;
        }
        if ready {
            let mut bytes = vec![0; PIECE];
            match rustix::io::read(stdin, &mut bytes) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                // Input that cannot be read has ended.
                read => {
                    bytes.truncate(read.unwrap_or(0));
                    return Some(bytes);
                }
            }
        }
    }
}
