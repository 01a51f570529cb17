//! `--translation segment`: what it goes together with, and what the runtime is told.
//!
//! `launch` asks before anything is started.

use atoll_memory::control::Settings;
use atoll_memory::segment::{PageKind, SegmentSettings};

use crate::cli::{FaultsArg, PageTablesArg, RunArgs, Translation};
use crate::defaults;

/// Why the flags do not go together.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
pub(crate) enum TranslationError {
    /// A flag about pages that come and go.
    #[error(
        "{0} means nothing with --translation segment: a segment is not paged, all of it is near. Leave one of them out"
    )]
    Paged(&'static str),
    /// A flag about segments without one.
    #[error("{0} means nothing without --translation segment")]
    NoSegment(&'static str),
}

/// Enters what the flags say about a segment into the settings.
///
/// # Errors
/// Flags that contradict each other.
pub(crate) fn settle(args: &RunArgs, settings: &mut Settings) -> Result<(), TranslationError> {
    let t = &args.translation;
    if t.translation == Translation::Paging {
        let given = [("--segment-size", t.segment_size.is_some()), ("--strict", t.strict)];
        return match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(TranslationError::NoSegment(flag)),
            None => Ok(()),
        };
    }
    let memory = &args.memory;
    let given = [
        ("--near", args.near.is_some()),
        ("--nodes", args.nodes.is_some_and(|n| n > 1)),
        ("--far-limit", memory.far_limit.is_some()),
        ("--far", defaults::FAR.parse().as_ref() != Ok(&memory.far)),
        ("--policy", defaults::POLICY.parse() != Ok(args.policy)),
        ("--cmcp-p", args.cmcp_p.is_some()),
        ("--page", defaults::PAGE.parse() != Ok(args.page)),
        ("--page-tables shared", memory.page_tables == PageTablesArg::Shared),
        ("--faults thread", memory.faults == FaultsArg::Thread),
    ];
    if let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(TranslationError::Paged(flag));
    }
    let workers = settings.workers;
    // The parts of a pager that stay as small as they can be.
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
