//! Loops whose iterations wait for earlier ones: each iteration of the nest has a bit that is set once it is posted.
//!
//! How such a loop is dealt out is no matter here: the compiler asks `static_loops` or `dispatch` for that.

use super::super::team::{Team, Thread, me};
use super::super::workshare;
use super::kinds::Location;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// `kmp_dim`: one loop of the nest; the upper bound is its last iteration's value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Dimension {
    first: i64,
    last: i64,
    step: i64,
}

impl Dimension {
    fn count(&self) -> u64 {
        let (from, to) = if self.step > 0 { (self.first, self.last) } else { (self.last, self.first) };
        if from > to { 0 } else { to.wrapping_sub(from) as u64 / self.step.unsigned_abs().max(1) + 1 }
    }

    /// The number of the iteration with this value; `None` outside the loop.
    fn number(&self, value: i64) -> Option<u64> {
        let (from, to) = if self.step > 0 { (self.first, value) } else { (value, self.first) };
        let inside = if self.step > 0 { value <= self.last } else { value >= self.last };
        (from <= to && inside).then(|| to.wrapping_sub(from) as u64 / self.step.unsigned_abs().max(1))
    }
}

/// A nest of loops that is being executed.
pub(crate) struct Nest {
    dimensions: Vec<Dimension>,
    posted: Box<[AtomicU64]>,
    /// The number of members that have left the nest.
    left: AtomicU32,
}

impl Nest {
    fn new(dimensions: &[Dimension]) -> *const Nest {
        let all = dimensions.iter().map(Dimension::count).product::<u64>();
        let posted = (0..all.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Box::into_raw(Box::new(Nest { dimensions: dimensions.to_vec(), posted, left: AtomicU32::new(0) }))
    }

    /// The word and the bit of the iteration with these values; `None` where there is no such iteration.
    fn locate(&self, values: *const i64) -> Option<(&AtomicU64, u64)> {
        let mut number = 0u64;
        for (index, dimension) in self.dimensions.iter().enumerate() {
            // SAFETY: the program gives a value for each loop of the nest.
            let at = dimension.number(unsafe { *values.add(index) })?;
            number = number.wrapping_mul(dimension.count()).wrapping_add(at);
        }
        Some((self.posted.get((number / 64) as usize)?, 1 << (number % 64)))
    }
}

/// The nest that the thread is in; `None` in a team of one, whose iterations come in order anyway.
fn current(thread: &Thread) -> Option<&'static Nest> {
    // SAFETY: a nest lives until all members have left it.
    unsafe { thread.state.get().kmp.nest.as_ref() }
}

fn check(team: &Team) {
    if team.spans() {
        atoll_nodes::unsupported("a loop with dependences between iterations");
    }
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_doacross_init(_: *const Location, _: i32, count: i32, dimensions: *const Dimension) {
    let thread = me();
    let team = thread.team();
    check(team);
    if team.size.get() == 1 {
        return;
    }
    // SAFETY: the program passes as many dimensions as it says.
    let dimensions = unsafe { std::slice::from_raw_parts(dimensions, usize::try_from(count).unwrap_or(0)) };
    let fill = |share: &workshare::WorkShare| {
        share.reserve(size_of::<usize>());
        // SAFETY: just reserved, and nobody else sees the share yet.
        unsafe { share.memory().cast::<*const Nest>().write(Nest::new(dimensions)) };
    };
    let spill = |share: &workshare::WorkShare| {
        // SAFETY: `fill` put the nest there, and nobody else has it.
        drop(unsafe { Box::from_raw(share.memory().cast::<*mut Nest>().read()) });
    };
    let (share, _) = workshare::meet(thread, team, fill, spill);
    // SAFETY: the member that came first put the nest there in `fill`; the share stays while this member is at it.
    let nest = unsafe { share.memory().cast::<*const Nest>().read() };
    thread.update(|state| state.kmp.nest = nest);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_doacross_post(_: *const Location, _: i32, values: *const i64) {
    let thread = me();
    if let Some((word, bit)) = current(thread).and_then(|nest| nest.locate(values)) {
        // Other side: the loads in `wait`.
        word.fetch_or(bit, Ordering::Release);
        thread.team().turns.notify();
    }
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_doacross_wait(_: *const Location, _: i32, values: *const i64) {
    let thread = me();
    if let Some((word, bit)) = current(thread).and_then(|nest| nest.locate(values)) {
        // Other side: the addition in `post`.
        let posted = || word.load(Ordering::Acquire) & bit != 0;
        if !posted() {
            thread.team().turns.wait_until(posted);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_doacross_fini(_: *const Location, _: i32) {
    let thread = me();
    let Some(nest) = current(thread) else { return };
    thread.update(|state| state.kmp.nest = ptr::null());
    // Other side: this addition in the other members.
    if nest.left.fetch_add(1, Ordering::AcqRel) + 1 == thread.team().size.get() {
        // SAFETY: boxed by `Nest::new`; all members have left it.
        drop(unsafe { Box::from_raw(ptr::from_ref(nest).cast_mut()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_of_a_nest_have_bits_of_their_own() {
        let up = Dimension { first: 2, last: 11, step: 3 };
        let down = Dimension { first: 5, last: -3, step: -4 };
        assert_eq!((up.count(), down.count()), (4, 3));
        assert_eq!((up.number(8), up.number(14), up.number(-1)), (Some(2), None, None));
        assert_eq!((down.number(1), down.number(9), down.number(-7)), (Some(1), None, None));
        // SAFETY: boxed here.
        let nest = unsafe { Box::from_raw(Nest::new(&[up, down]).cast_mut()) };
        let mut seen = 0;
        for outer in [2, 5, 8, 11] {
            for inner in [5, 1, -3] {
                let (_, bit) = nest.locate([outer, inner].as_ptr()).unwrap();
                assert_eq!(seen & bit, 0);
                seen |= bit;
            }
        }
        assert_eq!(seen, (1 << 12) - 1);
    }
}
