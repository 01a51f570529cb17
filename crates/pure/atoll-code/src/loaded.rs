//! The objects of the running process: their code for [`Code::reach`], their identity for [`crate::link_map`].
//!
//! This is the only part of the crate that uses the process it runs in. It reads what the dynamic linker tells about each
//! object, inside the linker's own call, so no object can be unloaded meanwhile.
//!
//! Used by the runtime before a region's first run and at start. Allocates: not for signal handlers or the fault path.

use std::ffi::{CStr, c_int, c_void};

use crate::elf::{self, Image, Part};
use crate::input::{Function, Processor};
use crate::link_map::Library;
use crate::reach::Code;

/// Calls `use_code` with the code of all loaded objects. `symbols` are functions of the program in addition to those that it
/// exports ([`elf::symbols`] of its file), so that findings have names; it may be empty. `None` if the dynamic linker names no
/// object, as in a static program.
///
/// Nothing can be loaded or unloaded during the call: `use_code` must not wait for a thread that calls `dlopen`.
pub fn with_code<R>(symbols: &[Function<'_>], use_code: impl FnOnce(&Code<'_>) -> R) -> Option<R> {
    with_objects(|objects| {
        let mut images: Vec<Image<'_>> = objects.iter().map(Loaded::image).collect();
        let program = images.first_mut()?;
        program.symbols = symbols.to_vec();
        Some(use_code(&Code::new(elf::link(images))))
    })?
}

/// All loaded objects, the program first.
pub fn libraries() -> Vec<Library> {
    with_objects(|objects| objects.iter().map(Loaded::library).collect()).unwrap_or_default()
}

/// An object as the dynamic linker describes it. It stays loaded during the linker's call, for which `'a` stands.
struct Loaded<'a> {
    name: String,
    base: u64,
    headers: &'a [libc::Elf64_Phdr],
}

/// The state of the linker's callback.
struct Visit<F, R> {
    visit: Option<F>,
    result: Option<R>,
}

