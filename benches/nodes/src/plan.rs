//! The programs, their class, and the number of iterations that tells the first runs of regions from later ones.

/// The class of a full measurement, and of a quick one.
pub(crate) const CLASS: &str = "W";
pub(crate) const CLASS_QUICK: &str = "S";
pub(crate) const RUNS: u32 = 5;
pub(crate) const RUNS_QUICK: u32 = 3;

/// The number of iterations after which every region has run once and plans have been made: the counts of a whole run beyond
/// these are "after the first run of a region".
pub(crate) const FIRST: u32 = 2;

/// A program of the paper.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Whether it is one of the NAS benchmarks.
    pub(crate) nas: bool,
    /// Whether the paper's claims on invalidations and faults are about it.
    pub(crate) claimed: bool,
}

const fn program(name: &'static str, nas: bool, claimed: bool) -> Program {
    Program { name, nas, claimed }
}

/// The paper's nine programs.
pub(crate) const PROGRAMS: [Program; 9] = [
    program("ep", true, false),
    program("cg", true, true),
    program("bt", true, true),
    program("sp", true, true),
    program("blackscholes", false, false),
    program("lavamd", false, false),
    program("lud", false, true),
    program("hotspot", false, false),
    program("kmeans", false, true),
];
