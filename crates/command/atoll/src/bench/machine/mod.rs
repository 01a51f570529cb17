//! `atoll bench machine`: measures what translation, faults, interrupts and copies cost here, as a description for `atoll sim`.
//!
//! Each number is measured with the kernel calls that atoll's pager makes, without the pager. The medians are printed, and
//! written as a machine of `atoll-machine`. What cannot be measured here is assumed, and the description says so.

pub(super) mod clock;
mod copy;
mod describe;
pub(super) mod faults;
mod interrupts;
mod tlbs;
mod walks;

use atoll_machine::Machine;
use std::path::Path;

use super::BenchError;
pub(crate) use tlbs::Tlb;

/// A number and its source.
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

/// Measures this machine, and writes its description to `output`.
pub(super) fn bench(output: Option<&Path>, lender: Option<&str>) -> Result<(), BenchError> {
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|e| BenchError::Write(path.display().to_string(), e))
    };
    if let Some(path) = output {
        // An error should not come only after the measurement.
        write(path, "")?;
    }
    let text = describe::describe(lender)?;
    // The file is written only if the description can be read back.
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
