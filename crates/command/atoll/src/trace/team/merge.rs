//! Writes several workers' words in the order of the instructions before them.
//!
//! `team` says which words belong together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;

use atoll_record::trace::Event;
use atoll_trace_wire::word::{self, Kind};

use crate::trace::output::Output;

/// Writes one worker's words, in their order.
pub(super) fn tell<W: Write>(worker: u16, words: &[u64], out: &mut Output<W>) {
    let mut at = 0;
    while at < words.len() {
        at += tell_one(worker, &words[at..], out);
    }
}

/// Writes all workers' words. Each worker's clock begins at 0; of equal ones the lower worker is first.
pub(super) fn together<'a, W: Write>(workers: impl Iterator<Item = (u16, &'a [u64])>, out: &mut Output<W>) {
    let mut left: Vec<(u16, &[u64])> = workers.collect();
    let mut heap: BinaryHeap<Reverse<(u64, usize)>> = left
        .iter()
        .enumerate()
        .filter(|(_, (_, words))| !words.is_empty())
        .map(|(index, (_, words))| Reverse((elapsed(words[0]), index)))
        .collect();
    while let Some(Reverse((mut clock, index))) = heap.pop() {
        let next = heap.peek().map(|Reverse(next)| *next);
        let (worker, words) = &mut left[index];
        loop {
            *words = &words[tell_one(*worker, words, out)..];
            let Some(&first) = words.first() else { break };
            clock += elapsed(first);
            if next.is_some_and(|next| next < (clock, index)) {
                heap.push(Reverse((clock, index)));
                break;
            }
        }
    }
}

/// Returns the instructions before a word's event.
fn elapsed(word: u64) -> u64 {
    match Kind::of(word) {
        Some(Kind::Read | Kind::Write) => word::elapsed(word),
        Some(Kind::Elapsed) => word::amount(word),
        _ => 0,
    }
}

/// Writes the event of the first of `words`, which must not be empty; returns the number of words that belong to it.
fn tell_one<W: Write>(worker: u16, words: &[u64], out: &mut Output<W>) -> usize {
    let (first, name) = (words[0], words.get(1).copied().unwrap_or(0));
    let Some(kind) = Kind::of(first) else { return 1 };
    match kind {
        Kind::Read | Kind::Write => {
            out.elapsed(worker, word::elapsed(first));
            out.access(worker, word::page(first), kind == Kind::Write);
        }
        Kind::Elapsed => out.elapsed(worker, word::amount(first)),
        Kind::Begin => out.mark(worker, &Event::RegionBegin { worker, name }),
        Kind::End => out.mark(worker, &Event::RegionEnd { worker, name }),
        Kind::Barrier => out.mark(worker, &Event::Barrier { worker, name }),
        Kind::Map => out.mapping(&Event::Map { first: name, pages: word::amount(first) }),
        Kind::Unmap => out.mapping(&Event::Unmap { first: name, pages: word::amount(first) }),
        Kind::Seen | Kind::Module => {}
    }
    (1 + kind.more(first)).min(words.len())
}
