//! `nodes`: runs programs on one node and on several, side by side, and measures single steps between nodes.
//!
//! Start reading at [`full`]. `sheet` measures one program, `micro` single steps, and `message` the transport alone.
//! `prediction` asks the simulator, `links` measures nodes over a network, `fair` nodes that have a CPU each, and `targets` prints the
//! targets.

mod error;
mod fair;
mod full;
mod links;
mod message;
mod micro;
mod paper;
mod places;
mod plan;
mod prediction;
mod process;
mod report;
mod setting;
mod shaped;
mod sheet;
mod stats;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Measures programs on one node and on several under every protocol, and what single steps cost
///
/// Local nodes share this machine's CPUs. Nothing else should run meanwhile.
#[derive(Parser, Debug)]
#[command(name = "nodes", max_term_width = 100)]
pub(crate) struct Options {
    /// Use class S, and 3 runs unless --runs says otherwise
    #[arg(long)]
    quick: bool,

    /// The number of runs of everything; the medians are printed [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,

    /// The number of local nodes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=16))]
    nodes: u32,

    /// The number of workers in every setting; at least as many as nodes [default: one a CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=256))]
    workers: Option<u32>,

    /// Run only these programs
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    programs: Vec<String>,

    /// Run all programs in this class [default: W, with --quick S]
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,

    /// Leave programs out
    #[arg(long)]
    no_programs: bool,

    /// Leave single steps out
    #[arg(long)]
    no_micro: bool,

    /// Leave the simulator's predictions out
    #[arg(long)]
    no_predictions: bool,

    /// Leave shaped links out
    #[arg(long)]
    no_links: bool,

    /// Leave out nodes that have a CPU each
    #[arg(long)]
    no_fair: bool,

    /// Measure nothing but nodes that have a CPU each
    #[arg(long, conflicts_with = "no_fair")]
    only_fair: bool,

    /// Cut a run after this number of seconds; it counts for nothing
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,

    /// Write every run to FILE
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// The atoll command [default: beside this one]
    #[arg(long, value_name = "FILE")]
    atoll: Option<PathBuf>,

    /// The built workloads [default: ../programs from this command]
    #[arg(long, value_name = "DIR")]
    programs_dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.only_fair {
        for others in [
            &mut options.no_micro,
            &mut options.no_programs,
            &mut options.no_predictions,
            &mut options.no_links,
        ] {
            *others = true;
        }
    }
    match full::full(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("nodes: {error}");
            ExitCode::FAILURE
        }
    }
}
