//! Compares `ARCHITECTURE.md` with the tree: the order of the crates, and the paths that it names.

use std::path::{Path, PathBuf};

use atoll_e2e::build::root;

fn page() -> String {
    std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page is there")
}

/// Returns the texts between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the folders of the crates in the order of the page's first table.
fn rooms(page: &str) -> Vec<String> {
    let table = &page[page.find("| crate | holds |").expect("the table")..];
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| quoted(row).next().map(str::to_owned)).collect()
}

fn name_of(folder: &str) -> String {
    let text = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).expect(folder);
    let line = text.lines().find(|line| line.starts_with("name = ")).expect("a name");
    line.split('"').nth(1).expect("a name").to_owned()
}

/// Returns the crates of this workspace that a crate uses in its own code, not in its tests.
fn uses(folder: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).expect(folder);
    let section = text.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| name.starts_with("atoll")).map(str::to_owned).collect()
}

#[test]
fn each_crate_uses_only_crates_above_it() {
    let rooms = rooms(&page());
    let mut above: Vec<String> = Vec::new();
    for folder in &rooms {
        for used in uses(folder) {
            assert!(above.contains(&used), "{folder} uses {used}, which is not above it in ARCHITECTURE.md");
        }
        above.push(name_of(folder));
    }
    for parent in ["crates/pure", "crates/system", "crates/loaded", "crates/command", "benches"] {
        for entry in std::fs::read_dir(root().join(parent)).expect("a folder").flatten() {
            let folder = format!("{parent}/{}", entry.file_name().to_string_lossy());
            assert!(rooms.contains(&folder), "{folder} is not in ARCHITECTURE.md");
        }
    }
}

fn all(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() && !["target", ".git"].iter().any(|name| path.ends_with(name)) {
            all(&path, found);
        }
        found.push(path);
    }
}

/// A path is named from the root, or by its last parts where the sentence has named the rest.
#[test]
fn paths_that_are_named_are_there() {
    let (page, mut found) = (page(), Vec::new());
    all(&root(), &mut found);
    let endings = [".rs", ".md", ".toml", ".c", ".sh"];
    let is_path = |word: &&str| {
        !word.contains([' ', '*', '…'])
            && (word.ends_with('/') || endings.iter().any(|ending| word.ends_with(ending)))
    };
    let missing: Vec<&str> = quoted(&page)
        .filter(is_path)
        .filter(|word| !found.iter().any(|path| path.ends_with(word.trim_end_matches('/'))))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
