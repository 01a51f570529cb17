//! Names the library, so that a program linked against it finds the one that `atoll trace` preloads.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libatoll_hooks.so");
    println!("cargo::rerun-if-changed=build.rs");
}
