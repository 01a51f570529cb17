//! The PMIx library, loaded when it is needed, so that programs without PMIx do not depend on it.
//!
//! `mod.rs` calls it; the types are in `sys.rs`. All unsafe code for PMIx is in these two files.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use libloading::{Library as Loaded, Symbol};

use super::error::PmixError;
use super::sys::{self, BYTE_OBJECT, Done, Info, Proc, Status, UINT32, Value};
use crate::clock::{Deadline, LONG};
use crate::start::error::StartError;

const FILE: &str = "libpmix.so.2";

/// The versions that were tried, by the first number (4.2.2 and 5.0.11, each as client of the other's server). Older ones lay
/// out values differently.
const TRIED: [u32; 2] = [4, 5];

/// The functions of the library, which stays loaded as long as the process lives.
pub(super) struct Library {
    init: unsafe extern "C" fn(*mut Proc, *const Info, usize) -> Status,
    finalize: unsafe extern "C" fn(*const Info, usize) -> Status,
    put: unsafe extern "C" fn(u8, *const c_char, *mut Value) -> Status,
    commit: unsafe extern "C" fn() -> Status,
    fence: unsafe extern "C" fn(*const Proc, usize, *const Info, usize, Done, *mut c_void) -> Status,
    get: unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
}

/// The end of a fence, which PMIx's own thread reports.
#[derive(Default)]
struct Fence {
    status: Mutex<Option<Status>>,
    told: Condvar,
}

unsafe extern "C" fn fence_done(status: Status, fence: *mut c_void) {
    // SAFETY: `Library::fence` made it of an `Arc` for this one call.
    let fence = unsafe { Arc::from_raw(fence.cast_const().cast::<Fence>()) };
    *fence.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    fence.told.notify_all();
}

