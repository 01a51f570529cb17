//! A whole simulation: replays of a trace, of which the last one counts.
//!
//! What commands call; [`engine`](crate::engine) is what it drives. A trace of a few iterations stands for a program that
//! does many: replays before the one that counts fill near memory and TLBs as the iterations before would have.

use atoll_record::trace::Event;

use crate::counts::{Outcome, Worker};
use crate::describe::Node;
use crate::engine::{Engine, Memory, RunError};
use crate::setup::{Setup, SetupError};

/// Why there is no result.
#[derive(thiserror::Error, Debug)]
pub enum SimulateError<E> {
    /// The setup cannot be simulated.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// The trace cannot.
    #[error("{0}")]
    Run(#[from] RunError<E>),
}

/// Simulates `setup` on `node`. `open` begins the trace anew and hands out what adds its next events and says whether
/// there were any; it is called `warm` times, and once more for what counts.
///
/// # Errors
/// The setup cannot be simulated, or the trace cannot be read.
pub fn simulate<E, N>(
    node: &Node,
    setup: &Setup,
    warm: u32,
    mut open: impl FnMut() -> Result<N, E>,
) -> Result<Outcome, SimulateError<E>>
where
    N: FnMut(&mut Vec<Event>) -> Result<bool, E>,
{
    let mut memory = Memory::new(setup)?;
    let mut engine = Engine::new(node, setup, &mut memory, ())?;
    for _ in 0..warm {
        engine.run(open().map_err(RunError::Source)?)?;
    }
    let before = engine.outcome();
    engine.run(open().map_err(RunError::Source)?)?;
    Ok(since(engine.outcome(), &before))
}

/// What came after `before`.
fn since(mut outcome: Outcome, before: &Outcome) -> Outcome {
    for (worker, earlier) in outcome.workers.iter_mut().zip(&before.workers) {
        *worker = Worker { counts: worker.counts - earlier.counts, times: worker.times - earlier.times };
    }
    outcome.elapsed -= before.elapsed;
    outcome.scanned -= before.scanned;
    outcome
}
