//! Names of things in the program's files: globals, and source lines of code addresses.
//!
//! `atoll-sampling`, which can read the files, makes them at the end of a run, as compressed JSON. Addresses are those in the
//! file, so that one entry serves all processes that load it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The names of all files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Names {
    /// The names of each file, by the path that [`Event::Map`](super::Event::Map) gives.
    pub modules: BTreeMap<String, ModuleNames>,
}

/// The names of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ModuleNames {
    /// The loaded segments: offset in the file, bytes in memory, address in the file's terms.
    pub segments: Vec<(u64, u64, u64)>,
    /// The variables with their first address in the file's terms, ascending.
    pub globals: Vec<Global>,
    /// The source of the code addresses (in the file's terms) that samples, blocks and regions name.
    pub lines: BTreeMap<u64, CodeLine>,
}

/// A global variable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Global {
    /// The first address, in the file's terms.
    pub address: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The variable's name.
    pub name: String,
    /// The source file of the declaration; empty: not known.
    pub file: String,
    /// The line of that place; 0: not known.
    pub line: u32,
}

/// The source of a piece of code.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CodeLine {
    /// The function, demangled; empty: not known.
    pub function: String,
    /// The source file; empty: not known.
    pub file: String,
    /// The line; 0: not known.
    pub line: u32,
    /// The variable that the source assigns to there (`a` in `a = malloc(n)`), where it could be read; empty: none.
    pub target: String,
}

impl ModuleNames {
    /// Returns the address, in the file's terms, of what is mapped from `offset` of the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        self.segments
            .iter()
            .find(|(from, bytes, _)| offset.checked_sub(*from).is_some_and(|inside| inside < *bytes))
            .map(|(from, _, address)| address.wrapping_add(offset - from))
    }
}
