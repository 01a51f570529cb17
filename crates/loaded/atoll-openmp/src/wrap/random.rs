//! rand, random and drand48: one stream of numbers for the whole team, as with threads.
//!
//! libc's own state is private to each worker. The state here lies in this library's data and is advanced by libc's reentrant
//! functions, which give the same sequences from the same seeds.

use std::ffi::{c_char, c_double, c_int, c_long, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::spin::{Held, Spin};

use crate::state;

/// glibc's `struct random_data`.
#[repr(C)]
struct RandomData {
    front: *mut i32,
    rear: *mut i32,
    state: *mut i32,
    kind: c_int,
    degree: c_int,
    separation: c_int,
    end: *mut i32,
}

struct Random {
    data: RandomData,
    /// The default state, as large as glibc's own.
    table: [i32; 32],
}

// SAFETY: the pointers lead into the same static or to memory of the program's.
unsafe impl Send for Random {}

const NULL: *mut i32 = std::ptr::null_mut();

static RANDOM: Spin<Random> = Spin::new(Random {
    data: RandomData { front: NULL, rear: NULL, state: NULL, kind: 0, degree: 0, separation: 0, end: NULL },
    table: [0; 32],
});

/// glibc's `struct drand48_data`; all zeros is its initial state.
#[repr(C)]
struct Drand48 {
    x: [u16; 3],
    old_x: [u16; 3],
    c: u16,
    init: u16,
    a: u64,
}

static DRAND48: Spin<Drand48> = Spin::new(Drand48 { x: [0; 3], old_x: [0; 3], c: 0, init: 0, a: 0 });

/// Whether this process was forked by the program, so that the state here goes on in it.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Notes that the program forked this process.
pub(super) fn in_forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether the state is the one here, not libc's.
#[inline]
fn is_ours() -> bool {
    state::pager().is_some() || FORKED.load(Ordering::Relaxed)
}

/// A guard that keeps these states unchanged while it lives.
pub(crate) struct Kept {
    _random: Held<'static, Random>,
    _drand48: Held<'static, Drand48>,
}

/// Locks the states for a fork. The caller blocks signals.
pub(crate) fn keep() -> Kept {
    Kept { _random: RANDOM.lock(), _drand48: DRAND48.lock() }
}

unsafe extern "C" {
    fn random_r(data: *mut RandomData, result: *mut i32) -> c_int;
    fn srandom_r(seed: c_uint, data: *mut RandomData) -> c_int;
    fn initstate_r(seed: c_uint, table: *mut c_char, len: usize, data: *mut RandomData) -> c_int;
    fn setstate_r(table: *mut c_char, data: *mut RandomData) -> c_int;
    fn erand48_r(x: *mut u16, data: *mut Drand48, result: *mut c_double) -> c_int;
    fn nrand48_r(x: *mut u16, data: *mut Drand48, result: *mut c_long) -> c_int;
    fn jrand48_r(x: *mut u16, data: *mut Drand48, result: *mut c_long) -> c_int;
    fn srand48_r(seed: c_long, data: *mut Drand48) -> c_int;
    fn seed48_r(x: *mut u16, data: *mut Drand48) -> c_int;
    fn lcong48_r(x: *mut u16, data: *mut Drand48) -> c_int;
}

/// Runs `f` with the state of `random`, which is initialised as glibc's is at start.
fn with_random<R>(f: impl FnOnce(*mut RandomData) -> R) -> R {
    let mut random = RANDOM.lock();
    if random.data.state.is_null() {
        let table: *mut i32 = random.table.as_mut_ptr();
        // SAFETY: the table is 128 bytes and stays where it is.
        unsafe { initstate_r(1, table.cast(), 128, &raw mut random.data) };
    }
    f(&raw mut random.data)
}

fn next() -> i32 {
    let mut result = 0;
    // SAFETY: a state that was set up.
    with_random(|data| unsafe { random_r(data, &raw mut result) });
    result
}

/// `random`.
#[unsafe(no_mangle)]
pub(super) extern "C" fn random() -> c_long {
    if is_ours() {
        return c_long::from(next());
    }
    let call = real!("random", unsafe extern "C" fn() -> c_long);
    // SAFETY: no arguments.
    unsafe { call() }
}

/// `rand`.
#[unsafe(no_mangle)]
pub(super) extern "C" fn rand() -> c_int {
    if is_ours() {
        return next();
    }
    let call = real!("rand", unsafe extern "C" fn() -> c_int);
    // SAFETY: no arguments.
    unsafe { call() }
}

macro_rules! seeds {
    ($($name:ident)*) => {$(
        /// The function of this name in libc.
        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $name(seed: c_uint) {
            if is_ours() {
                // SAFETY: a state that was set up.
                with_random(|data| unsafe { srandom_r(seed, data) });
                return;
            }
            let call = real!(stringify!($name), unsafe extern "C" fn(c_uint));
            // SAFETY: a value.
            unsafe { call(seed) }
        }
    )*};
}

seeds! { srand srandom }

/// The start of the state's memory, as `initstate` and `setstate` return it.
///
/// # Safety
/// `data` is initialised.
unsafe fn beginning(data: *mut RandomData) -> *mut c_char {
    // SAFETY: glibc keeps the kind of state in the word before it.
    unsafe { (*data).state.sub(1).cast() }
}

/// `initstate`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn initstate(seed: c_uint, table: *mut c_char, len: usize) -> *mut c_char {
    if !is_ours() {
        let call = real!("initstate", unsafe extern "C" fn(c_uint, *mut c_char, usize) -> *mut c_char);
        // SAFETY: the caller's memory.
        return unsafe { call(seed, table, len) };
    }
    // SAFETY: the caller's memory.
    with_random(|data| unsafe {
        let before = beginning(data);
        if initstate_r(seed, table, len, data) == 0 { before } else { std::ptr::null_mut() }
    })
}

