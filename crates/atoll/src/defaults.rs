//! What a run is like where its flags do not say.
//!
//! Read by `cli`, which shows them in the help and the manual page.

/// Replacement policy: the adaptive one, as it fetches about half as often as the others where a program repeats its
/// steps, and is FIFO or a little better where none is found.
pub(crate) const POLICY: &str = "adaptive";

/// Page size: 4K, as nothing is fetched or evicted that was not asked for, whatever the program's pattern.
pub(crate) const PAGE: &str = "4K";

/// Far store: `auto`, as compressed memory that nobody else wants is up to five times as fast as a disk, and the file behind it takes what
/// there is no memory for.
pub(crate) const FAR: &str = "auto";

/// Page tables: private, as changing a mapping then interrupts only the workers that have it.
pub(crate) const PAGE_TABLES: &str = "private";

/// Faults: resolved by the worker itself, as waking somebody else costs thirty times as much.
pub(crate) const FAULTS: &str = "self";

/// Places of a trace's filter: half as many as the smallest TLB of interest has entries, as misses are then right within a few
/// percent (`docs/trace-format.md` has figures).
pub(crate) const FILTER: u32 = 32;

/// What sees a trace's accesses: QEMU, as it needs nothing of the program.
pub(crate) const ENGINE: &str = "qemu";
