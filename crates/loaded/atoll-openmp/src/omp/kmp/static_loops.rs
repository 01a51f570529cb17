//! Static loops, in which each thread learns once which iterations it has; the division is that of libomp.
//!
//! Nothing is shared, since a thread's number decides. Loops whose chunks are dealt out are in `dispatch`.

use super::super::team::me;
use super::kinds::{self, DISTRIBUTE, DISTRIBUTE_CHUNKED, Location, STATIC_CHUNKED, STATIC_ROUNDED};

/// One thread's part of a loop: its bounds, of which the upper one is the last iteration, and the distance to its next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part<T> {
    lower: T,
    upper: T,
    stride: T,
    /// Whether the part has the loop's last iteration.
    last: bool,
}

/// One of the threads or teams that share a loop.
#[derive(Clone, Copy)]
struct Sharer {
    id: u64,
    of: u64,
}

/// The calling thread among the members of its team.
fn member() -> Sharer {
    let thread = me();
    Sharer { id: thread.number().into(), of: thread.team().threads().into() }
}

/// The calling thread's team among the teams of its league.
fn team() -> Sharer {
    let (of, id) = me().team().nesting.teams.get();
    Sharer { id: id.into(), of: of.max(1).into() }
}

/// The type of a loop variable; all arithmetic wraps, as the bounds may be the ends of the type.
pub(super) trait Counter: Copy + PartialOrd + Eq {
    /// The distance from `self` up to `end`.
    fn up_to(self, end: Self) -> u64;
    /// `self` plus `times` times `step`.
    fn plus(self, step: i64, times: u64) -> Self;
    fn of(value: u64) -> Self;
}

macro_rules! counters {
    ($($type:ty)*) => {$(
        impl Counter for $type {
            #[inline]
            fn up_to(self, end: Self) -> u64 {
                (i128::from(end) - i128::from(self)) as u64
            }
            #[inline]
            fn plus(self, step: i64, times: u64) -> Self {
                self.wrapping_add((step as u64).wrapping_mul(times) as $type)
            }
            #[inline]
            fn of(value: u64) -> Self {
                value as $type
            }
        }
    )*};
}

counters! { i32 u32 i64 u64 }

/// The number of iterations of a loop that is not empty; 0 stands for 2 to the power of 64.
#[inline]
fn count<T: Counter>(lower: T, upper: T, step: i64) -> u64 {
    match step {
        1 => lower.up_to(upper).wrapping_add(1),
        -1 => upper.up_to(lower).wrapping_add(1),
        step if step > 0 => lower.up_to(upper) / step as u64 + 1,
        step => upper.up_to(lower) / step.unsigned_abs().max(1) + 1,
    }
}

/// Whether the loop has no iteration.
#[inline]
fn is_empty<T: Counter>(lower: T, upper: T, step: i64) -> bool {
    if step > 0 { upper < lower } else { lower < upper }
}

/// The schedule of one block for each sharer; the first blocks are one iteration longer where the division leaves a rest.
#[inline]
fn block<T: Counter>(lower: T, upper: T, step: i64, who: Sharer) -> Part<T> {
    let all = count(lower, upper, step);
    let stride = T::of(all);
    if all != 0 && all < who.of {
        let at = if who.id < all { lower.plus(step, who.id) } else { upper.plus(step, 1) };
        let end = if who.id < all { at } else { upper };
        return Part { lower: at, upper: end, stride, last: who.id + 1 == all };
    }
    let (each, more) = (all / who.of, all % who.of);
    let from = lower.plus(step, who.id * each + who.id.min(more));
    let length = each + u64::from(who.id < more);
    Part { lower: from, upper: from.plus(step, length.wrapping_sub(1)), stride, last: who.id + 1 == who.of }
}

/// The schedule of chunks in turn: the sharer's first chunk, not cut off at the loop's end.
#[inline]
fn chunks<T: Counter>(lower: T, upper: T, step: i64, chunk: u64, who: Sharer) -> Part<T> {
    let all = count(lower, upper, step);
    let from = lower.plus(step, chunk.wrapping_mul(who.id));
    Part {
        lower: from,
        upper: from.plus(step, chunk - 1),
        stride: T::of(0).plus(step, chunk.wrapping_mul(who.of)),
        last: all.wrapping_sub(1) / chunk % who.of == who.id,
    }
}

