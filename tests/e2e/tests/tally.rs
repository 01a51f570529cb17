//! Tests what `./test` prints at the end: `scripts/tally` over the output of `cargo test` and what tests wrote down.

use std::path::Path;
use std::process::{Command, Output};

use atoll_e2e::build::root;

const PRINTED: &str = "\
test drawn ... ok
test compared ... ok
test wrong ... FAILED
test large ... ignored, many minutes
test ucx_tcp bare ... did not run (0.00 s)
test shm bare ... ok (0.10 s)
";

/// Returns the tally over these lines of tests that did not run, on a machine that checks changes or on another.
fn tally(skips: &str, checks: bool) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let mut command = Command::new(root().join(Path::new("scripts/tally")));
    command.arg(write("log", PRINTED)).arg(write("skips", skips)).env_remove("CI");
    if checks {
        command.env("CI", "true");
    }
    command.output().expect("it is started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The report's tests in a browser counted as passed where there was no browser.
#[test]
fn tests_that_did_not_run_were_counted_as_passed() {
    let skips = "test\tbrowser::drawn\tthere is no browser: apt-get install chromium\n\
                 test\ttransport::ucx_tcp bare\tUCX is not installed: apt-get install libucx0\n\
                 part\tcores::compared\tno KVM\n";
    let output = tally(skips, false);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    for line in [
        "2 tests passed, 1 failed, 2 did not run, 1 did not run in part; 1 are for machines",
        "  failed: wrong\n",
        "  1 test did not run: there is no browser: apt-get install chromium\n      browser::drawn\n",
        "  1 did not run in part: no KVM\n      cores::compared\n",
    ] {
        assert!(said.contains(line), "{line:?} is not in {said}");
    }
}

#[test]
fn what_setup_installs_is_no_reason_where_changes_are_checked() {
    let output = tally("test\tbrowser::drawn\tthere is no browser: apt-get install chromium\n", true);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("for want of chromium"), "{}", text(&output.stderr));
    let output = tally("test\tsegment::large\tpages of 1G are reserved here\n", true);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = tally("test\tother::one\tapt-get install what-nobody-installs\n", true);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A reason names its package in the form that `./test` looks for, and `scripts/setup` knows that package.
#[test]
fn packages_that_reasons_name_are_installed_by_setup() {
    let listed = Command::new(root().join("scripts/setup")).arg("--list").output().expect("it is started");
    let listed = text(&listed.stdout);
    for package in [
        "libucx0",
        "iproute2",
        "openmpi-bin",
        "openssh-server",
        "openssh-client",
        "chromium",
        "qemu-user",
        "gcc-multilib",
    ] {
        assert!(listed.lines().any(|line| line == package), "{package} is not in {listed}");
    }
}
