//! Tests how runs begin and end: programs that cannot be run, programs that end in a region, signals, and what is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use atoll_e2e::build::{helper, helper_with};
use atoll_e2e::{Atoll, built, native, skip};

const CONTROL_C: u8 = 3;

const WAYS: [&str; 3] = [
    "--workers 2 --page-tables private",
    "--workers 3 --page-tables shared",
    "--workers 2 --faults thread --page-tables private",
];

#[test]
fn near_smaller_than_what_is_pinned() {
    for way in WAYS {
        for near in ["16K", "100K"] {
            let run = Atoll::new(built("cg")).arg("S").with("--near").with(near).with(way).run().exits(75);
            assert!(run.stderr.contains("atoll: ") && run.stderr.contains("near"), "{}", run.told());
        }
    }
}

#[test]
fn programs_that_cannot_be_run() {
    Atoll::new("no-such-program").run().exits(127).says("no-such-program");
    Atoll::new("/nowhere/at/all").run().exits(127).says("/nowhere/at/all");
    Atoll::new("/etc/passwd").run().exits(126).says("/etc/passwd");
    Atoll::new("/tmp").run().exits(126).says("/tmp");
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("text");
    fs::write(&text, "no program\n").expect("written");
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).expect("executable");
    let run = Atoll::new(&text).run().clean();
    assert!(matches!(run.status, Some(126 | 127)), "{}", run.told());
    Atoll::new(helper_with("plain.c", &["-static", "-fno-openmp"])).run().exits(70).says("static");
}

/// The sanitizer said that its runtime has to come first, or that the address space is not as it expects.
#[test]
fn programs_with_a_sanitizer_were_started_and_failed() {
    let program = helper_with("plain.c", &["-fsanitize=address"]);
    Atoll::new(program).run().exits(70).says("is built with -fsanitize=address");
}

#[test]
fn a_program_of_32_bits() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("a.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("written");
    let out = folder.path().join("a");
    let built = std::process::Command::new("gcc").arg("-m32").arg(&source).arg("-o").arg(&out).output();
    if !built.is_ok_and(|b| b.status.success()) {
        // A file with the head of one says as much.
        let mut head = fs::read("/proc/self/exe").expect("readable");
        head.truncate(4096);
        head[4] = 1; // ELFCLASS32
        head[18] = 3; // EM_386
        fs::write(&out, head).expect("written");
        fs::set_permissions(&out, fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let run = Atoll::new(&out).run().exits(70);
    assert!(run.stderr.contains("32-bit") || run.stderr.contains("32 bit"), "{}", run.told());
}

#[test]
fn a_setuid_program() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        skip!("a program of another user is made by root only");
    }
    let folder = tempfile::tempdir_in(atoll_e2e::build::target()).expect("a folder");
    let program = folder.path().join("setuid");
    fs::copy(helper("small_globals.c"), &program).expect("copied");
    std::os::unix::fs::chown(&program, Some(65534), Some(65534)).expect("given away");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).expect("setuid");
    Atoll::new(&program).run().exits(70).says("set");
}

#[test]
fn a_program_without_openmp() {
    let program = helper_with("plain.c", &["-fno-openmp"]);
    let alone = native(&program).args("word 5").run();
    for way in WAYS {
        Atoll::new(&program)
            .args("word 5")
            .with("--near 12M")
            .with(way)
            .run()
            .like(&alone)
            .exits(5)
            .says("is not linked with OpenMP itself: what it allocates from here on is paged");
    }
    Atoll::new(&program).args("word 5").run().like(&alone).exits(5).says("nothing was managed");
}

