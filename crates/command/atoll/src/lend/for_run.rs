//! Lenders for one run: `atoll run --hosts-far b,c` starts one on each host, as it starts nodes, and they end with the run. `of_job` has
//! those that a job's own starter started.
//!
//! The run's launcher starts `atoll start-lenders`, a process of its own, as the launcher of a job has children and signals that a
//! program's launcher must not share. That one launches `atoll lend --for-run` on the hosts, gets their addresses by the job's exchange, and
//! prints them, with the job's secret, into a pipe to the launcher.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use atoll_lend::{Card, Secret};
use atoll_memory::control::EXIT_SETUP;
use atoll_transport::start::{self, Launch, LaunchError, Rsh, Start};
use serde::{Deserialize, Serialize};

use super::worker::Watched;
use super::{Ends, Error};
use crate::cli::{LendArgs, RunArgs, StartLendersArgs};
use crate::machine;

/// How long lenders wait for each other, and for the run.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// The most that a lender of one run lends. It decides what its host can spare when it is asked.
pub(super) const MOST_BYTES: u64 = 64 << 40;

/// What the launcher must know of the lenders of its run.
#[derive(Serialize, Deserialize)]
struct Started {
    secret: [u8; 32],
    cards: Vec<Card>,
}

/// Lends to the run of whose job this process is a node, until the run ends.
pub(super) fn lend(args: &LendArgs) -> Result<(), Error> {
    let signals = Ends::block().map_err(Error::Signals)?;
    lend_to_job(Start::detect(Some(TIMEOUT))?, args.size.0, args.listen, &signals)
}

/// Lends up to `most` bytes to the run of whose job this process is a node, until the run or a signal ends that.
pub(super) fn lend_to_job(
    mut start: Start,
    most: u64,
    listen: Option<SocketAddr>,
    signals: &Ends,
) -> Result<(), Error> {
    let key = Secret::of(*start.secret().bytes()).key();
    let host = machine::host();
    let listen = listen.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
    let lender = Watched::start(&host, most, key, listen)?;
    let mine = lender.card(host)?;
    // All parts of a card have an encoding.
    start.exchange(&serde_json::to_vec(&mine).unwrap_or_default(), Some(TIMEOUT))?;
    lender.watch(signals)
}

/// Lenders that were started for a run. They end when their sessions have ended.
pub(crate) struct ForRun {
    pub(crate) cards: Vec<Card>,
    pub(crate) key: [u8; 32],
    /// What started them, where this run did.
    pub(super) child: Option<Child>,
}

impl ForRun {
    /// Starts a lender on each host of `--hosts-far`.
    ///
    /// # Errors
    /// The system's refusal to start a process. What went wrong on a host was printed already.
    pub(crate) fn start(args: &RunArgs) -> io::Result<ForRun> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("start-lenders").args(args.hosts_far.iter().map(|host| format!("--host={host}")));
        command.args(args.rsh.iter().map(|rsh| format!("--rsh={rsh}")));
        if let Some(remote) = &args.remote {
            command.arg("--remote").arg(remote);
        }
        // The terminal's signals are for the program, which may go on after them and needs its pages.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        let launcher = std::process::id() as i32;
        // SAFETY: only system calls, between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                if libc::getppid() != launcher {
                    libc::_exit(EXIT_SETUP);
                }
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        let mut line = String::new();
        if let Some(pipe) = child.stdout.take() {
            BufReader::new(pipe).read_line(&mut line)?;
        }
        match serde_json::from_str::<Started>(&line) {
            Ok(Started { secret, cards }) => {
                Ok(ForRun { cards, key: Secret::of(secret).key(), child: Some(child) })
            }
            Err(_) => {
                let _ = child.wait();
                Err(io::Error::other("no lender was started on the hosts of --hosts-far"))
            }
        }
    }

    /// The process that the launcher has besides the program, if there is one.
    pub(crate) fn process(&self) -> Option<i32> {
        self.child.as_ref().map(|child| child.id() as i32)
    }
}

/// Starts the lenders of a run, tells their addresses on standard output, and stays until they have ended.
pub(crate) fn start_all(args: &StartLendersArgs) -> ExitCode {
    match launch(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

fn launch(args: &StartLendersArgs) -> Result<ExitCode, LaunchError> {
    let atoll: PathBuf = match &args.remote {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(|e| LaunchError::Os("where atoll is", e))?,
    };
    let secret = start::Secret::random().map_err(|e| LaunchError::Os("getrandom", e))?;
    let (tell, told) = channel();
    let mut launch = Launch::new(args.host.clone(), &atoll, vec![atoll.clone().into(), "agent".into()]);
    launch.arguments = vec!["lend".into(), "--for-run".into(), MOST_BYTES.to_string().into()];
    launch.directory = Some(PathBuf::from("/"));
    launch.secret = Some(secret.clone());
    launch.gathered = Some(tell);
    if let Some(line) = &args.rsh {
        launch.rsh = Rsh::parse(line)?;
    }
    let secret = *secret.bytes();
    let teller = std::thread::spawn(move || {
        // The first exchange tells machines apart, the second has the cards.
        let _ = told.recv();
        let Ok(given) = told.recv() else { return };
        let cards = given.iter().filter_map(|bytes| serde_json::from_slice(bytes).ok()).collect();
        if let Ok(text) = serde_json::to_string(&Started { secret, cards }) {
            let mut out = io::stdout().lock();
            let _ = writeln!(out, "{text}").and_then(|()| out.flush());
        }
    });
    let outcome = launch.run()?;
    drop(launch);
    let _ = teller.join();
    Ok(match &outcome.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            eprintln!("atoll: a lender of --hosts-far: {failure}");
            ExitCode::from(outcome.status())
        }
    })
}
