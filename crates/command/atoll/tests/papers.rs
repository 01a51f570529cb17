//! Checks `docs/papers.md`: every file, command and flag that it names is there.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Returns the words between backquotes in the tables of the document.
fn named(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    lines.flat_map(|line| line.split('`').skip(1).step_by(2)).map(|name| name.replace("\\|", "|")).collect()
}

/// Returns what `atoll COMMAND --help` prints; `None` if there is no such command.
fn help(command: &str) -> Option<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_atoll")).args([command, "--help"]).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// Returns what is wrong with `atoll …`, if something is.
fn wrong_atoll(words: &[&str], known: &mut HashMap<String, Option<String>>) -> Option<String> {
    let command = *words.first()?;
    let text = known.entry(command.to_owned()).or_insert_with(|| help(command));
    let Some(text) = text else { return Some(format!("no command {command}")) };
    // Words behind `--` are the program's.
    let mine = words.iter().take_while(|&&word| word != "--");
    let flags = mine.filter(|word| word.starts_with("--")).map(|word| word.split('=').next().unwrap());
    let missing =
        |flag: &&str| !text.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == *flag);
    flags.into_iter().find(missing).map(|flag| format!("atoll {command} has no {flag}"))
}

/// Returns what is wrong with `cargo test …`, if something is.
fn wrong_cargo(words: &[&str]) -> Option<String> {
    let after = |flag| words.iter().position(|&word| word == flag).and_then(|at| words.get(at + 1));
    let package = after("-p")?;
    let floors = ["crates/pure", "crates/system", "crates/loaded", "crates/command", "tests", "benches"];
    let folders = floors.map(|folder| root().join(folder).join(package));
    let folder = folders.into_iter().chain([root().join("tests/e2e")]).find(|folder| {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        manifest.contains(&format!("name = \"{package}\""))
    });
    let Some(folder) = folder else { return Some(format!("no package {package}")) };
    let test = after("--test")?;
    let there =
        [format!("tests/{test}.rs"), format!("tests/{test}/main.rs")].iter().any(|f| folder.join(f).exists());
    (!there).then(|| format!("{package} has no test {test}"))
}

fn wrong(name: &str, known: &mut HashMap<String, Option<String>>) -> Option<String> {
    let words: Vec<&str> = name.split_whitespace().collect();
    match words.as_slice() {
        ["atoll", rest @ ..] => wrong_atoll(rest, known),
        ["cargo", rest @ ..] => wrong_cargo(rest),
        ["make", target] => {
            let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
            let there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
            (!there).then(|| format!("make has no {target}"))
        }
        [path, ..] if path.starts_with("target/programs/") => {
            let source = root().join("programs").join(path.rsplit('/').next().unwrap()).with_extension("c");
            (!source.exists()).then(|| format!("{} is missing", source.display()))
        }
        [path] if path.contains('/') => (!root().join(path).exists()).then(|| format!("{path} is missing")),
        _ => None,
    }
}

#[test]
fn every_file_and_command_it_names_exists() {
    let text = std::fs::read_to_string(root().join("docs/papers.md")).unwrap();
    let names = named(&text);
    assert!(names.iter().filter(|name| name.starts_with("atoll ")).count() > 10, "the tables are not found");
    let mut known = HashMap::new();
    let wrong: Vec<String> = names.iter().filter_map(|name| wrong(name, &mut known)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_missing_is_found() {
    let mut known = HashMap::new();
    for name in [
        "crates/pure/atoll-pages/src/nothing.rs",
        "atoll nothing",
        "atoll run --nothing 3 -- ./a",
        "make nothing",
        "cargo test -p atoll-pages --test nothing",
        "target/programs/nothing B",
    ] {
        assert!(wrong(name, &mut known).is_some(), "{name}");
    }
    assert_eq!(wrong("atoll run --near 1M -- ./a --nothing", &mut known), None);
}
