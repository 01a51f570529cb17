//! Tests of the manager: which engine it chooses, that it completes transfers, and what it keeps in the cache folder.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use atoll_channel::bulk::{
    Access, CopyError, Copying, Costs, Curve, Engine, FileIo, Kind, Manager, Memcpy, Memory, ProcessVm,
    Started, Transfer, Uring,
};

use crate::forked::Child;
use crate::mishaps::forbid;
use crate::rig::{self, End};
use crate::suite::pattern;

/// The tests of this file.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("copies_between_all_kinds_of_memory", copies_between_all_kinds_of_memory),
    ("copies_with_a_helper", copies_with_a_helper),
    ("many_transfers_at_once_by_all_engines", many_transfers_at_once_by_all_engines),
    ("a_transfer_that_fails_leaves_the_others", a_transfer_that_fails_leaves_the_others),
    ("a_dropped_copying_goes_on", a_dropped_copying_goes_on),
    ("a_dropped_manager_says_so", a_dropped_manager_says_so),
    ("what_no_engine_reaches_is_refused", what_no_engine_reaches_is_refused),
    ("the_fastest_engine_is_chosen", the_fastest_engine_is_chosen),
    ("an_engine_of_a_transport", an_engine_of_a_transport),
    ("what_was_measured_is_kept", what_was_measured_is_kept),
    ("no_home_at_all", no_home_at_all),
    ("io_uring_refused_is_said_once", io_uring_refused_is_said_once),
];

const MEGABYTE: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

/// A manager that measures nothing.
fn manager() -> Manager {
    let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(ProcessVm)];
    match Uring::new() {
        Ok(ring) => engines.push(Box::new(ring)),
        Err(_) => engines.push(Box::new(FileIo)),
    }
    engines.extend(Memcpy::all().iter().map(|engine| Box::new(*engine) as Box<dyn Engine>));
    Manager::with(engines, Costs::default())
}

fn ends(bytes: u64) -> Vec<(End, End)> {
    vec![
        (rig::own(bytes), rig::shared(bytes)),
        (rig::own(bytes), rig::child(bytes)),
        (rig::child(bytes), rig::own(bytes)),
        (rig::own(bytes), rig::file(bytes)),
        (rig::file(bytes), rig::own(bytes)),
    ]
}

fn done(manager: &mut Manager, copying: &Copying) {
    assert_eq!(manager.wait(copying, Some(20 * SECOND)), Some(Ok(())));
}

fn copies_between_all_kinds_of_memory() {
    copies_between_all_kinds_by(manager());
}

fn copies_with_a_helper() {
    let mut manager = manager();
    manager.add_helper().unwrap();
    manager.add_helper().unwrap();
    assert_eq!(manager.engines().filter(|name| *name == "helper").count(), 1);
    let (one, other) = (rig::own(9 * MEGABYTE), rig::own(9 * MEGABYTE));
    // A copy that is waited for needs no helper.
    assert_eq!(manager.why(&one.memory, &other.memory, 9 * MEGABYTE).unwrap().engine, "memcpy");
    copies_between_all_kinds_by(manager);
}

fn copies_between_all_kinds_by(mut manager: Manager) {
    for (to, from) in ends(9 * MEGABYTE) {
        for bytes in [0, 1, 5000, 300_000, 8 * MEGABYTE + 7] {
            let sent = pattern(bytes, bytes as usize);
            from.put(100, &sent);
            manager.copy(&to.memory, 3, &from.memory, 100, bytes).unwrap();
            assert!(to.get(3, bytes as usize) == sent);
            let copying = manager.start(&to.memory, 70_000, &from.memory, 100, bytes).unwrap();
            done(&mut manager, &copying);
            assert!(to.get(70_000, bytes as usize) == sent);
        }
    }
}

fn many_transfers_at_once_by_all_engines() {
    const EACH: u64 = 700_001;
    const COUNT: u64 = 12;
    let mut manager = manager();
    let ends = ends(EACH * COUNT);
    for (_, from) in &ends {
        from.put(0, &pattern(8, (EACH * COUNT) as usize));
    }
    let mut under_way = Vec::new();
    for part in 0..COUNT {
        for (to, from) in &ends {
            let at = part * EACH;
            under_way.push(manager.start(&to.memory, at, &from.memory, at, EACH).unwrap());
        }
    }
    let end = Instant::now() + 20 * SECOND;
    while manager.progress(SECOND) > 0 {
        assert!(Instant::now() < end);
    }
    assert!(under_way.iter().all(|copying| copying.outcome() == Some(Ok(()))));
    for (to, _) in &ends {
        assert!(to.get(0, (EACH * COUNT) as usize) == pattern(8, (EACH * COUNT) as usize));
    }
}

