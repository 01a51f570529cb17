//! Variables that each thread has a copy of, where the compiler does not make them thread-local.
//!
//! The first thread has the original. A thread's copy begins with the value that the original had when any thread first asked
//! for its copy. The caches that the program keeps are not used: each thread's descriptor (`kept`) knows its copies.

use super::super::alloc;
use super::super::team::me;
use super::kinds::Location;
use atoll_memory::futex::Lock;
use std::collections::BTreeMap;

type Construct = extern "C" fn(usize) -> usize;
type Copy = extern "C" fn(usize, usize) -> usize;
type Destroy = extern "C" fn(usize);
type ConstructAll = extern "C" fn(usize, usize) -> usize;

/// The initialisation of one variable's copies.
#[derive(Default)]
struct Variable {
    construct: Option<Construct>,
    /// The constructor of an array, and the number of the array's elements.
    construct_all: Option<(ConstructAll, usize)>,
    copy: Option<Copy>,
    /// The bytes of the original when a thread first asked for a copy.
    image: Vec<u8>,
}

static VARIABLES: Lock<BTreeMap<usize, Variable>> = Lock::new(BTreeMap::new());

/// Notes the original's value, when a thread asks for a copy for the first time.
fn note(original: usize, size: usize) {
    let mut variables = VARIABLES.lock();
    let variable = variables.entry(original).or_default();
    if variable.image.is_empty() {
        // SAFETY: the program's variable has `size` bytes.
        variable.image = unsafe { std::slice::from_raw_parts(original as *const u8, size) }.to_vec();
    }
}

/// Makes the calling thread's copy.
#[cold]
fn make(original: usize, size: usize) -> usize {
    if me().team().spans() {
        atoll_nodes::unsupported("a threadprivate variable of LLVM's Fortran");
    }
    note(original, size);
    let place = alloc::plain(64, size.max(1), true);
    if place.is_null() {
        super::super::fatal("there is no memory for a thread's copy of a variable");
    }
    let (construct, construct_all, copy) = {
        let variables = VARIABLES.lock();
        let Some(variable) = variables.get(&original) else { return place as usize };
        // SAFETY: fresh memory of that size.
        unsafe { place.copy_from_nonoverlapping(variable.image.as_ptr(), size.min(variable.image.len())) };
        (variable.construct, variable.construct_all, variable.copy)
    };
    if let Some((construct, count)) = construct_all {
        construct(place as usize, count);
    } else if let Some(construct) = construct {
        construct(place as usize);
    } else if let Some(copy) = copy {
        copy(place as usize, original);
    }
    place as usize
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_threadprivate(_: *const Location, _: i32, original: usize, size: usize) -> usize {
    let thread = me();
    // SAFETY: only its own thread uses a descriptor's copies, and no code of the program runs meanwhile.
    let known = unsafe { &*thread.kmp.copies.get() }.get(&original).copied();
    if let Some(copy) = known {
        return copy;
    }
    let copy = if thread.first {
        note(original, size);
        original
    } else {
        make(original, size)
    };
    // SAFETY: as above.
    unsafe { &mut *thread.kmp.copies.get() }.insert(original, copy);
    copy
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_threadprivate_cached(
    location: *const Location,
    thread: i32,
    original: usize,
    size: usize,
    _cache: *mut *mut *mut u8,
) -> usize {
    __kmpc_threadprivate(location, thread, original, size)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_threadprivate_register(
    _: *const Location,
    original: usize,
    construct: Option<Construct>,
    copy: Option<Copy>,
    _destroy: Option<Destroy>,
) {
    let mut variables = VARIABLES.lock();
    let variable = variables.entry(original).or_default();
    (variable.construct, variable.copy) = (construct, copy);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_threadprivate_register_vec(
    _: *const Location,
    original: usize,
    construct: Option<ConstructAll>,
    _copy: Option<extern "C" fn(usize, usize, usize) -> usize>,
    _destroy: Option<extern "C" fn(usize, usize)>,
    count: usize,
) {
    VARIABLES.lock().entry(original).or_default().construct_all =
        construct.map(|construct| (construct, count));
}
