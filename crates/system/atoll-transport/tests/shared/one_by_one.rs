//! Runs a program's tests one after the other in one thread. These programs fork, or run themselves again in other roles, and
//! so have no test harness.

use std::time::Instant;

/// The tests to run: those whose names contain the program's first argument that is not an option, or all if there is none.
pub(crate) struct OneByOne {
    filter: Option<String>,
    seconds: u32,
}

impl OneByOne {
    /// A test that takes longer than `seconds` is ended by SIGALRM, and the program with it.
    pub(crate) fn new(seconds: u32) -> OneByOne {
        OneByOne { filter: std::env::args().skip(1).find(|word| !word.starts_with('-')), seconds }
    }

    /// Runs one test, if it is selected.
    pub(crate) fn run(&self, name: &str, test: impl FnOnce()) {
        if self.filter.as_ref().is_some_and(|filter| !name.contains(filter.as_str())) {
            return;
        }
        // SAFETY: sets a timer; its signal ends the process.
        unsafe { libc::alarm(self.seconds) };
        let begin = Instant::now();
        atoll_skips::begin(name);
        test();
        println!("test {name} ... {} ({:.2} s)", atoll_skips::outcome(), begin.elapsed().as_secs_f64());
    }
}
