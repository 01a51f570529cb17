//! Diffs: the bytes of a page that changed since its twin was made, and how they are merged into a page that others changed.
//!
//! A node that wrote beside others sends a diff to the node that merges the page (`merge.rs`). Unchanged bytes are not in it:
//! they may be another node's, which a coarser diff would overwrite with old values. A diff holds the new bytes and not the
//! exclusive or of old and new: two such diffs of one word would make a value that nobody wrote.
//!
//! Two nodes that changed one byte have a race. The race is decided for a whole word (8 bytes, aligned) and not for each byte
//! ([`apply`]), so that one node's word stays whole; for that a diff also holds the old bytes of words that changed in part.
//! The rule and its limits are in `docs/coherence.md`, "Data races".
//!
//! The format has numbers in LEB128. An even number 2n skips n blocks of 64 bytes. An odd number 2n + 1 with n > 0 is followed
//! by n blocks that changed in every byte. 1 is followed by one block's mask, 8 bytes, little-endian, bit i for byte i, and by
//! the block's changed words: of each, the bytes whose bit is set and, if that is not all of them, the old values of these
//! bytes. Pages are whole blocks. A block costs at most 121 bytes.
//!
//! Source: the Popcorn paper, sections 3.1 and 4.1 (differential logging).

mod pack;

#[cfg(target_arch = "x86_64")]
use pack::bmi2::Bmi2;
use pack::{Pack, Plain, expand, has_zero};

/// The bytes of a block.
pub const BLOCK: usize = 64;
/// The bytes of a word, the unit that a race leaves whole.
pub const WORD: usize = 8;

/// The reasons why bytes are not a diff of a page of this size.
#[derive(thiserror::Error, Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffError {
    /// The diff ends in the middle of something.
    #[error("the diff ends in the middle, after {0} bytes")]
    CutOff(usize),
    /// The diff goes beyond the page.
    #[error("the diff goes beyond its page, at byte {0} of the diff")]
    Beyond(usize),
}

/// Appends to `out` the diff from `twin` to `page`, which have the same whole number of blocks. Appends nothing if nothing
/// changed.
///
/// # Panics
///
/// If the sizes differ or are not whole blocks.
pub fn encode(twin: &[u8], page: &[u8], out: &mut Vec<u8>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(bmi2) = Bmi2::here() {
        #[target_feature(enable = "bmi2")]
        fn fast(bmi2: Bmi2, twin: &[u8], page: &[u8], out: &mut Vec<u8>) {
            encode_by(bmi2, twin, page, out);
        }
        // SAFETY: the processor has the instructions.
        return unsafe { fast(bmi2, twin, page, out) };
    }
    encode_by(Plain, twin, page, out);
}

#[inline(always)]
fn encode_by(pack: impl Pack, twin: &[u8], page: &[u8], out: &mut Vec<u8>) {
    let (before, rest) = twin.as_chunks::<BLOCK>();
    let (after, rest_after) = page.as_chunks::<BLOCK>();
    assert!(
        rest.is_empty() && rest_after.is_empty() && before.len() == after.len(),
        "pages are whole blocks"
    );
    let mut at = 0;
    while at < after.len() {
        let equal = before[at..].iter().zip(&after[at..]).take_while(|(old, new)| same(old, new)).count();
        if at + equal == after.len() {
            return;
        }
        if equal > 0 {
            number(2 * equal as u64, out);
        }
        at += equal;
        // All blocks that follow up to one that is equal or changed in part.
        let full =
            before[at..].iter().zip(&after[at..]).take_while(|(old, new)| changed(old, new) == u64::MAX);
        let full = full.count();
        if full > 0 {
            number(2 * full as u64 + 1, out);
            out.extend_from_slice(after[at..at + full].as_flattened());
            at += full;
            continue;
        }
        part(pack, changed(&before[at], &after[at]), &before[at], &after[at], out);
        at += 1;
    }
}

/// Appends a block whose changed bytes are those of `mask`.
#[inline(always)]
fn part(pack: impl Pack, mask: u64, before: &[u8; BLOCK], after: &[u8; BLOCK], out: &mut Vec<u8>) {
    number(1, out);
    let masks = mask.to_le_bytes();
    out.extend_from_slice(&masks);
    // Whole words are written, and surplus bytes overwritten by the next word, so there is room for one more.
    let (mut bytes, mut end) = ([0; 2 * BLOCK + WORD], 0);
    let mut put = |word: u64, count: usize| {
        bytes[end..end + WORD].copy_from_slice(&word.to_le_bytes());
        end += count;
    };
    let words = before.as_chunks::<WORD>().0.iter().zip(after.as_chunks::<WORD>().0);
    for (mask, (old, new)) in masks.into_iter().zip(words).filter(|(mask, _)| *mask != 0) {
        let (old, new) = (u64::from_le_bytes(*old), u64::from_le_bytes(*new));
        if mask == u8::MAX {
            put(new, WORD);
        } else {
            let (bytes, count) = (expand(mask), mask.count_ones() as usize);
            put(pack.pack(new, bytes), count);
            put(pack.pack(old, bytes), count);
        }
    }
    out.extend_from_slice(&bytes[..end]);
}

