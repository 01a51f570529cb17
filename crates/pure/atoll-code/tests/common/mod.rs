//! Builds programs with the installed compilers, and examines their regions.

// Each test binary uses only a part of this.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_code::{Code, Processor, Reach, elf};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Whether a command is installed.
pub(crate) fn installed(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(command).is_file())
}

/// Builds `source` to `out`; the error has the compiler's messages.
pub(crate) fn build(compiler: &str, options: &[&str], source: &Path, out: &Path) -> Result<(), String> {
    let result = Command::new(compiler)
        .args(options)
        .arg("-o")
        .arg(out)
        .arg(source)
        .arg("-lm")
        .output()
        .map_err(|error| error.to_string())?;
    if result.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&result.stderr).into_owned()) }
}

/// gcc for aarch64: a cross compiler, or this machine's own where that is its processor.
pub(crate) fn arm_gcc(language: &str) -> String {
    if cfg!(target_arch = "aarch64") { language.to_string() } else { format!("aarch64-linux-gnu-{language}") }
}

/// The folders of the libraries that go with code for this processor.
fn folders(processor: Processor) -> [&'static str; 6] {
    match processor {
        Processor::X86_64 => [
            "/lib/x86_64-linux-gnu",
            "/usr/lib/x86_64-linux-gnu",
            "/lib64",
            "/usr/lib64",
            "/usr/lib",
            "/usr/x86_64-linux-gnu/lib",
        ],
        Processor::Aarch64 => [
            "/usr/aarch64-linux-gnu/lib",
            "/lib/aarch64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/lib64",
            "/usr/lib64",
            "/usr/lib",
        ],
    }
}

/// A program or library with those libraries it is linked against that can be found, each at an address of its own.
pub(crate) fn objects(path: &Path, processor: Processor) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![(path.display().to_string(), std::fs::read(path).unwrap())];
    for library in ["libgomp.so.1", "libm.so.6", "libc.so.6", "libstdc++.so.6", "libgcc_s.so.1"] {
        for folder in folders(processor) {
            if let Ok(bytes) = std::fs::read(Path::new(folder).join(library)) {
                files.push((library.to_string(), bytes));
                break;
            }
        }
    }
    files
}

/// Calls `look` with the code of these files.
pub(crate) fn with_code<R>(files: &[(String, Vec<u8>)], look: impl FnOnce(&Code<'_>) -> R) -> R {
    let images = files.iter().enumerate().map(|(number, (name, bytes))| {
        elf::file(name, bytes, 0x5555_0000_0000 + ((number as u64) << 32)).unwrap()
    });
    look(&Code::new(elf::link(images.collect())))
}

/// The functions of the first object whose names `wanted` accepts, with what they reach.
pub(crate) fn regions(code: &Code<'_>, wanted: impl Fn(&str) -> bool) -> Vec<(String, Reach)> {
    let functions = code.objects()[0].functions.iter();
    let named = functions.filter_map(|f| Some((f.name?, f.start)));
    let mut found: Vec<(String, Reach)> = named
        .filter(|(name, _)| wanted(name))
        .map(|(name, start)| (name.to_string(), code.reach(start)))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Whether a compiler made the function of a region or task.
pub(crate) fn is_outlined(name: &str) -> bool {
    (name.contains("._omp_fn.") || name.contains(".omp_outlined") || name.contains(".omp_task_entry"))
        && !name.ends_with(".cold")
}
