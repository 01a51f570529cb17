//! `atoll sweep`: measures a program's speed by near memory, policy and page size (the CMCP paper's Figure 8).

mod measure;
mod table;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use atoll_memory::control::EXIT_SETUP;
use atoll_pages::{PageSize, Size};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{Policies, Share, SweepArgs};
use crate::run::summary::many;
use measure::{MeasureError, Outcome, Point, measure};
use table::Cell;

/// The reason why there is no table.
#[derive(thiserror::Error, Debug)]
enum SweepError {
    #[error("{0}")]
    Measure(#[from] MeasureError),
    #[error("{0} could not be run with everything near ({1}): try atoll run -- {0}")]
    NoFootprint(String, String),
    #[error("{0} cannot be written: {1}")]
    Csv(String, std::io::Error),
}

/// Measures what the command line says and prints the table.
pub(crate) fn sweep(args: &SweepArgs) -> ExitCode {
    match try_sweep(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

fn try_sweep(args: &SweepArgs) -> Result<(), SweepError> {
    if let Some(path) = &args.csv {
        // An error should not come only after an hour.
        write(path, "")?;
    }
    let (pages, policies) = (pages(args), Policies::all(&args.policy));
    let runs = u64::from(args.runs);
    let points = pages.len() * (1 + args.near.len() * policies.len());
    let progress = progress(points as u64 * runs);

    let mut all_near = Vec::new();
    for &page in &pages {
        let point = Point { near: None, policy: policies[0], page };
        all_near.push(run(args, None, point, &progress)?);
    }
    let program = args.program.words[0].display().to_string();
    if all_near.iter().all(|cell| cell.footprint().is_none()) {
        progress.finish_and_clear();
        let how = all_near.iter().flat_map(|c| &c.outcomes).find_map(|outcome| match outcome {
            Outcome::Failed(how) => Some(how.clone()),
            Outcome::Done(_) => None,
        });
        return Err(SweepError::NoFootprint(program, how.unwrap_or_default()));
    }
    let mut cells = Vec::new();
    for &policy in &policies {
        for &page in &pages {
            let footprint = footprint(&all_near, page);
            for &share in &args.near {
                let point = Point { near: Some(near(share, footprint, page)), policy, page };
                cells.push(run(args, Some(share), point, &progress)?);
            }
        }
    }
    progress.finish_and_clear();
    println!("{program}: medians of {}; relative: time all near / time", many(args.runs.into(), "run"));
    println!();
    print!("{}", table::text(&cells, &all_near));
    if let Some(path) = &args.csv {
        write(path, &table::csv(all_near.iter().chain(&cells), &all_near))?;
    }
    Ok(())
}

/// Returns the page sizes, smallest first, each once.
fn pages(args: &SweepArgs) -> Vec<PageSize> {
    let mut pages = args.page.clone();
    pages.sort();
    pages.dedup();
    pages
}

/// Returns the near memory that the program needs with pages of this size; larger ones take more. Where it did not run with
/// them, it is the need with the first size with which it ran.
fn footprint(all_near: &[Cell], page: PageSize) -> u64 {
    let own = all_near.iter().find(|cell| cell.point.page == page).and_then(Cell::footprint);
    own.or_else(|| all_near.iter().find_map(Cell::footprint)).unwrap_or(0)
}

/// Returns a share in bytes, in whole pages, at least one: `atoll run` takes no limit of 0.
fn near(share: Share, footprint: u64, page: PageSize) -> Size {
    let bytes = match share {
        Share::Percent(percent) => (footprint as f64 * percent / 100.0) as u64,
        Share::Size(size) => size.0,
    };
    Size(page.pages(bytes).max(1) * page.bytes() as u64)
}

fn run(
    args: &SweepArgs,
    share: Option<Share>,
    point: Point,
    progress: &ProgressBar,
) -> Result<Cell, SweepError> {
    let mut outcomes = Vec::new();
    let near = share.map_or("all near".to_owned(), |share| share.to_string());
    for _ in 0..args.runs {
        progress.set_message(format!("{}, {} pages, {near}", point.policy, point.page));
        outcomes.push(measure(args, &point)?);
        progress.inc(1);
    }
    Ok(Cell { share, point, outcomes })
}

fn progress(runs: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(runs);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.tick();
    bar
}

fn write(path: &Path, text: &str) -> Result<(), SweepError> {
    std::fs::write(path, text).map_err(|e| SweepError::Csv(path.display().to_string(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_pages() {
        assert_eq!(near(Share::Percent(50.0), 10_000, PageSize::K4), Size(8192));
        assert_eq!(near(Share::Size(Size(1)), 0, PageSize::M2), Size(2 << 20));
    }
}
