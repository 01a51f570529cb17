//! Tests `--translation segment`: programs verify without a page fault, what is not possible is refused, and every huge page is
//! given back.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atoll_e2e::build::{helper, installed};
use atoll_e2e::workloads::checksum;
use atoll_e2e::{Atoll, Outcome, built, native, skip};
use atoll_memory::segment::{PageKind, Reservation};
use serde_json::Value;

/// Options without reserved pages, so that the tests run anywhere.
const ANYWHERE: &str = "--translation segment --segment-page thp --segment-size 448M";

/// Makes tests run one after the other: a segment's memory is all there at once, and the pools of pages are counted.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the page faults of every worker since its set-up: by the kernel's accounting, and by perf where it may count.
#[track_caller]
fn faults(run: &Outcome) -> Vec<(u64, Option<u64>)> {
    let summary = run.summary.as_ref().unwrap_or_else(|| panic!("no summary: {}", run.told()));
    let workers = summary["segment"]["workers"].as_array().unwrap_or_else(|| panic!("{}", run.told()));
    let number = |w: &Value, name: &str| w[name].as_u64();
    let total = |w: &Value| number(w, "minor").and_then(|n| Some(n + number(w, "major")?));
    workers
        .iter()
        .map(|w| (total(w).unwrap_or_else(|| panic!("not counted: {}", run.told())), number(w, "perf")))
        .collect()
}

#[track_caller]
fn without_faults(run: &Outcome, workers: usize) {
    let faults = faults(run);
    assert_eq!(faults.len(), workers, "{}", run.told());
    let none = |(minor_and_major, perf): &(u64, Option<u64>)| *minor_and_major == 0 && perf.unwrap_or(0) == 0;
    assert!(faults.iter().all(none), "{faults:?} {}", run.told());
}

#[test]
fn programs_verify_without_a_fault() {
    let _alone = alone();
    for (program, class) in
        [("randomaccess", "W"), ("graph500", "W"), ("cg", "S"), ("lu", "S"), ("stencil", "S")]
    {
        let native = native(built(program)).arg(class).run().exits(0);
        for workers in [1, 2, 4] {
            let run =
                Atoll::new(built(program)).arg(class).with(ANYWHERE).with(&format!("--workers {workers}"));
            let run = run.run().exits(0);
            assert!(run.text().contains("Verification: successful"), "{}", run.told());
            assert_eq!(checksum(&run.text()), checksum(&native.text()), "{}", run.told());
            without_faults(&run, workers);
        }
    }
}

