//! Tests programs that define functions of libc's names: atoll's libraries call libc's and never the program's (DESIGN, trap
//! 25).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_e2e::build::{atoll, helper_with};
use atoll_e2e::{Atoll, native};

/// The libraries that atoll loads into programs.
const LIBRARIES: [&str; 3] = ["libatoll_openmp.so", "libatoll_profile.so", "libatoll_hooks.so"];

/// Names that a library imports and that the program keeps: data, which libc itself shares with the program by that name, and
/// names that the compiler's start files and the dynamic linker call on purpose.
const KEPT: [&str; 18] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "stdin",
    "stdout",
    "stderr",
    "environ",
    "__environ",
    "__libc_single_threaded",
    "__rseq_offset",
    "__rseq_size",
    "__cxa_finalize",
    "__gmon_start__",
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    // These are the compiler's own, of one type in every program.
    "__tls_get_addr",
    "__stack_chk_fail",
];

fn library(name: &str) -> PathBuf {
    atoll().with_file_name(name)
}

/// Returns the functions that atoll's libraries import.
fn imported() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for name in LIBRARIES {
        let output = Command::new("nm").args(["-D", "--undefined-only"]).arg(library(name)).output();
        let output = output.expect("nm runs");
        assert!(output.status.success(), "nm {name}: {}", String::from_utf8_lossy(&output.stderr));
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let symbol = line.split_whitespace().last().unwrap_or_default();
            names.insert(symbol.split('@').next().unwrap_or_default().to_owned());
        }
    }
    names.retain(|name| !name.is_empty() && !KEPT.contains(&name.as_str()));
    names
}

/// Builds a program that defines every one of `names` as a function that prints its name and ends the process. It uses no
/// library but a libgomp that does next to nothing, as any other library would rightly call the program's functions.
fn program_of_names(folder: &Path, names: &BTreeSet<String>) -> PathBuf {
    let mut source = String::from(
        "static long call(long n, long a, const void *b, long c) { long r; \
         __asm__ volatile(\"syscall\" : \"=a\"(r) : \"a\"(n), \"D\"(a), \"S\"(b), \"d\"(c) : \"rcx\", \"r11\", \"memory\"); return r; }\n\
         static void end(const char *name) { long n = 0; while (name[n]) n++; call(1, 2, name, n); call(231, 99, 0, 0); }\n",
    );
    for name in names {
        writeln!(source, "void {name}(void) {{ end(\"{name} of the program was called\\n\"); }}")
            .expect("strings take all");
    }
    source.push_str(
        "int main(void) {\n\
         long sum = 0;\n\
         #pragma omp parallel for reduction(+ : sum)\n\
         for (int i = 0; i < 100000; i++) sum += i % 7;\n\
         char line[24]; int at = 23; line[at] = '\\n';\n\
         while (sum) { line[--at] = '0' + sum % 10; sum /= 10; }\n\
         call(1, 1, line + at, 24 - at);\n\
         return 0;\n}\n",
    );
    let gomp = "void GOMP_parallel(void (*region)(void *), void *data) { region(data); }\n\
                int omp_get_num_threads(void) { return 1; }\nint omp_get_thread_num(void) { return 0; }\n";
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("the folder is writable");
    };
    write("program.c", &source);
    write("gomp.c", gomp);
    let gcc = |arguments: &str| {
        let output = Command::new("gcc").args(arguments.split(' ')).current_dir(folder).output();
        let output = output.expect("gcc runs");
        assert!(output.status.success(), "gcc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    gcc("-shared -fPIC -O1 -nostartfiles -nostdlib -Wl,-soname,libgomp.so.1 gomp.c -o libgomp.so.1");
    gcc("-O1 -w -fno-builtin -fopenmp -c program.c");
    gcc("-rdynamic program.o ./libgomp.so.1 -Wl,-rpath,$ORIGIN -o program");
    folder.join("program")
}

#[test]
fn no_name_that_atolls_libraries_import_is_the_programs() {
    let names = imported();
    assert!(names.contains("dlsym") && names.contains("memcpy"), "{names:?}");
    let folder = tempfile::tempdir().expect("a folder");
    let program = program_of_names(folder.path(), &names);
    for way in [
        "--near 20M --workers 3 --page-tables private",
        "--near 20M --workers 3 --page-tables shared --far lz4",
        "--faults thread --far zstd --page-tables private",
        "--nodes 2 --workers 4",
    ] {
        let run = Atoll::new(&program).no_summary().with(way).run().clean();
        assert_eq!((run.status, run.text().as_str()), (Some(0), "299995\n"), "{}", run.told());
    }
    let profile = Command::new(atoll())
        .args(["profile", "-o"])
        .arg(folder.path().join("profile.atoll"))
        .arg("--")
        .arg(&program)
        .output()
        .expect("atoll runs");
    assert_eq!(
        String::from_utf8_lossy(&profile.stdout),
        "299995\n",
        "{}",
        String::from_utf8_lossy(&profile.stderr)
    );
    for name in LIBRARIES {
        let alone = Command::new(&program).env("LD_PRELOAD", library(name)).output().expect("it runs");
        assert_eq!(
            String::from_utf8_lossy(&alone.stdout),
            "299995\n",
            "{name}: {}",
            String::from_utf8_lossy(&alone.stderr)
        );
    }
}

#[test]
fn a_program_with_a_read_of_its_own() {
    let program = helper_with("own_names.c", &["-fno-builtin"]);
    let alone = native(&program).run().clean();
    for way in ["--near 20M --page-tables private", "--page-tables shared", "--nodes 2 --workers 4"] {
        let run = Atoll::new(&program).with(way).run().clean();
        assert_eq!((run.status, &run.stdout), (Some(0), &alone.stdout), "{}", run.told());
    }
}

/// A C++ program with jemalloc ended at its first `delete`, managed or not: jemalloc's `operator new` made a block of its own, and its
/// `operator delete` passed it to atoll's `free`.
#[test]
fn blocks_of_another_allocators_operator_new_were_freed_by_libcs() {
    let library = helper_with("other_allocator.cc", &["-shared", "-fPIC"]);
    let library = library.to_str().expect("UTF-8");
    let ways: [&[&str]; 2] = [&[], &["-fno-openmp"]];
    for options in ways {
        for linked in [&[][..], &["-DOWN"], &["-Wl,--no-as-needed", library]] {
            let program = helper_with("operators.cc", &[options, linked].concat());
            let natively = native(&program).run().exits(0);
            for near in ["--near 40M", "--near none", "--near 1G"] {
                Atoll::new(&program).with(near).no_summary().run().like(&natively);
            }
        }
    }
}

/// Where `operator new` has no memory C++'s own library throws, also one that came with a plugin.
#[test]
fn plugins_in_cpp_hear_that_there_is_no_memory() {
    let plugin = helper_with("plugin.cc", &["-shared", "-fPIC", "-fno-openmp"]);
    for options in [&["-fno-openmp"][..], &[]] {
        let host = helper_with("plugin_host.c", options);
        let natively = native(&host).arg(&plugin).run().exits(0);
        assert_eq!(natively.text(), "2000\n");
        for near in ["--near none", "--near 40M"] {
            Atoll::new(&host).arg(&plugin).with(near).no_summary().run().like(&natively);
        }
    }
}
