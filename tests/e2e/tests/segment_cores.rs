//! Runs one conformance suite on all segmentation cores of `atoll segment run`, and hostile programs and files.
//!
//! A kind of core that this machine lacks is skipped with the reason that atoll gives.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use atoll_e2e::build::{atoll, helper_with, target};
use atoll_e2e::workloads::checksum;
use atoll_e2e::{Atoll, built, native};

/// A kind of core, and its abilities besides those that all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cores {
    name: &'static str,
    bits: u32,
    /// The bytes of segments for small programs.
    memory: u64,
    threads: bool,
    /// Whether it has handlers of signals.
    handlers: bool,
    /// Whether it stops a program at its limit.
    limit: bool,
}

const ALL: [Cores; 5] = [
    Cores { name: "ldt", bits: 32, memory: 256 << 20, threads: true, handlers: true, limit: true },
    Cores { name: "process", bits: 32, memory: 256 << 20, threads: false, handlers: false, limit: true },
    Cores { name: "kvm64", bits: 64, memory: 256 << 20, threads: true, handlers: false, limit: true },
    Cores { name: "kvm32", bits: 32, memory: 256 << 20, threads: false, handlers: false, limit: true },
    // QEMU's translator checks no limits of segments. What lies beyond is the emulated machine's own memory, and none of
    // atoll's.
    Cores { name: "qemu", bits: 32, memory: 256 << 20, threads: false, handlers: false, limit: false },
];

/// Whether this compiler can make 32-bit programs.
fn makes_32_bits() -> bool {
    static MAKES: OnceLock<bool> = OnceLock::new();
    *MAKES.get_or_init(|| {
        let out = target().join("e2e");
        std::fs::create_dir_all(&out).expect("the target folder can be written");
        let source = out.join(format!("empty.{}.c", std::process::id()));
        std::fs::write(&source, "int main(void) { return 0; }").expect("the target folder can be written");
        let mut gcc = Command::new("gcc");
        gcc.args(["-m32", "-static", "-o", "/dev/null"]).arg(&source);
        let made = gcc.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success());
        std::fs::remove_file(source).expect("it was just written");
        made
    })
}

impl Cores {
    /// Returns why these cores cannot be tested here, if they cannot.
    fn lacking(self) -> Option<String> {
        if self.bits == 32 && !makes_32_bits() {
            return Some("gcc makes no 32-bit programs (Debian: apt-get install gcc-multilib)".to_owned());
        }
        let tried = self.run(self.program("cores_threads.c")).run();
        tried.stderr.lines().find(|line| line.contains("cores here:")).map(str::to_owned)
    }

    fn options(self) -> [&'static str; 3] {
        ["-static", "-fno-openmp", if self.bits == 32 { "-m32" } else { "-m64" }]
    }

    fn program(self, source: &str) -> PathBuf {
        let mut options = self.options().to_vec();
        if source == "cores_int80.c" {
            options.extend(["-nostdlib", "-fno-stack-protector", "-fno-pie", "-no-pie"]);
        }
        helper_with(source, &options)
    }

    fn run_with(self, memory: u64, program: impl AsRef<Path>) -> Atoll {
        let flags = format!("segment run --backend {} --memory {memory} --", self.name);
        native(atoll()).args(&flags).arg(program.as_ref()).limit(120)
    }

    fn run(self, program: impl AsRef<Path>) -> Atoll {
        self.run_with(self.memory, program)
    }
}

/// Runs a part of the suite on every kind of core that is here.
fn on_each(wanted: impl Fn(&Cores) -> bool, part: impl Fn(Cores)) {
    for cores in ALL.into_iter().filter(|cores| wanted(cores)) {
        match cores.lacking() {
            Some(why) => atoll_e2e::skip_part!("{}: {why}", cores.name),
            None => part(cores),
        }
    }
}

