//! Two hosts on one machine: network namespaces with a pair of virtual Ethernet devices between them.
//!
//! A node enters a namespace of its own after the fork; nothing of it is left when the node has ended.

use std::process::Command;
use std::time::Instant;

use crate::nodes::Spot;
use crate::run::{LONG, pause};

/// The name of the interface on each node.
pub(crate) const DEVICE: &str = "veth-atoll";

/// The reason why there cannot be namespaces here, if any.
pub(crate) fn missing() -> Option<String> {
    // SAFETY: no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return Some("network namespaces need root".into());
    }
    if Command::new("ip").arg("-V").output().is_err() {
        return Some("the command ip is not installed: apt-get install iproute2".into());
    }
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let done = enter().is_ok() && ip("link add name veth-a type veth peer name veth-b").is_ok();
        // SAFETY: ends this process.
        unsafe { libc::_exit(i32::from(!done)) };
    }
    let mut status = 1;
    // SAFETY: our own child; a number to write to.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    (status != 0).then(|| "the system allows no network namespace with virtual Ethernet".into())
}

/// Enters a new namespace, with its devices visible in /sys.
fn enter() -> std::io::Result<()> {
    let done = |result: i32| if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    // SAFETY: strings that live, or null where the system call allows it.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        done(libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()))?;
        done(libc::mount(c"sysfs".as_ptr(), c"/sys".as_ptr(), c"sysfs".as_ptr(), 0, std::ptr::null()))
    }
}

pub(crate) fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output().map_err(|e| e.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Makes this node a host of its own, with a network to the other.
pub(crate) fn host(spot: &Spot) {
    enter().unwrap();
    let processes = spot.exchange(&std::process::id().to_le_bytes()).unwrap();
    if spot.node.0 == 0 {
        let other = u32::from_le_bytes(processes[1].as_slice().try_into().unwrap());
        ip(&format!("link add name {DEVICE} type veth peer name {DEVICE} netns {other}")).unwrap();
    }
    spot.exchange(b"the link is there").unwrap();
    ip(&format!("address add 10.77.0.{}/24 dev {DEVICE}", spot.node.0 + 1)).unwrap();
    ip(&format!("link set {DEVICE} up")).unwrap();
    let state = format!("/sys/class/net/{DEVICE}/operstate");
    let end = Instant::now() + LONG;
    // The kernel takes some time; until then the device counts as not connected.
    while std::fs::read_to_string(&state).unwrap().trim() != "up" {
        assert!(Instant::now() < end, "the link does not come up");
        pause();
    }
    spot.exchange(b"the link is up").unwrap();
}
