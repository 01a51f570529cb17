//! Libraries that are loaded with `dlopen`, before or after workers exist, and libraries that are closed.
//!
//! `wrap::replay` notes that the program called `dlopen` or `dlclose`. Before the next region starts, the master moves new
//! libraries' data to shared memory, as the constructor did for the first ones. Existing workers repeat the libraries' mappings
//! (`wrap::replay`), and take over the dynamic linker's state (`linker_state`).

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_memory::segment::fill::Which;
use atoll_memory::spin::Spin;
use atoll_memory::sys::{self, Errno};

use super::objects::{self, Object};
use super::share::{self, PinnedFile};
use super::{linker_state, mappings};
use crate::state::{self, SignalsBlocked};
use crate::wrap::replay;

static PENDING: AtomicBool = AtomicBool::new(false);
static HERE_ALONE: AtomicBool = AtomicBool::new(false);
static FILE: Spin<Option<PinnedFile>> = Spin::new(None);
/// The load addresses of the objects that are shared already.
static KNOWN: Spin<Vec<usize>> = Spin::new(Vec::new());

/// Starts when the constructor is done: `objects` are known, and `file` takes the data of later ones.
pub(super) fn begin(file: PinnedFile, objects: &[Object]) {
    *FILE.lock() = Some(file);
    *KNOWN.lock() = objects.iter().map(|o| o.base).collect();
}

/// Whether a library has been loaded that the other nodes do not have; false on one node.
pub(crate) fn is_here_alone() -> bool {
    HERE_ALONE.load(Ordering::Relaxed)
}

/// Notes that the program is about to load a library in the master.
pub(crate) fn expect() {
    PENDING.store(true, Ordering::Relaxed);
}

/// Notes that the program has closed a library in the master, in whose place another one may be loaded.
pub(crate) fn closed() {
    let loaded = objects::loaded();
    let _blocked = SignalsBlocked::new();
    KNOWN.lock().retain(|base| loaded.iter().any(|object| object.base == *base));
    PENDING.store(true, Ordering::Relaxed);
}

/// Shares the libraries loaded since the last call. The master calls it when no other worker runs.
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

/// Shares a library while no worker exists: its data becomes shared as that of the first libraries did, large globals in the
/// arena.
fn share_first(object: &Object, file: &mut PinnedFile) -> Result<(), Errno> {
    let Some(pager) = state::pager() else { return Ok(()) };
    let mut contents = Vec::new();
    share::share_object(object, pager, file, &mut contents)?;
    pager.register_ranges(0)?;
    share::restore(contents);
    Ok(())
}

/// Shares a library while workers exist, which repeat its mappings.
fn share_one(object: &Object, file: &mut PinnedFile) -> Result<(), Errno> {
    for m in mappings::all() {
        if !object.segments.iter().any(|s| s.start <= m.start && m.end <= s.end) {
            continue;
        }
        let prot = if m.writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let in_data = object.segments.iter().any(|s| s.writable && s.start <= m.start && m.end <= s.end);
        if in_data && !object.is_private() {
            // Data that is read-only after relocation is shared, too: its content is not the file's.
            let offset = file.move_here(m.start, m.end)?;
            if !m.writable {
                // SAFETY: sets the protection that the memory had.
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
