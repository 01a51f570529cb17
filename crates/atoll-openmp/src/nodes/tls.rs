//! The main thread's thread-local variables on other nodes, for `copyin`: workers read the main thread's variable where it lies.
//!
//! That memory is not paged, as the thread's control block lies in it. On other nodes than the origin nobody uses the main
//! thread's, which lies at the same address and is shared by their workers: before a region the origin sends what has
//! changed of its own (`agent` passes it on). What workers of other nodes write there is not brought back.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::wire::Diff;
use crate::futex::Lock;
use crate::start::objects::Object;

/// Compared and sent at once.
const PIECE: usize = 1024;

/// Where the main thread's variables lie, of the program and its libraries: start, bytes. The same on all nodes.
static BLOCKS: OnceLock<Vec<(usize, usize)>> = OnceLock::new();
/// Is one of these the program's, or a library's of its own?
static KEPT: AtomicBool = AtomicBool::new(false);
/// What other nodes have of them, one block after the other; before the first region nothing.
static SENT: Lock<Vec<u8>> = Lock::new(Vec::new());
/// What the agent is to send: address, content.
static NEWS: Lock<Vec<(u64, Diff)>> = Lock::new(Vec::new());

struct Search<'a> {
    objects: &'a [Object],
    found: Vec<(usize, usize)>,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker's description of one object; `search` is the one below.
    unsafe {
        let (info, search) = (&*info, &mut *search.cast::<Search<'_>>());
        let name = CStr::from_ptr(info.dlpi_name).to_string_lossy();
        let object = search.objects.iter().find(|object| object.name == name);
        if object.is_none_or(|object| object.is_private() || object.file_name().starts_with("libatoll_")) {
            return 0;
        }
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let bytes = headers.iter().find(|h| h.p_type == libc::PT_TLS).map_or(0, |h| h.p_memsz as usize);
        let at = info.dlpi_tls_data as usize;
        if bytes != 0 {
            object.into_iter().for_each(keeps);
        }
        if at != 0 && bytes != 0 {
            search.found.push((at, bytes));
        }
    }
    0
}

/// Notes where they lie. Called by the main thread, before `main`.
pub(crate) fn find(objects: &[Object]) {
    let mut search = Search { objects, found: Vec::new() };
    // SAFETY: the callback gets the search above, alive for the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    // Once, by the constructor.
    let _ = BLOCKS.set(search.found);
}

/// Do workers keep variables of the program by thread, so that a thread of the team must be the same worker in every region? Those
/// of languages' own libraries (exceptions, units) mean nothing from one region to the next.
pub(super) fn keeps_by_thread() -> bool {
    KEPT.load(Ordering::Relaxed)
}

/// `object` keeps some, or may.
fn keeps(object: &Object) {
    const LANGUAGES: [&str; 3] = ["libstdc++.", "libgfortran.", "libc++."];
    let file = object.file_name();
    if !object.is_private() && !LANGUAGES.iter().any(|language| file.starts_with(language)) {
        KEPT.store(true, Ordering::Relaxed);
    }
}

/// The program has loaded a library itself: it is not looked at what that keeps.
pub(crate) fn loaded_late(object: &Object) {
    keeps(object);
}

/// On the origin, where a region begins: notes what has changed since the last one.
pub(super) fn collect() {
    let blocks = BLOCKS.get().map_or(&[][..], Vec::as_slice);
    if blocks.is_empty() {
        return;
    }
    let (mut sent, mut news) = (SENT.lock(), NEWS.lock());
    let first = sent.is_empty();
    let mut done = 0;
    for &(start, bytes) in blocks {
        for offset in (0..bytes).step_by(PIECE) {
            let len = PIECE.min(bytes - offset);
            // SAFETY: variables of the main thread, which has begun the region and waits here.
            let now = unsafe { std::slice::from_raw_parts((start + offset) as *const u8, len) };
            if first {
                sent.extend_from_slice(now);
            } else if sent[done..done + len] == *now {
                done += len;
                continue;
            } else {
                sent[done..done + len].copy_from_slice(now);
            }
            done += len;
            news.push(((start + offset) as u64, Diff(now.to_vec())));
        }
    }
}

/// What is to be sent; it is forgotten here.
pub(super) fn take() -> Vec<(u64, Diff)> {
    std::mem::take(&mut *NEWS.lock())
}

/// On another node: what the origin sent. `false` where that cannot be.
pub(super) fn put(news: &[(u64, Diff)]) -> bool {
    let blocks = BLOCKS.get().map_or(&[][..], Vec::as_slice);
    news.iter().all(|(at, Diff(content))| {
        let inside = blocks.iter().any(|(start, bytes)| {
            (*at as usize).checked_sub(*start).is_some_and(|offset| offset + content.len() <= *bytes)
        });
        if inside {
            // SAFETY: the main thread's variables, which nobody uses here but workers that read them in a region: none is
            // under way.
            unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), *at as *mut u8, content.len()) };
        }
        inside
    })
}
