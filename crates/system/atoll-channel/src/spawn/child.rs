//! Starts a process by an order: in a group of its own, with its socket, such that it dies with the thread that started it.
//!
//! `here.rs` keeps the children, `letter.rs` is what they are told. A program that gets more privileges by being executed
//! (setuid) loses the signal that the system sends at its parent's death, and a program may ask to lose it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process_group, pidfd_open, set_parent_process_death_signal,
};

use crate::spawn::interface::{Exit, SpawnError};
use crate::spawn::letter::VARIABLE;
use crate::spawn::order::{Order, Output, To, Word, shown};
use atoll_transport::Node;

/// A process that was started, and has not been waited for.
pub(super) struct Started {
    child: Child,
    group: Pid,
    /// A descriptor that becomes readable when it has ended.
    pub(super) pidfd: OwnedFd,
    /// The socket to it.
    pub(super) socket: UnixStream,
}

impl Started {
    /// Starts the process of `order` at `node`, with additional `variables`. It is killed when the calling thread ends.
    pub(super) fn start(
        order: &Order,
        node: Node,
        variables: &[(&str, &std::ffi::OsStr)],
    ) -> Result<Started, SpawnError> {
        let os = |what: &str, why: &io::Error| SpawnError::Os {
            program: order.program_name(),
            node,
            why: format!("{}: {why}", shown(what)),
        };
        let (socket, theirs) = UnixStream::pair().map_err(|e| os("a socket", &e))?;
        let mut command = Command::new(order.program.os());
        command.args(order.arguments.iter().map(Word::os)).stdin(Stdio::null()).process_group(0);
        if let Some(directory) = &order.directory {
            // Tried first, since the system's error does not tell whether the program or the directory is missing.
            let path = directory.path();
            std::fs::read_dir(&path).map_err(|e| os(&path.display().to_string(), &e))?;
            command.current_dir(path);
        }
        let [output, error] = outputs(order).map_err(|(path, e)| os(&path, &e))?;
        command.stdout(output).stderr(error);
        command.envs(order.environment.iter().map(|(name, value)| (name.os(), value.os())));
        command.envs(variables.iter().copied());
        command.env(VARIABLE, theirs.as_raw_fd().to_string());

        let parent = getpid();
        let inherited = theirs.as_raw_fd();
        let before_exec = move || -> io::Result<()> {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before that was set, in which case no signal would come.
            if getppid() != Some(parent) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            // Done in the child alone, so that no process started meanwhile inherits it.
            // SAFETY: the parent holds the descriptor until `spawn` returns, so the forked child has it.
            let theirs = unsafe { BorrowedFd::borrow_raw(inherited) };
            fcntl_setfd(theirs, FdFlags::empty())?;
            Ok(())
        };
        // SAFETY: after the fork it makes three system calls without libc, and allocates nothing.
        unsafe { command.pre_exec(before_exec) };
        let mut child = command.spawn().map_err(|e| {
            let program = order.program_name();
            match e.kind() {
                io::ErrorKind::NotFound => SpawnError::NotFound { program, node },
                io::ErrorKind::PermissionDenied => SpawnError::NotExecutable { program, node },
                _ => SpawnError::Os { program, node, why: e.to_string() },
            }
        })?;
        drop(theirs);
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let watched = group
            .ok_or_else(|| io::Error::other("it has no number"))
            .and_then(|group| Ok((group, pidfd_open(group, PidfdFlags::empty())?)));
        match watched {
            Ok((group, pidfd)) => Ok(Started { child, group, pidfd, socket }),
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(os("pidfd_open", &e))
            }
        }
    }

    /// The system's number for it.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to it and all of its group.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        // The process was not waited for, so no other group has the number.
        Ok(kill_process_group(self.group, signal)?)
    }

    /// Kills the rest of its group, and waits for its end.
    pub(super) fn end(mut self) -> Exit {
        // An error means that nobody is left.
        let _ = self.signal(Signal::KILL);
        match self.child.wait() {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Exit::Status(code),
                (None, signal) => Exit::Signal(signal.unwrap_or_default()),
            },
            // Some other code waited for it: this process's program does so for all of its children.
            Err(_) => Exit::Unknown,
        }
    }
}

/// The files for its standard output and error; the error names the path that could not be used.
fn outputs(order: &Order) -> Result<[Stdio; 2], (String, io::Error)> {
    let directory = order.directory.as_ref().map(Word::path).unwrap_or_default();
    let open = |path: &Word| {
        let path = directory.join(path.path());
        create(&path).map_err(|e| (path.display().to_string(), e))
    };
    let one = |output: &Output| {
        Ok(match &output.0 {
            To::Inherit => Stdio::inherit(),
            To::Nowhere => Stdio::null(),
            To::File(path) => open(path)?.into(),
        })
    };
    match (&order.output.0, &order.error.0) {
        (To::File(output), To::File(error)) if output == error => {
            let file = open(output)?;
            let copy = file.try_clone().map_err(|e| (output.to_string(), e))?;
            Ok([file.into(), copy.into()])
        }
        _ => Ok([one(&order.output)?, one(&order.error)?]),
    }
}

/// Creates an empty file, opened for appending, so that two writers do not overwrite each other.
fn create(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).append(true).open(path)?;
    file.set_len(0)?;
    Ok(file)
}
