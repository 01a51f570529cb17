//! The dynamic linker's state about loaded libraries, carried from the first process to the workers.
//!
//! `late` calls it when the program has loaded or closed a library in the first process after workers were made. Each process
//! has a copy of the dynamic linker's data from when the process was cloned. With the data of the first process a worker finds
//! the library's thread-local variables, its exception tables and its symbols. A process's lists of threads (`thread_list`) are
//! left as they are.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use atoll_memory::control::MAX_WORKERS;
use atoll_memory::layout;
use atoll_memory::spin::Spin;

use super::objects::Object;
use super::{mappings, thread_list};
use crate::arch;
use crate::state::{self, SignalsBlocked};

/// A stretch of the dynamic linker's memory, with the first process's content.
struct Piece {
    at: usize,
    content: Vec<u8>,
}

/// A library's thread-local variables that every thread has at the same distance from its control block.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StaticTls {
    /// The distance in bytes from the thread's control block, to the side where the processor has variables.
    distance: usize,
    /// The address of the variables' initial values and their bytes; the rest up to `bytes` begins as zeros.
    image: usize,
    image_bytes: usize,
    bytes: usize,
}

struct Known {
    pieces: Vec<Piece>,
    /// The variables of late libraries, each with the version since which they are known.
    variables: Vec<(usize, StaticTls)>,
}

static KNOWN: Spin<Known> = Spin::new(Known { pieces: Vec::new(), variables: Vec::new() });
/// The number of changes; at 0, workers know what the first process knew when they were made.
static VERSION: AtomicUsize = AtomicUsize::new(0);
/// For each page table, the version that its process has.
static APPLIED: [AtomicUsize; MAX_WORKERS] = [const { AtomicUsize::new(0) }; MAX_WORKERS];
/// For each page table, whether its process has loaded libraries of its own, which must not be forgotten.
static OWN: [AtomicBool; MAX_WORKERS] = [const { AtomicBool::new(false) }; MAX_WORKERS];

/// Notes that the calling worker loads a library that no other process has.
pub(crate) fn keep_own() {
    OWN[state::table()].store(true, Ordering::Relaxed);
}

