//! The manager: knows what each engine reaches and how fast it is here, chooses one for each transfer and
//! sees it through.
//!
//! Stands on `choice.rs`, `jobs.rs` and `measure.rs`. Each thread that copies has a manager; what was
//! measured is shared by all of a process, and by later ones through `cost_file.rs`.
//!
//! Source: the barrelfish paper, section 6.9.2 (DMA manager) and 6.9.3 (programming model).

use std::io::{self, Write};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::bulk::choice::{Choice, Choices};
use crate::bulk::cost_file::{self, Machine};
use crate::bulk::costs::Costs;
use crate::bulk::engine::Engine;
use crate::bulk::error::CopyError;
use crate::bulk::file::FileIo;
use crate::bulk::helper::Helper;
use crate::bulk::jobs::{Copying, Jobs, piece};
use crate::bulk::measure;
use crate::bulk::memcpy::Memcpy;
use crate::bulk::memory::{Kind, Memory};
use crate::bulk::process::ProcessVm;
use crate::bulk::transfer::Transfer;
use crate::bulk::uring::Uring;

/// What this process has read or measured.
static KNOWN: Mutex<Option<Costs>> = Mutex::new(None);
/// Longest sleep between two looks at everything that is under way.
const SLICE: Duration = Duration::from_millis(100);

/// Copies between registered memories by the engine that is fastest.
///
/// Transfers are finished in any order, each known by its own [`Copying`]; one that needs what another brings
/// is started when that one is finished. Pieces of one transfer arrive in any order, too. Dropped, a manager
/// waits until no engine touches memory any more, but a short time only for other nodes ([`crate::bulk::PutGet`]);
/// what it had not finished ends with [`CopyError::Abandoned`].
///
/// A manager belongs to one thread, and to the process that made it: a forked child makes its own.
pub struct Manager {
    // Before the engines, which wait for what they have under way: nobody else learns of it any more.
    jobs: Jobs,
    engines: Vec<Box<dyn Engine>>,
    choices: Choices,
    costs: Costs,
    /// Which engine is the helper.
    helper: Option<usize>,
    notice: Option<String>,
}

/// The engines of this machine, and what is to be said about one that is not to be had.
fn engines() -> (Vec<Box<dyn Engine>>, Option<String>) {
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    for engine in Memcpy::all() {
        engines.push(Box::new(*engine));
    }
    engines.push(Box::new(ProcessVm));
    engines.push(Box::new(FileIo));
    match Uring::new() {
        Ok(ring) => engines.push(Box::new(ring)),
        Err(e) => {
            let notice = format!("io_uring is refused here ({e}): files are copied by pread and pwrite");
            return (engines, Some(notice));
        }
    }
    (engines, None)
}

impl Manager {
    /// One with the engines of this machine. The first on a machine measures them, in less than half a
    /// second, and keeps what it found in `atoll` in the user's cache folder (`XDG_CACHE_HOME`, `~/.cache`),
    /// if there is one. If io_uring is refused, the first of a process says so on standard error.
    pub fn new() -> Manager {
        static NOTICE: Once = Once::new();
        let (mut engines, notice) = engines();
        let costs = known(&mut engines);
        if let Some(notice) = &notice {
            // Whether or not somebody can read it.
            NOTICE.call_once(|| drop(writeln!(io::stderr(), "atoll: {notice}")));
        }
        Manager { notice, ..Manager::with(engines, costs) }
    }

    /// One with engines and costs as given, which reads, measures and says nothing.
    pub fn with(engines: Vec<Box<dyn Engine>>, costs: Costs) -> Manager {
        let choices = Choices::new(&engines, &costs);
        Manager { jobs: Jobs::default(), choices, engines, costs, helper: None, notice: None }
    }

