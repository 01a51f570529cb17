//! The objects that the dynamic linker loaded: which are libc's own, where their writable data lies, and which globals are
//! large.
//!
//! Used by the constructor, and by the mapping wrappers to know calls from inside this library.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use object::elf;
use object::read::elf::{ElfFile64, FileHeader as _, Sym as _};

static OWN: Code = Code::unknown();
static LIBC: Code = Code::unknown();
static LINKER: Code = Code::unknown();
/// The code of the objects whose data is private, the dynamic linker and libc among them.
static PRIVATE: [Code; 16] = [const { Code::unknown() }; 16];

/// A loaded object and its writable data.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    /// The file's path; empty for the executable.
    pub(crate) name: String,
    /// The address it is loaded to.
    pub(crate) base: usize,
    /// Writable stretches that stay writable after relocation, as start and end.
    pub(crate) data: Vec<(usize, usize)>,
    /// All stretches that the object is loaded to, in whole pages.
    pub(crate) segments: Vec<Segment>,
}

/// The range of an object's code; empty until [`loaded`] has seen the object.
struct Code {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Code {
    const fn unknown() -> Code {
        Code { start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }

    fn is_known(&self) -> bool {
        self.end.load(Ordering::Relaxed) != 0
    }

    fn set(&self, start: usize, end: usize) {
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
    }

    #[inline]
    fn contains(&self, address: usize) -> bool {
        address >= self.start.load(Ordering::Relaxed) && address < self.end.load(Ordering::Relaxed)
    }
}

/// A stretch of a loaded object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Whether the stretch is writable, at least until relocation is over.
    pub(crate) writable: bool,
}

impl Object {
    /// The file name without directories.
    pub(crate) fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or("")
    }

    /// Whether the object's data stays private to each worker. libc and what belongs to it keep state that means something to
    /// one process only (locks by private futex, thread lists); the caches of libgcc_s are guarded by such locks.
    pub(crate) fn is_private(&self) -> bool {
        const PRIVATE: [&str; 8] = [
            "ld-linux",
            "libc.so",
            "libm.so",
            "libgcc_s.",
            "libpthread",
            "libdl.so",
            "librt.so",
            "linux-vdso",
        ];
        self.is_openmp() || PRIVATE.iter().any(|p| self.file_name().starts_with(p))
    }

    /// Whether this is the OpenMP runtime of LLVM's or Intel's compilers.
    pub(crate) fn is_llvm(&self) -> bool {
        !self.file_name().starts_with("libgomp.so")
    }

    /// Whether this is an OpenMP runtime that this library replaces: gcc's, LLVM's or Intel's.
    pub(crate) fn is_openmp(&self) -> bool {
        const RUNTIMES: [&str; 4] = ["libgomp.so", "libomp.so", "libomp5.so", "libiomp5.so"];
        RUNTIMES.iter().any(|runtime| self.file_name().starts_with(runtime))
    }
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, to: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker's description of one object; `to` is the vector given below.
    unsafe {
        let info = &*info;
        let list = &mut *to.cast::<Vec<Object>>();
        let name = CStr::from_ptr(info.dlpi_name).to_string_lossy().into_owned();
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
        let base = info.dlpi_addr as usize;
        let relro = headers
            .iter()
            .find(|h| h.p_type == libc::PT_GNU_RELRO)
            .map(|h| (base + h.p_vaddr as usize, base + (h.p_vaddr + h.p_memsz) as usize));
        let here = collect as *const () as usize;
        let in_libc = libc::gnu_get_libc_version as *const () as usize;
        let in_linker = super::linker_state::__tls_get_addr as *const () as usize;
        let mut data = Vec::new();
        let mut segments = Vec::new();
        for h in headers.iter().filter(|h| h.p_type == libc::PT_LOAD) {
            let (start, end) = (base + h.p_vaddr as usize, base + (h.p_vaddr + h.p_memsz) as usize);
            if h.p_flags & libc::PF_X != 0 {
                for (code, inside) in [(&OWN, here), (&LIBC, in_libc), (&LINKER, in_linker)] {
                    if (start..end).contains(&inside) {
                        code.set(start, end);
                    }
                }
            }
            segments.push(Segment {
                start: start & !4095,
                end: end.next_multiple_of(4096),
                writable: h.p_flags & libc::PF_W != 0,
            });
            if h.p_flags & libc::PF_W != 0 {
                // Data that is read-only after relocation ends at a page boundary and stays as it is.
                let from =
                    relro.map_or(
                        start,
                        |(a, b)| {
                            if a >= start && b <= end { (b & !4095).max(start) } else { start }
                        },
                    );
                if from < end {
                    data.push((from & !4095, end.next_multiple_of(4096)));
                }
            }
        }
        let object = Object { name, base, data, segments };
        if object.is_private() {
            let code = headers.iter().find(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0);
            let range = code.map(|h| (base + h.p_vaddr as usize, base + (h.p_vaddr + h.p_memsz) as usize));
            let known = |start| PRIVATE.iter().any(|code| code.contains(start));
            if let Some((start, end)) = range.filter(|(start, _)| !known(*start))
                && let Some(place) = PRIVATE.iter().find(|code| !code.is_known())
            {
                place.set(start, end);
            }
        }
        list.push(object);
    }
    0
}

