//! `target` and `teams` on a machine without devices: the host executes them, in place.
//!
//! Data are mapped to themselves, so the data constructs do nothing; dependences are waited for (`depend`).

use super::depend::GOMP_taskwait_depend;
use super::env;
use super::team::{Function, Team, me};
use std::ptr;
use std::sync::atomic::Ordering;

const MAP_FIRSTPRIVATE: u16 = 0x0c;

// The first words of a target region's further arguments.
const ARGUMENT_DEVICE: usize = 0x7f;
const ARGUMENT_IN_NEXT: usize = 1 << 7;
const ARGUMENT_WHAT: usize = 0xff << 8;
const ARGUMENT_THREAD_LIMIT: usize = 2 << 8;

/// The thread limit among a target region's further arguments; 0 where there is none.
fn thread_limit(mut arguments: *const usize) -> u32 {
    let mut limit = 0;
    // SAFETY: where not null, a list of words that ends in 0; a word with a mark is followed by its value.
    unsafe {
        while !arguments.is_null() && *arguments != 0 {
            let word = *arguments;
            arguments = arguments.add(1);
            let mut value = ((word as isize) >> 16) as usize;
            if word & ARGUMENT_IN_NEXT != 0 {
                value = *arguments;
                arguments = arguments.add(1);
            }
            if word & ARGUMENT_DEVICE == 0 && word & ARGUMENT_WHAT == ARGUMENT_THREAD_LIMIT {
                limit = u32::try_from(value).unwrap_or(0);
            }
        }
    }
    limit
}

