//! `atoll profile` on unmodified programs: they run as they do alone, and what was sampled has its names.

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

fn report(file: &Path) -> String {
    let output =
        Command::new(build::atoll()).args(["report", "--text"]).arg(file).output().expect("atoll is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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
    let text = report(&bench.file());
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
    // Until something was written behind the header.
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
    assert!(report(&bench.file()).contains("this profile is not whole"));
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

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    needs_perf!();
    let bench = Bench::new();
    let mut command = Command::new(build::atoll());
    command.args(["profile", "--reset", "100000", "-o", "/dev/full", "--"]).arg(&bench.program).arg("5");
    let output = command.output().expect("atoll is there");
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
