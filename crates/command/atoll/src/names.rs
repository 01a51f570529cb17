//! Finds the function or variable at an address of the program.
//!
//! Hooks in a traced program report the object files that it loaded. `trace` asks for the names of regions, and `figures` for
//! those of regions and variables.

use std::collections::BTreeMap;
use std::path::PathBuf;

use object::{Endianness, Object, ObjectSymbol, SymbolKind};

#[derive(Debug)]
struct Module {
    path: PathBuf,
    /// The file's symbols; `None` until first asked for.
    symbols: Option<Symbols>,
}

/// The addresses in a file, with ends and names.
type Table = BTreeMap<u64, (u64, String)>;

#[derive(Debug, Default)]
struct Symbols {
    functions: Table,
    variables: Table,
}

/// The program's object files.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The files by load bias. Two files may have the same: the program, and libraries linked at no address.
    modules: BTreeMap<u64, Vec<Module>>,
}

impl Names {
    /// Notes that the program loaded `path`, whose addresses lie `bias` above those in the file.
    pub(crate) fn loaded(&mut self, bias: u64, path: PathBuf) {
        self.modules.entry(bias).or_default().push(Module { path, symbols: None });
    }

    /// Returns the function that `address` is in.
    pub(crate) fn function(&mut self, address: u64) -> Option<&str> {
        self.place(address).map(|(name, _)| name)
    }

    /// Returns the function that `address` is in, and the distance from its begin.
    pub(crate) fn place(&mut self, address: u64) -> Option<(&str, u64)> {
        self.find(address, |symbols| &symbols.functions)
    }

    /// Returns the variable that `address` is in, and the distance from its start.
    pub(crate) fn variable(&mut self, address: u64) -> Option<(&str, u64)> {
        self.find(address, |symbols| &symbols.variables)
    }

    fn find(&mut self, address: u64, table: impl Fn(&Symbols) -> &Table) -> Option<(&str, u64)> {
        for (bias, modules) in self.modules.range_mut(..=address).rev() {
            for module in modules {
                let symbols = module.symbols.get_or_insert_with(|| read(&module.path).unwrap_or_default());
                let inside = address - bias;
                if let Some((start, (end, name))) = table(symbols).range(..=inside).next_back()
                    && inside < *end
                {
                    return Some((name, inside - start));
                }
            }
        }
        None
    }
}

/// Reads the symbols of a file; `None` where there are none to read.
fn read(path: &PathBuf) -> Option<Symbols> {
    let bytes = std::fs::read(path).ok()?;
    let file = object::read::elf::ElfFile64::<Endianness>::parse(&*bytes).ok()?;
    let mut symbols = Symbols::default();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let table = match symbol.kind() {
            SymbolKind::Text => &mut symbols.functions,
            SymbolKind::Data => &mut symbols.variables,
            _ => continue,
        };
        if symbol.size() > 0
            && symbol.is_definition()
            && let Ok(name) = symbol.name()
        {
            let end = symbol.address() + symbol.size();
            table.entry(symbol.address()).or_insert_with(|| (end, name.to_owned()));
        }
    }
    Some(symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[unsafe(no_mangle)]
    extern "C" fn atoll_trace_names_a_function() -> u32 {
        std::hint::black_box(7)
    }

    #[unsafe(no_mangle)]
    static ATOLL_TRACE_NAMES_A_VARIABLE: [u64; 4] = [7; 4];

    #[test]
    fn a_function_of_this_very_program_is_found() {
        // This executable lies at its first mapping.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = std::env::current_exe().unwrap();
        let line = maps.lines().find(|line| line.ends_with(own.to_str().unwrap())).unwrap();
        let bias = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        let mut names = Names::default();
        names.loaded(0, "/nowhere".into());
        names.loaded(bias, own);
        let address = atoll_trace_names_a_function as extern "C" fn() -> u32 as usize as u64;
        assert_eq!(names.function(address), Some("atoll_trace_names_a_function"));
        assert_eq!(names.function(bias - 1), None);
        let address = std::hint::black_box(&ATOLL_TRACE_NAMES_A_VARIABLE[2]) as *const u64 as u64;
        assert_eq!(names.variable(address), Some(("ATOLL_TRACE_NAMES_A_VARIABLE", 16)));
    }
}
