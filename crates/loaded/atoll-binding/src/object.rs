//! Loaded objects as the dynamic linker left them in memory: their needs, definitions and references.
//!
//! `lib` decides with these which references are bound again; `elf` has the structures.

use core::ffi::c_char;

use crate::arch::{self, Hardware};
use crate::elf::{self, Dynamic, LinkMap, ProgramHeader, RawSymbol, Relocation};

/// All loaded objects of the process.
pub(crate) struct Chain {
    first: *const LinkMap,
    hardware: Hardware,
}

impl Chain {
    /// The dynamic linker's list, found through the executable's dynamic section, which names it for debuggers.
    ///
    /// # Safety
    /// `environment` is the process's, as the kernel laid it out: the auxiliary vector follows it.
    pub(crate) unsafe fn of_process(environment: *const *const c_char) -> Option<Chain> {
        let (mut headers, mut count) = (core::ptr::null::<ProgramHeader>(), 0);
        let mut hardware = Hardware::default();
        // SAFETY: the caller's promise; both lists end with a zero.
        unsafe {
            let mut end = environment;
            while !(*end).is_null() {
                end = end.add(1);
            }
            let mut entry = end.add(1).cast::<[usize; 2]>();
            while (*entry)[0] != 0 {
                match (*entry)[0] {
                    elf::AT_PHDR => headers = (*entry)[1] as *const ProgramHeader,
                    elf::AT_PHNUM => count = (*entry)[1],
                    elf::AT_HWCAP => hardware.first = (*entry)[1],
                    elf::AT_HWCAP2 => hardware.second = (*entry)[1],
                    _ => {}
                }
                entry = entry.add(1);
            }
        }
        if headers.is_null() {
            return None;
        }
        // SAFETY: the kernel tells where the executable's headers are.
        let find = |kind| (0..count).map(|i| unsafe { &*headers.add(i) }).find(move |h| h.kind == kind);
        let base = find(elf::PT_PHDR).map_or(0, |own| (headers as usize).wrapping_sub(own.address));
        let dynamic = (base.wrapping_add(find(elf::PT_DYNAMIC)?.address)) as *const Dynamic;
        let debug = entry(dynamic, elf::DT_DEBUG)? as *const elf::Debug;
        // SAFETY: the dynamic linker has set the pointer before any constructor.
        (!debug.is_null()).then(|| Chain { first: unsafe { (*debug).first }, hardware })
    }

    fn objects(&self) -> impl Iterator<Item = Object> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            // SAFETY: null or the dynamic linker's description of a loaded object.
            let map = unsafe { next.as_ref() }?;
            next = map.next;
            Some(Object::new(map, self.hardware))
        })
    }

    /// The object whose dynamic section this is.
    pub(crate) fn object_with_dynamic(&self, dynamic: *const Dynamic) -> Option<Object> {
        self.objects().find(|object| object.dynamic == dynamic)
    }

    /// The object with this name, as others name it in their needs.
    pub(crate) fn find(&self, name: *const u8) -> Option<Object> {
        self.objects().find(|object| {
            object.soname().is_some_and(|soname| elf::is_same(soname, name))
                || elf::is_same(elf::file_name(object.name), name)
        })
    }
}

/// The value of the first entry of a dynamic section with this tag.
fn entry(dynamic: *const Dynamic, tag: i64) -> Option<usize> {
    entries(dynamic).find(|entry| entry.tag == tag).map(|entry| entry.value)
}

fn entries(dynamic: *const Dynamic) -> impl Iterator<Item = &'static Dynamic> {
    let mut next = dynamic;
    core::iter::from_fn(move || {
        // SAFETY: a dynamic section, which ends with a zero tag and stays mapped.
        unsafe {
            let entry = &*next;
            next = next.add(1);
            (entry.tag != 0).then_some(entry)
        }
    })
}

/// The symbol that a reference asks for.
pub(crate) struct Symbol {
    name: *const u8,
    /// The hash of the version's name; 0 for any version.
    version: u32,
}

