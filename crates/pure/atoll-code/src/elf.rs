//! Converts an ELF object's memory, or its file, to the analysis's input.
//!
//! An [`Image`] is an object as it lies in memory; [`loaded`](crate::loaded) makes it of the running process, [`file()`] of a
//! file's bytes. [`link`] reads the linkage tables of all images and resolves them as the dynamic linker does: by name, in the
//! order of loading. Malformed parts are left out and then not followed, so the verdict stays on the safe side.

use std::collections::HashMap;

use object::LittleEndian as Le;
use object::elf::{
    self, DT_GNU_HASH, DT_HASH, DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_SONAME, DT_STRSZ, DT_STRTAB,
    DT_SYMTAB, Dyn64, FileHeader64, Rela64, Sym64,
};
use object::pod;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _, Rela as _, Sym as _};

use crate::input::{Function, Handlers, Object, Processor, Segment, Slot};
use crate::unwind;

/// The most symbols, relocations or functions of an object; a larger count is not believed.
const MOST: usize = 1 << 22;

/// Reads a word of writable memory, if it is there.
pub type Words<'a> = Box<dyn Fn(u64) -> Option<u64> + 'a>;

/// An object as it lies in memory.
#[derive(Default)]
pub struct Image<'a> {
    /// The path.
    pub name: String,
    /// The processor that its code is for.
    pub processor: Processor,
    /// The address that its own addresses are relative to.
    pub base: u64,
    /// The address behind its last loaded byte.
    pub end: u64,
    /// The mapped parts; writable ones may be left out.
    pub parts: Vec<Part<'a>>,
    /// The bytes of its dynamic section.
    pub dynamic: Vec<u8>,
    /// The address of its index of unwinding information.
    pub unwind: Option<u64>,
    /// The range that is read-only after relocation: start, end.
    pub relocated: (u64, u64),
    /// Reads the present words of its linkage tables; `None` for a file.
    pub words: Option<Words<'a>>,
    /// The functions of its symbol table, if that was read.
    pub symbols: Vec<Function<'a>>,
}

/// A mapped part of an object.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The address where it is mapped.
    pub address: u64,
    /// The content.
    pub bytes: &'a [u8],
    /// Whether it is code.
    pub executable: bool,
    /// Whether it is writable data.
    pub writable: bool,
}

/// The reasons why a file is not an image.
#[derive(Debug, thiserror::Error)]
pub enum NotAnImage {
    /// The file's headers are malformed.
    #[error("not an ELF file this can read: {0}")]
    Malformed(#[from] object::Error),
    /// The code is for another processor.
    #[error("the file's code is for a processor that is not known: it cannot be disassembled here")]
    OtherProcessor,
}

/// The image of a file loaded at `base`, with the functions of its symbol table. A program linked to fixed addresses keeps
/// those, whatever `base` is.
pub fn file<'a>(name: &str, bytes: &'a [u8], base: u64) -> Result<Image<'a>, NotAnImage> {
    let elf = ElfFile64::<Le>::parse(bytes)?;
    let header: &FileHeader64<Le> = elf.elf_header();
    let processor = match header.e_machine(Le) {
        elf::EM_X86_64 => Processor::X86_64,
        #[cfg(any(target_arch = "aarch64", feature = "aarch64"))]
        elf::EM_AARCH64 => Processor::Aarch64,
        _ => return Err(NotAnImage::OtherProcessor),
    };
    let base = if header.e_type(Le) == elf::ET_EXEC { 0 } else { base };
    let mut image = Image { name: name.to_string(), processor, base, ..Image::default() };
    for h in header.program_headers(Le, bytes)? {
        let address = base.wrapping_add(h.p_vaddr(Le));
        match h.p_type(Le) {
            elf::PT_LOAD => {
                image.end = image.end.max(address.saturating_add(h.p_memsz(Le)));
                image.parts.push(Part {
                    address,
                    bytes: h.data(Le, bytes).unwrap_or_default(),
                    executable: h.p_flags(Le).0 & elf::PF_X.0 != 0,
                    writable: h.p_flags(Le).0 & elf::PF_W.0 != 0,
                });
            }
            elf::PT_DYNAMIC => image.dynamic = h.data(Le, bytes).unwrap_or_default().to_vec(),
            elf::PT_GNU_EH_FRAME => image.unwind = Some(address),
            elf::PT_GNU_RELRO => image.relocated = (address, address.saturating_add(h.p_memsz(Le))),
            _ => {}
        }
    }
    image.symbols = symbols(bytes, base);
    Ok(image)
}

