//! Checks the program, its interpreter if it is a script, and all its libraries.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::elf::{Elf, ElfError, Kind, kind};
use super::libraries::{Libraries, head};

/// The number of times that scripts may name scripts as their interpreters, as for the kernel.
const DEPTH: usize = 5;

/// The reason why atoll cannot run a program.
#[derive(thiserror::Error, Debug)]
pub(crate) enum CheckError {
    /// The file cannot be read, or is not what it claims to be.
    #[error("{0} cannot be looked at: {1}")]
    Unreadable(String, ElfError),
    /// The file is neither ELF nor a script.
    #[error("{0} cannot be executed: it is neither a program nor a script that starts with #!")]
    NotAProgram(String),
    /// The program has no dynamic linker, so nothing can be loaded into it.
    #[error("{0} is a static executable, into which atoll cannot load its runtime: link it dynamically")]
    Static(String),
    /// The program uses another C library than glibc, beside which atoll's runtime cannot be loaded.
    #[error("{0} is linked with musl's C library, and atoll's runtime needs glibc's: use a build for glibc")]
    Musl(String),
    /// The program runs others on an emulated processor.
    #[error("{0} emulates a processor without userfaultfd, by which atoll pages: run valgrind without atoll")]
    Emulator(String),
    /// The program has a sanitizer's runtime, which wants the address space and `malloc` for itself.
    #[error(
        "{program} is built with -fsanitize={sanitizer}, whose runtime cannot be loaded beside atoll's: build it without that, or run it without atoll"
    )]
    Sanitizer {
        /// The program, or the library that brings the sanitizer.
        program: String,
        /// The sanitizer, as the compilers' flag names it.
        sanitizer: &'static str,
    },
    /// The program has 32 bits.
    #[error("{0} is a 32-bit program, and atoll runs 64-bit ones: build it with -m64")]
    Bits32(String),
    /// The program is for another architecture.
    #[error("{0} is a program for another architecture than this machine's {NAME}: build it here", NAME = crate::arch::NAME)]
    Foreign(String),
    /// The dynamic linker ignores LD_PRELOAD for the program.
    #[error("{0} is {1}, so the kernel lets nothing be loaded into it: run a copy without that")]
    Privileged(String, &'static str),
    /// A script's interpreter cannot be run.
    #[error("{script} is a script whose interpreter {interpreter} is not there: correct its first line")]
    Interpreter {
        /// The script.
        script: String,
        /// The interpreter in its first line.
        interpreter: String,
    },
    /// The program uses another OpenMP runtime.
    #[error(
        "{object} uses the OpenMP runtime {library}, which atoll cannot replace: build it with gcc or clang -fopenmp"
    )]
    OtherRuntime {
        /// The program or library.
        object: String,
        /// The runtime.
        library: String,
    },
    /// The program needs symbols that atoll's runtime lacks.
    #[error("{object} needs {symbols}, which atoll's OpenMP runtime does not have")]
    Symbols {
        /// The program or library.
        object: String,
        /// The symbols.
        symbols: String,
    },
    /// atoll's own library cannot be read.
    #[error("atoll's runtime {0} cannot be looked at: {1}")]
    Runtime(String, ElfError),
}

impl CheckError {
    /// Whether the kernel would not execute the file either.
    pub(crate) fn is_not_executable(&self) -> bool {
        matches!(self, Self::NotAProgram(_) | Self::Interpreter { .. })
    }
}

/// The result of the check for a program that can be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checked {
    /// How the program uses OpenMP.
    pub(crate) openmp: Uses,
    /// Whether it is an MPI program, of which each process runs by itself.
    pub(crate) mpi: bool,
}

/// How a program uses OpenMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uses {
    /// The program is linked with libgomp, libomp or libiomp5, and every symbol it needs is there.
    OpenMp,
    /// The program is not linked with one, but may start a program that is, or load a library.
    Other,
    /// The program is not linked with one, and does neither of these.
    Alone,
}

