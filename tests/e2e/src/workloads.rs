//! Runs the workloads of `programs/` under settings, and compares their checksums with the native ones.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::random::Random;
use crate::{Atoll, Outcome, built, native};

/// The names of the workloads.
pub const PROGRAMS: [&str; 24] = [
    "cg",
    "lu",
    "bt",
    "sp",
    "stencil",
    "ep",
    "randomaccess",
    "graph500",
    "blackscholes",
    "hotspot",
    "kmeans",
    "lavamd",
    "lud",
    "lulesh",
    "minife",
    "star",
    "smooth",
    "strassen",
    "fft",
    "multigrid",
    "pagerank",
    "lookups",
    "mergesort",
    "sparselu",
];
/// The replacement policies.
pub const POLICIES: [&str; 5] = ["fifo", "lru", "cmcp", "adaptive", "newest"];
/// The far stores.
pub const STORES: [&str; 5] = ["auto", "ram", "lz4", "zstd", "file"];
/// The least number of pages that near memory holds, of 4K and 64K. Two workers of lu walk a line through 33 planes of two
/// arrays; with fewer frames than such a line has pages, every load of it faults.
pub const LEAST_PAGES: u64 = 64;
/// The least number of 2M pages; the whole of a small class has fewer pages than 64.
pub const LEAST_HUGE_PAGES: u64 = 24;

/// The bytes that the pager's tables take in small runs.
const TABLES: u64 = 128 << 10;
/// The most bytes that one more worker pins and its scratch memory takes.
const WORKER: u64 = 256 << 10;

/// The results of a workload run natively.
#[derive(Debug, Clone)]
pub struct Native {
    /// The `Checksum:` line.
    pub checksum: String,
    /// The bytes that it touches, by atoll's count.
    pub footprint: u64,
    /// The bytes that it needs pinned.
    pub pinned: u64,
}

impl Native {
    /// Returns near memory in bytes: a part of the footprint, but no less than what is pinned, tables, and `pages`, the bytes
    /// of the pages that two workers need at once.
    pub fn near(&self, percent: u64, pages: u64, workers: u64) -> u64 {
        // Each worker pins stacks and blocks of its own; a program is measured with two.
        let least = self.pinned + TABLES + (workers * WORKER) + pages * workers.max(2) / 2;
        (self.footprint * percent / 100).max(least)
    }
}

/// A point of the matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The workload.
    pub program: String,
    /// The workload's class.
    pub class: char,
    /// The number of iterations, where not all of them are done.
    pub iterations: Option<u32>,
    /// The near memory in percent of the footprint.
    pub percent: u64,
    /// The replacement policy.
    pub policy: String,
    /// The page size.
    pub page: String,
    /// The kind of page tables.
    pub tables: String,
    /// What resolves faults.
    pub faults: String,
    /// The far store.
    pub far: String,
    /// The number of workers.
    pub workers: u64,
}

/// Returns the checksum line of an output.
pub fn checksum(output: &str) -> Option<String> {
    output.lines().find(|line| line.starts_with("Checksum:")).map(str::to_owned)
}

/// Runs a workload natively and measures its footprint, once.
pub fn natively(program: &str, class: char, iterations: Option<u32>) -> Native {
    type Known = HashMap<(String, char, Option<u32>), Native>;
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let key = (program.to_owned(), class, iterations);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if let Some(native) = known.get(&key) {
        return native.clone();
    }
    let arguments = arguments(class, iterations);
    let alone = native(built(program)).args(&arguments).limit(900).run().exits(0);
    let measured = Atoll::new(built(program)).args(&arguments).with("--workers 2").limit(900).run().exits(0);
    let native = Native {
        checksum: checksum(&alone.text()).unwrap_or_else(|| panic!("no checksum: {}", alone.told())),
        footprint: measured.figure("memory/footprint_peak_bytes"),
        pinned: measured.figure("memory/pinned_peak_bytes"),
    };
    assert_eq!(checksum(&measured.text()), Some(native.checksum.clone()), "{}", measured.told());
    known.insert(key, native.clone());
    native
}

fn arguments(class: char, iterations: Option<u32>) -> String {
    iterations.map_or_else(|| class.to_string(), |n| format!("{class} --iterations {n}"))
}

impl Case {
    /// Returns near memory in bytes: a part of the footprint, but no less than what is pinned, tables, and a few pages.
    pub fn near(&self, native: &Native) -> u64 {
        let pages = match self.page.as_str() {
            "2M" => LEAST_HUGE_PAGES << 21,
            "64K" => LEAST_PAGES << 16,
            _ => LEAST_PAGES << 12,
        };
        native.near(self.percent, pages, self.workers)
    }

    /// Returns the run of this case.
    pub fn atoll(&self, native: &Native) -> Atoll {
        Atoll::new(built(&self.program)).args(&arguments(self.class, self.iterations)).with(&format!(
            "--near {} --policy {} --page {} --page-tables {} --faults {} --far {} --workers {}",
            self.near(native),
            self.policy,
            self.page,
            self.tables,
            self.faults,
            self.far,
            self.workers
        ))
    }

    /// Runs the case.
    ///
    /// # Errors
    /// What is wrong, with the command line to repeat it.
    pub fn check(&self, limit: u64) -> Result<Outcome, String> {
        let native = natively(&self.program, self.class, self.iterations);
        let run = self.atoll(&native).limit(limit).run();
        let text = run.text();
        if run.timed_out {
            return Err(format!("time over: {}", run.told()));
        }
        if run.status != Some(0) {
            return Err(format!("failed: {}", run.told()));
        }
        if checksum(&text).as_ref() != Some(&native.checksum) {
            return Err(format!("expected {}: {}", native.checksum, run.told()));
        }
        if self.iterations.is_none() && !text.contains("Verification: successful") {
            return Err(format!("not verified: {}", run.told()));
        }
        if !run.left.is_empty() {
            return Err(format!("left behind {:?}: {}", run.left, run.told()));
        }
        Ok(run)
    }

    /// Returns a random case of these classes.
    pub fn random(random: &mut Random, classes: &[char], pages: &[&str]) -> Case {
        let mut case = Case {
            program: (*random.pick(&PROGRAMS)).to_owned(),
            class: *random.pick(classes),
            iterations: None,
            percent: *random.pick(&[100, 75, 50, 50, 25]),
            policy: (*random.pick(&POLICIES)).to_owned(),
            page: (*random.pick(pages)).to_owned(),
            tables: (*random.pick(&["private", "private", "shared"])).to_owned(),
            faults: (*random.pick(&["self", "self", "thread"])).to_owned(),
            far: (*random.pick(&STORES)).to_owned(),
            workers: *random.pick(&[1, 2, 2, 3, 4]),
        };
        // Two workers evict each other's newest pages at every fault: 100,000 faults of a millisecond each, by a file.
        if case.policy == "newest" && case.far == "file" {
            "ram".clone_into(&mut case.far);
        }
        case
    }
}