/// The functions of a file's symbol table; none if the file has been stripped or is malformed.
pub fn symbols(bytes: &[u8], base: u64) -> Vec<Function<'_>> {
    let Ok(elf) = ElfFile64::<Le>::parse(bytes) else { return Vec::new() };
    let table = elf.elf_symbol_table();
    let named = table.iter().filter(|s| s.st_type() == elf::STT_FUNC && s.st_shndx(Le) != elf::SHN_UNDEF);
    named
        .map(|s| {
            let start = base.wrapping_add(s.st_value(Le));
            let name = s.name(Le, table.strings()).ok().and_then(|n| std::str::from_utf8(n).ok());
            Function { start, end: start.saturating_add(s.st_size(Le)), name, handlers: Handlers::None }
        })
        .collect()
}

/// The build identity in a note segment, which the linker gave the object.
pub fn build_id(notes: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    let mut rest = notes;
    while let Some((header, behind)) = rest.split_at_checked(HEADER) {
        let [name, size, kind] = [0, 4, 8].map(|at| {
            let word = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_le_bytes(word) as usize
        });
        let from = name.checked_next_multiple_of(4)?;
        let data = behind.get(from..from.checked_add(size)?)?;
        if kind == elf::NT_GNU_BUILD_ID.0 as usize && behind.get(..name)? == b"GNU\0" {
            return Some(data.to_vec());
        }
        rest = behind.get(from + size.checked_next_multiple_of(4)?..)?;
    }
    None
}

impl<'a> Image<'a> {
    /// The bytes from an address to the end of its part.
    fn bytes(&self, address: u64) -> Option<&'a [u8]> {
        self.parts.iter().find_map(|part| {
            let offset = usize::try_from(address.checked_sub(part.address)?).ok()?;
            part.bytes.get(offset..).filter(|rest| !rest.is_empty())
        })
    }

    /// A table of `count` entries at an address, or as much of it as there is.
    fn table<T: pod::Pod>(&self, address: u64, count: usize) -> &'a [T] {
        let Some(bytes) = self.bytes(address) else { return &[] };
        let count = count.min(MOST).min(bytes.len() / size_of::<T>());
        pod::slice_from_bytes(bytes, count).map_or(&[], |(table, _)| table)
    }

    fn word(&self, address: u64) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes(address)?.first_chunk()?))
    }

    /// The value of a dynamic entry that is an address. Some dynamic linkers have already added the base.
    fn pointer(&self, dynamic: &Dynamic, tag: elf::DynamicTag) -> Option<u64> {
        let value = dynamic.get(tag)?;
        [value, self.base.wrapping_add(value)].into_iter().find(|&address| self.bytes(address).is_some())
    }

    /// The name that its file states for it among libraries.
    pub fn soname(&self) -> Option<&'a str> {
        let dynamic = Dynamic::read(&self.dynamic);
        let strings = self.pointer(&dynamic, DT_STRTAB)?;
        self.string(strings.checked_add(dynamic.get(DT_SONAME)?)?)
    }

    fn string(&self, address: u64) -> Option<&'a str> {
        let bytes = self.bytes(address)?;
        let end = bytes.iter().take(4096).position(|&b| b == 0)?;
        std::str::from_utf8(&bytes[..end]).ok()
    }

    fn symbol_count(&self, dynamic: &Dynamic) -> usize {
        if let Some(hash) = self.pointer(dynamic, DT_HASH) {
            return self.word(hash.wrapping_add(4)).map_or(0, |n| n as usize);
        }
        self.pointer(dynamic, DT_GNU_HASH).and_then(|hash| self.gnu_count(hash)).unwrap_or(0)
    }

    /// The number of symbols that a GNU hash table covers: to the end of the chain that starts last.
    fn gnu_count(&self, hash: u64) -> Option<usize> {
        let [buckets, first, bloom] = [0, 4, 8].map(|offset| self.word(hash.wrapping_add(offset)));
        let (buckets, first, bloom) = (buckets? as usize, first? as usize, u64::from(bloom?));
        let table = hash.wrapping_add(16 + bloom * 8);
        let heads: &[object::U32<Le>] = self.table(table, buckets);
        let last = heads.iter().map(|h| h.get(Le) as usize).max()?;
        if last < first {
            return Some(first);
        }
        let chains: &[object::U32<Le>] = self.table(table.wrapping_add(4 * buckets as u64), MOST);
        let end = chains.get(last - first..)?.iter().position(|c| c.get(Le) & 1 != 0)?;
        Some(last + end + 1)
    }
}

