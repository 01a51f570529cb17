//! Tests programs without OpenMP under a near limit: they are managed once they need memory, with shared page tables, and
//! processes that they fork go on by themselves.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use atoll_e2e::build::{helper_with, installed};
use atoll_e2e::{Atoll, Outcome, native, skip};

const TAKEN: &str =
    "is not linked with OpenMP itself: what it allocates from here on is paged, with shared page tables";

fn plain(source: &str) -> PathBuf {
    helper_with(source, &["-fno-openmp", "-pthread"])
}

/// Far memory that copies pages, and that which lets them stay where they lie.
const FARS: [&str; 2] = ["--far lz4", "--far auto"];

/// Checks that the program runs as natively under a limit that it does not fit into.
fn as_natively(program: &Atoll, atoll: &Atoll, near: &str, far: &str) -> Outcome {
    let run = atoll.clone().with(&format!("--near {near} {far}")).run().exits(0).like(&program.run());
    assert_eq!(run.stderr.matches(TAKEN).count(), 1, "{}", run.told());
    assert!(run.figure("total/major_faults") > 0, "nothing came back from far memory: {}", run.told());
    let near = run.figure("settings/near_bytes");
    assert!(run.figure("memory/resident_peak_bytes") <= near, "{}", run.told());
    run
}

fn helper_as_natively(source: &str, near: &str) {
    for far in FARS {
        as_natively(&native(plain(source)), &Atoll::new(plain(source)), near, far);
    }
}

/// All blocks that threads asked for while another thread had the program managed were pinned.
#[test]
fn blocks_of_threads_that_came_meanwhile_were_pinned() {
    helper_as_natively("plain_threads.cc", "40M");
}

/// Small mappings were never paged: a program that had all of its data in them, as Ruby has, ended for want of near memory.
#[test]
fn small_mappings_took_all_of_near_memory() {
    helper_as_natively("small_mappings.c", "24M");
}

/// The stack of a thread grew beyond the limit, as nothing faulted that would have made near memory give way to it.
#[test]
fn a_growing_stack_came_on_top_of_near_memory() {
    for options in [["-fno-openmp", "-pthread"], ["-Wl,--no-as-needed", "-pthread"]] {
        let program = helper_with("growing_stack.c", &options);
        let run =
            Atoll::new(&program).with("--near 80M --workers 1").run().exits(0).like(&native(&program).run());
        // 64M are near, and the stack takes 40M.
        let evicted = run.figure("total/evictions_dirty") + run.figure("total/evictions_clean");
        assert!(evicted > 20 << 8, "{}", run.told());
    }
}

/// `mprotect` of paged memory did nothing: a collector that protects pages never learned of a write.
#[test]
fn protections_were_ignored() {
    helper_as_natively("protections.c", "24M");
}

/// Memory that the program had protected once stayed near for ever, also when it could be written again: a program that has all of its memory protected, as
/// for checkpoints, ended in mid-run.
#[test]
fn memory_that_was_protected_once_was_near_for_ever() {
    let program = native(plain("dirty_tracking.c"));
    for (way, near) in
        [("", "26M"), ("--page 64K", "28M"), ("--policy lru", "26M"), ("--faults thread", "26M")]
    {
        for far in FARS {
            as_natively(&program, &Atoll::new(plain("dirty_tracking.c")).with(way), near, far);
        }
    }
}

/// Addresses that a managed program first only reserved (`PROT_NONE`) and then opened part by part stayed near. System calls were handed copies of what the
/// program forbids itself, and moved and forked memory lost its protection, or could not be copied.
#[test]
fn memory_that_was_reserved_first_was_near_for_ever() {
    let program = native(plain("lazy_arrays.c"));
    for (way, near) in [("", "34M"), ("--page 64K", "34M"), ("--policy fifo", "34M")] {
        for far in FARS {
            as_natively(&program, &Atoll::new(plain("lazy_arrays.c")).with(way), near, far);
        }
    }
}

