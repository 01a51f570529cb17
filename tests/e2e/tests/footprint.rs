//! Tests that the footprint that is printed is enough: footprints and near limits count the same.

use std::process::Command;

use atoll_e2e::build::{atoll, compiled, helper};
use atoll_e2e::{Atoll, built};

const FOOTPRINT: &str = "memory/footprint_peak_bytes";

/// The footprint that was printed left out tables and pinned memory, which the limit counts: at "100%" of it a program that sweeps
/// its data evicted a third of its pages in each round.
#[test]
fn the_footprint_that_was_printed_was_too_small_a_limit() {
    let mut failed = Vec::new();
    for (program, arguments) in [("stencil", "W"), ("sweep", "A"), ("kmeans", "W")] {
        for way in [
            "--workers 2 --page-tables private",
            "--workers 2 --page 64K --page-tables private",
            "--workers 2 --policy lru --page-tables shared",
            "--workers 4 --page-tables private",
        ] {
            let run = |more: &str| {
                let options = format!("--far ram {way} {more}");
                Atoll::new(built(program)).args(arguments).with(&options).run().exits(0)
            };
            let alone = run("");
            let limited = run(&format!("--near {}", alone.figure(FOOTPRINT)));
            let gone = limited.figure("total/evictions_clean") + limited.figure("total/evictions_dirty");
            if gone > 0 {
                failed.push(format!("{gone} pages evicted: {}", limited.told()));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// A program that keeps its data in small blocks needs more room with a limit, as they are paged then. How much exactly differs from
/// run to run by which worker was first to a block's list, hence a 64th more.
#[test]
fn a_limit_as_large_as_the_footprint_of_small_blocks_was_too_small() {
    let program = helper("rows.c");
    for way in ["--workers 2", "--workers 2 --page 64K"] {
        let alone = Atoll::new(&program).with(way).run().exits(0);
        let footprint = alone.figure(FOOTPRINT);
        let limit = format!("{way} --far ram --near {}", footprint + footprint / 64);
        let limited = Atoll::new(&program).with(&limit).run().exits(0);
        assert_eq!(limited.figure("total/evictions_dirty"), 0, "{}", limited.told());
    }
}

/// A run under half a limit prints the same footprint as one without.
#[test]
fn the_footprint_is_the_same_under_any_limit() {
    for way in ["--page 4K", "--page 64K", "--page 4K --policy fifo --far lz4"] {
        let run = |more: &str| {
            Atoll::new(built("hotspot")).arg("W").with(&format!("--workers 2 {way} {more}")).run().exits(0)
        };
        let alone = run("").figure(FOOTPRINT);
        let limited = run(&format!("--near {}", alone * 6 / 10));
        let under = limited.figure(FOOTPRINT);
        assert!(limited.figure("total/evictions_dirty") > 0, "{}", limited.told());
        assert!(alone.abs_diff(under) < alone / 32, "{alone} and {under}: {}", limited.told());
    }
}

/// A large array of the program's had a word of pinned memory for each of its pages, touched or not.
#[test]
fn an_array_that_is_not_touched_pinned_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "char large[1L << 30]; int main(int n, char **v) {\n#pragma omp parallel\n large[n] = 1; return large[n] - 1; }\n";
    let program = compiled(folder.path(), "large", text, &["-fopenmp"]);
    let run = Atoll::new(&program).with("--workers 2 --near 8M").run().exits(0);
    assert!(run.figure("memory/pinned_peak_bytes") < 2 << 20, "{}", run.told());
}

/// Arrays of more than 32 MiB that a program allocates and frees in every step were given back each time, and their pages paid for anew, though near
/// memory had room for them: NumPy's temporaries took twice their native time.
#[test]
fn large_temporary_arrays_paid_for_their_pages_in_every_step() {
    const STEPS: u64 = 10;
    const PAGES: u64 = 12 << 10;
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "#include <stdlib.h>\n#include <string.h>\nint main(void) {{ int wrong = 0; for (int i = 1; i <= {STEPS}; i++) {{\n\
         char *volatile a = malloc({PAGES}L << 12), *volatile b = malloc({PAGES}L << 12);\n\
         #pragma omp parallel\n memset(a, i, 100);\n\
         memset(a, i, {PAGES}L << 12); memcpy(b, a, {PAGES}L << 12); wrong |= b[i * 4096] != i; free(a); free(b);\n\
         char *volatile zero = calloc(1, 40L << 20); wrong |= zero[i << 20] != 0; free(zero); }} return wrong; }}\n"
    );
    let program = compiled(folder.path(), "temporary", &text, &["-fopenmp"]);
    let run = Atoll::new(&program).with("--workers 2 --near 400M").run().exits(0);
    let came = run.figure("total/first_faults") + run.figure("total/prefetched_pages");
    assert!(came < STEPS * PAGES, "{came} pages came: {}", run.told());
}

/// Blocks of `calloc`'s, and what was added to a block by `realloc`, were given back to the kernel and came anew, page by page: a program that zeroes
/// its buffers in this way took up to 57 times as long as alone.
#[test]
fn zeroed_and_grown_blocks_paid_for_their_pages_each_time() {
    let run = |way: &str| Atoll::new(helper("blocks_again.c")).with(way).run().exits(0);
    for way in
        ["--workers 2 --near 400M", "--workers 2 --near 400M --page 64K", "--workers 4 --page-tables private"]
    {
        let run = run(way);
        assert_eq!(run.text(), "right\n");
        let came = run.figure("total/first_faults") + run.figure("total/prefetched_pages");
        assert!(came < 12_000, "{came} pages came with {way}: {}", run.told());
    }
    // Whatever near memory has room for.
    for way in
        ["--near 8M --workers 2", "--near 8M --workers 2 --page 64K", "--nodes 2 --workers 2 --near 64M"]
    {
        assert_eq!(run(way).text(), "right\n");
    }
}

/// A block that was freed twice must be told, as its memory would be handed out twice.
#[test]
fn a_block_that_was_freed_twice_is_told() {
    let run = Atoll::new(helper("blocks_again.c")).arg("twice").with("--near 64M --workers 2").run();
    run.exits(134).says("free(): this pointer is not the start of a block");
}

/// `atoll sweep` at 100% must not evict.
#[test]
fn a_sweep_at_a_hundred_percent_evicted() {
    let sweep = Command::new(atoll())
        .args(["sweep", "--near", "100%", "--policy", "adaptive", "--page", "4K,64K", "--workers", "2", "--"])
        .arg(built("stencil"))
        .arg("W")
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&sweep.stdout);
    let rows: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("100%")).collect();
    assert_eq!(rows.len(), 2, "{text}");
    for row in rows {
        // near, limit, time, relative, minor, major, write, evicted
        assert_eq!(row.split_whitespace().nth(7), Some("0"), "{text}");
    }
    assert_eq!(text.matches("footprint").count(), 2, "{text}");
}
