//! Finds a node's network interfaces, and chooses those through which it talks to the others.
//!
//! `job` exchanges them: nodes on different hosts use the first network of node 0 that all are in.

use std::ffi::CStr;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// A network interface with an address that is up and not the loopback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    interface: String,
    address: Ipv4Addr,
    mask: Ipv4Addr,
}

impl Network {
    /// Returns the address.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    fn number(&self) -> u32 {
        self.address.to_bits() & self.mask.to_bits()
    }

    /// Whether both lie in one network.
    fn joins(&self, other: &Network) -> bool {
        self.mask == other.mask && self.number() == other.number()
    }
}

/// Returns this machine's interfaces, in the kernel's order.
pub(crate) fn networks() -> Vec<Network> {
    let mut list = std::ptr::null_mut();
    // SAFETY: a pointer to write to.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an entry of the list.
        let entry = unsafe { &*at };
        let wanted = (libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_LOOPBACK) as u32;
        if entry.ifa_flags & wanted == (libc::IFF_UP | libc::IFF_RUNNING) as u32
            && let (Some(address), Some(mask)) = (address(entry.ifa_addr), address(entry.ifa_netmask))
        {
            // SAFETY: a C string of the list's.
            let interface = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
            found.push(Network { interface, address, mask });
        }
        at = entry.ifa_next;
    }
    // SAFETY: the list from above, freed once.
    unsafe { libc::freeifaddrs(list) };
    found
}

fn address(at: *const libc::sockaddr) -> Option<Ipv4Addr> {
    if at.is_null() {
        return None;
    }
    // SAFETY: every address begins with its family, and one of this family is a `sockaddr_in`, perhaps not aligned as one.
    unsafe {
        if libc::c_int::from((*at).sa_family) != libc::AF_INET {
            return None;
        }
        let address = at.cast::<libc::sockaddr_in>().read_unaligned();
        Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)))
    }
}

/// Returns the interface of node `this` in the first network that all nodes are in; where there is none, all of its interfaces.
/// Returns `None` if it has no interface.
pub(crate) fn common(nodes: &[&[Network]], this: usize) -> Option<String> {
    let (first, mine) = (nodes.first()?, nodes.get(this)?);
    let shared = first
        .iter()
        .find(|network| nodes.iter().all(|others| others.iter().any(|other| other.joins(network))));
    if let Some(shared) = shared {
        return mine.iter().find(|network| network.joins(shared)).map(|network| network.interface.clone());
    }
    let mut all: Vec<&str> = mine.iter().map(|network| network.interface.as_str()).collect();
    all.dedup();
    (!all.is_empty()).then(|| all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(interface: &str, address: [u8; 4], bits: u32) -> Network {
        let mask = Ipv4Addr::from_bits(u32::MAX << (32 - bits));
        Network { interface: interface.into(), address: address.into(), mask }
    }

    #[test]
    fn nodes_talk_through_the_first_network_that_all_are_in() {
        let a = [
            network("docker0", [172, 17, 0, 1], 16),
            network("eth0", [10, 0, 1, 5], 24),
            network("ib0", [10, 1, 0, 5], 16),
        ];
        let b = [network("eno1", [10, 0, 1, 6], 24), network("ib0", [10, 1, 0, 6], 16)];
        let c = [network("ib1", [10, 1, 7, 7], 16), network("eth0", [10, 0, 2, 7], 24)];
        assert_eq!(common(&[&a, &b], 0).as_deref(), Some("eth0"));
        assert_eq!(common(&[&a, &b], 1).as_deref(), Some("eno1"));
        assert_eq!(common(&[&a, &b, &c], 2).as_deref(), Some("ib1"));
        assert_eq!(common(&[&c[1..], &b[..1]], 1).as_deref(), Some("eno1"));
        assert_eq!(common(&[&a, &[]], 0).as_deref(), Some("docker0,eth0,ib0"));
        assert_eq!(common(&[&a, &[]], 1), None);
    }

    #[test]
    fn the_loopback_is_no_network() {
        assert!(networks().iter().all(|network| !network.address.is_loopback()));
    }
}
