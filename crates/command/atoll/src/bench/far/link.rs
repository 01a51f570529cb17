//! Two network namespaces with a link between them whose bandwidth is limited: hosts of a measurement on one machine.
//!
//! This process leaves its own namespace for the first one as long as a [`Link`] lives; the other process of the measurement, in
//! `peer`, is in the second one. The namespaces have no names, so the kernel removes them, the link and its limits with the
//! last process in them, however that ends. The commands `ip` and `tc` make the link; UCX's test needs a view of `/sys` of its
//! own, by which it finds the link.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::bench::held::Held;

/// The addresses of the two ends, of the networks that are set aside for measurements (RFC 2544).
pub(in crate::bench) const ADDRESSES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
/// The names of the two ends.
pub(in crate::bench) const DEVICES: [&str; 2] = ["atoll0", "atoll1"];
/// Bytes that may leave at once: two of the largest packets that the kernel makes of a stream.
const BURST: &str = "128kb";
/// Bytes that may wait for their turn: more than the sockets' buffers.
const WAITING: &str = "8mb";

/// Why there is no link.
#[derive(thiserror::Error, Debug)]
pub(super) enum LinkError {
    #[error("only root may make network namespaces")]
    NotRoot,
    #[error("the command {0} is not there: apt-get install iproute2")]
    Command(&'static str),
    #[error("{0}: {1}")]
    Os(&'static str, io::Error),
    #[error("`{0}` failed: {1}")]
    Failed(String, String),
}

/// This process in the first namespace. Dropping it brings the process back to its own.
pub(super) struct Link {
    own: OwnedFd,
}

/// The namespace of the network of a process, or of this one.
fn namespace(process: Option<u32>) -> PathBuf {
    match process {
        Some(process) => format!("/proc/{process}/ns/net").into(),
        None => "/proc/self/ns/net".into(),
    }
}

/// Moves this thread, the only one of its process, to a new namespace.
pub(super) fn leave() -> Result<(), LinkError> {
    leave_now().map_err(|e| LinkError::Os("a network namespace", e))
}

fn leave_now() -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn enter(namespace: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: no pointers, and a descriptor that is open.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs a command in the namespace of this process, or of `other`.
fn command(name: &'static str, words: &str, other: Option<u32>) -> Result<(), LinkError> {
    let mut command = Command::new(name);
    command.args(words.split_whitespace()).stdin(Stdio::null());
    if let Some(other) = other {
        runs_there(&mut command, other).map_err(|e| LinkError::Os(name, e))?;
    }
    match command.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LinkError::Command(name)),
        Err(error) => Err(LinkError::Os(name, error)),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().next().unwrap_or("it does not say why").to_owned();
            Err(LinkError::Failed(format!("{name} {words}"), said))
        }
    }
}

impl Link {
    /// Brings this process to a new namespace.
    pub(super) fn new() -> Result<Link, LinkError> {
        // SAFETY: the call only asks for a number.
        if unsafe { libc::geteuid() } != 0 {
            return Err(LinkError::NotRoot);
        }
        let own = File::open(namespace(None)).map_err(|e| LinkError::Os("/proc/self/ns/net", e))?;
        leave()?;
        Ok(Link { own: own.into() })
    }

    /// Makes the link to the namespace of the process `other`, with a limit in Gbit/s in each direction.
    pub(super) fn connect(&self, other: u32, gigabits: u32) -> Result<(), LinkError> {
        let [here, there] = DEVICES;
        command("ip", &format!("link add {here} type veth peer name {there} netns {other}"), None)?;
        for ((device, address), other) in DEVICES.iter().zip(ADDRESSES).zip([None, Some(other)]) {
            command("ip", &format!("address add {address}/24 dev {device}"), other)?;
            command("ip", "link set lo up", other)?;
            command("ip", &format!("link set {device} up"), other)?;
            let limit = format!("rate {gigabits}gbit burst {BURST} limit {WAITING}");
            command("tc", &format!("qdisc add dev {device} root tbf {limit}"), other)?;
        }
        Ok(())
    }
}

/// A process in the second namespace that does nothing but keep it, and ends with this process.
pub(super) struct Holder(Held);

impl Holder {
    /// Starts it, and makes the link.
    pub(super) fn start(link: &Link, gigabits: u32) -> Result<Holder, LinkError> {
        // It ends at the end of its input.
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // SAFETY: one system call between fork and exec.
        unsafe { command.pre_exec(leave_now) };
        let holder = Holder(Held(command.spawn().map_err(|e| LinkError::Os("cat", e))?));
        link.connect(holder.pid(), gigabits)?;
        Ok(holder)
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.0.0.id()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Where that fails there is nothing to go back for: the process goes on in a namespace without networks.
        let _ = enter(&self.own);
    }
}

/// Has `command` find the network's devices in `/sys`, which otherwise shows those of the namespace in which it was mounted. Its
/// process has mounts of its own. With `other` it runs in the namespace of that process.
pub(in crate::bench) fn sees_devices(command: &mut Command, other: Option<u32>) -> io::Result<()> {
    let namespace = other.map(|other| File::open(namespace(Some(other)))).transpose()?;
    // SAFETY: only system calls between fork and exec, with constant strings and a descriptor that the closure has.
    unsafe {
        command.pre_exec(move || {
            if let Some(namespace) = &namespace {
                enter(namespace)?;
            }
            let none = std::ptr::null();
            let private = libc::MS_REC | libc::MS_PRIVATE;
            if libc::unshare(libc::CLONE_NEWNS) != 0
                || libc::mount(c"none".as_ptr(), c"/".as_ptr(), none, private, none.cast()) != 0
                || libc::mount(c"sysfs".as_ptr(), c"/sys".as_ptr(), c"sysfs".as_ptr(), 0, none.cast()) != 0
            {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    Ok(())
}

/// Has `command` run in the namespace of the process `other`, and end with this process.
pub(super) fn runs_there(command: &mut Command, other: u32) -> io::Result<()> {
    let namespace = File::open(namespace(Some(other)))?;
    // SAFETY: only system calls between fork and exec, with a descriptor that the closure has.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            enter(&namespace)
        });
    }
    Ok(())
}
