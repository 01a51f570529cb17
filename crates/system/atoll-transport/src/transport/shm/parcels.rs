//! Parcels: longer messages, copied whole to memory that two nodes share, and announced by a line of the ring.
//!
//! `peer.rs` sends by them what would take many lines, each with a header of its own; a message that finds no room here goes
//! through the ring in parts. There is one memory for each direction: its sender writes round and round, its receiver tells how
//! far it has read.
//!
//! Source: the barrelfish paper, section 6.10 (bulk beside messages).

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::channel::{ConnectError, create};
use crate::clock::Deadline;
use crate::memory_file::{FIXED, FileError, Mapping, PAGE, sealed_size};
use crate::socket;

/// The bytes for parcels in one direction; a power of two.
const BYTES: usize = 1 << 20;
/// The alignment of parcels, so that two copies share no cache line.
const ALIGN: usize = 64;
/// The bytes below which messages go through the ring.
const LEAST: usize = 512;
/// The bytes above which messages go through the ring: a quarter, so that several parcels are under way.
const MOST: usize = BYTES / 4;

/// The bytes of the announcement in the ring: the number of bytes sent in this direction before the parcel, and its own.
pub(super) const WORDS: usize = 12;

/// The sending end.
pub(super) struct Outbound {
    mapping: Mapping,
    /// The number of bytes taken so far, those skipped at the memory's end among them.
    head: u64,
}

/// The receiving end.
pub(super) struct Inbound {
    mapping: Mapping,
}

/// Makes the memory for what this end sends, and exchanges it for the other's over `stream`, as both do.
pub(super) fn exchange(
    stream: &UnixStream,
    deadline: &mut Deadline,
) -> Result<(Outbound, Inbound), ConnectError> {
    let os = |what| move |why| ConnectError::Os(what, why);
    let file = create("atoll-parcels", PAGE + BYTES).map_err(os("the memory of parcels"))?;
    socket::send(stream, &[1], &[file.as_fd()], deadline)?;
    let (mut word, mut files) = ([0], Vec::new());
    socket::receive(stream, &mut word, &mut files, deadline)?;
    let theirs = files.pop().ok_or(ConnectError::Greeting("short of the memory of parcels"))?;
    let map = |file: &OwnedFd| Mapping::part(file, 0, PAGE + BYTES).map_err(os("mmap"));
    let enough = match sealed_size(theirs.as_fd(), FIXED) {
        Ok(size) => size >= (PAGE + BYTES) as u64,
        Err(FileError::Os(what, why)) => return Err(ConnectError::Os(what, why)),
        Err(_) => false,
    };
    if !enough {
        return Err(ConnectError::Greeting("with memory for parcels that may change its size"));
    }
    Ok((Outbound { mapping: map(&file)?, head: 0 }, Inbound { mapping: map(&theirs)? }))
}

/// The word in which the receiver tells how far it has read.
fn tail(mapping: &Mapping) -> &AtomicU64 {
    // SAFETY: the mapping begins with a page for this word alone, used as an atomic only.
    unsafe { mapping.base().cast::<AtomicU64>().as_ref() }
}

/// The address of the byte with this number, below [`BYTES`].
fn at(mapping: &Mapping, number: usize) -> *mut u8 {
    // SAFETY: the mapping has a page and then [`BYTES`] bytes.
    unsafe { mapping.base().as_ptr().cast::<u8>().add(PAGE + number) }
}

