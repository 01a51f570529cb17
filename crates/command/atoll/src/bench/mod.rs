//! `atoll bench`: measures what memory, copies, messages and names cost on this machine, with a subcommand for each.
//!
//! `machine/` writes its measurements as a machine for `atoll sim`. The others print a table with the figures of the barrelfish
//! paper beside it, and can write it as CSV and as a drawing (`output.rs`).

mod channel;
mod cores;
mod far;
mod held;
mod latency;
mod lists;
mod machine;
mod mapping;
mod names;
mod openmp;
mod output;
mod pair;
mod paper;
mod perftest;
mod pin;
mod sampling;
pub(crate) mod segment;
mod statistics;
mod table;
mod throughput;

use std::io;
use std::process::ExitCode;

use atoll_memory::control::EXIT_SETUP;
use atoll_memory::sys::Errno;

use crate::cli::Bench;
pub(crate) use machine::Tlb;

/// The reason why nothing was measured.
#[derive(thiserror::Error, Debug)]
pub(crate) enum BenchError {
    #[error("{what} failed ({errno}): see atoll doctor", errno = io::Error::from_raw_os_error(.errno.0))]
    Kernel { what: &'static str, errno: Errno },
    #[error("{0} cannot be written: {1}")]
    Write(String, io::Error),
    #[error("{0} cannot be drawn: {1}")]
    Draw(String, String),
    #[error("the description that was made is wrong: {0}")]
    Description(#[from] atoll_machine::MachineError),
    #[error("this process may not use CPU {0}: choose two of {1:?}")]
    Cpu(usize, Vec<usize>),
    #[error("two processes need two CPUs to themselves, and this process may use one: see taskset")]
    OneCpu,
    #[error("the other process of the measurement failed: {0}")]
    Other(String),
    #[error("no lender called `{0}` answers (`atoll lenders` lists them)")]
    NoLender(String),
    #[error("{0}: {1}")]
    Channel(&'static str, Box<dyn std::error::Error + Send + Sync>),
}

/// Makes an error for `map_err`, with what failed.
fn kernel(what: &'static str) -> impl Fn(Errno) -> BenchError {
    move |errno| BenchError::Kernel { what, errno }
}

/// Does the measurement that is asked for, and prints the results.
pub(crate) fn bench(what: &Bench) -> ExitCode {
    let done = match what {
        Bench::Machine { output, lender } => machine::bench(output.as_deref(), lender.as_deref()),
        Bench::Latency(args) => latency::bench(args),
        Bench::Throughput(args) => throughput::bench(args),
        Bench::Channel(args) => channel::bench(args),
        Bench::Far(args) => far::bench(args),
        Bench::Names(args) => names::bench(args),
        Bench::Segment(args) => segment::bench(args),
        Bench::Sampling(args) => sampling::bench(args),
        Bench::Openmp(args) => openmp::bench(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}