/// A handler of SIGSEGV was interrupted by signals that its action blocks: a collector that stops threads waited for a lock that a stopped thread held.
#[test]
fn a_handler_of_faults_was_interrupted_by_signals_that_it_blocks() {
    helper_as_natively("handler_masks.c", "24M");
    let alone = native(helper_with("handler_masks.c", &[])).run();
    for way in ["--page-tables private", "--page-tables shared"] {
        Atoll::new(helper_with("handler_masks.c", &[]))
            .with("--near 24M")
            .with(way)
            .run()
            .exits(0)
            .like(&alone);
    }
}

/// The kernel notes which pages are written in page tables, from which they go when a page leaves: a collector that relied on that would have missed writes.
#[test]
fn the_kernels_notes_of_written_pages_were_lost() {
    for program in [plain("notes_of_writes.c"), helper_with("notes_of_writes.c", &["-Wl,--no-as-needed"])] {
        let run = Atoll::new(program).with("--near 24M").run().exits(0);
        assert_eq!(run.text(), "1 1, byte 1\n", "{}", run.told());
    }
}

/// A collector with write barriers ended in mid-run where its heap did not fit, and with OpenMP hung, or gave wrong answers.
#[test]
fn a_collector_with_write_barriers_ended() {
    if !std::path::Path::new("/usr/include/gc.h").exists() {
        skip!("libgc is not installed: apt-get install libgc-dev");
    }
    let program = helper_with("collector.c", &["-fno-openmp", "-pthread", "-Wl,--no-as-needed", "-lgc"]);
    as_natively(&native(&program), &Atoll::new(&program), "150M", "--far auto");
    let program = helper_with("collector.c", &["-Wl,--no-as-needed", "-lgc"]);
    let alone = native(&program).args("8 2").env("OMP_NUM_THREADS", "2").run().exits(0);
    for _ in 0..4 {
        let run = Atoll::new(&program).args("8 2").with("--near 60M --workers 2 --page-tables shared").run();
        assert_eq!(run.exits(0).text(), alone.text());
    }
}

/// `MAP_FIXED_NOREPLACE` failed where the program had unmapped memory, and blocks came to lie where it had mapped with `MAP_FIXED`.
#[test]
fn memory_could_not_be_mapped_where_it_was_unmapped() {
    helper_as_natively("mapped_where_unmapped.c", "24M");
}

/// What the program had protected lost its content when mappings around it were dropped, a run with larger pages ended, and new blocks held
/// what a freed one had left in protected pages.
#[test]
fn protected_memory_between_paged_memory_was_lost() {
    let program = native(plain("protected_between.c"));
    for (way, near) in [("", "18M"), ("--page 64K", "28M"), ("--policy lru", "18M"), ("--policy fifo", "18M")]
    {
        for far in FARS {
            as_natively(&program, &Atoll::new(plain("protected_between.c")).with(way), near, far);
        }
    }
}

/// An access beyond the end of a file that lies over memory of the program's ended the run, and with OpenMP no worker could be started.
#[test]
fn an_access_beyond_a_files_end_was_taken_for_a_fault_of_atolls() {
    helper_as_natively("beyond_file.c", "24M");
    let alone = native(helper_with("beyond_file.c", &[])).run();
    for way in ["--workers 2 --page-tables private", "--workers 2 --page-tables shared"] {
        let run = Atoll::new(helper_with("beyond_file.c", &[])).with("--near 24M").with(way).run();
        run.exits(0).like(&alone);
    }
}

/// What the kernel maps by itself where threads share a page table, it maps without telling the pager, which still has to learn of
/// every write.
#[test]
fn no_write_through_mappings_of_the_kernels_own_is_lost() {
    let program = native(plain("table_of_threads.c"));
    for way in ["", "--page 64K", "--faults thread", "--policy fifo", "--policy lru"] {
        for far in FARS {
            let run = as_natively(&program, &Atoll::new(plain("table_of_threads.c")).with(way), "24M", far);
            let is_told = way == "--policy lru";
            assert_eq!(run.figure("total/minor_faults") > 0, is_told, "{}", run.told());
        }
    }
}

