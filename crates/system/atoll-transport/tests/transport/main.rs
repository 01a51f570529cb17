//! One suite for all transports, each bare and with faults and the proof over it: shared memory between threads and processes,
//! UCX over shared memory and TCP, and UCX between two network namespaces.
//!
//! The program forks, so it cannot use the test harness with its threads: `cargo test -p atoll-transport --test transport [--
//! WORDS]` runs the tests whose names have all the words. `ATOLL_TEST_SEED` changes the faults. A node that takes longer than
//! its limit is ended by SIGALRM.

#![allow(clippy::unwrap_used, reason = "tests")]

mod alone;
mod namespaces;
mod nodes;
mod run;
mod suite;
#[path = "../shared/words.rs"]
mod words;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use atoll_transport::transport::{
    Event, Faults, Faulty, Proven, Secret, Shm, ShmSettings, Transport, Ucx, UcxSettings,
};

use crate::nodes::Spot;
use crate::run::{LONG, Run};
use crate::suite::{Program, SUITE};

/// The layers over a transport.
#[derive(Clone, Copy)]
enum Over {
    Nothing,
    /// Faults over the proof over faults.
    Everything,
}

/// A node with a transport, bare or with all layers over it.
fn node(spot: &Spot, over: Over, transport: Box<dyn Transport>) -> Run<'_> {
    let seed = std::env::var("ATOLL_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    let faults = |layer| Faults { seed: seed << 1 | layer, delayed: 150, full: 50, duplicated: 0, cut: None };
    match over {
        Over::Nothing => Run::new(spot, transport),
        Over::Everything => {
            let secret = Secret::new(b"the secret of this test").unwrap();
            let mut proven = Proven::new(Faulty::new(transport, faults(1)), secret).unwrap();
            let (mut early, mut joined) = (Vec::new(), 0);
            let all = proven.join_all(LONG, &mut |event| match event {
                Event::Joined(_) => joined += 1,
                Event::Message { from, kind, bytes } => early.push((from, kind, bytes.to_vec())),
                event => panic!("{event:?}"),
            });
            all.unwrap();
            assert_eq!(joined, spot.nodes - 1);
            Run::new(spot, Box::new(Faulty::new(proven, faults(0)))).early(early)
        }
    }
}

fn ucx(spot: &Spot, transports: Option<&str>, devices: Option<&str>) -> Box<dyn Transport> {
    let settings = UcxSettings {
        transports: transports.map(str::to_owned),
        devices: devices.map(str::to_owned),
        ..UcxSettings::default()
    };
    Box::new(Ucx::join(spot.node, spot.nodes, settings, |mine| spot.exchange(&mine)).unwrap())
}

/// A kind of nodes: its name, and a function that runs a program of the suite on them.
type Kind = (&'static str, fn(Over, Program, u32));

const KINDS: &[Kind] = &[
    ("shm_processes", |wrap, program, die| {
        let mut places: Vec<_> = atoll_transport::transport::mesh(3).unwrap().into_iter().map(Some).collect();
        let places = std::cell::RefCell::new(&mut places);
        nodes::processes(3, &[2][..die as usize], |spot| {
            let place = places.borrow_mut()[spot.node.0 as usize].take().unwrap();
            places.borrow_mut().clear();
            let shm = Shm::join(place, ShmSettings::default(), LONG).unwrap();
            program(node(&spot, wrap, Box::new(shm)));
        });
    }),
    ("ucx_shm", |wrap, program, die| {
        nodes::processes(3, &[2][..die as usize], |spot| {
            program(node(&spot, wrap, ucx(&spot, Some("shm"), None)));
        });
    }),
    ("ucx_tcp", |wrap, program, die| {
        nodes::processes(3, &[2][..die as usize], |spot| {
            program(node(&spot, wrap, ucx(&spot, Some("tcp"), None)));
        });
    }),
    ("ucx_default", |wrap, program, die| {
        nodes::processes(3, &[2][..die as usize], |spot| {
            program(node(&spot, wrap, ucx(&spot, None, None)));
        });
    }),
    ("shm_threads", |wrap, program, die| {
        // A thread cannot be killed alone.
        if die == 0 {
            nodes::threads(3, |spot, place| {
                let shm = Shm::join(place, ShmSettings::default(), LONG).unwrap();
                program(node(spot, wrap, Box::new(shm)));
            });
        }
    }),
    ("shm_directory", |wrap, program, die| {
        let directory =
            tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap();
        nodes::processes(3, &[2][..die as usize], |spot| {
            let settings = ShmSettings { lines: 1000, ..ShmSettings::default() };
            let shm = Shm::join_in(directory.path(), spot.node, spot.nodes, settings, LONG).unwrap();
            program(node(&spot, wrap, Box::new(shm)));
        });
    }),
];

/// Runs the whole suite between two hosts, which take a second to come up.
fn two_hosts(wrap: Over) {
    if let Some(why) = namespaces::missing() {
        atoll_skips::skip!("{why}");
    }
    let (last, _, die) = SUITE[SUITE.len() - 1];
    nodes::processes(2, &[1][..die as usize], |spot| {
        namespaces::host(&spot);
        for (name, program, die) in SUITE {
            assert!(*die == 0 || *name == last, "whoever is killed cannot go on");
            program(node(&spot, wrap, ucx(&spot, Some("tcp"), Some(namespaces::DEVICE))));
        }
    });
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut tests: Vec<(String, Box<dyn Fn()>)> = Vec::new();
    for (layers, wrap) in [("bare", Over::Nothing), ("faulty", Over::Everything)] {
        for (kind, start) in KINDS {
            for (name, program, die) in SUITE {
                tests
                    .push((format!("{kind} {layers} {name}"), Box::new(move || start(wrap, *program, *die))));
            }
        }
        tests.push((format!("ucx_two_hosts {layers} suite"), Box::new(move || two_hosts(wrap))));
    }
    for (name, test) in alone::TESTS {
        tests.push(((*name).to_owned(), Box::new(test)));
    }
    tests.retain(|(name, _)| words.iter().all(|word| name.contains(word.as_str())));
    let no_ucx = nodes::ucx_missing();
    for (name, test) in tests {
        if let (Some(why), true) = (&no_ucx, name.contains("ucx")) {
            atoll_skips::begin(&name);
            atoll_skips::whole(format_args!("{why}"));
            println!("test {name} ... {}", atoll_skips::outcome());
            continue;
        }
        let begin = Instant::now();
        atoll_skips::begin(&name);
        test();
        println!("test {name} ... {} ({:.2} s)", atoll_skips::outcome(), begin.elapsed().as_secs_f64());
    }
}
