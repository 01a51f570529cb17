//! Later programs of a run: a script or a driver starts several programs with OpenMP, and each is to be managed.
//!
//! Called by `constructor` where the run's control block belongs to another program. The process begins anew under a launcher of its own,
//! with the flags of the first one, and keeps its process id. Each program has the whole limit: left alone, it would have none.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::Ordering;

use atoll_memory::control::{self, Control, Handle};
use atoll_memory::sys;

/// Flags with a value that are not passed on: a record is of one program, and what a later program prints is read by the script that started
/// it, so that no summary may stand there.
const OF_THE_FIRST: [&[u8]; 2] = [b"--record", b"--summary"];

/// Begins the process anew under a launcher of its own. Returns where that is not possible. `envp`: the environment, from which what the
/// first launcher put there has been removed.
pub(super) fn begin(handle: Handle, control: &Control, envp: *const *const c_char) {
    let words = control.settings.launcher_words as usize;
    if words == 0 || control.settings.several_nodes() {
        return;
    }
    let Some(line) = line(handle.launcher, words) else { return };
    let mut pointers: Vec<*const c_char> = line.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let Ok(launcher) = CString::new(format!("/proc/{}/exe", handle.launcher)) else { return };
    let Ok(first) = CString::new(format!("{}={handle}", control::ENVIRONMENT_FIRST)) else { return };
    let mut environment = vec![first.as_ptr()];
    // SAFETY: a NULL-terminated array.
    unsafe {
        let mut at = envp;
        while !(*at).is_null() {
            environment.push(*at);
            at = at.add(1);
        }
    }
    environment.push(std::ptr::null());
    control.later_programs.fetch_add(1, Ordering::Relaxed);
    // SAFETY: C strings and NULL-terminated arrays of them; the process becomes another program, or goes on if that fails.
    let _ = unsafe {
        sys::syscall(
            libc::SYS_execve,
            [launcher.as_ptr() as usize, pointers.as_ptr() as usize, environment.as_ptr() as usize, 0, 0, 0],
        )
    };
    control.later_programs.fetch_sub(1, Ordering::Relaxed);
}

/// The new launcher's command line: the words of the first one's up to its program, and this program's own.
fn line(launcher: i32, words: usize) -> Option<Vec<CString>> {
    let first = std::fs::read(format!("/proc/{launcher}/cmdline")).ok()?;
    let own = std::fs::read("/proc/self/cmdline").ok()?;
    let program = std::fs::read_link("/proc/self/exe").ok()?.into_os_string().into_vec();
    let mut line = Vec::new();
    let mut given = first.split(|byte| *byte == 0).take(words);
    while let Some(word) = given.next() {
        match OF_THE_FIRST.iter().find_map(|flag| word.strip_prefix(*flag)) {
            Some(b"") => drop(given.next()),
            Some([b'=', ..]) => {}
            _ if word == b"--" => {}
            _ => line.push(word),
        }
    }
    line.extend([b"--summary".as_slice(), b"none", b"--", &program]);
    line.extend(own.strip_suffix(b"\0")?.split(|byte| *byte == 0).skip(1));
    line.into_iter().map(|word| CString::new(word).ok()).collect()
}
