//! Tests memory that comes and leaves in huge pages: nothing that a program does to a part of one is lost.

use atoll_e2e::build::{atoll, helper_with};
use atoll_e2e::group::MemoryGroup;
use atoll_e2e::{Atoll, native, skip, skip_part};
use std::path::PathBuf;
use std::process::{Command, Output};

fn program() -> PathBuf {
    helper_with("huge_pages.c", &["-O2", "-fopenmp"])
}

/// What a run said, all of whose words must have been right.
fn said_by(run: &Output, near: &str, seed: u32) -> String {
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    let printed = String::from_utf8_lossy(&run.stdout);
    assert_eq!((&*printed, run.status.code()), ("all words are right\n", Some(0)), "{near} {seed}: {said}");
    said
}

/// Whether the run had huge pages. Where the kernel has no guards for files or makes no huge page there are none.
fn had_huge_pages(said: &str) -> bool {
    said.contains("pages of 2M came")
}

/// The program allocates memory that was far when it was freed, too. Guards were still there, and a first touch that was to make a huge page ended
/// the run. With 63M and 71M, near memory was huge pages alone, all of which counted as those of the last faults, and no room was found.
#[test]
fn parts_of_huge_pages_are_freed_read_written_and_forked() {
    let program = program();
    let mut any = false;
    for (near, seed) in [("64M", 1), ("64M", 2), ("70M", 11), ("90M", 3), ("63M", 23), ("71M", 31)] {
        let run = Command::new("timeout")
            .args([
                "200",
                atoll().to_str().expect("a plain name"),
                "run",
                "--workers",
                "2",
                "--near",
                near,
                "--",
            ])
            .arg(&program)
            .args(["12", &seed.to_string()])
            .output()
            .expect("timeout is there");
        any |= had_huge_pages(&said_by(&run, near, seed));
    }
    if !any {
        skip_part!("the kernel made no huge pages");
    }
}

/// Where the machine has no memory to spare, single pages of what was huge are copied away. The kernel clears a part of a large page that is to be freed
/// before it is free, even if a pipe has it: the copies were zeros.
#[test]
fn parts_of_huge_pages_were_cleared_before_they_were_copied() {
    let group = match MemoryGroup::new("atoll-e2e-huge", "150M") {
        Ok(group) => group,
        Err(why) => skip!("{why}"),
    };
    for (near, seed) in [("64M", 5), ("64M", 7), ("64M", 9), ("70M", 8)] {
        let run = group.run(&format!(
            "exec timeout 200 {} run --workers 2 --near {near} -- {} 8 {seed} 1",
            atoll().display(),
            program().display()
        ));
        said_by(&run, near, seed);
    }
}

/// An array that is visited at random and just fits into near memory was fetched five to forty times while another array was read beside it.
#[test]
fn pages_used_beside_a_stream_were_fetched_again_and_again() {
    let program = helper_with("beside_a_stream.c", &["-O2", "-fopenmp"]);
    let alone = native(&program).run().exits(0);
    // Less than 60M has no room for the huge pages of both workers beside what is visited.
    for near in ["62M", "66M"] {
        let run =
            Atoll::new(&program).with(&format!("--workers 2 --near {near}")).run().exits(0).like(&alone);
        let fetched = run.figure("total/bytes_in") >> 20;
        // The other array is read three times, 48M each.
        assert!(fetched < 500, "{near}: {fetched} MiB: {}", run.told());
    }
}
