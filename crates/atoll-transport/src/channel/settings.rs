//! What can be chosen of a channel; both ends must choose the same.
//!
//! `connect.rs` compares the two ends' choices, `ring_file.rs` makes the memory by them.
//!
//! Source: the barrelfish paper, section 5.5.3 (where the buffers lie is a parameter).

use crate::memory_file::PAGE;
use crate::ring::line::{Line, PAYLOAD};
use crate::ring::memory::CONTROL_BYTES;

/// Lines of a ring by default: with the four control lines they fill one page of 4 KiB, and a channel has two rings.
pub const DEFAULT_LINES: u32 = 60;
/// Most lines of a ring: 4 MiB.
pub const MOST_LINES: u32 = 65_536;
/// Bytes of the longest message by default.
pub const DEFAULT_LONGEST: usize = 1 << 20;
/// Bytes that `longest` may be at most.
pub const MOST_LONGEST: usize = 1 << 30;
/// How often a waiter looks by default before it sleeps: some 20 to 50 µs.
pub const DEFAULT_SPINS: u32 = 2_000;

/// Whose memory a ring lies in: who makes its memfd, is charged for its pages, and has them on its own NUMA node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// The sender's: it writes to its own memory, and the receiver polls the sender's. The paper found this the
    /// fastest between machines that share no cache (section 5.5.4), so it is the default.
    Sender,
    /// The receiver's: the sender writes to the receiver's memory, which polls its own.
    Receiver,
}

/// A channel's settings, from one end's view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Lines of 64 bytes in each of the two rings, 2 to [`MOST_LINES`]. A ring takes (lines + 4) × 64 bytes, rounded
    /// up to pages of 4 KiB.
    pub lines: u32,
    /// Bytes of the longest message, 56 to [`MOST_LONGEST`]. A receiver never keeps more, whatever the peer sends.
    pub longest: usize,
    /// Where the ring lies that this end sends through.
    pub outgoing: Placement,
    /// Where the ring lies that this end receives from.
    pub incoming: Placement,
    /// How often this end looks before it sleeps. The peer's may differ.
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
    /// `lines`.
    #[error("a ring of {0} lines is not possible: from 2 to {MOST_LINES}")]
    Lines(u32),
    /// `longest`.
    #[error("a longest message of {0} bytes is not possible: from {PAYLOAD} to {MOST_LONGEST}")]
    Longest(usize),
}

impl Settings {
    /// The same channel's settings from the other end's view.
    #[must_use]
    pub fn mirrored(self) -> Settings {
        Settings { outgoing: self.incoming, incoming: self.outgoing, ..self }
    }

    /// Bytes of shared memory of one of the two rings.
    #[must_use]
    pub fn ring_bytes(&self) -> usize {
        (CONTROL_BYTES + self.lines as usize * size_of::<Line>()).next_multiple_of(PAGE)
    }

    /// All settings are in their ranges.
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
