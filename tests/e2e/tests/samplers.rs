//! Tests every sampler on whole programs: one suite for what a record promises.
//!
//! `crates/system/atoll-sampling/tests/conformance.rs` tests the same against the trait alone.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use atoll_e2e::run::PLACING;
use atoll_e2e::{build, built, recording, skip, skip_part};
use atoll_record::profile::{Access, Event, Kind, Profile, Sample};
use tempfile::TempDir;

/// The samplers, each with its options.
const SAMPLERS: [&str; 10] = [
    "--sampler pebs",
    "--sampler ibs",
    "--sampler spe",
    "--sampler timer",
    "--sampler timer --harvest-thread",
    "--sampler faults",
    "--sampler writes",
    "--sampler damon",
    "--sampler touches --summary none",
    "--sampler both --summary none",
];

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().expect("a folder") }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("a.atoll")
    }

    fn command(&self, options: &str, program: &Path, arguments: &str) -> Command {
        let mut command = recording("profile", 200, options, &self.file(), program, arguments);
        command.env("OMP_NUM_THREADS", "2").env("OMP_WAIT_POLICY", "passive");
        // Every node of several has work to be sampled, although this machine's nodes bring no CPUs of their own.
        command.env(PLACING, "spread");
        command
    }

    fn run(&self, options: &str, program: &Path, arguments: &str) -> (Output, String) {
        let output = self.command(options, program, arguments).output().expect("timeout is there");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, said)
    }

    /// Returns the profile of a program that must end well.
    fn profile(&self, options: &str, program: &Path, arguments: &str) -> Profile {
        let (output, said) = self.run(options, program, arguments);
        assert_eq!(output.status.code(), Some(0), "{options}: {said}");
        let profile = Profile::open(&self.file()).expect("a profile");
        assert!(profile.cut.is_none(), "{options}");
        profile
    }
}

fn hot() -> PathBuf {
    build::helper_with("hot.c", &["-O1", "-g", "-fopenmp"])
}

fn crowd() -> PathBuf {
    build::helper_with("crowd.c", &["-O1", "-g", "-pthread"])
}

/// A sample with the kind and name of what it touched.
type Placed = (usize, Sample, Option<(Kind, String)>);

fn placed(profile: &Profile) -> Vec<Placed> {
    let mut locator = profile.locator();
    let mut all = Vec::new();
    for batch in profile.batches().expect("its file") {
        let batch = batch.expect("samples");
        for sample in batch.samples {
            let variable = locator.place(&sample).variable.map(|v| &profile.variables[v as usize]);
            all.push((batch.sampler, sample, variable.map(|v| (v.kind, v.name.clone()))));
        }
    }
    all
}

/// Whether the sampler can run here. If not, this prints why.
fn can_run(options: &str, output: &Output, said: &str) -> bool {
    if output.status.code() == Some(70) && said.contains("cannot be used here") {
        skip_part!("{options}: {}", said.trim());
        return false;
    }
    true
}

