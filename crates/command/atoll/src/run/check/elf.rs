//! Reads what the check needs to know of one executable or library.

use std::fs::File;
use std::path::Path;

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, ReadRef};

use crate::arch;

/// The reason why a file cannot be looked at.
#[derive(thiserror::Error, Debug)]
pub(crate) enum ElfError {
    /// The system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file starts like an ELF file but is not a whole one.
    #[error("its ELF structure is damaged ({0})")]
    Damaged(#[from] object::Error),
}

/// The facts about an executable or library.
#[derive(Debug, Default)]
pub(crate) struct Elf {
    /// Whether it names a dynamic linker to load it with; an executable without one is static.
    pub(crate) interpreter: bool,
    /// Whether the dynamic linker that it asks for is musl's.
    pub(crate) musl: bool,
    /// The libraries that it needs, by name.
    pub(crate) needed: Vec<String>,
    /// DT_RUNPATH, or DT_RPATH where there is none, split at colons.
    pub(crate) run_path: Vec<String>,
    /// The OpenMP symbols that it imports and cannot do without.
    pub(crate) imports: Vec<String>,
    /// The OpenMP symbols that it exports.
    pub(crate) exports: Vec<String>,
    /// Whether it imports functions that start other programs or load libraries.
    pub(crate) goes_on: bool,
    /// The sanitizer whose runtime it needs, or holds, as `-fsanitize` names it, if that is one of [`SANITIZERS`].
    pub(crate) sanitizer: Option<&'static str>,
}

/// The sanitizers that lay out the address space and replace `malloc` themselves: the name of the library of each, the function that
/// begins it, and what `-fsanitize` calls it.
const SANITIZERS: [(&str, &str, &str); 4] = [
    ("asan", "__asan_init", "address"),
    ("hwasan", "__hwasan_init", "hwaddress"),
    ("msan", "__msan_init", "memory"),
    ("tsan", "__tsan_init", "thread"),
];

/// The sanitizer whose library this is: gcc's libasan.so.8, LLVM's libclang_rt.asan-x86_64.so.
fn sanitizer_of_library(name: &str) -> Option<&'static str> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let stem = name.strip_prefix("libclang_rt.").or(name.strip_prefix("lib"))?;
    let is_of = |library: &&str| {
        stem.strip_prefix(*library).is_some_and(|rest| rest.starts_with('.') || rest.starts_with('-'))
    };
    SANITIZERS.iter().find(|(library, ..)| is_of(library)).map(|(.., flag)| *flag)
}

/// The sanitizer that this function begins.
fn sanitizer_that_begins(function: &[u8]) -> Option<&'static str> {
    SANITIZERS.iter().find(|(_, begins, _)| begins.as_bytes() == function).map(|(.., flag)| *flag)
}

/// The kinds of files, by their first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A 64-bit executable or library for this processor.
    Native,
    /// An ELF file of 32 bits.
    Bits32,
    /// An ELF file of another architecture.
    Foreign,
    /// A script and its interpreter's path.
    Script(String),
    /// Neither an ELF file nor a script.
    Other,
}

/// Looks at the first bytes of a file.
pub(crate) fn kind(head: &[u8]) -> Kind {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        return Kind::Script(line.split_ascii_whitespace().next().unwrap_or_default().to_owned());
    }
    match head {
        [0x7f, b'E', b'L', b'F', class, data, ..] if head.len() >= 20 => {
            let machine = u16::from_le_bytes([head[18], head[19]]);
            match (elf::FileClass(*class), elf::DataEncoding(*data), elf::Machine(machine)) {
                (elf::ELFCLASS64, elf::ELFDATA2LSB, arch::MACHINE) => Kind::Native,
                (elf::ELFCLASS32, elf::ELFDATA2LSB, machine)
                    if arch::MACHINES_OF_32_BITS.contains(&machine) =>
                {
                    Kind::Bits32
                }
                _ => Kind::Foreign,
            }
        }
        _ => Kind::Other,
    }
}

/// Whether this function starts another program, or loads a library.
fn goes_on(name: &str) -> bool {
    const STARTS: [&str; 5] = ["exec", "fexecve", "posix_spawn", "dlopen", "dlmopen"];
    const NAMES: [&str; 8] = ["fork", "vfork", "_Fork", "clone", "clone3", "system", "popen", "syscall"];
    STARTS.iter().any(|start| name.starts_with(start)) || NAMES.contains(&name)
}

/// Whether an OpenMP runtime provides this name.
fn is_openmp(name: &str) -> bool {
    const BEGINS: [&str; 6] = ["GOMP_", "omp_", "__kmpc_", "kmp_", "kmpc_", "ompc_"];
    BEGINS.iter().any(|begin| name.starts_with(begin))
}

