//! The page of all papers, `index.html`: what `atoll repro` printed of each, its claims and its figures.
//!
//! Each paper's file prints by `tell!` and [`claims`](super::claims), which keep what they print here. What came of a
//! paper stays in a file beside the page, so that papers may be run on different days.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::ReproError;
use super::claims::Claim;
use crate::cli::PaperArg;

/// What came of one paper.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Part {
    /// The command that was run.
    pub(super) command: String,
    /// The seconds that it took.
    pub(super) seconds: u64,
    /// What it printed.
    text: String,
    claims: Vec<Claim>,
}

/// What the paper that is run now has told.
static TOLD: Mutex<Part> =
    Mutex::new(Part { command: String::new(), seconds: 0, text: String::new(), claims: Vec::new() });

fn told() -> MutexGuard<'static, Part> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints text, and keeps it for the page.
pub(super) fn tell_text(text: &str) {
    print!("{text}");
    told().text.push_str(text);
}

/// Keeps claims for the page.
pub(super) fn claim(claims: &[Claim]) {
    told().claims.extend_from_slice(claims);
}

/// Begins a paper, of which nothing has been told.
pub(super) fn begin() {
    *told() = Part::default();
}

/// Prints a line, and keeps it for the page.
macro_rules! tell {
    ($($words:tt)*) => {
        $crate::repro::page::tell_text(&(format!($($words)*) + "\n"))
    };
}
pub(super) use tell;

/// How a paper's numbers came about here.
const fn kind(paper: PaperArg) -> &'static str {
    match paper {
        PaperArg::Cmcp => "Simulated, from traces of programs that ran under emulation.",
        PaperArg::Segmentation => {
            "Measured on this machine, its segmentation cores partly emulated (QEMU); the talk's machine simulated."
        }
        PaperArg::Pebs => "Measured on this machine; many nodes simulated.",
        PaperArg::Popcorn => {
            "Simulated, from traces of programs that ran under emulation. Measured on two nodes: make bench-nodes."
        }
        PaperArg::Barrelfish => "Measured on this machine, beside what the paper measured on its own.",
        PaperArg::Foresight => "No paper's. Simulated, from traces of programs that ran under emulation.",
    }
}

fn title(paper: PaperArg) -> &'static str {
    match paper {
        PaperArg::Cmcp => "CMCP: core-map count based page replacement (Gerofi and others, HPDC'14)",
        PaperArg::Segmentation => "Hybrid segmentation (Soma, Gerofi and Ishikawa, 2014)",
        PaperArg::Pebs => "PEBS based memory access tracking (Roca Nonell and others, MCHPC'18)",
        PaperArg::Popcorn => "Shared memory in non-cache-coherent domains (Chuang and others, SYSTOR'20)",
        PaperArg::Barrelfish => "Barrelfish on Xeon Phi (ETH Zurich, 2014)",
        PaperArg::Foresight => "Replacement policies beside Belady's MIN",
    }
}

/// Keeps what the paper told in the directory of results.
pub(super) fn keep(paper: PaperArg, out: &Path, command: String, seconds: u64) -> Result<(), ReproError> {
    let part = Part { command, seconds, ..std::mem::take(&mut *told()) };
    let path = out.join(format!("{}.json", paper.name()));
    let wrong = |e| ReproError::Write(path.display().to_string(), e);
    fs::create_dir_all(out).map_err(wrong)?;
    let text = serde_json::to_vec_pretty(&part).map_err(|e| wrong(e.into()))?;
    fs::write(&path, text).map_err(wrong)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the names of the paper's figures in the directory, in order.
fn figures(paper: PaperArg, out: &Path) -> Vec<String> {
    let names = fs::read_dir(out).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let start = format!("{}-", paper.name());
    let mut names: Vec<String> =
        names.filter(|name| name.starts_with(&start) && name.ends_with(".svg")).collect();
    names.sort();
    names
}

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>atoll and five papers</title><style>
body { font: 15px/1.45 sans-serif; max-width: 76em; margin: 2em auto; padding: 0 1em; }
pre { background: #f4f4f4; padding: 1em; overflow-x: auto; font-size: 12px; line-height: 1.3; }
img { max-width: 36em; width: 100%; }
.held::before { content: \"held \"; color: #060; font-weight: bold; }
.not::before { content: \"not held \"; color: #a00; font-weight: bold; }
small { color: #555; }
</style></head><body><h1>atoll and five papers</h1>
<p>Each paper's tables and figures as they come out here, and each claim with the rule that judges it. The paper's number is printed
beside ours wherever the paper prints one. <code>docs/papers.md</code> says for each section what stands for it.</p>
";

/// Writes the page of all papers that have been run into the directory of results.
pub(super) fn write(out: &Path) -> Result<(), ReproError> {
    let mut page = HEAD.to_owned();
    for paper in PaperArg::ALL {
        let path = out.join(format!("{}.json", paper.name()));
        let part = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Part>(&text).ok());
        // Writing to a string does not fail.
        let _ = section(&mut page, paper, part.as_ref(), &figures(paper, out));
    }
    page.push_str("</body></html>\n");
    let path = out.join("index.html");
    fs::write(&path, page).map_err(|e| ReproError::Write(path.display().to_string(), e))?;
    println!("\npage: {}", path.display());
    Ok(())
}

fn section(page: &mut String, paper: PaperArg, part: Option<&Part>, figures: &[String]) -> std::fmt::Result {
    writeln!(page, "<h2 id=\"{}\">{}</h2>\n<p>{}</p>", paper.name(), escaped(title(paper)), kind(paper))?;
    let Some(part) = part else {
        return writeln!(page, "<p>Not run yet: <code>atoll repro {}</code></p>", paper.name());
    };
    let Part { command, seconds, text, claims } = part;
    writeln!(
        page,
        "<p><small><code>{}</code> took {} min {} s.</small></p>",
        escaped(command),
        seconds / 60,
        seconds % 60
    )?;
    if !claims.is_empty() {
        let held = claims.iter().filter(|claim| claim.held).count();
        writeln!(page, "<h3>Claims: {held} of {} held</h3>\n<ul>", claims.len())?;
        for Claim { paper, ours, held, because } in claims {
            let class = if *held { "held" } else { "not" };
            let because =
                because.as_ref().map_or(String::new(), |why| format!("<br><small>{}</small>", escaped(why)));
            writeln!(
                page,
                "<li class=\"{class}\">{}; ours: {}{because}</li>",
                escaped(paper),
                escaped(ours)
            )?;
        }
        writeln!(page, "</ul>")?;
    }
    for figure in figures {
        writeln!(page, "<img src=\"{figure}\" alt=\"{figure}\">")?;
    }
    writeln!(page, "<pre>{}</pre>", escaped(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_section_for_each_paper_whether_it_was_run_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        begin();
        tell_text("a < b\n");
        let because = Some("too small".to_owned());
        claim(&[Claim { paper: "faster".into(), ours: "slower".into(), held: false, because }]);
        keep(PaperArg::Popcorn, out, "atoll repro popcorn".into(), 61).unwrap();
        fs::write(out.join("popcorn-2.svg"), "<svg/>").unwrap();
        write(out).unwrap();
        let page = fs::read_to_string(out.join("index.html")).unwrap();
        assert_eq!(page.matches("<h2 ").count(), 6);
        assert_eq!(page.matches("Not run yet").count(), 5);
        for wanted in ["a &lt; b", "0 of 1 held", "too small", "1 min 1 s", "<img src=\"popcorn-2.svg\""] {
            assert!(page.contains(wanted), "{wanted}");
        }
    }
}
