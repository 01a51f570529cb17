//! Tests the surroundings of a run: pipes that close, launchers in front, far directories, the summary, the record.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use atoll_e2e::build::{atoll, helper, helper_with, installed};
use atoll_e2e::workloads::checksum;
use atoll_e2e::{Atoll, Outcome, built, native, skip, skip_part};
use serde_json::Value;

fn shell(script: &str) -> (Option<i32>, String, String) {
    let run = Command::new("bash")
        .args(["-c", script])
        .env_remove("OMP_NUM_THREADS")
        .stdin(Stdio::null())
        .output()
        .expect("bash runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (run.status.code(), text(run.stdout), text(run.stderr))
}

/// `program | head -1` has the same status as natively, and ends soon.
#[test]
fn a_pipe_that_closes() {
    let program = helper("print.c");
    let program = program.display();
    let atoll = atoll().display();
    let alone = shell(&format!("timeout 20 {program} 2000 500 | head -1; echo ${{PIPESTATUS[0]}}"));
    for way in [
        "--workers 2 --page-tables private",
        "--workers 2 --page-tables shared",
        "--workers 3 --near 16M --page-tables private",
    ] {
        let script = format!(
            "timeout -k 2 20 {atoll} run --summary none {way} -- {program} 2000 500 | head -1; echo ${{PIPESTATUS[0]}}"
        );
        let run = shell(&script);
        assert_eq!(run.1, alone.1, "{script}: {}", run.2);
    }
}

/// Only the program itself is managed, and neither the programs in front of it nor their children.
#[test]
fn launchers_in_front() {
    let alone = native(built("cg")).arg("S").run().exits(0);
    let line = checksum(&alone.text());
    let program = built("cg");
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.sh");
    let text = format!("#!/bin/sh\necho in a script\n{} S\necho status $?\n", program.display());
    fs::write(&script, text).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
    let mut failed = Vec::new();
    for words in [
        format!("timeout 60 {} S", program.display()),
        format!("env X=1 {} S", program.display()),
        format!("nice -n 1 timeout 60 env Y=2 {} S", program.display()),
        format!("sh {}", script.display()),
        script.display().to_string(),
        // A program that was started without the descriptors of its parent was not managed.
        format!("{} {} S", helper_with("closes.c", &["-fno-openmp"]).display(), program.display()),
    ] {
        let (first, rest) = words.split_once(' ').unwrap_or((&words, ""));
        let run = Atoll::new(first).args(rest).with("--near 8M --workers 2").run().clean();
        if run.status != Some(0) || checksum(&run.text()) != line || !run.left.is_empty() {
            failed.push(run.told());
        } else if run.figure("memory/footprint_peak_bytes") == 0 {
            failed.push(format!("nothing was managed: {}", run.told()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// A script that preloads a library of its own took the runtime away from its programs, which ran without the limit.
#[test]
fn a_library_that_a_script_preloads_took_the_runtime_away() {
    let plain = helper_with("preloads.c", &["-fno-openmp"]);
    // The second program is linked with OpenMP, which it need not call.
    for target in [plain.clone(), helper_with("preloads.c", &["-Wl,--no-as-needed"])] {
        let target = target.display();
        let mut lines = vec![
            format!("LD_PRELOAD=libm.so.6 {target}"),
            format!("exec env LD_PRELOAD=libm.so.6 {target}"),
            format!("export LD_PRELOAD=libm.so.6:libdl.so.2; {target}"),
            format!("LD_PRELOAD= {target}"),
        ];
        lines.extend(
            ["execv", "execlp", "fexecve", "vfork", "spawn"].map(|way| format!("{target} {way} libm.so.6")),
        );
        // A program with OpenMP that executes others is the one that is managed.
        lines.truncate(if target.to_string() == plain.display().to_string() { lines.len() } else { 4 });
        for line in lines {
            let alone = native("sh").arg("-c").arg(&line).run().exits(0);
            let run = Atoll::new("sh").arg("-c").arg(&line).with("--near 12M --workers 2 --require").run();
            let run = run.exits(0).like(&alone);
            assert!(run.figure("total/major_faults") > 0, "not managed: {}", run.told());
            assert!(
                run.figure("memory/resident_peak_bytes") <= run.figure("settings/near_bytes"),
                "{}",
                run.told()
            );
        }
        // Without what atoll put into the environment the program is left alone.
        let run =
            Atoll::new("env").args(&format!("-i LD_PRELOAD=libm.so.6 {target}")).with("--near 12M").run();
        assert_eq!(run.exits(0).figure("total/major_faults"), 0);
    }
}

/// Of the programs that a script starts, the first was managed and the others ran without the limit.
#[test]
fn later_programs_of_a_script_were_not_managed() {
    let (cg, stencil) = (built("cg"), built("stencil"));
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.sh");
    let text = format!(
        "{} S | tail -1\n{} S | tail -1\n{} S | tail -1\n",
        cg.display(),
        stencil.display(),
        cg.display()
    );
    fs::write(&script, text).expect("written");
    let script = script.display().to_string();
    let alone = native("sh").arg(&script).run().exits(0);
    let run =
        Atoll::new("sh").arg(&script).with("--near 8M --workers 2 --require").run().exits(0).like(&alone);
    assert_eq!(run.figure("later_programs"), 2, "{}", run.told());
    assert!(run.left.is_empty(), "{}", run.told());
    // The same where one runs beside another.
    let script = format!("{0} S > /dev/null & {0} S | tail -1; wait", cg.display());
    let beside = native("sh").arg("-c").arg(&script);
    let run = Atoll::new("sh").arg("-c").arg(&script).with("--near 8M --workers 2 --require").run();
    assert_eq!(run.exits(0).like(&beside.run()).figure("later_programs"), 1);
}

/// A later program went on where its run was killed.
#[test]
fn a_later_program_ends_with_its_run() {
    let script = format!("{} S | tail -1; {} B; true", built("cg").display(), built("stencil").display());
    let start = || {
        let mut run = Command::new(atoll());
        run.args(["run", "--near", "16M", "--summary", "none", "--", "sh", "-c", &script]);
        let mut run = run.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = [0u8; 1];
        run.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("the first program's output");
        std::thread::sleep(std::time::Duration::from_millis(700));
        run
    };
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        let mut run = start();
        // SAFETY: numbers only.
        unsafe { libc::kill(run.id() as i32, signal) };
        run.wait().expect("it ends");
        // The pipe is open as long as a process of the run is there.
        let mut rest = Vec::new();
        run.stdout.take().expect("a pipe").read_to_end(&mut rest).expect("read");
        assert!(!String::from_utf8_lossy(&rest).contains("Checksum"), "it ran to its end");
    }
}

/// The kernel hands over the rest of a script's first line as one word.
#[test]
fn a_script_with_atoll_in_its_first_line_got_the_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    let line = format!("{} run --near 8M --workers 2 -- /bin/sh", atoll().display());
    // The kernel cuts longer lines.
    assert!(line.len() < 250, "{line}");
    fs::write(&script, format!("#!{line}\n{} S\necho $1\n", built("cg").display())).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("executable");
    let (status, out, told) = shell(&format!("{} 'two words'", script.display()));
    assert_eq!(status, Some(0), "{told}");
    let alone = native(built("cg")).arg("S").run().exits(0);
    assert_eq!(checksum(&out), checksum(&alone.text()));
    assert!(out.ends_with("two words\n") && told.contains("near limit 8M"), "{out}{told}");
}

#[test]
fn input_reaches_the_program() {
    let run = Atoll::new("cat").input(b"some input\n").run().exits(0);
    assert_eq!(run.text(), "some input\n");
}

/// The figures of the summary agree with each other.
#[test]
fn the_summary_adds_up() {
    for way in [
        "--page 4K --far ram --page-tables private",
        "--page 64K --policy lru --far ram --page-tables private",
        "--page-tables shared --far ram",
        "--far lz4 --policy fifo --page-tables private",
        "--far file --page-tables private",
    ] {
        let near = 7 << 20;
        let run =
            Atoll::new(built("cg")).arg("W").with(&format!("--near {near} --workers 2 {way}")).run().exits(0);
        let summary = run.summary.clone().unwrap_or_else(|| panic!("no summary: {}", run.told()));
        let counters = summary["total"].as_object().expect("an object");
        for (name, total) in counters {
            let of = |v: &Value| v[name].as_f64().unwrap_or(0.0);
            let mut sum = of(&summary["background"]);
            for worker in summary["workers"].as_array().expect("an array") {
                sum += of(worker);
            }
            let total = total.as_f64().expect("a number");
            assert!((total - sum).abs() <= 1e-6 * total.abs() + 1e-6, "{way}: {name}: {total} is not {sum}");
        }
        let page = run.figure("settings/page_bytes");
        let memory = |name: &str| run.figure(&format!("memory/{name}"));
        let total = |name: &str| run.figure(&format!("total/{name}"));
        assert_eq!(run.figure("settings/near_bytes"), near, "{}", run.told());
        assert_eq!(summary["workers"].as_array().map(Vec::len), Some(2), "{}", run.told());
        assert!(memory("resident_peak_bytes") <= near, "{way}: {summary}");
        assert!(memory("resident_bytes") <= memory("resident_peak_bytes"), "{summary}");
        assert!(memory("pinned_bytes") <= memory("pinned_peak_bytes"), "{summary}");
        assert!(memory("footprint_peak_bytes") >= 7 << 20, "{way}: {summary}");
        assert!(total("evictions_dirty") > 0 && total("major_faults") > 0, "{way}: {summary}");
        assert_eq!(total("bytes_out"), total("evictions_dirty") * page, "{way}: {summary}");
        assert!(total("bytes_in") >= total("major_faults") * page, "{way}: {summary}");
        assert!(
            total("bytes_in") <= (total("major_faults") + total("prefetched_pages")) * page,
            "{way}: {summary}"
        );
        assert!(total("regions") > 0, "{way}: {summary}");
        assert_eq!(summary["ending"]["status"], 0, "{summary}");
        let wall = summary["wall_seconds"].as_f64().expect("a number");
        assert!(wall > 0.0 && wall <= run.seconds, "{summary}");
        let figures: u64 = summary["pages_by_core_map_count"]
            .as_array()
            .expect("an array")
            .iter()
            .filter_map(Value::as_u64)
            .sum();
        assert!(figures > 0, "{summary}");
    }
}

/// The program's own output is never touched, and `--summary none` prints no summary.
#[test]
fn summaries_go_to_standard_error() {
    let alone = native(helper("small_globals.c")).run().exits(0);
    let run = Atoll::new(helper("small_globals.c")).no_summary().with("--near 16M").run().like(&alone);
    assert_eq!(run.stderr, "", "{}", run.told());
}

#[test]
fn a_record_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("run.atoll");
    Atoll::new(built("cg")).arg("S").with(&format!("--near 8M --record {}", record.display())).run().exits(0);
    assert!(record.metadata().expect("it is there").len() > 100);
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("it is there").next().is_none()
}

/// Nothing is left in the far directory after any end.
#[test]
fn the_far_directory_is_left_empty() {
    let folder = tempfile::tempdir_in(atoll_e2e::build::target()).expect("a folder");
    let far = format!("--far file:{} --near 8M --workers 2", folder.path().display());
    let alone = native(built("cg")).arg("W").run();
    let run = Atoll::new(built("cg")).arg("W").with(&far).run().exits(0);
    assert_eq!(checksum(&run.text()), checksum(&alone.text()), "{}", run.told());
    assert!(is_empty(folder.path()), "after an orderly end");
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let mut run = Atoll::new(helper("signals.c")).args("default 20").with(&far).limit(30).start();
        assert!(run.wait_for("ready"), "{}", run.end().told());
        std::thread::sleep(std::time::Duration::from_millis(300));
        run.signal(signal);
        run.end().dies_by(signal);
        assert!(is_empty(folder.path()), "after signal {signal}");
    }
}

#[test]
fn a_far_directory_that_cannot_be_written() {
    for folder in ["/proc/self", "/nowhere/at/all", "/etc/passwd"] {
        let run =
            Atoll::new(built("cg")).arg("W").with(&format!("--far file:{folder} --near 8M")).run().clean();
        assert!(matches!(run.status, Some(70 | 74)), "{}", run.told());
        assert!(run.stderr.contains("atoll: ") && run.stderr.contains(folder), "{}", run.told());
    }
}

/// A file system is full: the run has status 74 and a message, or the right answer where near memory suffices, and never
/// another.
#[test]
fn a_far_directory_that_is_full() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        skip!("a small file system is mounted by root only");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display().to_string();
    let mount = |options: &str| {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs", &path]).status();
        status.is_ok_and(|s| s.success())
    };
    if !mount("size=2m") {
        skip!("tmpfs cannot be mounted here");
    }
    let alone = native(built("stencil")).arg("W").run();
    let run = Atoll::new(built("stencil"))
        .arg("W")
        .with(&format!("--far file:{path} --near 12M --workers 2"))
        .run();
    let empty = is_empty(folder.path());
    let _ = Command::new("umount").arg(&path).status();
    let run = run.clean();
    if run.status == Some(0) {
        assert_eq!(checksum(&run.text()), checksum(&alone.text()), "{}", run.told());
    } else {
        assert_eq!(run.status, Some(74), "{}", run.told());
        assert!(run.stderr.contains("atoll: ") && run.stderr.contains("far"), "{}", run.told());
    }
    assert!(empty, "a file is left");
}

#[test]
fn a_far_limit_that_is_reached() {
    for far in ["auto", "ram", "lz4", "zstd", "file"] {
        for way in ["--workers 2 --page-tables private", "--workers 2 --page-tables shared"] {
            let run = Atoll::new(built("randomaccess")).arg("W");
            let run = run.with(&format!("--far {far} --far-limit 1M --near 12M {way}")).run().exits(74);
            assert!(run.stderr.contains("atoll: ") && run.stderr.contains("far"), "{}", run.told());
        }
    }
}

/// The version of Linux, as major and minor number.
fn linux() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux has a version");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Workers share a page table where few CPUs may be used, unless something needs tables of their own.
#[test]
fn page_tables_are_shared_by_default_where_cpus_are_few() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let few = if cpus <= 4 && linux() >= (6, 15) { "shared" } else { "private" };
    for (options, tables) in [
        ("--near 8M", few),
        ("", few),
        ("--near 8M --page-tables private", "private"),
        ("--near 8M --page-tables shared", "shared"),
        ("--near 8M --policy cmcp", "private"),
        ("--nodes 2", "private"),
    ] {
        let run = Atoll::new(built("stencil")).args("S").with("--workers 2").with(options).run().exits(0);
        let said = run.summary.as_ref().map(|summary| summary["settings"]["page_tables"].clone());
        assert_eq!(said, Some(tables.into()), "{options}: {}", run.told());
    }
}

