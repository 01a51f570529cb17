//! A node's costs in picoseconds, as the simulator adds them.
//!
//! They are made from a [`Node`] once a simulation. All clocks are whole picoseconds, so that a simulation gives the same
//! result on every host.

use crate::describe::Node;
use crate::setup::{Setup, SetupError, Tables};

/// The costs in picoseconds; factors are multiples of 1/1024.
#[derive(Debug, Clone)]
pub struct Costs {
    /// The time of 1024 instructions.
    pub instructions: u64,
    /// The time of a page walk, by page size: 4K, 64K, 2M.
    pub walk: [u64; 3],
    /// The time of entering and leaving the fault handler.
    pub entry: u64,
    /// The work of a minor fault.
    pub minor: u64,
    /// The work of a major fault.
    pub major: u64,
    /// The time for which the policy's lock is held.
    pub policy_lock: u64,
    /// The additional time of the table lock for each waiter.
    pub lock_waiter: u64,
    /// The time of sending an invalidation, whatever the number of targets.
    pub send: u64,
    /// The time of sending, for each target.
    pub per_target: u64,
    /// The additional time of sending for each other sender, in 1/1024.
    pub per_sender: u64,
    /// The time of being interrupted.
    pub receive: u64,
    /// The time of invalidating a page.
    pub page: u64,
    /// The number of times that each target is asked.
    pub rounds: u64,
    /// The time from one tick to the next.
    pub period: u64,
    /// The number of hardware threads that share the scan.
    pub scanners: usize,
    /// Whether a use is seen without a fault.
    pub accessed_bit: bool,
    /// The time of 1024 bytes on a channel.
    pub kilobyte: u64,
    /// The time before the first byte.
    pub latency: u64,
    /// The time before a transfer can wait for its channel.
    pub setup: u64,
    /// The number of transfers at once.
    pub channels: usize,
    /// Whether each direction has channels of its own.
    pub duplex: bool,
}

/// Returns nanoseconds in picoseconds. Descriptions are checked to be finite and below 1e12.
fn ns(value: f64) -> u64 {
    (value * 1e3).round() as u64
}

impl Costs {
    /// Returns the costs of `node` under `setup`. Where a core has more than one worker, these share its issue slots: computing
    /// takes them longer by workers / cores.
    ///
    /// # Errors
    /// There are more workers than the node has hardware threads.
    pub fn new(node: &Node, setup: &Setup) -> Result<Self, SetupError> {
        let cores = u64::from(*node.cores.count);
        let threads = cores * u64::from(*node.cores.threads_per_core);
        if setup.workers as u64 > threads {
            let node = node.name.clone();
            return Err(SetupError::Threads { workers: setup.workers, threads, node });
        }
        let cycle = 1e6 / *node.cores.clock_mhz;
        let cycles = |count: f64| (count * cycle).round() as u64;
        let share = (setup.workers as f64 / cores as f64).max(1.0);
        let (fault, inv, far) = (&node.fault, &node.invalidation, &node.far);
        let k64 = node.walk.cycles_64k.as_deref().unwrap_or(&*node.walk.cycles_4k);
        Ok(Self {
            instructions: cycles(1024.0 * share * *node.cores.cycles_per_instruction),
            walk: [cycles(*node.walk.cycles_4k), cycles(*k64), cycles(*node.walk.cycles_2m)],
            entry: ns(*fault.entry_ns),
            minor: ns(*fault.minor_ns),
            major: ns(*fault.major_ns),
            policy_lock: ns(*fault.policy_lock_ns),
            lock_waiter: ns(*fault.lock_waiter_ns),
            send: ns(*inv.send_ns),
            per_target: ns(*inv.per_target_ns),
            per_sender: (*inv.per_sender * 1024.0).round() as u64,
            receive: ns(*inv.receive_ns),
            page: ns(*inv.page_ns),
            // A shared table is changed once, and one loop of interrupts follows.
            rounds: match setup.tables {
                Tables::Private => inv.rounds.as_deref().copied().unwrap_or(1).into(),
                Tables::Shared => 1,
            },
            period: ns(*node.scan.period_ms * 1e6).max(1),
            scanners: match node.scan.by_all_cores.as_deref() {
                Some(true) => setup.workers.min(cores as usize),
                _ => 1,
            },
            accessed_bit: *node.scan.accessed_bit,
            kilobyte: (1024.0 * 1e3 / *far.gb_per_s).round() as u64,
            latency: ns(*far.latency_ns),
            setup: far.setup_ns.as_deref().map_or(0, |&setup| ns(setup)),
            channels: *far.channels as usize,
            duplex: *far.duplex,
        })
    }

    /// Returns the time that the sender takes to invalidate `pages` pages at `targets` workers while `others` send as well.
    pub fn sending(&self, targets: u64, pages: u64, others: u64) -> u64 {
        let local = self.page * pages;
        if targets == 0 {
            return local;
        }
        let alone = (self.send + self.per_target * targets) * self.rounds;
        alone + alone * self.per_sender * others / 1024 + local
    }

    /// Returns the time that each target takes, in all rounds.
    pub fn receiving(&self, pages: u64) -> u64 {
        (self.receive + self.page * pages) * self.rounds
    }

    /// Returns the time for which `bytes` occupy a channel.
    pub fn moving(&self, bytes: u64) -> u64 {
        bytes * self.kilobyte / 1024
    }
}
