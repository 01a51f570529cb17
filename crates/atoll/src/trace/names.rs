//! Which function lies at an address of the traced program.
//!
//! Hooks in the program say which object files it loaded; `output` asks for the names of regions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use object::{Endianness, Object, ObjectSymbol, SymbolKind};

#[derive(Debug)]
struct Module {
    path: PathBuf,
    /// Functions' addresses in the file, ends and names; none until first asked for.
    functions: Option<BTreeMap<u64, (u64, String)>>,
}

/// The program's object files.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// By load bias. Two files may have the same: the program, and libraries of no address.
    modules: BTreeMap<u64, Vec<Module>>,
}

impl Names {
    /// The program loaded `path`, whose addresses lie `bias` above those in the file.
    pub(crate) fn loaded(&mut self, bias: u64, path: PathBuf) {
        self.modules.entry(bias).or_default().push(Module { path, functions: None });
    }

    /// The function that `address` is in.
    pub(crate) fn function(&mut self, address: u64) -> Option<&str> {
        self.place(address).map(|(name, _)| name)
    }

    /// The same, with how far behind its begin.
    pub(crate) fn place(&mut self, address: u64) -> Option<(&str, u64)> {
        for (bias, modules) in self.modules.range_mut(..=address).rev() {
            for module in modules {
                let functions =
                    module.functions.get_or_insert_with(|| read(&module.path).unwrap_or_default());
                let inside = address - bias;
                if let Some((start, (end, name))) = functions.range(..=inside).next_back()
                    && inside < *end
                {
                    return Some((name, inside - start));
                }
            }
        }
        None
    }
}

/// The functions in a file; `None` where it is none to read.
fn read(path: &PathBuf) -> Option<BTreeMap<u64, (u64, String)>> {
    let bytes = std::fs::read(path).ok()?;
    let file = object::read::elf::ElfFile64::<Endianness>::parse(&*bytes).ok()?;
    let mut functions = BTreeMap::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if symbol.kind() == SymbolKind::Text
            && symbol.size() > 0
            && let Ok(name) = symbol.name()
        {
            let end = symbol.address() + symbol.size();
            functions.entry(symbol.address()).or_insert_with(|| (end, name.to_owned()));
        }
    }
    Some(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[unsafe(no_mangle)]
    extern "C" fn atoll_trace_names_a_function() -> u32 {
        std::hint::black_box(7)
    }

    #[test]
    fn a_function_of_this_very_program_is_found() {
        // Where this executable lies: its first mapping.
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
    }
}
