//! Looks up the functions of libgomp and libomp that a library stands in front of.
//!
//! The libraries' own functions of these names call them through here.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function looked up when it is first needed.
#[derive(Debug)]
pub struct Real {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Real {
    /// The function of this name.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The function's address. Ends the process if it is nowhere, as the program cannot go on without it.
    pub fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        let found = self.look_up();
        if found.is_null() {
            eprintln!(
                "atoll: the program calls {}, and neither libgomp nor libomp is loaded",
                self.name.to_string_lossy()
            );
            std::process::abort();
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }

    fn look_up(&self) -> *mut c_void {
        // SAFETY: C strings; a library that is not loaded gives null, which is not used.
        unsafe {
            let found = libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr());
            if !found.is_null() {
                return found;
            }
            // The library may have been loaded by dlopen, for its caller only.
            for library in [c"libgomp.so.1", c"libomp.so.5", c"libomp.so", c"libiomp5.so"] {
                let library = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if !library.is_null() {
                    let found = libc::dlsym(library, self.name.as_ptr());
                    if !found.is_null() {
                        return found;
                    }
                }
            }
            std::ptr::null_mut()
        }
    }
}

/// Calls a function of libgomp or libomp by its name and type.
#[macro_export]
macro_rules! real {
    ($name:ident, fn($($argument:ty),*) $(-> $result:ty)?) => {{
        static REAL: $crate::Real = $crate::Real::new(
            // SAFETY: the string was made with its NUL.
            unsafe { ::std::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) }
        );
        // SAFETY: the library's function of this name has this type.
        unsafe { ::std::mem::transmute::<*mut ::std::ffi::c_void, extern "C" fn($($argument),*) $(-> $result)?>(REAL.address()) }
    }};
}