/// Each page that left was taken from the other worker's page table by an interruption: two of three evictions, at 17 µs.
#[test]
fn evicting_a_page_that_both_workers_had_mapped_interrupted_the_other() {
    let program = helper("lookups.c");
    let alone = native(&program).args("16 10000").run().exits(0);
    // The stores' pace lets both workers fault by turns. Where the machine is so busy that they share a CPU, a worker
    // that does not run drops none of its mappings: the best of three runs counts.
    for way in ["--far file", "--far file --policy fifo"] {
        let told: Vec<String> = (0..3)
            .map_while(|_| {
                let run = Atoll::new(&program)
                    .args("16 10000")
                    .with(&format!("--workers 2 --near 8M --page-tables private {way}"));
                let run = run.run().like(&alone);
                let gone = run.figure("total/evictions_clean") + run.figure("total/evictions_dirty");
                assert!(gone > 5000, "{gone} left: {}", run.told());
                let interrupted = run.figure("total/remote_tlb_invalidations");
                (interrupted >= gone / 4).then(|| format!("{interrupted} of {gone}: {}", run.told()))
            })
            .collect();
        assert!(told.len() < 3, "{}", told.join("\n\n"));
    }
}

/// The helper of a worker's process polled a signalfd, which the kernel wakes for each signal of the process: for each fault of the worker,
/// which took half as long again, and the helper ran on the other CPU.
#[test]
fn each_fault_of_a_worker_woke_the_helper_of_its_process() {
    let run = Atoll::new(helper("lookups.c"))
        .args("16 60000")
        .with("--workers 2 --near 8M --page-tables private")
        .limit(100)
        .start();
    let switches = |pid: i32| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        line.split_whitespace().last()?.parse().ok()
    };
    let (mut most, mut looks) = (0, 0);
    // The run is ended after 100 seconds.
    for _ in 0..5000 {
        let others = run.others();
        // The first process is the program's own; the helper is the first thread of a worker's.
        let now = others
            .iter()
            .filter(|&pid| Some(pid) != others.iter().min())
            .filter_map(|&pid| switches(pid))
            .max();
        looks += u32::from(now.is_some());
        most = most.max(now.unwrap_or(0));
        if looks > 0 && others.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let run = run.end().exits(0);
    let faults = run.figure("total/major_faults");
    assert!(faults > 20_000, "{faults} faults: {}", run.told());
    assert!(most < faults / 20, "{most} switches, {faults} faults: {}", run.told());
}

