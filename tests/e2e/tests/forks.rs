//! Tests OpenMP programs that fork: a child has its parent's memory as it was, goes on by itself, and disturbs nothing of its
//! parent's.

use std::fs;

use atoll_e2e::build::installed;
use atoll_e2e::{Atoll, helper, native, skip};

/// Runs the program with half of its memory near and with all of it, at both kinds of page tables.
fn in_all_ways(source: &str, near: &str, other: &[&str]) {
    let program = helper(source);
    for near in [format!("--near {near}"), String::new()] {
        for tables in ["--page-tables private", "--page-tables shared"] {
            for other in other {
                let run = Atoll::new(&program).with(&near).with(tables).with(other).run().exits(0).clean();
                assert!(run.text().ends_with("all well\n"), "{}", run.told());
                if !near.is_empty() {
                    assert!(run.figure("total/major_faults") > 0, "{}", run.told());
                    let near = run.figure("settings/near_bytes");
                    assert!(run.figure("memory/resident_peak_bytes") <= near, "{}", run.told());
                }
            }
        }
    }
}

/// `fork` failed in programs with OpenMP.
#[test]
fn children_of_openmp_programs_compute_and_execute_and_are_killed() {
    in_all_ways("forks_openmp.c", "48M", &["--workers 2", "--workers 4 --page 64K"]);
    let run =
        Atoll::new(helper("forks_openmp.c")).with("--near 48M --workers 2 --faults thread").run().exits(0);
    run.says("which the program forked, goes on with a copy of");
}

/// What a child prints, and what its parent had not printed yet, comes once from each.
#[test]
fn a_child_has_its_own_buffers_and_handlers() {
    let program = helper("forks_ends.c");
    for tables in ["private", "shared"] {
        let run = Atoll::new(&program).with(&format!("--near 12M --page-tables {tables}"));
        run.run().exits(7).like(&native(&program).run());
    }
}

/// A child that read its parent's memory by `process_vm_readv` got EFAULT where that was far.
#[test]
fn a_child_could_not_copy_from_its_parent() {
    in_all_ways("copies_from_children.c", "40M", &["--workers 2"]);
}

/// A child that goes on where there is no memory for its copy would be killed by the kernel, or its parent.
#[test]
fn a_copy_that_does_not_fit_is_refused_and_exec_goes_on() {
    if !installed("unshare") || !is_root() {
        skip!("only root can stand another file in for /proc/meminfo");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (text, script) = (folder.path().join("meminfo"), folder.path().join("script"));
    let told: Vec<String> = fs::read_to_string("/proc/meminfo")
        .expect("a file")
        .lines()
        .map(|line| if line.starts_with("MemAvailable:") { "MemAvailable: 9000 kB" } else { line }.to_owned())
        .collect();
    fs::write(&text, told.join("\n")).expect("it is written");
    // In a chroot `unshare` cannot make all mounts private. That /proc is private is enough.
    let mount = format!("mount --make-private /proc && mount --bind {} /proc/meminfo", text.display());
    fs::write(&script, format!("{mount} && exec {}", helper("forks_short.c").display()))
        .expect("it is written");
    for tables in ["private", "shared"] {
        let options = format!("--near 12M --far file --workers 2 --page-tables {tables}");
        let run =
            Atoll::new("unshare").args("-m --propagation unchanged sh").arg(&script).with(&options).run();
        run.exits(0)
            .says("atoll: fork failed: a forked process gets a copy of all paged memory, which is 24 MiB");
    }
}

/// Memory that was not copied yet read as zeros, and the child went on with them.
#[test]
fn a_child_whose_parent_was_killed_computed_with_zeros() {
    let folder = tempfile::tempdir().expect("a folder");
    for tables in ["private", "shared"] {
        let result = folder.path().join(tables);
        let options = format!("--near 16M --workers 2 --page-tables {tables}");
        Atoll::new(helper("forks_killed.c")).arg(&result).with(&options).run();
        // The child may have all its memory by then, and says so; more often it is killed.
        std::thread::sleep(std::time::Duration::from_millis(500));
        let told = fs::read_to_string(&result).unwrap_or_default();
        assert!(["", "0 wrong\n"].contains(&told.as_str()), "{told}");
    }
}

/// Pages of other nodes cannot be copied, nor those of a segment: `fork` fails there, in a sentence.
#[test]
fn fork_is_refused_on_several_nodes() {
    let run = Atoll::new(helper("forks.c")).with("--nodes 2").run().exits(3);
    run.says("atoll: fork failed: fork is not possible on several nodes: posix_spawn, system and popen are");
}

fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}
