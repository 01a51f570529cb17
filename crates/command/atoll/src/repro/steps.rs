//! Prints on standard error which step `atoll repro` begins, the number of steps, and the time left.
//!
//! Each paper's file counts its own steps beforehand and begins them here. Where it also says how much work they are, the time
//! that is left is estimated by the pace so far.

use std::time::{Duration, Instant};

/// The steps of one paper.
#[derive(Debug)]
pub(super) struct Steps {
    paper: &'static str,
    total: usize,
    begun: usize,
    since: Instant,
    /// The work of all steps and of those that are done, in one unit, and the time at which the first of it began.
    work: (f64, f64, Option<Instant>),
}

impl Steps {
    /// Makes the steps of a paper, of which `total` are to come.
    pub(super) fn new(paper: &'static str, total: usize) -> Self {
        Self { paper, total, begun: 0, since: Instant::now(), work: (0.0, 0.0, None) }
    }

    /// From now on there is so much work to do, in any unit.
    pub(super) fn expect(&mut self, work: f64) {
        self.work = (work, 0.0, Some(Instant::now()));
    }

    /// So much of the work is done.
    pub(super) fn did(&mut self, work: f64) {
        self.work.1 += work;
    }

    /// So much of the work was done before.
    pub(super) fn skip(&mut self, work: f64) {
        self.work.0 -= work;
    }

    /// Begins the next step and prints it.
    pub(super) fn next(&mut self, what: &str) {
        self.begun += 1;
        let working = self.work.2.map_or(Duration::ZERO, |since| since.elapsed());
        eprintln!("atoll: {}", self.line(what, self.since.elapsed(), working));
    }

    fn line(&self, what: &str, elapsed: Duration, working: Duration) -> String {
        let Self { paper, total, begun, .. } = self;
        let seconds = elapsed.as_secs();
        let (all, done, _) = self.work;
        let left = match done > 0.0 {
            true => {
                let left = working.as_secs_f64() * (all - done).max(0.0) / done;
                format!(", about {:.0} min left", (left / 60.0).ceil())
            }
            false => String::new(),
        };
        format!(
            "repro {paper}: step {begun} of {total} after {}:{:02} min{left}: {what}",
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
        let line = |steps: &Steps, working| {
            let working = Duration::from_secs(working);
            steps.line("bt B with 56 workers", Duration::from_secs(125), working)
        };
        assert_eq!(line(&steps, 0), "repro cmcp: step 2 of 37 after 2:05 min: bt B with 56 workers");
        // What was there already does not count as done at that pace.
        steps.expect(100.0);
        steps.skip(50.0);
        steps.did(10.0);
        assert_eq!(
            line(&steps, 60),
            "repro cmcp: step 2 of 37 after 2:05 min, about 4 min left: bt B with 56 workers"
        );
    }
}
