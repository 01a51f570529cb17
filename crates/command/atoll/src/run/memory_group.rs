//! Says that the kernel killed a process of the run because a memory group's limit was reached, and what would keep the run within it.
//!
//! `launch` counts such kills while the program runs, and `finish` prints the line.

use super::summary::bytes;
use super::watch::Ending;
use crate::cgroup::{self, Limit};

/// Returns the line for a run that ended so; `kills`: how many processes of the group the kernel killed meanwhile.
pub(super) fn line(kills: Option<u64>, ending: Ending, near: u64) -> Option<String> {
    if ending == Ending::Status(0) || kills? == 0 {
        return None;
    }
    cgroup::memory().map(|limit| text(&limit, near))
}

fn text(limit: &Limit<u64>, near: u64) -> String {
    // The rest is for what is not paged, for atoll, and for far memory that is kept in memory.
    let fits = (limit.limit / 3 * 2) >> 20 << 20;
    let remedy = if near > fits {
        format!("atoll run --near {} keeps it within the limit", bytes(fits))
    } else {
        "give it a smaller --near, and --far file".to_owned()
    };
    let allowed = bytes(limit.limit);
    format!(
        "the kernel killed a process of the run, as the limit of its memory group, {allowed}, was reached: {remedy}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that the kernel had killed for its group's limit ended without a word about it.
    #[test]
    fn the_line_names_the_limit_and_what_fits() {
        let limit =
            Limit { limit: 30 << 20, file: "memory.max".into(), none: "max", used: 0, files_in_use: 0 };
        let told = text(&limit, u64::MAX);
        assert!(told.contains("group, 30M, was reached: atoll run --near 20M keeps it"), "{told}");
        assert!(text(&limit, 10 << 20).contains("a smaller --near, and --far file"));
        assert_eq!(line(Some(0), Ending::Signal(9), u64::MAX), None);
        assert_eq!(line(None, Ending::Signal(9), u64::MAX), None);
        assert_eq!(line(Some(1), Ending::Status(0), u64::MAX), None);
    }
}
