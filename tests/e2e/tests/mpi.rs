//! Tests programs of MPI with OpenMP, each rank a run of its own, and the mechanisms that MPI libraries use: copies between
//! processes, System V shared memory, hooks of mmap.

use std::path::PathBuf;
use std::process::Command;

use atoll_e2e::build::{atoll, helper, installed, root, target};
use atoll_e2e::{Atoll, native, skip_part};

/// The libraries of MPI: what Debian's names of the commands end in, what the starter needs said, and the packages.
const LIBRARIES: [(&str, &str, &str); 2] =
    [("openmpi", "--oversubscribe", "openmpi-bin libopenmpi-dev"), ("mpich", "", "mpich libmpich-dev")];

/// Returns `hybrid.c` built by this library's compiler.
fn hybrid(library: &str) -> PathBuf {
    let out = target().join("e2e");
    std::fs::create_dir_all(&out).expect("a folder for programs");
    let binary = out.join(format!("hybrid_{library}"));
    let made = Command::new(format!("mpicc.{library}"))
        .args(["-O2", "-g", "-w", "-fopenmp", "-o"])
        .arg(&binary)
        .arg(root().join("tests/e2e/programs/hybrid.c"))
        .output()
        .expect("the compiler starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    binary
}

/// Returns what the ranks print; `wrapper` is the command before the program.
fn ranks(library: &str, starter: &str, ranks: u32, wrapper: &[&str], program: &str) -> String {
    let output = Command::new("timeout")
        .arg("100")
        .arg(format!("mpirun.{library}"))
        .args(starter.split_whitespace())
        .args(["-n", &ranks.to_string()])
        .args(wrapper)
        .arg(program)
        .env("OMP_NUM_THREADS", "2")
        // The libraries' hwloc loads plugins of whatever this machine has: with OpenCL installed, a compiler of 12M in each rank,
        // more than the least limit here leaves.
        .env("HWLOC_COMPONENTS", "-opencl,-gl,-cuda,-nvml,-rsmi,-levelzero")
        // The user root of these variables is only root of this test machine.
        .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
        .output()
        .expect("started");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{library}, {ranks} ranks, {wrapper:?}: {out}{err}");
    out.into_owned()
}

/// Ranks read each other's memory while some of it was far: Open MPI tried again for ever, MPICH ended. Windows that MPI makes were
/// not there in workers.
#[test]
fn ranks_that_copy_from_each_others_paged_memory() {
    for (library, starter, packages) in LIBRARIES {
        if !installed(&format!("mpicc.{library}")) || !installed(&format!("mpirun.{library}")) {
            skip_part!("{library} is not installed: apt-get install {packages}");
            continue;
        }
        let program = hybrid(library).display().to_string();
        let run = atoll().display().to_string();
        for count in [2, 4] {
            let expected = ranks(library, starter, count, &[], &program);
            assert!(expected.ends_with("alike\n"), "{expected}");
            for near in [["--near", "14M"], ["--near", "200M"], ["--near-host", "60M"]] {
                let wrapper = [run.as_str(), "run", near[0], near[1], "--summary", "none", "--"];
                assert_eq!(
                    ranks(library, starter, count, &wrapper, &program),
                    expected,
                    "{library} {near:?}"
                );
            }
        }
    }
}

/// One run reads and writes the memory of another, most of which is far.
#[test]
fn a_run_copies_from_another_runs_memory() {
    let program = helper("copies_between.c");
    for near in [
        "--near 8M --page-tables private",
        "--near 8M --page-tables shared",
        "--near 8M --faults thread --page-tables private",
        "--page-tables private",
    ] {
        let atoll = Atoll::new(&program).with(near);
        let mut serving = atoll.clone().arg("serve").start();
        assert!(serving.wait_for("\n"), "{near}");
        let said = serving.said();
        let run = atoll.args(said.trim()).run().exits(0);
        assert!(run.text().contains("all well"), "{}", run.told());
        let served = serving.end().exits(0);
        assert!(served.text().contains("all well"), "{near}: {}", served.told());
    }
}

/// Segments that one worker attached were not there in the others.
#[test]
fn system_v_shared_memory_is_every_workers() {
    let program = helper("system_v.c");
    let natively = native(&program).run().exits(0);
    for options in [
        "--workers 4 --page-tables private",
        "--workers 2 --page-tables shared",
        "--workers 3 --near 4M --page-tables private",
    ] {
        Atoll::new(&program).with(options).run().exits(0).like(&natively);
    }
    // MPI tries whether it has such memory, and does without: a program was ended there.
    let run = Atoll::new(&program).with("--nodes 2 --workers 2").run().exits(1);
    run.says("shmat failed: System V shared memory is not possible on several nodes");
}

/// UCX's memory hooks were written over the runtime's own mmap, and what the program mapped went past it.
#[test]
fn hooks_are_not_written_over_the_runtime() {
    Atoll::new(helper("patches.c")).env("ATOLL_EXPECTED", "1").run().exits(0);
}
