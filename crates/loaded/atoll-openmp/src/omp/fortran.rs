//! `omp_*` under Fortran's names: a trailing underscore, arguments by address, `_8_` for 8-byte ones.
//!
//! Each function passes on to the C function of `routines`, `affinity` or `alloc`; `locks` has Fortran names of its own.

use super::affinity::place_numbers;
use super::affinity::{
    omp_capture_affinity_text, omp_display_affinity_text, omp_get_affinity_format_text, omp_get_num_places,
    omp_get_partition_num_places, omp_get_partition_place_nums, omp_get_place_num, omp_get_place_num_procs,
    omp_get_place_proc_ids, omp_get_proc_bind, omp_set_affinity_format_text,
};
use super::alloc::{
    Trait, omp_destroy_allocator, omp_get_default_allocator, omp_init_allocator, omp_set_default_allocator,
};
use super::places;
use super::routines::*;
use super::task::Task;
use super::tasks::omp_fulfill_event;

macro_rules! queries {
    ($($name:ident $c:ident -> $result:ty;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> $result {
            $c()
        }
    )*};
}

queries! {
    omp_get_thread_num_ omp_get_thread_num -> i32;
    omp_get_num_threads_ omp_get_num_threads -> i32;
    omp_get_max_threads_ omp_get_max_threads -> i32;
    omp_get_num_procs_ omp_get_num_procs -> i32;
    omp_in_parallel_ omp_in_parallel -> i32;
    omp_get_dynamic_ omp_get_dynamic -> i32;
    omp_get_nested_ omp_get_nested -> i32;
    omp_get_thread_limit_ omp_get_thread_limit -> i32;
    omp_get_max_active_levels_ omp_get_max_active_levels -> i32;
    omp_get_supported_active_levels_ omp_get_supported_active_levels -> i32;
    omp_get_level_ omp_get_level -> i32;
    omp_get_active_level_ omp_get_active_level -> i32;
    omp_in_final_ omp_in_final -> i32;
    omp_get_cancellation_ omp_get_cancellation -> i32;
    omp_get_max_task_priority_ omp_get_max_task_priority -> i32;
    omp_get_default_device_ omp_get_default_device -> i32;
    omp_get_num_devices_ omp_get_num_devices -> i32;
    omp_get_device_num_ omp_get_device_num -> i32;
    omp_get_initial_device_ omp_get_initial_device -> i32;
    omp_is_initial_device_ omp_is_initial_device -> i32;
    omp_get_num_teams_ omp_get_num_teams -> i32;
    omp_get_team_num_ omp_get_team_num -> i32;
    omp_get_max_teams_ omp_get_max_teams -> i32;
    omp_get_teams_thread_limit_ omp_get_teams_thread_limit -> i32;
    omp_get_wtime_ omp_get_wtime -> f64;
    omp_get_wtick_ omp_get_wtick -> f64;
    omp_get_proc_bind_ omp_get_proc_bind -> i32;
    omp_get_num_places_ omp_get_num_places -> i32;
    omp_get_place_num_ omp_get_place_num -> i32;
    omp_get_partition_num_places_ omp_get_partition_num_places -> i32;
    omp_get_default_allocator_ omp_get_default_allocator -> usize;
}

/// Converts an 8-byte Fortran integer to the 4-byte one that C takes.
fn narrow(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX })
}

macro_rules! with_number {
    ($($name:ident $name_8:ident $c:ident $(-> $result:ty)?;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(value: *const i32) $(-> $result)? {
            // SAFETY: Fortran passes the address of its argument.
            $c(unsafe { *value })
        }
        #[unsafe(no_mangle)]
        extern "C" fn $name_8(value: *const i64) $(-> $result)? {
            // SAFETY: as above.
            $c(narrow(unsafe { *value }))
        }
    )*};
}

with_number! {
    omp_set_num_threads_ omp_set_num_threads_8_ omp_set_num_threads;
    omp_set_dynamic_ omp_set_dynamic_8_ omp_set_dynamic;
    omp_set_nested_ omp_set_nested_8_ omp_set_nested;
    omp_set_max_active_levels_ omp_set_max_active_levels_8_ omp_set_max_active_levels;
    omp_set_default_device_ omp_set_default_device_8_ omp_set_default_device;
    omp_set_num_teams_ omp_set_num_teams_8_ omp_set_num_teams;
    omp_set_teams_thread_limit_ omp_set_teams_thread_limit_8_ omp_set_teams_thread_limit;
    omp_display_env_ omp_display_env_8_ omp_display_env;
    omp_get_ancestor_thread_num_ omp_get_ancestor_thread_num_8_ omp_get_ancestor_thread_num -> i32;
    omp_get_team_size_ omp_get_team_size_8_ omp_get_team_size -> i32;
    omp_get_place_num_procs_ omp_get_place_num_procs_8_ omp_get_place_num_procs -> i32;
}

