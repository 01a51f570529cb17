//! Runs a browser without a window, for the tests that look at reports in one.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Returns the path of a Chromium; `None` where there is none, and then the test is noted as one that did not run.
pub(crate) fn chromium() -> Option<&'static str> {
    let works = |name: &&&str| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = ["chromium", "chromium-browser", "google-chrome"].iter().find(works).copied();
    if found.is_none() {
        atoll_skips::whole(format_args!("there is no browser: apt-get install chromium"));
    }
    found
}

/// Runs a browser on the page, for a minute at most.
pub(crate) fn browse(browser: &str, folder: &Path, page: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1366,768"])
        .args(["--virtual-time-budget=20000", "--run-all-compositor-stages-before-draw"])
        .arg(format!("--user-data-dir={}", folder.join("browser").display()))
        .args(flags)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null());
    let (out, error) = (folder.join("out"), folder.join("error"));
    command.stdout(File::create(&out).expect("a file")).stderr(File::create(&error).expect("a file"));
    let mut child = command.spawn().expect("the browser starts");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if begun.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the browser did not end: {}", fs::read_to_string(&error).unwrap_or_default());
        }
        thread::sleep(Duration::from_millis(50));
    };
    let read = |path| fs::read(path).expect("read");
    Output { status, stdout: read(&out), stderr: read(&error) }
}
