//! The manager: knows which memory each engine reaches and how fast it is on this machine, chooses one for each transfer and
//! completes the transfer.
//!
//! Stands on `choice.rs`, `jobs.rs` and `measure.rs`. Each thread that copies has a manager; measured costs are shared by a
//! process, and with later ones through `cost_file.rs`.
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

/// The costs that this process has read or measured.
static KNOWN: Mutex<Option<Costs>> = Mutex::new(None);
/// The longest sleep between two looks at all transfers under way.
const SLICE: Duration = Duration::from_millis(100);

/// Copies between registered memories by the fastest engine.
///
/// Transfers are finished in any order, each known by its own [`Copying`]. A transfer that needs the result of another is
/// started when that one is finished. Pieces of one transfer arrive in any order, too. A manager that is dropped waits until no
/// engine uses memory any more, though only a short time for other nodes ([`crate::bulk::PutGet`]); transfers that it had not
/// finished end with [`CopyError::Abandoned`].
///
/// A manager belongs to one thread, and to the process that made it: a forked child makes its own.
pub struct Manager {
    // Dropped before the engines, which wait for what they have under way: nobody can learn of its end any more.
    jobs: Jobs,
    engines: Vec<Box<dyn Engine>>,
    choices: Choices,
    costs: Costs,
    /// The index of the helper engine.
    helper: Option<usize>,
    notice: Option<String>,
}

/// The engines of this machine, and a notice about one that cannot be used.
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
    /// A manager with the engines of this machine. The first on a machine measures them, in less than half a second, and keeps
    /// the result in `atoll` in the user's cache folder (`XDG_CACHE_HOME`, `~/.cache`), if there is one. If io_uring is
    /// refused, the first manager of a process says so on standard error.
    pub fn new() -> Manager {
        static NOTICE: Once = Once::new();
        let (mut engines, notice) = engines();
        let costs = known(&mut engines);
        if let Some(notice) = &notice {
            // Errors of printing are ignored.
            NOTICE.call_once(|| drop(writeln!(io::stderr(), "atoll: {notice}")));
        }
        Manager { notice, ..Manager::with(engines, costs) }
    }

    /// A manager with these engines and costs, which reads, measures and prints nothing.
    pub fn with(engines: Vec<Box<dyn Engine>>, costs: Costs) -> Manager {
        let choices = Choices::new(&engines, &costs);
        Manager { jobs: Jobs::default(), choices, engines, costs, helper: None, notice: None }
    }

    /// The notice about an engine that cannot be used and its substitute; `None` if all can be used.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// The names of its engines.
    pub fn engines(&self) -> impl Iterator<Item = &'static str> {
        self.engines.iter().map(|engine| engine.name())
    }

    /// The engine with this name, to be used directly. Waits for all transfers under way first.
    pub fn engine(&mut self, name: &str) -> Option<&mut dyn Engine> {
        // While an engine has transfers under way, it would report their ends to the caller.
        while self.jobs.len() > 0 {
            self.progress(SLICE);
        }
        self.engines.iter_mut().find(|engine| engine.name() == name).map(|engine| &mut **engine as _)
    }

    /// Adds an engine, such as a transport's. It is chosen for memory that no other engine reaches, and, where it was measured
    /// (`measure`), for transfers that it is fastest for.
    pub fn add(&mut self, engine: Box<dyn Engine>) {
        self.engines.push(engine);
        self.choices = Choices::new(&self.engines, &self.costs);
    }

    /// Starts a thread for all but small transfers that are started here (`start`) between mappings, and between a mapping and
    /// another process. Without it such copies are made in `progress` and `wait`, in the calling thread.
    pub fn add_helper(&mut self) -> io::Result<()> {
        if self.helper.is_none() {
            let helper = Helper::new(*self.choices.loops.of(4 << 20))?;
            self.helper = Some(self.engines.len());
            self.add(Box::new(helper));
        }
        Ok(())
    }

    /// Measures an engine between two memories, of which the first is overwritten, and uses the result from now on between
    /// memories of these kinds.
    pub fn measure(&mut self, name: &str, to: &Memory, from: &Memory) -> Result<(), CopyError> {
        let Some(engine) = self.engine(name) else { return Ok(()) };
        let curve = measure::between(engine, to, from)?;
        self.costs.set(curve);
        self.choices = Choices::new(&self.engines, &self.costs);
        Ok(())
    }

    /// Measures all engines again, as far as this machine alone can, and keeps the result as `new` does. For a machine that was
    /// busy at the first measurement.
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

    /// The times that engines take, as far as they are known.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The engine that would make such a transfer, its time, and the other engines that could.
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
        // The helper, which is not measured, comes last: a caller that waits for a copy copies no slower itself.
        self.choices.fastest(&self.engines, to, from, bytes).ok_or(unreachable)
    }

    /// Copies `bytes` from `from_offset` of `from` to `to_offset` of `to`, and returns when that is finished. Between mappings
    /// the cost is that of checking the ranges and copying.
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

    /// Starts a copy. A small one between mappings is finished when this returns; all others continue in `progress` and `wait`.
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
        // A copy by the kernel or a network goes on from here by itself.
        if depth > 1 {
            self.progress(Duration::ZERO);
        }
        Ok(copying)
    }

    /// Moves all transfers on, and waits for one of them for at most `wait` if none can move without waiting. Returns the
    /// number of transfers under way.
    pub fn progress(&mut self, wait: Duration) -> usize {
        self.jobs.progress(&mut self.engines, wait);
        self.jobs.len()
    }

    /// Waits for a transfer that was started here, for at most `timeout` (`None`: for ever). Returns `None` if it is not
    /// finished yet.
    pub fn wait(&mut self, copying: &Copying, timeout: Option<Duration>) -> Option<Result<(), CopyError>> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(outcome) = copying.outcome() {
                return Some(outcome);
            }
            let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()).min(SLICE));
            // A transfer of another manager never ends here.
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

/// The costs of these engines: from this process, from the cache file, or measured now.
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
            // If writing fails, the next process measures again.
            let _ = cost_file::write(folder, &machine, &costs);
        }
    }
    *known = Some(costs.clone());
    costs
}

/// Measures engines: all if `again`, otherwise those that were not tried yet.
fn take(engines: &mut [Box<dyn Engine>], costs: &mut Costs, again: bool) {
    for curve in measure::measure(engines, |name| again || !costs.tried(name)) {
        costs.set(curve);
    }
    engines.iter().for_each(|engine| costs.note(engine.name()));
}
