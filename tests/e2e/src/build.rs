//! Finds atoll and the programs; builds programs when their sources are newer.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

/// Returns the repository's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// Returns the folder where everything is built.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Returns the command: `ATOLL` in the environment, else the release build, as users have it; the debug build where there is
/// none.
pub fn atoll() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(path) = std::env::var_os("ATOLL") {
            return PathBuf::from(path);
        }
        let places = ["release", "debug"].map(|kind| target().join(kind).join("atoll"));
        let with_library = |path: &&PathBuf| path.with_file_name("libatoll_openmp.so").exists();
        let found = places.iter().find(with_library);
        found.cloned().expect("atoll is not built: cargo build --release")
    })
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|m| m.modified()).ok()
}

fn newest(folder: &Path) -> Option<SystemTime> {
    std::fs::read_dir(folder).ok()?.flatten().filter_map(|e| modified(&e.path())).max()
}

/// Returns one of the workloads of `programs/`.
pub fn built(name: &str) -> PathBuf {
    static MADE: OnceLock<()> = OnceLock::new();
    let out = target().join("programs");
    MADE.get_or_init(|| {
        let make = Command::new("make")
            .arg("-s")
            .arg("-C")
            .arg(root().join("programs"))
            .arg(format!("OUT={}", out.display()))
            .stdout(Stdio::null())
            .status();
        assert!(make.is_ok_and(|status| status.success()), "make -C programs");
    });
    out.join(name)
}

/// Compiles `text`, a program in C, in `folder`; returns what became of it.
pub fn compiled(folder: &Path, name: &str, text: &str, options: &[&str]) -> PathBuf {
    let (source, out) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, text).expect("written");
    let gcc = Command::new("gcc").arg("-o").arg(&out).arg(&source).args(options).status();
    assert!(gcc.is_ok_and(|status| status.success()), "{name} compiles");
    out
}

/// Whether a command is installed.
pub fn installed(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(command).is_file())
}

/// Returns a helper program of `programs/` beside this crate, built as its name asks for: `x.c`, `x.cc`, `x.f90`. Panics with
/// the compiler's words where it does not build.
pub fn helper(source: &str) -> PathBuf {
    helper_with(source, &[])
}

/// Returns a helper program that is built with further options.
pub fn helper_with(source: &str, options: &[&str]) -> PathBuf {
    built_from("programs", "", source, options)
}

/// Returns the C compilers of LLVM that are installed with an OpenMP runtime, the newest first.
pub fn clangs() -> &'static [String] {
    static FOUND: OnceLock<Vec<String>> = OnceLock::new();
    FOUND.get_or_init(|| versions_of("clang"))
}

/// Returns the versions of a C compiler that are installed and build OpenMP programs, such as `gcc-14`, the newest first. The
/// name without a version is returned where no other is.
pub fn versions_of(compiler: &str) -> Vec<String> {
    let versions = (11..40).rev().map(|version| format!("{compiler}-{version}"));
    let mut found: Vec<String> = versions.filter(|name| installed(name) && has_openmp(name)).collect();
    if found.is_empty() && installed(compiler) && has_openmp(compiler) {
        found.push(compiler.to_owned());
    }
    found
}

/// Whether a compiler can build an OpenMP program.
fn has_openmp(compiler: &str) -> bool {
    let source = target().join(format!("e2e-{compiler}-{}.c", std::process::id()));
    std::fs::create_dir_all(target()).expect("a folder");
    std::fs::write(&source, "#include <omp.h>\nint main(void) { return omp_get_thread_num(); }\n")
        .expect("a file");
    let out = source.with_extension("out");
    let made = Command::new(compiler).arg("-fopenmp").arg("-o").arg(&out).arg(&source).output();
    for file in [&source, &out] {
        let _ = std::fs::remove_file(file);
    }
    made.is_ok_and(|output| output.status.success())
}

/// Returns the compiler of a source's language that belongs to a C compiler: for `gcc-14` also `g++-14` and `gfortran-14`, for
/// `clang-19` also `clang++-19` and `flang-new-19`.
fn for_language(compiler: &str, source: &Path) -> String {
    let is_gcc = compiler.starts_with("gcc");
    let (c, cpp, fortran) =
        if is_gcc { ("gcc", "g++", "gfortran") } else { ("clang", "clang++", "flang-new") };
    match source.extension().and_then(|ending| ending.to_str()) {
        Some("cc") => compiler.replacen(c, cpp, 1),
        Some("f90") => compiler.replacen(c, fortran, 1),
        _ => compiler.to_owned(),
    }
}

