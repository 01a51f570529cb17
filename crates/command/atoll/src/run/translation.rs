//! `--translation segment`: checks which flags go with it, and sets the runtime's settings.
//!
//! `launch` calls it before anything is started.

use atoll_memory::control::Settings;
use atoll_memory::segment::{PageKind, SegmentSettings};

use crate::cli::{FaultsArg, PageTablesChoice, RunArgs, Translation};
use crate::defaults;

/// The reason why the flags do not go together.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
pub(crate) enum TranslationError {
    /// A flag about pages that come and go was given with a segment.
    #[error(
        "{0} means nothing with --translation segment: a segment is not paged, all of it is near. Leave one of them out"
    )]
    Paged(&'static str),
    /// Several nodes were asked for.
    #[error(
        "--translation segment is for one node: nodes keep their copies of 4K pages the same by page faults, and in a segment there are none. \
         Leave {0} out, or --translation segment"
    )]
    Nodes(&'static str),
    /// A flag about segments was given without one.
    #[error("{0} means nothing without --translation segment")]
    NoSegment(&'static str),
}

/// Checks, before anything is started elsewhere, what the flags alone say about several nodes.
///
/// # Errors
/// A segment was asked for on several nodes.
pub(crate) fn on_one_node(args: &RunArgs) -> Result<(), TranslationError> {
    let several = [("--nodes", args.nodes.is_some_and(|n| n > 1)), ("--hosts", !args.hosts.is_empty())];
    match several
        .into_iter()
        .find(|(_, given)| *given && args.translation.translation == Translation::Segment)
    {
        Some((flag, _)) => Err(TranslationError::Nodes(flag)),
        None => Ok(()),
    }
}

/// Enters what the flags say about a segment into the settings of a node of `nodes`.
///
/// # Errors
/// The flags contradict each other.
pub(crate) fn settle(args: &RunArgs, nodes: u32, settings: &mut Settings) -> Result<(), TranslationError> {
    let t = &args.translation;
    if t.translation == Translation::Paging {
        let given = [("--segment-size", t.segment_size.is_some()), ("--strict", t.strict)];
        return match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(TranslationError::NoSegment(flag)),
            None => Ok(()),
        };
    }
    on_one_node(args)?;
    if nodes > 1 {
        return Err(TranslationError::Nodes("the launcher of the other nodes (mpirun, srun)"));
    }
    let memory = &args.memory;
    let given = [
        ("--near", args.near().is_some()),
        ("--far-limit", memory.far_limit.is_some()),
        ("--far", defaults::FAR.parse().as_ref() != Ok(&memory.far)),
        ("--policy", defaults::POLICY.parse() != Ok(args.policy)),
        ("--cmcp-p", args.cmcp_p.is_some()),
        ("--page", defaults::PAGE.parse() != Ok(args.page)),
        ("--page-tables shared", memory.page_tables == PageTablesChoice::Shared),
        ("--faults thread", memory.faults == FaultsArg::Thread),
    ];
    if let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(TranslationError::Paged(flag));
    }
    let workers = settings.workers;
    // These parts of a pager stay as small as they can be.
    *settings = Settings::new("fifo", "ram");
    settings.workers = workers;
    settings.page_shift = 21;
    settings.count_regions = u32::from(args.record.is_some());
    settings.segment = SegmentSettings {
        on: 1,
        first: PageKind::from(t.segment_page) as u32,
        strict: u32::from(t.strict),
        bytes: t.segment_size.map_or(0, |size| size.0),
    };
    Ok(())
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
    fn a_segment_is_for_one_node_whoever_starts_the_others() {
        let settled = |line: &str, nodes| {
            let mut settings = Settings::new("fifo", "ram");
            settle(&args(line), nodes, &mut settings).map(|()| settings.segment.on)
        };
        assert_eq!(settled("atoll run --translation segment -- a", 1), Ok(1));
        assert_eq!(settled("atoll run -- a", 2), Ok(0));
        for line in ["atoll run --translation segment -- a", "atoll run --translation segment --nodes 2 -- a"]
        {
            let error = settled(line, 2).unwrap_err();
            assert!(error.to_string().contains("is for one node"), "{error}");
        }
        assert!(on_one_node(&args("atoll run --translation segment --hosts a,b -- c")).is_err());
        assert!(on_one_node(&args("atoll run --hosts a,b -- c")).is_ok());
    }
}
