//! Runs a program under atoll, or by itself: bounded in time, with its output captured, and checked for what it leaves behind.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{build, hung, left};

/// The most time of an ordinary run.
pub const LIMIT: Duration = Duration::from_secs(100);
/// How long killed processes may take to be gone.
const GRACE: Duration = Duration::from_millis(700);

/// A run that is being put together.
#[derive(Debug, Clone)]
pub struct Atoll {
    options: Vec<OsString>,
    program: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    input: Vec<u8>,
    limit: Duration,
    folder: Option<PathBuf>,
    native: bool,
    json: bool,
    terminal: bool,
}

/// How many times as long as elsewhere runs may take here: `TEST_SLOWNESS`, which `scripts/test-arm` sets for its emulated machine.
fn slowness() -> u32 {
    std::env::var("TEST_SLOWNESS").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Whether this is the process by which atoll finds out for whom a signal was.
fn is_witness(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "atoll-witness")
}

/// Whether atoll has forked this process and it is neither the program nor another node's atoll yet: it still runs atoll's
/// file in the group of the atoll that made it. (The witness has no name of its own at first.)
fn is_just_forked(pid: i32) -> bool {
    let Some(process) = left::known(pid) else { return true };
    let group_of_parent = left::known(process.parent).map(|parent| parent.group);
    let file = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let atoll = std::fs::canonicalize(build::atoll()).ok();
    file.is_some() && file == atoll && group_of_parent == Some(process.group)
}

/// Runs the program by itself.
pub fn native(program: impl AsRef<OsStr>) -> Atoll {
    Atoll { native: true, json: false, ..Atoll::new(program) }
}

impl Atoll {
    /// Runs `atoll run … -- program`.
    pub fn new(program: impl AsRef<OsStr>) -> Atoll {
        Atoll {
            options: Vec::new(),
            program: vec![program.as_ref().to_owned()],
            variables: Vec::new(),
            input: Vec::new(),
            limit: LIMIT,
            folder: None,
            native: false,
            json: true,
            terminal: false,
        }
    }

    /// Adds an argument of the program.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Atoll {
        self.program.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments of the program, separated by spaces.
    #[must_use]
    pub fn args(mut self, args: &str) -> Atoll {
        self.program.extend(args.split_whitespace().map(OsString::from));
        self
    }

