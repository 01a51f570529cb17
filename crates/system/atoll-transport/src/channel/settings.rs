//! The settings of a channel, which both ends must choose alike.
//!
//! `connect.rs` compares the two ends' settings, `ring_file.rs` makes the memory by them.
//!
//! Source: the barrelfish paper, section 5.5.3 (where the buffers lie is a parameter).

use crate::memory_file::PAGE;
use crate::ring::line::{Line, PAYLOAD};
use crate::ring::memory::CONTROL_BYTES;

/// The default number of lines of a ring: with the four control lines they fill a page of 4 KiB. A channel has two rings.
pub const DEFAULT_LINES: u32 = 60;
/// The greatest number of lines of a ring, which take 4 MiB.
pub const MOST_LINES: u32 = 65_536;
/// The default for the bytes of the longest message.
pub const DEFAULT_LONGEST: usize = 1 << 20;
/// The greatest value of `longest`, in bytes.
pub const MOST_LONGEST: usize = 1 << 30;
/// The default number of checks that a waiter makes before it sleeps, which take some 20 to 50 µs.
pub const DEFAULT_SPINS: u32 = 2_000;

/// The end whose memory a ring lies in: its process makes the memfd, is charged for the pages, and has them on its own NUMA
/// node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// The sender's end: it writes to its own memory, and the receiver polls the sender's. The paper found this the fastest
    /// between machines that share no cache (section 5.5.4), so it is the default.
    Sender,
    /// The receiver's end: the sender writes to the receiver's memory, and the receiver polls its own.
    Receiver,
}

/// A channel's settings, from one end's view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The lines of 64 bytes in each of the two rings, 2 to [`MOST_LINES`]. A ring takes (lines + 4) × 64 bytes, rounded up to
    /// pages of 4 KiB.
    pub lines: u32,
    /// The bytes of the longest message, 56 to [`MOST_LONGEST`]. A receiver never keeps more, whatever the peer sends.
    pub longest: usize,
    /// The placement of the ring through which this end sends.
    pub outgoing: Placement,
    /// The placement of the ring from which this end receives.
    pub incoming: Placement,
    /// The number of checks that this end makes before it sleeps. The peer's may differ.
    pub spins: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lines: DEFAULT_LINES,
            longest: DEFAULT_LONGEST,
            outgoing: Placement::Sender,
            incoming: Placement::Sender,
            spins: DEFAULT_SPINS,
        }
    }
}

/// A setting out of its range.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingsError {
    /// `lines` is out of its range.
    #[error("a ring of {0} lines is not possible: from 2 to {MOST_LINES}")]
    Lines(u32),
    /// `longest` is out of its range.
    #[error("a longest message of {0} bytes is not possible: from {PAYLOAD} to {MOST_LONGEST}")]
    Longest(usize),
}

impl Settings {
    /// The settings of the same channel from the other end's view.
    #[must_use]
    pub fn mirrored(self) -> Settings {
        Settings { outgoing: self.incoming, incoming: self.outgoing, ..self }
    }

    /// The bytes of shared memory of one of the two rings.
    #[must_use]
    pub fn ring_bytes(&self) -> usize {
        (CONTROL_BYTES + self.lines as usize * size_of::<Line>()).next_multiple_of(PAGE)
    }

    /// Checks that all settings are in their ranges.
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        if !(2..=MOST_LINES).contains(&self.lines) {
            return Err(SettingsError::Lines(self.lines));
        }
        if !(PAYLOAD..=MOST_LONGEST).contains(&self.longest) {
            return Err(SettingsError::Longest(self.longest));
        }
        Ok(())
    }
}
