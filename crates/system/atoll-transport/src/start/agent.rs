//! The agent, a job's process on each host: starts one program and carries its output, its input and its messages to the other
//! nodes.
//!
//! `launch/` starts it, directly or through ssh, and talks to it over its standard input and output; `keeper.rs` holds the
//! program. When the launcher's end closes, for whatever reason, the agent ends and the program with it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::exit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{getpid, set_child_subreaper};

use super::LONGEST;
use super::frame::{self, Frame, FrameError, OPENING, Order, PIECE, Stream, Welcome};
use super::keeper::{self, Given};

/// Runs the agent of one node, and ends the process. For the hidden mode of a command that [`Launch`](super::Launch) then
/// names; must be called before the process has a second thread. If no launcher is at the other end of standard input, it says
/// so and ends with status 2.
pub fn agent_main() -> ! {
    let why = match serve() {
        Ok(never) => match never {},
        Err(why) => why,
    };
    // Standard error goes to the user through the launcher; the agent's own messages go over the frames.
    eprintln!("atoll: the agent that starts a node: {why}");
    exit(2)
}

enum Never {}

fn serve() -> Result<Never, String> {
    let os = |what| move |e: rustix::io::Errno| format!("{what}: {e}");
    let (mut from, to) = take_stdio().map_err(|e| format!("its standard input and output: {e}"))?;
    let launcher = Launcher(Arc::new(Mutex::new(to)));
    launcher.write(&frame::opening()).map_err(|e| format!("its standard output: {e}"))?;
    let mut opening = [0; OPENING];
    from.read_exact(&mut opening).map_err(|_| "no launcher speaks to it: atoll starts it itself")?;
    if opening != frame::opening() {
        return Err("no launcher of the same version speaks to it: install one atoll on all hosts".into());
    }
    let order = match frame::read(&mut from) {
        Ok(Some(Frame::Order(order))) => order,
        // The job was given up before it began.
        Ok(None) => exit(1),
        _ => return Err("the launcher sent a message that makes no sense".into()),
    };

    set_child_subreaper(Some(getpid())).map_err(os("prctl"))?;
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(os("pipe"));
    let pair = || UnixStream::pair().map_err(|e| format!("socketpair: {e}"));
    let first = order.welcome.node == 0;
    let (input, to_program) = if first {
        let (read, write) = pipe()?;
        (read, Some(write))
    } else {
        (File::open("/dev/null").map_err(|e| format!("/dev/null: {e}"))?.into(), None)
    };
    let (output, its_output) = pipe()?;
    let (error, its_error) = pipe()?;
    let (program, its_socket) = pair()?;
    let (keeper, its_control) = pair()?;

    if thread_count() != Some(1) {
        return Err("it must be started before the process has a second thread".into());
    }
    // SAFETY: there is one thread, so the child may do all that this process may.
    match unsafe { libc::fork() } {
        -1 => return Err(format!("fork: {}", io::Error::last_os_error())),
        0 => {
            // The launcher learns of the agent's death when the last copy of its pipes is closed.
            drop((from, launcher, to_program, output, error, program, keeper));
            let given = Given { input, output: its_output, error: its_error, socket: its_socket };
            keeper::run(&order, given, its_control);
            exit(0)
        }
        _ => {}
    }
    drop((input, its_output, its_error, its_socket, its_control));
    Agent::new(order, launcher, program, keeper)
        .and_then(|agent| agent.run(from, to_program, output, error))
        .map_err(|e| format!("a thread or a copy of a descriptor: {e}"))
}

/// Takes standard input and output for the agent alone: from now on, prints in this process go to standard error.
fn take_stdio() -> io::Result<(File, File)> {
    let from = io::stdin().as_fd().try_clone_to_owned()?;
    let to = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok((from.into(), to.into()))
}

fn thread_count() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

/// The pipe to the launcher, which all threads use.
#[derive(Clone)]
struct Launcher(Arc<Mutex<File>>);

impl Launcher {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)
    }

    /// Sends a frame. Ends the process if the launcher is gone: the keeper then kills the program.
    fn tell(&self, frame: &Frame) {
        let sent = frame::encode(frame).map_err(|_| ()).and_then(|bytes| self.write(&bytes).map_err(|_| ()));
        if sent.is_err() {
            exit(1)
        }
    }
}

/// The data that the agent's threads share.
struct Agent {
    launcher: Launcher,
    welcome: Welcome,
    /// The number of exchanges in which the program has taken part.
    rounds: AtomicU32,
    program: UnixStream,
    keeper: UnixStream,
}