fn a_transfer_that_fails_leaves_the_others() {
    let mut manager = manager();
    let (to, from) = (rig::own(4 * MEGABYTE), rig::file(4 * MEGABYTE));
    let short = Memory::of_file(tempfile::tempfile().unwrap(), 0, 4 * MEGABYTE, Access::READ).unwrap();
    let other = rig::own(4 * MEGABYTE);
    let fails = manager.start(&other.memory, 0, &short, 0, 4 * MEGABYTE).unwrap();
    let works = manager.start(&to.memory, 0, &from.memory, 0, 4 * MEGABYTE).unwrap();
    assert_eq!(manager.wait(&fails, Some(20 * SECOND)), Some(Err(CopyError::EndOfFile)));
    done(&mut manager, &works);
    // Refused before it is begun.
    let refused = manager.start(&to.memory, 1, &from.memory, 0, 4 * MEGABYTE);
    assert!(matches!(refused, Err(CopyError::OutOfRange { end: "destination", .. })));
    let refused = manager.copy(&to.memory, 0, &to.memory, 1, 2);
    assert_eq!(refused, Err(CopyError::Overlap));
}

fn a_dropped_copying_goes_on() {
    let mut manager = manager();
    for (to, from) in ends(4 * MEGABYTE) {
        let sent = pattern(4, 4 << 20);
        from.put(0, &sent);
        drop(manager.start(&to.memory, 0, &from.memory, 0, 4 * MEGABYTE).unwrap());
        while manager.progress(SECOND) > 0 {}
        assert!(to.get(0, 4 << 20) == sent);
    }
}

fn a_dropped_manager_says_so() {
    for (to, from) in ends(4 * MEGABYTE) {
        let mut manager = manager();
        let copying = manager.start(&to.memory, 0, &from.memory, 0, 4 * MEGABYTE).unwrap();
        // Data in the page cache may be copied at once.
        let early = copying.outcome();
        drop((to, from));
        drop(manager);
        assert_eq!(copying.outcome(), early.or(Some(Err(CopyError::Abandoned))));
    }
}

fn what_no_engine_reaches_is_refused() {
    let mut manager = manager();
    let (to, from) = (rig::child(4096), rig::file(4096));
    let refused = manager.copy(&to.memory, 0, &from.memory, 0, 4096).unwrap_err();
    assert_eq!(refused, CopyError::Unreachable { from: "a file", to: "another process" });
    assert!(manager.start(&to.memory, 0, &from.memory, 0, 4096).is_err());
    assert!(manager.why(&to.memory, &from.memory, 4096).is_err());
}

fn curve(engine: &str, to: Kind, from: Kind, points: &[(u64, f64)]) -> Curve {
    Curve { engine: engine.into(), to, from, points: points.to_vec() }
}

fn the_fastest_engine_is_chosen() {
    let Ok(ring) = Uring::new() else {
        atoll_skips::skip!("io_uring is not to be had here");
    };
    let mut costs = Costs::default();
    costs.set(curve("pread", Kind::Mapping, Kind::File, &[(64, 1.0), (1 << 20, 100.0)]));
    costs.set(curve("io_uring", Kind::Mapping, Kind::File, &[(64, 3.0), (1 << 20, 50.0)]));
    let mut manager = Manager::with(vec![Box::new(FileIo), Box::new(ring)], costs);
    let (to, from) = (rig::own(64 * MEGABYTE), rig::file(64 * MEGABYTE));
    let small = manager.why(&to.memory, &from.memory, 4096).unwrap();
    assert_eq!((small.engine, small.pieces), ("pread", 1));
    let large = manager.why(&to.memory, &from.memory, 64 * MEGABYTE).unwrap();
    assert_eq!((large.engine, large.microseconds), ("io_uring", Some(3200.0)));
    assert_eq!(large.pieces, 32);
    assert_eq!(large.others, [("pread", Some(6400.0))]);
    manager.copy(&to.memory, 0, &from.memory, 0, 64 * MEGABYTE).unwrap();
    // Nothing was measured in the other direction, in which it works all the same.
    assert_eq!(manager.why(&from.memory, &to.memory, 64).unwrap().microseconds, None);
    manager.copy(&from.memory, 0, &to.memory, 0, MEGABYTE).unwrap();
    assert_eq!(manager.engines().collect::<Vec<_>>(), ["pread", "io_uring"]);
    let transfer = Transfer::new(&to.memory, 0, &from.memory, 0, 4096).unwrap();
    manager.engine("io_uring").unwrap().copy(&transfer).unwrap();
    assert!(manager.engine("carrier pigeon").is_none());
}

/// Memory of another node, which is really a mapping here; copies end some time later.
struct Loopback {
    under_way: Vec<(u64, Memory, Memory, [u64; 3])>,
}

impl Engine for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn reaches(&self, to: &Memory, from: &Memory) -> bool {
        to.kind() == Kind::Mapping && from.remote::<Memory>().is_some()
    }

    fn depth(&self) -> usize {
        3
    }

    fn start(&mut self, transfer: &Transfer<'_>, number: u64) -> Result<Started, CopyError> {
        if self.under_way.len() == self.depth() {
            return Err(CopyError::Full);
        }
        let from = transfer.from().remote::<Memory>().unwrap().clone();
        let numbers = [transfer.to_offset(), transfer.from_offset(), transfer.bytes()];
        self.under_way.push((number, transfer.to().clone(), from, numbers));
        Ok(Started::Pending)
    }

    fn progress(&mut self, finished: &mut Vec<(u64, Result<(), CopyError>)>, _: Duration) {
        // The last transfer ends first.
        let Some((number, to, from, [to_offset, from_offset, bytes])) = self.under_way.pop() else { return };
        let mut plain = Memcpy::PLAIN;
        let transfer = Transfer::new(&to, to_offset, &from, from_offset, bytes);
        finished.push((number, transfer.and_then(|transfer| plain.copy(&transfer))));
    }
}

