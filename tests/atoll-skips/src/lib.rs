//! The way in which a test says that it, or a part of it, did not run, and why: on standard error, and in the file that the
//! variable `TEST_SKIPS` names.
//!
//! `./test` sets that variable, and `scripts/tally` counts what is in the file at the end. All crates' tests use this one.
//!
//! A reason that a package would mend names it as `apt-get install PACKAGE`: where `scripts/setup --tests` installs that
//! package, such a skip is an error on the machines that check changes.

use std::fmt::Arguments;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Leaves a test none of which ran, with the reason.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        $crate::whole(format_args!($($why)*));
        return;
    }};
}

/// Says that a part of a test does not run. The test goes on.
#[macro_export]
macro_rules! skip_part {
    ($($why:tt)*) => {
        $crate::part(format_args!($($why)*))
    };
}

/// The state of the running test.
struct Running {
    /// The test's name, if no harness names its thread.
    name: Option<String>,
    /// Whether all of it was left out.
    skipped: bool,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { name: None, skipped: false });

fn running<T>(act: impl FnOnce(&mut Running) -> T) -> T {
    act(&mut RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Begins a test in a program without a test harness; its tests run one after the other.
pub fn begin(name: &str) {
    running(|running| *running = Running { name: Some(name.to_owned()), skipped: false });
}

/// The outcome of the test that was begun last, as a program without a harness prints it: a test that left early is not ok.
pub fn outcome() -> &'static str {
    if running(|running| running.skipped) { "did not run" } else { "ok" }
}

/// Reports that all of this test did not run; used by `skip!`, which then leaves the test.
pub fn whole(why: Arguments<'_>) {
    running(|running| running.skipped = true);
    record("test", why);
}

/// Reports that a part of this test did not run.
pub fn part(why: Arguments<'_>) {
    record("part", why);
}

/// The name of this test program, without the suffix that cargo adds.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    match stem.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name.to_owned()
        }
        _ => stem,
    }
}

/// The name of the running test, after which the harness names the test's thread.
fn name() -> String {
    let begun = running(|running| running.name.clone());
    let of_thread = || std::thread::current().name().map(str::to_owned);
    format!("{}::{}", program(), begun.or_else(of_thread).unwrap_or_else(|| "?".to_owned()))
}

fn record(what: &str, why: Arguments<'_>) {
    let why = why.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("did not run: {why}");
    if let Some(path) = std::env::var_os("TEST_SKIPS").map(PathBuf::from) {
        append(&path, &format!("{what}\t{}\t{why}\n", name()));
    }
}

/// Appends a line in one write, so that lines of several processes stay whole. A test that has given up its rights cannot
/// write, but has reported to standard error.
fn append(path: &Path, line: &str) {
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) {
        let _ = file.write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_the_test_are_named() {
        assert_eq!(name(), "atoll_skips::tests::the_program_and_the_test_are_named");
    }

    #[test]
    fn lines_are_appended() {
        let path = std::env::temp_dir().join(format!("atoll-skips-{}", std::process::id()));
        append(&path, "one\n");
        append(&path, "two\n");
        let text = std::fs::read_to_string(&path).expect("the file is there");
        std::fs::remove_file(&path).expect("it can be removed");
        assert_eq!(text, "one\ntwo\n");
    }
}
