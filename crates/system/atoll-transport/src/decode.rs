//! Decodes a value from a peer's bytes, which are never believed: the value takes no more memory than the bytes account for.
//!
//! Used by the start of a job here and by services in `atoll-channel`; the limits are in `guard.rs`.

use serde::Deserialize;
use serde::de::Error as _;

use crate::guard::{Guarded, Limits};

/// Decodes all of `bytes` as one value. `guard.rs` limits its memory by the number of bytes, whatever they claim.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, postcard::Error> {
    let mut inner = postcard::Deserializer::from_bytes(bytes);
    let value = T::deserialize(Guarded { inner: &mut inner, limits: &Limits::new(bytes.len()) })?;
    match inner.finalize()? {
        [] => Ok(value),
        _ => Err(postcard::Error::custom("more bytes than the value has")),
    }
}
