//! Intel's affinity masks: sets of CPUs on which a thread may run.
//!
//! The program holds a mask's address. The runtime's own binding to places is separate, in `places`.

use std::mem::size_of;

/// A set of CPUs.
type Mask = libc::cpu_set_t;

const MOST: i32 = 8 * size_of::<Mask>() as i32;

#[unsafe(no_mangle)]
extern "C" fn kmp_get_affinity_max_proc() -> i32 {
    // SAFETY: the call has no preconditions.
    let there = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    i32::try_from(there).unwrap_or(1).clamp(1, MOST)
}

#[unsafe(no_mangle)]
extern "C" fn kmp_create_affinity_mask(place: *mut *mut Mask) {
    // SAFETY: the program gives its variable.
    unsafe { *place = libc::calloc(1, size_of::<Mask>()).cast() };
}

#[unsafe(no_mangle)]
extern "C" fn kmp_destroy_affinity_mask(place: *mut *mut Mask) {
    // SAFETY: the variable holds a mask from the function above.
    unsafe {
        libc::free((*place).cast());
        *place = std::ptr::null_mut();
    }
}

/// Calls `change` with a CPU of a mask; returns -1 if there is no such CPU, or no mask.
fn with(cpu: i32, place: *const *mut Mask, change: impl FnOnce(usize, &mut Mask) -> i32) -> i32 {
    // SAFETY: the program's variable, null or a mask from the function above.
    let Some(mask) = (unsafe { (*place).as_mut() }) else { return -1 };
    if (0..kmp_get_affinity_max_proc()).contains(&cpu) { change(cpu as usize, mask) } else { -1 }
}

#[unsafe(no_mangle)]
extern "C" fn kmp_set_affinity_mask_proc(cpu: i32, place: *const *mut Mask) -> i32 {
    with(cpu, place, |cpu, mask| {
        // SAFETY: the CPU's number is within the set.
        unsafe { libc::CPU_SET(cpu, mask) };
        0
    })
}

#[unsafe(no_mangle)]
extern "C" fn kmp_unset_affinity_mask_proc(cpu: i32, place: *const *mut Mask) -> i32 {
    with(cpu, place, |cpu, mask| {
        // SAFETY: the CPU's number is within the set.
        unsafe { libc::CPU_CLR(cpu, mask) };
        0
    })
}

#[unsafe(no_mangle)]
extern "C" fn kmp_get_affinity_mask_proc(cpu: i32, place: *const *mut Mask) -> i32 {
    // SAFETY: the CPU's number is within the set.
    with(cpu, place, |cpu, mask| i32::from(unsafe { libc::CPU_ISSET(cpu, mask) }))
}

#[unsafe(no_mangle)]
extern "C" fn kmp_set_affinity(place: *const *mut Mask) -> i32 {
    // SAFETY: the program's variable, with a mask from the function above.
    unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), *place) }
}

#[unsafe(no_mangle)]
extern "C" fn kmp_get_affinity(place: *const *mut Mask) -> i32 {
    // SAFETY: as above.
    unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), *place) }
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
    kmp_get_affinity_max_proc_ kmp_get_affinity_max_proc() -> i32;
    kmp_create_affinity_mask_ kmp_create_affinity_mask(place: *mut *mut Mask);
    kmp_destroy_affinity_mask_ kmp_destroy_affinity_mask(place: *mut *mut Mask);
    kmp_set_affinity_ kmp_set_affinity(place: *const *mut Mask) -> i32;
    kmp_get_affinity_ kmp_get_affinity(place: *const *mut Mask) -> i32;
    kmpc_set_affinity_mask_proc kmp_set_affinity_mask_proc(cpu: i32, place: *const *mut Mask) -> i32;
    kmpc_unset_affinity_mask_proc kmp_unset_affinity_mask_proc(cpu: i32, place: *const *mut Mask) -> i32;
    kmpc_get_affinity_mask_proc kmp_get_affinity_mask_proc(cpu: i32, place: *const *mut Mask) -> i32;
}

macro_rules! fortran {
    ($($name:ident $to:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(cpu: *const i32, place: *const *mut Mask) -> i32 {
            // SAFETY: Fortran passes the addresses of its arguments.
            $to(unsafe { *cpu }, place)
        }
    )*};
}

fortran! {
    kmp_set_affinity_mask_proc_ kmp_set_affinity_mask_proc;
    kmp_unset_affinity_mask_proc_ kmp_unset_affinity_mask_proc;
    kmp_get_affinity_mask_proc_ kmp_get_affinity_mask_proc;
}