    /// Adds options of `atoll run`, separated by spaces.
    #[must_use]
    pub fn with(mut self, options: &str) -> Atoll {
        self.options.extend(options.split_whitespace().map(OsString::from));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Atoll {
        self.variables.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Sets the program's input.
    #[must_use]
    pub fn input(mut self, bytes: &[u8]) -> Atoll {
        self.input = bytes.to_vec();
        self
    }

    /// Sets the most seconds that it may take.
    #[must_use]
    pub fn limit(mut self, seconds: u64) -> Atoll {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Sets the folder in which it runs.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Atoll {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Asks for no summary.
    #[must_use]
    pub fn no_summary(mut self) -> Atoll {
        self.json = false;
        self
    }

    /// Runs it at a terminal of its own, which is its standard input.
    #[must_use]
    pub fn terminal(mut self) -> Atoll {
        self.terminal = true;
        self
    }

    /// Returns the command line, to repeat the run.
    pub fn line(&self) -> String {
        let mut words = Vec::new();
        for (name, value) in &self.variables {
            words.push(format!("{}={}", name.to_string_lossy(), quoted(value)));
        }
        if !self.native {
            words.push(format!("{} run", build::atoll().display()));
            words.extend(self.options.iter().map(|o| quoted(o)));
            words.push("--".into());
        }
        words.extend(self.program.iter().map(|o| quoted(o)));
        words.join(" ")
    }

    /// Starts the run, in a process group of its own.
    pub fn start(&self) -> Running {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let tag = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = if self.native {
            Command::new(&self.program[0])
        } else {
            let mut command = Command::new(build::atoll());
            command.arg("run").args(["--summary", if self.json { "json" } else { "none" }]);
            command.args(&self.options).arg("--").arg(&self.program[0]);
            command
        };
        command.args(&self.program[1..]).env_remove("OMP_NUM_THREADS").env_remove("LD_PRELOAD");
        if self.native {
            command.env("OMP_NUM_THREADS", "2");
        }
        // Several nodes have this machine's CPUs alone, and would leave all regions to the first.
        command.env(PLACING, "spread");
        command.env(left::TAG, &tag).envs(self.variables.iter().cloned());
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut keyboard = None;
        if self.terminal {
            let (ours, theirs) = terminal();
            keyboard = Some(ours);
            command.stdin(theirs);
        } else {
            command.stdin(Stdio::piped()).process_group(0);
        }
        let terminal = self.terminal;
        // Rust's runtime ignores SIGPIPE, and a shell makes background processes ignore the other two; a program at a terminal
        // ignores none of them.
        // SAFETY: only system calls, between fork and exec.
        unsafe {
            command.pre_exec(move || {
                for signal in [libc::SIGPIPE, libc::SIGINT, libc::SIGQUIT] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                if terminal {
                    libc::setsid();
                    libc::ioctl(0, libc::TIOCSCTTY, 0);
                }
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", self.line()));
        if let Some(mut stdin) = child.stdin.take() {
            let input = self.input.clone();
            std::thread::spawn(move || stdin.write_all(&input).is_ok());
        }
        let stdout = Reader::start(child.stdout.take().expect("piped"));
        let stderr = Reader::start(child.stderr.take().expect("piped"));
        Running {
            child,
            tag,
            keyboard,
            stdout,
            stderr,
            line: self.line(),
            began: Instant::now(),
            limit: self.limit * slowness(),
        }
    }

    /// Runs it to its end.
    pub fn run(&self) -> Outcome {
        self.start().end()
    }
}

/// The environment variable that says where regions begin on several nodes: with `spread` on all of them, with `apart` as if each node
/// had CPUs of its own, and as users have it if it is empty.
pub const PLACING: &str = "ATOLL_TEST_PLACING";

/// Makes a terminal: the end for the test, and the end for a process.
fn terminal() -> (File, File) {
    let (mut ours, mut theirs) = (-1, -1);
    let (name, settings, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: two valid places for descriptors; name, settings and size are not asked for.
    let status = unsafe { libc::openpty(&raw mut ours, &raw mut theirs, name, settings, size) };
    assert_eq!(status, 0, "no terminal to be had");
    // SAFETY: fresh descriptors; ours is closed in the child by exec.
    unsafe {
        libc::fcntl(ours, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(theirs, libc::F_SETFD, libc::FD_CLOEXEC);
        (File::from_raw_fd(ours), File::from_raw_fd(theirs))
    }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Reads a pipe to its end, in a thread of its own.
struct Reader {
    chunks: Receiver<Vec<u8>>,
    bytes: Vec<u8>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(mut pipe: impl Read + Send + 'static) -> Reader {
        let (sender, chunks) = channel();
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(n) = pipe.read(&mut buffer) {
                if n == 0 || sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Reader { chunks, bytes: Vec::new(), thread: Some(thread) }
    }

    fn take_what_is_there(&mut self) {
        while let Ok(chunk) = self.chunks.try_recv() {
            self.bytes.extend(chunk);
        }
    }

    /// Whether the pipe's end came: it does not come as long as any process holds the pipe open.
    fn finish(&mut self, within: Duration) -> bool {
        let began = Instant::now();
        while self.thread.as_ref().is_some_and(|t| !t.is_finished()) && began.elapsed() < within {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.take_what_is_there();
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

/// A run in progress.
pub struct Running {
    child: Child,
    /// The tag that the run's processes carry in their environment.
    pub tag: String,
    keyboard: Option<File>,
    stdout: Reader,
    stderr: Reader,
    line: String,
    began: Instant,
    limit: Duration,
}

impl Running {
    /// Returns the process that was started.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until the output holds this text; returns `false` when the run ends or its time is over before.
    pub fn wait_for(&mut self, text: &str) -> bool {
        loop {
            self.stdout.take_what_is_there();
            if String::from_utf8_lossy(&self.stdout.bytes).contains(text) {
                return true;
            }
            let over = self.child.try_wait().is_ok_and(|status| status.is_some());
            if over || self.began.elapsed() > self.limit {
                self.stdout.take_what_is_there();
                return String::from_utf8_lossy(&self.stdout.bytes).contains(text);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns the output so far.
    pub fn said(&mut self) -> String {
        self.stdout.take_what_is_there();
        String::from_utf8_lossy(&self.stdout.bytes).into_owned()
    }

    /// Returns the processes of the run other than atoll itself and what helps it.
    pub fn others(&self) -> Vec<i32> {
        left::processes(&self.tag, self.pid())
            .into_iter()
            .map(|process| process.pid)
            .filter(|&pid| pid != self.pid() && !is_witness(pid) && !is_just_forked(pid))
            .collect()
    }

    /// Sends a signal to the whole group, as a terminal does.
    pub fn signal_group(&self, signal: i32) {
        // SAFETY: no pointers; the group is this run's own.
        unsafe { libc::kill(-self.pid(), signal) };
    }

    /// Presses a key at the run's terminal.
    pub fn press(&mut self, key: u8) {
        self.keyboard.as_mut().expect("it has a terminal").write_all(&[key]).expect("the terminal takes it");
    }

    /// Sends a signal to atoll alone.
    pub fn signal(&self, signal: i32) {
        // SAFETY: no pointers; the process is this run's own and not yet waited for.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Waits for the end of the run, takes its output, and finds what it left.
    pub fn end(mut self) -> Outcome {
        let (mut timed_out, mut hung) = (false, String::new());
        let status: ExitStatus = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if self.began.elapsed() > self.limit => {
                    timed_out = true;
                    hung = hung::told(&self.tag, self.pid());
                    left::kill(&self.tag, self.pid());
                    let _ = self.child.kill();
                    break self.child.wait().expect("it can be waited for");
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Err(e) => panic!("{e}"),
            }
        };
        let seconds = self.began.elapsed().as_secs_f64();
        let mut left = left::after(&self.tag, self.pid(), GRACE);
        if !left.is_empty() {
            left::kill(&self.tag, self.pid());
        }
        for (reader, name) in [(&mut self.stdout, "stdout"), (&mut self.stderr, "stderr")] {
            if !reader.finish(Duration::from_secs(10)) {
                left.push(format!("somebody still holds {name} open"));
            }
        }
        let mut stderr = String::from_utf8_lossy(&self.stderr.bytes).into_owned();
        let mut summary = None;
        let json = |line: &&str| matches!(serde_json::from_str(line), Ok(Value::Object(_)));
        if let Some(line) = stderr.lines().find(json).map(str::to_owned) {
            summary = serde_json::from_str(&line).ok();
            stderr = stderr.replacen(&format!("{line}\n"), "", 1);
        }
        Outcome {
            status: status.code(),
            signal: status.signal(),
            stdout: self.stdout.bytes,
            stderr,
            summary,
            timed_out,
            hung,
            left,
            seconds,
            line: self.line,
        }
    }
}

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The exit status, unless a signal ended it.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The program's standard output.
    pub stdout: Vec<u8>,
    /// The standard error of the program and atoll, without the summary.
    pub stderr: String,
    /// atoll's summary.
    pub summary: Option<Value>,
    /// Whether it was ended because its time was over.
    pub timed_out: bool,
    /// What its processes were doing then.
    pub hung: String,
    /// What it left behind.
    pub left: Vec<String>,
    /// The seconds that it took.
    pub seconds: f64,
    line: String,
}

impl Outcome {
    /// Returns standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns a number of the summary, such as `memory/resident_peak_bytes`; 0 where there is none.
    pub fn figure(&self, path: &str) -> u64 {
        self.summary
            .as_ref()
            .and_then(|s| s.pointer(&format!("/{path}")))
            .and_then(Value::as_u64)
            .unwrap_or(0)
    }

    /// Returns all of the outcome, for a message.
    pub fn told(&self) -> String {
        let tail = |text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(25)..].join("\n")
        };
        format!(
            "{}\n  status {:?} signal {:?} after {:.1} s{}\n--- stdout\n{}\n--- stderr\n{}{}{}",
            self.line,
            self.status,
            self.signal,
            self.seconds,
            if self.timed_out { " (time over)" } else { "" },
            tail(&self.text()),
            tail(&self.stderr),
            if self.hung.is_empty() { "" } else { "\n--- what its processes were doing\n" },
            self.hung
        )
    }

    /// Checks that the run ended by itself and left nothing behind.
    #[track_caller]
    pub fn clean(self) -> Outcome {
        assert!(!self.timed_out, "{}", self.told());
        assert!(self.left.is_empty(), "left behind: {:?}\n{}", self.left, self.told());
        self
    }

    /// Checks the same as `clean`, and this exit status.
    #[track_caller]
    pub fn exits(self, status: i32) -> Outcome {
        let run = self.clean();
        assert_eq!(run.status, Some(status), "{}", run.told());
        run
    }

    /// Checks the same as `clean`, and that this signal ended it.
    #[track_caller]
    pub fn dies_by(self, signal: i32) -> Outcome {
        let run = self.clean();
        assert_eq!(run.signal, Some(signal), "{}", run.told());
        run
    }

    /// Checks the same as `clean`, and that output and ending are another run's.
    #[track_caller]
    pub fn like(self, other: &Outcome) -> Outcome {
        let run = self.clean();
        assert_eq!((run.status, run.signal), (other.status, other.signal), "{}", run.told());
        assert!(run.stdout == other.stdout, "output differs, natively:\n{}\n{}", other.text(), run.told());
        run
    }

    /// Checks that standard error holds this text.
    #[track_caller]
    pub fn says(self, text: &str) -> Outcome {
        assert!(self.stderr.contains(text), "{text:?} is not said:\n{}", self.told());
        self
    }
}
