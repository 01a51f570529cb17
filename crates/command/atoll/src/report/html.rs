//! Writes the HTML file of `atoll report`, and opens it in a browser.
//!
//! `atoll-report` makes its content.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use atoll_record::profile::Profile;
use atoll_report::ReportError;

use crate::cli::ReportArgs;

/// Writes the file and, on a desktop, opens it.
///
/// # Errors
/// See [`ReportError`].
pub(super) fn html(args: &ReportArgs, profile: &Profile) -> Result<(), ReportError> {
    let path = args.output.clone().unwrap_or_else(|| beside(&args.file));
    let file = File::create(&path)?;
    // A report that is cut off is worse than none. A target that is no file of its own (a pipe) stays as it is.
    let own = file.metadata().is_ok_and(|m| m.is_file());
    if let Err(error) = atoll_report::write_html(profile, BufWriter::new(file)) {
        if own {
            let _ = fs::remove_file(&path);
        }
        return Err(error);
    }
    eprintln!("atoll: the report is in {}", path.display());
    if !args.no_open && std::io::stderr().is_terminal() && has_desktop() {
        show(&path);
    }
    Ok(())
}

/// Returns the record's name with another ending, in the same directory.
fn beside(record: &Path) -> PathBuf {
    let ending = OsStr::new("html");
    if record.extension() == Some(ending) {
        let mut name = record.as_os_str().to_owned();
        name.push(".html");
        return name.into();
    }
    record.with_extension(ending)
}

fn has_desktop() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty()))
}

/// Passes the file to the desktop's browser. It is no failure if there is none, as the file's name was printed.
fn show(path: &Path) {
    let quiet = || Stdio::null();
    let browser = Command::new("xdg-open").arg(path).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
    if let Ok(mut child) = browser {
        // The command returns once the browser has the file.
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_never_takes_the_records_place() {
        assert_eq!(beside(Path::new("/a/app.atoll")), Path::new("/a/app.html"));
        assert_eq!(beside(Path::new("app.html")), Path::new("app.html.html"));
    }
}
