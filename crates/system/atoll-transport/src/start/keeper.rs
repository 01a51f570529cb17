//! The keeper, a process between an agent and its program, so that nothing of the program outlives the agent, whichever is
//! killed.
//!
//! `agent.rs` forks it and sends it signals to pass on; the keeper starts the program and reports how it ended. It has one
//! thread and waits for two things: the program's end, and the agent's. At either it kills all descendants, those in sessions
//! of their own, too. If the keeper itself is killed, the kernel kills the program, and the agent its descendants.

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

/// The descriptors that the program gets.
pub(super) struct Given {
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) error: OwnedFd,
    /// The socket to the agent.
    pub(super) socket: UnixStream,
}

/// Starts the program, and stays until the program has ended, or the agent at the other end of `control`.
pub(super) fn run(order: &Order, given: Given, mut control: UnixStream) {
    let started = prepare().and_then(|()| start(order, given));
    let mut child = match started {
        Ok(child) => child,
        Err(why) => {
            let _ = frame::write(&mut control, &Frame::Failed(why));
            return;
        }
    };
    // If nobody hears it the agent is dead, which the wait below finds out.
    let _ = frame::write(&mut control, &Frame::Started);
    let group = Pid::from_child(&child);
    if let Err(e) = watch(&child, &mut control) {
        let _ = frame::write(&mut control, &Frame::Failed(format!("waiting for the program: {e}")));
    }
    // The program was not reaped yet, so the group's number is still its own.
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
    // Signals for the agent's group, such as a terminal's, are for the agent to pass on.
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
                // The agent died before the line above.
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

/// Passes signals on until the program or the agent has ended.
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
                // The agent has ended.
                _ => return Ok(()),
            }
        }
    }
}

/// Kills and reaps all descendants: when one dies, its children become this process's.
pub(super) fn kill_children() {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(_) => return,
        }
        // If the kernel does not list children, only those that left their group survive.
        let Some(children) = children(Path::new("/proc/self/task")) else { return };
        for child in children {
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The children of all threads in `tasks`, a folder like `/proc/self/task`. `None` if the kernel lists no thread's children; a
/// thread that has just ended has left its children to another.
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
