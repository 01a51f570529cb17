//! Runs programs of LLVM's compilers, which call another runtime's names: the conformance programs and the workloads, under
//! atoll.
//!
//! Where no clang with an OpenMP runtime is installed, the tests are skipped, and say so.

use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_e2e::build::{self, by, clangs, installed, root, sources, variables};
use atoll_e2e::workloads::checksum;
use atoll_e2e::{Atoll, native, skip, skip_part};

/// The numbers of workers.
const WORKERS: [u32; 4] = [1, 2, 4, 7];

/// Whether a compiler knows every construct that the conformance programs use: LLVM 19 and later do.
fn has_them_all(compiler: &str) -> bool {
    compiler
        .rsplit('-')
        .next()
        .and_then(|version| version.parse().ok())
        .is_some_and(|version: u32| version >= 19)
}

/// Runs each conformance program, built by each compiler, in the way `way`. Compilers older than LLVM 19 lack constructs.
fn conformance(way: &str) {
    let Some(newest) = clangs().first() else { skip!("no clang with an OpenMP runtime is installed") };
    let mut failed = Vec::new();
    for compiler in clangs() {
        for source in sources("tests/openmp", &["c", "cc"]) {
            let program = match by(compiler, &source) {
                Ok(program) => program,
                Err(why) if compiler == newest && has_them_all(newest) => {
                    panic!("{compiler} {}: {why}", source.display())
                }
                Err(_) => {
                    atoll_skips::skip_part!("{compiler} does not compile {}", source.display());
                    continue;
                }
            };
            for workers in WORKERS {
                let run = Atoll::new(&program).with(&format!("--workers {workers} --near 20M {way}"));
                let set = |run: Atoll, (name, value): &(String, String)| run.env(name, value);
                let run = variables(&source).iter().fold(run, set).run();
                if run.timed_out || run.status != Some(0) || !run.left.is_empty() {
                    failed.push(format!("left {:?} {}", run.left, run.told()));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n\n"));
}

/// Returns a program of the folder `programs` built by the newest clang.
fn by_newest_clang(source: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(source);
    let compiler = clangs().first()?;
    Some(by(compiler, &path).unwrap_or_else(|why| panic!("{why}")))
}

/// Regions of clang's programs had no name in a profile, and no marks in a trace.
#[test]
fn profiles_and_traces_did_not_see_regions_of_clang() {
    let Some(program) = by_newest_clang("hot.c") else {
        skip!("no clang with an OpenMP runtime is installed")
    };
    let folder = tempfile::tempdir().expect("a folder");
    let atoll = |words: &[&str]| {
        let mut command = Command::new(build::atoll());
        let output = command.args(words).arg(&program).arg("4").current_dir(&folder).output();
        let output = output.expect("atoll is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let told = |words: &[&str]| {
        let output = Command::new(build::atoll()).args(words).current_dir(&folder).output();
        String::from_utf8_lossy(&output.expect("atoll is there").stdout).into_owned()
    };
    atoll(&["profile", "--sampler", "timer", "-o", "p.atoll", "--"]);
    let text = told(&["report", "--text", "p.atoll"]);
    // Four rounds of nine regions.
    let regions = text.lines().find(|line| line.contains("sweep") && line.contains("outlined"));
    assert!(regions.is_some_and(|line| line.split_whitespace().any(|word| word == "36")), "{text}");
    if !installed("qemu-x86_64") {
        skip_part!("qemu-user is not installed, by which traces are captured: apt-get install qemu-user");
        return;
    }
    atoll(&["trace", "--workers", "2", "-o", "t.trace", "--"]);
    let text = told(&["show", "t.trace"]);
    assert!(text.contains("36 regions") && text.contains("outlined"), "{text}");
}

#[test]
fn conformance_with_private_page_tables() {
    conformance("");
}

#[test]
fn conformance_with_shared_page_tables() {
    conformance("--page-tables shared");
}

/// The workloads print the same checksum as natively, in class S: `sparselu` in class W, as the near memory of seven workers may be more than 70% of what
/// two workers of class S need in all.
#[test]
fn workloads_of_small_classes() {
    let Some(compiler) = clangs().first() else { skip!("no clang with an OpenMP runtime is installed") };
    let mut failed = Vec::new();
    for name in ["cg", "ep", "lu", "stencil", "kmeans", "graph500", "strassen", "sparselu", "pagerank"] {
        let source = root().join(format!("programs/{name}.c"));
        let program = by(compiler, &source).unwrap_or_else(|why| panic!("{name}: {why}"));
        let class = if name == "sparselu" { "W" } else { "S" };
        let alone = native(&program).args(class).run().exits(0);
        for (workers, way) in
            [(2, "--page-tables private"), (7, "--page-tables private"), (4, "--page-tables shared")]
        {
            let with = format!("--workers {workers} --near 70% {way}");
            let run = Atoll::new(&program).args(class).with(&with).limit(120).run();
            if run.status != Some(0) || checksum(&run.text()) != checksum(&alone.text()) {
                failed.push(run.told());
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// What a program prints whose construct needs all threads on one node, where that is known only when it is met.
const REFUSED: &str = "cannot be spread over several nodes";

/// Runs each conformance program over nodes that share no memory: it is right, or refused with the one sentence. Loops whose
/// `ordered` clause has no region were refused.
#[test]
fn on_several_nodes() {
    let Some(compiler) = clangs().first() else { skip!("no clang with an OpenMP runtime is installed") };
    let mut failed = Vec::new();
    for source in sources("tests/openmp", &["c", "cc"]) {
        let program = by(compiler, &source).unwrap_or_else(|why| panic!("{}: {why}", source.display()));
        // Every turn of a lock moves its page, so there are fewer turns than where memory is shared.
        let size = if source.ends_with("hand_locks.c") { "300" } else { "" };
        let run = Atoll::new(&program).args(size).with("--nodes 2 --workers 2").limit(90);
        let set = |run: Atoll, (name, value): &(String, String)| run.env(name, value);
        let run = variables(&source).iter().fold(run, set).run();
        let refused = run.status == Some(70) && run.stderr.contains(REFUSED) && !source.ends_with("loops.c");
        if (run.status != Some(0) && !refused) || run.timed_out || !run.left.is_empty() {
            failed.push(format!("left {:?} {}", run.left, run.told()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Builds `both`, whose main is clang's and whose library is gcc's.
fn both_runtimes(folder: &Path, compiler: &str) -> PathBuf {
    let sources = root().join("tests/e2e/programs/two_runtimes");
    let make = |command: &str, arguments: &[&str]| {
        let output = Command::new(command).current_dir(folder).args(arguments).output().expect("a compiler");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let (part, main) = (sources.join("part.c"), sources.join("main.c"));
    let (part, main) = (part.to_string_lossy(), main.to_string_lossy());
    make("gcc", &["-O1", "-fopenmp", "-shared", "-fPIC", "-o", "libpart.so", &part]);
    make(compiler, &["-O1", "-fopenmp", "-o", "both", &main, "-L.", "-lpart", "-Wl,-rpath,$ORIGIN"]);
    folder.join("both")
}

/// A program of clang's has a library of gcc's: regions of both have the same workers, and none of either runtime's own.
#[test]
fn both_runtimes_in_one_program_have_one_team() {
    let Some(compiler) = clangs().first() else { skip!("no clang with an OpenMP runtime is installed") };
    let folder = tempfile::tempdir().expect("a folder");
    let program = both_runtimes(folder.path(), compiler);
    for way in ["--page-tables private", "--page-tables shared"] {
        let run = Atoll::new(&program).with(&format!("--workers 4 --near 16M {way}")).run().clean();
        assert_eq!(run.text(), "the same 4 workers\n", "{}", run.told());
    }
}

/// Names that clang calls seldom or never, called by hand: regions with many arguments, atomic operations on every kind of number,
/// copies of threadprivate variables, sections, chunks at the end of the numbers.
#[test]
fn names_that_clang_seldom_calls() {
    let Some(compiler) = clangs().first() else { skip!("no clang with an OpenMP runtime is installed") };
    let source = root().join("tests/e2e/programs/llvm_calls.c");
    let program = by(compiler, &source).unwrap_or_else(|why| panic!("{why}"));
    for workers in [1, 3, 4] {
        for way in ["--page-tables private", "--page-tables shared"] {
            let run =
                Atoll::new(&program).with(&format!("--workers {workers} --near 16M {way}")).run().clean();
            assert_eq!((run.status, run.text().as_str()), (Some(0), ""), "{}", run.told());
        }
    }
}
