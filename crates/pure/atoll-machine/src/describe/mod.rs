//! The description of a machine: the costs of translation, faults, interrupts and transfers.
//!
//! [`read`] reads it from TOML, and [`shipped`] has the shipped ones. [`costs`](crate::costs) turns a node into the numbers
//! that the simulator adds. Every number carries its source: a paper's table, a measurement, or what it was calibrated on.

pub mod read;
pub mod shipped;

use std::ops::Deref;

use atoll_pages::PageSize;
use serde::Deserialize;
use toml::Spanned;

pub use read::MachineError;

/// A number with its source.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    value: Spanned<T>,
    source: Spanned<String>,
}

impl<T> Sourced<T> {
    /// Returns the source of the number.
    pub fn source(&self) -> &str {
        self.source.get_ref()
    }

    /// Replaces the number by one from another source, as calibrations do. The new number is not checked again.
    pub fn set(&mut self, value: T, source: &str) {
        self.value = Spanned::new(self.value.span(), value);
        self.source = Spanned::new(self.source.span(), source.to_owned());
    }
}

impl<T> Deref for Sourced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.get_ref()
    }
}

/// A machine: a node, or several with a link between them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The machine's name, as `--machine` takes it.
    pub name: String,
    /// A sentence that says what the machine is.
    pub about: String,
    /// The name of the node that a program runs on when one node is simulated.
    pub runs_on: Spanned<String>,
    /// The nodes, at least one.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
    /// The link between the nodes.
    pub link: Option<Link>,
}

/// A coherence domain.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The node's name within the machine.
    pub name: String,
    /// The node's cores.
    pub cores: Cores,
    /// The TLBs, those asked first in front.
    #[serde(default, rename = "tlb")]
    pub tlbs: Vec<Tlb>,
    /// The costs of a TLB miss.
    pub walk: Walk,
    /// The costs of the fault path.
    pub fault: Fault,
    /// The costs of invalidating other cores' TLB entries.
    pub invalidation: Invalidation,
    /// The periodic tick.
    pub scan: Scan,
    /// The channels to far memory.
    pub far: Far,
}

/// A node's cores.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cores {
    /// The number of cores, at least 1.
    pub count: Sourced<u32>,
    /// The number of hardware threads of each core, at least 1.
    pub threads_per_core: Sourced<u32>,
    /// The number of cycles in a microsecond.
    pub clock_mhz: Sourced<f64>,
    /// The average cycles of an instruction, including its cache misses but not its TLB misses.
    pub cycles_per_instruction: Sourced<f64>,
}

/// A TLB of one core.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// The page sizes that it holds: one, or several that share its entries.
    pub pages: Spanned<Vec<String>>,
    /// The number of entries.
    pub entries: Sourced<u32>,
    /// The number of entries in a set; the same as `entries` if it is fully associative.
    pub ways: Sourced<u32>,
    /// The cycles of a hit, beyond those of the TLBs before it.
    pub hit_cycles: Sourced<f64>,
}

/// The cycles of a page walk, by the size of the page found.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Walk {
    /// The cycles of a walk to a 4K page; also of a walk to a 64K page where the hardware has none.
    pub cycles_4k: Sourced<f64>,
    /// The cycles of a walk to a 64K page, where the hardware has them.
    pub cycles_64k: Option<Sourced<f64>>,
    /// The cycles of a walk to a 2M page.
    pub cycles_2m: Sourced<f64>,
}

/// The nanoseconds of the parts of a fault, transfers and invalidations not included.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The time of entering and leaving the handler.
    pub entry_ns: Sourced<f64>,
    /// A minor fault's work: finding the page in other workers' tables and mapping it.
    pub minor_ns: Sourced<f64>,
    /// A major fault's work: choosing a victim, changing tables, mapping.
    pub major_ns: Sourced<f64>,
    /// The part of it for which the lock of the replacement policy is held.
    pub policy_lock_ns: Sourced<f64>,
    /// The additional time of a fault under the one lock of a shared page table, for each other core that wants the lock then.
    pub lock_waiter_ns: Sourced<f64>,
}

/// The nanoseconds of a remote TLB invalidation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invalidation {
    /// The sender's time, whatever the number of targets.
    pub send_ns: Sourced<f64>,
    /// The sender's time for each target: the loop of interrupts and its answers.
    pub per_target_ns: Sourced<f64>,
    /// The additional share of the sender's time for each other sender at the same time; 0.1 is a tenth.
    pub per_sender: Sourced<f64>,
    /// A target's time for each interrupt.
    pub receive_ns: Sourced<f64>,
    /// The sender's and the target's time for each page.
    pub page_ns: Sourced<f64>,
    /// The number of times that each target with a page table of its own is asked for a page that is unmapped or looked at, at
    /// least 1; once if left out.
    pub rounds: Option<Sourced<u32>>,
}

