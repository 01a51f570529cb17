//! Doacross loops: iterations that wait for earlier ones (`ordered depend(sink: …)`).
//!
//! Part of the loop's work share. Iterations that one member executes in sequence share a word that tells how far the member
//! has come; `loop_calls` makes these words when the loop starts.

use super::loops::{Deal, Plan};
use super::team::{Team, Thread, me};
use super::workshare;
use crate::arch::{self, ARGUMENTS};
use std::sync::atomic::{AtomicU64, Ordering};

/// The progress of one loop's iterations.
pub(crate) struct Doacross {
    /// The number of iterations of each nested loop.
    counts: Vec<u64>,
    /// For each block or chunk of the outermost loop, one more than the number of the last iteration posted, counted over the
    /// whole nest.
    posted: Box<[AtomicU64]>,
    /// The number of outermost iterations for each word; 0 where each member has one block.
    chunk: u64,
    /// For blocks: the iterations of each block, and the number of blocks that have one more.
    block: (u64, u64),
}

impl Doacross {
    pub(crate) fn new(counts: &[u64], plan: &Plan, threads: u32) -> Doacross {
        let threads = u64::from(threads);
        let (chunk, words) = match plan.deal {
            Deal::Blocks => (0, threads),
            Deal::Turns | Deal::Dynamic => (plan.chunk, plan.count.div_ceil(plan.chunk)),
            // Chunks differ in size, so each iteration has a word.
            Deal::Guided | Deal::GuidedEven | Deal::Stealing => (1, plan.count),
        };
        Doacross {
            counts: counts.to_vec(),
            posted: (0..words).map(|_| AtomicU64::new(0)).collect(),
            chunk,
            block: (plan.count / threads, plan.count % threads),
        }
    }

    /// The word for an iteration, and the iteration's number in the nest.
    fn locate(&self, at: impl Fn(usize) -> u64) -> Option<(&AtomicU64, u64)> {
        let outer = at(0);
        let (each, more) = self.block;
        let word = match self.chunk {
            0 if outer < more * (each + 1) => outer / (each + 1),
            0 => more + (outer - more * (each + 1)).checked_div(each)?,
            chunk => outer / chunk,
        };
        let number =
            |number: u64, (index, count): (usize, &u64)| number.wrapping_mul(*count).wrapping_add(at(index));
        let number = self.counts.iter().enumerate().fold(0, number);
        Some((self.posted.get(word as usize)?, number))
    }
}

fn current(thread: &Thread) -> Option<&Doacross> {
    // SAFETY: set before the share was published, and constant while this member is in the loop.
    unsafe { (*workshare::current(thread).doacross.get()).as_deref() }
}

/// Ends the run if the team spans nodes, whose iterations are not seen here.
fn check(team: &Team) {
    if team.spans() {
        atoll_nodes::unsupported("a loop with dependences between iterations");
    }
}

extern "C" fn post(iteration: *const u64) {
    let thread = me();
    let team = thread.team();
    check(team);
    if team.size.get() == 1 {
        return;
    }
    // SAFETY: the program gives the iteration's number in each nested loop.
    let located =
        current(thread).and_then(|doacross| doacross.locate(|index| unsafe { *iteration.add(index) }));
    if let Some((word, number)) = located {
        // Other side: the loads in `wait`.
        word.store(number.wrapping_add(1), Ordering::Release);
        team.turns.notify();
    }
}

/// Waits for the iteration whose numbers are the first ones in `registers`, then those in `stack`.
extern "C" fn wait(registers: *const u64, stack: *const u64) {
    let thread = me();
    let team = thread.team();
    check(team);
    if team.size.get() == 1 {
        return;
    }
    let at = |index: usize| {
        // SAFETY: the program passes one number for each nested loop.
        unsafe { if index < ARGUMENTS { *registers.add(index) } else { *stack.add(index - ARGUMENTS) } }
    };
    let located = current(thread).and_then(|doacross| doacross.locate(at));
    if let Some((word, number)) = located {
        // Other side: the store in `post`.
        let posted = || word.load(Ordering::Acquire) > number;
        if !posted() {
            team.turns.wait_until(posted);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_doacross_post(iteration: *const u64) {
    post(iteration);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_doacross_ull_post(iteration: *const u64) {
    post(iteration);
}

macro_rules! variadic_wait {
    ($($name:ident)*) => {$(
        /// `void wait(first, ...)`: stores the register arguments and passes on where the others lie.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            arch::call_with_arguments!(wait)
        }
    )*};
}

variadic_wait! { GOMP_doacross_wait GOMP_doacross_ull_wait }