impl Agent {
    fn new(
        order: Order,
        launcher: Launcher,
        program: UnixStream,
        keeper: UnixStream,
    ) -> io::Result<Arc<Agent>> {
        Ok(Arc::new(Agent { launcher, welcome: order.welcome, rounds: AtomicU32::new(0), program, keeper }))
    }

    fn run(
        self: Arc<Agent>,
        mut from: File,
        to_program: Option<OwnedFd>,
        output: OwnedFd,
        error: OwnedFd,
    ) -> io::Result<Never> {
        let (input, inputs) = channel();
        let (say, sayings) = channel();
        let pumps = [(Stream::Output, output), (Stream::Error, error)].map(|(stream, file)| {
            let launcher = self.launcher.clone();
            spawn("printed", move || pump(stream, file.into(), &launcher))
        });
        let this = Arc::clone(&self);
        spawn("input", move || this.feed(to_program, &inputs))?;
        let this = Arc::clone(&self);
        spawn("to program", move || this.say(&sayings))?;
        let [first, second] = pumps;
        let pumps = [first?, second?];
        let this = Arc::clone(&self);
        let answers = say.clone();
        spawn("keeper", move || this.finish(answers, pumps))?;
        // No thread waits for the program, so a launcher's end is seen at once.
        loop {
            match frame::read(&mut from) {
                // A thread that has ended has nobody left to serve.
                Ok(Some(Frame::Input(bytes))) => drop(input.send(bytes)),
                Ok(Some(frame @ (Frame::Gathered { .. } | Frame::Gone { .. }))) => drop(say.send(frame)),
                Ok(Some(Frame::Signal(signal))) => drop((&self.keeper).write_all(&[signal])),
                _ => exit(1),
            }
        }
    }

    /// Waits for the program's end, which the keeper reports, and reports it after all that was printed.
    fn finish(self: Arc<Agent>, answers: Sender<Frame>, pumps: [JoinHandle<()>; 2]) {
        let mut last = None;
        while let Ok(Some(frame)) = frame::read(&mut &self.keeper) {
            match frame {
                Frame::Started => {
                    self.launcher.tell(&frame);
                    // Not started before, since the launcher expects nothing of a program that does not run.
                    let (this, answers) = (Arc::clone(&self), answers.clone());
                    if spawn("from program", move || this.listen(&answers)).is_err() {
                        exit(1)
                    }
                }
                frame => last = Some(frame),
            }
        }
        let last = last.unwrap_or_else(|| {
            keeper::kill_children();
            Frame::Failed("the process that watches over the program was killed".into())
        });
        for pump in pumps {
            // The thread does not panic.
            let _ = pump.join();
        }
        self.launcher.tell(&last);
        exit(0)
    }

    /// Writes input to the program, a piece at a time.
    fn feed(&self, file: Option<OwnedFd>, inputs: &Receiver<Vec<u8>>) {
        let mut file = file.map(File::from);
        for bytes in inputs {
            let taken = file.as_mut().is_some_and(|file| !bytes.is_empty() && file.write_all(&bytes).is_ok());
            if !taken {
                // The input has ended, or the program no longer reads it.
                file = None;
            }
            self.launcher.tell(&Frame::InputTaken);
        }
    }

    /// Sends the program the frames for it, as it reads them.
    fn say(&self, sayings: &Receiver<Frame>) {
        for frame in sayings {
            if frame::write(&mut &self.program, &frame).is_err() {
                return;
            }
        }
    }

    /// Receives the program's frames. A program that sends an invalid one is not heard any more.
    fn listen(&self, answers: &Sender<Frame>) {
        loop {
            match frame::read(&mut &self.program) {
                Ok(Some(Frame::Hello)) => {
                    let round = self.rounds.load(Ordering::Relaxed);
                    let _ = answers.send(Frame::Welcome(Welcome { round, ..self.welcome.clone() }));
                }
                Ok(Some(frame)) if self.contributes(&frame) => {
                    self.rounds.fetch_add(1, Ordering::Relaxed);
                    self.launcher.tell(&frame);
                }
                Ok(None) | Err(FrameError::Io(_)) => return,
                _ => {
                    // The program's next call then reports that nobody is there.
                    let _ = self.program.shutdown(std::net::Shutdown::Both);
                    return;
                }
            }
        }
    }

    fn contributes(&self, frame: &Frame) -> bool {
        let next = self.rounds.load(Ordering::Relaxed);
        matches!(frame, Frame::Contribution { round, bytes } if *round == next && bytes.len() <= LONGEST)
    }
}

/// Carries the program's output to the launcher.
fn pump(stream: Stream, mut from: File, launcher: &Launcher) {
    let mut bytes = vec![0; PIECE];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => launcher.tell(&Frame::Printed(stream, bytes[..count].to_vec())),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(work)
}