/// Third parties' programs must run byte for byte as natively.
mod third_parties {
    use super::*;

    #[track_caller]
    fn same((program, package): (&str, &str), arguments: &str, input: &[u8], near: &str, out: Option<&str>) {
        if !installed(program) {
            skip!("{program} is not installed: apt-get install {package}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let alone =
            native(program).args(arguments).input(input).folder(folder.path()).limit(120).run().exits(0);
        let wrote = |folder: &Path| out.map(|name| fs::read(folder.join(name)).expect("it was written"));
        let expected = wrote(folder.path());
        let mut failed = Vec::new();
        for way in [
            "--workers 2 --page-tables private",
            "--workers 2 --page 64K --policy lru --page-tables private",
            "--workers 3 --page-tables shared",
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let run = Atoll::new(program).args(arguments).input(input).folder(folder.path());
            let run = run.with("--near").with(near).with(way).run();
            let ends = run.status == Some(0) && !run.timed_out && run.left.is_empty();
            if !ends || run.stdout != alone.stdout || wrote(folder.path()) != expected {
                failed.push(format!("left {:?} {}", run.left, run.told()));
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    }

    #[test]
    fn graphicsmagick() {
        let arguments = "convert -size 800x600 gradient:red-blue -resize 300% -blur 0x3 -depth 8 ppm:out.ppm";
        same(("gm", "graphicsmagick"), arguments, b"", "80M", Some("out.ppm"));
    }

    #[test]
    fn clustal_omega() {
        let mut random = atoll_e2e::random::Random(7);
        let first: Vec<u8> = (0..300).map(|_| *random.pick(b"ACDEFGHIKLMNPQRSTVWY")).collect();
        let mut input = String::new();
        for i in 0..60 {
            let mutate =
                |&c: &u8| if random.below(5) == 0 { *random.pick(b"ACDEFGHIKLMNPQRSTVWY") } else { c };
            let sequence: Vec<u8> = first.iter().map(mutate).collect();
            input.push_str(&format!(">s{i}\n{}\n", String::from_utf8_lossy(&sequence)));
        }
        same(("clustalo", "clustalo"), "-i - --threads=2 --outfmt=fa", input.as_bytes(), "16M", None);
    }

    #[test]
    fn fasttree() {
        let mut random = atoll_e2e::random::Random(9);
        let first: Vec<u8> = (0..600).map(|_| *random.pick(b"ACGT")).collect();
        let mut input = String::new();
        for i in 0..120 {
            let mutate = |&c: &u8| if random.below(8) == 0 { *random.pick(b"ACGT") } else { c };
            let sequence: Vec<u8> = first.iter().map(mutate).collect();
            input.push_str(&format!(">s{i}\n{}\n", String::from_utf8_lossy(&sequence)));
        }
        same(("fasttreeMP", "fasttree"), "-nt -quiet -nopr", input.as_bytes(), "16M", None);
    }
}

/// Runs a program with a limit of the shell, set by a script in front of atoll or behind it.
fn limited(limit: &str, before: bool) -> Outcome {
    let program = built("stencil");
    let (atoll, script) = (atoll().display(), format!("ulimit {limit}; exec"));
    let script = if before {
        format!("{script} {atoll} run --summary none --near 8M -- {} S", program.display())
    } else {
        format!("exec {atoll} run --summary none --near 8M -- sh -c '{script} {} S'", program.display())
    };
    native("sh").arg("-c").arg(script).run().clean()
}

/// atoll's own stack overflowed.
#[test]
fn a_stack_of_64k() {
    for before in [true, false] {
        let run = limited("-s 64", before);
        assert!(run.status == Some(0) && run.text().contains("successful"), "{}", run.told());
    }
}

/// Where the stack's size is unlimited, as programs in Fortran want it, Linux maps libraries where paged memory was: programs were refused.
#[test]
fn a_stack_without_a_limit() {
    for before in [true, false] {
        let run = limited("-s unlimited", before);
        assert!(run.status == Some(0) && run.text().contains("successful"), "{}", run.told());
    }
}

/// The run ended by SIGXFSZ, without a word.
#[test]
fn limits_of_files_and_addresses() {
    for before in [true, false] {
        for limit in ["-f 1000", "-v 4000000"] {
            let run = limited(limit, before);
            let said = run.stderr.contains("lift the limit with `ulimit");
            assert!(run.status == Some(70) && said, "{}", run.told());
        }
    }
}

/// A program that limited its own address space had no memory from then on, and one that limited its files was ended: to the kernel the
/// arena's addresses and files are the program's.
#[test]
fn a_programs_own_limits_were_those_of_the_arena() {
    for options in [&[][..], &["-fno-openmp"]] {
        let program = helper_with("own_limits.c", options);
        for words in ["", "first"] {
            let natively = native(&program).args(words).run().exits(0);
            for way in [
                "--near 64M --page-tables private",
                "--near 64M --far file --page-tables private",
                "--near none --page-tables private",
                "--page-tables shared --near 64M",
            ] {
                Atoll::new(&program).args(words).with(way).no_summary().run().like(&natively);
            }
        }
    }
}

/// Asks the kernel to page out what process `pid` has of atoll's files of pages, as it does where it looks for memory itself. False:
/// it may not be asked.
fn page_out(pid: i32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let [start, end] = [start, end].map(|at| usize::from_str_radix(at, 16).unwrap_or(0));
        Some(libc::iovec { iov_base: start as *mut libc::c_void, iov_len: end - start })
    };
    let ranges: Vec<_> = maps.lines().filter(|line| line.contains("atoll-arena")).filter_map(range).collect();
    // SAFETY: plain system calls; the ranges are another process's, whose pages stay what they are.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        if process < 0 {
            return true;
        }
        let asked = ranges.chunks(512).all(|some| {
            libc::syscall(
                libc::SYS_process_madvise,
                process,
                some.as_ptr(),
                some.len(),
                libc::MADV_PAGEOUT,
                0,
            ) >= 0
                || std::io::Error::last_os_error().raw_os_error() != Some(libc::EPERM)
        });
        libc::close(process as i32);
        asked
    }
}

/// Runs a program, whose argument is a folder, with all its pages paged out by the kernel again and again.
fn while_the_kernel_pages_out(program: &str) {
    for way in ["--page-tables private --page 64K", "--page-tables private", "--page-tables shared"] {
        let folder = tempfile::tempdir().expect("a folder");
        let run = Atoll::new(helper(program)).arg(".").folder(folder.path());
        let run = run.with(&format!("--near 16M --workers 2 {way}")).limit(120).start();
        for _ in 0..25 {
            std::thread::sleep(std::time::Duration::from_millis(30));
            if !run.others().into_iter().all(page_out) {
                skip!("asking the kernel to page out another process's memory needs root");
            }
        }
        run.end().exits(0);
    }
}

/// The kernel unmaps pages when it looks for memory to page out, pinned by atoll or not: `pread` gave less than a file has.
#[test]
fn reads_ended_where_the_kernel_had_paged_out() {
    while_the_kernel_pages_out("files.c");
}

/// The same with `stat` and its like, which failed with EFAULT.
#[test]
fn calls_failed_whose_structures_the_kernel_had_paged_out() {
    while_the_kernel_pages_out("structures.c");
}

/// Transfers by `io_uring` failed where memory was far, and a program that looked at no result read zeros.
#[test]
fn a_ring_read_zeros_where_memory_was_far() {
    const REFUSED: &str = "io_uring is refused with ENOSYS";
    let mut ways = vec![vec![]];
    if Path::new("/usr/include/liburing.h").exists() {
        ways.push(vec!["-DLINKED", "-Wl,--no-as-needed", "-luring"]);
    } else {
        skip_part!("liburing is not installed: apt-get install liburing-dev");
    }
    for way in ways {
        for threads in [&["-fno-openmp"][..], &["-Wl,--no-as-needed"]] {
            let program = helper_with("rings.c", &[threads, &way].concat());
            let alone = native(&program).run().exits(0);
            let ring = |outcome: &Outcome| {
                let line = outcome.stderr.lines().find(|line| line.starts_with("ring "));
                line.map(str::to_owned).expect("a line")
            };
            let run = Atoll::new(&program).with("--near 16M --workers 2").run().exits(0).like(&alone);
            assert_eq!(ring(&run), "ring -38", "{}", run.told());
            assert_eq!(run.stderr.matches(REFUSED).count(), 1, "{}", run.told());
            // Where the kernel fetches far memory by itself, and where there is none, it is as natively.
            let mut others = vec!["--near 16M --workers 2 --faults thread"];
            others.extend((threads == ["-fno-openmp"]).then_some("--near 4G"));
            for other in others {
                let run = Atoll::new(&program).with(other).run().exits(0).like(&alone);
                assert_eq!(ring(&run), ring(&alone), "{}", run.told());
                assert!(!run.stderr.contains(REFUSED), "{}", run.told());
            }
        }
    }
}
