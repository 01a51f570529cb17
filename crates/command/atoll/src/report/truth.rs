//! Reads from exact traces what a program really touched: accesses by page.
//!
//! `agreement` compares samples with this. A program that does the same in each iteration does so exactly, so two short traces
//! tell what any number of iterations touches.

use std::collections::HashMap;
use std::path::Path;

use atoll_record::trace::{Event, Reader, TraceError};

/// The reason why there is no truth.
#[derive(thiserror::Error, Debug)]
pub(crate) enum TruthError {
    /// The trace cannot be read.
    #[error("{0}: {1}")]
    Trace(String, TraceError),
    /// The trace left accesses out.
    #[error("{0} is not exact: make it with atoll trace --exact")]
    Filtered(String),
}

/// The accesses of a page.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Accesses {
    pub(crate) reads: f64,
    pub(crate) writes: f64,
}

/// The counts of a trace.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// The accesses by page, in the trace's addresses.
    pub(crate) pages: HashMap<u64, Accesses>,
    /// The regions' addresses by name.
    pub(crate) names: HashMap<String, u64>,
    /// The first pages of what was mapped while the program ran.
    pub(crate) maps: Vec<u64>,
}

impl Truth {
    /// Reads an exact trace.
    ///
    /// # Errors
    /// See [`TruthError`].
    pub(crate) fn read(path: &Path) -> Result<Self, TruthError> {
        let failed = |e| TruthError::Trace(path.display().to_string(), e);
        let mut reader = Reader::open(path).map_err(failed)?;
        if !reader.header().exact {
            return Err(TruthError::Filtered(path.display().to_string()));
        }
        let (mut events, mut truth) = (Vec::new(), Self::default());
        while reader.next_chunk(&mut events).map_err(failed)? {
            for event in events.drain(..) {
                match event {
                    Event::Access { page, write: false, .. } => {
                        truth.pages.entry(page).or_default().reads += 1.0;
                    }
                    Event::Access { page, write: true, .. } => {
                        truth.pages.entry(page).or_default().writes += 1.0;
                    }
                    Event::Map { first, .. } => truth.maps.push(first),
                    _ => {}
                }
            }
        }
        if let Some(trailer) = reader.trailer() {
            truth.names = trailer.names.iter().map(|(at, name)| (name.clone(), *at)).collect();
        }
        Ok(truth)
    }

    /// Returns what `wanted` iterations touch, from traces of `few` and of `more`.
    pub(crate) fn of_iterations(few: &Self, more: Self, counts: [u32; 2], wanted: u32) -> Self {
        let steps =
            (f64::from(wanted) - f64::from(counts[0])) / (f64::from(counts[1]) - f64::from(counts[0]));
        let along = |a: f64, b: f64| (a + (b - a) * steps).max(0.0);
        let mut truth = more;
        for (page, accesses) in &mut truth.pages {
            let first = few.pages.get(page).copied().unwrap_or_default();
            accesses.reads = along(first.reads, accesses.reads);
            accesses.writes = along(first.writes, accesses.writes);
        }
        truth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_are_all_alike() {
        let of = |reads, writes| Truth {
            pages: HashMap::from([(5, Accesses { reads, writes })]),
            ..Truth::default()
        };
        let all = Truth::of_iterations(&of(10.0, 3.0), of(16.0, 3.0), [2, 4], 102);
        assert_eq!(all.pages[&5], Accesses { reads: 310.0, writes: 3.0 });
    }
}
