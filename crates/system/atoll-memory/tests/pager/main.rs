//! The pager, driven directly: faults, evictions and copies out against a kernel and a far store that fail on order.
//!
//! Each test is a process of its own, as there is one arena in a process. `orders` makes the kernel fail, `team` has the workers,
//! `traces` compares with a slow and obvious pager on random traces, `failures` orders one failure a test.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod failures;
mod orders;
mod shared_heap;
mod team;
mod traces;

use std::process::Command;

#[global_allocator]
static HEAP: shared_heap::SharedHeap = shared_heap::SharedHeap::new();

/// Names the test that a process is for.
const ALONE: &str = "ATOLL_PAGER_TEST";

/// Runs `body` in a process of its own, which is this program once more with this test alone. `body` is false where the kernel lets
/// nobody have a userfaultfd.
fn alone(name: &str, body: impl FnOnce() -> bool) {
    const REFUSED: i32 = 77;
    const FAILED: i32 = 101;
    if std::env::var(ALONE).is_ok_and(|test| test == name) {
        // The process ends here: where a thread ends, libc makes calls that the filter traps, with all signals blocked.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
            Ok(true) => std::process::exit(0),
            Ok(false) => std::process::exit(REFUSED),
            Err(_) => std::process::exit(FAILED),
        }
    }
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this).args(["--exact", name, "--nocapture"]).env(ALONE, name).output().unwrap();
    if output.status.code() == Some(REFUSED) {
        atoll_skips::skip!("userfaultfd is refused here: set vm.unprivileged_userfaultfd to 1");
    }
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{:?}\n{}\n{}", output.status, said[0], said[1]);
}
