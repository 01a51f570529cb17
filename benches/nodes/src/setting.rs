//! The settings that are compared: the program as it is, on one node, and on several by protocol.

use std::ffi::OsString;
use std::fmt;

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Without atoll.
    Native,
    /// Under atoll, on one node.
    One,
    /// Under atoll, on several nodes, with one writer of a page at a time.
    Sc,
    /// On several nodes, with many writers wherever that is safe.
    Mw,
    /// On several nodes, with the protocol chosen for each region.
    Smart,
    /// As `Smart`; and the pages that a region needed before are fetched ahead.
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

    /// Whether the setting is on several nodes.
    pub(crate) fn several(self) -> bool {
        !matches!(self, Setting::Native | Setting::One)
    }

    /// Returns the flags of `atoll run`, with the flags `nodes`, which say which nodes there are; `None`: without atoll.
    pub(crate) fn flags(self, nodes: &[OsString]) -> Option<Vec<OsString>> {
        let (consistency, prefetch) = match self {
            Setting::Native => return None,
            Setting::One => return Some(Vec::new()),
            Setting::Sc => ("sc", "off"),
            Setting::Mw => ("mw", "off"),
            Setting::Smart => ("smart", "off"),
            Setting::SmartPrefetch => ("smart", "on"),
        };
        // The cost of protocols is seen where regions stay spread.
        let words = ["--consistency", consistency, "--prefetch", prefetch, "--home-alone", "off"];
        Some(nodes.iter().cloned().chain(words.map(OsString::from)).collect())
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
