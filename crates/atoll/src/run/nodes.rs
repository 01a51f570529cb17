//! The nodes of a run on this machine: a launcher each, which this one starts and ends.
//!
//! `launch` calls it. Each node is `atoll run` itself, told by an environment variable which node it is; between every two
//! nodes there is a socket, made before they are and inherited, so that nothing of the run lies in any directory.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use atoll_channel::transport::mesh;
use atoll_memory::control::Settings;

use super::launch::out_of_the_way;
use crate::cli::{RunArgs, SummaryForm};

/// Names a node's number and its sockets, to the launcher of a node other than the first.
const ENVIRONMENT: &str = "ATOLL_NODE";

/// How long nodes may take to end behind the first.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Why the nodes cannot be started.
#[derive(thiserror::Error, Debug)]
pub(crate) enum NodesError {
    /// No sockets between nodes.
    #[error("the nodes cannot be connected: {0}")]
    Sockets(std::io::Error),
    /// A launcher did not start.
    #[error("node {0} cannot be started: {1}")]
    Start(u32, std::io::Error),
    /// The variable is not what a launcher writes.
    #[error("{ENVIRONMENT}={0} does not name a node: it is set by atoll itself, do not set it")]
    Variable(String),
}

/// This node's place among them.
pub(crate) struct Nodes {
    node: u32,
    count: u32,
    /// This node's sockets: none to itself.
    sockets: Vec<Option<OwnedFd>>,
    /// The sockets of nodes that are still to be started, with their numbers.
    others: Vec<(u32, Vec<Option<OwnedFd>>)>,
    children: Vec<Child>,
}

fn text(sockets: &[Option<OwnedFd>]) -> String {
    let numbers: Vec<String> = sockets
        .iter()
        .map(|fd| fd.as_ref().map_or_else(|| "-".to_owned(), |fd| fd.as_raw_fd().to_string()))
        .collect();
    numbers.join(",")
}

/// Has the processes that `command` starts inherit these.
fn inherit(command: &mut Command, sockets: &[Option<OwnedFd>]) {
    let fds: Vec<RawFd> = sockets.iter().flatten().map(AsRawFd::as_raw_fd).collect();
    // SAFETY: only system calls, between fork and exec.
    unsafe {
        command.pre_exec(move || {
            for &fd in &fds {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

impl Nodes {
    /// Finds out which node this is, and makes the sockets if it is the first of several.
    pub(crate) fn prepare(args: &RunArgs) -> Result<Nodes, NodesError> {
        let none = Nodes { node: 0, count: 1, sockets: vec![], others: vec![], children: vec![] };
        if args.nodes == 1 {
            return Ok(none);
        }
        if let Some(variable) = std::env::var_os(ENVIRONMENT) {
            let (node, sockets) = parse(&variable)
                .ok_or_else(|| NodesError::Variable(variable.to_string_lossy().into_owned()))?;
            return Ok(Nodes { node, count: args.nodes, sockets, ..none });
        }
        let places = mesh(args.nodes).map_err(NodesError::Sockets)?;
        let mut sockets = places.into_iter().map(|place| {
            let streams = place.into_streams().into_iter();
            streams.map(|fd| fd.map(high)).collect::<Vec<_>>()
        });
        let own = sockets.next().unwrap_or_default();
        Ok(Nodes { count: args.nodes, sockets: own, others: (1..).zip(sockets).collect(), ..none })
    }

    /// Tells the runtime of it.
    pub(crate) fn describe(&self, settings: &mut Settings) {
        settings.node = self.node;
        settings.nodes = self.count;
        // Short: a few numbers.
        settings.set_meeting(&text(&self.sockets));
    }

    /// Is this the node on which `main` runs?
    pub(crate) fn is_first(&self) -> bool {
        self.node == 0
    }

    /// The program that `command` starts has this node's sockets, and its memory at the same addresses as on all nodes.
    pub(crate) fn bind(&self, command: &mut Command) {
        if self.count == 1 {
            return;
        }
        inherit(command, &self.sockets);
        command.env_remove(ENVIRONMENT);
        // SAFETY: a system call, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let now = libc::personality(0xffff_ffff);
                if now < 0 || libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        if !self.is_first() {
            command.stdin(Stdio::null());
        }
    }

    /// Starts the launchers of the other nodes, with this one's command line.
    pub(crate) fn start_others(&mut self) -> Result<(), NodesError> {
        let launcher = std::process::id() as i32;
        for (node, sockets) in std::mem::take(&mut self.others) {
            let failed = |e| NodesError::Start(node, e);
            let mut command = Command::new(std::env::current_exe().map_err(failed)?);
            command.args(std::env::args_os().skip(1));
            command.env(ENVIRONMENT, format!("{node}:{}", text(&sockets)));
            command.stdin(Stdio::null());
            command.process_group(0);
            inherit(&mut command, &sockets);
            // SAFETY: only system calls, between fork and exec.
            unsafe {
                command.pre_exec(move || {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    if libc::getppid() != launcher {
                        libc::_exit(1);
                    }
                    Ok(())
                });
            }
            self.children.push(command.spawn().map_err(failed)?);
        }
        Ok(())
    }

    /// The program has its sockets: others must see their end when it has ended.
    pub(crate) fn release(&mut self) {
        self.sockets.clear();
    }

    /// The first node's program is over: ends what is left of the others.
    pub(crate) fn end(&mut self) {
        let until = Instant::now() + LAST_WAIT;
        for child in &mut self.children {
            // Perhaps it was taken already, with the children of the program.
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() > until {
                    let _ = child.kill();
                    let _ = child.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// What this node prints at its end: the first speaks for all.
    pub(crate) fn summary(asked: SummaryForm) -> SummaryForm {
        if std::env::var_os(ENVIRONMENT).is_some() { SummaryForm::None } else { asked }
    }
}

fn high(fd: OwnedFd) -> OwnedFd {
    use std::os::fd::IntoRawFd;
    let fd = out_of_the_way(fd.into_raw_fd());
    // SAFETY: just made, or the one given up above; nobody else has it.
    unsafe {
        libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        OwnedFd::from_raw_fd(fd)
    }
}

/// What a launcher wrote: a number, a colon, and the sockets' numbers.
fn parse(variable: &OsString) -> Option<(u32, Vec<Option<OwnedFd>>)> {
    let (node, sockets) = variable.to_str()?.split_once(':')?;
    let sockets = sockets.split(',').map(|number| {
        if number == "-" {
            return Some(None);
        }
        let fd: RawFd = number.parse().ok().filter(|fd| *fd > 2)?;
        // SAFETY: no pointers; and the launcher left it for this process alone.
        let fd = unsafe {
            if libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) < 0 {
                return None;
            }
            OwnedFd::from_raw_fd(fd)
        };
        Some(Some(fd))
    });
    Some((node.parse().ok()?, sockets.collect::<Option<Vec<_>>>()?))
}
