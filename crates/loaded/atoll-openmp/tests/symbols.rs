//! Every symbol of the installed libgomp and libomp is exported by our library or listed as unsupported.
//!
//! The lists are `unsupported-symbols.txt` and, for libomp, `unsupported-symbols-llvm.txt`; `programs.rs` tests the symbols
//! that are exported.

mod library;

use std::collections::BTreeSet;
use std::process::Command;

/// The names that a library defines for others, without versions.
fn exported(library: &str) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only", library]).output().expect("nm runs");
    assert!(output.status.success(), "nm {library}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().collect::<Vec<_>>().try_into().ok())
        // `A` marks the names of versions.
        .filter(|[_, kind, _]: &[&str; 3]| *kind != "A")
        .map(|[_, _, name]| name.split('@').next().unwrap_or(name).to_owned())
        .collect()
}

/// Compares our exported names with those of `theirs`; names in `excuses`, a file of names and reasons, may be missing.
fn compare(theirs: &str, witness: &str, excuses: &str) {
    let excuses = excuses
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| line.split_once(char::is_whitespace).expect("a reason behind each name").0)
        .collect::<Vec<_>>();
    let excused = |name: &str| {
        excuses.iter().any(|excuse| match excuse.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *excuse,
        })
    };
    let (library, theirs, ours) = (theirs, exported(theirs), exported(&library::path().to_string_lossy()));
    assert!(theirs.contains(witness), "{library} has no {witness}");
    let missing = theirs.difference(&ours).filter(|name| !excused(name)).collect::<Vec<_>>();
    assert!(missing.is_empty(), "of {library} neither exported nor excused: {missing:?}");
    let needless = ours.iter().filter(|name| excused(name)).collect::<Vec<_>>();
    assert!(needless.is_empty(), "exported, and excused all the same: {needless:?}");
}

#[test]
fn every_symbol_of_libgomp_is_exported_or_excused() {
    let asked = Command::new("gcc").arg("-print-file-name=libgomp.so.1").output();
    let libgomp =
        asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if !libgomp.starts_with('/') {
        atoll_skips::skip!("gcc with libgomp.so.1 is not installed: apt-get install gcc");
    }
    compare(&libgomp, "GOMP_parallel", include_str!("../unsupported-symbols.txt"));
}

/// Looks at all versions of LLVM that are installed the way Debian does.
#[test]
fn every_symbol_of_libomp_is_exported_or_excused() {
    let excuses = include_str!("../unsupported-symbols.txt").to_owned()
        + include_str!("../unsupported-symbols-llvm.txt");
    let versions = (11..40).map(|version| format!("/usr/lib/llvm-{version}/lib/libomp.so.5"));
    let found = versions.filter(|path| std::path::Path::new(path).exists()).collect::<Vec<_>>();
    if found.is_empty() {
        atoll_skips::skip!("no libomp.so.5 is installed: apt-get install libomp-dev");
    }
    for libomp in found {
        compare(&libomp, "__kmpc_fork_call", &excuses);
    }
}
