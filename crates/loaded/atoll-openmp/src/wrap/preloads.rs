//! Keeps atoll's runtime in what a process preloads into the programs that it executes.
//!
//! A process that is left alone, such as a shell or `env`, has the runtime in LD_PRELOAD, so that its children are examined in turn. A script that sets
//! that variable for a library of its own would take the runtime away from them. `constructor` notes the runtime's path, and `process`
//! asks here for each environment that is handed over. One without LD_PRELOAD, or without what `atoll run` put there, stays as it is.
//!
//! `exec` may be called in a child made by `vfork`, or in a process that was forked from threads: nothing here takes a lock.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use atoll_memory::control;

use crate::start::objects::Object;

/// The runtime's path, in a process that is left alone.
static RUNTIME: OnceLock<Vec<u8>> = OnceLock::new();

const PRELOAD: &[u8] = b"LD_PRELOAD";

/// Notes the runtime's path.
pub(crate) fn begin(objects: &[Object]) {
    let own = begin as *const () as usize;
    let is_here = |object: &&Object| object.segments.iter().any(|s| (s.start..s.end).contains(&own));
    if let Some(runtime) = objects.iter().find(is_here) {
        RUNTIME.get_or_init(|| runtime.name.as_bytes().to_vec());
    }
}

/// What the entry `name=value` has for a value.
fn value<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}

fn lacks(preloaded: &[u8], runtime: &[u8]) -> bool {
    !preloaded.split(|byte| matches!(byte, b':' | b' ')).any(|library| library == runtime)
}

/// The libraries that the last LD_PRELOAD among the entries names, if the runtime is to be with them and is not.
fn without_runtime<'a>(entries: impl Iterator<Item = &'a [u8]>, runtime: &[u8]) -> Option<&'a [u8]> {
    let (mut is_of_run, mut preloaded) = (false, None);
    for entry in entries {
        is_of_run |= value(entry, control::ENVIRONMENT.as_bytes()).is_some();
        preloaded = value(entry, PRELOAD).or(preloaded);
    }
    preloaded.filter(|preloaded| is_of_run && lacks(preloaded, runtime))
}

/// The entries at `list`.
///
/// # Safety
/// A NULL-terminated array of strings, or null.
unsafe fn entries<'a>(list: *const usize) -> impl Iterator<Item = &'a [u8]> {
    let numbers = if list.is_null() { 0..0 } else { 0..usize::MAX };
    numbers.map_while(move |number| {
        // SAFETY: the caller's promise; the first null ends this.
        unsafe {
            let entry = *list.add(number);
            (entry != 0).then(|| CStr::from_ptr(entry as *const c_char).to_bytes())
        }
    })
}

/// Whether [`keep`] would change the environment at `list`.
///
/// # Safety
/// A NULL-terminated array of strings, or null.
pub(super) unsafe fn are_changed(list: usize) -> bool {
    // SAFETY: the caller's promise.
    RUNTIME
        .get()
        .is_some_and(|runtime| unsafe { without_runtime(entries(list as *const usize), runtime).is_some() })
}

/// Puts the runtime in front of what the environment `list` preloads, if it is to be there; new entries are kept in `copies`. The program finds its own
/// LD_PRELOAD as it was, once the runtime has begun.
///
/// # Safety
/// The addresses of strings, and a null.
pub(super) unsafe fn keep(list: &mut Vec<usize>, copies: &mut Vec<Vec<u8>>) {
    let Some(runtime) = RUNTIME.get() else { return };
    // SAFETY: the caller's promise.
    let Some(own) = (unsafe { without_runtime(entries(list.as_ptr()), runtime) }) else { return };
    let entry = |parts: &[&[u8]]| parts.concat();
    let separator: &[u8] = if own.is_empty() { b"" } else { b":" };
    let preload = entry(&[PRELOAD, b"=", runtime, separator, own, b"\0"]);
    let saved = entry(&[control::ENVIRONMENT_PRELOAD.as_bytes(), b"=", own, b"\0"]);
    let is_replaced = |at: usize| {
        // SAFETY: the caller's promise.
        let entry = unsafe { CStr::from_ptr(at as *const c_char) }.to_bytes();
        value(entry, PRELOAD).is_some() || value(entry, control::ENVIRONMENT_PRELOAD.as_bytes()).is_some()
    };
    list.retain(|&at| at != 0 && !is_replaced(at));
    for new in [preload, saved] {
        list.push(new.as_ptr() as usize);
        copies.push(new);
    }
    list.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_preload_without_the_runtime_is_changed() {
        let of = |entries: &[&'static str]| {
            without_runtime(entries.iter().map(|entry| entry.as_bytes()), b"/r.so")
                .map(|own| String::from_utf8_lossy(own).into_owned())
        };
        let run = "ATOLL_CONTROL_FD=9:8";
        assert_eq!(of(&["A=b", "LD_PRELOAD=x.so", run]), Some("x.so".into()));
        assert_eq!(of(&["LD_PRELOAD=", run]), Some(String::new()));
        assert_eq!(of(&["LD_PRELOAD=/other/r.so y.so", run]), Some("/other/r.so y.so".into()));
        assert_eq!(of(&["LD_PRELOAD=/r.so", run]), None);
        assert_eq!(of(&["LD_PRELOAD=x.so /r.so:y.so", run]), None);
        assert_eq!(of(&["LD_PRELOAD=x.so"]), None);
        assert_eq!(of(&["LD_PRELOADS=x.so", run]), None);
    }
}
