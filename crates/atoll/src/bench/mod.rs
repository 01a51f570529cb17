//! `atoll bench machine`: what translation, faults, interrupts and copies cost here, as a description `atoll sim` takes.
//!
//! Each number is measured by the kernel calls that atoll's pager makes, without the pager; the medians are printed, and
//! written as a machine of `atoll-machine`. What cannot be measured here is assumed, and says so.

mod clock;
mod copy;
mod describe;
mod faults;
mod interrupts;
mod pin;
mod tlbs;
mod walks;

use std::path::Path;
use std::process::ExitCode;

use atoll_machine::Machine;
use atoll_memory::control::EXIT_SETUP;
use atoll_memory::sys::Errno;

use crate::cli::Bench;

/// Why nothing was measured.
#[derive(thiserror::Error, Debug)]
pub(crate) enum BenchError {
    #[error("{what} failed ({errno}): see atoll doctor", errno = std::io::Error::from_raw_os_error(.errno.0))]
    Kernel { what: &'static str, errno: Errno },
    #[error("{0} cannot be written: {1}")]
    Write(String, std::io::Error),
    #[error("the description that was made is wrong: {0}")]
    Description(#[from] atoll_machine::MachineError),
}

/// For `map_err`: what failed.
fn kernel(what: &'static str) -> impl Fn(Errno) -> BenchError {
    move |errno| BenchError::Kernel { what, errno }
}

/// A number and where it comes from.
#[derive(Debug, Clone, PartialEq)]
struct Number {
    value: f64,
    source: String,
}

impl Number {
    fn measured(value: f64, how: &str) -> Self {
        Self { value, source: format!("measured: {how}") }
    }

    fn assumed(value: f64, why: &str) -> Self {
        Self { value, source: format!("assumed: {why}") }
    }
}

/// The middle of an odd number of measurements.
fn median<E>(mut once: impl FnMut() -> Result<f64, E>) -> Result<f64, E> {
    Ok(middle((0..ROUNDS).map(|_| once()).collect::<Result<_, E>>()?))
}

fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    all[all.len() / 2]
}

/// How often everything is measured.
const ROUNDS: usize = 7;

/// Measures this machine and prints what it found.
pub(crate) fn bench(what: &Bench) -> ExitCode {
    let Bench::Machine { output } = what;
    match measure(output.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

fn measure(output: Option<&Path>) -> Result<(), BenchError> {
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|e| BenchError::Write(path.display().to_string(), e))
    };
    if let Some(path) = output {
        // Not to be found out after the measurement.
        write(path, "")?;
    }
    let text = describe::describe()?;
    // What is written can be read, or nothing is.
    let machine = Machine::read("the measured machine", &text)?;
    println!("{}: {}\n", machine.name, machine.about);
    for (path, value, source) in machine.numbers() {
        println!("  {path:<36} {value:>8}  {source}");
    }
    if let Some(path) = output {
        write(path, &text)?;
        println!("\natoll sim --machine {} TRACE simulates it", path.display());
    }
    Ok(())
}
