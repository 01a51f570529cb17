//! Finds which of the program's accesses a sample of the fault handler stands for.
//!
//! Under atoll's runtime a worker resolves its own faults, on a stack of its own for that. A sample taken there is time that
//! the faulting access took. `timer` recognises such a sample by its stack pointer, and the recorder assigns it to the nearest
//! fault that was reported.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use atoll_profile_wire::{Mark, What};
use atoll_record::profile::Access;

/// The stacks on which threads handle their faults, by thread.
#[derive(Debug, Default)]
pub(crate) struct FaultStacks(HashMap<u32, Range<u64>>);

impl FaultStacks {
    /// Takes a mark from inside the program.
    pub(crate) fn told(&mut self, mark: &Mark) {
        if let What::FaultStack { tid, start, bytes } = mark.what {
            self.0.insert(tid, start..start.saturating_add(bytes));
        }
    }

    /// Whether a thread with this stack pointer is handling a fault.
    pub(crate) fn holds(&self, tid: u32, stack_pointer: u64) -> bool {
        self.0.get(&tid).is_some_and(|stack| stack.contains(&stack_pointer))
    }

    /// Forgets a thread, which executes another program.
    pub(crate) fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }
}

/// A fault that the program reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    time_ns: u64,
    pub(crate) address: u64,
    pub(crate) ip: u64,
    pub(crate) access: Access,
}

/// The last faults of each thread.
#[derive(Debug, Default)]
pub(crate) struct Faults(HashMap<u32, VecDeque<Fault>>);

/// The number of faults of a thread that are kept: more than it reports between two harvests.
const KEPT: usize = 1 << 13;

impl Faults {
    /// Takes a mark from inside the program. Faults are reported when they are over, in the order of time.
    pub(crate) fn told(&mut self, mark: &Mark) {
        let What::Fault { address, write, tid, ip } = mark.what else { return };
        let kept = self.0.entry(tid).or_default();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        let access = if write { Access::Write } else { Access::Read };
        kept.push_back(Fault { time_ns: mark.time_ns, address, ip, access });
    }

    /// Returns the fault that a thread was handling at a time: the first one that was over then or later, else the last one
    /// before.
    pub(crate) fn at(&self, tid: u32, time_ns: u64) -> Option<Fault> {
        let kept = self.0.get(&tid)?;
        let next = kept.partition_point(|fault| fault.time_ns < time_ns);
        kept.get(next).or_else(|| kept.back()).copied()
    }

    /// Forgets a thread that has ended.
    pub(crate) fn forget(&mut self, tid: u32) {
        self.0.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_the_handler_is_of_the_fault_that_ends_next() {
        let mut faults = Faults::default();
        let fault = |address| What::Fault { address, write: address == 2, tid: 7, ip: 9 };
        for (time_ns, address) in [(100, 1), (200, 2)] {
            faults.told(&Mark { time_ns, pid: 7, what: fault(address) });
        }
        let at = |time| faults.at(7, time).map(|fault| (fault.address, fault.access));
        assert_eq!([at(50), at(100)], [Some((1, Access::Read)); 2]);
        assert_eq!([at(101), at(900)], [Some((2, Access::Write)); 2]);
        assert_eq!(faults.at(8, 100), None);
    }

    #[test]
    fn a_handler_is_known_by_its_stack() {
        let mut stacks = FaultStacks::default();
        let what = What::FaultStack { tid: 7, start: 0x1000, bytes: 0x1000 };
        stacks.told(&Mark { time_ns: 1, pid: 7, what });
        let holds = [(7, 0x1000), (7, 0x1fff), (7, 0x2000), (8, 0x1800)].map(|(t, sp)| stacks.holds(t, sp));
        assert_eq!(holds, [true, true, false, false]);
    }
}
