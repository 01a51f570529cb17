//! The defaults of a run's flags.
//!
//! `cli` reads them and shows them in the help and the manual page.

/// The replacement policy: `adaptive`, as it fetches about half as often as the others where a program repeats its steps, and
/// is FIFO or a little better where it finds no steps.
pub(crate) const POLICY: &str = "adaptive";

/// The page size: 4K, as nothing beside the page itself is fetched or evicted, whatever the program's pattern.
pub(crate) const PAGE: &str = "4K";

/// The far store: `auto`, as memory that no other program wants is up to five times as fast as a disk, and the file
/// behind it takes the pages that there is no memory for.
pub(crate) const FAR: &str = "auto";

/// The page tables: as the number of CPUs says, see [`CPUS_THAT_SHARE`].
pub(crate) const PAGE_TABLES: &str = "auto";

/// With so many CPUs or fewer workers share a page table. Changing a mapping then interrupts every CPU on which one of them runs, but the
/// kernel itself maps what another worker brought, and a page that is about to leave stays by a touch that costs no signal: with two CPUs
/// that is worth up to seven times the speed (`docs/performance.md`). With many CPUs interruptions are what private tables are there to avoid,
/// and before Linux 6.15 pages of threads that share a table cannot stay where they lie.
pub(crate) const CPUS_THAT_SHARE: u32 = 4;

/// What resolves faults: the worker itself, as waking another thread costs thirty times as much.
pub(crate) const FAULTS: &str = "self";

/// The number of places of a trace's filter: half the number of entries of the smallest TLB of interest, as misses are then
/// right within a few percent (`docs/trace-format.md` has figures).
pub(crate) const FILTER: u32 = 32;

/// The engine that sees a trace's accesses: QEMU, as it needs nothing of the program.
pub(crate) const ENGINE: &str = "qemu";
