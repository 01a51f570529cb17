//! Tests `atoll trace` on unmodified programs: they run as they do alone, and the trace has what they did.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use atoll_e2e::{build, built, helper, native, recording, skip};
use atoll_record::trace::{Event, Header, Reader, Trailer};
use tempfile::TempDir;

/// Leaves the test where its engine is missing.
macro_rules! needs_qemu {
    () => {
        if !build::installed("qemu-x86_64") {
            skip!("qemu-x86_64 is not installed: apt-get install qemu-user");
        }
    };
}

/// The contents of a trace.
struct Trace {
    header: Header,
    events: Vec<Event>,
    trailer: Trailer,
}

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().expect("a folder") }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    fn command(&self, options: &str, program: &Path, arguments: &str) -> Command {
        recording("trace", 100, options, &self.file(), program, arguments)
    }

    fn run(&self, options: &str, program: impl AsRef<Path>, arguments: &str) -> Output {
        self.command(options, program.as_ref(), arguments).output().expect("timeout is there")
    }

    /// Runs a program that must end well, and reads its trace.
    fn trace(&self, options: &str, program: &Path, arguments: &str) -> (String, Trace) {
        let output = self.run(options, program, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
        (String::from_utf8_lossy(&output.stdout).into_owned(), self.read())
    }

    fn read(&self) -> Trace {
        let (mut reader, mut events) = (Reader::open(&self.file()).expect("a trace"), Vec::new());
        while reader.next_chunk(&mut events).expect("a whole trace") {}
        let trailer = reader.trailer().expect("all is read").clone();
        Trace { header: reader.header().clone(), events, trailer }
    }

    /// Returns the number of files that are there.
    fn files(&self) -> usize {
        std::fs::read_dir(self.folder.path()).expect("a folder").count()
    }
}

/// Returns the lines of a workload's output that are the same in each run.
fn stable(output: &str) -> Vec<&str> {
    output.lines().filter(|line| line.starts_with("Checksum") || line.starts_with("Verification")).collect()
}

#[test]
fn workloads_run_as_alone_with_1_2_and_56_workers() {
    needs_qemu!();
    for name in ["cg", "bt", "lu"] {
        for workers in [1, 2, 56] {
            let bench = Bench::new();
            let (output, trace) = bench.trace(&format!("--workers {workers}"), &built(name), "S");
            let alone = native(built(name)).arg("S").env("OMP_NUM_THREADS", "2").run().clean();
            assert_eq!(stable(&output), stable(&alone.text()), "{name} with {workers}");
            assert_eq!((trace.header.workers, trace.trailer.workers), (workers, workers));
            assert!(trace.trailer.regions > 0 && trace.trailer.instructions > 0, "{:?}", trace.trailer);
            let accesses = trace.trailer.reads + trace.trailer.writes;
            assert!(accesses > 0 && accesses < trace.trailer.accesses_seen / 20, "{:?}", trace.trailer);
            assert!(trace.trailer.names.values().any(|name| name.contains("._omp_fn")));
        }
    }
}

#[test]
fn programs_hold_more_memory_and_give_the_same_bits() {
    for (name, option) in [("cg", "--triples"), ("stencil", "--whole-model")] {
        let run =
            |words: &str| native(built(name)).args(words).env("OMP_NUM_THREADS", "2").run().clean().text();
        let (plain, more) = (run("S"), run(&format!("S {option}")));
        assert_eq!(stable(&plain), stable(&more), "{name}");
        assert!(more.contains("Verification: successful"));
    }
}

/// The pages that workers touched, with read or write, between two marks.
type Touched = BTreeSet<(u16, u64, bool)>;