/// Where far pages stay where they lie, an access to them raises SIGSEGV, which the program may have handlers for, block, and die of.
#[test]
fn a_programs_own_segmentation_faults_are_its_own() {
    let program = native(plain("own_faults.c"));
    for far in FARS {
        as_natively(&program, &Atoll::new(plain("own_faults.c")), "24M", far);
        let ends = Atoll::new(plain("own_faults.c")).with("--near 24M").with(far).arg("ends");
        ends.run().dies_by(libc::SIGSEGV).like(&program.clone().arg("ends").run());
    }
}

/// A forked process shared the arena with its parent, whose copy counted against the near limit.
#[test]
fn forked_processes_shared_paged_memory() {
    helper_as_natively("plain_forks.c", "32M");
}

/// A child that read its parent's memory by `process_vm_readv` got EFAULT where that was far.
#[test]
fn a_child_could_not_copy_from_its_parent() {
    helper_as_natively("copies_from_children.c", "40M");
}

/// If a block of libc's is a mapping of its own, more was copied than it holds. The program is managed once it has an eighth of near memory, which
/// is after it has made all of its blocks.
#[test]
fn a_block_of_libcs_was_read_beyond_its_end() {
    helper_as_natively("grown_blocks.c", "64M");
}

/// Threads that existed before faulted on alternate stacks that are too small, or with SIGBUS blocked.
#[test]
fn threads_from_before_could_not_fault() {
    helper_as_natively("threads_before.c", "20M");
}

/// Programs in front of the program, or that only reserve addresses, are left as they are.
#[test]
fn nobody_else_is_taken_for_the_program() {
    let program = plain("plain_threads.cc").display().to_string();
    let script = format!("mkdir -p /tmp; true; {program} | cat");
    let run = Atoll::new("sh").arg("-c").arg(&script).with("--near 40M").run().exits(0);
    assert!(run.stderr.contains("plain_threads_c") && run.stderr.contains(TAKEN), "{}", run.told());
    let reserves = plain("reserves.c");
    let run = Atoll::new(&reserves).with("--near 16M").no_summary().run().like(&native(&reserves).run());
    let run = run.says("reserves addresses, 1048576 MiB at once, and hands memory out itself");
    assert!(!run.stderr.contains(TAKEN), "{}", run.told());
    Atoll::new(&reserves).with("--near 16M --require").no_summary().run().exits(70).says("so it is ended");
    // Without a limit nothing changes, and nothing is printed.
    let run = Atoll::new(&program).no_summary().run().like(&native(&program).run());
    assert!(run.stderr.is_empty(), "{}", run.told());
}

/// The daemon that an MPI program starts was managed, and the program itself was left alone.
#[test]
fn a_helper_was_taken_for_the_program_that_started_it() {
    helper_as_natively("helper_first.c", "80M");
}

/// An OpenMP runtime is loaded after the program was managed: its regions' workers are threads, also in processes that the
/// program forks.
#[test]
fn a_runtime_that_came_late_left_the_program_unmanaged() {
    let program = helper_with("late_runtime.c", &["-fno-openmp", "-pthread"]);
    let library = helper_with("late_sum.c", &["-shared", "-fPIC"]);
    let run = |run: Atoll| run.arg(&library);
    let told =
        as_natively(&run(native(&program)), &run(Atoll::new(&program).with("--workers 3")), "24M", FARS[1]);
    assert_eq!(
        told.summary.as_ref().and_then(|s| s["workers"].as_array()).map_or(0, Vec::len),
        3,
        "{}",
        told.told()
    );
}

/// A program that closed all descriptors lost atoll's and ended. Contexts, several messages at once and calls by number failed where they
/// lay in far memory. A block that a key's destructor asked for was looked for in a heap that was freed.
#[test]
fn everything_closed_and_handed_to_the_kernel() {
    helper_as_natively("everything_closed.c", "40M");
}