/// Calls `visit` with all loaded objects while the linker keeps them loaded.
fn with_objects<R, F: FnOnce(&[Loaded<'_>]) -> R>(visit: F) -> Option<R> {
    let mut state = Visit { visit: Some(visit), result: None };
    // SAFETY: the callback gets the state it is made for, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first::<F, R>), (&raw mut state).cast()) };
    state.result
}

/// Called for the first object, with the linker's lock held, which is recursive: the whole list is read in here and used before
/// the lock is freed.
unsafe extern "C" fn first<F: FnOnce(&[Loaded<'_>]) -> R, R>(
    _: *mut libc::dl_phdr_info,
    _: usize,
    state: *mut c_void,
) -> c_int {
    let mut objects: Vec<Loaded<'_>> = Vec::new();
    // SAFETY: the state is `with_objects`'s, used by nobody else now; the inner callback gets the list it is made for.
    let state = unsafe {
        libc::dl_iterate_phdr(Some(collect), (&raw mut objects).cast());
        &mut *state.cast::<Visit<F, R>>()
    };
    if let Some(visit) = state.visit.take() {
        state.result = Some(visit(&objects));
    }
    1
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, list: *mut c_void) -> c_int {
    // SAFETY: the linker's description of one object, valid while the object is loaded; `list` is the vector given above.
    let (info, list) = unsafe { (&*info, &mut *list.cast::<Vec<Loaded<'_>>>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    let name = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: a C string that lives as long as the object.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    // SAFETY: the object's program headers, mapped as long as it is loaded.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    list.push(Loaded { name, base: info.dlpi_addr, headers });
    0
}

impl<'a> Loaded<'a> {
    fn segments(&self) -> impl Iterator<Item = &'a libc::Elf64_Phdr> + use<'a> {
        self.headers.iter().filter(|h| h.p_type == libc::PT_LOAD)
    }

    fn address(&self, header: &libc::Elf64_Phdr) -> u64 {
        self.base.wrapping_add(header.p_vaddr)
    }

    /// The content of a segment, if it is mapped for reading and never written.
    fn constant(&self, header: &libc::Elf64_Phdr) -> Option<&'a [u8]> {
        if header.p_flags & libc::PF_R == 0 || header.p_flags & libc::PF_W != 0 {
            return None;
        }
        let start = std::ptr::with_exposed_provenance(self.address(header) as usize);
        // SAFETY: a segment that the linker mapped readable from the object's file and that nobody may write.
        Some(unsafe { std::slice::from_raw_parts(start, header.p_filesz as usize) })
    }

    /// A copy of a part that is written only before the program runs.
    fn settled(&self, header: &libc::Elf64_Phdr) -> Vec<u8> {
        let inside = |h: &libc::Elf64_Phdr| {
            let end = header.p_vaddr.checked_add(header.p_memsz);
            h.p_vaddr <= header.p_vaddr
                && end.is_some_and(|end| end <= h.p_vaddr + h.p_memsz)
                && h.p_flags & libc::PF_R != 0
        };
        if !self.segments().any(inside) {
            return Vec::new();
        }
        let start = std::ptr::with_exposed_provenance::<u8>(self.address(header) as usize);
        // SAFETY: inside a readable segment; relocation, the last write, is over for every object that is listed.
        unsafe { std::slice::from_raw_parts(start, header.p_memsz as usize) }.to_vec()
    }

    fn image(&self) -> Image<'a> {
        let find = |kind| self.headers.iter().find(|h| h.p_type == kind);
        let parts = self.segments().filter_map(|h| {
            let bytes = self.constant(h)?;
            let executable = h.p_flags & libc::PF_X != 0;
            Some(Part { address: self.address(h), bytes, executable, writable: false })
        });
        let written: Vec<(u64, u64)> = self
            .segments()
            .filter(|h| h.p_flags & libc::PF_W != 0 && h.p_flags & libc::PF_R != 0)
            .map(|h| (self.address(h), self.address(h).saturating_add(h.p_memsz)))
            .collect();
        Image {
            name: self.name.clone(),
            processor: Processor::HERE,
            base: self.base,
            end: self.end(),
            parts: parts.collect(),
            dynamic: find(libc::PT_DYNAMIC).map(|h| self.settled(h)).unwrap_or_default(),
            unwind: find(libc::PT_GNU_EH_FRAME).map(|h| self.address(h)),
            relocated: find(libc::PT_GNU_RELRO)
                .map_or((0, 0), |h| (self.address(h), self.address(h).saturating_add(h.p_memsz))),
            words: Some(Box::new(move |address| word(&written, address))),
            symbols: Vec::new(),
        }
    }

    fn start(&self) -> u64 {
        self.segments().map(|h| self.address(h) & !4095).min().unwrap_or(self.base)
    }

    fn end(&self) -> u64 {
        self.segments().map(|h| self.address(h).saturating_add(h.p_memsz)).max().unwrap_or(self.base)
    }

    fn library(&self) -> Library {
        let size = self.end().next_multiple_of(4096).saturating_sub(self.start());
        let image = self.image();
        let notes = self.headers.iter().filter(|h| h.p_type == libc::PT_NOTE);
        let build_id = notes.filter_map(|h| elf::build_id(&self.settled(h))).next();
        Library {
            name: self.name.clone(),
            soname: image.soname().map(str::to_string),
            base: self.base,
            size,
            build_id: build_id.unwrap_or_default(),
        }
    }
}

/// The present value of an aligned word of a writable segment.
fn word(written: &[(u64, u64)], address: u64) -> Option<u64> {
    let end = address.checked_add(8)?;
    if !address.is_multiple_of(8) || !written.iter().any(|&(from, to)| from <= address && end <= to) {
        return None;
    }
    let word = std::ptr::with_exposed_provenance::<u64>(address as usize);
    // SAFETY: aligned and inside a readable segment of a loaded object; the linker may be writing it, hence volatile.
    Some(unsafe { word.read_volatile() })
}
