//! Tests what atoll prints about a run: that it is printed as soon as it is known, and that it is true.

use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_e2e::build::{atoll, compiled};
use atoll_e2e::group::MemoryGroup;
use atoll_e2e::{Atoll, built, skip};

/// Makes a directory of footprints of its own.
fn cache() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn with_cache(run: Atoll, cache: &Path) -> Atoll {
    run.env("XDG_CACHE_HOME", cache)
}

/// `--near 50%` was refused. It is of the footprint measured last, else of the machine's memory, and a line says which.
#[test]
fn a_near_limit_in_percent_was_refused() {
    let cache = cache();
    let run = |class: &str, options: &str| {
        let run = Atoll::new(built("cg")).arg(class).with(&format!("--workers 2 --far ram {options}"));
        with_cache(run, cache.path()).run().exits(0)
    };
    let first = run("W", "--near 50%").says("50% of the").says("of memory that it may have here");
    let footprint = first.figure("memory/footprint_peak_bytes");
    let half = run("W", "--near 50%").says("the footprint of");
    assert!(half.figure("settings/near_bytes").abs_diff(footprint / 2) <= 4096, "{}", half.told());
    assert!(half.figure("total/major_faults") > 0, "{}", half.told());
    let all = run("W", "--near 100%").says("the footprint of");
    assert_eq!(all.figure("total/major_faults"), 0, "{}", all.told());
    // With another size it counts as another program.
    run("S", "--near 50%").says("of memory that it may have here");
    let nodes = Atoll::new(built("cg")).arg("S").with("--near 50% --nodes 2");
    with_cache(nodes, cache.path())
        .run()
        .exits(2)
        .says("with several nodes give each node's near memory as a size");
}

/// It is no error that there is no place for footprints.
#[test]
fn a_share_without_a_home() {
    for home in ["/dev/null", "relative", ""] {
        let run = Atoll::new(built("cg")).arg("S").with("--near 90% --workers 2");
        let run = run.env("XDG_CACHE_HOME", home).env("HOME", home).run().exits(0);
        run.says("of memory that it may have here");
    }
}

/// A run that the kernel ended for its memory group's limit said only that it was killed.
#[test]
fn a_kill_for_the_memory_groups_limit_was_not_told() {
    let group = match MemoryGroup::new("atoll-e2e-killed", "100M") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    let words = format!(
        "exec {} run --near none --workers 2 -- {} A --iterations 1",
        atoll().display(),
        built("stencil").display()
    );
    let line = "atoll: the kernel killed a process of the run, as the limit of its memory group, 100M, was reached: \
        atoll run --near 66M keeps it within the limit";
    // On a busy machine the kernel kills one process after the other, the launcher last, while the memory of the first ones is
    // still being freed. Then nobody is left to say anything.
    let mut said = String::new();
    for _ in 0..3 {
        let run = group.run(&words);
        said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success(), "{said}");
        if !said.is_empty() {
            break;
        }
    }
    assert!(said.contains(line), "{said}");
}

/// Limits of memory groups of version 1 were not seen.
#[test]
fn a_memory_group_of_version_1_was_not_seen() {
    let group = match MemoryGroup::new("atoll-e2e-said", "300M") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    let doctor = group.run(&format!("exec {} doctor", atoll().display()));
    let share = format!(
        "XDG_CACHE_HOME=/dev/null exec {} run --near 50% -- {} S",
        atoll().display(),
        built("cg").display()
    );
    let share = group.run(&share);
    let text = String::from_utf8_lossy(&doctor.stdout);
    let line = text.lines().find(|line| line.contains("memory group")).unwrap_or_default();
    assert!(line.contains("limit 300M") && line.contains("atoll-e2e-said"), "{text}");
    let said = String::from_utf8_lossy(&share.stderr);
    assert!(said.contains("50% is 150M: 50% of the 300M of memory"), "{said}");
}

