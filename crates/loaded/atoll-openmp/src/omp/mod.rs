//! libgomp's ABI, which `gcc -fopenmp` programs call instead of libgomp once this library is preloaded; in `kmp`, LLVM's.
//!
//! `team` holds the structures, `parallel` and `barrier` the regions; each family of entry points has a file.
//! Workers may be processes: everything here lives in runtime memory and sleeps through `atoll_memory::futex`.

// The ABI's names are libgomp's.
#![allow(non_snake_case)]

mod affinity;
mod alloc;
mod allocator_variable;
mod barrier;
mod cancel;
pub(crate) mod contention;
mod crew;
mod critical;
mod depend;
mod display;
mod doacross;
mod env;
mod fortran;
mod hooks;
pub(crate) mod icv;
mod kmp;
mod locks;
mod loop_calls;
mod loops;
mod loops_ull;
mod ordered;
mod parallel;
mod parallel_loops;
mod places;
pub(crate) mod pools;
mod routines;
mod sections;
mod single;
pub(crate) mod spread;
mod stealing;
mod target;
mod task;
mod taskgroup;
mod taskloop;
mod tasks;
mod team;
mod word_lock;
mod workshare;

pub(crate) use crew::forget as forget_workers;
pub(crate) use team::{in_region, retire};

/// Writes a line to standard error, in libgomp's words with our name, without any buffer or lock of std.
pub(crate) fn say(message: &str) {
    let line = format!("\natoll: {message}\n");
    // SAFETY: the pointer and length are of one live string.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// Prints why and ends the program.
pub(crate) fn fatal(message: &str) -> ! {
    say(message);
    // SAFETY: ends the process without running anything of ours.
    unsafe { libc::exit(libc::EXIT_FAILURE) }
}
