//! `atoll repro`: makes the papers' tables and figures, beside the papers' own numbers, and a page of all five.

mod barrelfish;
mod capture;
mod claims;
mod cmcp;
mod draw;
mod foresight;
mod kept;
mod noise;
mod page;
mod paper;
mod pebs;
mod plan;
mod popcorn;
mod report;
mod segment_runs;
mod segmentation;
mod steps;
mod store;
mod table1;

use std::process::ExitCode;
use std::time::Instant;

use atoll_memory::control::EXIT_SETUP;

use crate::cli::{PaperArg, ReproArgs};
use crate::sim::replay::SimError;

/// The reason why a paper could not be reproduced. A claim that does not hold is no error.
#[derive(thiserror::Error, Debug)]
enum ReproError {
    #[error("{0}")]
    Sim(#[from] SimError),
    #[error("papers/{0}.toml: {1}")]
    Paper(&'static str, toml::de::Error),
    #[error("{0} is not there: make programs, or say where they are with --programs")]
    NoProgram(String),
    #[error("atoll trace cannot be started: {0}")]
    Start(std::io::Error),
    #[error("{0} could not be traced ({1}): try atoll trace -o FILE -- {0}")]
    Capture(String, String),
    #[error("{0} could not be profiled ({1}): try atoll profile -- {0}")]
    Profile(String, String),
    #[error("{0} is not in the plan")]
    Missing(String),
    #[error("{0} cannot be written: {1}")]
    Write(String, std::io::Error),
    #[error("{0} cannot be drawn: {1}")]
    Draw(String, String),
}

/// Reproduces what the command line says.
pub(crate) fn repro(args: &ReproArgs) -> ExitCode {
    match try_repro(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

fn try_repro(args: &ReproArgs) -> Result<(), ReproError> {
    for paper in PaperArg::ALL.into_iter().filter(|&paper| args.paper.is_none_or(|asked| asked == paper)) {
        page::begin();
        let begin = Instant::now();
        match paper {
            PaperArg::Cmcp => cmcp::cmcp(args)?,
            PaperArg::Segmentation => segmentation::segmentation(args)?,
            PaperArg::Pebs => pebs::pebs(args)?,
            PaperArg::Popcorn => popcorn::popcorn(args)?,
            PaperArg::Barrelfish => barrelfish::barrelfish(args)?,
            PaperArg::Foresight => foresight::foresight(args)?,
        }
        let command = format!("atoll repro {}{}", paper.name(), if args.quick { " --quick" } else { "" });
        page::keep(paper, &args.out, command, begin.elapsed().as_secs())?;
        page::write(&args.out)?;
    }
    Ok(())
}