#[test]
fn files_time_memory_and_the_process_are_served() {
    on_each(
        |_| true,
        |cores| {
            let run = cores.run(cores.program("cores_conform.c"));
            let run = run.arg(cores.memory.to_string()).arg("two words").arg("").env("CORES", "value");
            let end = run.input(b"input").run().exits(7);
            assert_eq!(end.text(), "7.484471\nok\n", "{}", end.told());
            let said = &end.stderr;
            for call in ["vfork", "execve"] {
                let line = format!("({call}) cannot be delegated, the program gets ENOSYS");
                assert_eq!(said.matches(&line).count(), 1, "{call}: {said}");
            }
            assert!(said.contains("clone of a process") || said.contains("(fork)"), "{said}");
            assert!(said.contains("a file that is memory cannot be opened"), "{said}");
        },
    );
}

#[test]
fn the_talks_programs_verify() {
    on_each(
        |_| true,
        |cores| {
            for program in ["randomaccess", "graph500"] {
                let folder = if cores.bits == 32 { "i386" } else { "static" };
                let path = built(&format!("{folder}/{program}"));
                let alone = native(&path).arg("S").env("OMP_NUM_THREADS", "1").run().exits(0);
                for threads in if cores.threads { &["1", "2"][..] } else { &["1"] } {
                    let end = cores.run(&path).arg("S").env("OMP_NUM_THREADS", threads).run().exits(0);
                    assert!(end.text().contains("Verification: successful"), "{}", end.told());
                    assert_eq!(checksum(&end.text()), checksum(&alone.text()), "{}", end.told());
                }
            }
        },
    );
}

/// Tests reductions, barriers and a pipeline of flags between the threads of a team, each on a core of its own.
#[test]
fn teams_of_two_compute_as_natively() {
    on_each(
        |cores| cores.threads,
        |cores| {
            // The pipeline spins for its neighbour, which takes long on a busy machine.
            for (program, arguments) in [("cg", "S"), ("ep", "S"), ("lu", "S --iterations 5")] {
                let folder = if cores.bits == 32 { "i386" } else { "static" };
                let path = built(&format!("{folder}/{program}"));
                let alone = native(&path).args(arguments).run().exits(0);
                let run = cores.run_with(1 << 30, &path).args(arguments).env("OMP_NUM_THREADS", "2");
                let end = run.run().exits(0);
                assert!(end.text().contains("Verification: "), "{}", end.told());
                assert!(!end.text().contains("Verification: failed"), "{}", end.told());
                assert_eq!(checksum(&end.text()), checksum(&alone.text()), "{}", end.told());
            }
        },
    );
}

#[test]
fn threads_are_cores() {
    on_each(
        |cores| cores.threads,
        |cores| {
            let end = cores.run(cores.program("cores_threads.c")).run().exits(0);
            assert_eq!(end.text(), "sum 24000, own 5\n");
        },
    );
}

#[test]
fn a_program_is_told_where_there_is_one_core_only() {
    on_each(
        |cores| !cores.threads,
        |cores| {
            let end = cores.run(cores.program("cores_threads.c")).run().exits(1);
            assert_eq!(end.text(), "no thread\n");
            assert!(end.told().contains("clone cannot be delegated"), "{}", end.told());
        },
    );
}

#[test]
fn signals_reach_their_handlers() {
    on_each(
        |cores| cores.handlers,
        |cores| {
            let run = cores.run(cores.program("cores_signals.c")).arg(cores.memory.to_string());
            let end = run.run().dies_by(libc::SIGABRT);
            assert_eq!(end.text(), "ok\n", "{}", end.told());
        },
    );
}

#[test]
fn int_80_is_served_without_a_library() {
    on_each(
        |cores| cores.bits == 32,
        |cores| {
            let end = cores.run(cores.program("cores_int80.c")).run().exits(3);
            assert_eq!(end.text(), "from int 0x80\n", "{}", end.told());
        },
    );
}