fn an_engine_of_a_transport() {
    let mut manager = manager();
    let there = rig::own(9 * MEGABYTE);
    let from = Memory::of_transport(Box::new(there.memory.clone()), 9 * MEGABYTE, Access::READ).unwrap();
    let to = rig::own(9 * MEGABYTE);
    assert!(manager.copy(&to.memory, 0, &from, 0, 1).is_err());
    manager.add(Box::new(Loopback { under_way: Vec::new() }));
    manager.measure("loopback", &to.memory, &from).unwrap();
    let why = manager.why(&to.memory, &from, MEGABYTE).unwrap();
    assert_eq!(why.engine, "loopback");
    assert!(why.microseconds.is_some());
    let sent = pattern(6, 9 << 20);
    there.put(0, &sent);
    let first = manager.start(&to.memory, 0, &from, 0, 5 * MEGABYTE).unwrap();
    let second = manager.start(&to.memory, 5 * MEGABYTE, &from, 5 * MEGABYTE, 4 * MEGABYTE).unwrap();
    assert!(to.get(0, 9 << 20) != sent);
    done(&mut manager, &second);
    done(&mut manager, &first);
    assert!(to.get(0, 9 << 20) == sent);
}

/// Checks a manager that a child made, with this cache folder.
fn in_folder(folder: Option<&Path>, check: impl FnOnce(Manager)) {
    prepared_in_folder(folder, || {}, check);
}

/// Does the same as `in_folder`, after calling `before`.
fn prepared_in_folder(folder: Option<&Path>, before: impl FnOnce(), check: impl FnOnce(Manager)) {
    let child = Child::run(|| {
        before();
        // SAFETY: the child has one thread.
        unsafe {
            std::env::remove_var("HOME");
            std::env::remove_var("XDG_CACHE_HOME");
            if let Some(folder) = folder {
                std::env::set_var("XDG_CACHE_HOME", folder);
            }
        }
        check(Manager::new());
    });
    assert!(child.ended_well());
}

fn what_was_measured_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let here = |manager: &Manager| {
        let (one, other) = (Memory::new(4096).unwrap(), Memory::new(4096).unwrap());
        manager.why(&one, &other, 4096).unwrap().microseconds
    };
    in_folder(Some(folder.path()), |manager| {
        assert!(here(&manager).is_some());
        // Another manager of the process does not read the file again.
        assert_eq!(Manager::new().costs(), manager.costs());
    });
    let files: Vec<_> = fs::read_dir(folder.path().join("atoll")).unwrap().collect();
    assert_eq!(files.len(), 1);
    let path = files.into_iter().next().unwrap().unwrap().path();
    // The file is believed: a number that no measurement yields comes back.
    let text = fs::read_to_string(&path).unwrap();
    let mut contents: serde_json::Value = serde_json::from_str(&text).unwrap();
    for curve in contents["costs"]["curves"].as_array_mut().unwrap() {
        for point in curve["points"].as_array_mut().unwrap() {
            point[1] = serde_json::json!(123.5);
        }
    }
    fs::write(&path, contents.to_string()).unwrap();
    in_folder(Some(folder.path()), |manager| assert_eq!(here(&manager), Some(123.5)));
    in_folder(Some(folder.path()), |mut manager| {
        manager.measure_again();
        assert!(here(&manager) != Some(123.5));
    });
    // A damaged file is measured and written again.
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    in_folder(Some(folder.path()), |manager| assert!(here(&manager).is_some()));
    assert!(serde_json::from_str::<serde_json::Value>(&fs::read_to_string(&path).unwrap()).is_ok());
}

fn no_home_at_all() {
    for folder in [None, Some(Path::new("relative")), Some(Path::new("/proc/nowhere"))] {
        in_folder(folder, |mut manager| {
            let (to, from) = (rig::own(MEGABYTE), rig::file(MEGABYTE));
            from.put(0, &pattern(3, 1 << 20));
            manager.copy(&to.memory, 0, &from.memory, 0, MEGABYTE).unwrap();
            assert!(to.get(0, 1 << 20) == pattern(3, 1 << 20));
        });
    }
}

fn io_uring_refused_is_said_once() {
    prepared_in_folder(
        None,
        || forbid(libc::SYS_io_uring_setup),
        |mut manager| {
            assert!(manager.notice().unwrap().contains("io_uring is refused here"));
            assert!(!manager.engines().any(|name| name == "io_uring"));
            let (to, from) = (rig::own(MEGABYTE), rig::file(MEGABYTE));
            manager.copy(&to.memory, 0, &from.memory, 0, MEGABYTE).unwrap();
            assert_eq!(manager.why(&to.memory, &from.memory, 1).unwrap().engine, "pread");
            drop(Manager::new());
        },
    );
}
