//! Prints on standard error which step `atoll repro` begins, and the number of steps.
//!
//! Each paper's file counts its own steps beforehand and begins them here.

use std::time::{Duration, Instant};

/// The steps of one paper.
#[derive(Debug)]
pub(super) struct Steps {
    paper: &'static str,
    total: usize,
    begun: usize,
    since: Instant,
}

impl Steps {
    /// Makes the steps of a paper, of which `total` are to come.
    pub(super) fn new(paper: &'static str, total: usize) -> Self {
        Self { paper, total, begun: 0, since: Instant::now() }
    }

    /// Begins the next step and prints it.
    pub(super) fn next(&mut self, what: &str) {
        self.begun += 1;
        eprintln!("atoll: {}", self.line(what, self.since.elapsed()));
    }

    fn line(&self, what: &str, elapsed: Duration) -> String {
        let Self { paper, total, begun, .. } = self;
        let seconds = elapsed.as_secs();
        format!(
            "repro {paper}: step {begun} of {total} after {}:{:02} min: {what}",
            seconds / 60,
            seconds % 60
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_its_number_and_how_many_there_are() {
        let mut steps = Steps::new("cmcp", 37);
        steps.next("one");
        steps.next("two");
        let line = steps.line("bt B with 56 workers", Duration::from_secs(125));
        assert_eq!(line, "repro cmcp: step 2 of 37 after 2:05 min: bt B with 56 workers");
    }
}