/// The entries of a dynamic section.
struct Dynamic(Vec<(u64, u64)>);

impl Dynamic {
    fn read(bytes: &[u8]) -> Dynamic {
        let count = bytes.len() / size_of::<Dyn64<Le>>();
        let entries: &[Dyn64<Le>] = pod::slice_from_bytes(bytes, count).map_or(&[], |(entries, _)| entries);
        Dynamic(
            entries.iter().map(|d| (d.d_tag(Le).0 as u64, d.d_val(Le))).take_while(|d| d.0 != 0).collect(),
        )
    }

    fn get(&self, tag: elf::DynamicTag) -> Option<u64> {
        self.0.iter().find(|entry| entry.0 == tag.0 as u64).map(|entry| entry.1)
    }
}

/// The definition of a name.
#[derive(Clone, Copy)]
struct Export {
    address: u64,
    /// Whether it is a function that returns the function to use, when it is resolved.
    chooses: bool,
}

/// The analysis's input, from all images of a process in the order of loading.
pub fn link<'a>(images: Vec<Image<'a>>) -> Vec<Object<'a>> {
    let mut exports: HashMap<&'a str, Export> = HashMap::new();
    let read: Vec<Tables<'a>> = images.iter().map(|image| Tables::read(image, &mut exports)).collect();
    let code: Vec<(u64, u64)> = images
        .iter()
        .flat_map(|image| image.parts.iter().filter(|p| p.executable))
        .map(|p| (p.address, p.address.saturating_add(p.bytes.len() as u64)))
        .collect();
    let is_code = |address: u64| code.iter().any(|&(start, end)| (start..end).contains(&address));
    images
        .into_iter()
        .zip(read)
        .map(|(image, tables)| {
            let slots =
                tables.relocations().filter_map(|r| slot(&image, &tables, r, &exports, &is_code)).collect();
            let at = |address| image.bytes(address);
            let mut functions = image.unwind.map_or_else(Vec::new, |index| unwind::functions(index, &at));
            functions.extend(tables.functions);
            functions.extend(image.symbols);
            let constant = image.parts.iter().filter(|part| !part.writable);
            let segments = constant
                .map(|p| Segment { address: p.address, bytes: p.bytes, executable: p.executable })
                .collect();
            Object {
                name: image.name,
                processor: image.processor,
                base: image.base,
                end: image.end,
                segments,
                slots,
                functions,
            }
        })
        .collect()
}

/// The tables read from an image.
struct Tables<'a> {
    symbols: &'a [Sym64<Le>],
    strings: u64,
    strings_size: u64,
    /// The relocations of data, and those of calls.
    relocations: [&'a [Rela64<Le>]; 2],
    functions: Vec<Function<'a>>,
}

impl<'a> Tables<'a> {
    fn read(image: &Image<'a>, exports: &mut HashMap<&'a str, Export>) -> Tables<'a> {
        let dynamic = Dynamic::read(&image.dynamic);
        let strings = image.pointer(&dynamic, DT_STRTAB).unwrap_or(0);
        let count = image.symbol_count(&dynamic);
        let symbols = image.pointer(&dynamic, DT_SYMTAB).map_or(&[][..], |at| image.table(at, count));
        let relocations = [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)].map(|(table, size)| {
            let at = image.pointer(&dynamic, table)?;
            let count = usize::try_from(dynamic.get(size)?).unwrap_or(0) / size_of::<Rela64<Le>>();
            Some(image.table(at, count))
        });
        let relocations = relocations.map(Option::unwrap_or_default);
        let strings_size = dynamic.get(DT_STRSZ).unwrap_or(0);
        let mut tables = Tables { symbols, strings, strings_size, relocations, functions: Vec::new() };
        // Relocations can name symbols behind those that the hash table covers, which are not defined here.
        if let Some(at) = image.pointer(&dynamic, DT_SYMTAB) {
            let last = tables.relocations().map(|r| r.r_sym(Le, false) as usize + 1).max().unwrap_or(0);
            tables.symbols = image.table(at, count.max(last));
        }
        for symbol in tables.symbols.iter().take(count.max(1)).skip(1) {
            let chooses = symbol.st_type() == elf::STT_GNU_IFUNC;
            let local = symbol.st_bind() == elf::STB_LOCAL;
            if symbol.st_shndx(Le) == elf::SHN_UNDEF
                || local
                || !(chooses || symbol.st_type() == elf::STT_FUNC)
            {
                continue;
            }
            let start = image.base.wrapping_add(symbol.st_value(Le));
            let Some(name) = tables.name(image, symbol) else { continue };
            exports.entry(name).or_insert(Export { address: start, chooses });
            tables.functions.push(Function {
                start,
                end: start.saturating_add(symbol.st_size(Le)),
                name: Some(name),
                handlers: Handlers::None,
            });
        }
        tables
    }

    fn relocations(&self) -> impl Iterator<Item = &'a Rela64<Le>> + use<'a> {
        self.relocations.into_iter().flatten()
    }

    fn name(&self, image: &Image<'a>, symbol: &Sym64<Le>) -> Option<&'a str> {
        let offset = u64::from(symbol.st_name(Le));
        let name =
            (offset < self.strings_size).then(|| image.string(self.strings.wrapping_add(offset)))??;
        (!name.is_empty()).then_some(name)
    }
}

