//! The description of a machine: what translation, faults, interrupts and transfers cost on it.
//!
//! Read from TOML by [`read`], shipped ones are in [`shipped`]; [`costs`](crate::costs) turns a node into the numbers the
//! simulator adds. Every number carries its source: a paper's table, a measurement, or what it was calibrated on.

pub mod read;
pub mod shipped;

use std::ops::Deref;

use atoll_pages::PageSize;
use serde::Deserialize;
use toml::Spanned;

pub use read::MachineError;

/// A number, and where it comes from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    value: Spanned<T>,
    source: Spanned<String>,
}

impl<T> Sourced<T> {
    /// Where the number comes from.
    pub fn source(&self) -> &str {
        self.source.get_ref()
    }

    /// Another number from elsewhere in its place, as calibrations do. It is not checked again.
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

/// One machine: a node, or several with a link between them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name, as `--machine` takes it.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// The name of the node that a program runs on when one node is simulated.
    pub runs_on: Spanned<String>,
    /// The nodes, at least one.
    #[serde(rename = "node")]
    pub nodes: Vec<Node>,
    /// What connects the nodes.
    pub link: Option<Link>,
}

/// One coherence domain.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name within the machine.
    pub name: String,
    /// Its cores.
    pub cores: Cores,
    /// Its TLBs, those asked first in front.
    #[serde(default, rename = "tlb")]
    pub tlbs: Vec<Tlb>,
    /// What a TLB miss costs.
    pub walk: Walk,
    /// What the fault path costs.
    pub fault: Fault,
    /// What invalidating other cores' TLB entries costs.
    pub invalidation: Invalidation,
    /// The periodic tick.
    pub scan: Scan,
    /// The way to far memory.
    pub far: Far,
}

/// A node's cores.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cores {
    /// How many, at least 1.
    pub count: Sourced<u32>,
    /// Hardware threads of each, at least 1.
    pub threads_per_core: Sourced<u32>,
    /// Cycles in a microsecond.
    pub clock_mhz: Sourced<f64>,
    /// Cycles of an instruction on average, its cache misses included, its TLB misses not.
    pub cycles_per_instruction: Sourced<f64>,
}

/// A TLB of one core.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// The page sizes it holds, one or several that share its entries.
    pub pages: Spanned<Vec<String>>,
    /// Its entries.
    pub entries: Sourced<u32>,
    /// Entries of a set; as many as entries if it is fully associative.
    pub ways: Sourced<u32>,
    /// Cycles of a hit, beyond those of the TLBs before it.
    pub hit_cycles: Sourced<f64>,
}

/// Cycles of a page walk, by the size of the page found.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Walk {
    /// To a 4K page. Also what a walk to a 64K page costs where the hardware has none.
    pub cycles_4k: Sourced<f64>,
    /// To a 64K page, where the hardware has them.
    pub cycles_64k: Option<Sourced<f64>>,
    /// To a 2M page.
    pub cycles_2m: Sourced<f64>,
}

/// Nanoseconds of the parts of a fault, transfers and invalidations not included.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Entering and leaving the handler.
    pub entry_ns: Sourced<f64>,
    /// A minor fault's work: looking the page up with others and mapping it.
    pub minor_ns: Sourced<f64>,
    /// A major fault's work: choosing a victim, changing tables, mapping.
    pub major_ns: Sourced<f64>,
    /// How long of it the lock of the replacement policy is held.
    pub policy_lock_ns: Sourced<f64>,
    /// What a fault takes longer under the one lock of a shared page table, for each other core that wants it then.
    pub lock_waiter_ns: Sourced<f64>,
}

/// Nanoseconds of a remote TLB invalidation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invalidation {
    /// Of the sender, whatever the number of targets.
    pub send_ns: Sourced<f64>,
    /// Of the sender, for each target: the loop of interrupts and its answers.
    pub per_target_ns: Sourced<f64>,
    /// How much longer it takes the sender for each other sender at the same time; 0.1 is a tenth.
    pub per_sender: Sourced<f64>,
    /// Of a target, for each interrupt.
    pub receive_ns: Sourced<f64>,
    /// Of sender and target, for each page.
    pub page_ns: Sourced<f64>,
    /// How often each target is asked for a page that is unmapped or looked at, at least 1; once where it is left out.
    pub rounds: Option<Sourced<u32>>,
}

/// The periodic tick in which policies look at uses and age pages.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scan {
    /// Milliseconds from one to the next.
    pub period_ms: Sourced<f64>,
    /// Do hardware threads of all cores that run a worker share the scan? Else one does it; also where it is left out.
    pub by_all_cores: Option<Sourced<bool>>,
    /// Does the hardware set an accessed bit that is seen by whoever clears it? Else a use is seen by unmapping the page
    /// and waiting for the fault.
    pub accessed_bit: Sourced<bool>,
}

/// The way to far memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Far {
    /// Bytes in a nanosecond over each channel.
    pub gb_per_s: Sourced<f64>,
    /// Nanoseconds of a transfer before its first byte; other transfers go on meanwhile.
    pub latency_ns: Sourced<f64>,
    /// Nanoseconds that the worker takes to set a transfer up, whatever its length; none where it is left out.
    pub setup_ns: Option<Sourced<f64>>,
    /// How many transfers go on at once; more wait.
    pub channels: Sourced<u32>,
    /// Do both directions have channels of their own?
    pub duplex: Sourced<bool>,
}

/// What connects the nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// What it is.
    pub about: String,
    /// Nanoseconds of a message one way.
    pub latency_ns: Sourced<f64>,
    /// Bytes in a nanosecond.
    pub gb_per_s: Sourced<f64>,
}

impl Machine {
    /// The node that a program runs on.
    pub fn node(&self) -> &Node {
        // Reading has checked that there is one of this name; the first stands for it in a machine made otherwise.
        self.nodes.iter().find(|node| node.name == *self.runs_on.get_ref()).unwrap_or(&self.nodes[0])
    }

    /// Every number of the description as `path = value`, with its source.
    pub fn numbers(&self) -> Vec<(String, String, String)> {
        let mut all = Vec::new();
        for node in &self.nodes {
            node.numbers(&mut all);
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
    fn numbers(&self, all: &mut Vec<(String, String, String)>) {
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
    }

    /// Whether a core has TLB entries for pages of this size.
    pub fn has(&self, page: PageSize) -> bool {
        self.tlbs.iter().any(|tlb| tlb.holds(page))
    }
}

impl Tlb {
    /// Whether it has entries for pages of this size.
    pub fn holds(&self, page: PageSize) -> bool {
        self.pages.get_ref().iter().any(|name| name.parse() == Ok(page))
    }
}
