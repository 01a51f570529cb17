//! Nodes as forked processes, which exchange addresses and meet through their parent.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use atoll_transport::Node;
use atoll_transport::transport::{Place, Ucx, mesh};

/// The seconds after which a node is ended by SIGALRM.
const LIMIT: u32 = 40;

/// A node's place in a test.
pub(crate) struct Spot {
    pub(crate) node: Node,
    pub(crate) nodes: u32,
    stream: UnixStream,
}

type Anything = Box<dyn std::error::Error + Send + Sync>;

impl Spot {
    /// Gives `mine` to all nodes, and returns the bytes of each; those that have ended give none.
    pub(crate) fn exchange(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Anything> {
        write(&self.stream, mine)?;
        (0..self.nodes).map(|_| read(&self.stream)).collect()
    }

    /// Waits for all nodes that live, without using any transport, and calls `meanwhile` repeatedly.
    pub(crate) fn meet(&self, mut meanwhile: impl FnMut()) {
        write(&self.stream, b"here").unwrap();
        let mut byte = [0];
        self.stream.set_nonblocking(true).unwrap();
        // SAFETY: one byte to write to.
        while unsafe { libc::recv(self.stream.as_raw_fd(), byte.as_mut_ptr().cast(), 1, libc::MSG_PEEK) } < 1
        {
            meanwhile();
        }
        self.stream.set_nonblocking(false).unwrap();
        for _ in 0..self.nodes {
            read(&self.stream).unwrap();
        }
    }

    /// Ends this process as a kill from outside does.
    pub(crate) fn die(&self) -> ! {
        // SAFETY: no pointers.
        unsafe {
            libc::kill(libc::getpid(), libc::SIGKILL);
            libc::_exit(1)
        }
    }
}

fn write(mut stream: &UnixStream, bytes: &[u8]) -> Result<(), Anything> {
    stream.write_all(&(bytes.len() as u32).to_le_bytes())?;
    stream.write_all(bytes)?;
    Ok(())
}

fn read(mut stream: &UnixStream) -> Result<Vec<u8>, Anything> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Runs `work` in `nodes` forked processes. All must end well except those in `die`, which must be killed.
pub(crate) fn processes(nodes: u32, die: &[u32], work: impl Fn(Spot)) {
    let mut children = Vec::new();
    for number in 0..nodes {
        let (here, there) = UnixStream::pair().unwrap();
        // SAFETY: this process has one thread.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            // SAFETY: no pointers. The child ends with its parent, and by its own alarm.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::alarm(LIMIT);
            }
            children.clear();
            drop(here);
            let spot = Spot { node: Node(number), nodes, stream: there };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(spot)));
            // SAFETY: ends this process without its parent's destructors.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) };
        }
        children.push((number, pid, Some(here)));
    }
    serve(&mut children);
    let mut wrong = Vec::new();
    for (number, pid, _) in children {
        let mut status = 0;
        // SAFETY: our own child; a number to write to.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        if if die.contains(&number) { !killed } else { status != 0 } {
            wrong.push((number, status));
        }
    }
    assert!(wrong.is_empty(), "nodes and how they ended: {wrong:?}");
}

/// The reason why UCX cannot be used here, if any. Determined in a process of its own, as UCX is not made for forks.
pub(crate) fn ucx_missing() -> Option<String> {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let child = move || {
        let why = Ucx::available().err().map(|why| why.to_string()).unwrap_or_default();
        there.write_all(why.as_bytes()).unwrap();
    };
    let child = std::cell::Cell::new(Some(child));
    processes(1, &[], |_| child.take().unwrap()());
    drop(child);
    let mut why = String::new();
    here.read_to_string(&mut why).unwrap();
    Some(why).filter(|why| !why.is_empty())
}

/// Runs `work` in `nodes` threads of a forked process, with their places of shared memory.
pub(crate) fn threads(nodes: u32, work: impl Fn(&Spot, Place) + Sync) {
    processes(1, &[], |_| {
        let mut children = Vec::new();
        std::thread::scope(|scope| {
            for place in mesh(nodes).unwrap() {
                let (here, there) = UnixStream::pair().unwrap();
                let number = children.len() as u32;
                children.push((number, 0, Some(here)));
                let (spot, work) = (Spot { node: Node(number), nodes, stream: there }, &work);
                scope.spawn(move || work(&spot, place));
            }
            serve(&mut children);
        });
    });
}

/// Passes on the nodes' exchanges until all have ended.
fn serve(children: &mut [(u32, i32, Option<UnixStream>)]) {
    while children.iter().any(|(_, _, stream)| stream.is_some()) {
        let mut all = Vec::new();
        for (_, _, stream) in children.iter_mut() {
            let bytes = stream.as_ref().and_then(|stream| read(stream).ok());
            if bytes.is_none() {
                *stream = None;
            }
            all.push(bytes.unwrap_or_default());
        }
        for stream in children.iter().filter_map(|(_, _, stream)| stream.as_ref()) {
            for bytes in &all {
                // A node that has just died is noticed at the next round.
                let _ = write(stream, bytes);
            }
        }
    }
}
