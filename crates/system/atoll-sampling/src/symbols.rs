//! Reads names and source lines from the program's files: symbols, and DWARF where there is some.
//!
//! This happens once, when the program is over. A file that cannot be read, or has nothing in it, gives no names and no error;
//! its addresses are shown instead.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::code::Code;
use addr2line::Loader;
use atoll_record::profile::names::Global;
use atoll_record::profile::{CodeLine, Event, ModuleNames, Names, Profile, ProfileError};
use gimli::{AttributeValue, DebuggingInformationEntry, Dwarf, EndianSlice, LittleEndian, Operation, Unit};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};

/// The greatest size in bytes of a file whose symbols are read.
const MAX_FILE: u64 = 2 << 30;
/// The most globals of one file.
const MAX_GLOBALS: usize = 1 << 18;

/// Returns the names that a profile needs, from the files as they are now; for a profile that was cut off before its names.
///
/// # Errors
/// The profile's own file cannot be read.
pub fn names_of(profile: &Profile) -> Result<Names, ProfileError> {
    let mut code = Code::default();
    let mut late = Vec::new();
    for event in &profile.events {
        match event {
            Event::Map { space, start, bytes, offset, path, code: is_code, .. } => {
                code.want_file(path);
                if *is_code {
                    code.map(*space, *start, *bytes, *offset, path);
                }
            }
            Event::Block { space, site, .. } => late.push((*space, *site)),
            Event::RegionBegin { space, function, .. } => late.push((*space, *function)),
            _ => {}
        }
    }
    for (space, address) in late {
        code.want(space, address);
    }
    for batch in profile.batches()? {
        for sample in &batch?.samples {
            if let Some(worker) = profile.workers.get(sample.worker as usize) {
                code.want(worker.space, sample.ip);
            }
        }
    }
    Ok(names(&code.wanted()))
}

/// Returns the names of the code in `wanted`: for each file, the offsets in it.
pub fn names(wanted: &BTreeMap<String, BTreeSet<u64>>) -> Names {
    let mut sources = Sources::default();
    let modules = wanted
        .iter()
        .filter_map(|(path, offsets)| Some((path.clone(), module(path, offsets, &mut sources)?)))
        .collect();
    Names { modules }
}

fn module(path: &str, offsets: &BTreeSet<u64>, sources: &mut Sources) -> Option<ModuleNames> {
    let file = File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > MAX_FILE {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let object = object::File::parse(&*bytes).ok()?;
    let segments = object.segments().map(|s| (s.file_range().0, s.file_range().1, s.address())).collect();
    let mut names = ModuleNames { segments, globals: globals(&object), lines: BTreeMap::new() };
    let loader = Loader::new(path).ok();
    let functions = Functions::of(&object);
    for &offset in offsets {
        if let (Some(loader), Some(address)) = (&loader, names.address_of(offset)) {
            names.lines.insert(address, line(loader, &functions, address, sources));
        }
    }
    Some(names)
}

/// The functions in a file's symbol table, by address.
struct Functions<'a>(Vec<(u64, u64, &'a str)>);

/// The most symbols of no size, such as labels in assembly, that may lie within a function before an address in it.
const LABELS: usize = 16;

impl<'a> Functions<'a> {
    fn of(object: &object::File<'a>) -> Self {
        let symbols = object.symbols().chain(object.dynamic_symbols());
        let functions = symbols.filter(|s| s.kind() == SymbolKind::Text && !s.is_undefined());
        let mut functions: Vec<_> =
            functions.filter_map(|s| Some((s.address(), s.size(), s.name().ok()?))).collect();
        functions.sort_unstable();
        functions.dedup();
        Self(functions)
    }

    /// Returns the function that holds an address. Of a stripped file only exported functions are known, and code behind such a
    /// function is not part of it.
    fn at(&self, address: u64) -> Option<&'a str> {
        if let Some(name) = self.holding(address) {
            return Some(name);
        }
        // A symbol of no size reaches to the next one, unless it is a label within another function.
        let behind = self.0.partition_point(|&(start, ..)| start <= address);
        let &(start, bytes, name) = self.0[..behind].last()?;
        (bytes == 0 && self.holding(start).is_none()).then_some(name)
    }

    /// Returns the function of known size around an address.
    fn holding(&self, address: u64) -> Option<&'a str> {
        let behind = self.0.partition_point(|&(start, ..)| start <= address);
        let near = self.0[..behind].iter().rev().take(LABELS);
        let mut around = near.filter(|(start, bytes, _)| address - start < *bytes);
        around.next().map(|(.., name)| *name)
    }
}

