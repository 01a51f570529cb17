//! Tests the check on tiny programs that are compiled here.

use super::*;
use std::process::Command;

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles `source` to `name`; `None` where the compiler cannot do that.
    fn try_gcc(&self, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
        let c = self.path(&format!("{name}.c"));
        std::fs::write(&c, source).unwrap();
        let out = self.path(name);
        let result = Command::new("gcc").arg("-w").arg("-o").arg(&out).arg(&c).args(flags).output().ok()?;
        result.status.success().then_some(out)
    }

    fn gcc(&self, name: &str, source: &str, flags: &[&str]) -> PathBuf {
        self.try_gcc(name, source, flags).unwrap_or_else(|| panic!("gcc cannot build {name}"))
    }

    fn check(&self, program: &Path) -> Result<Uses, String> {
        let runtime = self.path("runtime.so");
        if !runtime.exists() {
            self.gcc("runtime.so", "void GOMP_parallel(void) {}", &["-shared", "-fPIC"]);
        }
        check(program, &runtime, None, None).map(|checked| checked.openmp).map_err(|e| e.to_string())
    }
}

const PARALLEL: &str = "int main(void) {\n#pragma omp parallel\n{ __asm__(\"nop\"); }\nreturn 0; }";
const CRITICAL: &str =
    "int x; int main(void) {\n#pragma omp parallel\n#pragma omp critical\nx++;\nreturn 0; }";

#[test]
fn programs_are_told_apart() {
    let bench = Bench::new();
    let plain = bench.gcc("plain", "int main(void) { return 0; }", &[]);
    assert_eq!(bench.check(&plain), Ok(Uses::Alone));
    let openmp = bench.gcc("openmp", PARALLEL, &["-fopenmp"]);
    assert_eq!(bench.check(&openmp), Ok(Uses::OpenMp));
}

#[test]
fn a_program_of_musls_was_started_and_failed_in_its_linker() {
    let bench = Bench::new();
    let options = ["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"];
    let program = bench.gcc("musl", "int main(void) { return 0; }", &options);
    let error = bench.check(&program).unwrap_err();
    assert!(
        error.ends_with(
            "is linked with musl's C library, and atoll's runtime needs glibc's: use a build for glibc"
        ),
        "{error}"
    );
}

/// The sanitizer's runtime ended the program with a sentence of its own, or none.
#[test]
fn a_program_with_a_sanitizer_was_started_and_failed() {
    let bench = Bench::new();
    let ways: [(&str, &[&str]); 5] = [
        ("address", &["-fsanitize=address"]),
        ("address", &["-fsanitize=address", "-static-libasan"]),
        ("thread", &["-fsanitize=thread"]),
        ("thread", &["-fsanitize=thread", "-static-libtsan"]),
        ("hwaddress", &["-fsanitize=hwaddress"]),
    ];
    for (sanitizer, flags) in ways {
        // Not each compiler has all of them.
        let Some(program) = bench.try_gcc("sanitized", PARALLEL, flags) else { continue };
        let error = bench.check(&program).unwrap_err();
        let said = format!(
            "sanitized is built with -fsanitize={sanitizer}, whose runtime cannot be loaded beside atoll's"
        );
        assert!(error.contains(&said), "{flags:?}: {error}");
    }
    // This one leaves the address space and malloc alone.
    if let Some(program) = bench.try_gcc("checked", PARALLEL, &["-fsanitize=undefined", "-fopenmp"]) {
        assert_eq!(bench.check(&program), Ok(Uses::OpenMp));
    }
}

#[test]
fn a_missing_symbol_is_named() {
    let bench = Bench::new();
    let program = bench.gcc("critical", CRITICAL, &["-fopenmp"]);
    let error = bench.check(&program).unwrap_err();
    assert!(error.ends_with("critical needs GOMP_critical_end, GOMP_critical_start, which atoll's OpenMP runtime does not have"), "{error}");
}

#[test]
fn a_missing_symbol_of_a_library_is_named() {
    let bench = Bench::new();
    let part = CRITICAL.replace("main", "part");
    let library = bench.gcc("libpart.so", &part, &["-fopenmp", "-shared", "-fPIC"]);
    let dir = library.parent().unwrap().display().to_string();
    let flags = ["-L", &dir, "-lpart", "-Wl,-rpath,$ORIGIN"];
    let program = bench.gcc("user", "int part(void); int main(void) { return part(); }", &flags);
    let error = bench.check(&program).unwrap_err();
    assert!(error.contains("libpart.so needs GOMP_critical_"), "{error}");
}

#[test]
fn weak_symbols_and_own_definitions_are_no_reason() {
    let bench = Bench::new();
    let source = "void GOMP_new(void) __attribute__((weak)); void omp_mine(void) {}\n".to_owned()
        + "int main(void) {\n#pragma omp parallel\n{ if (GOMP_new) GOMP_new(); omp_mine(); }\nreturn 0; }";
    let program = bench.gcc("weak", &source, &["-fopenmp", "-rdynamic"]);
    assert_eq!(bench.check(&program), Ok(Uses::OpenMp));
}

/// valgrind ran for half a minute, and then the program could not use userfaultfd.
#[test]
fn valgrind_was_started() {
    let bench = Bench::new();
    let program = bench.gcc("valgrind", "int main(void) { return 0; }", &[]);
    let error = bench.check(&program).unwrap_err();
    assert!(error.contains("emulates a processor without userfaultfd"), "{error}");
}