impl Elf {
    /// Reads a native ELF file.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(crate) fn open(path: &Path) -> Result<Elf, ElfError> {
        // Only what is asked for is read: a library may be larger than what the program may keep in memory.
        Elf::read(&ReadCache::new(File::open(path)?))
    }

    fn read<'data>(data: impl ReadRef<'data>) -> Result<Elf, ElfError> {
        let file = elf::FileHeader64::<Endianness>::parse(data)?;
        let endian = file.endian()?;
        let mut found = Elf::default();
        for header in file.program_headers(endian, data)? {
            found.interpreter |= header.p_type(endian) == elf::PT_INTERP;
            let linker = header.interpreter(endian, data)?.unwrap_or_default();
            found.musl |= String::from_utf8_lossy(linker).contains("ld-musl");
        }
        let (mut run_path, mut r_path) = (None, None);
        let sections = file.sections(endian, data)?;
        if let Some((entries, strings)) = sections.dynamic(endian, data)? {
            let strings = sections.strings(endian, data, strings)?;
            for entry in entries {
                let slot = match entry.d_tag(endian) {
                    elf::DT_NEEDED => None,
                    elf::DT_RUNPATH => Some(&mut run_path),
                    elf::DT_RPATH => Some(&mut r_path),
                    _ => continue,
                };
                let text = String::from_utf8_lossy(entry.string(endian, strings)?).into_owned();
                match slot {
                    None => found.needed.push(text),
                    Some(slot) => *slot = Some(text),
                }
            }
        }
        let paths = run_path.or(r_path).unwrap_or_default();
        found.run_path = paths.split(':').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
        // The names as a whole: one by one they are thousands of system calls.
        let names = match symbols.string_section().0 {
            0 => &[][..],
            _ => sections.section(symbols.string_section())?.data(endian, data)?,
        };
        found.sanitizer = found.needed.iter().find_map(|name| sanitizer_of_library(name));
        let mut has_sanitizer = false;
        for symbol in symbols.iter() {
            let name = name_at(names, symbol.st_name(endian));
            if !symbol.is_undefined(endian) {
                found.sanitizer = found.sanitizer.or(sanitizer_that_begins(name));
            }
            let Ok(name) = std::str::from_utf8(name) else { continue };
            has_sanitizer |= name.starts_with("__sanitizer_");
            found.goes_on |= symbol.is_undefined(endian) && goes_on(name);
            if !is_openmp(name) {
                continue;
            }
            if !symbol.is_undefined(endian) {
                found.exports.push(name.to_owned());
            } else if !symbol.is_weak() {
                found.imports.push(name.to_owned());
            }
        }
        // gcc links a sanitizer in without exporting what begins it. The table of all symbols is large, and read for these programs only.
        if has_sanitizer && found.sanitizer.is_none() {
            let symbols = sections.symbols(endian, data, elf::SHT_SYMTAB)?;
            if symbols.string_section().0 != 0 {
                let names = sections.section(symbols.string_section())?.data(endian, data)?;
                let mut defined = symbols.iter().filter(|symbol| !symbol.is_undefined(endian));
                found.sanitizer =
                    defined.find_map(|symbol| sanitizer_that_begins(name_at(names, symbol.st_name(endian))));
            }
        }
        Ok(found)
    }
}

/// The name that begins at `at` among `names`.
fn name_at(names: &[u8], at: u32) -> &[u8] {
    let name = names.get(at as usize..).unwrap_or_default();
    name.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_sanitizers_are_known_by_their_names() {
        let of = sanitizer_of_library;
        assert_eq!([of("libasan.so.8"), of("/usr/lib/libtsan.so.2")], [Some("address"), Some("thread")]);
        let of_llvm = ["libclang_rt.asan-x86_64.so", "libclang_rt.hwasan.so"].map(of);
        assert_eq!(of_llvm, [Some("address"), Some("hwaddress")]);
        assert_eq!(["libubsan.so.1", "liblsan.so.0", "libasana.so", "asan.so"].map(of), [None; 4]);
    }

    #[test]
    fn the_first_bytes_tell_what_a_file_is() {
        let elf = |class, data, machine: u16| {
            let mut head = [0; 20];
            head[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, data]);
            head[18..].copy_from_slice(&machine.to_le_bytes());
            kind(&head)
        };
        let [bits_32, _] = arch::MACHINES_OF_32_BITS;
        let foreign = [62, 183].into_iter().find(|machine| *machine != arch::MACHINE.0).unwrap();
        assert_eq!(elf(2, 1, arch::MACHINE.0), Kind::Native);
        assert_eq!(elf(1, 1, bits_32.0), Kind::Bits32);
        assert_eq!(elf(2, 1, foreign), Kind::Foreign);
        assert_eq!(kind(b"#! /bin/sh -e\necho"), Kind::Script("/bin/sh".into()));
        assert_eq!(kind(b"#!"), Kind::Script(String::new()));
        assert_eq!(kind(b"echo"), Kind::Other);
        assert_eq!(kind(b"\x7fELF"), Kind::Other);
    }
}