#[unsafe(no_mangle)]
extern "C" fn omp_set_schedule_(kind: *const u32, chunk: *const i32) {
    // SAFETY: Fortran passes the addresses of its arguments.
    unsafe { omp_set_schedule(*kind, *chunk) };
}

#[unsafe(no_mangle)]
extern "C" fn omp_set_schedule_8_(kind: *const u32, chunk: *const i64) {
    // SAFETY: as above.
    unsafe { omp_set_schedule(*kind, narrow(*chunk)) };
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_schedule_(kind: *mut u32, chunk: *mut i32) {
    omp_get_schedule(kind, chunk);
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_schedule_8_(kind: *mut u32, chunk: *mut i64) {
    let mut small = 0;
    omp_get_schedule(kind, &raw mut small);
    // SAFETY: as above.
    unsafe { *chunk = i64::from(small) };
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_place_proc_ids_(place: *const i32, ids: *mut i32) {
    // SAFETY: Fortran passes the addresses of its arguments.
    omp_get_place_proc_ids(unsafe { *place }, ids);
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_place_proc_ids_8_(place: *const i64, ids: *mut i64) {
    // SAFETY: as above; the program's array has room for the place's CPUs.
    unsafe {
        for (index, cpu) in places::cpus_of(narrow(*place)).into_iter().enumerate() {
            *ids.add(index) = cpu as i64;
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_partition_place_nums_(numbers: *mut i32) {
    omp_get_partition_place_nums(numbers);
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_partition_place_nums_8_(numbers: *mut i64) {
    for (index, place) in place_numbers().enumerate() {
        // SAFETY: the program's array has room for all places.
        unsafe { *numbers.add(index) = i64::from(place) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn omp_pause_resource_(kind: *const i32, device: *const i32) -> i32 {
    // SAFETY: Fortran passes the addresses of its arguments.
    unsafe { omp_pause_resource(*kind, *device) }
}

#[unsafe(no_mangle)]
extern "C" fn omp_pause_resource_all_(kind: *const i32) -> i32 {
    // SAFETY: as above.
    omp_pause_resource_all(unsafe { *kind })
}

#[unsafe(no_mangle)]
extern "C" fn omp_fulfill_event_(event: *const Task) {
    // The event is passed by value, unlike other arguments.
    omp_fulfill_event(event);
}

#[unsafe(no_mangle)]
extern "C" fn omp_init_allocator_(space: *const usize, count: *const i32, traits: *const Trait) -> usize {
    // SAFETY: as above.
    unsafe { omp_init_allocator(*space, *count, traits) }
}

#[unsafe(no_mangle)]
extern "C" fn omp_init_allocator_8_(space: *const usize, count: *const i64, traits: *const Trait) -> usize {
    // SAFETY: as above.
    unsafe { omp_init_allocator(*space, narrow(*count), traits) }
}

#[unsafe(no_mangle)]
extern "C" fn omp_destroy_allocator_(allocator: *const usize) {
    // SAFETY: as above.
    omp_destroy_allocator(unsafe { *allocator });
}

#[unsafe(no_mangle)]
extern "C" fn omp_set_default_allocator_(allocator: *const usize) {
    // SAFETY: as above.
    omp_set_default_allocator(unsafe { *allocator });
}

/// The bytes of a Fortran string, without the blanks at its end.
fn text<'a>(start: *const u8, length: usize) -> &'a [u8] {
    // SAFETY: Fortran passes a string's address and length.
    let text = unsafe { std::slice::from_raw_parts(start, length) };
    &text[..text.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1)]
}

/// Copies `text` into a Fortran string and pads it with blanks; returns the length of the whole text.
fn fill(buffer: *mut u8, length: usize, text: &[u8]) -> i32 {
    // SAFETY: Fortran passes a string's address and length.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    let fits = text.len().min(length);
    buffer[..fits].copy_from_slice(&text[..fits]);
    buffer[fits..].fill(b' ');
    text.len() as i32
}

#[unsafe(no_mangle)]
extern "C" fn omp_set_affinity_format_(format: *const u8, length: usize) {
    omp_set_affinity_format_text(text(format, length));
}

#[unsafe(no_mangle)]
extern "C" fn omp_get_affinity_format_(buffer: *mut u8, length: usize) -> i32 {
    fill(buffer, length, &omp_get_affinity_format_text())
}

#[unsafe(no_mangle)]
extern "C" fn omp_display_affinity_(format: *const u8, length: usize) {
    omp_display_affinity_text(text(format, length));
}

#[unsafe(no_mangle)]
extern "C" fn omp_capture_affinity_(
    buffer: *mut u8,
    format: *const u8,
    buffer_length: usize,
    format_length: usize,
) -> i32 {
    fill(buffer, buffer_length, &omp_capture_affinity_text(text(format, format_length)))
}
