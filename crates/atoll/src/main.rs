//! The `atoll` commands.
fn main() {}