/// `setstate`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setstate(table: *mut c_char) -> *mut c_char {
    if !is_ours() {
        let call = real!("setstate", unsafe extern "C" fn(*mut c_char) -> *mut c_char);
        // SAFETY: the caller's memory.
        return unsafe { call(table) };
    }
    // SAFETY: the caller's memory.
    with_random(|data| unsafe {
        let before = beginning(data);
        if setstate_r(table, data) == 0 { before } else { std::ptr::null_mut() }
    })
}

/// Defines the functions of drand48's family: with the common state, and with a state of the caller's.
macro_rules! draws {
    ($($common:ident $own:ident by $reentrant:ident -> $type:ty;)*) => {$(
        /// The function of this name in libc.
        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $common() -> $type {
            if !is_ours() {
                let call = real!(stringify!($common), unsafe extern "C" fn() -> $type);
                // SAFETY: no arguments.
                return unsafe { call() };
            }
            let mut data = DRAND48.lock();
            let mut result = <$type>::default();
            let data: *mut Drand48 = &raw mut *data;
            // SAFETY: the state, which holds the numbers to be advanced.
            unsafe { $reentrant((&raw mut (*data).x).cast(), data, &raw mut result) };
            result
        }

        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $own(x: *mut u16) -> $type {
            if !is_ours() {
                let call = real!(stringify!($own), unsafe extern "C" fn(*mut u16) -> $type);
                // SAFETY: the caller's numbers.
                return unsafe { call(x) };
            }
            let mut data = DRAND48.lock();
            let mut result = <$type>::default();
            // SAFETY: the caller's numbers, the common factors.
            unsafe { $reentrant(x, &raw mut *data, &raw mut result) };
            result
        }
    )*};
}

draws! {
    drand48 erand48 by erand48_r -> c_double;
    lrand48 nrand48 by nrand48_r -> c_long;
    mrand48 jrand48 by jrand48_r -> c_long;
}

/// `srand48`.
#[unsafe(no_mangle)]
pub(super) extern "C" fn srand48(seed: c_long) {
    if !is_ours() {
        let call = real!("srand48", unsafe extern "C" fn(c_long));
        // SAFETY: a value.
        return unsafe { call(seed) };
    }
    // SAFETY: the state.
    unsafe { srand48_r(seed, &raw mut *DRAND48.lock()) };
}

/// `seed48`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn seed48(x: *mut u16) -> *mut u16 {
    if !is_ours() {
        let call = real!("seed48", unsafe extern "C" fn(*mut u16) -> *mut u16);
        // SAFETY: the caller's numbers.
        return unsafe { call(x) };
    }
    let mut data = DRAND48.lock();
    // SAFETY: the caller's numbers and the state; the result lies in the state, as libc's does.
    unsafe {
        seed48_r(x, &raw mut *data);
        (&raw mut data.old_x).cast()
    }
}

/// `lcong48`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn lcong48(x: *mut u16) {
    if !is_ours() {
        let call = real!("lcong48", unsafe extern "C" fn(*mut u16));
        // SAFETY: the caller's numbers.
        return unsafe { call(x) };
    }
    // SAFETY: the caller's numbers and the state.
    unsafe { lcong48_r(x, &raw mut *DRAND48.lock()) };
}
