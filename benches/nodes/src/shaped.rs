//! Runs nodes over UCX: through this machine's loopback, and in two network namespaces with a link between them that is as fast
//! as a network's.
//!
//! `links` measures with it. Namespaces, their devices and their shaping are removed when a [`Link`] is dropped.

use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

use atoll_transport::transport::Ucx;

/// The interface of each node.
pub(crate) const DEVICE: &str = "veth-atoll";
/// The bytes that may pass at once: some hundred microseconds' worth, as a card's queue holds.
const BURST: &str = "2mb";
const PATIENCE: Duration = Duration::from_secs(10);

/// The routes between two nodes.
pub(crate) enum Route {
    /// UCX's TCP through the loopback interface.
    Loopback,
    /// Through a link between two network namespaces.
    Link(Link),
}

impl Route {
    /// Returns the flags of `atoll run` for these nodes.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let words = match self {
            Route::Loopback => vec!["--nodes", "2", "--transport", "ucx"],
            Route::Link(Link { names: [first, second], .. }) => {
                let hosts = format!("--hosts={first},{second}");
                let rest = ["--rsh", "ip netns exec", "--transport", "ucx", "--network", DEVICE];
                return std::iter::once(hosts.into()).chain(rest.map(OsString::from)).collect();
            }
        };
        words.into_iter().map(OsString::from).collect()
    }

    /// Returns UCX's device.
    pub(crate) fn device(&self) -> &'static str {
        match self {
            Route::Loopback => "lo",
            Route::Link(_) => DEVICE,
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Route::Loopback => "TCP, loopback".to_owned(),
            Route::Link(link) => format!("TCP, {}", link.rate()),
        }
    }
}

/// Two network namespaces with a link between them.
pub(crate) struct Link {
    names: [String; 2],
    gbit_s: u32,
}

/// What the names of all namespaces of this bench begin with; the process's number follows.
const PREFIX: &str = "atoll-bench-";

/// Removes the namespaces of runs that were killed.
fn remove_left_ones() {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !std::path::Path::new(&format!("/proc/{process}")).exists()) {
            // One that cannot be removed does no harm.
            let _ = run("ip", &format!("netns delete {name}"));
        }
    }
}

impl Link {
    /// Makes the namespaces and the link; each direction passes `gbit_s` Gbit/s at most.
    ///
    /// # Errors
    /// Why this machine cannot.
    pub(crate) fn new(gbit_s: u32) -> Result<Link, String> {
        remove_left_ones();
        let name = |node: u32| format!("{PREFIX}{}-{gbit_s}-{node}", std::process::id());
        // If a later step fails, everything made before is removed again.
        let link = Link { names: [name(0), name(1)], gbit_s };
        let [first, second] = &link.names;
        for name in &link.names {
            run("ip", &format!("netns add {name}"))?;
        }
        run("ip", &format!("link add {DEVICE} netns {first} type veth peer name {DEVICE} netns {second}"))?;
        for (number, name) in (1..).zip(&link.names) {
            run("ip", &format!("-n {name} address add 10.77.0.{number}/24 dev {DEVICE}"))?;
            run("ip", &format!("-n {name} link set lo up"))?;
            run("ip", &format!("-n {name} link set {DEVICE} up"))?;
            let shape =
                format!("qdisc add dev {DEVICE} root tbf rate {gbit_s}gbit burst {BURST} latency 50ms");
            run("ip", &format!("netns exec {name} tc {shape}"))?;
        }
        let end = Instant::now() + PATIENCE;
        for name in &link.names {
            // The kernel takes some time; until then the device counts as not connected.
            while !run("ip", &format!("-n {name} link show dev {DEVICE}"))?.contains("state UP") {
                if Instant::now() > end {
                    return Err("the link between the namespaces does not come up".to_owned());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(link)
    }

    /// The names of the two namespaces.
    pub(crate) fn names(&self) -> &[String; 2] {
        &self.names
    }

    /// How fast the link is, in words.
    pub(crate) fn rate(&self) -> String {
        format!("{} Gbit/s", self.gbit_s)
    }

    /// Moves this process, which must have one thread, into a node's namespace.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn enter(&self, node: usize) -> std::io::Result<()> {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open(format!("/run/netns/{}", self.names[node]))?;
        let done = |result: i32| if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
        // SAFETY: a descriptor that is open, strings that live, or null where the system allows it.
        unsafe {
            done(libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET))?;
            done(libc::unshare(libc::CLONE_NEWNS))?;
            // UCX looks for devices in /sys.
            let private = libc::MS_REC | libc::MS_PRIVATE;
            done(libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()))?;
            done(libc::mount(c"sysfs".as_ptr(), c"/sys".as_ptr(), c"sysfs".as_ptr(), 0, std::ptr::null()))
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.names {
            // A namespace that was not made is not there.
            let _ = run("ip", &format!("netns delete {name}"));
        }
    }
}

fn run(command: &str, words: &str) -> Result<String, String> {
    let output = Command::new(command).args(words.split(' ')).output();
    let output = output.map_err(|e| format!("the command {command} cannot be started: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command} {words}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Checks that UCX is there.
///
/// # Errors
/// The reason why not.
pub(crate) fn available() -> Result<(), String> {
    // This runs in a process of its own, as UCX must not be started before the later forks.
    // SAFETY: no other threads run.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().to_string()),
        0 => {
            let why = Ucx::available().err().map(|why| why.to_string());
            if let Some(why) = &why {
                eprintln!("nodes: {why}");
            }
            // SAFETY: ends the child alone.
            unsafe { libc::_exit(i32::from(why.is_some())) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: a child of ours that nobody else waits for.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            if status == 0 { Ok(()) } else { Err("UCX is not installed (libucx0)".to_owned()) }
        }
    }
}