/// Runs a target region as a program's initial thread would: at level 0, in a team of its own.
fn on_host(function: Function, data: *mut u8, thread_limit: u32) {
    let thread = me();
    let outside = thread.state.get();
    let mut icv = env::initial_icv();
    if thread_limit > 0 {
        icv.thread_limit = icv.thread_limit.min(thread_limit);
    }
    let team = Team::obtain(thread, 1);
    // SAFETY: every thread has a team.
    team.nesting.put_outermost(unsafe { &*outside.team }.is_within());
    team.settle(1, icv);
    thread.state.set(team.state_of(0));
    function(data);
    super::barrier::meet(thread);
    team.sharing.first.set(thread.state.get().share);
    thread.state.set(outside);
    team.put_back(thread);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target(
    _device: i32,
    function: Function,
    _unused: *const u8,
    _count: usize,
    addresses: *mut *mut u8,
    _sizes: *mut usize,
    _kinds: *mut u8,
) {
    on_host(function, addresses.cast(), 0);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target_ext(
    _device: i32,
    function: Function,
    count: usize,
    addresses: *mut *mut u8,
    sizes: *mut usize,
    kinds: *mut u16,
    _flags: u32,
    depend: *const *mut u8,
    arguments: *const usize,
) {
    wait(depend);
    // The firstprivate copies, with room in front of each so that it can be aligned.
    let mut copies: Vec<Vec<u8>> = Vec::new();
    for index in 0..count {
        // SAFETY: the program gives three arrays of `count`; the kind's upper byte is an alignment's logarithm.
        unsafe {
            let kind = *kinds.add(index);
            if kind & 0xff != MAP_FIRSTPRIVATE {
                continue;
            }
            // An optional argument that is absent has a null address, which is passed on.
            let original = *addresses.add(index);
            if original.is_null() {
                continue;
            }
            let (size, align) = (*sizes.add(index), 1usize << (kind >> 8).min(30));
            let mut copy = vec![0u8; size + align];
            let place = copy.as_mut_ptr().add(copy.as_ptr().align_offset(align));
            place.copy_from_nonoverlapping(original, size);
            *addresses.add(index) = place;
            copies.push(copy);
        }
    }
    on_host(function, addresses.cast(), thread_limit(arguments));
}

fn wait(depend: *const *mut u8) {
    if !depend.is_null() {
        GOMP_taskwait_depend(depend);
    }
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target_data(
    _device: i32,
    _unused: *const u8,
    _count: usize,
    _addresses: *mut *mut u8,
    _sizes: *mut usize,
    _kinds: *mut u8,
) {
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target_data_ext(
    _device: i32,
    _count: usize,
    _addresses: *mut *mut u8,
    _sizes: *mut usize,
    _kinds: *mut u16,
) {
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target_end_data() {}

#[unsafe(no_mangle)]
extern "C" fn GOMP_target_update(
    _device: i32,
    _unused: *const u8,
    _count: usize,
    _addresses: *mut *mut u8,
    _sizes: *mut usize,
    _kinds: *mut u8,
) {
}

macro_rules! data_motions {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            _device: i32,
            _count: usize,
            _addresses: *mut *mut u8,
            _sizes: *mut usize,
            _kinds: *mut u16,
            _flags: u32,
            depend: *const *mut u8,
        ) {
            wait(depend);
        }
    )*};
}

data_motions! { GOMP_target_update_ext GOMP_target_enter_exit_data }

/// `teams` inside `target`: the calling thread is each team's initial thread in turn.
#[unsafe(no_mangle)]
extern "C" fn GOMP_teams4(low: u32, _high: u32, thread_limit: u32, first: bool) -> bool {
    let thread = me();
    let team = thread.team();
    if first {
        limit(thread_limit);
        team.nesting.teams.set((low.max(1), 0));
        return true;
    }
    let (number, at) = team.nesting.teams.get();
    team.nesting.teams.set((number, at + 1));
    at + 1 < number
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_teams(_number: u32, thread_limit: u32) {
    limit(thread_limit);
    me().team().nesting.teams.set((1, 0));
}

pub(super) fn limit(threads: u32) {
    if threads > 0 {
        me().set_icv(|icv| icv.thread_limit = icv.thread_limit.min(threads));
    }
}

/// `teams` on the host: the calling thread is each team's initial thread in turn.
#[unsafe(no_mangle)]
extern "C" fn GOMP_teams_reg(function: Function, data: *mut u8, number: u32, thread_limit: u32, _flags: u32) {
    league(number, thread_limit, || function(data));
}

/// Calls `body` once for each of `number` teams; 0 for a number or a thread limit that is not given.
pub(super) fn league(number: u32, thread_limit: u32, body: impl Fn()) {
    let thread = me();
    let asked = if number == 0 { env::TEAMS.load(Ordering::Relaxed) as u32 } else { number };
    let number = asked.max(1);
    let standing = env::TEAMS_THREAD_LIMIT.load(Ordering::Relaxed) as u32;
    let threads = if thread_limit == 0 { standing } else { thread_limit };
    let before = (thread.team().nesting.teams.get(), thread.icv());
    for at in 0..number {
        limit(threads);
        thread.team().nesting.teams.set((number, at));
        body();
        thread.set_icv(|icv| *icv = before.1);
    }
    thread.team().nesting.teams.set(before.0);
}

macro_rules! nothing {
    ($($name:ident)*) => {$(
        /// Registers device code of the program; there is no device to load it to.
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    )*};
}

nothing! {
    GOMP_offload_register
    GOMP_offload_register_ver
    GOMP_offload_unregister
    GOMP_offload_unregister_ver
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_alloc(size: usize, device: i32) -> *mut u8 {
    // SAFETY: no preconditions.
    if device == 0 { unsafe { libc::malloc(size) }.cast() } else { ptr::null_mut() }
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_free(memory: *mut u8, device: i32) {
    if device == 0 {
        // SAFETY: the program gives memory from `omp_target_alloc`.
        unsafe { libc::free(memory.cast()) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_is_present(address: *const u8, device: i32) -> i32 {
    i32::from(address.is_null() || device == 0)
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_memcpy(
    to: *mut u8,
    from: *const u8,
    length: usize,
    to_offset: usize,
    from_offset: usize,
    to_device: i32,
    from_device: i32,
) -> i32 {
    if to_device != 0 || from_device != 0 {
        return libc::EINVAL;
    }
    // SAFETY: the program passes two places of that length, which may overlap.
    unsafe { to.add(to_offset).copy_from(from.add(from_offset), length) };
    0
}

/// Copies a box out of one array into another, dimension by dimension.
///
/// # Safety
/// Each array of sizes has `dimensions` elements, and both boxes lie in their arrays.
unsafe fn copy_box(
    to: *mut u8,
    from: *const u8,
    element: usize,
    dimensions: i32,
    [volume, to_offset, from_offset, to_size, from_size]: [*const usize; 5],
) {
    // SAFETY: the caller's promise, with one dimension less at each call.
    unsafe {
        if dimensions == 1 {
            let bytes = element * *volume;
            to.add(element * *to_offset).copy_from(from.add(element * *from_offset), bytes);
            return;
        }
        let inner =
            |size: *const usize| (1..dimensions as usize).map(|d| *size.add(d)).product::<usize>() * element;
        let (to_slice, from_slice) = (inner(to_size), inner(from_size));
        for index in 0..*volume {
            copy_box(
                to.add((*to_offset + index) * to_slice),
                from.add((*from_offset + index) * from_slice),
                element,
                dimensions - 1,
                [volume, to_offset, from_offset, to_size, from_size].map(|array| array.add(1)),
            );
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_memcpy_rect(
    to: *mut u8,
    from: *const u8,
    element: usize,
    dimensions: i32,
    volume: *const usize,
    to_offset: *const usize,
    from_offset: *const usize,
    to_size: *const usize,
    from_size: *const usize,
    to_device: i32,
    from_device: i32,
) -> i32 {
    if to.is_null() && from.is_null() {
        // The program asks how many dimensions there may be.
        return i32::MAX;
    }
    if to_device != 0 || from_device != 0 || dimensions < 1 {
        return libc::EINVAL;
    }
    // SAFETY: the program promises what `copy_box` demands.
    unsafe {
        copy_box(to, from, element, dimensions, [volume, to_offset, from_offset, to_size, from_size]);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_associate_ptr(
    _host: *const u8,
    _device_address: *const u8,
    _size: usize,
    _offset: usize,
    _device: i32,
) -> i32 {
    libc::EINVAL
}

#[unsafe(no_mangle)]
extern "C" fn omp_target_disassociate_ptr(_address: *const u8, _device: i32) -> i32 {
    libc::EINVAL
}
