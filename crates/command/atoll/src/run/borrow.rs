//! The lenders of a run with `--far hosts`: finds them, begins a session with each, and looks after them while the program runs.
//!
//! `--far auto` borrows of those that answer at once, and does without where there are none.
//!
//! `launch` calls it. The program's workers move the pages themselves, by `far/hosts/` of `atoll-memory`; what they must know of the
//! lenders lies in the control block.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use atoll_lend::{Card, Control, Directory, DirectoryError, Keeper, Loss, Watch};
use atoll_memory::control::{self, EXIT_FAR};
use atoll_memory::far::FarSpec;
use atoll_memory::far::hosts::lenders::{FIRST_LENDERS, Label, LenderSettings, LendersSettings};
use atoll_memory::signals::SignalsBlocked;

use crate::cli::RunArgs;
use crate::lend::{self, ForRun, JobError};
use crate::machine;

/// Round trips by which lenders are put in order.
const TRIPS: usize = 9;
/// How long the start of a run waits for lenders that nobody asked for.
const AT_ONCE: Duration = Duration::from_millis(300);
/// The round trip from which on such a lender is left alone: a disk is as near.
const AS_FAR_AS_A_DISK: Duration = Duration::from_millis(1);

/// The reason why a run has no lenders.
#[derive(thiserror::Error, Debug)]
pub(crate) enum BorrowError {
    /// The folder of lenders is of no use.
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    /// There are no lenders.
    #[error(
        "--far hosts needs a lender, and nobody lends: start one on another host with `atoll lend SIZE` \
         (`atoll lenders` lists them)"
    )]
    Nobody,
    /// There are lenders, but none answers.
    #[error("--far hosts needs a lender, and none of {0} answers; the last says: {1}")]
    Silent(usize, String),
    /// There are fewer lenders than copies.
    #[error(
        "--far-copies 2 needs two lenders on different hosts, and only {0} lends: start another one with `atoll lend SIZE`"
    )]
    OneHost(String),
    /// The processes of the job do not lend.
    #[error("{0}")]
    Job(#[from] JobError),
    /// The lenders cannot be looked after.
    #[error("the lenders cannot be looked after: {0}")]
    Os(#[from] std::io::Error),
}

/// A lender with which a session has begun.
struct Found {
    card: Card,
    settings: LenderSettings,
    control: Control,
    trip: Duration,
}

/// What the launcher does about its lenders while the program runs.
struct Watching {
    control: &'static control::Control,
    /// Those that may come back.
    cards: Vec<Card>,
    /// The key of those that were started for this run: they come back where they were.
    key_of_run: Option<[u8; 32]>,
    borrower: String,
}

impl Watch for Watching {
    fn lost(&self, loss: Loss) {
        lost(self.control, &loss);
    }

    fn find(&self, settings: &LenderSettings) -> Option<(Control, LenderSettings, Duration)> {
        let label = settings.label;
        let before = self.cards.iter().find(|card| Label::new(&card.label()) == label)?;
        let found = match &self.key_of_run {
            Some(key) => open(before, key, &self.borrower).ok()?,
            None => {
                let directory = Directory::open().ok()?;
                // One that was started anew has the same name, and may be on another host.
                let card = directory.cards().ok()?.into_iter().find(|card| card.name == before.name)?;
                open(&card, &directory.secret().ok()?.key(), &self.borrower).ok()?
            }
        };
        Some((found.control, found.settings, found.trip))
    }

    fn is_back(&self, settings: &'static LenderSettings) {
        eprintln!("atoll: the lender {} is there again, and is used", settings.label);
    }
}

/// The lenders of a run that has not started yet.
pub(crate) struct Borrowed {
    /// Who borrows, as lenders list it.
    borrower: String,
    found: Vec<Found>,
    copies: u32,
    /// The lenders that were started for this run.
    of_run: Option<ForRun>,
}

impl Borrowed {
    /// Begins a session with each lender that answers, if the run's far memory is in other hosts, or may be.
    pub(crate) fn prepare(args: &RunArgs) -> Result<Option<Borrowed>, BorrowError> {
        let mut of_run = None;
        let (cards, key) = if !args.hosts_far.is_empty() {
            let started = if lend::is_of_job(args) { ForRun::of_job()? } else { ForRun::start(args)? };
            let started = of_run.insert(started);
            (started.cards.clone(), started.key)
        } else if args.memory.far == FarSpec::Hosts {
            let directory = Directory::open()?;
            (directory.cards()?, directory.secret()?.key())
        } else if args.memory.far == FarSpec::Auto {
            return Ok(Self::at_once(args));
        } else {
            return Ok(None);
        };
        let borrower = who(args);
        let mut last = None;
        // All at once: one that does not answer takes seconds.
        let found: Vec<Found> = thread::scope(|scope| {
            let opened: Vec<_> =
                cards.iter().map(|card| scope.spawn(|| open(card, &key, &borrower))).collect();
            let joined = opened.into_iter().filter_map(|thread| thread.join().ok());
            joined.filter_map(|found| found.map_err(|error| last = Some(error)).ok()).collect()
        });
        if found.is_empty() {
            return Err(last.map_or(BorrowError::Nobody, |error| BorrowError::Silent(cards.len(), error)));
        }
        Self::of(args, borrower, found, of_run).map(Some)
    }

    /// Orders the lenders with which a session has begun, at least one.
    fn of(
        args: &RunArgs,
        borrower: String,
        mut found: Vec<Found>,
        of_run: Option<ForRun>,
    ) -> Result<Borrowed, BorrowError> {
        found.sort_by_key(|found| found.trip);
        found.truncate(FIRST_LENDERS);
        let copies = args.memory.far_copies;
        if copies > 1 && found.iter().all(|one| one.card.host == found[0].card.host) {
            return Err(BorrowError::OneHost(found[0].card.host.clone()));
        }
        Ok(Borrowed { borrower, found, copies, of_run })
    }

    /// Begins a session with each lender on another host that answers at once. Where the folder is of no use, nobody answers, or there
    /// are too few for the copies that are asked for, the run does without: nobody has asked for lenders.
    fn at_once(args: &RunArgs) -> Option<Borrowed> {
        let directory = Directory::find()?;
        let here = machine::host();
        let until = Instant::now() + AT_ONCE;
        let cards = directory.cards_within(AT_ONCE).ok()?.into_iter();
        let cards: Vec<Card> = cards.filter(|card| card.host != here).collect();
        if cards.is_empty() {
            return None;
        }
        let (key, borrower) = (directory.secret().ok()?.key(), who(args));
        let (tell, told) = mpsc::channel();
        for card in cards {
            let (tell, borrower) = (tell.clone(), borrower.clone());
            // A lender for which no thread can be made is one that does not answer.
            let _ = thread::Builder::new().name("lenders".into()).spawn(move || {
                // The run goes on without those that are late, and signals are for the launcher's own thread.
                let _blocked = SignalsBlocked::new();
                if let Ok(found) = open(&card, &key, &borrower) {
                    // A session that begins too late ends here.
                    let _ = tell.send(found);
                }
            });
        }
        drop(tell);
        let next = || told.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        let page = args.page.bytes() as u64;
        let is_of_use = |found: &Found| found.control.piece_bytes() >= page && found.trip < AS_FAR_AS_A_DISK;
        let found: Vec<Found> = std::iter::from_fn(next).filter(is_of_use).collect();
        if found.is_empty() {
            return None;
        }
        Self::of(args, borrower, found, None).ok()
    }

    /// What the program must know of the lenders.
    pub(crate) fn settings(&self) -> LendersSettings {
        let mut settings = LendersSettings { copies: self.copies, ..LendersSettings::NONE };
        for (to, found) in settings.each.iter_mut().zip(&self.found) {
            *to = found.settings;
            settings.count += 1;
        }
        settings
    }

    /// The process that started lenders for this run.
    pub(crate) fn process(&self) -> Option<i32> {
        self.of_run.as_ref().and_then(ForRun::process)
    }

    /// Looks after the lenders of the run of `control`, until the result is dropped.
    pub(crate) fn keep(self, control: &'static control::Control) -> Result<Keeper, BorrowError> {
        for ((_, figures), found) in control.lenders().all().zip(&self.found) {
            figures.round_trip_ns.store(found.trip.as_nanos() as u64, Ordering::Relaxed);
            figures.free_bytes.store(u64::MAX, Ordering::Relaxed);
        }
        let (mut controls, mut cards) = (Vec::new(), Vec::new());
        for found in self.found {
            controls.push(found.control);
            cards.push(found.card);
        }
        let key_of_run = self.of_run.as_ref().map(|of_run| of_run.key);
        let watch = Watching { control, cards, key_of_run, borrower: self.borrower };
        Ok(Keeper::start(control.lenders(), controls, watch)?)
    }
}

/// Who borrows, as the lender lists it.
fn who(args: &RunArgs) -> String {
    let program = args.program.words.first().map(|word| word.to_string_lossy().into_owned());
    let program = program.unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    format!("{program} on {}, process {}", machine::host(), std::process::id())
}

fn open(card: &Card, key: &[u8; 32], borrower: &str) -> Result<Found, String> {
    let failed = |error: atoll_lend::ControlError| format!("{}: {error}", card.label());
    let (mut control, address) = card.open(key).map_err(failed)?;
    control.introduce(borrower).map_err(failed)?;
    let (trip, _) = control.measure(TRIPS).map_err(failed)?;
    let settings =
        LenderSettings::new(&card.label(), address, control.session(), control.key(), control.piece_bytes());
    Ok(Found { card: card.clone(), settings, control, trip })
}

/// Tells of a lost lender. Where pages were there and nowhere else, the run is over: it would come to one of them sooner or later.
fn lost(control: &'static control::Control, loss: &Loss) {
    let pages = loss.figures.pages_held.load(Ordering::Relaxed);
    let label = loss.settings.label;
    let alone = control.settings.lenders.copies < 2;
    if !alone || pages == 0 {
        eprintln!("atoll: the lender {label} is lost: {}; the run goes on without it", loss.why);
        return;
    }
    if control.failure.compare_exchange(0, EXIT_FAR, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        // Who gave up before ends the program, once it has said why.
        return;
    }
    eprintln!(
        "atoll: far memory: the lender {label} is lost: {}; {pages} pages of this program were there and nowhere else \
         (--far-copies 2 keeps two copies)",
        loss.why
    );
    let program = control.program.load(Ordering::Relaxed);
    if program > 0 {
        // SAFETY: no pointers. The process is this launcher's program, which nobody else waits for.
        unsafe { libc::kill(program, libc::SIGKILL) };
    }
}