/// Returns what is touched among `pages` from `first` on: in each region, before its barrier and after.
fn by_phase(events: &[Event], first: u64, pages: u64) -> Vec<Touched> {
    let mut phases = vec![Touched::new()];
    let mut ended = 0;
    for event in events {
        match *event {
            Event::Access { worker, page, write } if (first..first + pages).contains(&page) => {
                phases.last_mut().expect("one at least").insert((worker, page - first, write));
            }
            // The workers' marks of one kind: all begin before any goes on, and go on before the last ends.
            Event::RegionBegin { worker: 0, .. } | Event::Barrier { worker: 0, .. } => {
                phases.push(Touched::new());
            }
            Event::RegionEnd { .. } => {
                ended += 1;
                if ended % 4 == 0 {
                    phases.push(Touched::new());
                }
            }
            _ => {}
        }
    }
    phases.retain(|phase| !phase.is_empty());
    phases
}

fn page_of(address: &str) -> u64 {
    u64::from_str_radix(address.trim().trim_start_matches("0x"), 16).expect("an address") >> 12
}

fn expected() -> [Touched; 2] {
    let own = |worker: u64| (0..16).map(move |page| (worker as u16, worker * 16 + page, page < 8));
    let next = |worker: u64| (worker as u16, (worker + 1) % 4 * 16, false);
    [(0..4).flat_map(own).collect(), (0..4).map(next).collect()]
}

#[test]
fn exact_traces_hold_each_touched_page() {
    needs_qemu!();
    let bench = Bench::new();
    let (output, trace) = bench.trace("--exact --workers 4", &helper("touches.c"), "");
    let first = page_of(&output);
    let [before, after] = expected();
    let astride = Touched::from([(0, 0, true), (0, 1, true)]);
    assert_eq!(by_phase(&trace.events, first, 64), [before.clone(), after.clone(), before, after, astride]);
    assert!(trace.header.exact && trace.header.filter.is_none());
    let touches = |wanted: u64| {
        trace.events.iter().filter(|e| matches!(e, Event::Access { page, .. } if *page == wanted)).count()
    };
    // There are three rounds and one: one page is read three times, and one once.
    assert_eq!((touches(first + 5), touches(first + 9)), (4, 4));
    let mapped = |event: &&Event| matches!(event, Event::Map { first: f, pages: 64 } if *f == first);
    let unmapped = |event: &&Event| matches!(event, Event::Unmap { first: f, pages: 64 } if *f == first);
    assert!(trace.events.iter().any(|e| mapped(&e)) && trace.events.iter().any(|e| unmapped(&e)));
    assert_eq!((trace.trailer.regions, trace.trailer.barriers), (2, 2));
}

#[test]
fn filtered_traces_hold_each_touched_page_between_marks() {
    needs_qemu!();
    let bench = Bench::new();
    let (output, trace) = bench.trace("--filter 8 --workers 4", &helper("touches.c"), "");
    let [before, after] = expected();
    let phases = by_phase(&trace.events, page_of(&output), 64);
    assert_eq!(phases[..4], [before.clone(), after.clone(), before, after]);
    assert_eq!(trace.header.filter.map(|filter| filter.entries), Some(8));
}

#[test]
fn recording_is_limited_to_regions_and_iterations() {
    needs_qemu!();
    let bench = Bench::new();
    let region = "touch";
    let count = |options: &str| {
        let (output, trace) = bench.trace(&format!("--workers 4 {options}"), &helper("touches.c"), "");
        (by_phase(&trace.events, page_of(&output), 64).len(), trace.trailer.regions)
    };
    assert_eq!(count("--regions 2"), (2, 1));
    assert_eq!(count(&format!("--regions {region}")), (4, 2));
    assert_eq!(count("--regions none"), (0, 0));
    assert_eq!(count("--iterations 1"), (2, 1));
    // A program that is ended in the middle does not come to its end.
    let (output, trace) = bench.trace("--workers 4 --iterations 1 --stop", &built("lu"), "S");
    assert!(trace.trailer.regions >= 1 && !output.contains("Verification"), "{output}");
}

