//! Tests of functions whose names tell their verdict, at every level of optimisation.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::Path;

use atoll_code::{Effect, Kind, Processor, Verdict};

const X86_OPTIONS: [&[&str]; 8] = [
    &["-O0"],
    &["-O1"],
    &["-O2"],
    &["-O3"],
    &["-O2", "-fcf-protection=full", "-z", "ibtplt"],
    &["-O2", "-fno-pie", "-no-pie", "-fcf-protection=none"],
    &["-O3", "-march=skylake-avx512", "-fno-plt"],
    &["-O2", "-s", "-rdynamic", "-mcmodel=medium"],
];

const ARM_OPTIONS: [&[&str]; 8] = [
    &["-O0"],
    &["-O1"],
    &["-O2"],
    &["-O3"],
    &["-O2", "-march=armv8.1-a"],
    &["-O2", "-mno-outline-atomics", "-fno-pie", "-no-pie", "-fomit-frame-pointer"],
    &["-O3", "-mbranch-protection=standard", "-march=armv8.3-a"],
    &["-O2", "-s", "-rdynamic"],
];

/// Builds a file of `snippets/` with each set of options, and calls `look` with every function named `plain_…` and so on.
fn each(compiler: &str, source: &str, look: &mut dyn FnMut(&str, &str, &atoll_code::Reach, &str)) {
    if !common::installed(compiler) {
        let package = match compiler.strip_prefix("aarch64-linux-gnu-") {
            Some(language) => format!("{language}-aarch64-linux-gnu"),
            None => compiler.to_string(),
        };
        atoll_skips::skip_part!("{compiler} is not installed: apt-get install {package}");
        return;
    }
    let processor = if compiler.starts_with("aarch64") { Processor::Aarch64 } else { Processor::HERE };
    let sets = if processor == Processor::Aarch64 { ARM_OPTIONS } else { X86_OPTIONS };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snippets").join(source);
    let folder = tempfile::tempdir().unwrap();
    for options in sets {
        let out = folder.path().join("program");
        let with = [&["-fopenmp", "-w"], options].concat();
        if let Err(words) = common::build(compiler, &with, &path, &out) {
            atoll_skips::skip_part!(
                "{source} by {compiler} {}: {}",
                options.join(" "),
                words.lines().next().unwrap_or("")
            );
            continue;
        }
        let files = common::objects(&out, processor);
        common::with_code(&files, |code| {
            let wanted = |name: &str| {
                let kind = name.split('_').next().unwrap_or("");
                ["plain", "atomic", "unknown", "phases"].contains(&kind) && !name.contains('.')
            };
            let regions = common::regions(code, wanted);
            assert!(regions.len() > 3, "{source} {}: its functions are found", options.join(" "));
            for (name, reach) in regions {
                let sentences: Vec<String> = reach.findings.iter().map(|f| code.sentence(f)).collect();
                look(&name, &options.join(" "), &reach, &sentences.join("; "));
            }
        });
    }
}

/// The same for gcc of both processors.
fn each_gcc(source: &str, look: &mut dyn FnMut(&str, &str, &atoll_code::Reach, &str)) {
    let arm = common::arm_gcc("gcc");
    each("gcc", source, look);
    if arm != "gcc" {
        each(&arm, source, look);
    }
}

fn kind(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Plain => "plain",
        Verdict::Atomic(_) => "atomic",
        Verdict::Unknown(_) => "unknown",
    }
}

/// Checks that all functions of a file have the verdict with which their names begin.
fn check(source: &str, compilers: &[&str]) {
    let mut wrong = Vec::new();
    for compiler in compilers {
        each(compiler, source, &mut |name, options, reach, sentences| {
            // There `it != end` is a call, and it cannot be determined whether `++it` changes what the call reads.
            if name == "plain_vector" && options == "-O0" {
                return;
            }
            if !name.starts_with(kind(&reach.verdict)) {
                wrong.push(format!("{compiler} {options}: {name} is {}: {sentences}", kind(&reach.verdict)));
            }
        });
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn ordinary_code_is_plain() {
    check("plain.c", &["gcc", "clang"]);
}

#[test]
fn ordinary_code_of_arm_is_plain() {
    check("plain.c", &[&common::arm_gcc("gcc")]);
}

#[test]
fn synchronisation_is_found() {
    check("atomic.c", &["gcc", "clang"]);
}

#[test]
fn synchronisation_of_arm_is_found() {
    check("atomic.c", &[&common::arm_gcc("gcc")]);
}

#[test]
fn what_cannot_be_followed_is_unknown() {
    check("unknown.c", &["gcc", "clang"]);
}

#[test]
fn what_cannot_be_followed_of_arm_is_unknown() {
    check("unknown.c", &[&common::arm_gcc("gcc")]);
}

#[test]
fn calls_of_cxx() {
    check("virtual.cc", &["g++", "clang++"]);
}

#[test]
fn calls_of_cxx_of_arm() {
    check("virtual.cc", &[&common::arm_gcc("g++")]);
}

#[test]
fn findings_say_what_was_found() {
    each_gcc("atomic.c", &mut |name, options, reach, sentences| {
        let has = |kind| reach.findings.iter().any(|f| f.kind == kind);
        let right = match name {
            "atomic_histogram" | "atomic_capture" | "atomic_compare_and_swap" => has(Kind::AtomicUpdate),
            "atomic_flush_producer" | "atomic_full_fence" => has(Kind::Fence),
            "atomic_volatile_spin" | "atomic_pipeline" | "atomic_acquire_spin" | "atomic_spin_by_a_call" => {
                has(Kind::Wait)
            }
            _ => true,
        };
        assert!(right, "{name} {options}: {sentences}");
    });
}

#[test]
fn calls_are_reported_by_name() {
    each_gcc("plain.c", &mut |name, options, reach, _| {
        if name == "plain_allocates" {
            assert_eq!(reach.calls.get("abort"), Some(&Effect::NoReturn), "{options}");
            assert_eq!(reach.calls.get("calloc"), Some(&Effect::Plain), "{options}");
        }
        if name == "plain_mathematics" {
            assert_eq!(reach.calls.get("sin"), Some(&Effect::Pure), "{options}");
        }
    });
}

/// Only gcc's name of the barrier occurs.
#[test]
fn phases_have_the_verdicts_their_names_say() {
    each_gcc("phases.c", &mut |name, options, reach, sentences| {
        if !name.starts_with("phases_") {
            return;
        }
        let wanted = name.split('_').nth(1).unwrap();
        let digit = |phase: &atoll_code::Phase| {
            if Verdict::of(&phase.findings) == Verdict::Plain { '0' } else { '1' }
        };
        let got: String = reach.phases.iter().map(digit).collect();
        let about = format!("{name} {options}: {got} {sentences}");
        if wanted == "none" {
            assert!(reach.phases.is_empty(), "{about}");
            return;
        }
        // A compiler may double a barrier, and phases that are alike may come in any order.
        assert_eq!(got.chars().next(), wanted.chars().next(), "{about}");
        let kinds = |text: &str| ['0', '1'].map(|digit| text.chars().skip(1).any(|other| other == digit));
        assert_eq!(kinds(&got), kinds(wanted), "{about}");
    });
}
