//! Unwinding information: the starts and ends of functions, and the places to which control goes when something is thrown.
//!
//! `elf` reads the index of an image, `body` the landing pads of a function, which no jump reaches. The layouts are those that
//! gcc and clang write on this machine; a table in another layout is recognised and not interpreted.
//!
//! Source: the Linux Standard Base, "Exception Frames", and the Itanium C++ ABI's exception tables.

use crate::input::{Function, Handlers};

/// The head of the index as all linkers write it: version 1, relative pointers, sorted pairs of 4 bytes.
const INDEX: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// The encoding of an omitted value.
const OMITTED: u8 = 0xff;
/// The encoding of four bytes relative to their own place.
const RELATIVE: u8 = 0x1b;
/// The most entries of an index.
const MOST: u32 = 1 << 22;

/// Reads bytes forward; returns `None` at the end.
struct Reader<'a> {
    bytes: &'a [u8],
    /// The address of the next byte.
    address: u64,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        self.address = self.address.wrapping_add(count as u64);
        Some(front)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn word(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().copied().map(u32::from_le_bytes)
    }

    fn offset(&mut self) -> Option<i64> {
        self.word().map(|word| i64::from(word.cast_signed()))
    }

    /// A number in groups of seven bits (LEB128).
    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A pointer in one of the encodings in use: the value, or an inner `None` if it is omitted.
    fn pointer(&mut self, encoding: u8) -> Option<Option<u64>> {
        let place = self.address;
        let value = match encoding {
            OMITTED => return Some(None),
            RELATIVE => {
                let offset = self.offset()?;
                (offset != 0).then(|| place.wrapping_add_signed(offset))
            }
            // Eight relative bytes, as the medium code model has them.
            0x1c => {
                let offset = i64::from_le_bytes(*self.take(8)?.first_chunk()?);
                (offset != 0).then(|| place.wrapping_add_signed(offset))
            }
            // Absolute values: of 4 bytes with and without sign, or of 8.
            0x03 | 0x0b => Some(u64::from(self.word()?)).filter(|&v| v != 0),
            0x00 | 0x04 | 0x0c => Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?)).filter(|&v| v != 0),
            _ => return None,
        };
        Some(value)
    }
}

/// The functions in an index at `address`. `bytes` returns the bytes from an address on.
pub(crate) fn functions<'a, 'n>(address: u64, bytes: &dyn Fn(u64) -> Option<&'a [u8]>) -> Vec<Function<'n>> {
    read_index(address, bytes).unwrap_or_default()
}

fn read_index<'a, 'n>(address: u64, bytes: &dyn Fn(u64) -> Option<&'a [u8]>) -> Option<Vec<Function<'n>>> {
    let mut reader = Reader { bytes: bytes(address)?, address };
    if reader.take(4)? != INDEX {
        return None;
    }
    reader.word()?;
    let count = reader.word()?.min(MOST);
    let mut found = Vec::new();
    for _ in 0..count {
        let (Some(start), Some(entry)) = (reader.offset(), reader.offset()) else { break };
        let start = address.wrapping_add_signed(start);
        let function = read_entry(start, address.wrapping_add_signed(entry), bytes);
        found.push(function.unwrap_or(Function {
            start,
            end: start,
            name: None,
            handlers: Handlers::NotUnderstood,
        }));
    }
    Some(found)
}

/// Reads the entry of one function: its length and its table of handlers.
fn read_entry<'a, 'n>(
    start: u64,
    entry: u64,
    bytes: &dyn Fn(u64) -> Option<&'a [u8]>,
) -> Option<Function<'n>> {
    let mut reader = Reader { bytes: bytes(entry)?, address: entry };
    reader.word()?;
    let place = reader.address;
    let common = place.wrapping_sub(u64::from(reader.word()?));
    let table_encoding = read_common(common, bytes)?;
    let place = reader.address;
    if place.wrapping_add_signed(reader.offset()?) != start {
        return None;
    }
    let end = start.saturating_add(u64::from(reader.word()?));
    reader.number()?;
    let handlers = reader.pointer(table_encoding)?.map_or(Handlers::None, Handlers::At);
    Some(Function { start, end, name: None, handlers })
}

/// Reads from a common part how its entries encode their tables of handlers.
fn read_common<'a>(common: u64, bytes: &dyn Fn(u64) -> Option<&'a [u8]>) -> Option<u8> {
    let mut reader = Reader { bytes: bytes(common)?, address: common };
    reader.word()?;
    reader.word()?;
    reader.byte()?;
    let name = reader.bytes.iter().take(16).position(|&b| b == 0)?;
    let letters = reader.take(name)?;
    reader.byte()?;
    // Alignments and the number of the return address's register.
    reader.number()?;
    reader.number()?;
    reader.number()?;
    let mut table = OMITTED;
    if letters.first() != Some(&b'z') {
        return None;
    }
    reader.number()?;
    for letter in &letters[1..] {
        match letter {
            b'L' => table = reader.byte()?,
            b'R' => {
                if reader.byte()? != RELATIVE {
                    return None;
                }
            }
            b'P' => {
                // The personality's pointer may be indirect: only its size matters.
                let encoding = reader.byte()?;
                reader.take(if matches!(encoding & 0x0f, 0x03 | 0x0b) { 4 } else { 8 })?;
            }
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    Some(table)
}

/// The places to which control can go when something is thrown in this function; `None` if its table is not understood.
pub(crate) fn landing_pads(function: &Function<'_>, address: u64, table: &[u8]) -> Option<Vec<u64>> {
    let mut reader = Reader { bytes: table, address };
    let start_encoding = reader.byte()?;
    let start = reader.pointer(start_encoding)?.unwrap_or(function.start);
    if reader.byte()? != OMITTED {
        reader.number()?;
    }
    let encoding = reader.byte()?;
    let length = usize::try_from(reader.number()?).ok()?;
    let mut sites = Reader { bytes: reader.bytes.get(..length)?, address: reader.address };
    let mut pads = Vec::new();
    while !sites.bytes.is_empty() {
        let mut value = || match encoding {
            0x01 => sites.number(),
            0x03 => sites.word().map(u64::from),
            _ => None,
        };
        let (_, _, pad) = (value()?, value()?, value()?);
        sites.number()?;
        let pad = start.wrapping_add(pad);
        if pad != start && !pads.contains(&pad) {
            pads.push(pad);
        }
    }
    Some(pads)
}