    /// What is missing here and what is done instead, in a line; none if nothing is.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// The engines it has, by name.
    pub fn engines(&self) -> impl Iterator<Item = &'static str> {
        self.engines.iter().map(|engine| engine.name())
    }

    /// An engine of its own, to use directly. First waits for all transfers that are under way.
    pub fn engine(&mut self, name: &str) -> Option<&mut dyn Engine> {
        // With transfers of its own under way, an engine would tell their ends to somebody else.
        while self.jobs.len() > 0 {
            self.progress(SLICE);
        }
        self.engines.iter_mut().find(|engine| engine.name() == name).map(|engine| &mut **engine as _)
    }

    /// Adds an engine: one of a transport. It is chosen for what no other reaches, and where it was measured
    /// (`measure`) for what it is fastest for.
    pub fn add(&mut self, engine: Box<dyn Engine>) {
        self.engines.push(engine);
        self.choices = Choices::new(&self.engines, &self.costs);
    }

    /// Starts a thread that copies what is started here (`start`) between mappings, and between a mapping and
    /// another process, but for small transfers. Without one such copies are made in `progress` and `wait`,
    /// by who calls them.
    pub fn add_helper(&mut self) -> io::Result<()> {
        if self.helper.is_none() {
            let helper = Helper::new(*self.choices.loops.of(4 << 20))?;
            self.helper = Some(self.engines.len());
            self.add(Box::new(helper));
        }
        Ok(())
    }

    /// Measures an engine between two memories, of which the first is overwritten, and chooses by that from
    /// now on between memories of these kinds.
    pub fn measure(&mut self, name: &str, to: &Memory, from: &Memory) -> Result<(), CopyError> {
        let Some(engine) = self.engine(name) else { return Ok(()) };
        let curve = measure::between(engine, to, from)?;
        self.costs.set(curve);
        self.choices = Choices::new(&self.engines, &self.costs);
        Ok(())
    }

    /// Measures all engines anew, as far as this machine alone can, and keeps what it finds as `new` does:
    /// for a machine that was busy when it was measured first.
    pub fn measure_again(&mut self) {
        while self.jobs.len() > 0 {
            self.progress(SLICE);
        }
        take(&mut self.engines, &mut self.costs, true);
        self.choices = Choices::new(&self.engines, &self.costs);
        if let Some(folder) = cost_file::folder() {
            let _ = cost_file::write(&folder, &Machine::this(), &self.costs);
        }
        *KNOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.costs.clone());
    }

    /// What engines take here, as far as it is known.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Which engine would make such a transfer, in what time, and which others could.
    pub fn why(&self, to: &Memory, from: &Memory, bytes: u64) -> Result<Choice, CopyError> {
        let engine = self.choose(to, from, bytes)?;
        let time = |index: usize| (self.engines[index].name(), self.choices.predict(index, to, from, bytes));
        let others =
            (0..self.engines.len()).filter(|i| *i != engine && self.engines[*i].reaches(to, from)).map(time);
        let depth = self.engines[engine].depth();
        let (name, microseconds) = time(engine);
        let pieces = if depth > 1 { bytes.div_ceil(piece(depth, bytes)).max(1) } else { 1 };
        Ok(Choice { engine: name, microseconds, pieces, others: others.collect() })
    }

    fn choose(&self, to: &Memory, from: &Memory, bytes: u64) -> Result<usize, CopyError> {
        if (to.kind(), from.kind()) == (Kind::Mapping, Kind::Mapping) {
            let name = self.choices.loops.of(bytes).name();
            if let Some(index) = self.engines.iter().position(|engine| engine.name() == name) {
                return Ok(index);
            }
        }
        let unreachable = CopyError::Unreachable { from: from.kind().name(), to: to.kind().name() };
        // The helper, which nobody measured, comes last: who waits for a copy makes it no slower himself.
        self.choices.fastest(&self.engines, to, from, bytes).ok_or(unreachable)
    }

    /// Copies `bytes` from `from_offset` of `from` to `to_offset` of `to`, and returns when that is finished.
    /// Between mappings it costs the checks of the ranges and the copy.
    #[inline]
    pub fn copy(
        &mut self,
        to: &Memory,
        to_offset: u64,
        from: &Memory,
        from_offset: u64,
        bytes: u64,
    ) -> Result<(), CopyError> {
        let transfer = Transfer::new(to, to_offset, from, from_offset, bytes)?;
        if self.choices.loops.of(bytes).run(&transfer) {
            return Ok(());
        }
        self.copy_by_engine(&transfer)
    }

    #[cold]
    fn copy_by_engine(&mut self, transfer: &Transfer<'_>) -> Result<(), CopyError> {
        let index = self.choose(transfer.to(), transfer.from(), transfer.bytes())?;
        let depth = self.engines[index].depth();
        if depth <= 1 || (self.jobs.len() == 0 && transfer.bytes() <= piece(depth, transfer.bytes())) {
            return self.engines[index].copy(transfer);
        }
        let copying = self.jobs.add(transfer, index, depth);
        loop {
            if let Some(outcome) = copying.outcome() {
                return outcome;
            }
            self.progress(SLICE);
        }
    }

    /// Starts a copy. A small one between mappings is finished when this returns; all others go on in
    /// `progress` and `wait`.
    pub fn start(
        &mut self,
        to: &Memory,
        to_offset: u64,
        from: &Memory,
        from_offset: u64,
        bytes: u64,
    ) -> Result<Copying, CopyError> {
        const SMALL: u64 = 256 << 10;
        let transfer = Transfer::new(to, to_offset, from, from_offset, bytes)?;
        if bytes <= SMALL && self.choices.loops.of(bytes).run(&transfer) {
            return Ok(Copying::done());
        }
        let helper = self.helper.filter(|i| bytes > SMALL && self.engines[*i].reaches(to, from));
        let index = helper.map_or_else(|| self.choose(to, from, bytes), Ok)?;
        let depth = self.engines[index].depth();
        let copying = self.jobs.add(&transfer, index, depth);
        // What the kernel or a network does goes on from here without us.
        if depth > 1 {
            self.progress(Duration::ZERO);
        }
        Ok(copying)
    }

    /// Lets all transfers go on, and waits for one of them up to `wait` if none can without waiting. Returns
    /// how many are under way.
    pub fn progress(&mut self, wait: Duration) -> usize {
        self.jobs.progress(&mut self.engines, wait);
        self.jobs.len()
    }

    /// Waits for a transfer that was started here, at most for `timeout` (none is for ever). None: it is not
    /// finished yet.
    pub fn wait(&mut self, copying: &Copying, timeout: Option<Duration>) -> Option<Result<(), CopyError>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(outcome) = copying.outcome() {
                return Some(outcome);
            }
            let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()).min(SLICE));
            // Another manager's transfer never ends here.
            if self.progress(left) == 0 || (left.is_zero() && end.is_some()) {
                return copying.outcome();
            }
        }
    }
}

impl Default for Manager {
    fn default() -> Manager {
        Manager::new()
    }
}

/// What engines take here: from this process, from the cache, or measured now.
fn known(engines: &mut [Box<dyn Engine>]) -> Costs {
    let all = |costs: &Costs, engines: &[Box<dyn Engine>]| engines.iter().all(|e| costs.tried(e.name()));
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(costs) = known.as_ref().filter(|costs| all(costs, engines)) {
        return costs.clone();
    }
    let (folder, machine) = (cost_file::folder(), Machine::this());
    let read = folder.as_deref().and_then(|folder| cost_file::read(folder, &machine));
    let mut costs = read.unwrap_or_default();
    if !all(&costs, engines) {
        take(engines, &mut costs, false);
        if let Some(folder) = &folder {
            // Without it the next process measures again.
            let _ = cost_file::write(folder, &machine, &costs);
        }
    }
    *known = Some(costs.clone());
    costs
}

/// Measures engines, all of them or those that were not tried yet.
fn take(engines: &mut [Box<dyn Engine>], costs: &mut Costs, again: bool) {
    for curve in measure::measure(engines, |name| again || !costs.tried(name)) {
        costs.set(curve);
    }
    engines.iter().for_each(|engine| costs.note(engine.name()));
}
