//! Tests of jobs over two hosts, with and without ssh.

use std::process::Command;

use crate::hosts::{ADDRESSES, Hosts};
use crate::jobs::{Folder, all_end, done, finish, kill, launch, parent, pid, pids, sorted, this};

/// The output of three nodes, the first on one host, the others on the second.
pub(crate) const EXCHANGED: [&str; 3] =
    ["node 0 of 3, neighbours [0]", "node 1 of 3, neighbours [1, 2]", "node 2 of 3, neighbours [1, 2]"];

/// A launcher on the first host.
fn launch_on(hosts: &Hosts, options: &[&str], names: &str, does: &[&str]) -> Command {
    let launcher = launch(options, names, does);
    let mut command = hosts.on(0, &this());
    command.args(launcher.get_args());
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command
}

pub(crate) fn namespaces_are_hosts_of_their_own() {
    let Some(hosts) = Hosts::new("namespaces") else { return };
    let options = ["--rsh", "nsenter --net --mount --target", "--without-shell", "yes"];
    let names = format!("{},{1},{1}", hosts.pid(0), hosts.pid(1));
    let job = done(launch(&options, &names, &["exchange", "10"]));
    assert_eq!((job.status, sorted(&job.output)), (Some(0), EXCHANGED.to_vec()), "{job:?}");
}

pub(crate) fn ssh_starts_jobs_on_two_hosts() {
    let Some(mut hosts) = Hosts::new("ssh") else { return };
    let Some(rsh) = hosts.ssh() else { return };
    let rsh = rsh.as_str();
    let [first, second] = ADDRESSES;
    let names = format!("{first},{second},{second}");

    let job = done(launch_on(&hosts, &["--rsh", rsh], &names, &["exchange", "20"]));
    assert_eq!((job.status, sorted(&job.output)), (Some(0), EXCHANGED.to_vec()), "{job:?}");
    // The first host is this machine, without ssh; the second has more nodes than sshd lets log in at once.
    let many = format!("localhost{}", format!(",{second}").repeat(11));
    let job = done(launch_on(&hosts, &["--rsh", rsh], &many, &["exchange", "2"]));
    assert_eq!((job.status, job.output.lines().count()), (Some(0), 12), "{job:?}");

    let job = done(launch_on(&hosts, &["--rsh", rsh], &names, &["print", "60000", "40"]));
    assert_eq!((job.status, job.output.lines().count()), (Some(0), 180_003), "{}", job.error);
    assert_eq!(job.output.matches(&format!(" {} end\n", "x".repeat(40))).count(), 180_000);

    // An agent and arguments that the login shell would split.
    let folder = Folder::new("it's a $folder\n");
    let agent = folder.0.join("the agent");
    std::os::unix::fs::symlink(this(), &agent).unwrap();
    let agent = format!("{}|agent", agent.to_str().unwrap());
    let odd = ["two  words", "", "it's", "\"$HOME\" `id` \\ !! *", "line\nline", "--", "\u{e4}"];
    let words: String = odd.iter().map(|word| format!("<{}>", word.as_bytes().escape_ascii())).collect();
    let options = ["--rsh", rsh, "--agent", &agent, "--directory", "/proc", "--set", "ODD=a $b\n"];
    let mut does = vec!["tell", "ODD"];
    does.extend(odd);
    let job = done(launch_on(&hosts, &options, second, &does));
    assert_eq!((job.output, job.status), (format!("{words} a $b\\n /proc\n"), Some(0)), "{}", job.error);
}

pub(crate) fn ssh_that_fails_says_why() {
    let Some(mut hosts) = Hosts::new("why") else { return };
    let Some(rsh) = hosts.ssh() else { return };
    let second = ADDRESSES[1];
    let fails = |rsh: &str, options: &[&str], host: &str, status: i32, says: &[&str]| {
        let options = [&["--rsh", rsh], options].concat();
        let job = done(launch_on(&hosts, &options, &format!(".,{host}"), &["exchange", "1"]));
        assert_eq!(job.status, Some(status), "{job:?}");
        let last = job.error.lines().last().unwrap();
        let start = format!("atoll: node 1 on {host}: ");
        assert!(last.starts_with(&start) && says.iter().all(|says| last.contains(says)), "{says:?}: {job:?}");
    };
    let other = rsh.replace("/user ", "/other ");
    let work = format!("`ssh -o BatchMode=yes {second} true`");
    fails(&other, &[], second, 1, &["ssh cannot log in", "Permission denied", &work]);
    fails(&format!("{rsh} -p 2222"), &[], second, 1, &["ssh cannot log in", "refused"]);
    fails(&rsh, &[], "no-such-host.invalid", 1, &["ssh cannot log in", "no-such-host.invalid"]);
    let unknown = rsh.replace("/known ", "/host.pub ");
    fails(&unknown, &[], second, 1, &["Host key verification failed"]);
    // The first node's agent would not be found either, and may be the first to be reported.
    let job =
        done(launch_on(&hosts, &["--rsh", &rsh, "--agent", "/nowhere/atoll"], second, &["exchange", "1"]));
    assert!(job.error.contains("there is no command /nowhere/atoll"), "{job:?}");
    assert!(job.error.contains("install atoll there"), "{job:?}");
}

pub(crate) fn killed_over_ssh_leaves_nothing() {
    let Some(mut hosts) = Hosts::new("killed") else { return };
    let Some(rsh) = hosts.ssh() else { return };
    let [first, second] = ADDRESSES;
    // Each of these is killed in turn: the launcher, the connection to a host, and the processes that sshd runs there.
    for who in ["launcher", "ssh", "agent", "keeper", "program"] {
        let folder = Folder::new(&format!("over-ssh-{who}"));
        let options = ["--rsh", &rsh, "--grace", "200"];
        let does = ["sleep", folder.str(), "stubborn"];
        let names = format!("{first},{second}");
        let launcher = launch_on(&hosts, &options, &names, &does).spawn().unwrap();
        let mut processes = pids(&folder.0, 2);
        let agents = [0, 1].map(|node| parent(pid(&folder.0, &format!("{node}.keeper"))));
        processes.extend(agents);
        let ways = children(launcher.id() as i32);
        assert_eq!(ways.len(), 2);
        let (victim, status) = match who {
            "launcher" => (launcher.id() as i32, None),
            "ssh" => (ways[1], Some(1)),
            "agent" => (agents[1], Some(1)),
            "keeper" => (pid(&folder.0, "1.keeper"), Some(127)),
            _ => (pid(&folder.0, "1.program"), Some(137)),
        };
        kill(victim, libc::SIGKILL);
        let job = finish(launcher, Vec::new());
        assert_eq!(job.status, status, "{who}: {job:?}");
        all_end(&processes);
        all_end(&ways);
    }
}

fn children(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}
