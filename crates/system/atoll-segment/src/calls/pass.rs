//! Calls that this machine's kernel serves unchanged, once their pointers are checked and translated.
//!
//! `list.rs` gives the arguments of each. Calls whose structures differ by width are in the files beside this one.

use std::ffi::CString;

use super::Delegate;
use crate::errno::{Errno, syscall};

/// The longest path, in bytes.
pub(super) const PATH_MAX: usize = libc::PATH_MAX as usize - 1;

/// The kind of an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A number.
    Value,
    /// A number with a sign, as wide as the program's words.
    Signed,
    /// A file descriptor.
    Fd,
    /// The offset of a path.
    Path,
    /// The offset of a buffer whose number of bytes is in the argument of this index.
    Buffer(usize),
    /// The offset of this number of bytes.
    Fixed(u64),
    /// The offset of this number of bytes, or zero.
    Maybe(u64),
}

/// Serves a call with the same call of this machine.
pub(super) fn pass(d: &Delegate, host: libc::c_long, kinds: &[Kind], a: [u64; 6]) -> Result<u64, Errno> {
    let mut to = [0; 6];
    // The arguments are copied, so that the program cannot change them after the check.
    let mut paths: [Option<CString>; 2] = [None, None];
    let mut free = paths.iter_mut();
    for (i, kind) in kinds.iter().enumerate() {
        let value = a[i];
        to[i] = match *kind {
            Kind::Value => value,
            Kind::Signed if d.is_32() => i64::from(value as i32) as u64,
            Kind::Signed => value,
            Kind::Fd => d.fd(value)?,
            Kind::Path => {
                let text = d.window.text(value, PATH_MAX)?;
                let slot = free.next().ok_or(Errno(libc::EINVAL))?;
                slot.insert(text).as_ptr() as u64
            }
            Kind::Buffer(len) => d.window.address(value, a[len])? as u64,
            Kind::Maybe(_) if value == 0 => 0,
            Kind::Fixed(len) | Kind::Maybe(len) => d.window.address(value, len)? as u64,
        };
    }
    // SAFETY: every pointer was checked against the segment, or is a copy that lives until the call is over.
    unsafe { syscall(host, to) }
}