/// Records that the new process of page table `table` has the state of its maker, of page table `maker`.
pub(super) fn inherit(table: usize, maker: usize) {
    let known = if maker == 0 { &VERSION } else { &APPLIED[maker] };
    APPLIED[table].store(known.load(Ordering::Acquire), Ordering::Relaxed);
    OWN[table].store(OWN[maker].load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Notes the state of the first process for the others. `objects` are loaded; `is_new` tells of a base address whether the
/// object there is new.
pub(super) fn note(objects: &[Object], is_new: &dyn Fn(usize) -> bool) {
    let mut places: Vec<Range<usize>> = Vec::new();
    for object in objects.iter().filter(|object| object.file_name().starts_with("ld-linux")) {
        places.extend(object.data.iter().map(|(start, end)| *start..*end));
    }
    let mappings = mappings::all();
    for map in link_maps() {
        let known = layout::in_pinned(map) || places.iter().any(|place| place.contains(&map));
        // The descriptions of the first libraries lie in memory that the dynamic linker mapped before there was an allocator.
        let mapping = mappings.iter().find(|m| m.start <= map && map < m.end && m.writable && m.inode == 0);
        if let Some(mapping) = mapping.filter(|_| !known) {
            places.push(mapping.start..mapping.end);
        }
    }
    let known = |at: &usize| layout::in_pinned(*at) || places.iter().any(|place| place.contains(at));
    let lists: Vec<Range<usize>> = slot_lists().into_iter().filter(|list| !known(&list.start)).collect();
    places.extend(lists);
    let variables = new_variables(is_new);
    let _blocked = SignalsBlocked::new();
    let mut known = KNOWN.lock();
    let version = VERSION.load(Ordering::Relaxed) + 1;
    known.pieces = places
        .into_iter()
        .map(|at| Piece {
            at: at.start,
            // SAFETY: the dynamic linker's own data, mapped and readable; its only user is this thread, which is not in it.
            content: unsafe { std::slice::from_raw_parts(at.start as *const u8, at.len()) }.to_vec(),
        })
        .collect();
    known.variables.extend(variables.into_iter().map(|found| (version, found)));
    // Release: pairs with the Acquire in `catch_up`.
    VERSION.store(version, Ordering::Release);
}

/// The addresses of the dynamic linker's descriptions of all loaded libraries.
fn link_maps() -> Vec<usize> {
    /// Indices of words in what debuggers read (`<link.h>`): a version, then the first description; each has a base, a name, a
    /// dynamic section, the next.
    const FIRST: usize = 1;
    const NEXT: usize = 3;
    let mut maps = Vec::new();
    // SAFETY: the dynamic linker's own list, which changes only when a library is loaded or closed.
    unsafe {
        let debug = libc::dlsym(libc::RTLD_DEFAULT, c"_r_debug".as_ptr()).cast::<usize>();
        let mut at = if debug.is_null() { std::ptr::null() } else { *debug.add(FIRST) as *const usize };
        while !at.is_null() {
            maps.push(at as usize);
            at = *at.add(NEXT) as *const usize;
        }
    }
    maps
}

/// The places of the dynamic linker's list of libraries with thread-local variables: of each module its generation and its
/// description. The first part is made before there is an allocator, often in another mapping than the descriptions. Empty if
/// glibc does not say where the list is.
fn slot_lists() -> Vec<Range<usize>> {
    /// glibc's `struct dtv_slotinfo_list`, in front of its slots of two words each.
    #[repr(C)]
    struct Part {
        slots: usize,
        next: *const Part,
    }
    let global = thread_list::symbol(c"_rtld_global");
    let described = thread_list::symbol(c"_thread_db_rtld_global__dl_tls_dtv_slotinfo_list");
    let mut places = Vec::new();
    if global == 0 || described == 0 {
        return places;
    }
    // SAFETY: three numbers: bits, elements, offset. A pointer to the first part lies at that offset in the dynamic linker's data,
    // which changes only when a library is loaded or closed.
    unsafe {
        let offset = *(described as *const u32).add(2) as usize;
        let mut part = *((global + offset) as *const *const Part);
        while let Some(this) = part.as_ref() {
            let at = part as usize;
            places.push(at..at + size_of::<Part>() + this.slots * 2 * size_of::<usize>());
            part = this.next;
        }
    }
    places
}

unsafe extern "C" {
    /// The address of the calling thread's variable in the module `index[0]`, at `index[1]` bytes from the module's first.
    pub(super) fn __tls_get_addr(index: &[usize; 2]) -> usize;
}

struct Search<'a> {
    is_new: &'a dyn Fn(usize) -> bool,
    found: Vec<StaticTls>,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    /// The greatest distance of static variables: a late library has them in the small room that glibc keeps free, or
    /// elsewhere.
    const FARTHEST: usize = 1 << 20;
    // SAFETY: the dynamic linker's description of one object; `search` is the one below.
    unsafe {
        let (info, search) = (&*info, &mut *search.cast::<Search<'_>>());
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        if let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_TLS)
            && (search.is_new)(info.dlpi_addr as usize)
        {
            // The list itself names the place only after its first use.
            let at = __tls_get_addr(&[info.dlpi_tls_modid, 0]);
            let distance = arch::distance_of_variable(at);
            if distance > FARTHEST {
                return 0;
            }
            search.found.push(StaticTls {
                distance,
                image: (info.dlpi_addr + header.p_vaddr) as usize,
                image_bytes: header.p_filesz as usize,
                bytes: header.p_memsz as usize,
            });
        }
    }
    0
}

/// The variables of new libraries that lie beside every thread's control block. Those of other libraries are made when a thread
/// first uses them.
fn new_variables(is_new: &dyn Fn(usize) -> bool) -> Vec<StaticTls> {
    let mut search = Search { is_new, found: Vec::new() };
    // SAFETY: the callback gets the search above, alive for the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// Makes the calling worker take over the state that the first process noted. Costs two loads if there is none.
#[inline]
pub(crate) fn catch_up() {
    let table = state::table();
    // Acquire: pairs with the Release in `note`.
    let version = VERSION.load(Ordering::Acquire);
    if APPLIED[table].load(Ordering::Relaxed) < version && table != 0 {
        apply(table, version);
    }
}

#[cold]
fn apply(table: usize, version: usize) {
    let _blocked = SignalsBlocked::new();
    let known = KNOWN.lock();
    let before = APPLIED[table].swap(version, Ordering::Relaxed);
    if OWN[table].load(Ordering::Relaxed) {
        return;
    }
    let kept = thread_list::place();
    for piece in &known.pieces {
        let end = piece.at + piece.content.len();
        for part in [piece.at..end.min(kept.start.max(piece.at)), piece.at.max(kept.end.min(end))..end] {
            if part.start < part.end {
                // SAFETY: this process's copy of the same data; its only thread that uses it is this one, which is not in it.
                unsafe {
                    let from = piece.content.as_ptr().add(part.start - piece.at);
                    std::ptr::copy_nonoverlapping(from, part.start as *mut u8, part.len());
                }
            }
        }
    }
    for (since, variables) in &known.variables {
        if *since > before {
            // SAFETY: the room that glibc keeps free in every thread, and a library that is mapped in all processes.
            unsafe { variables.begin() };
        }
    }
}

impl StaticTls {
    /// Sets the calling thread's variables to their initial values.
    unsafe fn begin(self) {
        let at = arch::variable_at(self.distance) as *mut u8;
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(self.image as *const u8, at, self.image_bytes);
            std::ptr::write_bytes(at.add(self.image_bytes), 0, self.bytes - self.image_bytes);
        }
    }
}