/// What a relocation puts into a word.
pub(crate) enum Target {
    /// The address of a function of the object itself.
    Own(usize),
    /// The address of a symbol that another object may define.
    Other(Symbol),
    /// Something else.
    None,
}

/// A loaded object.
pub(crate) struct Object {
    base: usize,
    name: *const u8,
    dynamic: *const Dynamic,
    hardware: Hardware,
    strings: usize,
    symbols: usize,
    versions: usize,
}

impl Object {
    fn new(map: &LinkMap, hardware: Hardware) -> Object {
        let mut object = Object {
            base: map.base,
            name: map.name,
            dynamic: map.dynamic,
            hardware,
            strings: 0,
            symbols: 0,
            versions: 0,
        };
        object.strings = object.table(elf::DT_STRTAB);
        object.symbols = object.table(elf::DT_SYMTAB);
        object.versions = object.table(elf::DT_VERSYM);
        object
    }

    /// The address in a dynamic entry; 0 without one. glibc has made it absolute for all objects but the kernel's.
    fn table(&self, tag: i64) -> usize {
        match entry(self.dynamic, tag) {
            Some(value) if value < self.base => self.base + value,
            value => value.unwrap_or(0),
        }
    }

    /// The address at an offset in the object.
    pub(crate) fn address(&self, offset: usize) -> *mut u8 {
        self.base.wrapping_add(offset) as *mut u8
    }

    fn string(&self, offset: usize) -> *const u8 {
        (self.strings + offset) as *const u8
    }

    fn soname(&self) -> Option<*const u8> {
        entry(self.dynamic, elf::DT_SONAME).map(|offset| self.string(offset))
    }

    /// The names of the libraries that the object needs.
    pub(crate) fn needed(&self) -> impl Iterator<Item = *const u8> {
        entries(self.dynamic).filter(|e| e.tag == elf::DT_NEEDED).map(|e| self.string(e.value))
    }

    /// The whole pages that are read-only once the object is relocated.
    pub(crate) fn read_only_after_relocation(&self) -> Option<(usize, usize)> {
        let header = self.address(0).cast_const().cast::<elf::Header>();
        // SAFETY: a library's first page is its header, and the program headers follow.
        unsafe {
            let headers = self.address((*header).program_headers).cast_const().cast::<ProgramHeader>();
            let count = usize::from((*header).program_header_count);
            let relro = (0..count).map(|i| &*headers.add(i)).find(|h| h.kind == elf::PT_GNU_RELRO)?;
            let start = (self.base + relro.address) & !4095;
            let end = (self.base + relro.address + relro.in_memory) & !4095;
            (start < end).then_some((start, end))
        }
    }

    /// The relocations that put an address into a word.
    pub(crate) fn relocations(&self) -> impl Iterator<Item = Relocation> {
        let bytes = |tag| entry(self.dynamic, tag).unwrap_or(0);
        let tables = [
            (self.table(elf::DT_RELA), bytes(elf::DT_RELASZ)),
            (self.table(elf::DT_JMPREL), bytes(elf::DT_PLTRELSZ)),
        ];
        tables.into_iter().flat_map(|(at, bytes)| {
            let count = if at == 0 { 0 } else { bytes / size_of::<Relocation>() };
            // SAFETY: the object's relocations, of which the dynamic section gives the bytes.
            (0..count).map(move |i| unsafe { *(at as *const Relocation).add(i) })
        })
    }

    /// What `relocation` puts into a word.
    pub(crate) fn target(&self, relocation: Relocation) -> Target {
        let index = (relocation.info >> 32) as usize;
        // A reference with an addend points into data, since functions have none.
        if index == 0 || relocation.addend != 0 || !arch::is_address(relocation.info as u32) {
            return Target::None;
        }
        let symbol = self.symbol(index);
        let name = self.string(symbol.name as usize);
        if symbol.section == 0 {
            return Target::Other(Symbol { name, version: self.version_needed(index) });
        }
        self.address_of_function(symbol).map_or(Target::None, Target::Own)
    }