/// The schedule of one block for each sharer, whose length is a multiple of `chunk`, a power of two.
fn rounded<T: Counter>(lower: T, upper: T, step: i64, chunk: u64, who: Sharer) -> Part<T> {
    let all = count(lower, upper, step);
    let length = all.div_ceil(who.of).next_multiple_of(chunk);
    let (from, to) = ((length * who.id).min(all), (length * (who.id + 1)).min(all));
    let stride = T::of(0).plus(step, length * who.of);
    if from == to {
        return Part { lower: upper.plus(step, 1), upper, stride, last: false };
    }
    let (start, end) = (lower.plus(step, from), lower.plus(step, to - 1));
    Part { lower: start, upper: if to == all { upper } else { end }, stride, last: to == all }
}

/// The sharer's part of a loop that is not empty, by the kind of its schedule.
#[inline]
fn divide<T: Counter>(kind: i32, lower: T, upper: T, step: i64, chunk: i64, who: Sharer) -> Part<T> {
    let chunk = chunk.max(1) as u64;
    match kind {
        STATIC_CHUNKED | DISTRIBUTE_CHUNKED => chunks(lower, upper, step, chunk, who),
        STATIC_ROUNDED => rounded(lower, upper, step, chunk, who),
        _ if who.of == 1 => Part { lower, upper, stride: T::of(count(lower, upper, step)), last: true },
        _ => block(lower, upper, step, who),
    }
}

/// The program's variables with a loop's bounds.
#[derive(Clone, Copy)]
pub(super) struct Places<T> {
    pub(super) last: *mut i32,
    pub(super) lower: *mut T,
    pub(super) upper: *mut T,
    pub(super) stride: *mut T,
}

impl<T: Counter> Places<T> {
    fn bounds(self) -> (T, T) {
        // SAFETY: the program's variables, which hold the loop's bounds.
        unsafe { (*self.lower, *self.upper) }
    }

    fn put(self, part: Part<T>) {
        // SAFETY: the program's variables; that of the last iteration may be null.
        unsafe {
            *self.lower = part.lower;
            *self.upper = part.upper;
            *self.stride = part.stride;
        }
        self.put_last(part.last);
    }

    fn put_last(self, last: bool) {
        // SAFETY: as above.
        if let Some(place) = unsafe { self.last.as_mut() } {
            *place = i32::from(last);
        }
    }

    /// Says that the thread has no iteration, in a loop without any, whose bounds stay as they are.
    fn put_empty(self, step: i64) {
        self.put_last(false);
        // SAFETY: as above.
        unsafe { *self.stride = T::of(step as u64) };
    }
}

/// Replaces the loop's bounds by those of the calling thread's part.
#[inline]
pub(super) fn init<T: Counter>(kind: i32, places: Places<T>, step: i64, chunk: i64) {
    let (lower, upper) = places.bounds();
    if is_empty(lower, upper, step) {
        return places.put_empty(step);
    }
    let (kind, _) = kinds::plain(kind);
    let who = if matches!(kind, DISTRIBUTE | DISTRIBUTE_CHUNKED) { team() } else { member() };
    places.put(divide(kind, lower, upper, step, chunk, who));
}

/// Divides a loop among the league's teams, and each team's part among its threads; `team_upper` becomes the end of the team's
/// part.
fn init_both<T: Counter>(kind: i32, places: Places<T>, team_upper: *mut T, step: i64, chunk: i64) {
    let (lower, upper) = places.bounds();
    if is_empty(lower, upper, step) {
        // SAFETY: the program's variable.
        unsafe { *team_upper = upper };
        return places.put_empty(step);
    }
    let of_team = divide(DISTRIBUTE, lower, upper, step, 1, team());
    // SAFETY: the program's variable.
    unsafe { *team_upper = of_team.upper };
    let stride = of_team.stride;
    if is_empty(of_team.lower, of_team.upper, step) {
        return places.put(Part { stride, last: false, ..of_team });
    }
    let (kind, _) = kinds::plain(kind);
    let part = divide(kind, of_team.lower, of_team.upper, step, chunk, member());
    places.put(Part { last: part.last && of_team.last, ..part });
}

/// Replaces the bounds by those of a chunk for the calling thread's team, cut off at the loop's end.
fn init_team<T: Counter>(places: Places<T>, step: i64, chunk: i64) {
    let (lower, upper) = places.bounds();
    if is_empty(lower, upper, step) {
        return places.put_empty(step);
    }
    let who = team();
    let part = chunks(lower, upper, step, chunk.max(1) as u64, who);
    let first = chunk.max(1) as u64 * who.id;
    let left = count(lower, upper, step).saturating_sub(first);
    let end = if left > chunk.max(1) as u64 { part.upper } else { upper };
    places.put(Part { upper: end, ..part });
}

