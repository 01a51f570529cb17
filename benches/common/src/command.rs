//! Commands of measured programs, and the pipes that they print into.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// Returns a command for program and arguments in `words`, which has at least the program. Of the variables of OpenMP the
/// program gets those in `environment` only. It has a process group of its own, and is killed when the caller's thread ends.
pub fn command(words: &[OsString], environment: &[(&str, String)]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("OMP_") || name.starts_with("GOMP_")) {
            command.env_remove(name);
        }
    }
    command.envs(environment.iter().map(|(name, value)| (name, value))).process_group(0);
    let parent = std::process::id() as i32;
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != parent {
                libc::_exit(1);
            }
            Ok(())
        });
    }
    command
}

/// The pipes of a program. A thread for each reads it all the time, so that it is never full.
#[derive(Debug)]
pub struct Pipes {
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

impl Pipes {
    /// Takes the pipes of `child`.
    pub fn of(child: &mut Child) -> Pipes {
        Pipes { stdout: child.stdout.take().map(reader), stderr: child.stderr.take().map(reader) }
    }

    /// Waits until everybody who could write has closed the pipes; returns standard output and standard error.
    pub fn texts(self) -> (String, String) {
        let text =
            |reader: Option<JoinHandle<String>>| reader.and_then(|r| r.join().ok()).unwrap_or_default();
        (text(self.stdout), text(self.stderr))
    }
}

fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Bytes that were read before an error are kept.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