/// All loaded objects, the executable first.
pub(crate) fn loaded() -> Vec<Object> {
    let mut list: Vec<Object> = Vec::new();
    // SAFETY: the callback gets the vector it expects.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut list).cast()) };
    list
}

/// Whether the address is in this library's code.
#[inline]
pub(crate) fn is_own_code(address: usize) -> bool {
    OWN.contains(address)
}

/// Address and bytes of this library's code.
pub(crate) fn own_code() -> (usize, usize) {
    let start = OWN.start.load(Ordering::Relaxed);
    (start, OWN.end.load(Ordering::Relaxed) - start)
}

/// Whether some of `start..end` is this library's code.
pub(crate) fn is_own_code_between(start: usize, end: usize) -> bool {
    OWN.start.load(Ordering::Relaxed) < end && start < OWN.end.load(Ordering::Relaxed)
}

/// Is the address in code of an object whose data is private?
#[inline]
pub(crate) fn is_private_code(address: usize) -> bool {
    PRIVATE.iter().any(|code| code.contains(address))
}

/// Whether the address is in the dynamic linker's code.
#[inline]
pub(crate) fn is_linker_code(address: usize) -> bool {
    LINKER.contains(address)
}

/// Whether the address is in libc's code.
#[inline]
pub(crate) fn is_libc_code(address: usize) -> bool {
    LIBC.contains(address)
}

/// The object's large globals by its symbol table, as start and end, ascending. For an object without symbols, all of its
/// zero-initialised data counts as one global if that is large.
pub(crate) fn large_globals(object: &Object, least: usize) -> Vec<(usize, usize)> {
    let path = if object.name.is_empty() { "/proc/self/exe" } else { &object.name };
    let total: usize = object.data.iter().map(|(a, b)| b - a).sum();
    if total < least {
        return Vec::new();
    }
    let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
    let Ok(file) = ElfFile64::<object::Endianness>::parse(&*bytes) else { return Vec::new() };
    let endian = file.endian();
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut symbols = 0;
    for table in [file.elf_symbol_table(), file.elf_dynamic_symbol_table()] {
        for symbol in table.iter() {
            if symbol.st_type() != elf::STT_OBJECT || symbol.st_size(endian) == 0 {
                continue;
            }
            symbols += 1;
            let start = object.base + symbol.st_value(endian) as usize;
            let end = start + symbol.st_size(endian) as usize;
            if end - start >= least && object.data.iter().any(|&(a, b)| start >= a && end <= b) {
                found.push((start, end));
            }
        }
        if symbols > 0 && !found.is_empty() {
            break;
        }
    }
    if found.is_empty()
        && let Ok(headers) = file.elf_header().program_headers(endian, &*bytes)
    {
        use object::read::elf::ProgramHeader as _;
        let stripped = file.elf_symbol_table().is_empty();
        for h in headers.iter().filter(|h| stripped && h.p_type(endian) == elf::PT_LOAD) {
            let from = object.base + (h.p_vaddr(endian) + h.p_filesz(endian)) as usize;
            let to = object.base + (h.p_vaddr(endian) + h.p_memsz(endian)) as usize;
            if h.p_flags(endian).0 & libc::PF_W != 0 && to.saturating_sub(from) >= least.max(1 << 20) {
                found.push((from, to));
            }
        }
    }
    found.sort_unstable();
    // Symbols may alias or lie next to each other: stretches that touch, or nearly do, are joined.
    let mut joined: Vec<(usize, usize)> = Vec::new();
    for (start, end) in found {
        match joined.last_mut() {
            Some((_, last)) if start <= *last + 64 => *last = (*last).max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_code_only_once_that_is_known() {
        let code = Code::unknown();
        assert!(!code.contains(0));
        code.set(0x1000, 0x2000);
        assert!(
            code.contains(0x1000) && code.contains(0x1fff) && !code.contains(0x2000) && !code.contains(0xfff)
        );
    }
}
