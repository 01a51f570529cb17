//! The path of the library under test, shared by the integration tests.

use std::path::PathBuf;

/// `libatoll_openmp.so`, which cargo has built beside the test that calls this.
pub(crate) fn path() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its path");
    let deps = test.parent().expect("a test lies in a folder");
    let beside = deps.join("libatoll_openmp.so");
    let above = deps.parent().expect("deps lies in a folder").join("libatoll_openmp.so");
    [beside, above].into_iter().find(|path| path.exists()).expect("cargo has built libatoll_openmp.so")
}