fn line(loader: &Loader, functions: &Functions<'_>, address: u64, sources: &mut Sources) -> CodeLine {
    let mut line = CodeLine::default();
    if let Ok(Some(location)) = loader.find_location(address) {
        line.file = location.file.unwrap_or_default().to_owned();
        line.line = location.line.unwrap_or(0);
        line.target = sources.target(&line.file, line.line);
    }
    if let Ok(mut frames) = loader.find_frames(address)
        && let Ok(Some(frame)) = frames.next()
        && let Some(function) = frame.function
        && let Ok(name) = function.demangle()
    {
        line.function = name.into_owned();
    }
    if line.function.is_empty() {
        line.function = demangled(functions.at(address).unwrap_or_default());
    }
    line
}

/// Returns the variables in a file's symbol table, with the places of their declarations.
fn globals(object: &object::File<'_>) -> Vec<Global> {
    let declared = declarations(object);
    let mut globals = BTreeMap::new();
    for symbol in object.symbols().chain(object.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Data || symbol.size() == 0 || symbol.is_undefined() {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        if globals.len() >= MAX_GLOBALS {
            break;
        }
        let (file, line) = declared.get(&symbol.address()).cloned().unwrap_or_default();
        let name = demangled(name);
        let global = Global { address: symbol.address(), bytes: symbol.size(), name, file, line };
        globals.entry(symbol.address()).or_insert(global);
    }
    globals.into_values().collect()
}

/// Returns a C++ or Rust name as it was written. A C name, which may look like a mangled type (`x`), stays as it is.
fn demangled(name: &str) -> String {
    if name.starts_with("_Z") || name.starts_with("_R") {
        addr2line::demangle_auto(name.into(), None).into_owned()
    } else {
        name.to_owned()
    }
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Returns the file and line of each variable with a fixed address.
fn declarations(object: &object::File<'_>) -> HashMap<u64, (String, u32)> {
    let mut declared = HashMap::new();
    let sections = |id: gimli::SectionId| -> Result<std::borrow::Cow<'_, [u8]>, gimli::Error> {
        let section = object.section_by_name(id.name());
        Ok(section.and_then(|s| s.uncompressed_data().ok()).unwrap_or_default())
    };
    let Ok(sections) = gimli::DwarfSections::load(sections) else { return declared };
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if let Ok(unit) = dwarf.unit(header) {
            let _ = unit_declarations(&dwarf, &unit, &mut declared);
        }
        if declared.len() >= MAX_GLOBALS {
            break;
        }
    }
    declared
}

fn unit_declarations<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    declared: &mut HashMap<u64, (String, u32)>,
) -> Result<(), gimli::Error> {
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        if entry.tag() != gimli::DW_TAG_variable {
            continue;
        }
        let Some(address) = fixed_address(dwarf, unit, entry) else { continue };
        // A variable that is defined apart from its declaration has file and line in the declaration.
        let place = match entry.attr_value(gimli::DW_AT_specification) {
            Some(AttributeValue::UnitRef(at)) => declared_at(dwarf, unit, &unit.entry(at)?),
            _ => declared_at(dwarf, unit, entry),
        };
        if let Some(place) = place {
            declared.insert(address, place);
        }
    }
    Ok(())
}

fn fixed_address(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    entry: &DebuggingInformationEntry<Slice<'_>>,
) -> Option<u64> {
    let location = entry.attr_value(gimli::DW_AT_location)?.exprloc_value()?;
    match location.operations(unit.encoding()).next().ok()?? {
        Operation::Address { address } => Some(address),
        Operation::AddressIndex { index } => dwarf.address(unit, index).ok(),
        _ => None,
    }
}

fn declared_at(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    entry: &DebuggingInformationEntry<Slice<'_>>,
) -> Option<(String, u32)> {
    let line = entry.attr_value(gimli::DW_AT_decl_line)?.udata_value()? as u32;
    let program = unit.line_program.as_ref()?.header();
    let index = match entry.attr_value(gimli::DW_AT_decl_file)? {
        AttributeValue::FileIndex(index) => index,
        other => other.udata_value()?,
    };
    let file = program.file(index)?;
    let name = dwarf.attr_string(unit, file.path_name()).ok()?.to_string_lossy();
    let directory = file.directory(program).and_then(|d| dwarf.attr_string(unit, d).ok());
    let directory = directory.map(|d| d.to_string_lossy().into_owned()).unwrap_or_default();
    let path = Path::new(&directory).join(&*name);
    Some((path.display().to_string(), line))
}