/// What the dynamic linker writes into a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Relocation {
    /// The base plus a number.
    Relative,
    /// The function that another one chooses.
    Chosen,
    /// A symbol's address, for access or for calls.
    Data,
    Call,
    /// A symbol's address plus a number.
    Pointer,
}

impl Relocation {
    fn of(number: elf::RelocationType, processor: Processor) -> Option<Relocation> {
        Some(match processor {
            Processor::X86_64 => match number {
                elf::R_X86_64_RELATIVE => Relocation::Relative,
                elf::R_X86_64_IRELATIVE => Relocation::Chosen,
                elf::R_X86_64_GLOB_DAT => Relocation::Data,
                elf::R_X86_64_JUMP_SLOT => Relocation::Call,
                elf::R_X86_64_64 => Relocation::Pointer,
                _ => return None,
            },
            #[cfg(any(target_arch = "aarch64", feature = "aarch64"))]
            Processor::Aarch64 => match number {
                elf::R_AARCH64_RELATIVE => Relocation::Relative,
                elf::R_AARCH64_IRELATIVE => Relocation::Chosen,
                elf::R_AARCH64_GLOB_DAT => Relocation::Data,
                elf::R_AARCH64_JUMP_SLOT => Relocation::Call,
                elf::R_AARCH64_ABS64 => Relocation::Pointer,
                _ => return None,
            },
        })
    }
}

/// The slot that a relocation fills.
fn slot<'a>(
    image: &Image<'a>,
    tables: &Tables<'a>,
    relocation: &Rela64<Le>,
    exports: &HashMap<&'a str, Export>,
    is_code: &dyn Fn(u64) -> bool,
) -> Option<Slot<'a>> {
    let address = image.base.wrapping_add(relocation.r_offset(Le));
    let addend = relocation.r_addend(Le);
    let constant = (image.relocated.0..image.relocated.1).contains(&address);
    // The slot's present value, if that is code of any object.
    let held = || image.words.as_ref()?(address).filter(|&value| is_code(value));
    match Relocation::of(relocation.r_type(Le, false), image.processor)? {
        Relocation::Relative if constant => {
            let target = image.base.wrapping_add_signed(addend);
            is_code(target).then_some(Slot { address, name: None, target: Some(target) })
        }
        Relocation::Chosen => Some(Slot { address, name: None, target: held() }),
        kind @ (Relocation::Data | Relocation::Call | Relocation::Pointer) => {
            if kind == Relocation::Pointer && !constant {
                return None;
            }
            let symbol = tables.symbols.get(relocation.r_sym(Le, false) as usize)?;
            let name = tables.name(image, symbol);
            // The linker's value is the truth, but a slot for calls points into its own object until it is bound.
            let bound = held().filter(|&to| kind == Relocation::Data || image.bytes(to).is_none());
            let target = match name.and_then(|n| exports.get(n)) {
                _ if bound.is_some() => bound,
                Some(export) if export.chooses => None,
                Some(export) => Some(export.address.wrapping_add_signed(if kind == Relocation::Pointer {
                    addend
                } else {
                    0
                })),
                None if symbol.st_shndx(Le) != elf::SHN_UNDEF => {
                    Some(image.base.wrapping_add(symbol.st_value(Le)))
                }
                None => None,
            };
            Some(Slot { address, name, target: target.filter(|&to| is_code(to)) })
        }
        _ => None,
    }
}
