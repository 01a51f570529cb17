//! A transfer: bytes of one registered memory to another, checked once so that engines need not check.
//!
//! Callers make it, `jobs.rs` cuts it into pieces, engines carry it out.

use std::ptr::NonNull;

use crate::bulk::error::CopyError;
use crate::bulk::memory::Memory;

/// Whether `bytes` from `offset` lie within `size`, without overflow.
#[inline]
pub(crate) fn within(offset: u64, bytes: u64, size: u64) -> bool {
    offset <= size && bytes <= size - offset
}

/// A copy that is allowed: both ranges are inside their memory, their rights allow it, and they do not overlap.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    to: &'a Memory,
    to_offset: u64,
    from: &'a Memory,
    from_offset: u64,
    bytes: u64,
}

impl<'a> Transfer<'a> {
    /// The transfer of `bytes` from `from_offset` of `from` to `to_offset` of `to`. It may have no bytes.
    ///
    /// Ranges that overlap are refused where that can be determined: in one address space, and in one file or shared memory
    /// however often it is mapped here. Where it cannot (the other process has our memory mapped), the overlap then holds any
    /// mixture of its earlier bytes.
    #[inline]
    pub fn new(
        to: &'a Memory,
        to_offset: u64,
        from: &'a Memory,
        from_offset: u64,
        bytes: u64,
    ) -> Result<Transfer<'a>, CopyError> {
        if !within(to_offset, bytes, to.bytes()) {
            let (end, offset, size) = ("destination", to_offset, to.bytes());
            return Err(CopyError::OutOfRange { end, offset, bytes, size });
        }
        if !within(from_offset, bytes, from.bytes()) {
            let (end, offset, size) = ("source", from_offset, from.bytes());
            return Err(CopyError::OutOfRange { end, offset, bytes, size });
        }
        if !to.access().write {
            return Err(CopyError::NotAllowed { end: "destination", needed: "writing" });
        }
        if !from.access().read {
            return Err(CopyError::NotAllowed { end: "source", needed: "reading" });
        }
        if to.overlaps(to_offset, from, from_offset, bytes) {
            return Err(CopyError::Overlap);
        }
        Ok(Transfer { to, to_offset, from, from_offset, bytes })
    }

    /// The destination.
    #[inline]
    pub fn to(&self) -> &'a Memory {
        self.to
    }

    /// The start of the range in the destination.
    #[inline]
    pub fn to_offset(&self) -> u64 {
        self.to_offset
    }

    /// The source.
    #[inline]
    pub fn from(&self) -> &'a Memory {
        self.from
    }

    /// The start of the range in the source.
    #[inline]
    pub fn from_offset(&self) -> u64 {
        self.from_offset
    }

    /// The number of bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The part from byte `at` on, at most `bytes` long, and no longer than the rest.
    pub fn piece(&self, at: u64, bytes: u64) -> Transfer<'a> {
        let at = at.min(self.bytes);
        Transfer {
            to_offset: self.to_offset + at,
            from_offset: self.from_offset + at,
            bytes: bytes.min(self.bytes - at),
            ..*self
        }
    }

    /// The end that is mapped here and the end elsewhere; `None` if both ends are mapped here, or neither.
    pub(crate) fn ends(&self) -> Option<Ends<'a>> {
        let at = |base: NonNull<u8>, offset: u64| base.as_ptr().wrapping_add(offset as usize);
        match (self.to.mapped_at(), self.from.mapped_at()) {
            (Some(to), None) => Some(Ends {
                reading: true,
                near: self.to,
                address: at(to, self.to_offset),
                far: self.from,
                far_offset: self.from_offset,
            }),
            (None, Some(from)) => Some(Ends {
                reading: false,
                near: self.from,
                address: at(from, self.from_offset),
                far: self.to,
                far_offset: self.to_offset,
            }),
            _ => None,
        }
    }

    /// The addresses of both ends, if both are mapped here.
    #[inline]
    pub(crate) fn addresses(&self) -> Option<(*mut u8, *const u8)> {
        let to = self.to.mapped_at()?.as_ptr().wrapping_add(self.to_offset as usize);
        let from = self.from.mapped_at()?.as_ptr().wrapping_add(self.from_offset as usize);
        Some((to, from))
    }
}

/// The ends of a transfer between memory that is mapped here and memory that is not.
pub(crate) struct Ends<'a> {
    /// Whether bytes go from the far end to the near one.
    pub(crate) reading: bool,
    /// The memory that is mapped here.
    pub(crate) near: &'a Memory,
    /// The address of the range in it.
    pub(crate) address: *mut u8,
    /// The memory that is not mapped here.
    pub(crate) far: &'a Memory,
    /// The offset of the range in it.
    pub(crate) far_offset: u64,
}