/// Programs that check themselves, each about a trap of the design, must run as natively.
#[test]
fn semantics_are_as_natively() {
    let _alone = alone();
    let mut failed = Vec::new();
    for (source, arguments) in [
        ("threadprivate.c", ""),
        ("stacks.c", "6000"),
        ("nested.c", ""),
        ("tasks.c", ""),
        ("heap.c", ""),
        ("breaks.c", ""),
        ("settings.c", ""),
        ("small_globals.c", ""),
        ("files.c", "."),
        ("children.c", ""),
        ("file_maps.c", ""),
        ("objects.cc", ""),
        ("common.f90", ""),
    ] {
        if source.ends_with("f90") && !installed("gfortran") {
            continue;
        }
        let program = helper(source);
        let folder = || tempfile::tempdir().expect("a folder");
        let alone = native(&program).args(arguments).folder(folder().path()).run().exits(0);
        for workers in [1, 3] {
            let folder = folder();
            let run = Atoll::new(&program).args(arguments).folder(folder.path()).with(ANYWHERE);
            let run = run.with(&format!("--workers {workers}")).run();
            if run.status != Some(0) || run.stdout != alone.stdout || !run.left.is_empty() {
                failed.push(run.told());
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// The data of a library that is loaded late is filled, too.
#[test]
fn a_library_loaded_later_does_not_fault() {
    let _alone = alone();
    let library = atoll_e2e::build::helper_with("library.c", &["-shared", "-fPIC"]);
    let arguments = format!("{} early", library.display());
    let alone = native(helper("loading.c")).args(&arguments).run().exits(0);
    let run = Atoll::new(helper("loading.c")).args(&arguments).with(ANYWHERE).with("--workers 2").run();
    let run = run.like(&alone);
    assert!(faults(&run).iter().all(|(n, _)| *n < 256), "{:?} {}", faults(&run), run.told());
}

#[test]
fn a_fall_back_is_said_and_refused_when_strict() {
    let _alone = alone();
    if PageKind::Huge1G.free() > 0 {
        skip!("pages of 1G are reserved here");
    }
    let flags = "--translation segment --segment-size 448M --workers 2";
    let run = Atoll::new(built("randomaccess")).arg("S").with(flags).run().exits(0);
    let lines: Vec<&str> =
        run.stderr.lines().filter(|line| line.contains("the segment is made of")).collect();
    assert_eq!(lines.len(), 1, "{}", run.told());
    assert!(lines[0].contains("1G") && lines[0].contains("atoll doctor"), "{}", run.told());
    let run = Atoll::new(built("randomaccess")).arg("S").with(flags).with("--strict").run().exits(70);
    assert!(run.stderr.contains("--strict") && run.stderr.contains("0 are free"), "{}", run.told());
    assert!(run.stdout.is_empty(), "{}", run.told());
    let run = Atoll::new(built("randomaccess")).arg("S").with(flags).with("--strict --segment-page 2M").run();
    assert!(PageKind::Huge2M.free() > 224 || run.status == Some(70), "{}", run.told());
}

#[test]
fn flags_about_pages_are_refused() {
    for flag in [
        "--near 64M",
        "--far lz4",
        "--far-limit 1G",
        "--policy lru",
        "--page 64K",
        "--page-tables shared",
        "--faults thread",
    ] {
        let run = Atoll::new(built("cg")).arg("S").with("--translation segment").with(flag).run().exits(2);
        let name = flag.split(' ').next().unwrap_or(flag);
        assert!(run.stderr.contains(name) && run.stderr.contains("segment"), "{}", run.told());
    }
    for flag in ["--segment-size 1G", "--strict"] {
        let run = Atoll::new(built("cg")).arg("S").with(flag).run().exits(2);
        assert!(run.stderr.contains("--translation segment"), "{}", run.told());
    }
}

/// Copies of pages on several nodes are kept the same by page faults, which a segment does not have.
#[test]
fn a_segment_on_several_nodes_is_refused() {
    for flag in ["--nodes 2", "--hosts nowhere.invalid,elsewhere.invalid"] {
        let run = Atoll::new(built("cg")).arg("S").with("--translation segment").with(flag).run().exits(2);
        let name = flag.split(' ').next().unwrap_or(flag);
        assert!(run.stderr.contains("is for one node") && run.stderr.contains(name), "{}", run.told());
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.told());
    }
    let one = Atoll::new(built("randomaccess")).arg("S").with(ANYWHERE).with("--nodes 1 --workers 2").run();
    assert!(one.exits(0).text().contains("Verification: successful"));
}

#[test]
fn sizes_that_cannot_be() {
    let _alone = alone();
    let with = |size: &str| {
        let flags = format!("--translation segment --segment-page thp --workers 2 --segment-size {size}");
        Atoll::new(built("randomaccess")).arg("S").with(&flags).run().exits(70)
    };
    let none = "--translation segment --segment-size 0";
    Atoll::new(built("randomaccess")).arg("S").with(none).run().exits(2);
    for size in ["1", "4K", "64M", "130M"] {
        let run = with(size);
        assert!(run.stderr.contains("too small"), "{}", run.told());
    }
    for size in ["1T", "7T", "1000000T"] {
        let run = with(size);
        assert!(run.stderr.contains("no segment"), "{}", run.told());
    }
}

/// The program's allocation fails, and the user is told why.
#[test]
fn a_full_segment_is_no_memory() {
    let _alone = alone();
    let run = Atoll::new(built("randomaccess")).arg("B").with(ANYWHERE).with("--workers 2").run().exits(1);
    assert!(run.stderr.contains("no memory for 2^26 words"), "{}", run.told());
    assert!(run.stderr.contains("--segment-size"), "{}", run.told());
}

/// Reserves huge pages; returns `None` without root, or where the kernel has no memory for them.
fn reserved(kind: PageKind, pages: u64) -> Option<Reservation> {
    match Reservation::take(kind, pages) {
        Ok(reservation) => Some(reservation),
        Err(error) => {
            atoll_skips::whole(format_args!("{error}"));
            None
        }
    }
}

const ON_2M: &str = "--translation segment --segment-page 2M --segment-size 448M --strict --workers 2";

#[test]
fn reserved_pages_are_used_and_given_back() {
    let _alone = alone();
    let Some(_pages) = reserved(PageKind::Huge2M, 224) else { return };
    let free = PageKind::Huge2M.free();
    for program in ["randomaccess", "graph500"] {
        let run = Atoll::new(built(program)).arg("W").with(ON_2M).run().exits(0);
        assert!(run.text().contains("Verification: successful"), "{}", run.told());
        assert_eq!(run.stderr, "", "{}", run.told());
        without_faults(&run, 2);
        let segment = &run.summary.as_ref().expect("there is one")["segment"];
        assert_eq!(
            (segment["pages"].as_str(), segment["bytes"].as_u64()),
            (Some("2M"), Some(448 << 20)),
            "{segment}"
        );
        assert_eq!(PageKind::Huge2M.free(), free, "{}", run.told());
    }
}

/// If a run is killed at any time, all pages go back to the pool, and the next run has them.
#[test]
fn reserved_pages_are_given_back_after_a_kill() {
    let _alone = alone();
    let Some(_pages) = reserved(PageKind::Huge2M, 224) else { return };
    let free = PageKind::Huge2M.free();
    let mut random = atoll_e2e::random::Random(11);
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGKILL, libc::SIGKILL, libc::SIGKILL] {
        let run =
            Atoll::new(built("randomaccess")).args("B --iterations 200 --log-words 25").with(ON_2M).start();
        std::thread::sleep(Duration::from_millis(random.below(900)));
        run.signal(signal);
        let run = run.end().dies_by(signal);
        // The kernel frees the pages of a run's last process only after that process is gone.
        for _ in 0..200 {
            if PageKind::Huge2M.free() == free {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(PageKind::Huge2M.free(), free, "{}", run.told());
    }
    let run = Atoll::new(built("randomaccess")).arg("S").with(ON_2M).run().exits(0);
    without_faults(&run, 2);
}

/// After the start of a short program a CPU still had read-only translations of pages that filling had made writable again.
#[test]
fn a_write_at_the_end_faulted_though_its_page_was_there() {
    let _alone = alone();
    for _ in 0..5 {
        let run =
            Atoll::new(built("randomaccess")).arg("S").with(ANYWHERE).with("--workers 2").run().exits(0);
        without_faults(&run, 2);
    }
}

/// The program itself or a worker is killed from outside, while pages are in use.
#[test]
fn reserved_pages_are_given_back_when_a_worker_dies() {
    let _alone = alone();
    let Some(_pages) = reserved(PageKind::Huge2M, 224) else { return };
    let free = PageKind::Huge2M.free();
    for nth in [0, 1] {
        let run =
            Atoll::new(built("randomaccess")).args("B --iterations 200 --log-words 25").with(ON_2M).limit(30);
        let run = run.start();
        let mut others = Vec::new();
        for _ in 0..1000 {
            others = run.others();
            if others.len() >= 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(others.len() >= 2, "no worker came: {}", run.end().told());
        // SAFETY: no pointers; a process of this run.
        unsafe { libc::kill(others[nth], libc::SIGKILL) };
        let run = run.end().clean();
        assert_ne!(run.status, Some(0), "{}", run.told());
        assert_eq!(PageKind::Huge2M.free(), free, "{}", run.told());
    }
}

/// What is mapped in the segment stays as it was written while blocks come and go.
#[test]
fn pages_of_1g_where_the_kernel_has_them() {
    let _alone = alone();
    let Some(_pages) = reserved(PageKind::Huge1G, 1) else { return };
    let flags = "--translation segment --segment-size 1G --strict --workers 2";
    let run = Atoll::new(built("randomaccess")).arg("A").with(flags).run().exits(0);
    assert!(run.text().contains("Verification: successful"), "{}", run.told());
    without_faults(&run, 2);
    let segment = &run.summary.as_ref().expect("there is one")["segment"];
    assert_eq!(segment["pages"], "1G", "{segment}");
    assert_eq!(segment["locked"], true, "{segment}");
    // The kernel tells root physical addresses.
    assert_eq!(segment["physical_pieces"], 1, "{segment}");
}
