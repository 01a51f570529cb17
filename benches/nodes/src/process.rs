//! Makes one run of one program, bounded in time, and keeps its output.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use atoll_bench_common::{Output, Pipes, command};

use crate::error::Error;

/// The time between two looks at a run: short enough for short runs, long enough not to disturb.
const LOOK: Duration = Duration::from_millis(5);

/// Runs `words` to its end or to the end of its time.
///
/// # Errors
/// If the program cannot be started.
pub(crate) fn run(
    words: &[OsString],
    environment: &[(&str, String)],
    timeout: Duration,
) -> Result<Output, Error> {
    let mut command = command(words, environment);
    let start = Instant::now();
    let mut child = command.spawn().map_err(|e| Error::at("start", Path::new(&words[0]), e))?;
    let pipes = Pipes::of(&mut child);
    let mut timed_out = false;
    let status = loop {
        let ended =
            child.try_wait().map_err(|e| Error::said(format!("the program's end is not known: {e}")))?;
        if let Some(status) = ended {
            break status;
        }
        if start.elapsed() > timeout && !timed_out {
            timed_out = true;
            // SAFETY: no pointers; the process group is the child's own.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
        }
        std::thread::sleep(LOOK);
    };
    let seconds = start.elapsed().as_secs_f64();
    let (stdout, stderr) = pipes.texts();
    Ok(Output { seconds, timed_out, status, stdout, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_bounded_also_for_children() {
        let words = ["/bin/sh", "-c", "sleep 50 & sleep 50"].map(OsString::from);
        let output = run(&words, &[], Duration::from_secs(1)).unwrap();
        assert!(output.failure_or_cut().is_some() && output.seconds < 20.0);
    }
}
