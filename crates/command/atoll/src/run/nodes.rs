//! The nodes of a run, each with a launcher. They are nodes on this machine, which this launcher starts and ends, or those of a
//! job that something else has started, one of which this is (`job`).
//!
//! `launch` calls it. Each local node is `atoll run` itself; an environment variable says which node it is. Between every two
//! nodes there is a socket. The sockets are made before the nodes and inherited, so that nothing of the run lies in any
//! directory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use atoll_memory::control::{EXIT_NODE, Settings};
use atoll_transport::start::LAUNCH_VARIABLE;
use atoll_transport::transport::mesh;

use super::check::program::{Checked, Uses};
use super::job::{Job, JobError};
use super::launch::out_of_the_way;
use super::signals::{QUIET, signal_text};
use super::started;
use super::watch::{self, Ending};
use crate::cli::RunArgs;
use crate::machine;

/// The environment variable with a node's number and its sockets, for the launcher of a node other than the origin.
pub(crate) const ENVIRONMENT: &str = "ATOLL_NODE";

/// The environment variable by which tests on one machine pretend that each node has CPUs of its own. With the value `spread`, all
/// regions begin on all nodes, too.
const PLACING: &str = "ATOLL_TEST_PLACING";

fn placing_for_tests() -> Option<OsString> {
    std::env::var_os(PLACING).filter(|placing| !placing.is_empty())
}