/// Source files that were read, for the names that allocations are assigned to.
#[derive(Debug, Default)]
struct Sources(HashMap<String, Vec<String>>);

/// The most lines of a source file that is read.
const MAX_LINES: usize = 100_000;

impl Sources {
    /// Returns what the statement around a line assigns to; empty where that cannot be read.
    fn target(&mut self, file: &str, line: u32) -> String {
        if file.is_empty() || line == 0 {
            return String::new();
        }
        let lines = self.0.entry(file.to_owned()).or_insert_with(|| {
            let whole = std::fs::metadata(file).ok().filter(|m| m.is_file() && m.len() < 64 << 20);
            let opened = whole.and_then(|_| File::open(file).ok());
            let lines = opened.map(|file| BufReader::new(file).lines().take(MAX_LINES).map_while(Result::ok));
            lines.map(Iterator::collect).unwrap_or_default()
        });
        // A call's line may be that of its end.
        let last = (line as usize).min(lines.len());
        let text: String = lines[last.saturating_sub(3)..last].join("\n");
        assigned(&text).unwrap_or_default()
    }
}

/// Returns the target of the last assignment, in a piece of C, C++ or Fortran, whose right side allocates.
fn assigned(text: &str) -> Option<String> {
    let statement = text.trim_end().trim_end_matches([';', '{']);
    let statement = statement.rsplit([';', '{', '}']).next()?;
    if let Some(rest) = statement.to_ascii_lowercase().rfind("allocate(").map(|at| &statement[at + 9..]) {
        return name(rest.split(['(', ',', ')']).next()?);
    }
    let at = statement.find('=').filter(|&at| {
        let (before, after) = (statement[..at].chars().next_back(), statement[at + 1..].chars().next());
        !matches!(before, Some('=' | '!' | '<' | '>')) && after != Some('=')
    })?;
    name(&statement[..at])
}

/// Returns the last word of a declaration or an expression, as in `double *a`, `s->field`, `rows[i]`.
fn name(text: &str) -> Option<String> {
    let text = text.trim().trim_end_matches("restrict").trim();
    let start = text.rfind([' ', '*', '(', '\t', '\n', '&', ',']).map_or(0, |at| at + 1);
    let name = &text[start..];
    let plain = |c: char| c.is_alphanumeric() || "_.->[]%:".contains(c);
    let good = name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && name.len() <= 80
        && name.chars().all(plain);
    good.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_allocation_is_assigned_to_is_found() {
        let target = |text: &str| assigned(text).unwrap_or_default();
        assert_eq!(target("    double *a = malloc(n * sizeof *a);"), "a");
        assert_eq!(target("  int x = 3;\n  s->rows[i] = calloc(n,\n      8);"), "s->rows[i]");
        assert_eq!(target("  allocate(grid(nx, ny))"), "grid");
        assert_eq!(target("  if (!(p = malloc(4)))"), "p");
        assert_eq!(target("  return malloc(a == b);"), "");
        assert_eq!(target(""), "");
    }

    /// A block made by a static function of a stripped library was reported under the exported function before it.
    #[test]
    fn what_lies_behind_a_function_was_called_by_its_name() {
        let functions =
            Functions(vec![(0x100, 0x10, "exported"), (0x104, 0, "label"), (0x200, 0, "assembly")]);
        let at = |address| functions.at(address);
        assert_eq!(
            (at(0x50), at(0x100), at(0x10f), at(0x110)),
            (None, Some("exported"), Some("exported"), None)
        );
        assert_eq!(at(0x234), Some("assembly"));
    }

    #[test]
    fn globals_of_this_program_are_found_with_their_lines() {
        static LARGE: [std::sync::atomic::AtomicU64; 512] =
            [const { std::sync::atomic::AtomicU64::new(0) }; 512];
        std::hint::black_box(&LARGE);
        let own = std::env::current_exe().unwrap().display().to_string();
        let names = names(&BTreeMap::from([(own.clone(), BTreeSet::new())]));
        let module = &names.modules[&own];
        let large = module.globals.iter().find(|g| g.name.ends_with("LARGE") && g.bytes == 4096);
        assert!(large.is_some(), "{:?}", module.globals.len());
    }
}