impl Outbound {
    /// Copies `bytes`, if their length is one for parcels and there is room; returns the content of the line that announces
    /// them.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<[u8; WORDS]> {
        if !(LEAST..=MOST).contains(&bytes.len()) {
            return None;
        }
        let place = self.head as usize % BYTES;
        // A parcel does not cross the end: the bytes left there stay unused this time round.
        let skipped = if place + bytes.len() > BYTES { BYTES - place } else { 0 };
        let begin = self.head + skipped as u64;
        let end = begin + bytes.len().next_multiple_of(ALIGN) as u64;
        // Acquire: pairs with the Release in `take`. A receiver that claims to have read what was not sent makes no room.
        let read = tail(&self.mapping).load(Ordering::Acquire);
        if read > self.head || end - read > BYTES as u64 {
            return None;
        }
        // SAFETY: within the memory; the receiver has read what was there, and the new parcel is announced after the copy.
        unsafe { std::ptr::copy(bytes.as_ptr(), at(&self.mapping, begin as usize % BYTES), bytes.len()) };
        self.head = end;
        let mut words = [0; WORDS];
        words[..8].copy_from_slice(&begin.to_le_bytes());
        words[8..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        Some(words)
    }
}

impl Inbound {
    /// Appends the parcel that `words` announce to `out`, and frees its room. `None` if there can be no such parcel.
    pub(super) fn take(&mut self, words: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let (begin, length) = words.split_first_chunk::<8>()?;
        let (begin, length) = (u64::from_le_bytes(*begin), u32::from_le_bytes(length.try_into().ok()?));
        let (place, length) = (begin as usize % BYTES, length as usize);
        if !(LEAST..=MOST).contains(&length) || place + length > BYTES {
            return None;
        }
        let end = begin.checked_add(length.next_multiple_of(ALIGN) as u64)?;
        out.reserve(length);
        // SAFETY: within the memory, and `out` has room. The sender does not write there before it reads the new tail; one that
        // does so changes bytes, of which every value is valid.
        unsafe {
            std::ptr::copy(at(&self.mapping, place), out.as_mut_ptr().add(out.len()), length);
            out.set_len(out.len() + length);
        }
        // Release: pairs with the Acquire in `put`.
        tail(&self.mapping).store(end, Ordering::Release);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (Outbound, Inbound) {
        let (here, there) = UnixStream::pair().unwrap();
        let other = std::thread::spawn(move || exchange(&there, &mut Deadline::new(None)).unwrap());
        let (outbound, _) = exchange(&here, &mut Deadline::new(None)).unwrap();
        (outbound, other.join().unwrap().1)
    }

    #[test]
    fn parcels_of_all_lengths_arrive_round_and_round() {
        let (mut outbound, mut inbound) = ends();
        let mut random = 7u64;
        let mut under_way = std::collections::VecDeque::new();
        let mut refused = 0;
        for number in 0..3000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let length = LEAST + (random >> 33) as usize % (MOST - LEAST + 1);
            let bytes: Vec<u8> = (0..length).map(|i| (i as u32 ^ number) as u8).collect();
            match outbound.put(&bytes) {
                Some(words) => under_way.push_back((words, bytes)),
                None => refused += 1,
            }
            if random >> 63 == 1 || under_way.len() > 12 {
                let Some((words, bytes)) = under_way.pop_front() else { continue };
                let mut out = vec![9];
                inbound.take(&words, &mut out).unwrap();
                assert!(out[0] == 9 && out[1..] == bytes);
            }
        }
        assert!(refused > 0, "never full");
    }

    #[test]
    fn what_is_no_parcel_is_refused() {
        let (mut outbound, mut inbound) = ends();
        assert!(outbound.put(&[0; LEAST - 1]).is_none() && outbound.put(&vec![0; MOST + 1]).is_none());
        let words = |begin: u64, length: u32| [&begin.to_le_bytes()[..], &length.to_le_bytes()].concat();
        let mut out = Vec::new();
        for bad in [
            words(0, MOST as u32 + 1),
            words(0, u32::MAX),
            words(BYTES as u64 - 100, LEAST as u32),
            words(u64::MAX, LEAST as u32),
            words(0, 0),
            vec![0; 11],
            vec![0; 13],
            Vec::new(),
        ] {
            assert!(inbound.take(&bad, &mut out).is_none(), "{bad:?}");
        }
        assert!(out.is_empty());
        // A receiver that claims to have read more than there was.
        tail(&outbound.mapping).store(u64::MAX, Ordering::Relaxed);
        assert!(outbound.put(&[0; LEAST]).is_none());
    }
}
