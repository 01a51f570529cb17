//! Names of what is in the program's files: globals, and source lines of code addresses.
//!
//! Made at the end of a run by whoever can read the files (`atoll-sampling`), as JSON, compressed. Addresses are those in the
//! file, so that one entry serves all processes that load it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Names of all files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Names {
    /// By the path that [`Event::Map`](super::Event::Map) gives.
    pub modules: BTreeMap<String, ModuleNames>,
}

/// Names of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ModuleNames {
    /// Loaded segments: offset in the file, bytes in memory, address in the file's terms.
    pub segments: Vec<(u64, u64, u64)>,
    /// Variables with their first address in the file's terms, ascending.
    pub globals: Vec<Global>,
    /// Code by address in the file's terms: those addresses that samples, blocks and regions name.
    pub lines: BTreeMap<u64, CodeLine>,
}

/// A global variable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Global {
    /// First address, in the file's terms.
    pub address: u64,
    /// How long.
    pub bytes: u64,
    /// Its name.
    pub name: String,
    /// Where it is declared; empty: not known.
    pub file: String,
    /// The line there; 0: not known.
    pub line: u32,
}

/// Where a piece of code comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CodeLine {
    /// The function, demangled; empty: not known.
    pub function: String,
    /// The source file; empty: not known.
    pub file: String,
    /// The line; 0: not known.
    pub line: u32,
    /// What the source assigns there (`a` in `a = malloc(n)`), where it could be read; empty: nothing.
    pub target: String,
}

impl ModuleNames {
    /// The address in the file's terms of what is mapped from `offset` of the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        self.segments
            .iter()
            .find(|(from, bytes, _)| offset.checked_sub(*from).is_some_and(|inside| inside < *bytes))
            .map(|(from, _, address)| address.wrapping_add(offset - from))
    }
}
