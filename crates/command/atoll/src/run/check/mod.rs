//! Checks, before anything starts, whether atoll can run the program.

pub(crate) mod elf;
pub(crate) mod libraries;
pub(crate) mod path;
pub(crate) mod program;

/// Returns the file that the dynamic linker finds for a library's name.
pub(crate) fn library(name: &str) -> Option<std::path::PathBuf> {
    let libraries = libraries::Libraries::new(std::env::var_os("LD_LIBRARY_PATH").as_deref());
    libraries.find(name, &elf::Elf::default(), std::path::Path::new("/"))
}