/// Asynchronous transfers, semaphores, messages and pages for pipes failed with EFAULT where they lay in far memory; eight thousand small
/// vectors were as many writes to the disk; `mlockall` filled all of the machine's memory.
#[test]
fn far_memory_in_calls_of_libcs_own_code() {
    helper_as_natively("handed_to_libcs_own.c", "40M");
}

/// A program that asked for many blocks before it touched one was not managed, and ended when it asked for more: Gambit's collector.
#[test]
fn blocks_that_were_asked_for_ahead_stayed_near() {
    helper_as_natively("asked_ahead.c", "60M");
}

/// At the end of the process atoll's own small blocks were taken from paged memory, and freed as libc's: "free(): invalid pointer" in JAX.
#[test]
fn a_librarys_destructor_unmapped_memory() {
    let program = plain("blocks_of_ended_threads.c");
    let library = helper_with("unmaps_at_exit.c", &["-shared", "-fPIC"]);
    let natively = native(&program).arg(&library).run().exits(0);
    Atoll::new(&program).arg(&library).with("--near 40M").run().exits(0).like(&natively);
}

/// Threads had all signals blocked, so that Mono's collector waited for ever for them to stop, and no guard, at which Rust's threads ended the
/// program.
#[test]
fn threads_had_all_signals_blocked_and_no_guard() {
    helper_as_natively("threads_made_later.c", "40M");
}

/// Pages of stacks that a program brings stay near, and were the next victims again and again: threads searched for room for minutes.
#[test]
fn stacks_of_the_programs_own_were_victims_for_ever() {
    helper_as_natively("stacks_in_blocks.c", "50M");
}

/// Memory could not be moved onto addresses that are only reserved, what is left behind by a move kept its content, and content of files that
/// are mapped over memory came back as zeros when it was given up.
#[test]
fn memory_was_not_moved_onto_a_reservation() {
    helper_as_natively("mappings_moved.c", "30M");
}

/// A thread that is cancelled at any time (`PTHREAD_CANCEL_ASYNCHRONOUS`) ended in the midst of a fault, and the program by SIGSEGV.
#[test]
fn threads_were_cancelled_within_a_fault() {
    helper_as_natively("cancelled_at_any_time.c", "40M");
}

/// Threads that were cancelled soon after they were made ended before they began, and others in the midst of a fault, which closed a file.
#[test]
fn threads_were_cancelled_at_calls_of_the_runtime() {
    for _ in 0..4 {
        helper_as_natively("cancelled_at_calls.c", "40M");
    }
}

/// A thread that was cancelled already ended within the call for memory with which the program came to be managed, and within `fork`.
#[test]
fn a_cancelled_thread_ended_where_it_took_memory() {
    helper_as_natively("cancelled_before.c", "40M");
}

/// Each thread on a stack that the program brings waited four seconds for room where near memory could not keep the stack.
#[test]
fn threads_waited_for_room_for_stacks_that_do_not_fit() {
    let begun = Instant::now();
    helper_as_natively("stacks_brought.c", "8M");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// The first blocks of atoll's own moved the program break, which a program with a `malloc` of its own, such as Maxima, takes for its own.
#[test]
fn the_break_was_moved_before_the_program_began() {
    let program = plain("own_break.c");
    let run = Atoll::new(program.clone()).with("--near 20M").run().exits(0);
    run.like(&native(program).run());
}

/// Of the programs without OpenMP that a script starts, the first was managed and the others ran without the limit.
#[test]
fn later_programs_without_openmp_had_no_limit() {
    let program = plain("plain_threads.cc").display().to_string();
    let script = format!("{program}; {program} | cat; {program} > /dev/null & {program}; wait");
    let run = Atoll::new("sh").arg("-c").arg(&script).with("--near 40M --require").run().exits(0);
    let run = run.like(&native("sh").arg("-c").arg(&script).run());
    assert_eq!(run.stderr.matches(TAKEN).count(), 1, "{}", run.told());
    assert_eq!(run.figure("later_programs"), 3, "{}", run.told());
    // A later program has no launcher, which would see to its exit status.
    let forks = plain("plain_forks.c").display().to_string();
    let script = format!("{forks}; {forks}; echo status $?");
    let run = Atoll::new("sh").arg("-c").arg(&script).with("--near 400K").no_summary().run().exits(75);
    assert!(run.text().ends_with("status 75\n"), "{}", run.told());
    assert_eq!(run.stderr.matches("is less than what must stay near").count(), 2, "{}", run.told());
}

/// A limit below the size of small memory was exceeded without a line.
#[test]
fn a_limit_that_is_too_small_is_said() {
    let run = Atoll::new(plain("plain_forks.c")).with("--near 400K").no_summary().run().exits(75);
    run.says("is less than what must stay near");
}

/// Returns the command of a Python that has NumPy.
fn numpy() -> Option<&'static str> {
    ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        Command::new(python).args(["-c", "import numpy"]).output().is_ok_and(|output| output.status.success())
    })
}

