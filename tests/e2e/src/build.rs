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
    FOUND.get_or_init(|| {
        let versions = (11..40).rev().map(|version| format!("clang-{version}"));
        let mut found: Vec<String> = versions.filter(|name| installed(name) && has_openmp(name)).collect();
        if found.is_empty() && installed("clang") && has_openmp("clang") {
            found.push("clang".to_owned());
        }
        found
    })
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

/// Returns a program of `tests/openmp` or `programs/` built by a compiler of LLVM, or the compiler's error.
pub fn by_clang(compiler: &str, source: &Path) -> Result<PathBuf, String> {
    let is_cpp = source.extension().is_some_and(|ending| ending == "cc");
    let command = if is_cpp { compiler.replacen("clang", "clang++", 1) } else { compiler.to_owned() };
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
    let output = Command::new(&command)
        .args(["-O2", "-g", "-w", "-fopenmp", "-o"])
        .arg(&mine)
        .arg(source)
        .args(["-lm", "-ldl", "-latomic"])
        .output()
        .map_err(|error| format!("{command}: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    std::fs::rename(&mine, &binary).expect("the program is put in its place");
    Ok(binary)
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
