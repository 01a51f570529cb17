//! Bytes that nobody can guess, from the kernel.
//!
//! For the job's secret (`start/secret.rs`), what proves it (`transport/proof.rs`), and that of an owner's handles (`capability/owner.rs`).

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// `N` random bytes.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut have = 0;
    while have < N {
        have += getrandom(&mut bytes[have..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