#[test]
fn every_sampler_keeps_its_promises_in_a_record() {
    // `later` is written at the end only: the write sampler did not hear of it in time where the machine was busy, or so fast that `later` was
    // over within 0.2 s.
    let (bench, hot) = (Bench::new(), hot());
    let alone = Command::new(&hot).args(["40", "2400"]).output().expect("it runs");
    'samplers: for options in SAMPLERS {
        // Where the machine is so busy that a sampler takes next to no samples, these may all be of what ran before: the best of three
        // runs counts.
        let mut tries = 0;
        let (said, profile) = loop {
            let (output, said) = bench.run(&format!("{options} --overhead 20%"), &hot, "40 2400");
            if !can_run(options, &output, &said) {
                continue 'samplers;
            }
            assert_eq!(output.status.code(), Some(0), "{options}: {said}");
            assert_eq!(output.stdout, alone.stdout, "{options}: the program's answer");
            let profile = Profile::open(&bench.file()).expect("a profile");
            let trailer = profile.trailer.as_ref().expect("a whole profile");
            tries += 1;
            if tries == 3 || trailer.samplers.iter().all(|totals| totals.samples >= 10) {
                break (said, profile);
            }
        };
        assert!(profile.cut.is_none(), "{options}");
        assert_eq!(profile.header.choice, "it was asked for", "{options}");
        let trailer = profile.trailer.as_ref().expect("a whole profile");
        let samples = placed(&profile);
        assert!(!samples.is_empty(), "{options}: {said}");
        for (number, (info, totals)) in profile.header.samplers.iter().zip(&trailer.samplers).enumerate() {
            let own: Vec<_> = samples.iter().filter(|(sampler, ..)| *sampler == number).collect();
            let name = &info.name;
            assert_eq!(own.len() as u64, totals.samples, "{name}");
            assert!(totals.records > 0 && totals.wakeups > 0, "{name}: {totals:?}");
            assert!(!own.is_empty(), "{name}: {said}");
            // Samples are in the order of time, except for a few.
            let back = own.windows(2).filter(|pair| pair[0].1.time_ns > pair[1].1.time_ns).count();
            assert!(back * 100 <= own.len(), "{name}: {back} of {}", own.len());
            // The record begins before the program: by how much depends on other users of the processors.
            let wall = ((trailer.wall_seconds + 10.0) * 1e9) as u64;
            assert!(own.iter().all(|(_, s, _)| s.time_ns <= wall), "{name}");
            assert!(own.iter().all(|(_, s, _)| (s.worker as usize) < profile.workers.len()), "{name}");
            let sees = |access| match access {
                Access::Read => info.reads,
                Access::Write => info.writes,
                Access::Unknown => true,
            };
            assert!(own.iter().all(|(_, s, _)| sees(s.access)), "{name}");
            if !info.byte_addresses {
                assert!(own.iter().all(|(_, s, _)| s.address % 4096 == 0), "{name}");
            }
            // Samples are in memory that is known, above all in the program's own variables.
            let known = own.iter().filter(|(.., place)| place.is_some()).count();
            assert!(known * 10 >= own.len() * 9, "{name}: {known} of {}", own.len());
            let ours = |place: &Option<(Kind, String)>| {
                place.as_ref().is_some_and(|(_, name)| ["hot", "warm", "cold", "later"].contains(&&**name))
            };
            let ours = own.iter().filter(|(.., place)| ours(place)).count();
            // This holds for samplers that see accesses, and not pages.
            let pages = ["faults", "writes", "touches", "damon"].contains(&&**name);
            assert!(if pages { ours > 0 } else { ours * 2 > own.len() }, "{name}: {ours} of {}", own.len());
        }
    }
}

