//! Jobs on several nodes, with random traces: the protocols never fail, and what they count adds up.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::convert::Infallible;

use atoll_machine::Machine;
use atoll_machine::job::{Consistency, JobError, JobOutcome, JobSetup, Simulation};
use atoll_record::trace::Event;
use proptest::prelude::*;

const WORKERS: u16 = 4;

/// Makes rounds of accesses by each worker, with a barrier behind each round, in one region.
fn traces() -> impl Strategy<Value = Vec<Event>> {
    let access = (0..WORKERS, 0..12_u64, any::<bool>());
    let round = prop::collection::vec(access, 0..60);
    prop::collection::vec(round, 1..12).prop_map(|rounds| {
        let all = |event: fn(u16) -> Event| (0..WORKERS).map(event).collect::<Vec<_>>();
        let mut events = all(|worker| Event::RegionBegin { worker, name: 1 });
        for round in rounds {
            for (worker, page, write) in round {
                events.push(Event::Compute { worker, instructions: 100 });
                events.push(Event::Access { worker, page, write });
            }
            events.extend(all(|worker| Event::Barrier { worker, name: 2 }));
        }
        events.extend(all(|worker| Event::RegionEnd { worker, name: 1 }));
        events
    })
}

fn simulate(events: &[Event], setup: JobSetup) -> Result<JobOutcome, JobError<Infallible>> {
    let machine = Machine::shipped("xeon-e5-2620+thunderx").unwrap();
    let mut simulation = Simulation::new(&machine, setup)?;
    let mut left = Some(events.to_vec());
    simulation.run(|into| {
        into.extend(left.take().into_iter().flatten());
        Ok::<_, Infallible>(false)
    })?;
    Ok(simulation.outcome())
}

proptest! {
    #[test]
    fn no_trace_breaks_the_protocols(events in traces(), nodes in 1..=4_u8, stretch in 0..3_u64, prefetch: bool) {
        for consistency in [Consistency::Sc, Consistency::Mw, Consistency::Smart] {
            let setup = JobSetup { workers: WORKERS.into(), nodes, consistency, prefetch, stretch };
            let JobOutcome { all, messages, .. } = simulate(&events, setup).unwrap();
            prop_assert!(all.fetched_used <= all.fetched);
            prop_assert!(all.diffs <= all.twins);
            if consistency == Consistency::Sc {
                prop_assert_eq!((all.twins, all.diffs, all.batched), (0, 0, 0));
            }
            if nodes == 1 {
                prop_assert_eq!((messages, all.pages, all.invalidations, all.read_faults), (0, 0, 0, 0));
            }
            // Each page that came was asked for by a fault or a plan.
            prop_assert!(all.pages <= all.read_faults + all.write_faults + all.upgrades + all.fetched);
        }
    }
}

#[test]
fn more_nodes_than_workers_are_refused() {
    let setup = JobSetup { workers: 2, nodes: 3, consistency: Consistency::Sc, prefetch: false, stretch: 0 };
    let error = simulate(&[], setup).unwrap_err();
    assert!(error.to_string().contains("3 nodes for 2 workers"), "{error}");
}
