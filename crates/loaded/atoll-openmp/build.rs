//! Links the runtime so that its constructor runs before any other object's.

fn main() {
    println!("cargo:rerun-if-env-changed=ATOLL_LINK_WITHOUT_INITFIRST");
    // Zig's linker, by which `make dist` links for old glibcs, has no such flag: scripts/initfirst marks the library afterwards.
    if std::env::var_os("ATOLL_LINK_WITHOUT_INITFIRST").is_none() {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    }
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=src/wrap/variadic.c");
    // Exceptions of the program pass through `pthread_once`; glibc's own checks would call what we wrap.
    cc::Build::new()
        .file("src/wrap/variadic.c")
        .flag("-fexceptions")
        .flag("-fno-builtin")
        .flag("-U_FORTIFY_SOURCE")
        .warnings(true)
        .compile("atoll_variadic");
    println!("cargo:rerun-if-changed=src/omp/team/me.c");
    cc::Build::new().file("src/omp/team/me.c").flag("-fvisibility=hidden").warnings(true).compile("atoll_me");
    println!("cargo:rerun-if-changed=src/omp/kmp/atomics.c");
    cc::Build::new()
        .file("src/omp/kmp/atomics.c")
        .flag("-fvisibility=hidden")
        .flag("-fno-strict-aliasing")
        .warnings(true)
        .compile("atoll_atomics");
}
