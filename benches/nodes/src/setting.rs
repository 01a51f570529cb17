//! What is compared: the program as it is, on one node, and on several by protocol.

use std::ffi::OsString;
use std::fmt;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Without atoll.
    Native,
    /// Under atoll, on one node.
    One,
    /// On several: one writer of a page at a time.
    Sc,
    /// Many writers wherever that is safe.
    Mw,
    /// Region by region.
    Smart,
    /// And what a region needed before is fetched ahead.
    SmartPrefetch,
}

impl Setting {
    pub(crate) const ALL: [Setting; 6] =
        [Setting::Native, Setting::One, Setting::Sc, Setting::Mw, Setting::Smart, Setting::SmartPrefetch];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Setting::Native => "native",
            Setting::One => "one node",
            Setting::Sc => "sc",
            Setting::Mw => "mw",
            Setting::Smart => "smart",
            Setting::SmartPrefetch => "smart+prefetch",
        }
    }

    /// Is it one of those on several nodes?
    pub(crate) fn several(self) -> bool {
        !matches!(self, Setting::Native | Setting::One)
    }

    /// The flags of `atoll run`, where those in `nodes` say which nodes there are; none: without atoll.
    pub(crate) fn flags(self, nodes: &[OsString]) -> Option<Vec<OsString>> {
        let (consistency, prefetch) = match self {
            Setting::Native => return None,
            Setting::One => return Some(Vec::new()),
            Setting::Sc => ("sc", "off"),
            Setting::Mw => ("mw", "off"),
            Setting::Smart => ("smart", "off"),
            Setting::SmartPrefetch => ("smart", "on"),
        };
        // What protocols cost is seen where regions stay spread.
        let words = ["--consistency", consistency, "--prefetch", prefetch, "--home-alone", "off"];
        Some(nodes.iter().cloned().chain(words.map(OsString::from)).collect())
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