/// The periodic tick in which policies look at uses and age pages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// The milliseconds from one tick to the next.
    pub period_ms: Sourced<f64>,
    /// Whether hardware threads of all cores that run a worker share the scan. If not, or if left out, one thread does it.
    pub by_all_cores: Option<Sourced<bool>>,
    /// Whether the hardware sets an accessed bit that can be read and cleared. If not, a use is seen by unmapping the page and
    /// waiting for the fault.
    pub accessed_bit: Sourced<bool>,
}

/// The channels to far memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Far {
    /// The bytes in a nanosecond over each channel.
    pub gb_per_s: Sourced<f64>,
    /// The nanoseconds of a transfer before its first byte; other transfers go on meanwhile.
    pub latency_ns: Sourced<f64>,
    /// The nanoseconds that the worker takes to set a transfer up, whatever its length; none if left out.
    pub setup_ns: Option<Sourced<f64>>,
    /// The number of transfers at once; further ones wait.
    pub channels: Sourced<u32>,
    /// Whether each direction has channels of its own.
    pub duplex: Sourced<bool>,
}

/// The link between the nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// A sentence that says what the link is.
    pub about: String,
    /// The nanoseconds of a message one way.
    pub latency_ns: Sourced<f64>,
    /// The bytes in a nanosecond.
    pub gb_per_s: Sourced<f64>,
}

impl Machine {
    /// Returns the node that a program runs on.
    pub fn node(&self) -> &Node {
        // Reading has checked that there is a node of this name; for a machine made in another way it is the first.
        self.nodes.iter().find(|node| node.name == *self.runs_on.get_ref()).unwrap_or(&self.nodes[0])
    }

    /// Returns every number of the description as `path = value`, with its source.
    pub fn numbers(&self) -> Vec<(String, String, String)> {
        let mut all = Vec::new();
        for node in &self.nodes {
            all.extend(node.numbers());
        }
        if let Some(link) = &self.link {
            push(&mut all, "link.latency_ns", &link.latency_ns);
            push(&mut all, "link.gb_per_s", &link.gb_per_s);
        }
        all
    }
}

fn push<T: ToString>(all: &mut Vec<(String, String, String)>, path: &str, number: &Sourced<T>) {
    all.push((path.to_owned(), number.to_string(), number.source().to_owned()));
}

impl Node {
    /// Returns every number of the node as `path = value`, with its source.
    pub fn numbers(&self) -> Vec<(String, String, String)> {
        let mut all = Vec::new();
        let mut put = |path: &str, value: String, source: &str| {
            all.push((format!("{}.{path}", self.name), value, source.to_owned()));
        };
        macro_rules! put {
            ($($field:ident . $name:ident),* $(,)?) => {
                $(put(concat!(stringify!($field), ".", stringify!($name)), self.$field.$name.to_string(), self.$field.$name.source());)*
            };
        }
        put!(cores.count, cores.threads_per_core, cores.clock_mhz, cores.cycles_per_instruction);
        for (index, tlb) in self.tlbs.iter().enumerate() {
            let mut one = |name: &str, value: String, source: &str| {
                put(&format!("tlb {} ({}).{name}", index + 1, tlb.pages.get_ref().join("+")), value, source);
            };
            one("entries", tlb.entries.to_string(), tlb.entries.source());
            one("ways", tlb.ways.to_string(), tlb.ways.source());
            one("hit_cycles", tlb.hit_cycles.to_string(), tlb.hit_cycles.source());
        }
        if let Some(all) = &self.scan.by_all_cores {
            put("scan.by_all_cores", all.to_string(), all.source());
        }
        if let Some(setup) = &self.far.setup_ns {
            put("far.setup_ns", setup.to_string(), setup.source());
        }
        if let Some(rounds) = &self.invalidation.rounds {
            put("invalidation.rounds", rounds.to_string(), rounds.source());
        }
        put!(walk.cycles_4k, walk.cycles_2m);
        if let Some(cycles) = &self.walk.cycles_64k {
            put("walk.cycles_64k", cycles.to_string(), cycles.source());
        }
        put!(
            fault.entry_ns,
            fault.minor_ns,
            fault.major_ns,
            fault.policy_lock_ns,
            fault.lock_waiter_ns,
            invalidation.send_ns,
            invalidation.per_target_ns,
            invalidation.per_sender,
            invalidation.receive_ns,
            invalidation.page_ns,
            scan.period_ms,
            scan.accessed_bit,
            far.gb_per_s,
            far.latency_ns,
            far.channels,
            far.duplex,
        );
        all
    }

    /// Whether a core has TLB entries for pages of this size.
    pub fn has(&self, page: PageSize) -> bool {
        self.tlbs.iter().any(|tlb| tlb.holds(page))
    }
}

impl Tlb {
    /// Whether the TLB has entries for pages of this size.
    pub fn holds(&self, page: PageSize) -> bool {
        self.pages.get_ref().iter().any(|name| name.parse() == Ok(page))
    }
}
