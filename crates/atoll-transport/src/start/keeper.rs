//! The process between an agent and its program, so that nothing of the program outlives the agent, whoever is killed.
//!
//! `agent.rs` forks it and writes it signals to pass on; it starts the program and tells how that ended. It has one
//! thread and waits for two things: the program's end, and the agent's. At either it kills all descendants, those of
//! their own session too. Is it killed itself, the kernel kills the program, and the agent its descendants.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group, pidfd_open,
    set_child_subreaper, set_parent_process_death_signal, setsid, wait,
};

use super::frame::{self, Ending, Frame, Order};
use super::launched::VARIABLE;

/// What the program gets.
pub(super) struct Given {
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) error: OwnedFd,
    /// To the agent.
    pub(super) socket: UnixStream,
}

/// Starts the program, and stays until it or the agent at the other end of `control` has ended.
pub(super) fn run(order: &Order, given: Given, mut control: UnixStream) {
    let started = prepare().and_then(|()| start(order, given));
    let mut child = match started {
        Ok(child) => child,
        Err(why) => {
            let _ = frame::write(&mut control, &Frame::Failed(why));
            return;
        }
    };
    // Whoever does not hear it is dead, which the wait finds out.
    let _ = frame::write(&mut control, &Frame::Started);
    let group = Pid::from_child(&child);
    if let Err(e) = watch(&child, &mut control) {
        let _ = frame::write(&mut control, &Frame::Failed(format!("waiting for the program: {e}")));
    }
    // Not reaped yet: the group's number is still its own.
    let _ = kill_process_group(group, Signal::KILL);
    let ended = child.wait();
    kill_children();
    let said = match ended {
        Ok(status) => Frame::Ended(ending(status)),
        Err(e) => Frame::Failed(format!("waiting for the program: {e}")),
    };
    let _ = frame::write(&mut control, &said);
}

fn prepare() -> Result<(), String> {
    // Signals for the agent's group, as from a terminal, are for the agent to pass on.
    setsid().map_err(|e| format!("setsid: {e}"))?;
    set_child_subreaper(Some(getpid())).map_err(|e| format!("prctl: {e}"))
}

fn start(order: &Order, given: Given) -> Result<Child, String> {
    let mut words = order.words.iter().map(|word| OsStr::from_bytes(word));
    let program = words.next().ok_or("there is no program to start")?;
    let name = program.to_string_lossy();
    let inode = rustix::fs::fstat(&given.socket).map_err(|e| format!("fstat: {e}"))?.st_ino;
    fcntl_setfd(&given.socket, FdFlags::empty()).map_err(|e| format!("fcntl: {e}"))?;

    let mut command = Command::new(program);
    command.args(words).stdin(given.input).stdout(given.output).stderr(given.error).process_group(0);
    command.envs(
        order.environment.iter().map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value))),
    );
    command.env(VARIABLE, format!("{}:{inode}", given.socket.as_raw_fd()));
    if let Some(directory) = &order.directory {
        let directory = Path::new(OsStr::from_bytes(directory));
        if !directory.is_dir() {
            return Err(format!("there is no directory {} to start {name} in", directory.display()));
        }
        command.current_dir(directory);
    }
    let keeper = getpid();
    // SAFETY: three system calls between fork and exec, no memory is allocated.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(keeper) {
                // Died before the line above.
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        });
    }
    command.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no program {name}: install it there, or give its whole path")
        }
        io::ErrorKind::PermissionDenied => format!("{name} may not be run: {e}"),
        _ => format!("{name} could not be started: {e}"),
    })
}

/// Passes signals on until the program has ended, or the agent.
fn watch(child: &Child, control: &mut UnixStream) -> io::Result<()> {
    let group = Pid::from_child(child);
    let program = pidfd_open(group, PidfdFlags::empty())?;
    loop {
        let mut files = [PollFd::new(&program, PollFlags::IN), PollFd::new(control, PollFlags::IN)];
        match poll(&mut files, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let [ended, said] = files.map(|file| !file.revents().is_empty());
        if ended {
            return Ok(());
        }
        if said {
            let mut signal = [0];
            match control.read(&mut signal) {
                Ok(1) => {
                    if let Some(signal) = Signal::from_named_raw(signal[0].into()) {
                        let _ = kill_process_group(group, signal);
                    }
                }
                // The agent is no more.
                _ => return Ok(()),
            }
        }
    }
}

/// Kills and reaps all descendants: as each dies its children become this process's.
pub(super) fn kill_children() {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(_) => return,
        }
        // A kernel that does not list children leaves only those that left their group alive.
        let Some(children) = children(Path::new("/proc/self/task")) else { return };
        for child in children {
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The children of all threads in `tasks`, a folder like `/proc/self/task`. None where the kernel lists no thread's; a
/// thread that has ended meanwhile has left its own to another.
fn children(tasks: &Path) -> Option<Vec<Pid>> {
    let threads = std::fs::read_dir(tasks).ok()?;
    let lists =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    if lists.is_empty() {
        return None;
    }
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    Some(pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect())
}

fn ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Status(code as u8),
        (None, signal) => Ending::Signal(signal.unwrap_or_default() as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_meanwhile_hides_no_children() {
        let tasks = std::env::temp_dir().join(format!("atoll-keeper-tasks-{}", std::process::id()));
        for (thread, list) in [("1", Some("20 21 ")), ("2", None), ("3", Some("")), ("4", Some("22 "))] {
            std::fs::create_dir_all(tasks.join(thread)).unwrap();
            if let Some(list) = list {
                std::fs::write(tasks.join(thread).join("children"), list).unwrap();
            }
        }
        let mut found: Vec<i32> =
            children(&tasks).unwrap().iter().map(|pid| pid.as_raw_nonzero().get()).collect();
        found.sort_unstable();
        assert_eq!(found, [20, 21, 22]);
        std::fs::remove_dir_all(&tasks).unwrap();
        assert!(children(&tasks).is_none());
    }
}
