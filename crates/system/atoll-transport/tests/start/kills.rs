//! Tests that kill each process of a job in turn: the job ends, and no process is left, neither the programs' children nor
//! those that left their program's session.

use std::process::Child;

use crate::jobs::{Done, Folder, all_end, finish, kill, launch, parent, pid, pids};

struct Sleepers {
    folder: Folder,
    launcher: Child,
    processes: Vec<i32>,
}

/// A job of three nodes that sleep, each with two children.
fn sleepers(name: &str, options: &[&str], more: &[&str]) -> Sleepers {
    let folder = Folder::new(name);
    let mut does = vec!["sleep", folder.str()];
    does.extend(more);
    let launcher = launch(options, ".,localhost,.", &does).spawn().unwrap();
    let mut processes = pids(&folder.0, 3);
    for node in 0..3 {
        processes.push(parent(pid(&folder.0, &format!("{node}.keeper"))));
    }
    Sleepers { folder, launcher, processes }
}

impl Sleepers {
    fn process(&self, name: &str) -> i32 {
        pid(&self.folder.0, name)
    }

    fn end(self) -> Done {
        let done = finish(self.launcher, Vec::new());
        all_end(&self.processes);
        done
    }
}

pub(crate) fn a_killed_launcher_leaves_nothing() {
    let sleepers = sleepers("launcher", &[], &["stubborn"]);
    kill(sleepers.launcher.id() as i32, libc::SIGKILL);
    assert_eq!(sleepers.end().status, None);
}

pub(crate) fn a_killed_agent_leaves_nothing() {
    let sleepers = sleepers("agent", &["--grace", "200"], &["stubborn"]);
    kill(parent(sleepers.process("1.keeper")), libc::SIGKILL);
    let done = sleepers.end();
    assert_eq!(done.status, Some(1));
    assert!(done.error.starts_with("atoll: node 1 on localhost: the connection to it was lost"), "{done:?}");
}

pub(crate) fn a_killed_keeper_leaves_nothing() {
    let sleepers = sleepers("keeper", &[], &[]);
    kill(sleepers.process("1.keeper"), libc::SIGKILL);
    let done = sleepers.end();
    assert_eq!(done.status, Some(127));
    assert!(done.error.contains("watches over the program was killed"), "{done:?}");
}

pub(crate) fn a_killed_program_leaves_nothing() {
    let sleepers = sleepers("program", &[], &[]);
    kill(sleepers.process("2.program"), libc::SIGKILL);
    let done = sleepers.end();
    assert_eq!(done.status, Some(137));
    assert_eq!(done.error, "atoll: node 2 on .: the program was ended by signal 9 (SIGKILL)\n");
}

pub(crate) fn a_signal_is_passed_on() {
    for (signal, status) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        let sleepers = sleepers("signal", &[], &[]);
        kill(sleepers.launcher.id() as i32, signal);
        assert_eq!(sleepers.end().status, Some(status));
    }
}

pub(crate) fn who_ignores_a_signal_is_killed() {
    // After the grace time, and at a second signal.
    for (grace, signals) in [("100", 1), ("3600000", 2)] {
        let sleepers = sleepers("stubborn", &["--grace", grace], &["stubborn"]);
        for _ in 0..signals {
            kill(sleepers.launcher.id() as i32, libc::SIGINT);
            // Signals of one kind that come together count as one.
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let done = sleepers.end();
        assert_eq!((done.status, done.error.as_str()), (Some(130), "atoll: ended by signal 2 (SIGINT)\n"));
    }
}