/// Python was not managed; its `fork` failed where it was.
#[test]
fn numpy_and_processes_of_pythons_were_not_managed() {
    const TEXT: &str = "
import multiprocessing, os, subprocess, threading
import numpy
a = numpy.arange(6_000_000, dtype=numpy.float64)
b = (a * 3).reshape(2000, 3000)
c = numpy.random.default_rng(1).random((600, 600))
def part(i):
    s = float(b[i::4].sum())
    b[:] = 0
    return s
print(float((c @ c).sum()), float(numpy.sort(b.ravel())[12345]))
print(subprocess.run(['echo', 'spawned'], capture_output=True).stdout)
print(subprocess.run(['echo', 'forked'], preexec_fn=os.getpid, capture_output=True).stdout)
with multiprocessing.get_context('fork').Pool(2) as pool:
    print(pool.map(part, range(4)))
sums = []
threads = [threading.Thread(target=lambda i=i: sums.append(float(numpy.sort(b[i::4], axis=None).sum()))) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(sorted(sums), float(b.sum()), sum(map(len, [str(i) for i in range(200_000)])))
";
    let Some(python) = numpy() else { skip!("no Python with NumPy here") };
    let run = |run: Atoll| run.arg("-c").arg(TEXT).env("PYTHONHASHSEED", "0");
    as_natively(&run(native(python)), &run(Atoll::new(python)), "64M", FARS[1]);
}

/// R's libraries bring OpenMP: its `fork` failed.
#[test]
fn forks_of_interpreters_whose_libraries_bring_openmp_failed() {
    const TEXT: &str = "set.seed(1); l <- lapply(1:12, function(i) rnorm(500000)); x <- sort(unlist(l)); cat(x[7], sum(x), '\\n');
print(system('echo spawned', intern = TRUE)); print(unlist(parallel::mclapply(1:4, function(i) sum(l[[i]]), mc.cores = 2)))";
    if !installed("Rscript") {
        skip!("no R here");
    }
    let run = |run: Atoll| run.arg("-e").arg(TEXT);
    as_natively(&run(native("Rscript")), &run(Atoll::new("Rscript")), "110M", FARS[1]);
}

/// The fault handler's first use of a thread-local variable made the dynamic linker allocate, in the midst of an allocation.
#[test]
fn a_fault_after_libraries_were_loaded_entered_the_heap_again() {
    let library = helper_with("tls_library.c", &["-shared", "-fPIC"]);
    let folder = tempfile::tempdir().expect("a folder");
    let copies = (0..60).map(|number| {
        let copy = folder.path().join(format!("{number}.so"));
        std::fs::copy(&library, &copy).expect("a copy of the library");
        copy.display().to_string()
    });
    let copies = copies.collect::<Vec<_>>().join(" ");
    let program = helper_with("loading_under_faults.c", &["-fno-openmp", "-pthread"]);
    for _ in 0..3 {
        let run = Atoll::new(&program).args(&copies).with("--near 20M").run().exits(0);
        assert_eq!(run.text(), "wrong 0\n");
    }
}
