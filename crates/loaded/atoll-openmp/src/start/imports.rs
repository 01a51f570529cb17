//! The symbols and libraries that loaded objects import: which libraries the executable itself names, and whether any object
//! calls `fork`.
//!
//! `constructor` asks before it makes the program managed: an interpreter whose libraries bring OpenMP, as R's and Octave's do,
//! starts other programs by `fork` and is managed as a program without OpenMP.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{Elf64_Phdr, Elf64_Sym};

/// An entry of a dynamic section.
#[repr(C)]
struct Entry {
    tag: i64,
    value: usize,
}

const DT_NEEDED: i64 = 1;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_PLTRELSZ: i64 = 2;
const DT_JMPREL: i64 = 23;

/// A relocation.
#[repr(C)]
struct Relocation {
    place: u64,
    /// The symbol's number in the upper half.
    info: u64,
    addend: i64,
}

/// The findings over all objects.
#[derive(Default)]
struct Found {
    /// The number of objects examined.
    objects: usize,
    /// Whether the executable itself names an OpenMP runtime.
    openmp_of_executable: bool,
    /// Whether an object that is no part of libc calls `fork`.
    forks: bool,
}

/// Whether only libraries bring OpenMP, to a program that may fork.
pub(super) fn is_interpreter() -> bool {
    let found = look_at_all();
    found.forks && !found.openmp_of_executable
}

/// Whether the program or a library of its own may fork.
pub(super) fn calls_fork() -> bool {
    look_at_all().forks
}

fn look_at_all() -> Found {
    let mut found = Found::default();
    // SAFETY: the callback gets the structure it expects.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker's description of one loaded object, and the structure given above.
    unsafe {
        let (info, found) = (&*info, &mut *found.cast::<Found>());
        let first = found.objects == 0;
        found.objects += 1;
        let headers: &[Elf64_Phdr] = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
        let name = CStr::from_ptr(info.dlpi_name).to_string_lossy();
        let file = name.rsplit('/').next().unwrap_or("");
        let of_libc = ["libc.so", "ld-linux", "libpthread", "linux-vdso", "libatoll"];
        if !first && of_libc.iter().any(|part| file.starts_with(part)) {
            return 0;
        }
        let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else { return 0 };
        Dynamic::read((info.dlpi_addr + dynamic.p_vaddr) as *const Entry).enter(found, first);
    }
    0
}

/// The parts of a dynamic section that matter here.
struct Dynamic {
    needed: Vec<usize>,
    strings: usize,
    symbols: usize,
    /// Address and bytes of the two tables of relocations, which name each function that is imported.
    relocations: [(usize, usize); 2],
}

impl Dynamic {
    /// # Safety
    /// The entries are the dynamic section of an object that the dynamic linker has loaded, so addresses in it are relocated.
    unsafe fn read(mut entry: *const Entry) -> Dynamic {
        let mut dynamic = Dynamic { needed: Vec::new(), strings: 0, symbols: 0, relocations: [(0, 0); 2] };
        // SAFETY: the caller's promise; the last entry has tag 0.
        unsafe {
            while (*entry).tag != 0 {
                match (*entry).tag {
                    DT_NEEDED => dynamic.needed.push((*entry).value),
                    DT_STRTAB => dynamic.strings = (*entry).value,
                    DT_SYMTAB => dynamic.symbols = (*entry).value,
                    DT_RELA => dynamic.relocations[0].0 = (*entry).value,
                    DT_RELASZ => dynamic.relocations[0].1 = (*entry).value,
                    DT_JMPREL => dynamic.relocations[1].0 = (*entry).value,
                    DT_PLTRELSZ => dynamic.relocations[1].1 = (*entry).value,
                    _ => {}
                }
                entry = entry.add(1);
            }
        }
        dynamic
    }

    /// # Safety
    /// As for [`read`](Self::read).
    unsafe fn enter(&self, found: &mut Found, is_executable: bool) {
        if self.strings == 0 {
            return;
        }
        // SAFETY: the caller's promise: offsets into the object's strings.
        let text =
            |offset: usize| unsafe { CStr::from_ptr((self.strings + offset) as *const c_char).to_bytes() };
        if is_executable {
            let runtimes: [&[u8]; 4] = [b"libgomp.so", b"libomp.so", b"libomp5.so", b"libiomp5.so"];
            found.openmp_of_executable =
                self.needed.iter().any(|at| runtimes.iter().any(|r| text(*at).starts_with(r)));
        }
        if self.symbols == 0 || found.forks {
            return;
        }
        found.forks = self.relocations.iter().filter(|(at, _)| *at != 0).any(|&(at, bytes)| {
            let count = bytes / size_of::<Relocation>();
            // SAFETY: the caller's promise: a table of the object's.
            let table = unsafe { std::slice::from_raw_parts(at as *const Relocation, count) };
            table.iter().any(|relocation| {
                let number = (relocation.info >> 32) as usize;
                // SAFETY: the caller's promise: a symbol that the object names.
                let symbol = unsafe { &*(self.symbols as *const Elf64_Sym).add(number) };
                number != 0 && symbol.st_shndx == 0 && text(symbol.st_name as usize) == b"fork"
            })
        });
    }
}
