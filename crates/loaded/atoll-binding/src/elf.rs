//! The parts of the ELF format that this crate reads from memory, and how it makes pages writable.
//!
//! `object` walks these structures. Source: the System V ABI's ELF chapters, the GNU hash table as binutils writes it, and
//! `<link.h>`.

use crate::arch;

/// An entry of a dynamic section.
#[repr(C)]
pub(crate) struct Dynamic {
    pub(crate) tag: i64,
    pub(crate) value: usize,
}

pub(crate) const DT_NEEDED: i64 = 1;
pub(crate) const DT_PLTRELSZ: i64 = 2;
pub(crate) const DT_STRTAB: i64 = 5;
pub(crate) const DT_SYMTAB: i64 = 6;
pub(crate) const DT_RELA: i64 = 7;
pub(crate) const DT_RELASZ: i64 = 8;
pub(crate) const DT_SONAME: i64 = 14;
pub(crate) const DT_DEBUG: i64 = 21;
pub(crate) const DT_JMPREL: i64 = 23;
pub(crate) const DT_GNU_HASH: i64 = 0x6fff_fef5;
pub(crate) const DT_VERSYM: i64 = 0x6fff_fff0;
pub(crate) const DT_VERDEF: i64 = 0x6fff_fffc;
pub(crate) const DT_VERNEED: i64 = 0x6fff_fffe;

/// A program header.
#[repr(C)]
pub(crate) struct ProgramHeader {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: usize,
    pub(crate) address: usize,
    pub(crate) physical: usize,
    pub(crate) in_file: usize,
    pub(crate) in_memory: usize,
    pub(crate) alignment: usize,
}

pub(crate) const PT_DYNAMIC: u32 = 2;
pub(crate) const PT_PHDR: u32 = 6;
pub(crate) const PT_GNU_RELRO: u32 = 0x6474_e552;

/// The header that an object begins with.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) identity: [u8; 16],
    pub(crate) kind: u16,
    pub(crate) machine: u16,
    pub(crate) version: u32,
    pub(crate) entry: usize,
    pub(crate) program_headers: usize,
    pub(crate) section_headers: usize,
    pub(crate) flags: u32,
    pub(crate) size: u16,
    pub(crate) program_header_size: u16,
    pub(crate) program_header_count: u16,
}

/// A symbol.
#[repr(C)]
pub(crate) struct RawSymbol {
    pub(crate) name: u32,
    pub(crate) info: u8,
    pub(crate) other: u8,
    pub(crate) section: u16,
    pub(crate) value: usize,
    pub(crate) size: usize,
}

pub(crate) const STT_FUNC: u8 = 2;
pub(crate) const STT_GNU_IFUNC: u8 = 10;

/// A relocation.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Relocation {
    pub(crate) offset: usize,
    /// The symbol in the upper 32 bits, the type in the lower 32.
    pub(crate) info: u64,
    pub(crate) addend: i64,
}

/// The versions that an object needs of one file, in a list with one entry for each file.
#[repr(C)]
pub(crate) struct VersionNeeded {
    pub(crate) version: u16,
    pub(crate) count: u16,
    pub(crate) file: u32,
    pub(crate) first: u32,
    pub(crate) next: u32,
}

/// A version in such a list.
#[repr(C)]
pub(crate) struct VersionNeededEntry {
    pub(crate) hash: u32,
    pub(crate) flags: u16,
    pub(crate) index: u16,
    pub(crate) name: u32,
    pub(crate) next: u32,
}

/// A version that an object defines.
#[repr(C)]
pub(crate) struct VersionDefined {
    pub(crate) version: u16,
    pub(crate) flags: u16,
    pub(crate) index: u16,
    pub(crate) count: u16,
    pub(crate) hash: u32,
    pub(crate) names: u32,
    pub(crate) next: u32,
}

/// The dynamic linker's list of objects, which it keeps for debuggers.
#[repr(C)]
pub(crate) struct Debug {
    pub(crate) version: i32,
    pub(crate) first: *const LinkMap,
}

/// One loaded object.
#[repr(C)]
pub(crate) struct LinkMap {
    pub(crate) base: usize,
    pub(crate) name: *const u8,
    pub(crate) dynamic: *const Dynamic,
    pub(crate) next: *const LinkMap,
}

pub(crate) const AT_PHDR: usize = 3;
pub(crate) const AT_PHNUM: usize = 5;
pub(crate) const AT_HWCAP: usize = 16;
pub(crate) const AT_HWCAP2: usize = 26;

/// Makes whole pages writable, or read-only again; returns whether the kernel did.
pub(crate) fn protect(range: (usize, usize), writable: bool) -> bool {
    let (read, write) = (1usize, 2usize);
    let protection = if writable { read | write } else { read };
    // SAFETY: the pages are the library's own, and nobody else uses them while it is being set up.
    unsafe { arch::mprotect(range.0, range.1 - range.0, protection) == 0 }
}

/// Whether the string begins with these bytes.
pub(crate) fn starts_with(string: *const u8, bytes: &[u8]) -> bool {
    let mut at = string;
    for byte in bytes {
        // SAFETY: a string up to its NUL; the loop stops there, because a NUL differs from every byte asked for.
        unsafe {
            if *at != *byte {
                return false;
            }
            at = at.add(1);
        }
    }
    true
}

/// Whether both strings are the same.
pub(crate) fn is_same(a: *const u8, b: *const u8) -> bool {
    let (mut a, mut b) = (a, b);
    // SAFETY: two strings, read up to the first NUL.
    unsafe {
        while *a == *b {
            if *a == 0 {
                return true;
            }
            a = a.add(1);
            b = b.add(1);
        }
    }
    false
}

/// The part of the path after the last slash.
pub(crate) fn file_name(path: *const u8) -> *const u8 {
    let (mut at, mut name) = (path, path);
    // SAFETY: a string up to its NUL.
    unsafe {
        while *at != 0 {
            at = at.add(1);
            if *at.sub(1) == b'/' {
                name = at;
            }
        }
    }
    name
}

/// The hash of a name in a GNU hash table.
pub(crate) fn gnu_hash(name: *const u8) -> u32 {
    let (mut at, mut hash) = (name, 5381u32);
    // SAFETY: a string up to its NUL.
    unsafe {
        while *at != 0 {
            hash = hash.wrapping_mul(33).wrapping_add(u32::from(*at));
            at = at.add(1);
        }
    }
    hash
}
