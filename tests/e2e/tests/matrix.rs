//! Compares the workloads with their native checksums: a random part of the matrix that `stress --matrix` runs whole.

use std::time::{Duration, Instant};

use atoll_e2e::random::Random;
use atoll_e2e::workloads::{Case, PROGRAMS, natively};
use atoll_e2e::{built, native};

/// The most time of all cases together, approximately.
const BUDGET: Duration = Duration::from_secs(30);

/// Returns the seed, which is the same every time unless the environment names another: a test must not fail by chance.
/// `stress` tries other seeds.
fn seed() -> u64 {
    std::env::var("ATOLL_E2E_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1)
}

#[test]
fn a_part_of_class_s() {
    let seed = seed();
    println!("ATOLL_E2E_SEED={seed}");
    let mut random = Random(seed);
    let began = Instant::now();
    let (mut passed, mut failed) = (0, Vec::new());
    while began.elapsed() < BUDGET {
        match Case::random(&mut random, &['S'], &["4K", "4K", "64K"]).check(300) {
            Ok(_) => passed += 1,
            Err(why) => failed.push(why),
        }
    }
    println!("{passed} passed, {} failed", failed.len());
    assert!(
        failed.is_empty(),
        "seed {seed}: {} of {} failed\n{}",
        failed.len(),
        failed.len() + passed,
        failed.join("\n\n")
    );
}

/// The native checksum does not depend on the number of workers.
#[test]
fn checksums_are_the_same_for_every_team() {
    for program in PROGRAMS {
        let native = natively(program, 'S', None);
        for workers in [1, 3, 5] {
            let case = Case {
                program: program.into(),
                class: 'S',
                iterations: None,
                percent: 100,
                policy: "cmcp".into(),
                page: "4K".into(),
                tables: "private".into(),
                faults: "self".into(),
                far: "ram".into(),
                workers,
            };
            if let Err(why) = case.check(60) {
                panic!("natively {}: {why}", native.checksum);
            }
        }
    }
}

/// The policy of `docs/add-a-policy.md` drives the pager of a real run, which evicts by it.
#[test]
fn the_policy_of_the_guide_runs_live() {
    for (program, tables) in [("cg", "private"), ("stencil", "shared")] {
        let case = Case {
            program: program.into(),
            class: 'S',
            iterations: None,
            percent: 50,
            policy: "newest".into(),
            page: "4K".into(),
            tables: tables.into(),
            faults: "self".into(),
            far: "lz4".into(),
            workers: 2,
        };
        let run = case.check(120).unwrap_or_else(|why| panic!("{why}"));
        assert!(run.figure("total/major_faults") > 0, "{}", run.told());
    }
}

/// `atoll bench sampling` ended at these. One program divided by zero once nothing was left to be found; the other verified a
/// property that holds only as long as the wave is in the mesh.
#[test]
fn more_iterations_than_a_class_has_are_no_failure() {
    for (program, iterations) in [("minife", "10000"), ("lulesh", "400")] {
        native(built(program)).args(&format!("S --iterations {iterations}")).run().exits(0);
    }
}
