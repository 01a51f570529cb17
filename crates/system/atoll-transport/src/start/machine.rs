//! The identity of a machine: nodes with the same identity can share memory.
//!
//! `mod.rs` exchanges it at start. Two network namespaces count as two machines, as tests of two hosts need it; so do
//! containers, whose processes cannot be named from one another.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The kernel's boot identifier, and the namespaces of this process that others must be in to be reached.
pub(super) fn identity() -> io::Result<Vec<u8>> {
    let mut text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    for namespace in ["net", "pid", "ipc", "user"] {
        text += &format!("{namespace} {}\n", fs::metadata(format!("/proc/self/ns/{namespace}"))?.ino());
    }
    Ok(text.into_bytes())
}

/// A number from 0 for each different identity, in the order of their first nodes.
pub(super) fn number(identities: &[Vec<u8>]) -> Vec<u32> {
    let mut numbers = HashMap::new();
    identities
        .iter()
        .map(|identity| {
            let next = numbers.len() as u32;
            *numbers.entry(identity).or_insert(next)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_numbered_in_the_order_of_their_nodes() {
        let names = ["b", "a", "b", "c", "a"].map(|name| name.as_bytes().to_vec());
        assert_eq!(number(&names), [0, 1, 0, 2, 1]);
        assert!(number(&[]).is_empty());
        assert_eq!(identity().unwrap(), identity().unwrap());
    }
}