impl Library {
    /// Loads the library, once in a process.
    pub(super) fn load() -> Result<&'static Library, PmixError> {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LIBRARY.get() {
            return Ok(library);
        }
        // SAFETY: the library's constructors only set up its own state.
        let loaded = unsafe { Loaded::new(FILE) }.map_err(|e| PmixError::NoLibrary(e.to_string()))?;
        let version = version(&loaded)?;
        if !tried(&version) {
            return Err(PmixError::Version(version));
        }
        let library = Library::resolve(&loaded).map_err(|e| PmixError::NoLibrary(e.to_string()))?;
        // The library's threads run until the process ends, so it stays loaded.
        std::mem::forget(loaded);
        Ok(LIBRARY.get_or_init(|| library))
    }

    fn resolve(loaded: &Loaded) -> Result<Library, libloading::Error> {
        // SAFETY: the types are those of pmix.h from version 4 on, which was checked to be it.
        unsafe {
            Ok(Library {
                init: *loaded.get(b"PMIx_Init\0")?,
                finalize: *loaded.get(b"PMIx_Finalize\0")?,
                put: *loaded.get(b"PMIx_Put\0")?,
                commit: *loaded.get(b"PMIx_Commit\0")?,
                fence: *loaded.get(b"PMIx_Fence_nb\0")?,
                get: *loaded.get(b"PMIx_Get\0")?,
                error_string: *loaded.get(b"PMIx_Error_string\0")?,
            })
        }
    }

    /// Connects to the server; returns this process as the server knows it.
    pub(super) fn init(&self) -> Result<Proc, PmixError> {
        let mut proc = Proc::empty();
        // SAFETY: a place for the answer, and no infos.
        let status = unsafe { (self.init)(&raw mut proc, std::ptr::null(), 0) };
        self.check("PMIx_Init", status).map(|()| proc)
    }

    pub(super) fn finalize(&self) -> Result<(), PmixError> {
        // SAFETY: no infos.
        self.check("PMIx_Finalize", unsafe { (self.finalize)(std::ptr::null(), 0) })
    }

    /// Gives `bytes` to all processes under `key`, from the next fence on.
    pub(super) fn put(&self, key: &CString, bytes: &[u8]) -> Result<(), PmixError> {
        let mut value = Value::bytes(bytes);
        // SAFETY: PMIx copies key and value before it returns.
        let status = unsafe { (self.put)(sys::GLOBAL, key.as_ptr(), &raw mut value) };
        self.check("PMIx_Put", status)?;
        // SAFETY: the function has no arguments.
        self.check("PMIx_Commit", unsafe { (self.commit)() })
    }

    /// Waits until all processes of `all`'s namespace have called it; then the bytes that they gave are here.
    pub(super) fn fence(&self, all: &Proc, deadline: &mut Deadline) -> Result<(), StartError> {
        let infos = [Info::new(sys::COLLECT_DATA, Value::flag(true))];
        let fence = Arc::new(Fence::default());
        let theirs = Arc::into_raw(Arc::clone(&fence)).cast_mut().cast();
        // SAFETY: PMIx reads processes and infos before it returns, and calls back once with the pointer, however late; the
        // pointer is an `Arc` of its own.
        let status = unsafe { (self.fence)(all, 1, infos.as_ptr(), infos.len(), fence_done, theirs) };
        if status != sys::SUCCESS {
            // SAFETY: after an error PMIx does not call back.
            drop(unsafe { Arc::from_raw(theirs.cast_const().cast::<Fence>()) });
            let done = if status == sys::OPERATION_SUCCEEDED { sys::SUCCESS } else { status };
            return Ok(self.check("PMIx_Fence_nb", done)?);
        }
        let mut told = fence.status.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(status) = *told {
                return Ok(self.check("PMIx_Fence_nb", status)?);
            }
            let Some(left) = deadline.left(LONG) else {
                return Err(StartError::Timeout(deadline.timeout().unwrap_or_default()));
            };
            told = fence.told.wait_timeout(told, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The number of processes in `all`'s namespace.
    pub(super) fn job_size(&self, all: &Proc) -> Result<u32, PmixError> {
        self.get(all, sys::JOB_SIZE, |value| {
            if value.kind != UINT32 {
                return None;
            }
            // SAFETY: the value's kind says which part of the union is valid.
            Some(unsafe { value.data.uint32 })
        })
    }

    /// The bytes that `of` gave under `key` before the last fence, at most `longest`.
    pub(super) fn bytes(&self, of: &Proc, key: &CStr, longest: usize) -> Result<Vec<u8>, PmixError> {
        self.get(of, key, |value| {
            if value.kind != BYTE_OBJECT {
                return None;
            }
            // SAFETY: the value's kind says which part of the union is valid.
            let object = unsafe { value.data.object };
            if object.bytes.is_null() {
                return (object.size == 0).then(Vec::new);
            }
            let bytes = (object.size <= longest).then(|| {
                // SAFETY: PMIx allocated that many bytes for this value.
                unsafe { std::slice::from_raw_parts(object.bytes.cast::<u8>(), object.size) }.to_vec()
            });
            // SAFETY: allocated with malloc for the caller, who frees it (`PMIX_VALUE_DESTRUCT`).
            unsafe { libc::free(object.bytes.cast()) };
            bytes
        })
    }

    /// Looks a value up and returns what `take` makes of it; `None` of `take` means that the value is invalid.
    fn get<T>(&self, of: &Proc, key: &CStr, take: impl FnOnce(&Value) -> Option<T>) -> Result<T, PmixError> {
        // After a fence all values are here; the timeout only ends a wait that should not begin.
        let infos = [Info::new(sys::TIMEOUT, Value::int(10))];
        let mut value: *mut Value = std::ptr::null_mut();
        // SAFETY: PMIx reads process, key and infos before it returns, and has a place for the answer.
        let status = unsafe { (self.get)(of, key.as_ptr(), infos.as_ptr(), infos.len(), &raw mut value) };
        self.check("PMIx_Get", status)?;
        // SAFETY: null, or a value that is the caller's until it is freed below.
        let taken = unsafe { value.as_ref() }.and_then(take);
        // SAFETY: allocated with malloc for the caller, who frees it (`PMIX_VALUE_RELEASE`); `take` freed what it has.
        unsafe { libc::free(value.cast()) };
        taken.ok_or(PmixError::Value)
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), PmixError> {
        if status == sys::SUCCESS {
            return Ok(());
        }
        // SAFETY: the function returns a constant string for any number, or null.
        let text = unsafe { (self.error_string)(status).as_ref().map(|text| CStr::from_ptr(text)) };
        let text = text.map_or_else(String::new, |text| text.to_string_lossy().into_owned());
        Err(PmixError::Call { call, status, text })
    }
}

fn version(loaded: &Loaded) -> Result<String, PmixError> {
    type Version = unsafe extern "C" fn() -> *const c_char;
    // SAFETY: the function has this type in all versions.
    let version: Symbol<'_, Version> =
        unsafe { loaded.get(b"PMIx_Get_version\0") }.map_err(|e| PmixError::NoLibrary(e.to_string()))?;
    // SAFETY: the function returns a constant string, or null.
    let text = unsafe { version().as_ref().map(|text| CStr::from_ptr(text)) };
    Ok(text.map_or_else(String::new, |text| text.to_string_lossy().into_owned()))
}

/// Whether the library's version, such as `OpenPMIx 4.2.2 (PMIx Standard: ...)`, begins with a number that was tried.
fn tried(version: &str) -> bool {
    let number =
        version.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    let first = number.and_then(|number| number.split('.').next()?.parse().ok());
    first.is_some_and(|first| TRIED.contains(&first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_were_not_tried_are_refused() {
        assert!(tried("OpenPMIx 4.2.2 (PMIx Standard: 4.2, Stable ABI: 0.0, Provisional ABI: 0.0)"));
        assert!(tried("4.1.2, repo rev: gitae699c7"));
        for other in ["", "OpenPMIx", "OpenPMIx 3.2.3, repo rev", "OpenPMIx 44.0", "6.0.0"] {
            assert!(!tried(other), "{other}");
        }
    }

    #[test]
    fn the_library_is_loaded_or_its_package_named() {
        match Library::load() {
            Ok(_) => {}
            Err(e) => {
                assert!(e.to_string().contains("libpmix2") || matches!(e, PmixError::Version(_)), "{e}");
                atoll_skips::skip_part!("{e} (apt-get install openmpi-bin)");
            }
        }
    }
}
