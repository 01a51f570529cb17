//! The messages of calls: their kinds, and the encoding of arguments and answers.
//!
//! Used by `caller.rs` and `session.rs`. The encoding is the same on every instruction set: fixed numbers are little-endian,
//! everything else is in postcard's format (integers as varints, lengths before sequences, no names, no padding).
//!
//! | kind | bytes |
//! | --- | --- |
//! | 0, and 0x8000 as the answer | this end's interface: `hello.rs` |
//! | n, the method's number from 1 in the order of the trait | 0–3 number of the call; then the arguments, a tuple |
//! | 0x8000 + n | 0–3 number of the call; 4 is 0 for an answer, else a [`Refusal`]'s number; then the answer |
//!
//! Calls of a link are numbered from 1, modulo 2^32.

use postcard::ser_flavors::Flavor;
use serde::Serialize;

use crate::service::dispatch::Refusal;

/// The kind of the first message.
pub(crate) const HELLO: u16 = 0;
/// The bit in a kind that says that the message is an answer.
pub(crate) const ANSWER: u16 = 0x8000;
/// The bytes of a call's number.
const NUMBER: usize = 4;

/// Appends `value`. If it cannot be encoded, `bytes` are unchanged.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T, bytes: &mut Vec<u8>) -> Result<(), postcard::Error> {
    let length = bytes.len();
    let done = postcard::serialize_with_flavor(value, Append(bytes));
    if done.is_err() {
        bytes.truncate(length);
    }
    done
}

/// Appends to a vector.
struct Append<'a>(&'a mut Vec<u8>);

impl Flavor for Append<'_> {
    type Output = ();

    #[inline]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Begins a request in `bytes`; its arguments follow.
pub(crate) fn begin_request(call: u32, bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend_from_slice(&call.to_le_bytes());
}

/// The number and the arguments of a request.
pub(crate) fn request(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER>()?;
    Some((u32::from_le_bytes(*number), rest))
}

/// Begins an answer in `bytes`; its value follows.
pub(crate) fn begin_answer(call: u32, bytes: &mut Vec<u8>) {
    begin_request(call, bytes);
    bytes.push(0);
}

/// Makes the answer in `bytes` a refusal.
pub(crate) fn refuse(why: Refusal, bytes: &mut Vec<u8>) {
    bytes.truncate(NUMBER);
    bytes.push(why as u8);
}

/// The number of an answer, and its value or the reason why there is none.
pub(crate) fn answer(bytes: &[u8]) -> Option<(u32, Result<&[u8], Refusal>)> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER>()?;
    let (status, value) = rest.split_first()?;
    let result = match Refusal::numbered(*status) {
        None if *status == 0 => Ok(value),
        Some(why) if value.is_empty() => Err(why),
        _ => return None,
    };
    Some((u32::from_le_bytes(*number), result))
}
