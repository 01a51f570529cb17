//! Threads that the program makes itself, with pthreads or C11 threads: they get stacks that all workers see.
//!
//! Called by the program; `start::own_threads` makes them. The pager is told, since from then on a page may be written
//! while the worker that evicts it waits in its handler.

use std::ffi::{c_int, c_void};

use super::growth;
use crate::start::own_threads::{self, Routine};
use crate::{start, state};

/// `pthread_create`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        Routine,
        *mut c_void,
    ) -> c_int;
    let call = real!("pthread_create", Create);
    let own_code = start::objects::is_own_code(routine as *const () as usize);
    let Some(pager) = state::pager().filter(|_| !own_code) else {
        // SAFETY: as the caller asked.
        return unsafe { call(thread, attributes, routine, argument) };
    };
    growth::expect();
    start::growing_stacks::watch(pager);
    pager.set_threads_share_tables();
    // SAFETY: as the caller asked, but for the stack.
    unsafe {
        own_threads::create(
            thread,
            attributes,
            routine,
            argument,
            &|thread, attributes, routine, argument| call(thread, attributes, routine, argument),
        )
    }
}

/// `pthread_getattr_np`: the guard of a stack that this runtime made is none of libc's, which says that there is no guard. Rust's threads end
/// the program then.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_getattr_np(
    thread: libc::pthread_t,
    attributes: *mut libc::pthread_attr_t,
) -> c_int {
    type Get = unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;
    let call = real!("pthread_getattr_np", Get);
    // SAFETY: the caller's arguments.
    let status = unsafe { call(thread, attributes) };
    if status == 0 && state::pager().is_some() {
        let (mut stack, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: libc has filled the attributes in.
        unsafe {
            libc::pthread_attr_getstack(attributes, &raw mut stack, &raw mut bytes);
            if start::slots::is_stack(stack as usize) {
                libc::pthread_attr_setguardsize(attributes, GUARD);
            }
        }
    }
    status
}

/// The bytes of a guard that the program is told: as many as libc's own threads have. The real guard is larger.
const GUARD: usize = 4096;

/// The results of C11's thread functions.
const THRD_SUCCESS: c_int = 0;
const THRD_ERROR: c_int = 2;
const THRD_NOMEM: c_int = 3;

/// The function of a C11 thread, and its argument.
struct C11 {
    function: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

/// `thrd_create`: a thread whose result is a number.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn thrd_create(
    thread: *mut libc::pthread_t,
    function: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> c_int {
    if state::pager().is_none() {
        type Create = unsafe extern "C" fn(
            *mut libc::pthread_t,
            extern "C" fn(*mut c_void) -> c_int,
            *mut c_void,
        ) -> c_int;
        let call = real!("thrd_create", Create);
        // SAFETY: as the caller asked.
        return unsafe { call(thread, function, argument) };
    }
    extern "C" fn run(start: *mut c_void) -> *mut c_void {
        // SAFETY: made below for this thread alone.
        let start = unsafe { Box::from_raw(start.cast::<C11>()) };
        // glibc's `thrd_join` takes the number from the pointer.
        (start.function)(start.argument) as isize as *mut c_void
    }
    let start = Box::into_raw(Box::new(C11 { function, argument }));
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_t,
        *const libc::pthread_attr_t,
        Routine,
        *mut c_void,
    ) -> c_int;
    let call = real!("pthread_create", Create);
    if let Some(pager) = state::pager() {
        pager.set_threads_share_tables();
    }
    // SAFETY: as the caller asked, but for the stack.
    let status = unsafe {
        own_threads::create(
            thread,
            std::ptr::null(),
            run,
            start.cast(),
            &|thread, attributes, routine, argument| call(thread, attributes, routine, argument),
        )
    };
    if status != 0 {
        // SAFETY: no thread was made that could have the box.
        drop(unsafe { Box::from_raw(start) });
    }
    match status {
        0 => THRD_SUCCESS,
        libc::ENOMEM | libc::EAGAIN => THRD_NOMEM,
        _ => THRD_ERROR,
    }
}

/// Defines calls after whose success the thread, their first argument, is joined or detached.
macro_rules! ends {
    ($($then:ident $name:ident ( $($more:ident),* );)*) => {$(
        /// The function of this name in libc.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name(thread: libc::pthread_t $(, $more: usize)*) -> c_int {
            let call = real!(stringify!($name), unsafe extern "C" fn(libc::pthread_t $(, wrap!(@usize $more))*) -> c_int);
            // SAFETY: the caller's arguments.
            let status = unsafe { call(thread $(, $more)*) };
            if status == 0 && state::pager().is_some() {
                own_threads::$then(thread);
            }
            status
        }
    )*};
}

ends! {
    joined pthread_join(result);
    joined pthread_tryjoin_np(result);
    joined pthread_timedjoin_np(result, time);
    joined pthread_clockjoin_np(result, clock, time);
    joined thrd_join(result);
    detached pthread_detach();
    detached thrd_detach();
}