/// Builds a program of pthreads, which starts no other program.
fn pthreads(folder: &Path) -> PathBuf {
    let text = "#include <pthread.h>\n#include <stdio.h>\nstatic void *run(void *p) { return p; }\n\
        int main(void) { pthread_t t; pthread_create(&t, 0, run, 0); pthread_join(t, 0); puts(\"it ran\"); return 0; }\n";
    compiled(folder, "pthreads", text, &[])
}

/// Builds a program without OpenMP that loads a library with OpenMP.
fn loads_openmp_late(folder: &Path) -> PathBuf {
    let library = "#include <stdio.h>\nint sum(int n) { int s = 0;\n#pragma omp parallel for reduction(+ : s)\n\
        for (int i = 0; i < n; i++) s += i % 7;\nreturn s; }\n";
    let library = compiled(folder, "liblate.so", library, &["-fopenmp", "-shared", "-fPIC"]);
    let text = format!(
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(void) {{ setvbuf(stdout, 0, _IONBF, 0); puts(\"before\");\n\
         int (*sum)(int) = (int (*)(int))dlsym(dlopen(\"{}\", RTLD_NOW), \"sum\");\nprintf(\"sum %d\\n\", sum(1000)); return 0; }}\n",
        library.display()
    );
    compiled(folder, "late", &text, &["-ldl"])
}

/// For a program without OpenMP it was only said at its end that no limit was applied, and the exit status was 0.
#[test]
fn a_limit_that_was_not_applied_was_told_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = pthreads(folder.path());
    // With a limit the program would be managed once it needs memory, which it does not.
    let told = Atoll::new(&program).with("--near 8M").run().exits(0);
    assert_eq!(told.text(), "it ran\n");
    told.says("none of them asked libc for an eighth of near memory");
    let failed = Atoll::new(&program).with("--near 50% --require").no_summary().run().exits(70);
    assert_eq!(failed.says("nothing was managed, which --require asks for").text(), "it ran\n");
    let refused = Atoll::new(&program).with("--require").no_summary().run().exits(70);
    assert!(refused.text().is_empty(), "it was started: {}", refused.told());
    assert_eq!(refused.says("cannot be managed, which --require asks for").stderr.lines().count(), 1);
    // A program that starts a managed program does not count.
    let cg = built("cg").display().to_string();
    for words in [format!("timeout 60 {cg} S"), format!("{cg} S"), format!("env A=1 {cg} S")] {
        let (first, rest) = words.split_once(' ').expect("words");
        let run =
            Atoll::new(first).args(rest).with("--near 60M --workers 2 --require").no_summary().run().exits(0);
        assert!(run.stderr.is_empty(), "{}", run.told());
    }
    // This is known only at the end.
    let script = Atoll::new("sh").arg("-c").arg("echo it ran").with("--near 8M --require").run().exits(70);
    assert_eq!(script.says("nothing was managed, which --require asks for").text(), "it ran\n");
    let failed = Atoll::new("sh").arg("-c").arg("exit 3").with("--require").run().exits(3);
    failed.says("nothing was managed, which --require asks for");
}

/// A module that loads libgomp later, as Python's do, was reported as "does not use libgomp".
#[test]
fn a_library_that_brings_openmp_late_was_no_openmp() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = loads_openmp_late(folder.path());
    // Without a limit the program is not managed, and no line says so unless `--require` was given.
    let plain = Atoll::new(&program).with("--workers 2").no_summary().run().exits(0);
    assert!(plain.text() == "before\nsum 2997\n" && plain.stderr.is_empty(), "{}", plain.told());
    let refused = Atoll::new(&program).with("--workers 2 --require").no_summary().run().exits(70);
    assert_eq!(refused.text(), "before\n", "{}", refused.told());
    refused.says("begins to use OpenMP through a library that it loaded after its start");
    // The program that started it goes on as after any program that failed; the run has failed.
    let script = format!("{}; echo $?", program.display());
    let refused = Atoll::new("sh").arg("-c").arg(&script).with("--require --workers 2").no_summary().run();
    assert_eq!(refused.exits(70).text(), "before\n70\n");
    // It is said at the end, too, and the remedy that is named works.
    let end = Atoll::new(&program).with("--near none").run().exits(0);
    end.says("nothing was managed: a library brought OpenMP after the start, too late");
    let mended =
        Atoll::new(&program).with("--near 8M --workers 2 --require").env("LD_PRELOAD", "libgomp.so.1").run();
    let mended = mended.exits(0);
    assert!(mended.figure("settings/near_bytes") == 8 << 20 && mended.stderr.is_empty(), "{}", mended.told());
}

/// Only one OpenMP program of a run on several nodes has the limit.
#[test]
fn a_second_program_ran_without_the_limit() {
    let cg = built("cg").display().to_string();
    let script = format!("{cg} S >/dev/null; {cg} S >/dev/null");
    let run = |options: &str| Atoll::new("sh").arg("-c").arg(&script).with(options).no_summary().run();
    run("--nodes 2 --near 60M --workers 2").exits(0).says("--near is not applied to it");
    run("--nodes 2 --near 60M --workers 2 --require").exits(70).says("so it is not started");
}

/// A run that spent most of its time in faults said so in a table only, and gave no advice.
#[test]
fn a_run_that_mostly_faulted_gave_no_advice() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("record");
    let mut advised = 0;
    // With a tenth a worker spends two thirds of its time in faults, on quick disks and slow CPUs as well.
    for near in ["10%", "30%", "60%", "100%"] {
        let cache = folder.path();
        let measure = Atoll::new(built("kmeans")).arg("W").with("--workers 2");
        measure.env("XDG_CACHE_HOME", cache).run().exits(0);
        let options = format!("--workers 2 --near {near} --record {}", file.display());
        let run =
            Atoll::new(built("kmeans")).arg("W").with(&options).env("XDG_CACHE_HOME", cache).run().exits(0);
        let summary = run.summary.clone().expect("a summary");
        let number = |value: &serde_json::Value| value.as_f64().expect("a number");
        let workers = summary["workers"].as_array().expect("workers");
        let most = workers.iter().map(|worker| number(&worker["fault_seconds"])).fold(0.0, f64::max);
        let share = most / number(&summary["wall_seconds"]);
        let shown = Command::new(atoll()).arg("show").arg(&file).output().expect("it runs");
        let text = String::from_utf8_lossy(&shown.stdout);
        let advice = text.lines().find(|line| line.contains("of its time in faults"));
        assert_eq!(advice.is_some(), share > 0.5, "{share}: {text}");
        advised += u32::from(advice.is_some());
        assert!(
            advice.is_none_or(|line| line.starts_with("atoll: worker ") && line.contains("try --")),
            "{text}"
        );
        // Heads have units below them, and the wall time is explained.
        assert!(
            text.contains("2 workers") && text.contains("wall: the ") && text.contains("in faults  of wall"),
            "{text}"
        );
    }
    assert!(advised > 0, "no run spent most of its time in faults");
    let one = Command::new(atoll()).args(["run", "--workers", "1", "--"]).arg(built("cg")).arg("S").output();
    let text = String::from_utf8_lossy(&one.expect("it runs").stderr).into_owned();
    assert!(text.contains("  1 worker, "), "{text}");
}

/// The summary named the file that a link leads to: `redis-server` was told of as `redis-check-rdb`.
#[test]
fn a_program_was_told_of_by_another_name_of_its_file() {
    let folder = cache();
    let link = folder.path().join("a-link");
    std::os::unix::fs::symlink(built("ep"), &link).unwrap();
    let run = Atoll::new(&link).arg("S").with("--workers 1").run().exits(0);
    assert_eq!(run.summary.unwrap()["program"], "a-link");
}
