//! Tests `atoll profile` on unmodified programs: they run as they do alone, and the samples have their names.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use atoll_e2e::{build, recording, skip};
use atoll_record::profile::{Batches, Kind, Profile};
use tempfile::TempDir;

/// Leaves the test where perf may not be used.
macro_rules! needs_perf {
    () => {
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        if paranoid.trim().parse::<i32>().map_or(true, |n| n > 2) && !running_as_root() {
            skip!("perf may not be used: kernel.perf_event_paranoid is {}", paranoid.trim());
        }
    };
}

fn running_as_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

struct Bench {
    folder: TempDir,
    program: PathBuf,
}

impl Bench {
    fn new() -> Bench {
        let program = build::helper_with("hot.c", &["-O1", "-g", "-fopenmp"]);
        Bench { folder: tempfile::tempdir().expect("a folder"), program }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("hot.atoll")
    }

    fn command(&self, options: &str) -> Command {
        let mut command = recording("profile", 100, options, &self.file(), &self.program, "");
        command.env("OMP_NUM_THREADS", "2").env("OMP_WAIT_POLICY", "passive");
        command
    }

    fn profile(&self, options: &str, rounds: &str) -> (Output, Profile) {
        let output = self.command(options).arg(rounds).output().expect("timeout is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        (output, Profile::open(&self.file()).expect("a profile"))
    }

    fn samples_by_name(&self, profile: &Profile) -> Vec<(Kind, String, u64)> {
        let mut counts = vec![0; profile.variables.len()];
        let mut locator = profile.locator();
        for batch in profile.batches().expect("its file") {
            for sample in &batch.expect("samples").samples {
                if let Some(variable) = locator.place(sample).variable {
                    counts[variable as usize] += 1;
                }
            }
        }
        profile.variables.iter().zip(counts).map(|(v, n)| (v.kind, v.name.clone(), n)).collect()
    }
}

fn count(samples: &[(Kind, String, u64)], kind: Kind, name: &str) -> u64 {
    samples.iter().filter(|(k, n, _)| *k == kind && n == name).map(|(.., n)| n).sum()
}

/// Returns what `atoll report --text` prints, and checks that it ends with `status`.
fn report(file: &Path, status: i32) -> String {
    let output =
        Command::new(build::atoll()).args(["report", "--text"]).arg(file).output().expect("atoll is there");
    assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn variables_have_their_names_and_an_address_used_again_is_the_later_ones() {
    needs_perf!();
    let bench = Bench::new();
    let alone = Command::new(&bench.program).arg("40").output().expect("it runs");
    let (output, profile) = bench.profile("--reset 200000", "40");
    assert_eq!(output.stdout, alone.stdout);
    assert!(profile.cut.is_none());
    let samples = bench.samples_by_name(&profile);
    let (hot, warm) = (count(&samples, Kind::Heap, "hot"), count(&samples, Kind::Global, "warm"));
    let later = count(&samples, Kind::Heap, "later");
    assert!(hot > 2 * warm && warm > 0 && later > 0, "{samples:?}");
    assert!(profile.regions.iter().any(|r| r.name.starts_with("sweep._omp_fn")), "{:?}", profile.regions);
    assert_eq!(profile.phases.len(), 40 * 9);
    let text = report(&bench.file(), 0);
    for part in ["hot  hot.c:23 in main", "warm  hot.c:8", "sweep._omp_fn.0"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn under_the_runtime_pages_taken_away_show_who_comes_back() {
    needs_perf!();
    let bench = Bench::new();
    let (_, profile) = bench.profile("--sampler both --reset 300000 --summary none", "30");
    assert_eq!(profile.header.samplers.len(), 2);
    let samples = bench.samples_by_name(&profile);
    assert!(count(&samples, Kind::Heap, "hot") > 0, "{samples:?}");
    assert!(count(&samples, Kind::Global, "warm") > 0, "{samples:?}");
    assert!(profile.workers.iter().filter(|w| w.number.is_some()).count() >= 2, "{:?}", profile.workers);
    assert!(profile.run.is_some() && profile.figures.is_some());
}

#[test]
fn what_is_left_of_a_killed_profiler_is_read() {
    needs_perf!();
    let bench = Bench::new();
    let mut command = Command::new(build::atoll());
    command.args(["profile", "--reset", "200000", "-o"]).arg(bench.file()).arg("--").arg(&bench.program);
    command.arg("100000").stderr(Stdio::null()).stdout(Stdio::null()).stdin(Stdio::null());
    let mut child = command.spawn().expect("atoll is there");
    // This waits until something was written behind the header.
    let written = || std::fs::metadata(bench.file()).map_or(0, |m| m.len());
    for _ in 0..600 {
        if written() > 8192 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().expect("it runs");
    child.wait().expect("it ran");
    let profile = Profile::open(&bench.file()).expect("a profile");
    assert!(profile.cut.is_some() && profile.trailer.is_none());
    let bytes = std::fs::read(bench.file()).expect("the file");
    let samples: usize =
        Batches::new(&*bytes).expect("a record").map(|b| b.expect("samples").samples.len()).sum();
    assert_eq!(samples as u64, profile.samples);
    // Names are looked up in the program's file when the profile is read.
    assert!(report(&bench.file(), 3).contains("this profile is not whole"));
}

#[test]
fn a_program_that_is_over_at_once_and_two_profilers_at_once() {
    needs_perf!();
    let (one, other) = (Bench::new(), Bench::new());
    let start = |bench: &Bench| {
        bench.command("--reset 200000").arg("5").stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let both = [start(&one), start(&other)];
    for child in both {
        assert!(child.expect("timeout is there").wait().expect("it ran").success());
    }
    assert!(Profile::open(&one.file()).expect("a profile").samples > 0);
    assert!(Profile::open(&other.file()).expect("a profile").samples > 0);
    let mut command = Command::new(build::atoll());
    let output = command
        .args(["profile", "-o"])
        .arg(one.file())
        .args(["--", "true"])
        .output()
        .expect("atoll is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(Profile::open(&one.file()).expect("a profile").cut.is_none());
}

/// Where nothing at all can be written the program is not started, as its time would be lost.
#[test]
fn a_profile_that_cannot_be_begun_is_refused() {
    needs_perf!();
    let bench = Bench::new();
    let mut command = Command::new(build::atoll());
    command.args(["profile", "--reset", "100000", "-o", "/dev/full", "--"]).arg(&bench.program).arg("5");
    let output = command.output().expect("atoll is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout.is_empty(), "the program ran: {said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert_eq!(output.status.code(), Some(70), "{said}");
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    needs_perf!();
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        skip!("a small file system is mounted by root only");
    }
    let (bench, folder) = (Bench::new(), tempfile::tempdir().expect("a folder"));
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=8k", "tmpfs"]).arg(folder.path()).status();
    if !mount.is_ok_and(|status| status.success()) {
        skip!("tmpfs cannot be mounted here");
    }
    let mut command = Command::new(build::atoll());
    command.args(["profile", "--reset", "100000", "-o"]).arg(folder.path().join("p.atoll"));
    let output = command.arg("--").arg(&bench.program).arg("400").output();
    let _ = Command::new("umount").arg(folder.path()).status();
    let output = output.expect("atoll is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.stdout.is_empty());
    assert!(said.contains("No space left on device"), "{said}");
    assert_eq!(output.status.code(), Some(70), "{said}");
}

#[test]
fn a_failing_program_ends_as_it_does_alone() {
    let bench = Bench::new();
    let status = |words: &[&str]| {
        let mut command = Command::new(build::atoll());
        command.args(["profile", "-o"]).arg(bench.file()).arg("--").args(words).stderr(Stdio::null());
        command.status().expect("atoll is there").code()
    };
    if running_as_root() {
        assert_eq!(status(&["false"]), Some(1));
    }
    assert_eq!(status(&["/nowhere/at/all"]), Some(127));
    assert_eq!(status(&["/dev/null"]), Some(126));
}

#[test]
fn exports_are_what_they_say() {
    needs_perf!();
    let bench = Bench::new();
    let (_, profile) = bench.profile("--reset 200000", "10");
    let export = |form: &str| {
        let output = Command::new(build::atoll()).args(["export", form]).arg(bench.file()).output();
        let output = output.expect("atoll is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(export("--csv").lines().count() as u64, profile.samples + 1);
    for form in ["--firefox-profile", "--perfetto"] {
        let value: serde_json::Value = serde_json::from_str(&export(form)).expect("JSON");
        assert!(value.is_object());
    }
    let mut command = Command::new(build::atoll());
    let output = command.arg("diff").arg(bench.file()).arg(bench.file()).output().expect("atoll is there");
    assert!(String::from_utf8_lossy(&output.stdout).contains("+0.0"), "{output:?}");
}

/// A program that streams through a global and through a block that a stripped library makes for it.
struct Streams {
    folder: TempDir,
    program: PathBuf,
    library: PathBuf,
}

impl Streams {
    fn new() -> Streams {
        Streams {
            folder: tempfile::tempdir().expect("a folder"),
            program: build::helper("through_launchers.c"),
            library: build::helper_with("handed_out.c", &["-shared", "-fPIC", "-fno-openmp", "-s"]),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("streams.atoll")
    }

    /// Returns the program with its arguments, as a shell takes it.
    fn line(&self, rounds: u32) -> String {
        format!("{} {rounds} {}", self.program.display(), self.library.display())
    }

    /// Profiles the command `words`.
    fn profile(&self, options: &str, words: &[&str]) -> Profile {
        let mut command = Command::new("timeout");
        command.arg("100").arg(build::atoll()).arg("profile").args(options.split_whitespace());
        command.arg("-o").arg(self.file()).arg("--").args(words).stdin(Stdio::null());
        command.env("OMP_NUM_THREADS", "2").env("OMP_WAIT_POLICY", "passive").env_remove("LD_PRELOAD");
        let output = command.output().expect("timeout is there");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        Profile::open(&self.file()).expect("a profile")
    }

    /// Returns the findings of the HTML report, in its words.
    fn findings(&self) -> Vec<String> {
        let page = self.folder.path().join("streams.html");
        let mut command = Command::new(build::atoll());
        let status = command.args(["report", "--no-open", "-o"]).arg(&page).arg(self.file()).status();
        assert!(status.is_ok_and(|status| status.success()));
        let page = std::fs::read_to_string(page).expect("the page");
        let (_, behind) = page.split_once("\"findings\":").expect("findings");
        let mut values = serde_json::Deserializer::from_str(behind).into_iter::<Vec<String>>();
        values.next().expect("a list").expect("of sentences")
    }
}

/// Behind `timeout`, `env` and scripts there were samples, but no variable, block or region had its name.
#[test]
fn names_were_lost_behind_what_starts_the_program() {
    needs_perf!();
    let streams = Streams::new();
    let script = streams.folder.path().join("script.sh");
    let line = streams.line(12);
    std::fs::write(&script, format!("ls / > /dev/null\n{line}\n{line}\n")).expect("written");
    let script = script.display().to_string();
    let behind = |launcher: &str| format!("{launcher} {line}");
    let lines =
        [line.clone(), behind("timeout 60"), behind("env X=1"), behind("nice -n 1"), format!("sh {script}")];
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let profile = streams.profile("--reset 300000", &words);
        let text = report(&streams.file(), 0);
        assert_eq!(profile.program(), streams.program.canonicalize().expect("it").display().to_string());
        assert_eq!(words[0] != streams.program.as_os_str(), text.contains("most samples are of"), "{text}");
        for part in ["table  through_launchers.c:8", "main._omp_fn.0  through_launchers.c:"] {
            assert!(text.contains(part), "{line}: {part}: {text}");
        }
        // The function is not exported, and the library has no other symbols.
        let library = streams.library.file_name().expect("a name").to_string_lossy();
        assert!(text.contains(&format!("block of {library}+0x")), "{line}: {text}");
        // Nothing that is loaded for the profile is an object of it.
        assert!(!text.contains("atoll_profile"), "{line}: {text}");
        assert!(streams.findings().iter().all(|finding| !finding.contains("atoll_profile")), "{line}");
    }
}

/// 678 samples of a program that streams through 72M gave "444K would serve them".
#[test]
fn few_samples_were_said_to_be_all_that_is_used() {
    needs_perf!();
    let streams = Streams::new();
    let line = streams.line(30);
    streams.profile("--reset 4000000", &line.split_whitespace().collect::<Vec<_>>());
    let findings = streams.findings().join("\n");
    assert!(findings.contains("There are too few samples to say how much near memory"), "{findings}");
    // Other variables that a sample saw count, too: 72M, or 72.0M with a few bytes more.
    let of_all = findings.contains("have 72M together") || findings.contains("have 72.0M together");
    assert!(of_all && !findings.contains("would serve them."), "{findings}");
    let text = report(&streams.file(), 0);
    assert!(text.contains("too few to tell how much memory is used"), "{text}");
}

/// Faults that the runtime handled were reported as OpenMP's waiting, in the first finding.
#[test]
fn paging_was_called_waiting() {
    needs_perf!();
    let streams = Streams::new();
    let line = streams.line(4);
    let words: Vec<&str> = line.split_whitespace().collect();
    let measure = || {
        let profile = streams.profile("--near 40M --workers 1 --summary none --reset 100000", &words);
        let text = report(&streams.file(), 0);
        assert!(text.contains("% of") && text.contains("of atoll's paging"), "{text}");
        assert!(text.contains("paging    bytes  workers"), "{text}");
        let (mut paging, mut named) = (0, 0);
        let mut locator = profile.locator();
        for batch in profile.batches().expect("its file") {
            for sample in batch.expect("samples").samples.iter().filter(|sample| sample.is_paging()) {
                paging += 1;
                let variable = locator.place(sample).variable.map(|v| &profile.variables[v as usize]);
                named +=
                    u32::from(variable.is_some_and(|v| v.name == "table" || v.name.starts_with("block of ")));
            }
        }
        (
            paging > 0 && f64::from(named) > 0.9 * f64::from(paging),
            format!("{named} of {paging}: {text}"),
            text,
        )
    };
    // On a busy machine more of the few samples of so short a run are of its beginning: the best of three counts.
    let (are_named, told, text) = (0..2).map(|_| measure()).find(|(good, ..)| *good).unwrap_or_else(measure);
    assert!(are_named, "{told}");
    // A single worker has no other to wait for.
    let waits = |line: &&str| line.contains("most of it waiting");
    let waiting =
        text.lines().find(waits).and_then(|line| line.trim().split_once('%')?.0.parse::<f64>().ok());
    assert!(waiting.unwrap_or(0.0) < 10.0, "{text}");
    let findings = streams.findings();
    assert!(
        findings.iter().any(|finding| finding.contains("while accesses of the program faulted")),
        "{findings:?}"
    );
}

/// Runs of less than a second cost up to twice the permitted overhead.
#[test]
fn a_short_run_cost_more_than_it_should() {
    needs_perf!();
    let streams = Streams::new();
    let line = streams.line(24);
    let words: Vec<&str> = line.split_whitespace().collect();
    let overheads: Vec<(f64, f64)> = (0..4)
        .map(|_| {
            let trailer = streams.profile("--overhead 1%", &words).trailer.expect("the end");
            (trailer.overhead(), trailer.own_seconds())
        })
        .collect();
    let least = overheads.iter().map(|(overhead, _)| *overhead).fold(f64::INFINITY, f64::min);
    assert!(overheads.iter().all(|(_, seconds)| (0.1..5.0).contains(seconds)), "{overheads:?}");
    // Other users of the processor make the harvester slower, so the best of a few runs counts.
    assert!(least <= 0.0105, "{overheads:?}");
}
