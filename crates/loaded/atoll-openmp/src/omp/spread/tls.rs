//! The main thread's thread-local variables on other nodes, for `copyin`: workers read the main thread's variable where it lies.
//!
//! That memory is not paged, as the thread's control block lies in it. On other nodes than the origin nobody uses the main
//! thread's, which lies at the same address and is shared by their workers: before a region the origin sends what has
//! changed of its own (`start::program` passes it on), and at a region's end other nodes send back the bytes that their workers wrote there.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::wire::Piece;
use crate::start::objects::Object;
use atoll_memory::futex::Lock;

/// Bytes that are compared and sent at once.
const PIECE: usize = 1024;

/// The blocks in which the main thread's variables lie, of the program and its libraries: start, bytes. They are the same on all nodes.
static BLOCKS: OnceLock<Vec<(usize, usize)>> = OnceLock::new();
/// One of these blocks is the program's, or a library's of its own; or the program keeps values by thread otherwise.
static KEPT: AtomicBool = AtomicBool::new(false);
/// The variables as other nodes have them, or, on those, as the origin sent them: one block after the other; before the first region
/// nothing.
static SENT: Lock<Vec<u8>> = Lock::new(Vec::new());
/// Pieces, by address, that another node has changed: what the others have of them is not known.
static CHANGED: Lock<BTreeSet<usize>> = Lock::new(BTreeSet::new());
/// The pieces that the agent is to send.
static NEWS: Lock<Vec<Piece>> = Lock::new(Vec::new());

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

/// Notes where the variables lie. Called by the main thread, before `main`.
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

/// The program sets values of thread-specific data, which are kept as its variables are.
pub(super) fn keep_by_thread() {
    KEPT.store(true, Ordering::Relaxed);
}

/// Notes that `object` keeps variables by thread, or may.
fn keeps(object: &Object) {
    const LANGUAGES: [&str; 3] = ["libstdc++.", "libgfortran.", "libc++."];
    let file = object.file_name();
    if !object.is_private() && !LANGUAGES.iter().any(|language| file.starts_with(language)) {
        keep_by_thread();
    }
}

/// The program has loaded a library itself, which may keep variables by thread: nobody looks whether it does.
pub(crate) fn loaded_late(object: &Object) {
    keeps(object);
}

/// Whether the address is that of a thread-local variable of the main thread's.
pub(crate) fn is_main_threads(address: usize) -> bool {
    let within = |&(start, bytes): &(usize, usize)| address.wrapping_sub(start) < bytes;
    BLOCKS.get().is_some_and(|blocks| blocks.iter().any(within))
}

/// On the origin, where a region begins: notes what has changed since the last one.
pub(super) fn collect() {
    let blocks = BLOCKS.get().map_or(&[][..], Vec::as_slice);
    if blocks.is_empty() {
        return;
    }
    let (mut sent, mut news) = (SENT.lock(), NEWS.lock());
    let changed = std::mem::take(&mut *CHANGED.lock());
    let first = sent.is_empty();
    let mut done = 0;
    for &(start, bytes) in blocks {
        for offset in (0..bytes).step_by(PIECE) {
            let len = PIECE.min(bytes - offset);
            // SAFETY: variables of the main thread, which has begun the region and waits here.
            let now = unsafe { std::slice::from_raw_parts((start + offset) as *const u8, len) };
            if first {
                sent.extend_from_slice(now);
            } else if sent[done..done + len] == *now && !changed.contains(&(start + offset)) {
                done += len;
                continue;
            } else {
                sent[done..done + len].copy_from_slice(now);
            }
            done += len;
            news.push(Piece { at: (start + offset) as u64, bytes: now.to_vec() });
        }
    }
}

/// Takes the pieces that are to be sent.
pub(crate) fn take() -> Vec<Piece> {
    std::mem::take(&mut *NEWS.lock())
}

/// On another node, whose workers are all at the end of a region: the bytes that they have changed, in runs.
pub(crate) fn changed() -> Vec<Piece> {
    let blocks = BLOCKS.get().map_or(&[][..], Vec::as_slice);
    let (mut sent, mut news, mut done) = (SENT.lock(), Vec::new(), 0);
    if sent.is_empty() {
        return news;
    }
    for &(start, bytes) in blocks {
        // SAFETY: the main thread's variables, which nobody uses here now.
        let now = unsafe { std::slice::from_raw_parts(start as *const u8, bytes) };
        let before = &mut sent[done..done + bytes];
        done += bytes;
        for (piece, (now, before)) in now.chunks(PIECE).zip(before.chunks_mut(PIECE)).enumerate() {
            if now == before {
                continue;
            }
            let mut at = 0;
            while at < now.len() {
                let run = |equal: bool| {
                    now[at..].iter().zip(&before[at..]).take_while(|(a, b)| (a == b) == equal).count()
                };
                match run(false) {
                    0 => at += run(true),
                    other => {
                        let at_first = start + piece * PIECE + at;
                        news.push(Piece { at: at_first as u64, bytes: now[at..at + other].to_vec() });
                        at += other;
                    }
                }
            }
            before.copy_from_slice(now);
        }
    }
    news
}

/// Puts in place the pieces that the origin sent, or on the origin another node. `false` where they do not lie in the variables.
pub(crate) fn put(news: &[Piece]) -> bool {
    let blocks = BLOCKS.get().map_or(&[][..], Vec::as_slice);
    let mut sent = SENT.lock();
    let elsewhere = !atoll_nodes::on_origin();
    if elsewhere && sent.is_empty() {
        // Before the first region the origin sends all of it.
        sent.resize(blocks.iter().map(|(_, bytes)| bytes).sum(), 0);
    }
    news.iter().all(|Piece { at, bytes: content }| {
        let mut before = 0;
        let place = blocks.iter().find_map(|(start, bytes)| {
            let offset = (*at as usize).checked_sub(*start).filter(|offset| offset + content.len() <= *bytes);
            let place = offset.map(|offset| (before + offset, start + offset / PIECE * PIECE));
            before += bytes;
            place
        });
        let inside = place.is_some();
        if let Some((place, piece)) = place {
            if elsewhere {
                sent[place..place + content.len()].copy_from_slice(content);
            } else {
                CHANGED.lock().insert(piece);
            }
            // SAFETY: the main thread's variables, which nobody uses here but workers in a region: none is under way, or it has
            // ended for the node that sends.
            unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), *at as *mut u8, content.len()) };
        }
        inside
    })
}