/// Returns a program of `tests/openmp` or `programs/` built by a C compiler such as `clang-19`, or by its sister for the
/// source's language; or the compiler's error.
pub fn by(compiler: &str, source: &Path) -> Result<PathBuf, String> {
    let command = for_language(compiler, source);
    let name = source.file_name().unwrap_or_default().to_string_lossy().replace('.', "_");
    let out = target().join("e2e");
    std::fs::create_dir_all(&out).expect("a folder for programs");
    let binary = out.join(format!("{compiler}_{name}"));
    static BUILDING: Mutex<()> = Mutex::new(());
    let _guard = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    if modified(&binary) > source.parent().and_then(newest) {
        return Ok(binary);
    }
    let mine = out.join(format!("{compiler}_{name}.{}", std::process::id()));
    let is_fortran = source.extension().is_some_and(|ending| ending == "f90");
    let output = Command::new(&command)
        .args(["-O2", "-g", "-fopenmp", "-o"])
        .arg(&mine)
        .arg(source)
        .args(if is_fortran { &["-ldl"][..] } else { &["-w", "-lm", "-ldl", "-latomic"] })
        .output()
        .map_err(|error| format!("{command}: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    std::fs::rename(&mine, &binary).expect("the program is put in its place");
    Ok(binary)
}

/// Returns the sources in a folder of the repository whose names end in one of `endings`, sorted.
pub fn sources(folder: &str, endings: &[&str]) -> Vec<PathBuf> {
    let all = std::fs::read_dir(root().join(folder)).expect("a folder").flatten().map(|entry| entry.path());
    let ends =
        |path: &PathBuf| path.extension().and_then(|e| e.to_str()).is_some_and(|e| endings.contains(&e));
    let mut found: Vec<PathBuf> = all.filter(ends).collect();
    found.sort();
    found
}

/// Returns the variables that a conformance program runs with: `// env: NAME=value …`.
pub fn variables(source: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(source).expect("the program is there");
    let line = text.lines().find_map(|line| line.strip_prefix("// env:")).unwrap_or_default();
    let pairs = line.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns a program of `tests/openmp`: it checks itself, and `ARGV[1]` is its size.
pub fn openmp(source: &str) -> PathBuf {
    built_from("../openmp", "openmp_", source, &[])
}

/// Builds a program. The names of binaries of different folders differ by `prefix`.
fn built_from(folder: &str, prefix: &str, source: &str, options: &[&str]) -> PathBuf {
    static LOCKS: Mutex<Option<HashMap<String, Arc<Mutex<()>>>>> = Mutex::new(None);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let name = format!("{prefix}{}{}", source.replace('.', "_"), options.concat().replace(['/', '='], "_"));
    let lock = {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.get_or_insert_default().entry(name.clone()).or_default())
    };
    let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let out = target().join("e2e");
    std::fs::create_dir_all(&out).expect("a folder for programs");
    let binary = out.join(&name);
    if modified(&binary) > newest(&folder) {
        return binary;
    }
    let compiler = match source.rsplit('.').next() {
        Some("cc") => "g++",
        Some("f90") => "gfortran",
        _ => "gcc",
    };
    // Another test binary may build the same program, so each builds it under a name of its own and then renames it.
    let mine = out.join(format!("{name}.{}", std::process::id()));
    let output = Command::new(compiler)
        .args(["-O2", "-g", "-w", "-foffload=disable"])
        .args(if options.contains(&"-fno-openmp") { &[][..] } else { &["-fopenmp"] })
        .args(options)
        // The kernel's headers for 32 bits lie there. Only gcc-multilib makes the link by which gcc finds them without being told, and
        // that package cannot be installed beside a compiler for Arm.
        .args(if options.contains(&"-m32") {
            &["-idirafter", "/usr/include/x86_64-linux-gnu"][..]
        } else {
            &[]
        })
        .arg("-o")
        .arg(&mine)
        .arg(folder.join(source))
        .arg("-ldl")
        .output()
        .unwrap_or_else(|e| panic!("{compiler}: {e}"));
    assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&mine, &binary).expect("the program is put in its place");
    binary
}