#[test]
fn what_leaves_the_segment_is_stopped() {
    on_each(
        |cores| cores.limit,
        |cores| {
            let hostile = cores.program("cores_hostile.c");
            let limit = cores.memory.to_string();
            let mut ways = vec!["read", "write", "straddle", "far", "string", "jump", "stack"];
            if cores.bits == 32 {
                ways.extend(["push", "es", "ss"]);
            }
            if ["ldt", "process"].contains(&cores.name) {
                ways.extend(["gs", "flat", "long", "fs", "flags"]);
            }
            if cores.name != "kvm32" {
                ways.push("null");
            }
            for way in ways {
                let end = cores.run(&hostile).arg(way).arg(&limit).run();
                let told = end.told();
                assert!(!end.text().contains("escaped"), "{way}: {told}");
                if way == "stack" {
                    // A segment has no access control: the program overwrites itself, and dies of that or at the end.
                    assert!(end.clean().signal.is_some(), "{told}");
                    continue;
                }
                let by = if way == "long" { libc::SIGSYS } else { libc::SIGSEGV };
                let end = end.dies_by(by);
                if ["fs", "flags"].contains(&way) {
                    assert_eq!(end.text(), "still here\n", "{way}: {told}");
                }
                match way {
                    "long" => assert!(told.contains("left its segments by a far jump"), "{told}"),
                    "null" => assert!(told.contains("is outside its segment"), "{way}: {told}"),
                    _ => {
                        let text = format!("limit {:#x}", cores.memory);
                        assert!(told.contains("at offset 0x") && told.contains(&text), "{way}: {told}");
                    }
                }
            }
            let end = cores.run(&hostile).arg("write").arg(&limit).run();
            let text = format!("the write of 1 bytes at offset {:#x} is outside its segment", cores.memory);
            assert!(end.told().contains(&text), "{}", end.told());
        },
    );
}

#[test]
fn damaged_programs_are_refused_or_end() {
    on_each(
        |_| true,
        |cores| {
            let whole = std::fs::read(cores.program("cores_threads.c")).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("damaged");
            // QEMU takes a moment to start.
            let tries = if cores.name == "qemu" { 8 } else { 60 };
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            let mut next = |below: usize| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random % below as u64) as usize
            };
            for i in 0..tries {
                let mut bytes = whole.clone();
                if i % 3 == 0 {
                    bytes.truncate(next(bytes.len()));
                } else {
                    for _ in 0..=i % 5 {
                        bytes[next(0x200)] = next(256) as u8;
                    }
                }
                std::fs::write(&path, &bytes).unwrap();
                let mut permissions = std::fs::metadata(&path).unwrap().permissions();
                std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
                std::fs::set_permissions(&path, permissions).unwrap();
                let end = cores.run(&path).limit(20).run();
                assert!(!end.told().contains("panicked"), "{}", end.told());
            }
        },
    );
}

#[test]
fn what_cannot_run_is_refused_in_a_sentence() {
    on_each(
        |_| true,
        |cores| {
            let refused = |run: Atoll, text: &str| {
                let end = run.run().exits(70);
                assert!(end.told().contains(text), "{}: {}", cores.name, end.told());
            };
            let right = cores.program("cores_threads.c");
            refused(cores.run(built("randomaccess")), "dynamically linked");
            refused(cores.run_with(1 << 45, &right), "is not possible");
            if cores.bits == 32 {
                refused(cores.run_with(5 << 30, &right), "is not possible");
            }
            refused(cores.run_with(1, &right), "is not possible");
            let other = ALL.into_iter().find(|other| other.bits != cores.bits).unwrap();
            if other.bits == 64 || makes_32_bits() {
                refused(cores.run(other.program("cores_threads.c")), "-bit program, and");
            }
        },
    );
}

#[test]
fn who_kills_atoll_kills_all_of_it() {
    on_each(
        |_| true,
        |cores| {
            let run = cores.run(cores.program("cores_conform.c"));
            let run = run.arg(cores.memory.to_string()).arg("two words").arg("").env("CORES", "value");
            let mut running = run.env("CORES_WAIT", "1").start();
            assert!(running.wait_for("7.48"));
            running.signal(libc::SIGKILL);
            // This fails if a process is left.
            running.end().clean();
        },
    );
}
