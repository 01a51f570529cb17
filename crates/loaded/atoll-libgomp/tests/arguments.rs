//! Calls the entry points that this crate makes as programs would, with few and many arguments.

use std::cell::RefCell;
use std::ffi::c_void;

use atoll_libgomp::{framed, frames, with_caller};

thread_local! {
    /// What the program's function was called with.
    static SEEN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

type Outlined =
    extern "C" fn(*const i32, *const i32, usize, usize, usize, usize, usize, usize, usize, usize, usize);

/// A program's function of up to nine arguments. Those that it was not called with are anything.
#[allow(clippy::too_many_arguments, reason = "the case is a function of many arguments")]
extern "C" fn outlined(
    global: *const i32,
    bound: *const i32,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    g: usize,
    h: usize,
    i: usize,
) {
    // SAFETY: the numbers of `fork`.
    let numbers = unsafe { [*global, *bound] };
    assert_eq!(numbers, [70, 7]);
    SEEN.set(vec![a, b, c, d, e, f, g, h, i]);
}

extern "C" fn fork(location: *const c_void, frame: *mut u8, site: usize) {
    assert_eq!(location as usize, 0x10c);
    // SAFETY: `framed` made the frame.
    assert_eq!(unsafe { frames::outlined(frame) }, outlined as *const () as usize);
    assert!(site > 0x1000);
    let (global, bound) = (70, 7);
    // SAFETY: the same.
    unsafe { frames::call(frame.cast(), &raw const global, &raw const bound) };
}

framed! {
    atoll_test_fork fork;
}

/// Has `outlined` called with these arguments by the entry point.
macro_rules! pass {
    ($count:literal, $($argument:expr),*) => {{
        // SAFETY: the entry point has any number of arguments.
        let entry = unsafe {
            std::mem::transmute::<extern "C" fn(), unsafe extern "C" fn(usize, i32, Outlined, ...)>(atoll_test_fork)
        };
        // SAFETY: `$count` arguments follow.
        unsafe { entry(0x10c, $count, outlined, $($argument),*) };
        assert_eq!(SEEN.take()[..$count], [$($argument as usize),*]);
    }};
}

#[test]
fn a_frame_passes_on_arguments_in_registers_and_on_the_stack() {
    pass!(1, 11_usize);
    pass!(3, 11_usize, 12_usize, 13_usize);
    pass!(4, 11_usize, 12_usize, 13_usize, 14_usize);
    pass!(5, 11_usize, 12_usize, 13_usize, 14_usize, 15_usize);
    pass!(6, 11_usize, 12_usize, 13_usize, 14_usize, 15_usize, 16_usize);
    pass!(7, 11_usize, 12_usize, 13_usize, 14_usize, 15_usize, 16_usize, 17_usize);
    pass!(8, 11_usize, 12_usize, 13_usize, 14_usize, 15_usize, 16_usize, 17_usize, 18_usize);
    pass!(9, 11_usize, 12_usize, 13_usize, 14_usize, 15_usize, 16_usize, 17_usize, 18_usize, 19_usize);
}

extern "C" fn first(site: usize) -> usize {
    site
}

extern "C" fn sixth(a: usize, b: usize, c: usize, d: usize, e: usize, site: usize) -> usize {
    assert_eq!([a, b, c, d, e], [1, 2, 3, 4, 5]);
    site
}

with_caller! {
    atoll_test_first to first as argument 0;
    atoll_test_sixth to sixth as argument 5;
}

#[test]
fn an_entry_point_passes_its_return_address_behind_its_arguments() {
    let here = an_entry_point_passes_its_return_address_behind_its_arguments as *const () as usize;
    // SAFETY: the arguments of the bodies but the last.
    let sites = unsafe {
        let first = std::mem::transmute::<unsafe extern "C" fn(), extern "C" fn() -> usize>(atoll_test_first);
        let sixth = std::mem::transmute::<
            unsafe extern "C" fn(),
            extern "C" fn(usize, usize, usize, usize, usize) -> usize,
        >(atoll_test_sixth);
        [first(), sixth(1, 2, 3, 4, 5)]
    };
    // The test is a small function, so that the places of its calls are close behind its begin.
    assert!(sites.iter().all(|site| site.wrapping_sub(here) < 4096), "{sites:x?} {here:x}");
    assert_ne!(sites[0], sites[1]);
}
