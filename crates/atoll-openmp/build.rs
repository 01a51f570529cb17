//! Links the runtime so that its constructor runs before any other object's.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
