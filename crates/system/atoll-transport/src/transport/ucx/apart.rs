//! Loads a library in a name space of the dynamic linker of its own, with a libc of its own.
//!
//! For `library.rs`: the library meets no interposed function of the process, and does not appear in a list of the process's
//! libraries. Its actions at the process's end are left out, as threads still use it then: with several name spaces the linker
//! begins with the last one, before any handler that the process registered at its start.

use std::ffi::{CStr, CString, c_void};

use libloading::Library;

/// The start of the dynamic linker's `struct link_map`, which is its interface to debuggers.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const libc::c_char,
    dynamic: *mut Entry,
    next: *mut LinkMap,
    previous: *mut LinkMap,
}

/// An entry of an object's dynamic section.
#[repr(C)]
struct Entry {
    tag: i64,
    value: u64,
}

const DT_NULL: i64 = 0;
const DT_FINI_ARRAYSZ: i64 = 28;

/// Opens `file` in a new name space.
///
/// # Safety
/// The same as for [`Library::new`].
pub(super) unsafe fn open(file: &str) -> Result<Library, String> {
    let name = CString::new(file).map_err(|e| e.to_string())?;
    // SAFETY: a C string; the rest is the caller's promise.
    let handle =
        unsafe { libc::dlmopen(libc::LM_ID_NEWLM, name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        // SAFETY: a handle of the dynamic linker's that nobody else has.
        return Ok(unsafe { libloading::os::unix::Library::from_raw(handle) }.into());
    }
    // SAFETY: the thread's last error, or null.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        return Err(file.to_owned());
    }
    // SAFETY: a C string, valid until the next call.
    Err(unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned())
}

/// Makes the dynamic linker leave out the actions at the process's end of all objects that are now loaded in the library's name
/// space. `inside` is a function or variable of the library, which is never unloaded.
pub(super) fn never_end(inside: *const c_void) {
    /// `RTLD_DL_LINKMAP` of `dladdr1`.
    const LINKMAP: libc::c_int = 2;
    unsafe extern "C" {
        fn dladdr1(
            at: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *mut c_void,
            flags: libc::c_int,
        ) -> libc::c_int;
    }
    let mut map: *mut c_void = std::ptr::null_mut();
    // SAFETY: valid for writes; for an address that lies in no object the result is 0.
    let known = unsafe {
        let mut info = std::mem::zeroed();
        dladdr1(inside, &raw mut info, &raw mut map, LINKMAP)
    };
    if known == 0 || map.is_null() {
        return;
    }
    let mut at = map.cast::<LinkMap>();
    // SAFETY: the linker's list of the objects in one name space, none of which is unloaded; nothing is loaded meanwhile, as
    // only this thread uses the library.
    unsafe {
        while !(*at).previous.is_null() {
            at = (*at).previous;
        }
        while !at.is_null() {
            leave_out((*at).dynamic);
            at = (*at).next;
        }
    }
}

/// Removes an object's functions for its end.
///
/// # Safety
/// `entry` is the dynamic section of a loaded object.
unsafe fn leave_out(mut entry: *mut Entry) {
    // SAFETY: the section ends with an empty entry. The page is the linker's and written by nobody else. It is writable
    // afterwards, while it may have been read-only where objects are relocated before they run, which does no harm.
    unsafe {
        while !entry.is_null() && (*entry).tag != DT_NULL {
            if (*entry).tag == DT_FINI_ARRAYSZ {
                let value = &raw mut (*entry).value;
                let page = value as usize & !4095;
                let flags = libc::PROT_READ | libc::PROT_WRITE;
                if libc::mprotect(page as *mut c_void, 4096, flags) == 0 {
                    value.write(0);
                }
                return;
            }
            entry = entry.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_apart_has_a_libc_of_its_own() {
        // SAFETY: libm does nothing when it is loaded.
        let library = unsafe { open("libm.so.6") }.unwrap();
        type Tolower = unsafe extern "C" fn(i32) -> i32;
        // SAFETY: libc's function, found by way of libm's libc.
        let tolower = *unsafe { library.get::<Tolower>(b"tolower\0") }.unwrap();
        assert_ne!(tolower as usize, libc::tolower as *const () as usize);
        never_end(tolower as *const c_void);
        std::mem::forget(library);
        // SAFETY: nothing is loaded.
        assert!(unsafe { open("libno-such-thing.so.7") }.err().unwrap().contains("libno-such-thing.so.7"));
    }
}
