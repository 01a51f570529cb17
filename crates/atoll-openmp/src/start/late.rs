//! Libraries that come late: loaded with `dlopen`, before or after workers exist; and libraries that go.
//!
//! `wrap::replay` notes that the program called `dlopen` or `dlclose`; before the next region starts, the master moves new
//! libraries' data to shared memory, as the constructor did for the first ones, and has their mappings repeated
//! by the workers that exist (`wrap::replay`), which also take over what the dynamic linker knows (`linker_state`).

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::segment::fill::Which;
use atoll_memory::spin::Spin;
use atoll_memory::sys::{self, Errno};

use super::linker_state;
use super::objects::{self, Object};
use super::share::{self, PinnedFile};
use crate::state::{self, SignalsBlocked};
use crate::wrap::replay;

static PENDING: AtomicBool = AtomicBool::new(false);
static HERE_ALONE: AtomicBool = AtomicBool::new(false);
static FILE: Spin<Option<PinnedFile>> = Spin::new(None);
/// Where the objects that are shared already are loaded.
static KNOWN: Spin<Vec<usize>> = Spin::new(Vec::new());

/// The constructor is done: what is loaded now is known, and `file` takes what comes.
pub(super) fn begin(file: PinnedFile, objects: &[Object]) {
    *FILE.lock() = Some(file);
    *KNOWN.lock() = objects.iter().map(|o| o.base).collect();
}

/// On several nodes: has a library been loaded that the other nodes do not have?
pub(crate) fn is_here_alone() -> bool {
    HERE_ALONE.load(Ordering::Relaxed)
}

/// The program is about to load a library in the master.
pub(crate) fn expect() {
    PENDING.store(true, Ordering::Relaxed);
}

/// The program has closed a library in the master: another one may be loaded to its place.
pub(crate) fn closed() {
    let loaded = objects::loaded();
    let _blocked = SignalsBlocked::new();
    KNOWN.lock().retain(|base| loaded.iter().any(|object| object.base == *base));
    PENDING.store(true, Ordering::Relaxed);
}

/// Shares what was loaded since the last time. The master calls it when no other worker runs.
#[inline]
pub(crate) fn share() {
    if PENDING.load(Ordering::Relaxed) && state::table() == 0 {
        share_new();
    }
}

#[cold]
fn share_new() {
    PENDING.store(false, Ordering::Relaxed);
    if state::control().is_none_or(|c| c.settings.shared_tables()) {
        return;
    }
    let _set_up = super::segment::SetUp::begin(Some(Which::All));
    let loaded = objects::loaded();
    let _blocked = SignalsBlocked::new();
    let mut file = FILE.lock();
    let mut known = KNOWN.lock();
    let Some(file) = file.as_mut() else { return };
    let before = known.clone();
    for object in &loaded {
        if known.contains(&object.base) {
            continue;
        }
        known.push(object.base);
        crate::omp::spread::tls::loaded_late(object);
        HERE_ALONE.store(atoll_nodes::several().is_some(), Ordering::Relaxed);
        let shared = if replay::needed() {
            share_one(object, file)
        } else if object.is_private() {
            Ok(())
        } else {
            share_first(object, file)
        };
        if shared.is_err() {
            sys::complain("atoll: a library that was loaded late cannot be shared with the workers\n");
        }
    }
    if replay::needed() {
        linker_state::note(&loaded, &|base| !before.contains(&base));
    }
}

/// No worker exists yet: the library's data becomes shared as that of the first ones did, large globals in the arena.
fn share_first(object: &Object, file: &mut PinnedFile) -> Result<(), Errno> {
    let Some(pager) = state::pager() else { return Ok(()) };
    let mut contents = Vec::new();
    share::share_object(object, pager, file, &mut contents)?;
    pager.register_ranges(0)?;
    share::restore(contents);
    Ok(())
}

/// Workers exist: their mappings have to follow.
fn share_one(object: &Object, file: &mut PinnedFile) -> Result<(), Errno> {
    for m in share::mappings() {
        if !object.segments.iter().any(|s| s.start <= m.start && m.end <= s.end) {
            continue;
        }
        let prot = if m.writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let in_data = object.segments.iter().any(|s| s.writable && s.start <= m.start && m.end <= s.end);
        if in_data && !object.is_private() {
            // Also what is read-only after relocation: its content is not the file's.
            let offset = file.move_here(m.start, m.end)?;
            if !m.writable {
                // SAFETY: as it was before.
                unsafe {
                    sys::syscall(libc::SYS_mprotect, [m.start, m.end - m.start, prot as usize, 0, 0, 0])?;
                }
            }
            replay::also_map(m.start, m.end - m.start, prot, libc::MAP_SHARED, file.fd(), offset);
        } else if m.inode != 0
            && !m.writable
            && let Ok(code) = std::fs::File::open(&object.name)
        {
            let prot = prot | if m.executable { libc::PROT_EXEC } else { 0 };
            replay::mapped(
                m.start,
                m.end - m.start,
                prot,
                libc::MAP_PRIVATE,
                code.as_raw_fd(),
                m.offset as i64,
            );
        }
    }
    Ok(())
}
