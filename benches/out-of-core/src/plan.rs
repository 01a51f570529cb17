//! The programs, classes and iteration counts, and the grid of subjects.

use crate::subject::{Atoll, Device, Subject};

/// A program and how much of it to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    /// The number of iterations at part of the memory: few, as Linux swap takes seconds for each.
    pub(crate) iterations: u32,
    /// The number of iterations with all memory: seconds of native time, so that the start of a run weighs little.
    pub(crate) iterations_all: u32,
}

const fn program(name: &'static str, class: &'static str, iterations: u32, iterations_all: u32) -> Program {
    Program { name, class, iterations, iterations_all }
}

/// The programs of a full measurement, of 140 to 510 MiB each. With more iterations Linux swap alone would take the forty
/// minutes.
pub(crate) const FULL: [Program; 5] = [
    program("cg", "B", 1, 4),
    program("lu", "B", 2, 10),
    program("bt", "B", 2, 10),
    program("sp", "B", 2, 16),
    program("stencil", "B", 1, 8),
];

/// The programs on which all policies are compared: one that reads most of its data, one that writes it.
const POLICY_PROGRAMS: [&str; 2] = ["cg", "stencil"];

/// The programs of a quick measurement, of 26 to 130 MiB each.
pub(crate) const QUICK: [Program; 5] = [
    program("cg", "A", 1, 4),
    program("lu", "A", 2, 10),
    program("bt", "A", 1, 5),
    program("sp", "A", 2, 10),
    program("stencil", "A", 1, 10),
];

/// The programs of the table without flags: those of a full measurement, and one for each pattern of access that they lack.
pub(crate) const NO_FLAGS: [Program; 12] = [
    FULL[0],
    FULL[1],
    FULL[2],
    FULL[3],
    FULL[4],
    program("lookups", "B", 12, 60),
    program("pagerank", "A", 20, 40),
    program("smooth", "A", 6, 12),
    program("star", "A", 12, 48),
    program("strassen", "A", 1, 2),
    program("multigrid", "A", 2, 8),
    program("fft", "A", 1, 4),
];

/// The same in small.
pub(crate) const NO_FLAGS_QUICK: [Program; 12] = [
    QUICK[0],
    QUICK[1],
    QUICK[2],
    QUICK[3],
    QUICK[4],
    program("lookups", "W", 4, 40),
    program("pagerank", "W", 20, 40),
    program("smooth", "W", 4, 40),
    program("star", "W", 8, 64),
    program("strassen", "W", 1, 4),
    program("multigrid", "W", 2, 16),
    program("fft", "W", 1, 10),
];

/// The program of the demonstration, large enough to show what swapping costs.
pub(crate) const DEMO: Program = program("stencil", "B", 1, 1);

pub(crate) const PAGES: [&str; 3] = ["4K", "64K", "2M"];

/// The replacement policies that are measured beside the default, with far memory `ram`.
const POLICIES: [&str; 4] = ["fifo", "lru", "cmcp", "adaptive"];
const POLICY_PAGES: [&str; 2] = ["4K", "64K"];

/// The far stores: `lz4` is compared with zram, `file` with a swap file, and `ram` stands apart.
pub(crate) const FARS: [&str; 3] = ["lz4", "file", "ram"];
/// Those of them that a kind of swap is like.
pub(crate) const FARS_HELD_AGAINST_SWAP: [&str; 2] = ["lz4", "file"];

/// Returns the subjects with all memory near: native, `atoll run` as it is, then by page size.
pub(crate) fn all_near() -> Vec<Subject> {
    let mut subjects = vec![Subject::Native, Subject::Atoll(Atoll::default())];
    for page in PAGES {
        subjects.push(Subject::Atoll(Atoll { page: Some(page), ..Atoll::default() }));
    }
    subjects
}

/// Returns the subjects of `program` at part of the memory. `default_policy` is atoll's default.
pub(crate) fn limited(program: &str, default_policy: &str) -> Vec<Subject> {
    let mut subjects = vec![Subject::Native, Subject::Swap(Device::Zram), Subject::Swap(Device::File)];
    for far in FARS {
        for page in PAGES {
            let atoll = Atoll { limited: true, far: Some(far), page: Some(page), ..Atoll::default() };
            subjects.push(Subject::Atoll(atoll));
        }
    }
    if !POLICY_PROGRAMS.contains(&program) {
        return subjects;
    }
    for page in POLICY_PAGES {
        for policy in POLICIES.into_iter().filter(|&policy| policy != default_policy) {
            let atoll = Atoll {
                limited: true,
                far: Some("ram"),
                page: Some(page),
                policy: Some(policy),
                ..Atoll::default()
            };
            subjects.push(Subject::Atoll(atoll));
        }
    }
    subjects
}

/// Atoll as it is with `--near` and no other flag.
pub(crate) const DEFAULTS: Atoll =
    Atoll { limited: true, percent: None, far: None, page: None, policy: None };

/// The flags among which the best are found by hand, for each program anew.
const HAND_FARS: [&str; 2] = ["ram", "lz4"];
const HAND_PAGES: [&str; 2] = ["4K", "64K"];

/// The near memory in percent at which there must be no cliff, and how many times native a program may take there.
pub(crate) const NEARLY_ALL: [(u32, f64); 2] = [(95, 1.5), (90, 2.0)];

/// Returns atoll with each of the flags tried by hand.
pub(crate) fn by_hand() -> Vec<Subject> {
    let pairs = HAND_FARS.into_iter().flat_map(|far| HAND_PAGES.map(|page| (far, page)));
    pairs.map(|(far, page)| Subject::Atoll(Atoll { far: Some(far), page: Some(page), ..DEFAULTS })).collect()
}

/// Returns the subjects of the table without flags at part of the memory. Swap comes behind atoll's defaults, by whose time
/// its own is bounded.
pub(crate) fn no_flags_limited() -> Vec<Subject> {
    let mut subjects = vec![Subject::Native, Subject::Atoll(DEFAULTS)];
    subjects.extend(by_hand());
    subjects.extend([Subject::Swap(Device::Zram), Subject::Swap(Device::File)]);
    subjects
}

/// Returns the subjects of the table without flags with all or nearly all memory near.
pub(crate) fn no_flags_all() -> Vec<Subject> {
    let mut subjects = vec![Subject::Native, Subject::Atoll(Atoll::default())];
    subjects.extend(NEARLY_ALL.map(|(percent, _)| nearly_all(percent)));
    subjects
}

/// Returns atoll without flags but `--near` at this percentage of the footprint.
pub(crate) fn nearly_all(percent: u32) -> Subject {
    Subject::Atoll(Atoll { percent: Some(percent), ..DEFAULTS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_without_flags_has_each_subject_once() {
        let mut names: Vec<String> =
            no_flags_limited().iter().chain(&no_flags_all()).map(ToString::to_string).collect();
        assert!(names.contains(&"atoll defaults 95% near".to_owned()), "{names:?}");
        names.sort();
        names.dedup();
        // Native is in both parts.
        assert_eq!(names.len(), 8 + 4 - 1);
    }

    #[test]
    fn the_grid_has_each_subject_once() {
        let subjects = limited("cg", "cmcp");
        assert_eq!(limited("bt", "cmcp").len(), 3 + 9);
        assert_eq!(subjects.len(), 3 + 9 + 6);
        let mut names: Vec<String> = subjects.iter().map(ToString::to_string).collect();
        assert!(names.contains(&"atoll ram 64K lru".to_owned()));
        assert!(!names.iter().any(|name| name.ends_with("cmcp")));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), subjects.len());
    }
}
