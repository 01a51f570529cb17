//! A ring in a file: makes one, and checks one that was handed over.
//!
//! Stands on `file.rs` and returns the rings of `memory.rs`; `pair.rs` and `connect.rs` hand the files over.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::channel::error::AttachError;
use crate::channel::file;
use crate::channel::settings::Settings;
use crate::memory_file::Mapping;
use crate::ring::memory::{CONTROL_BYTES, Control, Ring, Side};
use crate::ring::sync::Ordering;

/// The magic number, `ATOLLRNG` in the order of the bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"ATOLLRNG");

/// Makes an empty ring in a file.
pub(crate) fn create(settings: &Settings) -> io::Result<OwnedFd> {
    let file = file::create("atoll-ring", settings.ring_bytes())?;
    let mapping = Mapping::populated(&file, settings.ring_bytes())?;
    // SAFETY: the mapping begins with a control part, aligned to a page; zeros are a valid one.
    let control = unsafe { mapping.base().cast::<Control>().as_ref() };
    // Relaxed: no other process has the file yet, and it is handed over by a system call.
    control.identity.lines.store(settings.lines, Ordering::Relaxed);
    control.identity.longest.store(settings.longest as u64, Ordering::Relaxed);
    file::identify(&control.identity.magic, &control.identity.version, MAGIC);
    Ok(file)
}

/// Maps the ring in `file` and checks that it is a ring with `settings`. Every word is read once, because the peer may change
/// it at any time.
pub(crate) fn attach(file: BorrowedFd<'_>, settings: &Settings) -> Result<Ring, AttachError> {
    let mapping = file::map(file, CONTROL_BYTES, settings.ring_bytes())?;
    // SAFETY: the mapping holds a control part, aligned to a page, used as atomics only.
    let control = unsafe { mapping.base().cast::<Control>().as_ref() };
    file::check_identity(&control.identity.magic, &control.identity.version, MAGIC)?;
    let agree = |what, theirs, ours| {
        if theirs == ours { Ok(()) } else { Err(AttachError::Settings { what, theirs, ours }) }
    };
    agree("lines", control.identity.lines.load(Ordering::Relaxed).into(), settings.lines.into())?;
    agree("longest", control.identity.longest.load(Ordering::Relaxed), settings.longest as u64)?;
    if mapping.bytes() < settings.ring_bytes() {
        return Err(AttachError::Truncated { bytes: mapping.bytes(), least: settings.ring_bytes() });
    }
    // SAFETY: the lines lie behind the control part, and the mapping holds as many as `bytes` counts.
    let lines = unsafe { mapping.base().add(CONTROL_BYTES) }.cast();
    let control = mapping.base().cast();
    // SAFETY: valid, aligned (the control part is a multiple of lines), atomics only; the mapping is kept with the
    // ring.
    Ok(unsafe { Ring::new(control, lines, settings.lines, Arc::new(mapping)) })
}

/// Attaches as the end that `side` belongs to, which is possible once.
pub(crate) fn take(side: &Side) -> Result<(), AttachError> {
    // Relaxed: the swap orders nothing, it only counts.
    match side.attached.swap(1, Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(AttachError::Taken),
    }
}
