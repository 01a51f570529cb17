//! Two hosts on one machine: network namespaces with a pair of virtual Ethernet devices between them, as in `tests/transport`.
//!
//! A node enters a namespace of its own at its start; nothing of it is left when the node has ended.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use atoll_transport::transport::Ucx;

/// The name of the interface on each node.
pub(crate) const DEVICE: &str = "veth-atoll";

/// The reason why there cannot be two hosts here, if any. Runs in a process of its own, which it changes.
pub(crate) fn missing() -> Option<String> {
    if let Err(why) = Ucx::available() {
        return Some(why.to_string());
    }
    // SAFETY: no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return Some("network namespaces need root".into());
    }
    let made = enter().map_err(|e| e.to_string());
    let made = made.and_then(|()| ip("link add name veth-a type veth peer name veth-b"));
    made.err().map(|why| format!("no network namespace with virtual Ethernet: {why}"))
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

fn ip(words: &str) -> Result<(), String> {
    let output =
        Command::new("ip").args(words.split(' ')).output().map_err(|e| format!("the command ip: {e}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Gives `mine` to the other node, and returns the bytes that it gave.
pub(crate) fn exchange(mut other: &UnixStream, mine: &[u8]) -> std::io::Result<Vec<u8>> {
    other.write_all(&(mine.len() as u32).to_le_bytes())?;
    other.write_all(mine)?;
    let mut length = [0; 4];
    other.read_exact(&mut length)?;
    let mut theirs = vec![0; u32::from_le_bytes(length) as usize];
    other.read_exact(&mut theirs)?;
    Ok(theirs)
}

/// Makes node `number` a host of its own, with a network to the `other`.
pub(crate) fn host(number: u32, other: &UnixStream) {
    enter().unwrap();
    let process = exchange(other, &std::process::id().to_le_bytes()).unwrap();
    if number == 0 {
        let process = u32::from_le_bytes(process.as_slice().try_into().unwrap());
        ip(&format!("link add name {DEVICE} type veth peer name {DEVICE} netns {process}")).unwrap();
    }
    exchange(other, b"the link is there").unwrap();
    ip(&format!("address add 10.77.0.{}/24 dev {DEVICE}", number + 1)).unwrap();
    ip(&format!("link set {DEVICE} up")).unwrap();
    let state = format!("/sys/class/net/{DEVICE}/operstate");
    let end = Instant::now() + Duration::from_secs(15);
    // The kernel takes some time; until then the device counts as not connected.
    while std::fs::read_to_string(&state).unwrap().trim() != "up" {
        assert!(Instant::now() < end, "the link does not come up");
        std::thread::sleep(Duration::from_millis(10));
    }
    exchange(other, b"the link is up").unwrap();
}
