//! Temporary.
#![allow(missing_docs)]
pub struct Transfer { pub page: u64, pub memory: *mut u8 }
pub struct Lane;
impl Lane { pub fn attach(&mut self) {} }
impl FarError { pub fn message(&self) -> &'static str { "far" } }
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FarError { Full }
#[derive(Default)]
pub struct Usage { pub pages_held: u64, pub bytes_stored: u64 }
pub trait FarStore {
    fn store(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError>;
    fn load(&self, lane: &mut Lane, pages: &[Transfer]) -> Result<(), FarError>;
    fn discard(&self, first: u64, count: u64);
    fn direct(&self, page: u64) -> Option<*mut u8>;
    fn stored_direct(&self, _first: u64, _count: u64) {}
    fn usage(&self) -> Usage;
}
pub struct AnyFar { base: *mut u8, fd: i32, shift: u32 }
pub struct FarSpec;
impl std::str::FromStr for FarSpec { type Err = std::fmt::Error; fn from_str(_: &str) -> Result<FarSpec, std::fmt::Error> { Ok(FarSpec) } }
impl AnyFar {
    pub fn new(_s: &FarSpec, page: usize, pages: u64, _lanes: usize, _l: Option<u64>) -> Result<AnyFar, crate::sys::Errno> {
        let len = page * pages as usize;
        let fd = crate::sys::memfd(c"atoll-far", 0, len as u64)?;
        let base = unsafe { crate::sys::mmap(0, len, 3, libc::MAP_SHARED | libc::MAP_NORESERVE, fd, 0)? };
        Ok(AnyFar { base: base as *mut u8, fd, shift: page.trailing_zeros() })
    }
    pub fn lane(&self, _i: usize) -> Lane { Lane }
}
impl FarStore for AnyFar {
    fn store(&self, _: &mut Lane, _p: &[Transfer]) -> Result<(), FarError> { Ok(()) }
    fn load(&self, _: &mut Lane, _p: &[Transfer]) -> Result<(), FarError> { Ok(()) }
    fn discard(&self, first: u64, count: u64) { let _ = crate::sys::punch_hole(self.fd, first << self.shift, count << self.shift); }
    fn direct(&self, page: u64) -> Option<*mut u8> { Some(unsafe { self.base.add((page as usize) << self.shift) }) }
    fn usage(&self) -> Usage { Usage { pages_held: 0, bytes_stored: crate::sys::file_bytes(self.fd) } }
}
