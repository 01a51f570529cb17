//! Turns `--near` into bytes: a size, or a share of what the program needs.
//!
//! `launch` calls it before it starts the program. A share is of the footprint that `footprints` knows, else of the machine's
//! memory.

use std::ffi::OsString;
use std::path::Path;

use super::automatic;
use super::footprints::{self, Key};
use super::summary::{bytes, many};
use crate::cgroup;
use crate::cli::{RunArgs, Share, SummaryForm};

/// The reason why a share means nothing here.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
pub(crate) enum NearError {
    /// Several nodes, each with near memory of its own.
    #[error(
        "--near {0} is a share of what the program needs on one node: with several nodes give each node's near memory as a size, as in --near 2G"
    )]
    Nodes(String),
}

/// A near limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NearLimit {
    /// In bytes; `u64::MAX` where there is none.
    pub(crate) bytes: u64,
    /// Whether it is the most that the machine can ever give, and `automatic` chooses the limit of each moment.
    pub(crate) is_automatic: bool,
}

/// Returns the near limit. For a share it prints a line: what the share is of, and its size. It prints nothing for a program to
/// which no limit is `applied`.
///
/// # Errors
/// A share was given with several nodes.
pub(crate) fn limit(
    args: &RunArgs,
    path: &Path,
    workers: u32,
    nodes: u32,
    applied: bool,
) -> Result<NearLimit, NearError> {
    let asked = |bytes| NearLimit { bytes, is_automatic: false };
    let page = args.page.bytes() as u64;
    let percent = match args.near() {
        None => {
            if args.summary != SummaryForm::None && is_behind(args) {
                eprintln!(
                    "atoll: --near behind the program's name is the program's argument, not a limit: atoll's flags come before the program"
                );
            }
            return Ok(if args.near_is_automatic() && nodes == 1 {
                NearLimit { bytes: automatic::most(), is_automatic: true }
            } else {
                asked(u64::MAX)
            });
        }
        Some(Share::Size(size)) => return Ok(asked(size.0)),
        Some(Share::Percent(percent)) => percent,
    };
    let share = Share::Percent(percent);
    if nodes > 1 {
        return Err(NearError::Nodes(share.to_string()));
    }
    let of = |all: u64| ((all as f64 * percent / 100.0) as u64).next_multiple_of(page);
    let name = args.program.words[0].display();
    let (limit, what) = match footprints::find(&Key::new(path, &args.program.words, page)) {
        Some((known, age)) => {
            let mut how = String::new();
            if known.page_bytes != page {
                how += &format!(" with pages of {}", bytes(known.page_bytes));
            }
            if known.workers != workers {
                how += &format!(" with {}", many(known.workers.into(), "worker"));
            }
            let footprint = bytes(known.bytes);
            (of(known.bytes), format!("of {footprint}, the footprint of {name} as it ran {}{how}", ago(age)))
        }
        None => {
            let all = cgroup::memory_allowed();
            let why = format!(
                "what {name} needs with these arguments is not known yet, but will be after this run"
            );
            (of(all), format!("of the {} of memory that it may have here, as {why}", bytes(all)))
        }
    };
    if applied && args.summary != SummaryForm::None {
        eprintln!("atoll: --near {share} is {}: {share} {what}", bytes(limit));
    }
    Ok(asked(limit))
}

/// Whether the program gets a `--near` that was meant for atoll. The program may have such a flag itself.
fn is_behind(args: &RunArgs) -> bool {
    let is_near = |word: &OsString| word == "--near" || word.to_string_lossy().starts_with("--near=");
    args.program.words.iter().skip(1).any(is_near)
}

/// Returns a time `seconds` ago in words.
fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => "less than a minute ago".to_owned(),
        60..3600 => format!("{} ago", many(seconds / 60, "minute")),
        3600..86_400 => format!("{} ago", many(seconds / 3600, "hour")),
        _ => format!("{} ago", many(seconds / 86_400, "day")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn args(line: &str) -> RunArgs {
        match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Run(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_share_is_of_something_and_for_one_node() {
        let path = Path::new("/nowhere/a");
        let limit = |line: &str, nodes| limit(&args(line), path, 2, nodes, true).map(|near| near.bytes);
        assert_eq!(limit("atoll run --near none -- a", 1), Ok(u64::MAX));
        assert_eq!(limit("atoll run -- a", 2), Ok(u64::MAX));
        assert_eq!(limit("atoll run -- a", 1), Ok(automatic::most()));
        assert_eq!(limit("atoll run --near 64M -- a", 2), Ok(64 << 20));
        assert!(limit("atoll run --near 50% -- a", 2).is_err());
        let (half, all) =
            (limit("atoll run --near 50% -- a", 1).unwrap(), limit("atoll run --near 100% -- a", 1).unwrap());
        assert!(half.is_multiple_of(4096) && half.abs_diff(all / 2) <= 4096, "{half} {all}");
    }

    #[test]
    fn a_limit_behind_the_program_is_noticed() {
        for (line, behind) in
            [("-- a --near 3", true), ("a --near=3", true), ("a near", false), ("a -- --near", true)]
        {
            assert_eq!(is_behind(&args(&format!("atoll run {line}"))), behind, "{line}");
        }
    }

    #[test]
    fn times_are_in_words() {
        assert_eq!(ago(5), "less than a minute ago");
        assert_eq!(
            (ago(60), ago(7300), ago(200_000)),
            ("1 minute ago".into(), "2 hours ago".into(), "2 days ago".into())
        );
    }
}
