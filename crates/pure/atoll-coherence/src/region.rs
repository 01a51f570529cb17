//! Chooses the protocol of a work-sharing region: many writers where that saves invalidations, otherwise one writer.
//!
//! `agent.rs` is told the mode at a region's begin. The driver keeps one [`Region`] for each key (function, call site, loop)
//! and tells every node the same mode.
//!
//! Source: the Popcorn paper, sections 3.3 and 4.2 (smart regions). There a region that fell back stays so; here it comes
//! back when its invalidations would pay again.

use crate::agent::Mode;

/// The rules by which a region changes its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The least number of invalidations in a run for which many writers pay. The paper: a node's number of cores.
    pub threshold: u32,
    /// The number of successive runs below the threshold after which the region falls back. The paper: 10.
    pub probation: u32,
    /// The number of successive runs at or above the threshold after which the region comes back.
    pub comeback: u32,
}

impl Rules {
    /// The paper's rules, for nodes of `workers` workers each.
    #[must_use]
    pub fn of(workers: u32) -> Self {
        Self { threshold: workers.max(1), probation: 10, comeback: 3 }
    }
}

/// The reasons for a region's mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeReason {
    /// The region has not run often enough.
    New,
    /// Many writers save invalidations.
    Pays,
    /// Many writers saved too few invalidations in this number of successive runs.
    Probation(u32),
    /// Many writers saved too few invalidations for too long.
    FellBack,
    /// With one writer, the region sent many invalidations again.
    CameBack,
}

/// The state of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    mode: Mode,
    why: ModeReason,
    /// The number of successive runs that speak against the mode.
    against: u32,
}

impl Default for Region {
    fn default() -> Self {
        Self { mode: Mode::ManyWriters, why: ModeReason::New, against: 0 }
    }
}

impl Region {
    /// The mode of the next run.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The reason for the mode.
    #[must_use]
    pub fn why(&self) -> ModeReason {
        self.why
    }

    /// Ends a run. `invalidations` is the number of all nodes, batched at the barrier or sent one by one.
    pub fn ended(&mut self, invalidations: u32, rules: &Rules) {
        let many = invalidations >= rules.threshold;
        let against = many != (self.mode == Mode::ManyWriters);
        self.against = if against { self.against + 1 } else { 0 };
        match self.mode {
            Mode::ManyWriters if !against => self.why = ModeReason::Pays,
            Mode::ManyWriters if self.against < rules.probation => {
                self.why = ModeReason::Probation(self.against);
            }
            Mode::ManyWriters => {
                *self = Self { mode: Mode::OneWriter, why: ModeReason::FellBack, against: 0 }
            }
            Mode::OneWriter if self.against >= rules.comeback => {
                *self = Self { mode: Mode::ManyWriters, why: ModeReason::CameBack, against: 0 };
            }
            Mode::OneWriter => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_runs_below_the_threshold_and_a_region_falls_back() {
        let rules = Rules::of(16);
        let mut region = Region::default();
        region.ended(100, &rules);
        assert_eq!((region.mode(), region.why()), (Mode::ManyWriters, ModeReason::Pays));
        for run in 1..10 {
            region.ended(15, &rules);
            assert_eq!((region.mode(), region.why()), (Mode::ManyWriters, ModeReason::Probation(run)));
        }
        // One run that pays ends the probation.
        region.ended(16, &rules);
        assert_eq!(region.why(), ModeReason::Pays);
        for _ in 0..10 {
            region.ended(0, &rules);
        }
        assert_eq!((region.mode(), region.why()), (Mode::OneWriter, ModeReason::FellBack));
    }

    #[test]
    fn it_comes_back_when_it_would_pay_again() {
        let rules = Rules::of(4);
        let mut region = Region::default();
        (0..10).for_each(|_| region.ended(0, &rules));
        region.ended(1000, &rules);
        region.ended(0, &rules);
        region.ended(1000, &rules);
        region.ended(1000, &rules);
        assert_eq!(region.mode(), Mode::OneWriter);
        region.ended(1000, &rules);
        assert_eq!((region.mode(), region.why()), (Mode::ManyWriters, ModeReason::CameBack));
    }
}
