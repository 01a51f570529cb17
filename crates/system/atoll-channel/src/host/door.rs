//! A door: a service's socket, which admits processes of this user and greets each in a thread of its own.
//!
//! The socket lies in the node's directory (`directory.rs`). Making a channel takes a few messages over the socket; a visitor
//! that is silent meanwhile keeps nobody else waiting.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use rustix::process::geteuid;

use crate::host::credentials::credentials;
use crate::host::directory::{DirectoryError, check};

/// The most visitors that are greeted at once; the others wait at the socket.
const GREETED: u32 = 16;
/// The stack in bytes of a thread that only greets.
const STACK: usize = 256 << 10;

/// A process that came in.
pub(crate) struct Visitor {
    /// The visitor's process number when it came; 0 if it runs in another container.
    pub(crate) process: u32,
}

/// A socket with a name, and the thread that listens to it. Dropping it closes the socket and removes its name.
pub(crate) struct Door {
    listener: Arc<UnixListener>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

/// The number of visitors that are being greeted.
#[derive(Default)]
struct Count {
    now: Mutex<u32>,
    less: Condvar,
}

impl Count {
    fn enter(&self) {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now =
            self.less.wait_while(now, |now| *now >= GREETED).unwrap_or_else(PoisonError::into_inner);
        *now += 1;
    }

    fn leave(&self) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.less.notify_one();
    }
}

impl Door {
    /// Listens at `name` in the node's `directory`; `greet` is called for every visitor, and must end in limited time.
    pub(crate) fn open(
        directory: &Path,
        name: &str,
        greet: impl Fn(&UnixStream, Visitor) + Send + Sync + 'static,
    ) -> Result<Door, DirectoryError> {
        check(directory)?;
        let path = directory.join(name);
        let os = |e| DirectoryError::Os(path.clone(), e);
        let listener = Arc::new(UnixListener::bind(&path).map_err(os)?);
        let thread = Builder::new().name(format!("atoll {name} door")).stack_size(STACK).spawn({
            let listener = listener.clone();
            move || listen(&listener, &Arc::new(greet))
        });
        Ok(Door { thread: Some(thread.map_err(os)?), listener, path })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Wakes the thread in `accept`, which fails from now on.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(listener: &UnixListener, greet: &Arc<impl Fn(&UnixStream, Visitor) + Send + Sync + 'static>) {
    let count = Arc::new(Count::default());
    loop {
        count.enter();
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // The socket was closed.
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => return,
            Err(_) => {
                // Descriptors or memory are short, or the visitor has left again: it may get better.
                count.leave();
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        let greeted = Builder::new().name("atoll greeting".into()).stack_size(STACK).spawn({
            let (greet, count) = (greet.clone(), count.clone());
            move || {
                if let Some(visitor) = who(&stream) {
                    greet(&stream, visitor);
                }
                count.leave();
            }
        });
        if greeted.is_err() {
            count.leave();
        }
    }
}

/// The process at the other end, if it is this user's.
fn who(stream: &UnixStream) -> Option<Visitor> {
    let peer = credentials(stream).ok()?;
    let process = peer.process.map_or(0, |process| process.as_raw_nonzero().get().cast_unsigned());
    (peer.user == Some(geteuid().as_raw())).then_some(Visitor { process })
}

/// Connects to `name` in `directory`; checks that the other end is a process of this user.
pub(crate) fn visit(directory: &Path, name: &str) -> Result<UnixStream, DirectoryError> {
    check(directory)?;
    let path = directory.join(name);
    let stream = UnixStream::connect(&path).map_err(|e| DirectoryError::Os(path.clone(), e))?;
    if who(&stream).is_some() { Ok(stream) } else { Err(DirectoryError::NotPrivate(path)) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::host::NodeDirectory;

    #[test]
    fn visitors_are_greeted_though_one_is_silent() {
        let directory = NodeDirectory::create(&std::env::temp_dir()).unwrap();
        let door = Door::open(directory.path(), "test", |stream, visitor| {
            let mut stream = stream;
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_ok() {
                let _ = stream.write_all(&visitor.process.to_le_bytes());
            }
        })
        .unwrap();
        let silent = visit(directory.path(), "test").unwrap();
        for _ in 0..20 {
            let mut stream = visit(directory.path(), "test").unwrap();
            stream.write_all(&[1]).unwrap();
            let mut process = [0; 4];
            stream.read_exact(&mut process).unwrap();
            assert_eq!(u32::from_le_bytes(process), std::process::id());
        }
        drop(silent);
        drop(door);
        assert!(matches!(visit(directory.path(), "test"), Err(DirectoryError::Os(..))));
    }
}