/// Merges `diff` into `page`, which other nodes, and this one, may have changed. A word stays as it is if all bytes that the
/// diff changes in it were changed here before; otherwise all of the diff's bytes of the word are written. So a byte that one
/// node changed survives. If two nodes changed a byte, the node that changed more of the word has the word whole, provided that
/// it changed all bytes that the other did.
///
/// After an error nothing more is written; what was written before stays.
pub fn apply(diff: &[u8], page: &mut [u8]) -> Result<(), DiffError> {
    #[cfg(target_arch = "x86_64")]
    if let Some(bmi2) = Bmi2::here() {
        #[target_feature(enable = "bmi2")]
        fn fast(bmi2: Bmi2, diff: &[u8], page: &mut [u8]) -> Result<(), DiffError> {
            apply_by(bmi2, diff, page)
        }
        // SAFETY: the processor has the instructions.
        return unsafe { fast(bmi2, diff, page) };
    }
    apply_by(Plain, diff, page)
}

#[inline(always)]
fn apply_by(pack: impl Pack, diff: &[u8], page: &mut [u8]) -> Result<(), DiffError> {
    let (blocks, _) = page.as_chunks_mut::<BLOCK>();
    let mut reader = Reader { bytes: diff, at: 0 };
    let mut at = 0_usize;
    while reader.at < diff.len() {
        let number = reader.number()?;
        let count = usize::try_from(number / 2).unwrap_or(usize::MAX);
        let beyond = DiffError::Beyond(reader.at);
        match (number % 2, count) {
            (0, skip) => at = at.checked_add(skip).filter(|at| *at <= blocks.len()).ok_or(beyond)?,
            (_, 0) => {
                let mask = u64::from_le_bytes(*reader.take::<8>()?);
                let (words, _) = blocks.get_mut(at).ok_or(beyond)?.as_chunks_mut::<WORD>();
                for (mask, word) in mask.to_le_bytes().into_iter().zip(words) {
                    match mask {
                        0 => {}
                        u8::MAX => *word = *reader.take::<WORD>()?,
                        mask => {
                            let (bytes, count) = (expand(mask), mask.count_ones() as usize);
                            let start = reader.at;
                            reader.slice(2 * count)?;
                            let new = pack.spread(word_of(&diff[start..]), bytes);
                            let old = pack.spread(word_of(&diff[start + count..]), bytes);
                            let here = u64::from_le_bytes(*word);
                            if has_zero((here ^ old) | !bytes) {
                                *word = (here & !bytes | new).to_le_bytes();
                            }
                        }
                    }
                }
                at += 1;
            }
            (_, full) => {
                let end = at.checked_add(full).filter(|end| *end <= blocks.len()).ok_or(beyond)?;
                let values = reader.slice(full * BLOCK)?;
                blocks[at..end].as_flattened_mut().copy_from_slice(values);
                at = end;
            }
        }
    }
    Ok(())
}

/// The word that `bytes` begin with; missing bytes are 0.
#[inline(always)]
fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    match bytes.first_chunk() {
        Some(whole) => word = *whole,
        None => word[..bytes.len()].copy_from_slice(bytes),
    }
    u64::from_le_bytes(word)
}

/// The bytes of each block that differ, bit i for byte i. Both pages have the same number of blocks.
#[must_use]
pub fn masks(twin: &[u8], page: &[u8]) -> Vec<u64> {
    let (before, after) = (twin.as_chunks::<BLOCK>().0, page.as_chunks::<BLOCK>().0);
    before.iter().zip(after).map(|(old, new)| changed(old, new)).collect()
}

/// The bytes of each of a page's `blocks` blocks that `diff` changes, bit i for byte i.
pub fn masks_of(diff: &[u8], blocks: usize) -> Result<Vec<u64>, DiffError> {
    let mut masks = vec![0; blocks];
    let mut reader = Reader { bytes: diff, at: 0 };
    let mut at = 0_usize;
    while reader.at < diff.len() {
        let number = reader.number()?;
        let beyond = DiffError::Beyond(reader.at);
        let count = usize::try_from(number / 2).unwrap_or(usize::MAX).max((number % 2) as usize);
        let end = at.checked_add(count).filter(|end| *end <= blocks).ok_or(beyond)?;
        if number == 1 {
            masks[at] = u64::from_le_bytes(*reader.take::<8>()?);
            for mask in masks[at].to_le_bytes() {
                let both = if mask == u8::MAX { WORD as u32 } else { 2 * mask.count_ones() };
                reader.slice(both as usize)?;
            }
        } else if number % 2 == 1 {
            reader.slice(count * BLOCK)?;
            masks[at..end].fill(u64::MAX);
        }
        at = end;
    }
    Ok(masks)
}