/// Makes `perf_event_open` fail in the command and in everything that it starts.
fn without_perf(command: &mut Command) {
    let forbid = || {
        let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
        let mut program = [
            // The filter looks at the call's number; all calls except perf_event_open are allowed.
            statement((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0),
            libc::sock_filter {
                code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
                jt: 0,
                jf: 1,
                k: libc::SYS_perf_event_open as u32,
            },
            statement((libc::BPF_RET | libc::BPF_K) as u16, libc::SECCOMP_RET_ERRNO | libc::EACCES as u32),
            statement((libc::BPF_RET | libc::BPF_K) as u16, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: system calls between fork and exec; the filter is valid for the call.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(forbid) };
}

#[test]
fn without_permission_for_perf_it_says_so_and_takes_what_needs_none() {
    let (bench, hot) = (Bench::new(), hot());
    let run = |options: &str| {
        let mut command = bench.command(options, &hot, "40 2400");
        without_perf(&mut command);
        let output = command.output().expect("seccomp is there");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, said)
    };
    let (output, said) = run("--sampler timer");
    assert_eq!(output.status.code(), Some(70), "{said}");
    assert!(said.contains("kernel.perf_event_paranoid is ") && output.stdout.is_empty(), "{said}");
    let (output, said) = run("--overhead 20%");
    if output.status.code() == Some(70) && said.contains("Linux 6.7") {
        skip!("{}", said.trim());
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    let profile = Profile::open(&bench.file()).expect("a profile");
    assert_eq!(profile.header.samplers[0].name, "writes");
    assert!(profile.header.choice.contains("perf"), "{}", profile.header.choice);
    let refused = profile.header.refused.iter().find(|(name, _)| name == "timer").expect("why not the timer");
    assert!(refused.1.contains("kernel.perf_event_paranoid is "), "{refused:?}");
    assert!(profile.samples > 0, "{said}{:?}", profile.trailer);
    let names: Vec<_> = placed(&profile).into_iter().filter_map(|(.., place)| place).collect();
    assert!(
        names.iter().any(|(kind, name)| (*kind, &**name) == (Kind::Heap, "later")),
        "{:?}",
        names.first()
    );
    let (output, said) = run("--runtime on --overhead 20% --summary none");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let profile = Profile::open(&bench.file()).expect("a profile");
    assert_eq!(profile.header.samplers[0].name, "touches");
    assert!(profile.samples > 0, "{said}{:?}", profile.trailer);
}

#[test]
fn ten_thousand_mappings_and_five_hundred_threads_are_followed() {
    let (bench, crowd) = (Bench::new(), crowd());
    let profile = bench.profile("--sampler timer --reset 200000", &crowd, "maps 10000");
    let lost = profile.trailer.as_ref().map_or(0, |t| t.marks_lost);
    let samples = placed(&profile);
    let known = samples.iter().filter(|(.., place)| place.is_some()).count();
    assert!(known * 2 >= samples.len() || lost > 0, "{known} of {}", samples.len());
    let profile = bench.profile("--sampler writes --reset 20000", &crowd, "maps 10000");
    assert!(profile.header.samplers[0].name == "writes");
    let profile = bench.profile("--sampler timer --reset 200000", &crowd, "threads 500");
    let (lost, missed) = profile.trailer.as_ref().map_or((0, 0), |t| (t.marks_lost, t.samplers[0].unsampled));
    assert!(profile.workers.len() >= 500 || lost > 0, "{} workers", profile.workers.len());
    let seen: std::collections::HashSet<u32> = placed(&profile).iter().map(|(_, s, _)| s.worker).collect();
    // On a busy machine many threads are over before a sampler can be attached to them. Those that could not be sampled are
    // counted.
    assert!(seen.len() > 5 || missed > 0 || lost > 0, "{} of 500 seen", seen.len());
}

#[test]
fn a_program_that_is_over_at_once_leaves_a_whole_profile() {
    let (bench, crowd) = (Bench::new(), crowd());
    for options in SAMPLERS {
        let (output, said) = bench.run(options, &crowd, "nothing");
        if can_run(options, &output, &said) {
            assert_eq!(output.status.code(), Some(0), "{options}: {said}");
            assert!(Profile::open(&bench.file()).expect("a profile").cut.is_none(), "{options}");
        }
    }
}

#[test]
fn memory_that_is_unmapped_and_mapped_again_is_the_later_ones() {
    let (bench, crowd) = (Bench::new(), crowd());
    for options in ["--sampler timer --reset 200000", "--sampler writes --reset 20000", "--sampler faults"] {
        let (output, said) = bench.run(options, &crowd, "reuse 300");
        if !can_run(options, &output, &said) {
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{options}: {said}");
        let profile = Profile::open(&bench.file()).expect("a profile");
        let samples = placed(&profile);
        let known = samples.iter().filter(|(.., place)| place.is_some()).count();
        assert!(known * 10 >= samples.len() * 9, "{options}: {known} of {}", samples.len());
    }
}

#[test]
fn a_program_that_is_killed_leaves_a_whole_profile() {
    let bench = Bench::new();
    let (output, _) = bench.run("--sampler timer", Path::new("/bin/sh"), "-c kill${IFS}-9${IFS}$$");
    // `timeout` reports a signal by its own end or by 128 and the signal's number.
    assert!(output.status.signal() == Some(9) || output.status.code() == Some(137), "{:?}", output.status);
    let profile = Profile::open(&bench.file()).expect("a profile");
    assert!(profile.cut.is_none());
    assert_eq!(profile.trailer.expect("a whole profile").ending.signal, Some(9));
}

#[test]
fn a_disk_that_is_full_in_the_middle_ends_the_recording_and_not_the_program() {
    let (bench, hot) = (Bench::new(), hot());
    let disk = bench.folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(&disk).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        skip!("no small file system: mounting one needs root");
    }
    let file = disk.join("a.atoll");
    let mut command = Command::new(build::atoll());
    command.args(["profile", "--sampler", "timer", "--reset", "20000", "-o"]).arg(&file).arg("--").arg(&hot);
    command.arg("60").env("OMP_NUM_THREADS", "2").env("OMP_WAIT_POLICY", "passive");
    let output = command.output();
    let profile = Profile::open(&file);
    let _ = Command::new("umount").arg(&disk).output();
    let output = output.expect("atoll is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("No space left on device"), "{said}");
    assert!(!output.stdout.is_empty(), "the program's own output");
    assert_eq!(output.status.code(), Some(70), "{said}");
    // Marks that found a place can be read.
    let profile = profile.expect("a profile");
    assert!(profile.cut.is_some());
}

#[test]
fn a_profile_of_limited_memory() {
    let (bench, hot) = (Bench::new(), hot());
    let profile = bench.profile("--near 8M --overhead 10% --summary none", &hot, "8");
    assert!(profile.samples > 0 && profile.run.is_some());
    let samples = placed(&profile);
    let names: Vec<_> = samples.iter().filter_map(|(.., place)| place.as_ref()).collect();
    assert!(names.iter().any(|(kind, name)| (*kind, &**name) == (Kind::Heap, "hot")));
}

#[test]
fn profiles_of_several_nodes_are_a_file_a_node() {
    let (bench, hot) = (Bench::new(), hot());
    let first = bench.profile("--nodes 2 --overhead 10% --summary none", &hot, "10");
    let second = Profile::open(&bench.folder.path().join("a.node1.atoll")).expect("a profile");
    for (node, profile) in [(0, &first), (1, &second)] {
        assert!(profile.samples > 0, "node {node}");
        assert!(profile.workers.iter().all(|worker| worker.node == node), "{:?}", profile.workers);
    }
}

/// Compares the hottest variables of these programs, as these samplers see them at 1 and 5 %, with every access.
fn hottest_in_order(only: &[&str], samplers: &[&str]) {
    if !build::installed("qemu-x86_64") {
        skip!("qemu-x86_64 is not installed: apt-get install qemu-user");
    }
    // This builds the programs.
    let programs = built("cg");
    let mut command = Command::new("timeout");
    command.arg("600").arg(build::atoll()).args([
        "bench",
        "sampling",
        "--only",
        &only.join(","),
        "--rounds",
        "1",
    ]);
    command.args(["--samplers", &samplers.join(","), "--overheads", "1,5", "--programs"]);
    // The path is relative: profiles have the kernel's names, and nothing was found of the trace's.
    let folder = programs.parent().expect("a folder");
    command.arg(folder.file_name().expect("a name")).current_dir(folder.parent().expect("a folder"));
    let output = command.output().expect("timeout is there");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let row = |first: [&str; 3]| -> Option<Vec<String>> {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        said.lines().map(words).find(|w| w.len() > 9 && w[..3] == first)
    };
    for (program, sampler) in only.iter().flat_map(|p| samplers.iter().map(move |s| (p, s))) {
        if row([program, sampler, "1%"]).is_none() {
            assert!(said.contains(&format!("skipped: {sampler}")), "{said}");
            continue;
        }
        for (hold, least) in [("1%", 30.0), ("5%", 60.0)] {
            let row = row([program, sampler, hold]).expect("a row");
            let number = |word: &str| word.trim_end_matches('%').parse::<f64>().expect("a number");
            let (seen, by_variable) = (number(&row[6]), number(&row[8]));
            // Other samplers than the timer see writes, or pages once: fewer accesses, in an order of their own.
            let (least, share, wrongs) =
                if *sampler == "timer" { (least, 0.7, [6.0, 2.0]) } else { (1.0, 0.3, [f64::MAX; 2]) };
            assert!(seen > least && by_variable > share, "{row:?}");
            // "in order", or "1 of 40 pairs wrong": noise may turn pairs that are close, the more the fewer samples there are.
            let wrong = if row[9] == "in" { 0.0 } else { number(&row[9]) };
            assert!(wrong <= wrongs[usize::from(hold == "5%")], "{row:?}");
        }
    }
}

#[test]
fn the_hottest_are_in_their_order() {
    hottest_in_order(&["cg"], &["timer"]);
}

#[test]
#[ignore = "minutes: make stress-samplers"]
fn the_hottest_of_more_programs_are_in_their_order() {
    hottest_in_order(&["stencil", "cg"], &["timer", "writes", "faults"]);
}

#[test]
fn periods_change_to_hold_the_overhead() {
    let (bench, hot) = (Bench::new(), hot());
    let profile = bench.profile("--sampler timer --overhead 20%", &hot, "100");
    let periods: Vec<u64> = profile
        .events
        .iter()
        .filter_map(|e| match e {
            Event::Period { period, .. } => Some(*period),
            _ => None,
        })
        .collect();
    let last = profile.trailer.expect("a whole profile").samplers[0].last_period;
    assert!(periods.last().is_none_or(|period| *period == last), "{periods:?} {last}");
}