    fn symbol(&self, index: usize) -> &'static RawSymbol {
        // SAFETY: indices come from the object's own relocations and hash table.
        unsafe { &*(self.symbols as *const RawSymbol).add(index) }
    }

    /// The number of a symbol's version; 0 and 1 stand for none.
    fn version_index(&self, symbol: usize) -> u16 {
        if self.versions == 0 {
            return 0;
        }
        // SAFETY: there is one number for each symbol.
        unsafe { *(self.versions as *const u16).add(symbol) & 0x7fff }
    }

    /// The hash of the version that a reference of this object asks for.
    fn version_needed(&self, symbol: usize) -> u32 {
        let (index, mut file) = (self.version_index(symbol), self.table(elf::DT_VERNEED));
        if index < 2 || file == 0 {
            return 0;
        }
        loop {
            // SAFETY: lists linked by offsets, which end with a zero.
            unsafe {
                let needed = &*(file as *const elf::VersionNeeded);
                let mut at = file + needed.first as usize;
                for _ in 0..needed.count {
                    let version = &*(at as *const elf::VersionNeededEntry);
                    if version.index & 0x7fff == index {
                        return version.hash;
                    }
                    at += version.next as usize;
                }
                if needed.next == 0 {
                    return 0;
                }
                file += needed.next as usize;
            }
        }
    }

    /// The hash of the version in which this object defines a symbol.
    fn version_defined(&self, symbol: usize) -> u32 {
        let (index, mut at) = (self.version_index(symbol), self.table(elf::DT_VERDEF));
        if index < 2 || at == 0 {
            return 0;
        }
        loop {
            // SAFETY: a list linked by offsets, which ends with a zero.
            let version = unsafe { &*(at as *const elf::VersionDefined) };
            if version.index & 0x7fff == index {
                return version.hash;
            }
            if version.next == 0 {
                return 0;
            }
            at += version.next as usize;
        }
    }

    /// The address of the function that this object defines with that name and version.
    pub(crate) fn function(&self, wanted: &Symbol) -> Option<usize> {
        let table = self.table(elf::DT_GNU_HASH) as *const u32;
        if table.is_null() {
            return None;
        }
        let hash = elf::gnu_hash(wanted.name);
        // SAFETY: the table's four numbers, its filter of words, its buckets, and a chain of hashes from the first symbol on.
        unsafe {
            let (buckets, first, filter_words) = (*table, *table.add(1), *table.add(2));
            let bucket_at = table.add(4).cast::<usize>().add(filter_words as usize).cast::<u32>();
            let chain = bucket_at.add(buckets as usize);
            if buckets == 0 {
                return None;
            }
            let mut index = *bucket_at.add((hash % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let link = *chain.add((index - first) as usize);
                if (link ^ hash) >> 1 == 0
                    && let Some(function) = self.function_at(index as usize, wanted)
                {
                    return Some(function);
                }
                if link & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// The function that is symbol `index`, if it has the wanted name and version.
    fn function_at(&self, index: usize, wanted: &Symbol) -> Option<usize> {
        let symbol = self.symbol(index);
        if symbol.section == 0
            || !elf::is_same(self.string(symbol.name as usize), wanted.name)
            || (wanted.version != 0 && self.version_defined(index) != wanted.version)
        {
            return None;
        }
        self.address_of_function(symbol)
    }

    /// The address of a function that this object defines; `None` if the symbol is data.
    fn address_of_function(&self, symbol: &RawSymbol) -> Option<usize> {
        let address = self.base + symbol.value;
        match symbol.info & 15 {
            elf::STT_FUNC => return Some(address),
            elf::STT_GNU_IFUNC => {}
            _ => return None,
        }
        // SAFETY: the library's own choice among its variants; it is relocated.
        Some(unsafe { arch::resolve(address, self.hardware) })
    }
}