/// Whether all bytes are the same. Compiled to vector instructions.
#[inline]
fn same(old: &[u8; BLOCK], new: &[u8; BLOCK]) -> bool {
    let (old, new) = (old.as_chunks::<8>().0, new.as_chunks::<8>().0);
    old.iter().zip(new).fold(0, |all, (a, b)| all | (u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b))) == 0
}

/// The bytes that differ, bit i for byte i.
#[cfg(target_arch = "x86_64")]
#[inline]
fn changed(old: &[u8; BLOCK], new: &[u8; BLOCK]) -> u64 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
    let mut mask = 0;
    for part in (0..BLOCK).step_by(16) {
        // SAFETY: 16 bytes from `part` on are in both blocks; every x86-64 processor has these instructions.
        let equal = unsafe {
            let a = _mm_loadu_si128(old.as_ptr().add(part).cast());
            let b = _mm_loadu_si128(new.as_ptr().add(part).cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(a, b))
        };
        mask |= u64::from(!equal as u16) << part;
    }
    mask
}

/// The bytes that differ, bit i for byte i.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn changed(old: &[u8; BLOCK], new: &[u8; BLOCK]) -> u64 {
    old.iter().zip(new).enumerate().fold(0, |mask, (i, (a, b))| mask | u64::from(a != b) << i)
}

/// Appends a number in LEB128.
fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn slice(&mut self, count: usize) -> Result<&'a [u8], DiffError> {
        let end = self.at.checked_add(count).ok_or(DiffError::CutOff(self.at))?;
        let slice = self.bytes.get(self.at..end).ok_or(DiffError::CutOff(self.at))?;
        self.at = end;
        Ok(slice)
    }

    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], DiffError> {
        let at = self.at;
        self.slice(N)?.first_chunk().ok_or(DiffError::CutOff(at))
    }

    fn number(&mut self) -> Result<u64, DiffError> {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let [byte] = *self.take::<1>()?;
            if shift >= 63 && byte > 1 {
                return Err(DiffError::Beyond(self.at));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn diff(twin: &[u8], page: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(twin, page, &mut out);
        out
    }

    /// A page of some blocks, and a copy of it with some bytes changed.
    fn pages() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 1..200_usize), 0..20);
        (1..20_usize, any::<u8>(), changes).prop_map(|(blocks, fill, changes)| {
            let twin = vec![fill; blocks * BLOCK];
            let mut page = twin.clone();
            for (at, value, len) in changes {
                let at = at.index(page.len());
                let end = (at + len).min(page.len());
                page[at..end].fill(value);
            }
            (twin, page)
        })
    }

    proptest! {
        #[test]
        fn what_changed_arrives((twin, page) in pages()) {
            let diff = diff(&twin, &page);
            let mut other = twin.clone();
            prop_assert_eq!(masks_of(&diff, page.len() / BLOCK), Ok(masks(&twin, &page)));
            apply(&diff, &mut other).unwrap();
            prop_assert_eq!(&other, &page);
            prop_assert_eq!(diff.is_empty(), twin == page);
            prop_assert!(diff.len() <= page.len() / BLOCK * 121 + 10);
        }

        #[test]
        fn two_nodes_that_wrote_different_bytes_lose_none(
            (twin, ours) in pages(), theirs in prop::collection::vec(any::<(u16, u8)>(), 0..50)
        ) {
            // The others write only where this node did not.
            let (mut there, mut both) = (twin.clone(), ours.clone());
            for (at, value) in theirs {
                let at = usize::from(at) % twin.len();
                if ours[at] == twin[at] {
                    (there[at], both[at]) = (value, value);
                }
            }
            let mut merged = ours;
            apply(&diff(&twin, &there), &mut merged).unwrap();
            prop_assert_eq!(&merged, &both);
        }

        #[test]
        fn any_bytes_are_a_diff_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut page = [0; 4 * BLOCK];
            let _ = apply(&bytes, &mut page);
            let _ = masks_of(&bytes, 4);
        }
    }

    #[test]
    fn a_diff_that_is_cut_off_or_too_long_is_an_error() {
        let (twin, mut page) = ([0; 4096], [0; 4096]);
        page[100] = 1;
        page[4095] = 2;
        let whole = diff(&twin, &page);
        let mut out = [0; 4096];
        for end in 1..whole.len() {
            // Cut between two parts, it is a diff with fewer changes.
            let _ = apply(&whole[..end], &mut out);
        }
        assert_eq!(apply(&whole[..3], &mut out), Err(DiffError::CutOff(2)));
        assert_eq!(apply(&whole, &mut out[..2048]), Err(DiffError::Beyond(13)));
        assert!(matches!(apply(&[0xff; 11], &mut out), Err(DiffError::Beyond(_))));
    }
}
