//! Links the runtime so that its constructor runs before any other object's.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
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
}
