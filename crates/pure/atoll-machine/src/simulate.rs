//! A whole simulation: replays of a trace, of which the last one counts.
//!
//! Commands call it, and it drives [`engine`](crate::engine). A trace of a few iterations stands for a program that does many:
//! the replays before the one that counts fill near memory and TLBs as the iterations before would have.

use atoll_record::trace::Event;

use crate::counts::{Outcome, Worker};
use crate::describe::Node;
use crate::engine::{Engine, Memory, RunError};
use crate::setup::{Setup, SetupError};

/// The reason why there is no result.
#[derive(thiserror::Error, Debug)]
pub enum SimulateError<E> {
    /// The setup cannot be simulated.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// The trace cannot be simulated.
    #[error("{0}")]
    Run(#[from] RunError<E>),
}

/// The replays before the one that counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Warm {
    /// This number of replays, all of the whole trace.
    Times(u32),
    /// One replay of the whole trace, then replays of the part that counts until one brings as many pages near as the one
    /// before it. What the program's beginning left is gone by then. The last replay counts.
    Settled {
        /// The share of the pages by which two replays may differ.
        within: f64,
        /// The most replays, the whole one included.
        most: u32,
    },
}

/// The part of the trace that a replay gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The whole trace.
    Whole,
    /// The part that counts.
    Counted,
}

/// Simulates `setup` on `node`. `open` begins the trace, or its part that counts, anew and returns a function that adds its
/// next events and says whether there were any. It is called once for each replay.
///
/// # Errors
/// The setup cannot be simulated, or the trace cannot be read.
pub fn simulate<E, N>(
    node: &Node,
    setup: &Setup,
    warm: Warm,
    mut open: impl FnMut(Part) -> Result<N, E>,
) -> Result<Outcome, SimulateError<E>>
where
    N: FnMut(&mut Vec<Event>) -> Result<bool, E>,
{
    let mut memory = Memory::new(setup)?;
    let mut engine = Engine::new(node, setup, &mut memory, ())?;
    let mut replay = |part| -> Result<Outcome, SimulateError<E>> {
        let before = engine.outcome();
        engine.run(open(part).map_err(RunError::Source)?)?;
        Ok(since(engine.outcome(), &before))
    };
    let (within, most) = match warm {
        Warm::Times(times) => {
            for _ in 0..times {
                replay(Part::Whole)?;
            }
            return replay(Part::Counted);
        }
        Warm::Settled { within, most } => (within, most),
    };
    replay(Part::Whole)?;
    let mut last = replay(Part::Counted)?;
    last.settled = last.total().counts.page_ins() == 0;
    for _ in 2..most {
        if last.settled {
            break;
        }
        let mut next = replay(Part::Counted)?;
        next.settled = differ(&last, &next) < within;
        last = next;
    }
    Ok(last)
}

/// Returns the difference of two replays in pages brought near, as a share.
fn differ(one: &Outcome, other: &Outcome) -> f64 {
    let [one, other] = [one, other].map(|outcome| outcome.total().counts.page_ins());
    one.abs_diff(other) as f64 / one.max(other).max(1) as f64
}

/// Returns what was counted after `before`.
fn since(mut outcome: Outcome, before: &Outcome) -> Outcome {
    for (worker, earlier) in outcome.workers.iter_mut().zip(&before.workers) {
        *worker = Worker { counts: worker.counts - earlier.counts, times: worker.times - earlier.times };
    }
    outcome.elapsed -= before.elapsed;
    outcome.scanned -= before.scanned;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::Machine;
    use crate::setup::{PageMode, Pager, Tables};
    use atoll_pages::PageSize;
    use std::convert::Infallible;

    /// Pages used once, before a program's iterations and after them, had near memory to themselves when counting began:
    /// iterations seemed to bring what they bring only once.
    #[test]
    fn pages_of_the_beginning_and_the_end_were_near_when_counting_began() {
        let access = |page| Event::Access { worker: 0, page, write: false };
        let once = || (1000..1040).map(access);
        let step = || (0..30).map(access);
        let open = |part| {
            let whole = (part == Part::Whole).then(once).into_iter().flatten();
            let mut events = Some(step().chain(whole).collect::<Vec<_>>());
            Ok::<_, Infallible>(move |into: &mut Vec<Event>| {
                let more = events.take();
                into.extend(more.iter().flatten());
                Ok(more.is_some())
            })
        };
        let machine = Machine::shipped("knc-5110p").unwrap();
        let setup = Setup {
            workers: 2,
            near: Some(40 << 12),
            page: PageMode::One(PageSize::K4),
            tables: Tables::Private,
            policy: "fifo".parse().unwrap(),
            pager: Pager::Kernel { batch: 1 },
        };
        let page_ins = |warm| {
            let outcome = simulate(machine.node(), &setup, warm, open).unwrap();
            (outcome.total().counts.page_ins(), outcome.settled)
        };
        assert_eq!(page_ins(Warm::Times(1)), (30, false));
        assert_eq!(page_ins(Warm::Settled { within: 0.02, most: 2 }), (30, false));
        assert_eq!(page_ins(Warm::Settled { within: 0.02, most: 9 }), (0, true));
        // Nothing leaves, so one replay of the part that counts is enough.
        let near = Setup { near: None, ..setup };
        let outcome = simulate(machine.node(), &near, Warm::Settled { within: 0.02, most: 9 }, open).unwrap();
        assert!(outcome.settled && outcome.total().counts.page_ins() == 0);
    }

    /// One lock was kept through a fault's work, too, so that workers with a shared page table took as long
    /// together as one after the other.
    #[test]
    fn the_lock_of_a_shared_page_table_was_kept_through_all_of_a_fault() {
        let machine = Machine::shipped("knc-5110p").unwrap();
        let setup = |workers, policy: &str| Setup {
            workers,
            near: Some((workers as u64 * 4) << 12),
            page: PageMode::One(PageSize::K4),
            tables: Tables::Shared,
            policy: policy.parse().unwrap(),
            pager: Pager::Kernel { batch: 1 },
        };
        // Each worker sweeps more pages of its own than its share of near memory.
        let elapsed = |workers: u16| {
            let step = |page: u64| (0..workers).map(move |worker| (worker, page));
            let access = |(worker, page): (u16, u64)| {
                let page = u64::from(worker) * 1000 + page;
                [
                    Event::Compute { worker, instructions: 20_000 },
                    Event::Access { worker, page, write: false },
                ]
            };
            let events: Vec<Event> = (0..100).flat_map(step).flat_map(access).collect();
            let open = |_| {
                let mut events = Some(events.clone());
                Ok::<_, Infallible>(move |into: &mut Vec<Event>| {
                    let more = events.take();
                    into.extend(more.iter().flatten());
                    Ok(more.is_some())
                })
            };
            let setup = setup(usize::from(workers), "fifo");
            simulate(machine.node(), &setup, Warm::Times(1), open).unwrap().elapsed
        };
        let (one, eight) = (elapsed(1), elapsed(8));
        assert!(eight < 3 * one, "{eight} of eight, {one} of one");
    }
}