impl CopyError {
    /// The error for a transfer that the engine cannot make.
    pub(crate) fn unreachable(transfer: &Transfer<'_>) -> CopyError {
        CopyError::Unreachable { from: transfer.from.kind().name(), to: transfer.to.kind().name() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::{Access, Writers};

    proptest::proptest! {
        #[test]
        fn a_range_is_within_as_wide_numbers_say(offset: u64, bytes: u64, size: u64) {
            let wide = u128::from(offset) + u128::from(bytes) <= u128::from(size);
            proptest::prop_assert_eq!(within(offset, bytes, size), wide);
        }

        #[test]
        fn pieces_cover_a_transfer(bytes in 0u64..5000, most in 1u64..700) {
            let (to, from) = (Memory::new(8192).unwrap(), Memory::new(8192).unwrap());
            let whole = Transfer::new(&to, 3, &from, 700, bytes).unwrap();
            let mut at = 0;
            while at < bytes {
                let piece = whole.piece(at, most);
                proptest::prop_assert!(piece.bytes() > 0 && piece.bytes() <= most);
                proptest::prop_assert_eq!(piece.to_offset(), 3 + at);
                proptest::prop_assert_eq!(piece.from_offset(), 700 + at);
                at += piece.bytes();
            }
            proptest::prop_assert_eq!(at, bytes);
            proptest::prop_assert_eq!(whole.piece(u64::MAX, 1).bytes(), 0);
        }
    }

    #[test]
    fn what_may_not_be_copied_is_refused() {
        let (to, from) = (Memory::new(100).unwrap(), Memory::new(50).unwrap());
        let refused = |result: Result<Transfer<'_>, CopyError>| result.unwrap_err();
        assert!(matches!(
            refused(Transfer::new(&to, 60, &from, 0, 41)),
            CopyError::OutOfRange { end: "destination", offset: 60, bytes: 41, size: 100 }
        ));
        assert!(matches!(
            refused(Transfer::new(&to, 0, &from, u64::MAX, 2)),
            CopyError::OutOfRange { end: "source", .. }
        ));
        assert!(Transfer::new(&to, 100, &from, 50, 0).is_ok());
        let (shared, file) = Memory::shared(4096, Writers::Everyone).unwrap();
        let reader = Memory::attach(std::os::fd::AsFd::as_fd(&file), Access::READ).unwrap();
        assert!(matches!(
            refused(Transfer::new(&reader, 0, &from, 0, 1)),
            CopyError::NotAllowed { end: "destination", .. }
        ));
        // The same memory, mapped twice.
        assert!(Transfer::new(&shared, 0, &reader, 2048, 2048).is_ok());
        assert_eq!(refused(Transfer::new(&shared, 0, &reader, 2047, 2048)), CopyError::Overlap);
        assert_eq!(refused(Transfer::new(&to, 0, &to, 49, 50)), CopyError::Overlap);
        assert!(Transfer::new(&to, 0, &to, 50, 50).is_ok());
    }

    #[test]
    fn safe_code_does_not_write_to_its_own_process_by_address() {
        let this = crate::Peer::this().unwrap();
        let own = Memory::of_process(&this, 0x1000, 8, Access::READ_WRITE);
        assert!(matches!(own, Err(crate::bulk::MemoryError::OwnProcess)));
        // As in measuring, it is recognised as the same memory.
        let mapping = Memory::new(4096).unwrap();
        let address = mapping.mapped_at().unwrap().as_ptr().addr() as u64;
        // SAFETY: the mapping lives to the end of the test.
        let again = unsafe { Memory::of_any_process(&this, address, 4096, Access::READ_WRITE) };
        let refused = Transfer::new(&mapping, 10, &again.unwrap(), 0, 11).unwrap_err();
        assert_eq!(refused, CopyError::Overlap);
    }

    #[test]
    fn a_makers_memory_is_written_by_nobody_else() {
        let (shared, file) = Memory::shared(4096, Writers::Maker).unwrap();
        let file = std::os::fd::AsFd::as_fd(&file);
        assert!(Memory::attach(file, Access::READ_WRITE).is_err());
        let reader = Memory::attach(file, Access::READ).unwrap();
        shared.write(10, b"seen").unwrap();
        let mut seen = [0; 4];
        reader.read(10, &mut seen).unwrap();
        assert_eq!(&seen, b"seen");
        assert!(reader.write(0, b"x").is_err());
    }
}
