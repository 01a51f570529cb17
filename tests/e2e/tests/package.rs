//! Tests the Debian package: it is installed into a folder, run from there, and removed.
//!
//! `scripts/package` makes it from the release build, as `make deb` does.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use atoll_e2e::build::{installed, root, target};
use atoll_e2e::{built, skip};

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().expect("it is started");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns dpkg with a system of its own in this folder, which has nothing that packages depend on.
fn dpkg(system: &Path) -> Command {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", system.display())).args(["--force-depends", "--force-not-root"]);
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    command
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn the_debian_package_installs_runs_and_goes() {
    if !installed("dpkg-deb") {
        skip!("dpkg-deb is not installed: packages are made on Debian");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("atoll.deb");
    let script = root().join("scripts/package");
    succeeds(Command::new(script).arg("deb").arg(&file).env("CARGO_TARGET_DIR", target()));

    let system = folder.path().join("system");
    let database = system.join("var/lib/dpkg");
    for part in ["info", "updates", "triggers"] {
        std::fs::create_dir_all(database.join(part)).expect("a folder");
    }
    std::fs::write(database.join("status"), "").expect("an empty list of packages");
    succeeds(dpkg(&system).arg("--install").arg(&file));
    for path in [
        "bin/atoll",
        "lib/atoll/libatoll_openmp.so",
        "lib/atoll/libatoll_hooks.so",
        "lib/atoll/libatoll_profile.so",
        "lib/atoll/libatoll_qemu_plugin.so",
        "share/man/man1/atoll-run.1.gz",
        "share/bash-completion/completions/atoll",
        "share/zsh/vendor-completions/_atoll",
        "share/fish/vendor_completions.d/atoll.fish",
        "share/doc/atoll/copyright",
    ] {
        assert!(system.join("usr").join(path).is_file(), "{path} is not in the package");
    }
    let notes = std::fs::read_to_string(system.join("usr/share/doc/atoll/copyright")).expect("it is text");
    for what in ["clap v", "plotly v", "GNU\nGeneral Public License", "---- zstd-sys"] {
        assert!(notes.contains(what), "no {what:?} in the licence notes");
    }

    let atoll = system.join("usr/bin/atoll");
    let mut command = Command::new("timeout");
    command.arg("60").arg(&atoll).args(["run", "--workers", "2", "--require", "--near", "16M", "--"]);
    command.arg(built("cg")).arg("S").env_remove("ATOLL_LIBRARY");
    let output = succeeds(&mut command);
    assert!(text(&output.stdout).contains("Verification: successful"), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("workers"), "{}", text(&output.stderr));

    succeeds(dpkg(&system).args(["--remove", "atoll"]));
    assert_eq!(files(&system.join("usr")), Vec::<PathBuf>::new());
}
