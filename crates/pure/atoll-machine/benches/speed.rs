//! Measures how many page events a second one core of the host simulates: `cargo bench -p atoll-machine [-- TRACE]`.
//!
//! TRACE is a trace that `atoll trace --workers 56` wrote. Without it the accesses of a stencil's sweeps are made here. The
//! events lie in memory, so that the figure does not include reading and decompressing a trace; that is printed apart.
#![allow(clippy::unwrap_used, reason = "a bench ends where something is missing")]

use std::convert::Infallible;
use std::path::Path;
use std::time::Instant;

use atoll_machine::{Machine, Pager, Setup, Survey, Tables, Warm, simulate};
use atoll_pages::PageSize;
use atoll_record::trace::{Event, Reader};

const TARGET: f64 = 20e6;
const WORKERS: usize = 56;
const RUNS: usize = 5;

/// Makes sweeps over 9 arrays of 64 planes, a plane of 8 pages; each worker has its planes and reads those of its neighbours.
fn stencil() -> Vec<Event> {
    let (arrays, planes, plane, steps) = (9, WORKERS as u64 * 2, 8, 8);
    let mut trace = Vec::new();
    for step in 0..steps {
        for array in 0..arrays {
            for row in 0..2 * plane {
                for worker in 0..WORKERS as u16 {
                    let own = u64::from(worker) * 2 * plane + row;
                    let at =
                        |array: u64, page: u64| 0x10_0000 + array * planes * plane + page % (planes * plane);
                    let read = |page| Event::Access { worker, page, write: false };
                    trace.push(Event::Compute { worker, instructions: 1500 });
                    trace.push(read(at(array, own)));
                    trace.push(read(at(array, own + plane)));
                    trace.push(read(at((array + 1) % arrays, own)));
                    trace.push(Event::Compute { worker, instructions: 1500 });
                    let page = at((array + 2) % arrays, own);
                    trace.push(Event::Access { worker, page, write: true });
                }
            }
            trace.extend(
                (0..WORKERS as u16).map(|worker| Event::Barrier { worker, name: step * arrays + array }),
            );
        }
    }
    trace
}

fn read(path: &Path) -> Vec<Event> {
    let begin = Instant::now();
    let mut reader = Reader::open(path).unwrap();
    let mut trace = Vec::new();
    while reader.next_chunk(&mut trace).unwrap() {}
    let rate = trace.len() as f64 / begin.elapsed().as_secs_f64();
    println!("reading {}: {:.1}M events a second", path.display(), rate / 1e6);
    trace
}

fn main() {
    let path = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let trace = path.map_or_else(stencil, |path| read(Path::new(&path)));
    let mut survey = Survey::new();
    survey.take(&trace);
    let machine = Machine::shipped("knc-5110p").unwrap();
    println!(
        "{} events, {} of them page events, {} workers",
        survey.events,
        survey.accesses,
        survey.workers()
    );
    for policy in ["fifo", "cmcp"] {
        let near = Some(survey.footprint(PageSize::K4, &survey.areas(0)) * 64 / 100);
        let setup = Setup {
            workers: survey.workers(),
            near,
            page: "4K".parse().unwrap(),
            tables: Tables::Private,
            policy: policy.parse().unwrap(),
            pager: Pager::Kernel { batch: 1 },
        };
        let mut best = f64::INFINITY;
        let (mut misses, mut faults) = (0.0, 0.0);
        for _ in 0..RUNS {
            let begin = Instant::now();
            let open = |_| {
                let mut chunks = trace.chunks(1 << 16);
                Ok::<_, Infallible>(move |into: &mut Vec<Event>| {
                    let chunk = chunks.next();
                    into.extend_from_slice(chunk.unwrap_or_default());
                    Ok(chunk.is_some())
                })
            };
            let outcome = simulate(machine.node(), &setup, Warm::Times(1), open).unwrap();
            best = best.min(begin.elapsed().as_secs_f64());
            let counts = outcome.total().counts;
            let share = |n: u64| n as f64 * 100.0 / counts.accesses.max(1) as f64;
            (misses, faults) = (share(counts.tlb_misses), share(counts.faults()));
        }
        // There are two replays: one to fill near memory, and one that counts.
        let rate = 2.0 * survey.accesses as f64 / best;
        println!(
            "simulated page events a second, one core, {policy}, private page tables, {} cores ({misses:.0}% miss the TLB, {faults:.1}% \
             fault): target {:.1}M, measured {:.1}M: {}",
            survey.workers(),
            TARGET / 1e6,
            rate / 1e6,
            if rate >= TARGET { "met" } else { "not met" }
        );
    }
}
