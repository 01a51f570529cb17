//! The verdicts on all regions of the workloads and of the OpenMP programs, as a table.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;

use atoll_code::{Processor, Verdict};

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Plain => "plain",
        Verdict::Atomic(_) => "atomic",
        Verdict::Unknown(_) => "unknown",
    }
}

/// Builds a program, prints the table of its regions and returns their verdicts.
fn table(compiler: &str, options: &[&str], source: &Path) -> Vec<(String, &'static str)> {
    let out = tempfile::tempdir().unwrap();
    let program = out.path().join("program");
    if let Err(words) = common::build(compiler, options, source, &program) {
        atoll_skips::skip_part!(
            "{} by {compiler} {}: {}",
            source.display(),
            options.join(" "),
            words.lines().next().unwrap_or("")
        );
        return Vec::new();
    }
    let files = common::objects(&program, processor_of(compiler));
    common::with_code(&files, |code| {
        let mut verdicts = Vec::new();
        for (name, reach) in common::regions(code, common::is_outlined) {
            let reason = match &reach.verdict {
                Verdict::Plain => String::new(),
                Verdict::Atomic(finding) | Verdict::Unknown(finding) => code.sentence(finding),
            };
            let file = source.file_name().unwrap_or_default().to_string_lossy();
            println!(
                "{file:14} {compiler} {} {name:34} {:8}{:>4} functions{:>6} instructions  {reason}",
                options[0],
                word(&reach.verdict),
                reach.functions,
                reach.instructions
            );
            verdicts.push((name, word(&reach.verdict)));
        }
        verdicts
    })
}

fn processor_of(compiler: &str) -> Processor {
    if compiler.starts_with("aarch64") { Processor::Aarch64 } else { Processor::HERE }
}

fn compilers() -> Vec<&'static str> {
    ["gcc", "clang", "aarch64-linux-gnu-gcc"].into_iter().filter(|c| common::installed(c)).collect()
}

#[test]
fn workloads_have_the_verdicts_their_sources_say() {
    let folder = common::root().join("programs");
    if compilers().is_empty() {
        atoll_skips::skip!("neither gcc nor clang is installed: apt-get install gcc");
    }
    for compiler in compilers() {
        for level in ["-O2", "-O3"] {
            for name in ["bt", "sp", "cg", "ep", "lu", "graph500", "randomaccess", "stencil", "sweep"] {
                let source = folder.join(format!("{name}.c"));
                let own: &[&str] = match processor_of(compiler) {
                    Processor::X86_64 => &["-march=x86-64-v2", "-mcmodel=medium"],
                    Processor::Aarch64 => &[],
                };
                let options = [&[level, "-fopenmp", "-std=gnu11"], own].concat();
                let verdicts = table(compiler, &options, &source);
                if verdicts.is_empty() {
                    continue;
                }
                let all = |wanted: &str| verdicts.iter().all(|v| v.1 == wanted);
                let any = |wanted: &str| verdicts.iter().any(|v| v.1 == wanted);
                assert!(!any("unknown"), "{name}: everything in it can be followed");
                match name {
                    // clang's reductions can also be done by atomic operations.
                    "bt" | "sp" | "cg" | "ep" | "stencil" if compiler.ends_with("gcc") => {
                        assert!(all("plain"), "{name}");
                    }
                    "lu" | "graph500" | "randomaccess" | "sweep" => assert!(any("atomic"), "{name}"),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn regions_of_the_openmp_programs() {
    let folder = common::root().join("tests/openmp");
    let mut sources: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    sources.sort();
    for source in sources {
        let compiler = match source.extension().and_then(|e| e.to_str()) {
            Some("c") => "gcc",
            Some("cc") => "g++",
            Some("f90") => "gfortran",
            _ => continue,
        };
        if !common::installed(compiler) {
            atoll_skips::skip_part!("{compiler} is not installed: apt-get install {compiler}");
            continue;
        }
        table(compiler, &["-O2", "-fopenmp"], &source);
    }
}
