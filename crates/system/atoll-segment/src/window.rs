//! A program's memory as the paging side sees it: takes offsets and returns checked addresses of this process.
//!
//! Every pointer of a delegated call passes here, whatever the backend. `memory.rs` makes the memory behind it.

use crate::errno::{EFAULT, Errno};

/// Data of which any bytes make a valid value.
///
/// # Safety
/// Every bit pattern must be valid, and there must be no padding.
pub(crate) unsafe trait Plain: Copy + Default {}

macro_rules! plain {
    ($($t:ty),*) => { $(
        // SAFETY: integers, or arrays of them.
        unsafe impl Plain for $t {}
    )* };
}
plain!(
    u8, u16, u32, u64, i32, i64, [u32; 2], [u32; 3], [u32; 4], [u32; 5], [u32; 6], [u64; 2], [u64; 4],
    [i64; 2], [i64; 4], [i32; 2], [i32; 4]
);

/// The part of a segment that the program may use: offsets `low..limit`.
///
/// A copy of a window is a view; the memory's owner keeps it mapped for as long as cores run. The program writes the memory at
/// any time, so bytes are only copied from and to it, never borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    base: *mut u8,
    low: u64,
    limit: u64,
}

// SAFETY: the memory outlives the cores and is touched by copying only; the program races with nobody but itself.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Makes the window over memory whose offset 0 is at `base`.
    ///
    /// # Safety
    /// Offsets `low..limit` from `base` must be mapped for reading and writing while the window or a copy is used.
    pub unsafe fn new(base: *mut u8, low: u64, limit: u64) -> Window {
        Window { base, low, limit }
    }

    /// Returns the first offset beyond the segment, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the first usable offset, in bytes.
    pub fn low(&self) -> u64 {
        self.low
    }

    /// Returns the address of offset 0 in this process.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the address in this process of the `len` bytes at offset `at`.
    ///
    /// # Errors
    /// EFAULT where any of the bytes lies outside, or where the range wraps round. A range of no bytes is allowed anywhere.
    pub fn address(&self, at: u64, len: u64) -> Result<*mut u8, Errno> {
        if len == 0 {
            return Ok(self.base.wrapping_add(at.min(self.limit) as usize));
        }
        let end = at.checked_add(len).ok_or(EFAULT)?;
        if at < self.low || end > self.limit {
            return Err(EFAULT);
        }
        // The check above keeps this within the mapping.
        Ok(self.base.wrapping_add(at as usize))
    }

    /// Copies a value out of the segment.
    ///
    /// # Errors
    /// EFAULT, as for [`Window::address`].
    pub(crate) fn read<T: Plain>(&self, at: u64) -> Result<T, Errno> {
        let from = self.address(at, size_of::<T>() as u64)?;
        // SAFETY: checked; any bytes are a T.
        Ok(unsafe { from.cast::<T>().read_unaligned() })
    }

    /// Copies a value into the segment.
    ///
    /// # Errors
    /// EFAULT, as for [`Window::address`].
    pub(crate) fn write<T: Plain>(&self, at: u64, value: T) -> Result<(), Errno> {
        let to = self.address(at, size_of::<T>() as u64)?;
        // SAFETY: checked.
        unsafe { to.cast::<T>().write_unaligned(value) };
        Ok(())
    }

    /// Copies bytes into the segment.
    ///
    /// # Errors
    /// EFAULT, as for [`Window::address`].
    pub fn write_bytes(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let to = self.address(at, bytes.len() as u64)?;
        // SAFETY: checked; this process's own bytes do not lie in the segment.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Copies bytes out of the segment.
    ///
    /// # Errors
    /// EFAULT, as for [`Window::address`].
    pub fn read_bytes(&self, at: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let from = self.address(at, bytes.len() as u64)?;
        // SAFETY: checked; this process's own bytes do not lie in the segment.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Moves bytes within the segment.
    ///
    /// # Errors
    /// EFAULT, as for [`Window::address`].
    pub(crate) fn copy_within(&self, from: u64, to: u64, len: u64) -> Result<(), Errno> {
        let (from, to) = (self.address(from, len)?, self.address(to, len)?);
        // SAFETY: both checked; they may overlap.
        unsafe { std::ptr::copy(from, to, len as usize) };
        Ok(())
    }

    /// Copies a text that ends in a NUL out of the segment, at most `most` bytes without the NUL.
    ///
    /// # Errors
    /// EFAULT if the segment ends before the text; ENAMETOOLONG if it is longer.
    pub(crate) fn text(&self, at: u64, most: usize) -> Result<std::ffi::CString, Errno> {
        let mut bytes = Vec::new();
        for i in 0..=most as u64 {
            match self.read::<u8>(at.checked_add(i).ok_or(EFAULT)?)? {
                // The bytes before the first NUL contain no NUL.
                0 => return std::ffi::CString::new(bytes).map_err(|_| EFAULT),
                byte => bytes.push(byte),
            }
        }
        Err(Errno(libc::ENAMETOOLONG))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(memory: &mut [u8], low: u64) -> Window {
        // SAFETY: the tests keep the memory.
        unsafe { Window::new(memory.as_mut_ptr(), low, memory.len() as u64) }
    }

    #[test]
    fn what_wraps_or_straddles_is_refused() {
        let mut memory = [7_u8; 256];
        let window = window(&mut memory, 16);
        assert!(window.address(16, 240).is_ok());
        for (at, len) in
            [(15, 1), (16, 241), (255, 2), (256, 1), (u64::MAX, 2), (u64::MAX - 1, 1), (100, u64::MAX)]
        {
            assert_eq!(window.address(at, len).unwrap_err(), EFAULT, "{at}+{len}");
        }
        assert_eq!(window.read::<u32>(253).unwrap_err(), EFAULT);
        assert_eq!(window.read::<u32>(252).unwrap(), 0x0707_0707);
        assert_eq!(window.text(250, 100).unwrap_err(), EFAULT);
        window.write::<u8>(255, 0).unwrap();
        assert_eq!(window.text(250, 100).unwrap().as_bytes(), [7; 5]);
        assert_eq!(window.text(200, 10).unwrap_err(), Errno(libc::ENAMETOOLONG));
    }

    proptest! {
        #[test]
        fn an_address_is_given_only_for_what_lies_inside(at: u64, len: u64, near in 0_u64..600, short in 0_u64..600) {
            let mut memory = [0_u8; 512];
            let window = window(&mut memory, 64);
            for (at, len) in [(at, len), (near, short), (near, len), (at, short)] {
                let inside = len == 0 || (at >= 64 && u128::from(at) + u128::from(len) <= 512);
                prop_assert_eq!(window.address(at, len).is_ok(), inside);
            }
        }
    }
}