/// How long the other nodes may take to end after the first.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The reason why the nodes cannot be started.
#[derive(thiserror::Error, Debug)]
pub(crate) enum NodesError {
    /// There are no sockets between nodes.
    #[error("the nodes cannot be connected: {0}")]
    Sockets(std::io::Error),
    /// A launcher did not start.
    #[error("node {0} cannot be started: {1}")]
    Start(u32, std::io::Error),
    /// This is no node of its job.
    #[error("{0}")]
    Job(#[from] JobError),
    /// The variable has a value that a launcher does not write.
    #[error("{ENVIRONMENT}={0} does not name a node: it is set by atoll itself, do not set it")]
    Variable(String),
}

/// Returns the number of the node whose launcher this is: 0 for the first, and where there is one. It is known before
/// [`Nodes::prepare`].
pub(crate) fn own_number() -> u32 {
    let text = |name: &str| std::env::var(name).ok();
    // The variable is atoll's, for a node on this machine, or that of the program which started the job.
    let own = text(ENVIRONMENT).and_then(|text| text.split_once(':')?.0.parse().ok());
    own.or_else(|| text("PMIX_RANK")?.parse().ok()).unwrap_or(0)
}

/// This node's place among the nodes of the run.
pub(crate) struct Nodes {
    node: u32,
    count: u32,
    /// This node's sockets, by node; none to itself.
    sockets: Vec<Option<OwnedFd>>,
    /// The sockets of nodes that are still to be started, with their numbers.
    others: Vec<(u32, Vec<Option<OwnedFd>>)>,
    children: Vec<Child>,
    /// Where something else started the nodes: the job, and both ends of the socket between this launcher and its program.
    job: Option<(Job, [Option<UnixStream>; 2])>,
}

fn text(sockets: &[Option<OwnedFd>]) -> String {
    let numbers: Vec<String> = sockets
        .iter()
        .map(|fd| fd.as_ref().map_or_else(|| "-".to_owned(), |fd| fd.as_raw_fd().to_string()))
        .collect();
    numbers.join(",")
}

/// Makes the processes that `command` starts inherit these sockets.
fn inherit<'a>(command: &mut Command, sockets: impl IntoIterator<Item = &'a (impl AsRawFd + 'a)>) {
    let fds: Vec<RawFd> = sockets.into_iter().map(AsRawFd::as_raw_fd).collect();
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
    /// Finds out which node this is, and makes the sockets if it is the origin of several.
    pub(crate) fn prepare(args: &RunArgs, checked: Checked) -> Result<Nodes, NodesError> {
        let none = Nodes { node: 0, count: 1, sockets: vec![], others: vec![], children: vec![], job: None };
        // With lenders of its own each process of a job runs the program by itself.
        let borrows = !args.hosts_far.is_empty();
        let Some(count) = args.nodes.or((!args.hosts.is_empty()).then_some(0)).or(borrows.then_some(1))
        else {
            // Each process of a program of MPI is a program of its own.
            return if checked.mpi { Ok(none) } else { none.in_job(args) };
        };
        if std::env::var_os(LAUNCH_VARIABLE).is_some() {
            return none.in_job(args);
        }
        // Of a program that is not managed each node would run a copy.
        if count == 1 || checked.openmp == Uses::Alone {
            return Ok(none);
        }
        if let Some(variable) = std::env::var_os(ENVIRONMENT) {
            let (node, sockets) = parse(&variable)
                .ok_or_else(|| NodesError::Variable(variable.to_string_lossy().into_owned()))?;
            return Ok(Nodes { node, count, sockets, ..none });
        }
        let places = mesh(count).map_err(NodesError::Sockets)?;
        let mut sockets = places.into_iter().map(|place| {
            let streams = place.into_streams().into_iter();
            streams.map(|fd| fd.map(high)).collect::<Vec<_>>()
        });
        let own = sockets.next().unwrap_or_default();
        Ok(Nodes { count, sockets: own, others: (1..).zip(sockets).collect(), ..none })
    }

    /// Returns this node's place in a job that something else has started, if it has.
    fn in_job(self, args: &RunArgs) -> Result<Nodes, NodesError> {
        let Some(job) = Job::detect(args)? else { return Ok(self) };
        let (ours, its) = UnixStream::pair().map_err(NodesError::Sockets)?;
        let its = UnixStream::from(high(its.into()));
        let (node, count) = (job.node, job.nodes);
        Ok(Nodes { node, count, job: Some((job, [Some(ours), Some(its)])), ..self })
    }

    /// Returns the number of nodes.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of CPUs of all nodes together, those that nodes of one machine share counted once, and the team's size
    /// in the origin's environment.
    pub(crate) fn team(&self) -> (u32, Option<OsString>) {
        match &self.job {
            Some((job, _)) => {
                let (cpus, asked) = job.team();
                (cpus, asked.map(OsString::from))
            }
            None => {
                let times = if placing_for_tests().is_some() { self.count } else { 1 };
                (machine::usable_cpus() * times, std::env::var_os("OMP_NUM_THREADS"))
            }
        }
    }

    /// Enters the nodes into the runtime's settings.
    pub(crate) fn describe(&self, settings: &mut Settings) {
        settings.node = self.node;
        settings.nodes = self.count;
        settings.all_cpus = self.team().0;
        if let Some(placing) = placing_for_tests() {
            settings.placing = if placing == "spread" { 2 } else { 1 };
            settings.all_cpus = (machine::usable_cpus() / self.count).max(1) * self.count;
        }
        settings.set_meeting(&match &self.job {
            Some((_, [_, Some(its)])) => format!("relay:{}", its.as_raw_fd()),
            _ => text(&self.sockets),
        });
    }

    /// Whether this is the node on which `main` runs.
    pub(crate) fn is_first(&self) -> bool {
        self.node == 0
    }

    /// Makes the program that `command` starts have this node's sockets, and its memory at the same addresses as on all nodes.
    pub(crate) fn bind(&self, command: &mut Command) {
        command.env_remove(ENVIRONMENT).env_remove(LAUNCH_VARIABLE);
        if self.count == 1 {
            return;
        }
        inherit(command, self.sockets.iter().flatten());
        let stack = self.job.as_ref().map(|(job, [_, its])| {
            inherit(command, its.as_ref());
            job.stack()
        });
        // SAFETY: a system call, between fork and exec.
        unsafe {
            command.pre_exec(move || {
                let now = libc::personality(0xffff_ffff);
                if now < 0 || libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                stack.map_or(Ok(()), limit_stack)
            });
        }
        if !self.is_first() {
            command.stdin(Stdio::null());
        }
    }

    /// Starts the launchers of the other nodes, with this one's command line.
    pub(crate) fn start_others(&mut self) -> Result<(), NodesError> {
        self.start(|command| {
            command.args(std::env::args_os().skip(1));
            Ok(())
        })
    }

    /// Starts the launchers of the other nodes, if they are not there, for the program that this node's process `pid` is. It was started by
    /// a script or a launcher that `args` name, which the other nodes must not run, too: what it does would be done again.
    pub(crate) fn start_others_for(&mut self, pid: i32, args: &RunArgs) -> Result<(), NodesError> {
        self.start(|command| started::same_program(command, pid, args))
    }

    fn start(
        &mut self,
        command_line: impl Fn(&mut Command) -> std::io::Result<()>,
    ) -> Result<(), NodesError> {
        let launcher = std::process::id() as i32;
        for (node, sockets) in std::mem::take(&mut self.others) {
            let failed = |e| NodesError::Start(node, e);
            let mut command = Command::new(std::env::current_exe().map_err(failed)?);
            command_line(&mut command).map_err(failed)?;
            command.env(ENVIRONMENT, format!("{node}:{}", text(&sockets)));
            command.stdin(Stdio::null());
            command.process_group(0);
            inherit(&mut command, sockets.iter().flatten());
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

    /// Closes this launcher's copies of the sockets, so that other nodes see their end when the program has ended.
    pub(crate) fn release(&mut self) {
        self.sockets.clear();
        if let Some((job, [ours, its])) = &mut self.job {
            *its = None;
            if let Some(ours) = ours.take() {
                job.serve(ours);
            }
        }
    }

    /// Returns the processes of the launchers that this one started.
    pub(crate) fn launchers(&self) -> Vec<i32> {
        self.children.iter().map(|child| child.id() as i32).collect()
    }

    /// Ends the other nodes, as the origin's program is over; some of them may have `ended` already. Returns what the run
    /// ends by: where this node ended only because another did, it is that one's ending.
    pub(crate) fn end(&mut self, own: Ending, mut ended: BTreeMap<i32, Ending>) -> Ending {
        if let Some((job, _)) = self.job.take() {
            job.finish();
        }
        let until = Instant::now() + LAST_WAIT;
        for child in &mut self.children {
            let pid = child.id() as i32;
            while let Entry::Vacant(entry) = ended.entry(pid) {
                match child.try_wait() {
                    Ok(None) if Instant::now() <= until => std::thread::sleep(Duration::from_millis(1)),
                    Ok(None) => {
                        let _ = child.kill();
                        let _ = child.wait();
                        break;
                    }
                    Ok(Some(status)) => drop(entry.insert(watch::ending(status.into_raw()))),
                    Err(_) => break,
                }
            }
        }
        if let Ending::Signal(signal) = own
            && self.count > 1
            && self.is_first()
            && !QUIET.contains(&signal)
        {
            eprintln!(
                "atoll: the program was ended on node 0 by signal {signal} ({}), and the other nodes with it",
                signal_text(signal)
            );
        }
        let tells = |ending: &Ending| match ending {
            Ending::Status(status) => ![0, EXIT_NODE].contains(status),
            Ending::Signal(signal) => *signal != libc::SIGKILL,
        };
        match own {
            Ending::Status(EXIT_NODE) => ended.into_values().find(tells).unwrap_or(own),
            _ => own,
        }
    }
}

/// Sets the limit of the main stack, which decides where the stack lies and must be the same on all nodes. Called between fork
/// and exec.
fn limit_stack(soft: u64) -> std::io::Result<()> {
    // SAFETY: plain data, valid for reads and writes; only system calls.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) == 0 && limit.rlim_cur != soft {
            limit.rlim_cur = soft;
            if libc::setrlimit(libc::RLIMIT_STACK, &raw const limit) != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
    }
    Ok(())
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

/// Parses the variable that a launcher wrote: a number, a colon, and the sockets' numbers.
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
