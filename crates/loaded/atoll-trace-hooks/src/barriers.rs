//! Barriers: makes a mark once a barrier is passed, named by the address that the call returns to.
//!
//! The functions have libgomp's names and types. `mark` makes the marks.

use atoll_libgomp::{real, with_caller};

use crate::mark;

/// Functions of barriers that return nothing, or whether the region was cancelled.
macro_rules! barriers {
    ($($name:ident $body:ident $(-> $result:ty)?;)*) => {$(
        extern "C" fn $body(site: usize) $(-> $result)? {
            let result = real!($name, fn() $(-> $result)?)();
            mark::barrier(site);
            result
        }

        with_caller! { $name to $body as argument 0; }
    )*};
}

barriers! {
    GOMP_barrier barrier;
    GOMP_barrier_cancel barrier_cancel -> bool;
    GOMP_loop_end loop_end;
    GOMP_loop_end_cancel loop_end_cancel -> bool;
    GOMP_sections_end sections_end;
    GOMP_sections_end_cancel sections_end_cancel -> bool;
}

extern "C" fn single_copy_start(site: usize) -> *mut u8 {
    let data = real!(GOMP_single_copy_start, fn() -> *mut u8)();
    // The thread that gets a null pointer executes the block and passes the barrier behind it.
    if !data.is_null() {
        mark::barrier(site);
    }
    data
}

extern "C" fn single_copy_end(data: *mut u8, site: usize) {
    real!(GOMP_single_copy_end, fn(*mut u8))(data);
    mark::barrier(site);
}

with_caller! {
    GOMP_single_copy_start to single_copy_start as argument 0;
    GOMP_single_copy_end to single_copy_end as argument 1;
}
