//! Intel's and LLVM's own functions beside OpenMP's: `kmp_*`, and `ompc_*` and `kmpc_*`, which are other names for OpenMP's.
//!
//! Settings of how threads wait have no effect, as `docs/compatibility.md` says. `memory` has the functions that allocate.

use super::super::affinity::{
    omp_capture_affinity, omp_display_affinity, omp_get_affinity_format, omp_set_affinity_format,
};
use super::super::env;
use super::super::routines::*;
use super::super::team::me;
use super::kinds::Location;
use std::ffi::c_char;
use std::sync::atomic::{AtomicI32, Ordering};

/// The milliseconds that a thread of LLVM's runtime would wait before it sleeps, where the program has set them.
static BLOCKTIME: AtomicI32 = AtomicI32::new(-1);

fn blocktime() -> i32 {
    me();
    match (BLOCKTIME.load(Ordering::Relaxed), env::wait_policy()) {
        (set @ 0.., _) => set,
        (_, 0) => 0,
        (_, 1) => i32::MAX,
        _ => 200,
    }
}

/// How threads of LLVM's runtime would wait: 1 not at all, 2 as if alone on the machine, 3 as if among others.
static LIBRARY: AtomicI32 = AtomicI32::new(3);

fn set_stack(bytes: usize) {
    me();
    env::set_stack_bytes(bytes);
}

fn stack() -> usize {
    me();
    match env::stack_bytes() {
        0 => 8 << 20,
        bytes => bytes,
    }
}

macro_rules! setters {
    ($($plain:ident $fortran:ident $other:ident $type:ty, $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $plain(value: $type) {
            let set: fn($type) = $body;
            set(value);
        }
        #[unsafe(no_mangle)]
        extern "C" fn $fortran(value: *const $type) {
            // SAFETY: Fortran passes the address of its argument.
            $plain(unsafe { *value });
        }
        #[unsafe(no_mangle)]
        extern "C" fn $other(value: $type) {
            $plain(value);
        }
    )*};
}

setters! {
    kmp_set_stacksize kmp_set_stacksize_ kmpc_set_stacksize i32, |bytes| set_stack(bytes.max(0) as usize);
    kmp_set_stacksize_s kmp_set_stacksize_s_ kmpc_set_stacksize_s usize, set_stack;
    kmp_set_blocktime kmp_set_blocktime_ kmpc_set_blocktime i32, |ms| BLOCKTIME.store(ms.max(0), Ordering::Relaxed);
    kmp_set_library kmp_set_library_ kmpc_set_library i32, |kind| LIBRARY.store(kind, Ordering::Relaxed);
    kmp_set_disp_num_buffers kmp_set_disp_num_buffers_ kmpc_set_disp_num_buffers i32, |_| ();
}

macro_rules! both {
    ($($plain:ident $fortran:ident $(-> $result:ty)?, $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $plain() $(-> $result)? {
            $body
        }
        #[unsafe(no_mangle)]
        extern "C" fn $fortran() $(-> $result)? {
            $body
        }
    )*};
}

both! {
    kmp_get_stacksize kmp_get_stacksize_ -> i32, i32::try_from(stack()).unwrap_or(i32::MAX);
    kmp_get_stacksize_s kmp_get_stacksize_s_ -> usize, stack();
    kmp_get_blocktime kmp_get_blocktime_ -> i32, blocktime();
    kmp_get_library kmp_get_library_ -> i32, LIBRARY.load(Ordering::Relaxed);
    kmp_set_library_serial kmp_set_library_serial_, kmp_set_library(1);
    kmp_set_library_turnaround kmp_set_library_turnaround_, kmp_set_library(2);
    kmp_set_library_throughput kmp_set_library_throughput_, kmp_set_library(3);
    kmp_set_warnings_on kmp_set_warnings_on_, ();
    kmp_set_warnings_off kmp_set_warnings_off_, ();
    kmp_get_num_known_threads kmp_get_num_known_threads_ -> i32, super::kept::threads();
    omp_in_explicit_task omp_in_explicit_task_ -> i32, i32::from(!me().task().parent.get().is_null());
}

#[unsafe(no_mangle)]
extern "C" fn kmp_set_defaults(_: *const u8) {}

#[unsafe(no_mangle)]
extern "C" fn kmpc_set_defaults(_: *const u8) {}

#[unsafe(no_mangle)]
extern "C" fn kmp_set_defaults_(_: *const u8, _length: i32) {}

/// Returns the answer for "no tool".
#[unsafe(no_mangle)]
extern "C" fn omp_control_tool(_command: i32, _modifier: i32, _argument: *mut u8) -> i32 {
    -2
}

#[unsafe(no_mangle)]
extern "C" fn omp_control_tool_(_command: *const i32, _modifier: *const i32, _argument: *mut u8) -> i32 {
    -2
}

macro_rules! other_names {
    ($($name:ident $to:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            $to($($argument),*)
        }
    )*};
}

other_names! {
    ompc_set_num_threads omp_set_num_threads(threads: i32);
    ompc_set_dynamic omp_set_dynamic(on: i32);
    ompc_set_nested omp_set_nested(on: i32);
    ompc_set_max_active_levels omp_set_max_active_levels(levels: i32);
    ompc_set_schedule omp_set_schedule(kind: u32, chunk: i32);
    ompc_get_ancestor_thread_num omp_get_ancestor_thread_num(level: i32) -> i32;
    ompc_get_team_size omp_get_team_size(level: i32) -> i32;
    ompc_set_affinity_format omp_set_affinity_format(format: *const c_char);
    ompc_get_affinity_format omp_get_affinity_format(buffer: *mut u8, size: usize) -> usize;
    ompc_display_affinity omp_display_affinity(format: *const c_char);
    ompc_capture_affinity omp_capture_affinity(buffer: *mut u8, size: usize, format: *const c_char) -> usize;
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_pause_resource(kind: i32) -> i32 {
    omp_pause_resource(kind, 0)
}

/// `#pragma omp error`: severity 1 warns, 2 ends the program.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_error(_: *const Location, severity: i32, text: *const u8) {
    if severity == 2 {
        super::super::fatal(&message("error", text, usize::MAX));
    }
    super::super::say(&message("warning", text, usize::MAX));
}

/// The user's setting for offloading: 0 never, 1 where possible, 2 always.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_get_target_offload() -> i32 {
    me();
    match env::variable("OMP_TARGET_OFFLOAD").map(|value| value.to_ascii_lowercase()).as_deref() {
        Some("disabled") => 0,
        Some("mandatory") => 2,
        _ => 1,
    }
}
