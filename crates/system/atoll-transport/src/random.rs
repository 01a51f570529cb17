//! Random bytes from the kernel, which nobody can guess.
//!
//! Used for the job's secret (`start/secret.rs`), for proofs of it (`transport/proof.rs`), and for the handles of an owner of
//! capabilities (in `atoll-channel`).

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
