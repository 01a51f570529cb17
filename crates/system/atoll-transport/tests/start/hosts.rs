//! Two hosts on one machine: network namespaces joined by a link, and a real sshd in each where there is one.
//!
//! All of it, the link included, is gone when its processes have ended; they end with the test.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::jobs::{Folder, wait_until};

/// The hosts' addresses on their link.
pub(crate) const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// A reason why there cannot be namespaces here; `None` if there can.
fn missing(tools: &[&str], packages: &str) -> Option<String> {
    // SAFETY: the call only asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return Some("only root may make network namespaces".into());
    }
    let found = |tool: &&&str| {
        let folders = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
        folders.iter().any(|folder| Path::new(folder).join(tool).exists())
    };
    tools
        .iter()
        .find(|tool| !found(tool))
        .map(|tool| format!("{tool} is not installed: apt-get install {packages}"))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Makes the process end with this one.
fn dies_with_test(command: &mut Command) -> &mut Command {
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    }
}

/// A process, killed when dropped.
struct Held(Child);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two network namespaces.
pub(crate) struct Hosts {
    holders: [Held; 2],
    daemons: Vec<Held>,
    pub(crate) folder: Folder,
}

impl Hosts {
    /// Makes the hosts; if that is impossible, marks the test as skipped.
    pub(crate) fn new(name: &str) -> Option<Hosts> {
        let hosts = match missing(&["ip", "unshare", "nsenter"], "iproute2") {
            Some(why) => Err(why),
            None => Hosts::make(name),
        };
        hosts.map_err(|why| atoll_skips::whole(format_args!("{why}"))).ok()
    }

    fn make(name: &str) -> Result<Hosts, String> {
        run(Command::new("unshare").args(["--net", "--mount", "true"]))?;
        let holders = [0, 1].map(|_| {
            let mut command = Command::new("unshare");
            command.args(["--net", "--mount", "sleep", "3600"]);
            Held(dies_with_test(&mut command).spawn().unwrap())
        });
        let hosts = Hosts { holders, daemons: Vec::new(), folder: Folder::new(name) };
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        for host in 0..2 {
            let path = format!("/proc/{}/ns/net", hosts.pid(host));
            wait_until(|| fs::read_link(&path).is_ok_and(|namespace| namespace != own));
        }
        let peer = hosts.pid(1).to_string();
        run(hosts
            .on(0, "ip")
            .args(["link", "add", "link0", "type", "veth", "peer", "link0", "netns", &peer]))?;
        for (host, address) in ADDRESSES.iter().enumerate() {
            run(hosts.on(host, "ip").args(["address", "add", &format!("{address}/29"), "dev", "link0"]))?;
            for device in ["lo", "link0"] {
                run(hosts.on(host, "ip").args(["link", "set", device, "up"]))?;
            }
        }
        Ok(hosts)
    }

    pub(crate) fn pid(&self, host: usize) -> u32 {
        self.holders[host].0.id()
    }

    /// A command that runs on a host.
    pub(crate) fn on(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--mount", "--target", &self.pid(host).to_string(), program]);
        command
    }

    /// Starts an sshd on both hosts; returns the remote shell's command line. If that is impossible, marks the test as skipped.
    pub(crate) fn ssh(&mut self) -> Option<String> {
        if let Some(why) = missing(&["sshd", "ssh", "ssh-keygen"], "openssh-server openssh-client") {
            atoll_skips::whole(format_args!("{why}"));
            return None;
        }
        let path = |name: &str| format!("{}/{name}", self.folder.str());
        for key in ["host", "user", "other"] {
            let mut command = Command::new("ssh-keygen");
            run(command.args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)])).unwrap();
        }
        let key = fs::read_to_string(path("host.pub")).unwrap();
        fs::write(path("known"), format!("{} {key}", ADDRESSES.join(","))).unwrap();
        for (host, address) in ADDRESSES.iter().enumerate() {
            let config = path(&format!("config.{host}"));
            let lines = [
                format!("ListenAddress {address}:22"),
                format!("HostKey {}", path("host")),
                format!("AuthorizedKeysFile {}", path("user.pub")),
                "PermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no"
                    .into(),
            ];
            fs::write(&config, lines.join("\n") + "\n").unwrap();
            // The folder that sshd wants is made where nobody else sees it.
            let script = "mount -t tmpfs none /run && mkdir /run/sshd && exec $(command -v sshd || echo /usr/sbin/sshd) \
                          -D -e -f $0";
            let mut command = self.on(host, "unshare");
            command.args(["--mount", "sh", "-c", script, &config]);
            command.stdin(Stdio::null()).stderr(fs::File::create(path(&format!("log.{host}"))).unwrap());
            self.daemons.push(Held(dies_with_test(&mut command).spawn().unwrap()));
        }
        let rsh = format!(
            "ssh -F none -i {} -o UserKnownHostsFile={} -o IdentitiesOnly=yes -o BatchMode=yes -o KexAlgorithms=curve25519-sha256",
            path("user"),
            path("known")
        );
        for address in ADDRESSES {
            let mut words = rsh.split(' ').skip(1).collect::<Vec<_>>();
            words.extend([address, "true"]);
            let begin = std::time::Instant::now();
            wait_until(|| {
                let tried = run(self.on(0, "ssh").args(&words));
                let logs = [0, 1].map(|host| fs::read_to_string(path(&format!("log.{host}"))).unwrap());
                assert!(tried.is_ok() || begin.elapsed().as_secs() < 20, "{tried:?} {logs:?}");
                tried.is_ok()
            });
        }
        Some(rsh)
    }
}