/// Tests the ways to end in a region: they end as natively.
fn endings(who: &str, way: &str) {
    let program = helper("endings.c");
    let mut failed = Vec::new();
    let all = [
        "return",
        "exit",
        "_exit",
        "_Exit",
        "quick_exit",
        "abort",
        "segv",
        "fpe",
        "raise",
        "kill",
        "execv",
        "execlp",
        "assert",
    ];
    for how in all {
        let alone = native(&program).arg(how).arg(who).run().clean();
        let run = Atoll::new(&program).arg(how).arg(who).with("--near 12M").with(way).limit(20).run();
        let ends = (run.status, run.signal) == (alone.status, alone.signal);
        if !ends || run.stdout != alone.stdout || !run.left.is_empty() {
            failed.push(format!(
                "{how} by the {who}: natively status {:?} signal {:?} output {:?}, left {:?}, {}",
                alone.status,
                alone.signal,
                alone.text(),
                run.left,
                run.told()
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn ends_in_a_region_by_the_master() {
    for way in WAYS {
        endings("master", way);
    }
}

#[test]
fn ends_in_a_region_by_a_worker() {
    for way in WAYS {
        endings("worker", way);
    }
}

/// A worker is killed from outside in a region: the run ends with the documented status and says which worker.
/// A worker that a thread started while the program ended was waited for, and nobody ended it.
#[test]
fn an_exit_while_threads_start_workers() {
    for round in 0..25 {
        let run = Atoll::new(helper("exit_among_threads.c")).with("--workers 2").limit(20).run().clean();
        assert_eq!(run.status, Some(3), "round {round}: {}", run.told());
    }
}

/// A signal that came while the program ended ran a handler that waited for ever for pages of nodes that had ended before.
#[test]
fn a_signal_while_the_nodes_end() {
    for microseconds in ["100", "500", "1000", "2000", "4000"] {
        let program = Atoll::new(helper("tick_at_the_end.c")).arg(microseconds);
        let way = "--nodes 3 --workers 6 --home-alone off --consistency sc";
        let run = program.with(way).limit(30).run().clean();
        assert_eq!((run.status, run.text().as_str()), (Some(0), "all well\n"), "{}", run.told());
    }
}

/// The summary of a program that a worker ended by `exit` had a footprint of nothing where nothing had been evicted.
#[test]
fn figures_of_a_program_that_a_worker_ends() {
    let run = Atoll::new(helper("endings.c")).args("exit worker").with("--workers 2").run();
    assert_eq!(run.status, Some(7), "{}", run.told());
    let summary = run.summary.unwrap_or_default();
    for what in ["footprint_peak_bytes", "pinned_bytes", "table_bytes"] {
        assert!(summary["memory"][what].as_u64() > Some(0), "{what}: {summary}");
    }
}

/// A thread of an inner team that ended left the run waiting for ever.
#[test]
fn ends_in_a_region_within_a_region() {
    for way in WAYS {
        endings("inner", way);
    }
}

#[test]
fn a_worker_killed_in_a_region() {
    let program = helper("signals.c");
    for _ in 0..3 {
        let mut run = Atoll::new(&program)
            .args("default 20")
            .with("--workers 3 --near 12M --page-tables private")
            .limit(30)
            .start();
        assert!(run.wait_for("ready"), "{}", run.end().told());
        let others = run.others();
        let master = *others.iter().min().expect("there are processes");
        let worker = *others.iter().rev().find(|&&pid| pid != master).expect("there are workers");
        // SAFETY: no pointers; the process is this run's own.
        unsafe { libc::kill(worker, libc::SIGKILL) };
        let run = run.end().exits(76).says("worker");
        assert!(run.seconds < 15.0, "{}", run.told());
    }
}

/// The program's own process is killed from outside: the run ends as natively, and nothing is left.
#[test]
fn the_program_killed_in_a_region() {
    let program = helper("signals.c");
    for way in WAYS {
        let mut run = Atoll::new(&program).args("default 20").with("--near 12M").with(way).limit(30).start();
        assert!(run.wait_for("ready"), "{}", run.end().told());
        let master = *run.others().iter().min().expect("there are processes");
        // SAFETY: no pointers; the process is this run's own.
        unsafe { libc::kill(master, libc::SIGKILL) };
        run.end().dies_by(libc::SIGKILL);
    }
}

/// The launcher is killed from outside: nothing outlives it.
#[test]
fn atoll_itself_killed() {
    let program = helper("signals.c");
    for way in WAYS {
        let mut run = Atoll::new(&program).args("default 20").with("--near 12M").with(way).limit(30).start();
        assert!(run.wait_for("ready"), "{}", run.end().told());
        run.signal(libc::SIGKILL);
        run.end().dies_by(libc::SIGKILL);
    }
}

#[test]
fn ctrl_c_at_a_terminal() {
    let program = helper("signals.c");
    for way in WAYS {
        let mut run =
            Atoll::new(&program).args("default 20").with("--near 12M").with(way).limit(30).terminal().start();
        assert!(run.wait_for("ready"), "{}", run.end().told());
        run.press(CONTROL_C);
        run.end().dies_by(libc::SIGINT);
    }
}

#[test]
fn ctrl_c() {
    let program = helper("signals.c");
    for way in WAYS {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP] {
            let mut run =
                Atoll::new(&program).args("default 20").with("--near 12M").with(way).limit(30).start();
            assert!(run.wait_for("ready"), "{}", run.end().told());
            std::thread::sleep(Duration::from_millis(50));
            run.signal_group(signal);
            let run = run.end().dies_by(signal);
            assert!(run.seconds < 15.0, "{}", run.told());
        }
    }
}

#[test]
fn a_signal_for_atoll_alone_reaches_the_program() {
    let program = helper("signals.c");
    for way in WAYS {
        for (how, signal) in [("default", libc::SIGTERM), ("handler", libc::SIGUSR1)] {
            let mut run =
                Atoll::new(&program).arg(how).arg("20").with("--near 12M").with(way).limit(30).start();
            assert!(run.wait_for("ready"), "{}", run.end().told());
            run.signal(signal);
            if how == "default" {
                run.end().dies_by(signal);
            } else {
                let run = run.end().exits(0);
                assert!(run.text().contains("handled 1\n"), "{}", run.told());
            }
        }
    }
}

/// The launcher passed on signals that the program had already got with the whole group.
#[test]
fn a_signal_for_the_group_is_handled_once() {
    let program = helper("signals.c");
    for way in WAYS {
        for signal in [libc::SIGUSR1, libc::SIGTERM] {
            let run = Atoll::new(&program).args("handler 20").with("--near 12M").with(way).limit(30);
            let mut run = run.start();
            assert!(run.wait_for("ready"), "{}", run.end().told());
            run.signal_group(signal);
            let run = run.end().exits(0);
            assert!(run.text().contains("handled 1\n"), "{}", run.told());
        }
    }
}

#[test]
fn ctrl_c_with_a_handler_of_the_program() {
    let program = helper("signals.c");
    for way in WAYS {
        let mut run =
            Atoll::new(&program).args("handler 20").with("--near 12M").with(way).terminal().limit(30).start();
        assert!(run.wait_for("ready"), "{}", run.end().told());
        run.press(CONTROL_C);
        let run = run.end().exits(0);
        assert!(run.text().contains("handled 1\n"), "the handler runs once: {}", run.told());
        let mut run =
            Atoll::new(&program).args("ignore 2").with("--near 12M").with(way).terminal().limit(30).start();
        assert!(run.wait_for("ready"), "{}", run.end().told());
        run.press(CONTROL_C);
        let run = run.end().exits(0);
        assert!(run.text().contains("handled 0\n"), "{}", run.told());
    }
}

/// The program is stopped by Ctrl-Z and continued by fg.
#[test]
fn stopped_and_continued() {
    let program = built("cg");
    let alone = native(&program).arg("W").run();
    let run = Atoll::new(&program).arg("W").with("--near 8M --workers 2").start();
    std::thread::sleep(Duration::from_millis(300));
    run.signal_group(libc::SIGTSTP);
    std::thread::sleep(Duration::from_millis(500));
    run.signal_group(libc::SIGCONT);
    let run = run.end().exits(0);
    let line = |text: String| atoll_e2e::workloads::checksum(&text);
    assert_eq!(line(run.text()), line(alone.text()));
}

#[test]
fn two_runs_at_once() {
    let program = built("cg");
    let alone = native(&program).arg("W").run();
    let start = |page: &str| {
        Atoll::new(&program).arg("W").with(&format!("--near 8M --workers 2 --page {page}")).start()
    };
    let runs = [start("4K"), start("64K"), start("4K")];
    let line = |text: String| atoll_e2e::workloads::checksum(&text);
    for run in runs {
        let run = run.end().exits(0);
        assert_eq!(line(run.text()), line(alone.text()), "{}", run.told());
    }
}

/// The kernel looked at every page of terabytes of addresses to write a core file.
#[test]
fn a_core_file_is_soon_written() {
    let program = format!("{} abort master", helper("endings.c").display());
    let plain = helper_with("own_faults.c", &["-fno-openmp", "-pthread"]);
    let plain = format!("{} ends", plain.display());
    let ways =
        [(&program, "--near 64M", 6), (&program, "--nodes 2 --workers 2", 6), (&plain, "--near 24M", 11)];
    for (program, way, signal) in ways {
        let folder = tempfile::tempdir().expect("a folder");
        let line = format!(
            "ulimit -c unlimited && exec timeout -s KILL 30 {} run {way} -- {program}",
            atoll_e2e::build::atoll().display()
        );
        let run = std::process::Command::new("sh").arg("-c").arg(&line).current_dir(folder.path()).output();
        let run = run.expect("sh is there");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(said.contains(&format!("signal {signal}")), "{way}: {} {said}", run.status);
    }
}