macro_rules! calls {
    ($($init:ident $both:ident $team:ident $type:ty, $step:ty;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $init(
            _: *const Location,
            _: i32,
            kind: i32,
            last: *mut i32,
            lower: *mut $type,
            upper: *mut $type,
            stride: *mut $type,
            step: $step,
            chunk: $step,
        ) {
            init(kind, Places { last, lower, upper, stride }, i64::from(step), i64::from(chunk));
        }
        #[unsafe(no_mangle)]
        extern "C" fn $both(
            _: *const Location,
            _: i32,
            kind: i32,
            last: *mut i32,
            lower: *mut $type,
            upper: *mut $type,
            team_upper: *mut $type,
            stride: *mut $type,
            step: $step,
            chunk: $step,
        ) {
            let places = Places { last, lower, upper, stride };
            init_both(kind, places, team_upper, i64::from(step), i64::from(chunk));
        }
        #[unsafe(no_mangle)]
        extern "C" fn $team(
            _: *const Location,
            _: i32,
            last: *mut i32,
            lower: *mut $type,
            upper: *mut $type,
            stride: *mut $type,
            step: $step,
            chunk: $step,
        ) {
            init_team(Places { last, lower, upper, stride }, i64::from(step), i64::from(chunk));
        }
    )*};
}

calls! {
    __kmpc_for_static_init_4 __kmpc_dist_for_static_init_4 __kmpc_team_static_init_4 i32, i32;
    __kmpc_for_static_init_4u __kmpc_dist_for_static_init_4u __kmpc_team_static_init_4u u32, i32;
    __kmpc_for_static_init_8 __kmpc_dist_for_static_init_8 __kmpc_team_static_init_8 i64, i64;
    __kmpc_for_static_init_8u __kmpc_dist_for_static_init_8u __kmpc_team_static_init_8u u64, i64;
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_for_static_fini(_: *const Location, _: i32) {}

/// Intel's name for the end of a loop that teams share.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_dist_for_static_fini(_: *const Location, _: i32) {}

#[cfg(test)]
mod tests {
    use super::super::kinds::STATIC_ROUNDED;
    use super::*;

    /// The iterations that all sharers together execute, in the way the compiler's code goes through them.
    fn run(kind: i32, (lower, upper, step): (i64, i64, i64), chunk: i64, of: u64) -> Vec<i64> {
        let mut seen = Vec::new();
        let mut lasts = 0;
        for id in 0..of {
            let part = divide(kind, lower, upper, step, chunk, Sharer { id, of });
            lasts += u32::from(part.last);
            let (mut from, mut to) = (part.lower, part.upper);
            loop {
                let end = if step > 0 { to.min(upper) } else { to.max(upper) };
                let mut at = from;
                while if step > 0 { at <= end } else { at >= end } {
                    seen.push(at);
                    at += step;
                }
                let in_turn = kind == STATIC_CHUNKED;
                (from, to) = (from + part.stride, to + part.stride);
                if !in_turn || is_empty(from, upper, step) {
                    break;
                }
            }
        }
        assert_eq!(lasts, 1, "{kind} {lower} {upper} {step} {chunk} {of}");
        seen.sort_unstable();
        seen
    }

    #[test]
    fn every_iteration_has_one_thread() {
        for kind in [34, STATIC_CHUNKED, STATIC_ROUNDED] {
            for bounds in [(0, 9, 1), (0, 0, 1), (3, 40, 7), (40, 3, -7), (5, -5, -1), (0, 99, 3)] {
                for of in [1, 2, 3, 7, 16] {
                    for chunk in [1, 4] {
                        let (lower, upper, step) = bounds;
                        let mut all = Vec::new();
                        let mut at = lower;
                        while if step > 0 { at <= upper } else { at >= upper } {
                            all.push(at);
                            at += step;
                        }
                        all.sort_unstable();
                        assert_eq!(run(kind, bounds, chunk, of), all, "{kind} {bounds:?} {of} {chunk}");
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_reach_the_ends_of_the_types() {
        let who = |id| Sharer { id, of: 4 };
        let part = block(i32::MIN, i32::MAX, 1, who(3));
        assert_eq!((part.lower, part.upper, part.last), (1 << 30, i32::MAX, true));
        let part = block(0u32, u32::MAX, 1, who(0));
        assert_eq!((part.lower, part.upper), (0, (1 << 30) - 1));
        let part = block(u64::MAX - 1, u64::MAX, 1, who(1));
        assert_eq!((part.lower, part.upper, part.last), (u64::MAX, u64::MAX, true));
    }
}