#[test]
fn another_runtime_is_refused() {
    let bench = Bench::new();
    let library =
        bench.gcc("libnvomp.so", "void mp_begin(void) {}", &["-shared", "-fPIC", "-Wl,-soname,libnvomp.so"]);
    let program = bench.gcc(
        "other",
        "void mp_begin(void); int main(void) { mp_begin(); return 0; }",
        &[library.to_str().unwrap()],
    );
    let error = bench.check(&program).unwrap_err();
    assert!(error.contains("uses the OpenMP runtime libnvomp.so"), "{error}");
}

/// Checks a program of clang's, with a stand-in for LLVM's runtime, that needs `needs`.
fn of_llvm(bench: &Bench, runtime: &str, needs: &str) -> Result<Uses, String> {
    let source = format!("void {needs}(void) {{}}");
    let soname = format!("-Wl,-soname,{runtime}");
    let library = bench.gcc(runtime, &source, &["-shared", "-fPIC", &soname]);
    let dir = library.parent().unwrap().display().to_string();
    let program = bench.gcc(
        "clang",
        &format!("void {needs}(void); int main(void) {{ {needs}(); return 0; }}"),
        &["-L", &dir, &format!("-l:{runtime}"), "-Wl,-rpath,$ORIGIN"],
    );
    bench.gcc("runtime.so", "void __kmpc_fork_call(void) {}", &["-shared", "-fPIC"]);
    bench.check(&program)
}

#[test]
fn runtimes_of_llvm_and_intel_are_replaced() {
    for runtime in ["libomp.so.5", "libiomp5.so"] {
        assert_eq!(of_llvm(&Bench::new(), runtime, "__kmpc_fork_call"), Ok(Uses::OpenMp), "{runtime}");
        let error = of_llvm(&Bench::new(), runtime, "__kmpc_new").unwrap_err();
        assert!(error.ends_with("needs __kmpc_new, which atoll's OpenMP runtime does not have"), "{error}");
    }
}

#[test]
fn what_cannot_be_loaded_into_is_refused() {
    let bench = Bench::new();
    match bench.try_gcc("static", "int main(void) { return 0; }", &["-static"]) {
        Some(program) => assert!(bench.check(&program).unwrap_err().contains("is a static executable")),
        None => atoll_skips::skip_part!("no static libc here"),
    }
    match bench.try_gcc("small", "int main(void) { return 0; }", &["-m32"]) {
        Some(program) => assert!(bench.check(&program).unwrap_err().contains("is a 32-bit program")),
        None => atoll_skips::skip_part!("no 32-bit libc here: apt-get install gcc-multilib"),
    }
    // The head alone decides; no compiler for other machines is needed.
    let head = |class: u8, machine: u16| {
        let mut head = vec![0x7f, b'E', b'L', b'F', class, 1, 1, 0];
        head.resize(18, 0);
        head.extend(machine.to_le_bytes());
        head.resize(64, 0);
        let path = bench.path("head");
        std::fs::write(&path, head).unwrap();
        bench.check(&path).unwrap_err()
    };
    assert!(head(1, 3).contains("is a 32-bit program"));
    assert!(head(2, 183).contains("for another architecture"));
    let plain = bench.gcc("plain", "int main(void) { return 0; }", &[]);
    let bytes = std::fs::read(&plain).unwrap();
    std::fs::write(&plain, &bytes[..bytes.len() / 2]).unwrap();
    assert!(bench.check(&plain).unwrap_err().contains("its ELF structure is damaged"));
}

#[test]
fn privileged_programs_are_refused() {
    let bench = Bench::new();
    let program = bench.gcc("plain", "int main(void) { return 0; }", &[]);
    for (mode, word) in [(0o4755, "setuid"), (0o2755, "setgid")] {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
        if program.metadata().unwrap().permissions().mode() & 0o6000 == 0 {
            atoll_skips::skip_part!("{word} cannot be set here");
            continue;
        }
        assert!(bench.check(&program).unwrap_err().contains(word));
    }
}

#[test]
fn scripts_are_as_good_as_their_interpreters() {
    let bench = Bench::new();
    let script = bench.path("script");
    let with = |first: &str| {
        std::fs::write(&script, format!("{first}\ntrue\n")).unwrap();
        bench.check(&script)
    };
    assert_eq!(with("#!/bin/sh"), Ok(Uses::Other));
    assert!(with("#!/nowhere/sh").unwrap_err().contains("interpreter /nowhere/sh is not there"));
    assert!(with("true").unwrap_err().contains("neither a program nor a script"));
    let itself = format!("#!{}", script.display());
    assert!(with(&itself).unwrap_err().contains("neither a program nor a script"));
}

#[test]
fn a_program_that_starts_others_may_start_one_that_is_managed() {
    let bench = Bench::new();
    let program =
        bench.gcc("starts", "#include <stdlib.h>\nint main(void) { return system(\"true\"); }", &[]);
    assert_eq!(bench.check(&program), Ok(Uses::Other));
}

/// A library in LD_PRELOAD counts as if the program were linked with it.
#[test]
fn a_libgomp_that_is_preloaded_manages_any_program() {
    let bench = Bench::new();
    let program = bench.gcc("plain", "int main(void) { return 0; }", &[]);
    assert_eq!(bench.check(&program), Ok(Uses::Alone));
    let runtime = bench.path("runtime.so");
    let checked = check(&program, &runtime, None, Some("libm.so.6:libgomp.so.1".as_ref()));
    assert_eq!(checked.map(|checked| checked.openmp).map_err(|e| e.to_string()), Ok(Uses::OpenMp));
}
