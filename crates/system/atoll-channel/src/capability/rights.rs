//! The rights that a holder has on the memory of a capability.
//!
//! `table.rs` lets rights only shrink from parent to child; `mod.rs` says what enforces each of them once it is given.

use std::fmt;

bitflags::bitflags! {
    /// A set of rights.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
    #[serde(try_from = "u8", into = "u8")]
    pub struct Rights: u8 {
        /// Read it directly: through a mapping, or out of the owner's process.
        const READ = 1;
        /// Write it directly.
        const WRITE = 2;
        /// Have the owner copy out of it.
        const COPY_FROM = 4;
        /// Have the owner copy into it.
        const COPY_TO = 8;
        /// Give rights on it to another holder.
        const GRANT = 16;
    }
}

/// A byte that is not a set of rights known to this version.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("{0:#x} is not a set of rights known to this atoll")]
pub struct UnknownRights(pub u8);

impl TryFrom<u8> for Rights {
    type Error = UnknownRights;

    fn try_from(bits: u8) -> Result<Rights, UnknownRights> {
        Rights::from_bits(bits).ok_or(UnknownRights(bits))
    }
}

impl From<Rights> for u8 {
    fn from(rights: Rights) -> u8 {
        rights.bits()
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return write!(f, "nothing");
        }
        for (number, (name, _)) in self.iter_names().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{}", name.to_ascii_lowercase().replace('_', "-"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_named_and_unknown_ones_refused() {
        assert_eq!((Rights::READ | Rights::COPY_TO).to_string(), "read, copy-to");
        assert_eq!(Rights::empty().to_string(), "nothing");
        for bits in 0..=255u8 {
            assert_eq!(Rights::try_from(bits).is_ok(), bits < 32);
        }
        let bytes = postcard::to_allocvec(&Rights::GRANT).unwrap();
        assert_eq!(postcard::from_bytes::<Rights>(&bytes), Ok(Rights::GRANT));
        assert!(postcard::from_bytes::<Rights>(&[32]).is_err());
    }
}