/// Checks the program at `path`, to be run with the runtime at `runtime` and with these LD_LIBRARY_PATH and LD_PRELOAD.
///
/// # Errors
/// The reason why atoll cannot run it.
pub(crate) fn check(
    path: &Path,
    runtime: &Path,
    library_path: Option<&OsStr>,
    preload: Option<&OsStr>,
) -> Result<Checked, CheckError> {
    if file_name(path) == "valgrind" {
        return Err(CheckError::Emulator(shown(path)));
    }
    let path = native(path)?;
    let mut program = open(&path)?;
    if !program.interpreter {
        return Err(CheckError::Static(shown(&path)));
    }
    if program.musl {
        return Err(CheckError::Musl(shown(&path)));
    }
    // A library that is loaded into every program counts as if it were linked.
    let preload = preload.map(OsStr::to_string_lossy).unwrap_or_default();
    let names = preload.split([' ', ':']).filter(|name| !name.is_empty());
    program.needed.extend(names.map(str::to_owned));
    let objects = closure(&path, program, &Libraries::new(library_path))?;
    if let Some((object, sanitizer)) = objects.iter().find_map(|(path, elf)| Some((path, elf.sanitizer?))) {
        return Err(CheckError::Sanitizer { program: shown(object), sanitizer });
    }
    // Open MPI's and Intel's libmpi.so.*, MPICH's libmpich.so.*, and their libraries for C++ and Fortran.
    let mpi = objects.iter().any(|(path, _)| file_name(path).starts_with("libmpi"));
    if !objects.iter().any(|(path, _)| is_replaced(path)) {
        let may = objects.iter().any(|(path, elf)| elf.goes_on && !is_libc(path));
        return Ok(Checked { openmp: if may { Uses::Other } else { Uses::Alone }, mpi });
    }
    let runtime_elf = Elf::open(runtime).map_err(|e| CheckError::Runtime(shown(runtime), e))?;
    let others = objects.iter().filter(|(path, _)| !is_replaced(path));
    let there: BTreeSet<&str> = others
        .clone()
        .flat_map(|(_, elf)| &elf.exports)
        .chain(&runtime_elf.exports)
        .map(String::as_str)
        .collect();
    for (path, elf) in others {
        let missing = elf.imports.iter().map(String::as_str).filter(|name| !there.contains(name));
        let missing: BTreeSet<&str> = missing.collect();
        if !missing.is_empty() {
            let symbols: Vec<&str> = missing.into_iter().collect();
            return Err(CheckError::Symbols { object: shown(path), symbols: symbols.join(", ") });
        }
    }
    Ok(Checked { openmp: Uses::OpenMp, mpi })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn open(path: &Path) -> Result<Elf, CheckError> {
    Elf::open(path).map_err(|e| CheckError::Unreadable(shown(path), e))
}

/// Returns the native executable that runs when `path` does: itself, or its interpreter.
fn native(path: &Path) -> Result<PathBuf, CheckError> {
    let mut path = path.to_owned();
    for _ in 0..DEPTH {
        let head = match head(&path) {
            Ok(head) => head,
            Err(e) => return Err(CheckError::Unreadable(shown(&path), e.into())),
        };
        let name = shown(&path);
        match kind(&head) {
            Kind::Native => {
                not_privileged(&path)?;
                return Ok(path);
            }
            Kind::Bits32 => return Err(CheckError::Bits32(name)),
            Kind::Foreign => return Err(CheckError::Foreign(name)),
            Kind::Script(interpreter) if Path::new(&interpreter).is_file() => path = interpreter.into(),
            Kind::Script(interpreter) => return Err(CheckError::Interpreter { script: name, interpreter }),
            Kind::Other => return Err(CheckError::NotAProgram(name)),
        }
    }
    Err(CheckError::NotAProgram(shown(&path)))
}

fn not_privileged(path: &Path) -> Result<(), CheckError> {
    let refuse = |what| Err(CheckError::Privileged(shown(path), what));
    let mode = path.metadata().map_or(0, |m| m.permissions().mode());
    if mode & libc::S_ISUID != 0 {
        return refuse("setuid");
    }
    // Without group execution the bit means mandatory locking.
    if mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0 {
        return refuse("setgid");
    }
    let Ok(c_path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return Ok(()) };
    // SAFETY: C strings; no value is asked for, only its size.
    let bytes =
        unsafe { libc::getxattr(c_path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    if bytes > 0 { refuse("a program with file capabilities") } else { Ok(()) }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether the file is an OpenMP runtime that atoll's replaces: gcc's, LLVM's or Intel's.
fn is_replaced(path: &Path) -> bool {
    let name = file_name(path);
    ["libgomp.so", "libomp.so", "libomp5.so", "libiomp5.so"].iter().any(|runtime| name.starts_with(runtime))
}

/// Whether the file is a part of libc, which has all of its functions, whatever uses them.
fn is_libc(path: &Path) -> bool {
    let name = file_name(path);
    ["libc.so", "ld-linux", "libdl.so", "libpthread.so", "librt.so"].iter().any(|part| name.starts_with(part))
}

fn is_other_runtime(name: &str) -> bool {
    ["libnvomp.so", "libpgmp.so", "libxlsmp.so", "libcraymp.so"].iter().any(|other| name.starts_with(other))
}

/// Returns the program and all libraries that it loads at its start. Libraries that are not found, or are damaged, are left
/// out: the dynamic linker reports them.
fn closure(path: &Path, program: Elf, libraries: &Libraries) -> Result<Vec<(PathBuf, Elf)>, CheckError> {
    let mut objects = vec![(path.to_owned(), program)];
    let mut seen = BTreeSet::new();
    let mut next = 0;
    while next < objects.len() {
        let mut found = Vec::new();
        let (path, elf) = &objects[next];
        for name in &elf.needed {
            if !seen.insert(name.clone()) {
                continue;
            }
            if is_other_runtime(name) {
                return Err(CheckError::OtherRuntime { object: shown(path), library: name.clone() });
            }
            if let Some(library) = libraries.find(name, elf, path)
                && let Ok(elf) = Elf::open(&library)
            {
                // The name by which it was asked for counts: files behind links have longer names.
                let library = library.with_file_name(name.rsplit('/').next().unwrap_or(name));
                found.push((library, elf));
            }
        }
        objects.append(&mut found);
        next += 1;
    }
    Ok(objects)
}

#[cfg(test)]
mod tests;
