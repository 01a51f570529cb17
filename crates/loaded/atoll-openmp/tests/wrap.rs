//! Each trap of libc under atoll as a small unmodified program that checks itself.
//!
//! The programs in `tests/wrap` are compiled here with `-fopenmp` and run with the library preloaded and a control block, as
//! `atoll run` does; every one also runs natively, where it has to succeed as well. Programs with a team (`team_*`) run only if
//! the library exports `GOMP_parallel`.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use atoll_memory::control::{Control, ENVIRONMENT, Faults, Handle, Settings};

const NEAR: u64 = 16 << 20;

fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("the test's path");
    let deps = exe.parent().expect("deps");
    let found = [deps.join("libatoll_openmp.so"), deps.join("../libatoll_openmp.so")];
    // The newest file is taken, as an older build may have left others.
    let newest = found
        .iter()
        .filter(|p| p.exists())
        .max_by_key(|p| p.metadata().and_then(|m| m.modified()).expect("a time"));
    newest.expect("libatoll_openmp.so is built with the tests").clone()
}

fn has_runtime() -> bool {
    let bytes = std::fs::read(library()).expect("the library");
    let name = b"\0GOMP_parallel\0";
    bytes.windows(name.len()).any(|w| w == name)
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrap")
}

fn compile(source: &str, directory: &Path) -> PathBuf {
    let program = directory.join(source.split('.').next().expect("a name"));
    let compiler = match source.rsplit('.').next() {
        Some("cc") => "g++",
        Some("f90") => "gfortran",
        _ => "gcc",
    };
    let done = Command::new(compiler)
        .args(["-O1", "-g", "-fopenmp", "-Wall", "-D_GNU_SOURCE", "-Wl,--no-as-needed", "-o"])
        .arg(&program)
        .arg(sources().join(source))
        .args(["-lgomp", "-lpthread"])
        .status()
        .expect("a compiler");
    assert!(done.success(), "{source} does not compile");
    program
}

/// The outcome of a run: exit status (128 + signal), standard output, standard error.
#[derive(Debug)]
struct Run {
    status: i32,
    out: String,
    #[expect(dead_code, reason = "shown with the rest when a test fails")]
    err: String,
}

fn run(mut command: Command, directory: &Path, control: Option<&Control>) -> Run {
    command.current_dir(directory).stdin(Stdio::null());
    command.env("ATOLL_TEST_DIRECTORY", directory).env("OMP_NUM_THREADS", "4");
    let output = command.output().expect("to run");
    // A worker may have ended the program, as the launcher also has to find out.
    let by_worker = control.map_or(0, |c| c.exit_status.load(std::sync::atomic::Ordering::Relaxed));
    let status = if by_worker > 0 {
        by_worker - 1
    } else {
        output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0))
    };
    Run {
        status,
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[derive(Clone, Copy, Debug)]
struct Mode {
    shift: u32,
    faults: Faults,
}

fn managed(program: &Path, directory: &Path, mode: Mode) -> Run {
    let mut settings = Settings::new("fifo", "ram");
    settings.near_bytes = NEAR;
    settings.page_shift = mode.shift;
    settings.faults = mode.faults as u32;
    settings.workers = 4;
    let (fd, control) = Control::create(settings).expect("a control block");
    let mut command = Command::new("/usr/bin/timeout");
    command.args(["-s", "KILL", "60"]).arg(program);
    command
        .env("LD_PRELOAD", library())
        .env(ENVIRONMENT, Handle { fd, launcher: std::process::id() as i32 }.to_string());
    let result = run(command, directory, Some(control));
    let _ = unsafe_close(fd);
    result
}

fn unsafe_close(fd: i32) -> std::io::Result<()> {
    use std::os::fd::{FromRawFd, OwnedFd};
    // SAFETY: the control block's descriptor, which nobody else closes.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

fn modes() -> Vec<Mode> {
    let mut modes: Vec<Mode> = [12, 16].map(|shift| Mode { shift, faults: Faults::Own }).to_vec();
    modes.push(Mode { shift: 12, faults: Faults::Thread });
    modes
}

/// Compiles a program and runs it natively and in every mode: it must print `good`, and the same each time.
fn check(source: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(source, directory.path());
    let native = run(Command::new(&program), directory.path(), None);
    assert!(native.out.contains("good"), "natively: {native:?}");
    for mode in modes() {
        let run = managed(&program, directory.path(), mode);
        assert_eq!(run.status, native.status, "{mode:?}: {run:?}");
        assert_eq!(run.out, native.out, "{mode:?}: {run:?}");
    }
}

fn check_team(source: &str) {
    if has_runtime() {
        check(source);
    } else {
        eprintln!("{source}: no OpenMP runtime in the library yet, not run");
    }
}

macro_rules! programs {
    ($($check:ident $name:ident $source:literal;)*) => {$(
        #[test]
        fn $name() {
            $check($source);
        }
    )*};
}

programs! {
    check file_transfers "file_transfers.c";
    check pipes_and_sockets "pipes_and_sockets.c";
    check strings_and_structures "strings_and_structures.c";
    check streams "streams.c";
    check signals "signals.c";
    check children "children.c";
    check replaced "replaced.c";
    check objects "objects.c";
    check random_numbers "random_numbers.c";
    check environment "environment.c";
    check cpp "cpp.cc";
    check exits "exits.c";
    check fork "fork.c";
    check fortran_units "fortran_units.f90";
    check_team team_output "team_output.c";
    check_team team_objects "team_objects.c";
    check_team team_cpp "team_cpp.cc";
    check_team team_state "team_state.c";
    check_team team_exit "team_exit.c";
    check_team team_exec "team_exec.c";
}
