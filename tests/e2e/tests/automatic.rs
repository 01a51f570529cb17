//! Tests near memory where the user gives no `--near`: it is what the machine, or the memory group, can give.

use atoll_e2e::build::{atoll, helper};
use atoll_e2e::group::MemoryGroup;
use atoll_e2e::workloads::checksum;
use atoll_e2e::{Atoll, built, native, skip};

/// A program that needed more than its memory group's limit was killed unless `--near` was given.
#[test]
fn a_run_without_a_flag_was_killed_in_its_memory_group() {
    let group = match MemoryGroup::new("atoll-e2e-automatic", "100M") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    let program = built("stencil");
    let alone = native(&program).args("A --iterations 1").run().exits(0);
    let run = group.run(&format!(
        "exec {} run --workers 2 -- {} A --iterations 1",
        atoll().display(),
        program.display()
    ));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert_eq!(checksum(&String::from_utf8_lossy(&run.stdout)), checksum(&alone.text()));
    assert!(said.contains("(what the machine could give)"), "{said}");
}

/// The same held for a program without OpenMP.
#[test]
fn a_program_without_openmp_was_killed_in_its_memory_group() {
    let group = match MemoryGroup::new("atoll-e2e-plain", "100M") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    let run =
        group.run(&format!("exec {} run -- {} 150 0", atoll().display(), helper("takes_memory.c").display()));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&run.stdout), "took 150 MiB\n");
}

/// A run whose data was all near kept it when another program of the group needed memory, and the kernel killed one of them.
#[test]
fn memory_that_others_needed_was_kept() {
    let group = match MemoryGroup::new("atoll-e2e-given-back", "160M") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    let (program, other) = (built("fft"), helper("takes_memory.c"));
    let alone = native(&program).args("A").run().exits(0);
    let run = group.start(&format!(
        "for i in 1 2 3 4; do {} run --workers 2 -- {} A || exit 1; done",
        atoll().display(),
        program.display()
    ));
    let taken = group.run(&format!("exec {} 40 200", other.display()));
    let run = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && taken.status.success(), "{said}\nthe other: {}", taken.status);
    let out = String::from_utf8_lossy(&run.stdout);
    let sums: Vec<&str> = out.lines().filter(|line| line.starts_with("Checksum:")).collect();
    assert!(
        sums.len() == 4 && sums.iter().all(|sum| Some((*sum).to_owned()) == checksum(&alone.text())),
        "{out}"
    );
}

/// Near memory takes nearly all of a small group, and gives way to a process that the program starts.
#[test]
fn a_process_that_the_program_starts_has_room_in_a_full_group() {
    let group = match MemoryGroup::new("atoll-e2e-starts", "64M") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    let (program, other) = (helper("starts_when_full.c"), helper("takes_memory.c"));
    let alone = native(&program).args("90 true system").run().exits(0);
    for way in ["system", "popen", "spawn", "vfork"] {
        let run = group.run(&format!(
            "exec {} run --workers 2 -- {} 90 '{} 8 0' {way}",
            atoll().display(),
            program.display(),
            other.display()
        ));
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{way}: {}\n{said}", run.status);
        assert!(String::from_utf8_lossy(&run.stdout).ends_with(&alone.text()), "{way}: {said}");
    }
}

/// `--near none` takes the limit away, and a limit that is given is no automatic one.
#[test]
fn a_limit_of_the_users_stays() {
    let run = |with: &str| Atoll::new(built("cg")).arg("S").with(with).run().exits(0);
    let summary = |run: &atoll_e2e::Outcome| run.summary.clone().unwrap_or_default();
    let none = run("--near none --workers 2");
    assert!(summary(&none)["settings"]["near_bytes"].is_null(), "{}", none.told());
    let given = run("--near 64M --workers 2");
    assert_eq!(given.figure("settings/near_bytes"), 64 << 20, "{}", given.told());
    assert_eq!(summary(&given)["settings"]["near_is_automatic"], false, "{}", given.told());
    let automatic = run("--workers 2");
    assert_eq!(summary(&automatic)["settings"]["near_is_automatic"], true, "{}", automatic.told());
}
