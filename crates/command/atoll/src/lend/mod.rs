//! `atoll lend` and `atoll lenders`: this host's memory for runs on others, and who lends.
//!
//! The crate `atoll-lend` has the lender; `run/borrow.rs` is the other side.

mod for_run;
mod list;
mod of_job;
mod worker;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use atoll_lend::{Card, ControlError, Directory, DirectoryError, LendError, Lender, Terms};
use atoll_memory::control::EXIT_SETUP;
use atoll_memory::far;
use atoll_memory::far::hosts::wire::Status;

pub(crate) use self::for_run::{ForRun, start_all};
pub(crate) use self::list::list;
pub(crate) use self::of_job::{JobError, is_of_job, lend as lend_to_job};
pub(crate) use self::worker::work;
use crate::cli::LendArgs;
use crate::machine;
use crate::run::network;
use crate::run::summary::bytes;

/// The time between two looks whether all that was lent is back, in milliseconds.
const PERIOD: i64 = 100;
/// How long a lender that ends waits until runs have heard of that.
const HEARING: Duration = Duration::from_secs(1);

/// The reason why this host does not lend.
#[derive(thiserror::Error, Debug)]
enum Error {
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    #[error("{0}")]
    Lend(#[from] LendError),
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
    #[error("no lender called `{0}` is at work (`atoll lenders` lists them)")]
    Unknown(String),
    #[error("{0}: {1}")]
    Refused(String, ControlError),
    #[error("{0} cannot lend {1}: that is less than the pieces that it lends")]
    TooLittle(String, String),
    #[error("this lender cannot reach the run that started it: {0}")]
    Start(#[from] atoll_transport::start::StartError),
    #[error("the process that is to lend cannot be started and watched: {0}")]
    Sockets(#[from] atoll_channel::host::DirectoryError),
    #[error("the process that is to lend cannot be started and watched: {0}")]
    Service(#[from] atoll_channel::spawn::StartError),
    #[error("the process that is to lend cannot be started and watched: {0}")]
    Spawn(#[from] atoll_channel::spawn::ClientError),
    #[error("this command is for the processes that lend to a run: {0}")]
    Parent(#[from] atoll_channel::spawn::ParentError),
    #[error("the process that started this lender is another version of atoll")]
    Letter,
    #[error("the lender {0} was ended by {1}")]
    Ended(String, atoll_channel::spawn::Exit),
    #[error("atoll's own file, which is to lend, cannot be found: {0}")]
    Own(std::io::Error),
}

/// Lends until a signal comes.
pub(crate) fn lend(args: &LendArgs) -> ExitCode {
    let work = match args {
        LendArgs { for_run: true, .. } => for_run::lend,
        LendArgs { resize: true, .. } => resize,
        _ => try_to_lend,
    };
    match work(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

fn try_to_lend(args: &LendArgs) -> Result<(), Error> {
    // Blocked before any thread is made, so that only this one hears of them.
    let signals = Ends::block().map_err(Error::Signals)?;
    let directory = Directory::open()?;
    let key = directory.secret()?.key();
    let host = machine::host();
    let name = args.name.clone().unwrap_or_else(|| plain(&host));
    let listen = args.listen.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
    let terms = Terms {
        free_bytes: args.keep_free.map(|size| size.0),
        patience: Duration::from_secs(args.within),
        // Where there is no disk, runs that do not give memory back in time lose it.
        files: far::default_dir().ok(),
        ..Terms::new(&name, args.size.0, key)
    };
    let lender = Lender::start(terms, listen)?;
    let card = card(host, &lender);
    lender.keep_name(&card);
    let entered = directory.enter(&card, &key)?;
    let at: Vec<String> = card.addresses.iter().map(SocketAddr::to_string).collect();
    eprintln!("atoll: {} lends {} at {}; Ctrl-C ends this", card.label(), bytes(args.size.0), at.join(", "));
    if card.addresses.iter().all(|address| address.ip().is_loopback()) {
        eprintln!("atoll: no network of this host is up, so only this host can borrow");
    }
    for untold in entered.untold() {
        eprintln!("atoll: {untold}; it is told of this lender when it can be");
    }
    signals.wait();
    drop(entered);
    lender.close();
    let lent = lender.lent_bytes();
    if lent > 0 {
        eprintln!(
            "atoll: {} lends nothing more, and ends when runs have moved what they have of it, {} (a second signal ends it at once)",
            card.label(),
            bytes(lent)
        );
    }
    // Runs that have nothing of it hear that it ends, and do not take it for lost.
    let until = Instant::now() + HEARING;
    let waits = || lender.lent_bytes() > 0 || (!lender.end_is_known() && Instant::now() < until);
    while waits() && !signals.came_within(PERIOD) {}
    let lost = lender.lent_bytes() + lender.taken_bytes();
    drop(lender);
    if lost > 0 {
        eprintln!("atoll: {} has ended, and runs have lost {} that lay there", card.label(), bytes(lost));
    } else {
        eprintln!("atoll: {} has ended", card.label());
    }
    Ok(())
}

/// Has a lender that is at work lend another amount.
fn resize(args: &LendArgs) -> Result<(), Error> {
    let directory = Directory::open()?;
    let name = args.name.clone().unwrap_or_else(|| plain(&machine::host()));
    let card = directory.cards()?.into_iter().find(|card| card.name == name);
    let card = card.ok_or(Error::Unknown(name))?;
    let label = card.label();
    let refused = |error| Error::Refused(label.clone(), error);
    let (mut control, _) = card.open(&directory.secret()?.key()).map_err(refused)?;
    let size = bytes(args.size.0);
    match control.resize(args.size.0) {
        Ok(()) => {}
        Err(ControlError::Refused(Status::Range)) => return Err(Error::TooLittle(label, size)),
        Err(error) => return Err(refused(error)),
    }
    let report = control.report().map_err(refused)?;
    let wanted: u64 = report.loans.iter().map(|loan| loan.wanted_bytes).sum();
    match wanted {
        0 => eprintln!("atoll: {label} lends {size} from now on"),
        _ => eprintln!(
            "atoll: {label} lends {size} from now on, and runs move {} of what they have of it",
            bytes(wanted)
        ),
    }
    Ok(())
}

/// What a lender tells those who look for one.
fn card(host: String, lender: &Lender) -> Card {
    lender.card(host, addresses(lender.address()))
}

/// A host's name as a lender's: with what a lender's name may have.
fn plain(host: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let name: String = host.chars().filter(fits).take(40).collect();
    let name = name.trim_start_matches('.');
    if name.is_empty() { "lender".to_owned() } else { name.to_owned() }
}

/// Where others can reach a lender that listens at `bound`.
fn addresses(bound: SocketAddr) -> Vec<SocketAddr> {
    if !bound.ip().is_unspecified() {
        return vec![bound];
    }
    let networks = network::networks();
    let all = networks.iter().map(network::Network::address).chain([Ipv4Addr::LOCALHOST]);
    all.map(|ip| SocketAddr::new(IpAddr::V4(ip), bound.port())).collect()
}

/// The signals that end a lender.
struct Ends(libc::sigset_t);

impl Ends {
    fn block() -> std::io::Result<Ends> {
        // SAFETY: a set that is filled before it is used.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
                0 => Ok(Ends(set)),
                error => Err(std::io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Whether a signal comes within this time.
    fn came_within(&self, milliseconds: i64) -> bool {
        let time = libc::timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
        // SAFETY: the set is filled; the kernel tells nothing of the signal.
        unsafe { libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const time) > 0 }
    }

    /// Waits until one comes.
    fn wait(&self) {
        let mut signal = 0;
        // SAFETY: the set is filled, and the number is valid for writes.
        while unsafe { libc::sigwait(&raw const self.0, &raw mut signal) } != 0 {}
    }
}
