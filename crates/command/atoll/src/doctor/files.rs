//! Files that a run needs: the runtime, libgomp, shared memory.

use std::path::Path;

use super::Finding;
use crate::run::{library, system_library};

pub(crate) fn look() -> Vec<Finding> {
    vec![runtime(), libgomp(), shared_memory()]
}

fn runtime() -> Finding {
    let named = std::env::var_os(library::ENVIRONMENT);
    match library::find(named.as_deref(), &std::env::current_exe().unwrap_or_default()) {
        Ok(path) => Finding::ok("runtime", path.display().to_string()),
        Err(error) => Finding::missing("runtime", error.to_string(), "cargo build --release -p atoll-openmp"),
    }
}

fn libgomp() -> Finding {
    match system_library("libgomp.so.1") {
        Some(path) => Finding::ok("libgomp", path.display().to_string()),
        None => Finding::slow(
            "libgomp",
            "libgomp.so.1 is not installed, without which no OpenMP program of gcc starts",
            "apt-get install libgomp1",
        ),
    }
}

fn shared_memory() -> Finding {
    match atoll_memory::sys::memfd(c"atoll-doctor", 0, 4096) {
        Ok(fd) => {
            // SAFETY: ours.
            unsafe { libc::close(fd) };
            let dev_shm =
                if Path::new("/dev/shm").is_dir() { "" } else { " (/dev/shm is not mounted, nor needed)" };
            Finding::ok("shared memory", format!("memfd_create works{dev_shm}"))
        }
        Err(error) => Finding::missing(
            "shared memory",
            format!("memfd_create is refused: {error}"),
            "docker run --security-opt seccomp=unconfined …",
        ),
    }
}