#[test]
fn a_program_made_for_the_hooks_is_traced_without_qemu() {
    let bench = Bench::new();
    let folder = bench.folder.path();
    let source = build::root().join("tests/e2e/programs/touches.c");
    let (object, program) = (folder.join("touches.o"), folder.join("touches"));
    let hooks = build::atoll().with_file_name("libatoll_hooks.so");
    let gcc = |words: &[&std::ffi::OsStr]| {
        let status = Command::new("gcc").args(["-O2", "-fopenmp"]).args(words).status();
        assert!(status.is_ok_and(|status| status.success()));
    };
    gcc(&["-fsanitize=thread".as_ref(), "-c".as_ref(), source.as_ref(), "-o".as_ref(), object.as_ref()]);
    gcc(&[object.as_ref(), hooks.as_ref(), "-o".as_ref(), program.as_ref()]);
    let (output, trace) = bench.trace("--exact --engine tsan --workers 4", &program, "");
    let [before, after] = expected();
    let phases = by_phase(&trace.events, page_of(&output), 64);
    assert_eq!(phases[..4], [before.clone(), after.clone(), before, after]);
    assert_eq!((trace.header.engine.as_str(), trace.trailer.regions), ("tsan", 2));
    // The program runs alone as well.
    let alone = Command::new(&program).env("LD_LIBRARY_PATH", hooks.parent().expect("a folder")).output();
    assert!(alone.expect("it runs").status.success());
}

#[test]
fn endings_environment_and_descriptors_are_the_programs() {
    needs_qemu!();
    let bench = Bench::new();
    let shell = |script: &str| {
        let mut command = bench.command("", Path::new("bash"), "-c");
        let output = command.arg(script).env("LD_PRELOAD", "").output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(shell("echo out; exit 7"), (Some(7), "out\n".to_owned()));
    assert_eq!(bench.read().header.arguments, ["bash", "-c", "echo out; exit 7"]);
    // `timeout` ends as the program that it ran.
    let output = bench.command("", Path::new("bash"), "-c").arg("kill -9 $$").output().expect("it runs");
    assert!(output.status.signal() == Some(9) || output.status.code() == Some(128 + 9), "{output:?}");
    let environment = bench.run("", "env", "").stdout;
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("ATOLL") && !environment.contains("LD_PRELOAD"), "{environment}");
    let file = bench.file();
    std::fs::remove_file(&file).expect("written");
    for refused in ["no-such-program", "/etc/passwd"] {
        let status = bench.run("", refused, "").status.code();
        assert!(matches!(status, Some(126 | 127)), "{refused}: {status:?}");
        assert_eq!(bench.files(), 0);
    }
}

#[test]
fn an_engine_that_is_missing_or_too_new_is_named() {
    let bench = Bench::new();
    let folder = bench.folder.path().join("bin");
    std::fs::create_dir(&folder).expect("a folder");
    let said = || {
        let mut command = Command::new(build::atoll());
        command.arg("trace").arg("-o").arg(bench.file()).arg(built("cg")).env("PATH", &folder);
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(70));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said().contains("apt-get install qemu-user"));
    let qemu = folder.join("qemu-x86_64");
    std::fs::write(&qemu, "#!/bin/sh\necho qemu-x86_64 version 9.1.2\n").expect("written");
    std::fs::set_permissions(&qemu, Permissions::from_mode(0o755)).expect("executable");
    assert!(said().contains("9.1.2"));
    assert_eq!(bench.files(), 1);
}

#[test]
fn a_trace_is_shown_and_a_damaged_one_is_refused() {
    needs_qemu!();
    let bench = Bench::new();
    bench.trace("--workers 4", &helper("touches.c"), "");
    let show = || Command::new(build::atoll()).arg("show").arg(bench.file()).output().expect("it runs");
    let shown = String::from_utf8_lossy(&show().stdout).into_owned();
    assert!(shown.contains("engine qemu, 4 workers") && shown.contains("touch._omp_fn.0"), "{shown}");
    let mut bytes = std::fs::read(bench.file()).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(bench.file(), bytes).expect("written");
    let output = show();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(70) && said.contains("damaged at byte"), "{said}");
}
