//! A ready set in a file: makes one, and checks one that was handed over.
//!
//! Stands on `file.rs` and returns the sets of `ready.rs`; `wait_set.rs` owns sets, `connect.rs` and `pair.rs` hand them to
//! producers.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::channel::cache::Cache;
use crate::channel::error::{AttachError, CreateError};
use crate::channel::file;
use crate::memory_file::{Mapping, PAGE};
use crate::ring::ready::{MOST_SEATS, ReadySet, SetControl, leaf_words, summary_words};
use crate::ring::sync::Ordering;

/// The magic number, `ATOLLSET` in the order of the bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"ATOLLSET");

/// The sets mapped in this process: each once, however many channels notify it.
static MAPPED: Cache<(u64, u64), Mapping> = Cache::new();

fn bytes(seats: u32) -> usize {
    (size_of::<SetControl>() + (summary_words(seats) + leaf_words(seats)) * 8).next_multiple_of(PAGE)
}

/// Makes a set of `seats` seats in a file.
pub(crate) fn create(seats: u32) -> Result<OwnedFd, CreateError> {
    if !(1..=MOST_SEATS).contains(&seats) {
        return Err(CreateError::Seats(seats));
    }
    let os = |e| CreateError::Os("a wait set's memory", e);
    let file = file::create("atoll-set", bytes(seats)).map_err(os)?;
    let mapping = Mapping::populated(&file, bytes(seats)).map_err(os)?;
    // SAFETY: the mapping begins with a control part, aligned to a page; zeros are a valid one.
    let control = unsafe { mapping.base().cast::<SetControl>().as_ref() };
    // Relaxed: no other process has the file yet, and it is handed over by a system call.
    control.identity.seats.store(seats, Ordering::Relaxed);
    file::identify(&control.identity.magic, &control.identity.version, MAGIC);
    Ok(file)
}

/// Maps the set in `file` and checks that it is a set.
pub(crate) fn attach(file: BorrowedFd<'_>) -> Result<ReadySet, AttachError> {
    let stat = rustix::fs::fstat(file).map_err(|e| AttachError::Os("fstat", e.into()))?;
    let id = (stat.st_dev, stat.st_ino);
    let make = || file::map(file, size_of::<SetControl>(), bytes(MOST_SEATS)).map(Arc::new);
    let mapping = MAPPED.get(id, |_| true, make)?;
    // SAFETY: the mapping holds a control part, aligned to a page, used as atomics only.
    let control = unsafe { mapping.base().cast::<SetControl>().as_ref() };
    file::check_identity(&control.identity.magic, &control.identity.version, MAGIC)?;
    let seats = control.identity.seats.load(Ordering::Relaxed);
    if seats > MOST_SEATS || mapping.bytes() < bytes(seats) {
        return Err(AttachError::Truncated { bytes: mapping.bytes(), least: bytes(seats.min(MOST_SEATS)) });
    }
    // SAFETY: the words lie behind the control part, and the mapping holds as many as `bytes` counts.
    let words = unsafe { mapping.base().add(size_of::<SetControl>()) }.cast();
    let control = mapping.base().cast();
    // SAFETY: valid, aligned, atomics only; the mapping is kept with the set.
    Ok(unsafe { ReadySet::new(control, words, seats, mapping) })
}
