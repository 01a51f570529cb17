//! One node from the launcher's side: the process that leads to its agent, and threads for the pipes to it.
//!
//! `mod.rs` starts a link for each node and gets events from it. The node's output is printed in these threads, so that a
//! terminal that stops delays the nodes' output and nothing else.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, setsid};

use super::output::{Lines, Output};
use super::rsh::Rsh;
use super::trouble::{FailureReason, LaunchError, explain};
use super::{Event, Heard};
use crate::start::frame::{self, Frame, MAGIC, OPENING, Stream};

/// The most bytes that a login shell may print before the agent speaks.
const MOST_NOISE: usize = 1 << 20;

/// The launcher's connection to one node.
pub(super) struct Link {
    to: Option<Sender<Arc<[u8]>>>,
    process: OwnedFd,
    group: Pid,
}

/// The settings of a link.
pub(super) struct Target<'a> {
    pub(super) node: usize,
    pub(super) host: &'a str,
    pub(super) agent: &'a [OsString],
    pub(super) rsh: &'a Rsh,
    /// Whether no other node prints.
    pub(super) alone: bool,
}

/// Whether `host` is this machine, by its name.
pub(super) fn is_local(host: &str) -> bool {
    matches!(host, "localhost" | ".")
}

impl Link {
    /// Starts the process that leads to the agent; the error tells why it did not start.
    pub(super) fn start(
        target: &Target<'_>,
        output: &Output,
        events: &Sender<Event>,
    ) -> Result<Link, FailureReason> {
        let local = is_local(target.host);
        let command = if local {
            let mut command = Command::new(&target.agent[0]);
            command.args(&target.agent[1..]);
            Ok(command)
        } else {
            target.rsh.command(target.host, target.agent)
        };
        let mut command = command.map_err(|e| FailureReason::NotStarted(e.to_string()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: one system call between fork and exec.
        unsafe {
            // A terminal's signals are for the launcher to pass on, and no process here may ask at a terminal.
            command.pre_exec(|| setsid().map(|_| ()).map_err(io::Error::from));
        }
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|e| not_started(&name, !local && target.rsh.is_ssh(), &e))?;
        Link::attach(&mut child, target, output, events).map_or_else(
            |e| Err(FailureReason::NotStarted(format!("the pipes to {name}: {e}"))),
            |(link, reader)| {
                let run = move || reader.run(child);
                spawn("from node", run)
                    .map(|()| link)
                    .map_err(|e| FailureReason::NotStarted(format!("a thread: {e}")))
            },
        )
    }

    fn attach(
        child: &mut Child,
        target: &Target<'_>,
        output: &Output,
        events: &Sender<Event>,
    ) -> io::Result<(Link, Reader)> {
        let none = || io::Error::other("there is none");
        let stdin = child.stdin.take().ok_or_else(none)?;
        let stdout = child.stdout.take().ok_or_else(none)?;
        let stderr = child.stderr.take().ok_or_else(none)?;
        let group = Pid::from_child(child);
        let process = pidfd_open(group, PidfdFlags::empty())?;
        let (to, frames) = channel();
        spawn("to node", move || send(stdin, &frames))?;
        let said = Arc::new(Mutex::new(String::new()));
        let (last, host, printer) = (Arc::clone(&said), target.host.to_owned(), output.clone());
        // Ends with the process; its last output is needed when the process has ended, so that is waited for there.
        let errors = thread::Builder::new()
            .name("errors of node".into())
            .spawn(move || relay(BufReader::new(stderr), &host, &printer, &last))?;
        let rsh = (!is_local(target.host)).then(|| (target.rsh.name(), target.rsh.is_ssh()));
        let reader = Reader {
            node: target.node,
            host: target.host.to_owned(),
            agent: target.agent[0].to_string_lossy().into_owned(),
            rsh,
            from: stdout,
            errors,
            said,
            output: output.clone(),
            lines: [Lines::new(target.alone), Lines::new(target.alone)],
            events: events.clone(),
        };
        Ok((Link { to: Some(to), process, group }, reader))
    }

    /// Sends frames. If the node is gone, an event reports it.
    pub(super) fn send(&self, frames: Arc<[u8]>) {
        let _ = self.to.as_ref().map(|to| to.send(frames));
    }

    /// Closes the pipe to the agent, which then ends with its program.
    pub(super) fn cut(&mut self) {
        self.to = None;
    }

    /// Ends the process that leads to the agent, with its children.
    pub(super) fn kill(&self, signal: Signal) {
        // The process may have ended; as it was not reaped yet, its number is still that of its group.
        if pidfd_send_signal(&self.process, signal).is_ok() {
            let _ = kill_process_group(self.group, signal);
        }
    }
}

fn not_started(name: &str, ssh: bool, error: &io::Error) -> FailureReason {
    FailureReason::NotStarted(match error.kind() {
        io::ErrorKind::NotFound if ssh => format!("there is no {name} here: install openssh-client"),
        io::ErrorKind::NotFound => format!("there is no command {name} here"),
        _ => format!("{name} could not be started: {error}"),
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// Writes frames until the link is dropped, then closes the pipe.
fn send(mut to: ChildStdin, frames: &Receiver<Arc<[u8]>>) {
    for frame in frames {
        if to.write_all(&frame).is_err() {
            return;
        }
    }
}

/// Shows the error output of the process that leads to the agent, and keeps its last line.
fn relay(mut from: impl BufRead, host: &str, output: &Output, last: &Mutex<String>) {
    let mut line = Vec::new();
    // A line that does not end is shown in parts.
    while (&mut from).take(8192).read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        show(host, &line, output);
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        if !text.is_empty() {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = text;
        }
        line.clear();
    }
}

fn show(host: &str, line: &[u8], output: &Output) {
    let text = [host.as_bytes(), b": ", line.trim_ascii_end(), b"\n"].concat();
    // The output is only shown; the job does not depend on it.
    let _ = output.print(Stream::Error, &text);
}

/// Reads one node's frames.
struct Reader {
    node: usize,
    host: String,
    agent: String,
    rsh: Option<(String, bool)>,
    from: ChildStdout,
    errors: thread::JoinHandle<()>,
    said: Arc<Mutex<String>>,
    output: Output,
    lines: [Lines; 2],
    events: Sender<Event>,
}

impl Reader {
    fn run(mut self, mut child: Child) {
        let spoke = self.open();
        // Whether the agent spoke, and what was wrong with its frames.
        let (spoke, wrong) = match spoke {
            Ok(true) => (true, self.hear().err()),
            Ok(false) => (false, None),
            Err(why) => (true, Some(why)),
        };
        for stream in [Stream::Output, Stream::Error] {
            // A node whose output could not be printed is reported by `hear`.
            let _ = self.lines[stream as usize].end(|bytes| self.output.print(stream, bytes));
        }
        if wrong.is_some() {
            // An agent that sends invalid frames is not waited for.
            let _ = child.kill();
        }
        // `None` where the process that led to the agent was killed.
        let status = child.wait().ok().and_then(|status| status.code());
        let why = wrong.unwrap_or_else(|| if spoke { FailureReason::Lost } else { self.explain(status) });
        // If nobody hears it the launcher has ended.
        let _ = self.events.send(Event::Node(self.node, Heard::Closed(why)));
    }

    /// Waits for the agent's opening; returns whether it came. What comes before it is shown.
    fn open(&mut self) -> Result<bool, FailureReason> {
        let (mut line, mut noise) = (Vec::new(), 0);
        let mut byte = [0];
        // Read byte by byte, as nothing after the opening may be taken; a login shell's greeting is short.
        while self.from.read(&mut byte).is_ok_and(|count| count == 1) {
            line.push(byte[0]);
            noise += 1;
            if line.ends_with(&MAGIC) {
                line.truncate(line.len() - MAGIC.len());
                if !line.is_empty() {
                    show(&self.host, &line, &self.output);
                }
                let mut version = [0; OPENING - MAGIC.len()];
                if self.from.read_exact(&mut version).is_err() {
                    return Ok(false);
                }
                return match u32::from_le_bytes(version) {
                    frame::VERSION => Ok(self.events.send(Event::Node(self.node, Heard::Opening)).is_ok()),
                    theirs => Err(FailureReason::Version(theirs)),
                };
            }
            if noise > MOST_NOISE {
                return Err(FailureReason::Nonsense("more than a megabyte before the agent spoke".into()));
            }
            // The opening ends with a newline, and contains no other.
            if byte == *b"\n" || line.len() > 8192 {
                show(&self.host, &line, &self.output);
                line.clear();
            }
        }
        if !line.is_empty() {
            show(&self.host, &line, &self.output);
        }
        Ok(false)
    }

    /// Prints the output and hands on the other frames, until the agent ends.
    fn hear(&mut self) -> Result<(), FailureReason> {
        loop {
            match frame::read(&mut self.from) {
                Ok(Some(Frame::Printed(stream, bytes))) => {
                    let print = |bytes: &[u8]| self.output.print(stream, bytes);
                    self.lines[stream as usize].push(&bytes, print).map_err(FailureReason::Output)?;
                }
                Ok(Some(frame)) => drop(self.events.send(Event::Node(self.node, Heard::Frame(frame)))),
                Ok(None) | Err(frame::FrameError::Cut | frame::FrameError::Io(_)) => return Ok(()),
                Err(e) => return Err(FailureReason::Nonsense(e.to_string())),
            }
        }
    }

    fn explain(&self, status: Option<i32>) -> FailureReason {
        // The process's output ends when its pipe does. A process left behind may hold that open: then the last line so far is
        // reported.
        for _ in 0..100 {
            if self.errors.is_finished() {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(5));
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let rsh = self.rsh.as_ref().map(|(name, ssh)| (name.as_str(), *ssh));
        FailureReason::NotStarted(explain(rsh, &self.host, &self.agent, status, &said))
    }
}

/// Checks the settings of a [`Target`].
pub(super) fn check(hosts: &[String], agent: &[OsString]) -> Result<(), LaunchError> {
    if let Some(bad) =
        hosts.iter().find(|host| host.is_empty() || host.starts_with('-') || host.contains('\0'))
    {
        return Err(LaunchError::Host(bad.clone()));
    }
    let bytes = |word: &OsString| word.as_encoded_bytes().to_vec();
    let bad = agent.is_empty()
        || bytes(&agent[0]).is_empty()
        || bytes(&agent[0]).starts_with(b"-")
        || agent.iter().any(|word| bytes(word).contains(&0));
    if bad { Err(LaunchError::Agent) } else { Ok(()) }
}
