//! Compares `docs/compatibility.md` with the tree: the tests that it names, the sentences that it quotes, and the symbols that
//! it lists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_e2e::build::{atoll, root};
use atoll_e2e::skip;

fn page() -> String {
    std::fs::read_to_string(root().join("docs/compatibility.md")).expect("the page is there")
}

/// Returns the cells of the tables' rows below the heading `title`, without the first row and the line below it.
fn rows(page: &str, title: &str) -> Vec<Vec<String>> {
    let from = page.find(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("no heading {title}"));
    let section = &page[from + 1..];
    let section = &section[..section[3..].find("\n## ").map_or(section.len(), |at| at + 3)];
    let table = section.lines().filter(|line| line.starts_with('|')).skip(2);
    table.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// Returns the texts between backquotes.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Finds all files below `folder` whose names end in `.rs`.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

fn all_sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["crates", "tests/e2e/tests"] {
        sources(&root().join(folder), &mut found);
    }
    found
}

#[test]
fn tests_that_are_named_are_there() {
    let (page, sources) = (page(), all_sources());
    let mut named = 0;
    for title in ["Programs", "What programs do", "Limits of the shell"] {
        for row in rows(&page, title) {
            let tests = quoted(row.last().expect("cells"));
            assert!(!tests.is_empty(), "no test is named in the row of {}", row[0]);
            for test in tests {
                let (file, name) = test.split_once("::").unwrap_or((&test, ""));
                // A test is a function, or the name of a program in a table of tests.
                let (function, entry) = (format!("fn {name}("), format!("    {name} \""));
                let there = sources.iter().filter(|path| path.ends_with(file)).any(|path| {
                    let text = std::fs::read_to_string(path).expect("a source");
                    name.is_empty() || text.contains(&function) || text.contains(&entry)
                });
                assert!(there, "{test} is not there");
                named += 1;
            }
        }
    }
    assert!(named > 30, "{named}");
}

#[test]
fn sentences_are_those_that_are_printed() {
    let mut text = String::new();
    for path in all_sources().iter().filter(|path| !path.ends_with("compatibility.rs")) {
        let source = std::fs::read_to_string(path).expect("a source");
        // A literal continues in the next line behind a backslash.
        let mut pieces = source.split("\\\n");
        text.push_str(pieces.next().unwrap_or_default());
        pieces.for_each(|piece| text.push_str(piece.trim_start()));
    }
    let rows = rows(&page(), "Sentences");
    assert!(rows.len() > 5);
    for row in rows {
        for sentence in quoted(&row[0]) {
            assert!(text.contains(&sentence), "nothing says: {sentence}");
        }
    }
}

/// Returns the names that an ELF file defines for the dynamic linker, without versions.
fn defined(file: &Path) -> BTreeSet<String> {
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(file).output().expect("nm is installed");
    assert!(output.status.success(), "nm {}", file.display());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter(|line| !line.contains(" A ")).filter_map(|line| line.split(' ').nth(2));
    names.map(|name| name.split('@').next().unwrap_or(name).to_owned()).collect()
}

#[test]
fn symbols_that_are_missing_are_listed() {
    let output = Command::new("gcc").arg("-print-file-name=libgomp.so.1").output();
    let libgomp =
        output.map(|o| PathBuf::from(String::from_utf8_lossy(&o.stdout).trim())).unwrap_or_default();
    let Ok(libgomp) = libgomp.canonicalize() else { skip!("gcc's libgomp.so.1 is not found") };
    let patterns: Vec<String> = rows(&page(), "Symbols").iter().flat_map(|row| quoted(&row[0])).collect();
    let ours = defined(&atoll().with_file_name("libatoll_openmp.so"));
    let listed = |name: &str| {
        patterns.iter().any(|p| name == p || p.strip_suffix('*').is_some_and(|start| name.starts_with(start)))
    };
    let missing: Vec<String> =
        defined(&libgomp).difference(&ours).filter(|name| !listed(name)).cloned().collect();
    assert!(missing.is_empty(), "not in the runtime, and not listed: {missing:?}");
    let wrong: Vec<&String> = ours.iter().filter(|name| listed(name)).collect();
    assert!(wrong.is_empty(), "listed as missing, and there: {wrong:?}");
}
