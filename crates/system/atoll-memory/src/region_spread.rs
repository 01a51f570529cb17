//! What is counted of a region of a program on several nodes: how it ran and why, what keeping pages coherent took, and how
//! long each node worked and waited.
//!
//! A part of `region_counts`. The leader of each node's part adds what its node counted meanwhile; on the origin, at the end,
//! is the sum over all nodes.
//!
//! Rules: as there.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::control::{NODE_COUNTS, NodeFigures};
use crate::layout::MAX_NODES;

/// The reason why a region runs as it does: a number in [`Spread`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RunReason {
    /// Nothing is known.
    Unknown,
    /// On the origin alone: it has a construct that cannot be spread; the text names its entry point.
    Construct,
    /// On the origin alone: its team is smaller than the number of nodes.
    Small,
    /// On the origin alone: measured, that takes less time.
    OnOrigin,
    /// On the origin alone: to measure what that takes.
    TryOrigin,
    /// One writer: its code synchronises memory, or it cannot be told; the text says how, the address where.
    Code,
    /// One writer: it calls what synchronises memory; the text names the entry point.
    Call,
    /// What the user chose.
    User,
    /// One writer: many saved too few invalidations for too long.
    FellBack,
    /// Many writers: it did not run often enough to tell.
    New,
    /// Many writers: they save invalidations.
    Pays,
    /// Many writers: they saved too few in the last runs.
    Probation,
    /// Many writers: as a region of one writer it sent many invalidations again.
    CameBack,
    /// One writer: the copies that many need take too much of some node's near memory.
    Twins,
    /// Many writers: words are looked for that two nodes write.
    Races,
    /// On the origin alone: only that one has a library which the program has loaded.
    Library,
    /// On the origin alone: the other nodes bring no CPUs for its workers.
    NoCpus,
    /// On the origin alone: its code synchronises memory, so that its first runs are there.
    AtHome,
    /// On the origin alone: its pages went to and fro between nodes.
    Thrashed,
}

impl RunReason {
    const ALL: [RunReason; 19] = [
        RunReason::Unknown,
        RunReason::Construct,
        RunReason::Small,
        RunReason::OnOrigin,
        RunReason::TryOrigin,
        RunReason::Code,
        RunReason::Call,
        RunReason::User,
        RunReason::FellBack,
        RunReason::New,
        RunReason::Pays,
        RunReason::Probation,
        RunReason::CameBack,
        RunReason::Twins,
        RunReason::Races,
        RunReason::Library,
        RunReason::NoCpus,
        RunReason::AtHome,
        RunReason::Thrashed,
    ];
}

/// How many nodes may write a page at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Writers {
    /// The region runs on one node.
    Alone,
    /// One at a time.
    One,
    /// Many.
    Many,
}

/// Bytes of [`Text`].
const TEXT: usize = 64;

/// A few words, written by one worker and read at any time.
#[derive(Debug)]
pub struct Text([AtomicU8; TEXT]);

impl Text {
    /// Puts the text there, as much of it as has room.
    pub fn set(&self, text: &str) {
        let mut bytes = text.bytes();
        for byte in &self.0 {
            byte.store(bytes.next().unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// The text.
    #[must_use]
    pub fn get(&self) -> String {
        let bytes = self.0.each_ref().map(|byte| byte.load(Ordering::Relaxed));
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(TEXT);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// What several nodes did for one region; valid when zero.
#[repr(C)]
#[derive(Debug)]
pub struct Spread {
    /// Runs, those on the origin alone included.
    pub runs: AtomicU64,
    /// Runs on the origin alone.
    pub alone: AtomicU64,
    /// Nanoseconds from their begin to their end, on the origin.
    pub ns: AtomicU64,
    /// The part of [`ns`](Self::ns) that runs on the origin alone took.
    pub alone_ns: AtomicU64,
    /// [`Writers`] of the last run.
    writers: AtomicU32,
    /// [`RunReason`].
    why: AtomicU32,
    /// See [`RunReason`].
    pub address: AtomicU64,
    /// See [`RunReason`].
    pub text: Text,
    /// Sums over runs, by [`NodeCount`](crate::control::NodeCount).
    pub counts: [AtomicU64; NODE_COUNTS],
    /// Nanoseconds that each node's last worker waited at barriers.
    pub waited: [AtomicU64; MAX_NODES],
    /// Nanoseconds that each node worked before it waited.
    pub worked: [AtomicU64; MAX_NODES],
    /// Threads of each node in the last run.
    pub threads: [AtomicU32; MAX_NODES],
}

impl Spread {
    /// How the run that begins goes, and why.
    pub fn goes(&self, writers: Writers, why: RunReason) {
        self.writers.store(writers as u32, Ordering::Relaxed);
        self.why.store(why as u32, Ordering::Relaxed);
    }

    /// How the last run went, and why.
    #[must_use]
    pub fn went(&self) -> (Writers, RunReason) {
        let writers = match self.writers.load(Ordering::Relaxed) {
            0 => Writers::Alone,
            1 => Writers::One,
            _ => Writers::Many,
        };
        let why = self.why.load(Ordering::Relaxed) as usize;
        (writers, RunReason::ALL.get(why).copied().unwrap_or(RunReason::Unknown))
    }

    /// Adds what node `node` counted since `before`.
    pub fn add(&self, before: &[u64; NODE_COUNTS], now: &NodeFigures) {
        for ((sum, before), now) in self.counts.iter().zip(before).zip(&now.counts) {
            sum.fetch_add(now.load(Ordering::Relaxed).wrapping_sub(*before), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_by_their_numbers() {
        for (number, why) in RunReason::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, number);
        }
    }

    #[test]
    fn a_text_is_cut_where_there_is_no_room() {
        let text = Text([const { AtomicU8::new(1) }; TEXT]);
        text.set("GOMP_doacross_post");
        assert_eq!(text.get(), "GOMP_doacross_post");
        text.set(&"x".repeat(TEXT + 1));
        assert_eq!(text.get().len(), TEXT);
    }
}
