//! UCX's library: found, checked for its version and loaded, once in a process.
//!
//! Provides `sys.rs`'s functions to `context.rs`. Loading changes nothing in the process: UCX's handlers of crash signals are
//! removed again, as atoll has its own use of SIGBUS and SIGSEGV.
//!
//! A process whose `malloc`, system calls or libraries are not libc's own, such as a program under atoll's runtime, loads UCX
//! *apart* ([`load_apart`]): in a name space of the dynamic linker of its own, with a libc of its own. So UCX meets no
//! interposed function, and does not appear in a list of the process's libraries. Each thread that uses UCX then prepares that
//! libc for itself ([`enter`]).

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::apart;
use super::sys::{Functions, Status};

/// The oldest minor version of major 1 with all the functions of `sys.rs`.
const OLDEST_MINOR: c_uint = 10;
const FILE: &str = "libucp.so.0";

/// The reasons why UCX cannot be used here.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// The library is not installed.
    #[error(
        "UCX is not installed ({0}): apt-get install libucx0 (Debian, Ubuntu) or the package ucx (elsewhere)"
    )]
    Missing(String),
    /// The library is too old, or of a later major version.
    #[error("UCX {major}.{minor}.{release} is installed, and atoll needs 1.{OLDEST_MINOR} or a later 1.x")]
    Version {
        /// The major version.
        major: u32,
        /// The minor version.
        minor: u32,
        /// The release.
        release: u32,
    },
    /// The library is damaged, or is something else with that name.
    #[error("{FILE} has no {0}: it is damaged or no UCX")]
    Symbol(&'static str),
}

/// UCX, loaded. It is never unloaded, since it has threads and exit handlers of its own.
pub(super) struct Library {
    pub(super) call: Functions,
    /// The major, minor and release number.
    pub(super) version: (u32, u32, u32),
    /// A function of the library's libc that a thread of another libc calls first: it sets up the thread's character tables.
    enter: Option<unsafe extern "C" fn()>,
}

/// Whether the library is loaded apart.
static APART: AtomicBool = AtomicBool::new(false);

/// Loads the library as [`library`] does, and apart from the process's own libraries if this is the first call.
pub(super) fn load_apart() -> Result<&'static Library, LoadError> {
    APART.store(true, Ordering::Relaxed);
    library()
}

/// Prepares this thread to use a library that was loaded apart. Does nothing if it was not, or not yet.
pub(super) fn enter() {
    if let Some(Ok(Library { enter: Some(enter), .. })) = LIBRARY.get() {
        // SAFETY: libc's own function, which changes this thread's own variables only.
        unsafe { enter() };
    }
}

/// Notes that all of UCX that this process needs has been loaded, its modules included. A library that was loaded apart then
/// works until the process ends.
pub(super) fn is_complete() {
    if let Some(Ok(library)) = LIBRARY.get()
        && APART.load(Ordering::Relaxed)
    {
        apart::never_end(library.call.init_version as *const c_void);
    }
}

static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();

/// The library, which the first call loads.
pub(super) fn library() -> Result<&'static Library, LoadError> {
    LIBRARY.get_or_init(|| load(FILE, APART.load(Ordering::Relaxed))).as_ref().map_err(Clone::clone)
}

/// Opens the library in the process's own name space, or in a new one.
fn open(file: &str, is_apart: bool) -> Result<libloading::Library, String> {
    if !is_apart {
        // SAFETY: UCX's constructors read its settings and set signal handlers, which the caller restores.
        return unsafe { libloading::Library::new(file) }.map_err(|e| {
            let source = std::error::Error::source(&e).map(ToString::to_string);
            source.unwrap_or_else(|| e.to_string())
        });
    }
    // SAFETY: as above.
    unsafe { apart::open(file) }
}

fn load(file: &str, apart: bool) -> Result<Library, LoadError> {
    let kept = CrashHandlers::keep();
    let opened = open(file, apart);
    kept.put_back();
    let library = opened.map_err(LoadError::Missing)?;
    type GetVersion = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint);
    // SAFETY: the function's type is the same in all versions.
    let get_version = unsafe { library.get::<GetVersion>(b"ucp_get_version\0") };
    let get_version = *get_version.map_err(|_| LoadError::Symbol("ucp_get_version"))?;
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: three numbers to write to.
    unsafe { get_version(&raw mut major, &raw mut minor, &raw mut release) };
    check(major, minor, release)?;
    // SAFETY: the version was checked; the library is kept for ever below.
    let call = unsafe { Functions::load(&library) }.map_err(LoadError::Symbol)?;
    // SAFETY: the type is the function's; looked up in the library, it is the function of the library's own libc.
    let enter = unsafe { library.get::<unsafe extern "C" fn()>(b"__ctype_init\0") };
    let enter = enter.ok().filter(|_| apart).map(|symbol| *symbol);
    std::mem::forget(library);
    Ok(Library { call, version: (major, minor, release), enter })
}

/// Checks that this version has the interface of `sys.rs`.
fn check(major: u32, minor: u32, release: u32) -> Result<(), LoadError> {
    if major == 1 && minor >= OLDEST_MINOR {
        return Ok(());
    }
    Err(LoadError::Version { major, minor, release })
}

impl Library {
    /// The text of a status, in UCX's words.
    pub(super) fn say(&self, status: Status) -> String {
        // SAFETY: the function returns a string that is never freed, for any number.
        let text = unsafe { (self.call.status_string)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: not null, ends in a zero.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// The actions of the signals for which UCX installs handlers that print where a program crashed.
struct CrashHandlers(Vec<(c_int, libc::sigaction)>);

impl CrashHandlers {
    fn keep() -> CrashHandlers {
        let signals = [libc::SIGILL, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE];
        let kept = signals.map(|signal| {
            // SAFETY: all zeros are a valid sigaction.
            let mut action = unsafe { std::mem::zeroed::<libc::sigaction>() };
            // SAFETY: reads only.
            let done = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
            (done == 0).then_some((signal, action))
        });
        CrashHandlers(kept.into_iter().flatten().collect())
    }

    fn put_back(&self) {
        for (signal, action) in &self.0 {
            // SAFETY: sets what was set before.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_names_the_package_and_a_wrong_one_its_version() {
        let missing = load("libno-such-thing.so.7", false).err().unwrap();
        assert!(missing.to_string().contains("libucx0"), "{missing}");
        assert!(missing.to_string().contains("libno-such-thing.so.7"), "{missing}");
        let apart = load("libno-such-thing.so.7", true).err().unwrap();
        assert!(apart.to_string().contains("libno-such-thing.so.7"), "{apart}");
        assert_eq!(check(1, 10, 0), Ok(()));
        assert_eq!(check(1, 99, 0), Ok(()));
        assert!(check(1, 9, 5).unwrap_err().to_string().contains("UCX 1.9.5"));
        assert!(check(2, 0, 0).is_err());
        assert!(matches!(load("libc.so.6", false).err(), Some(LoadError::Symbol("ucp_get_version"))));
    }

    #[test]
    fn loading_leaves_the_handlers_of_crashes_alone() {
        let handler = |signal| {
            // SAFETY: all zeros are a valid sigaction, and it is only read into.
            unsafe {
                let mut action = std::mem::zeroed::<libc::sigaction>();
                libc::sigaction(signal, std::ptr::null(), &raw mut action);
                action.sa_sigaction
            }
        };
        let signals = [libc::SIGILL, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE];
        let before = signals.map(handler);
        match library() {
            Ok(library) => println!("UCX {:?}", library.version),
            Err(why) => atoll_skips::skip_part!("{why}"),
        }
        assert_eq!(signals.map(handler), before);
    }
}
