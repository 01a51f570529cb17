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

/// The program of the demonstration, large enough to show what swapping costs.
pub(crate) const DEMO: Program = program("stencil", "B", 1, 1);

pub(crate) const PAGES: [&str; 3] = ["4K", "64K", "2M"];

/// The replacement policies that are measured beside the default, with far memory `ram`.
const POLICIES: [&str; 4] = ["fifo", "lru", "cmcp", "adaptive"];
const POLICY_PAGES: [&str; 2] = ["4K", "64K"];

/// The far stores: `lz4` is compared with zram, `file` with a swap file, and `ram` stands apart.
pub(crate) const FARS: [&str; 3] = ["lz4", "file", "ram"];

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
            let atoll = Atoll { limited: true, far: Some(far), page: Some(page), policy: None };
            subjects.push(Subject::Atoll(atoll));
        }
    }
    if !POLICY_PROGRAMS.contains(&program) {
        return subjects;
    }
    for page in POLICY_PAGES {
        for policy in POLICIES.into_iter().filter(|&policy| policy != default_policy) {
            let atoll = Atoll { limited: true, far: Some("ram"), page: Some(page), policy: Some(policy) };
            subjects.push(Subject::Atoll(atoll));
        }
    }
    subjects
}

#[cfg(test)]
mod tests {
    use super::*;

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
