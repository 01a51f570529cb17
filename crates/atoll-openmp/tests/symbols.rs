//! Every symbol of the installed libgomp is exported by our library, or said not to be.
//!
//! The list of those that are not is `unsupported-symbols.txt`; `programs.rs` tests what the others do.

mod library;

use std::collections::BTreeSet;
use std::process::Command;

/// The names a library defines for others, without versions.
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

#[test]
fn every_symbol_of_libgomp_is_exported_or_excused() {
    let asked = Command::new("gcc").arg("-print-file-name=libgomp.so.1").output();
    let libgomp =
        asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if !libgomp.starts_with('/') {
        eprintln!("skipped: gcc with libgomp.so.1 is not installed");
        return;
    }
    let excuses = include_str!("../unsupported-symbols.txt")
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
    let (theirs, ours) = (exported(&libgomp), exported(&library::path().to_string_lossy()));
    assert!(theirs.contains("GOMP_parallel"), "{libgomp} is not libgomp");
    let missing = theirs.difference(&ours).filter(|name| !excused(name)).collect::<Vec<_>>();
    assert!(missing.is_empty(), "neither exported nor excused: {missing:?}");
    let needless = ours.iter().filter(|name| excused(name)).collect::<Vec<_>>();
    assert!(needless.is_empty(), "exported, and excused all the same: {needless:?}");
}
