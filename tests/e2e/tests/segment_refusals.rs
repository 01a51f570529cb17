//! Tests `atoll segment run` where the machine lacks what cores need, and where a program means harm: what is refused, and what
//! is printed.
//!
//! What is to be lacking is taken from the tested process, by another user or a filter of system calls.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use atoll_e2e::build::{atoll, helper_with, installed};
use atoll_e2e::skip;

/// Builds a small program; `None` where the compiler cannot build it.
fn program(bits: &str, source: &str) -> Option<std::path::PathBuf> {
    let made = || helper_with(source, &["-static", "-fno-openmp", bits]);
    std::panic::catch_unwind(made).ok()
}

fn run(flags: &str, program: &Path, arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(atoll());
    command.args(["segment", "run"]).args(flags.split_whitespace()).arg("--").arg(program).args(arguments);
    command.stdin(Stdio::null());
    prepare(&mut command);
    command.output().expect("atoll is started")
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}: {}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Lets the process make all system calls except those that `filter` refuses.
fn filtered(command: &mut Command, filter: Vec<libc::sock_filter>) {
    // SAFETY: two system calls between fork and exec; the filter is the closure's.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
            let done = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0;
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Returns a filter that gives `verdict` where the word at `offset` of `seccomp_data` is `value`, and allows all else.
fn refuse(offset: u32, value: u32, verdict: u32) -> Vec<libc::sock_filter> {
    vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, value),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, verdict),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Offsets in `seccomp_data`, and the architecture of 32-bit calls.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const I386: u32 = 0x4000_0003;

#[test]
fn a_kernel_without_32_bit_calls_is_refused() {
    let Some(small) = program("-m32", "cores_threads.c") else {
        skip!("gcc makes no 32-bit programs: apt-get install gcc-multilib");
    };
    let without = |command: &mut Command| {
        filtered(command, refuse(ARCHITECTURE, I386, libc::SECCOMP_RET_KILL_PROCESS));
    };
    let end = run("--backend ldt", &small, &[], without);
    assert_eq!(end.status.code(), Some(70), "{}", said(&end));
    assert!(said(&end).contains("the kernel runs no 32-bit code"), "{}", said(&end));
    if installed("qemu-system-i386") {
        // QEMU is used instead, and a line says so. It has one core, so the program finds no second.
        let end = run("--memory 256M", &small, &[], without);
        assert!(
            said(&end).contains("QEMU emulates some") && said(&end).contains("no thread"),
            "{}",
            said(&end)
        );
    }
}

#[test]
fn a_kernel_without_descriptor_tables_is_refused() {
    let Some(small) = program("-m32", "cores_threads.c") else {
        skip!("gcc makes no 32-bit programs: apt-get install gcc-multilib");
    };
    let none = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let end =
        run("--backend ldt", &small, &[], |c| filtered(c, refuse(NUMBER, libc::SYS_modify_ldt as u32, none)));
    assert_eq!(end.status.code(), Some(70), "{}", said(&end));
    assert!(said(&end).contains("the kernel has no modify_ldt"), "{}", said(&end));
}

#[test]
fn a_kernel_that_lets_nobody_trace_is_refused() {
    let Some(small) = program("-m32", "cores_threads.c") else {
        skip!("gcc makes no 32-bit programs: apt-get install gcc-multilib");
    };
    let never = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let end = run("--backend process", &small, &[], |c| {
        filtered(c, refuse(NUMBER, libc::SYS_ptrace as u32, never));
    });
    assert_eq!(end.status.code(), Some(70), "{}", said(&end));
    assert!(
        said(&end).contains("no process cores here: the kernel lets no process be traced"),
        "{}",
        said(&end)
    );
}

#[test]
fn no_kvm_is_said() {
    const NOBODY: u32 = 65534;
    let folder = tempfile::tempdir().expect("a folder");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let copy = folder.path().join("atoll");
    std::fs::copy(atoll(), &copy).expect("a copy that nobody may start");
    let small = folder.path().join("small");
    std::fs::copy(program("-m64", "cores_threads.c").expect("gcc makes 64-bit programs"), &small)
        .expect("a copy");
    let mut command = Command::new(&copy);
    command.args(["segment", "run", "--backend", "kvm64", "--"]).arg(&small);
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let end = command.current_dir("/").output().expect("it is started");
    if end.status.success() {
        skip!("everybody may use this machine's KVM");
    }
    assert_eq!(end.status.code(), Some(70), "{}", said(&end));
    assert!(said(&end).contains("no kvm64 cores here: /dev/kvm cannot be opened"), "{}", said(&end));
}

/// ldt cores are the quickest, and a far jump leaves them. A line says so to users who did not choose them, and `--strict`
/// gives others.
#[test]
fn what_a_program_can_leave_is_said_and_not_taken_when_strict() {
    let Some(hostile) = program("-m32", "cores_hostile.c") else {
        skip!("gcc makes no 32-bit programs: apt-get install gcc-multilib");
    };
    let limit = (256 << 20).to_string();
    let long = ["long", limit.as_str()];
    let end = run("--strict --backend ldt", &hostile, &long, |_| ());
    assert_eq!(end.status.code(), Some(2), "{}", said(&end));
    assert!(said(&end).contains("can be left by a far jump"), "{}", said(&end));

    let end = run("--memory 256M", &hostile, &["none", &limit], |_| ());
    assert!(
        said(&end).contains("ldt cores stop what goes beyond the limit") == said(&end).contains("--strict")
    );
    let end = run("--memory 256M --backend ldt", &hostile, &["none", &limit], |_| ());
    assert!(!said(&end).contains("--strict"), "{}", said(&end));

    for way in ["long", "flat", "host"] {
        let end = run("--memory 256M --strict --verbose", &hostile, &[way, &limit], |_| ());
        assert!(!said(&end).contains(": ldt cores,"), "{}", said(&end));
        assert!(!said(&end).contains("escaped") && end.status.code().is_none(), "{way}: {}", said(&end));
    }
}
