//! The Popcorn paper's numbers, as `papers/popcorn.toml` has them.
//!
//! The reports print them beside ours; nothing of the paper's is written anywhere else.

use serde::Deserialize;

use crate::error::Error;

const POPCORN: &str = include_str!("../../../papers/popcorn.toml");

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    pub(crate) machine: Machine,
    pub(crate) barrier: Barrier,
    pub(crate) average: Average,
    #[serde(rename = "program")]
    pub(crate) programs: Vec<Program>,
    pub(crate) claims: Claims,
}

/// The paper's machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    pub(crate) about: String,
    pub(crate) nodes: u32,
    pub(crate) workers: u32,
}

/// The paper's barrier.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Barrier {
    pub(crate) about: String,
    pub(crate) times_faster: f64,
}

/// The gains over all programs: percent faster than one writer at a time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Average {
    pub(crate) about: String,
    pub(crate) smart_percent: f64,
    pub(crate) smart_prefetch_percent: f64,
    pub(crate) faster_than_one_node: u32,
    pub(crate) faster_than_one_node_with_sc: u32,
}

/// The paper's text about a program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    /// The name of atoll's program.
    pub(crate) name: String,
    /// The name of the paper's program.
    pub(crate) paper: String,
    pub(crate) smart_percent: Option<f64>,
    pub(crate) smart_prefetch_percent: Option<f64>,
    /// The gain over the same setting without prefetch, in percent.
    pub(crate) prefetch_percent: Option<f64>,
    pub(crate) batched_percent: Option<f64>,
}

/// The ranges over several programs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claims {
    pub(crate) about: String,
    pub(crate) batched_percent: [f64; 2],
    pub(crate) read_faults_removed_percent: [f64; 2],
}

/// Returns the paper's numbers. The file is part of this program, and a test reads it.
///
/// # Errors
/// If the file is not as it should be.
pub(crate) fn popcorn() -> Result<Paper, Error> {
    toml::from_str(POPCORN).map_err(|e| Error::said(format!("papers/popcorn.toml: {e}")))
}

impl Paper {
    pub(crate) fn program(&self, name: &str) -> Option<&Program> {
        self.programs.iter().find(|p| p.name == name)
    }

    /// Returns the text about all programs.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Paper { machine, barrier, average, claims, .. } = self;
        vec![
            format!("{} nodes, {} workers. {}", machine.nodes, machine.workers, machine.about),
            format!("barrier {} times faster. {}", barrier.times_faster, barrier.about),
            format!(
                "smart {} % faster than sc, smart+prefetch {} %; faster than one node: {} of 9, with sc {}. {}",
                average.smart_percent,
                average.smart_prefetch_percent,
                average.faster_than_one_node,
                average.faster_than_one_node_with_sc,
                average.about
            ),
            format!(
                "{} to {} % of invalidations batched, {} to {} % of read faults removed. {}",
                claims.batched_percent[0],
                claims.batched_percent[1],
                claims.read_faults_removed_percent[0],
                claims.read_faults_removed_percent[1],
                claims.about
            ),
        ]
    }
}

impl Program {
    /// Returns the text about this program, in one line.
    pub(crate) fn said(&self) -> String {
        let mut said = vec![self.paper.clone()];
        let mut say = |value: Option<f64>, what: &str| {
            said.extend(value.map(|value| format!("{value} % {what}")));
        };
        say(self.smart_percent, "faster with smart");
        say(self.smart_prefetch_percent, "with prefetch");
        say(self.prefetch_percent, "by prefetch");
        say(self.batched_percent, "batched");
        said.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PROGRAMS;

    #[test]
    fn all_nine_programs_are_there() {
        let paper = popcorn().unwrap();
        for program in PROGRAMS {
            assert!(paper.program(program.name).is_some_and(|p| p.said().starts_with(&p.paper)));
        }
        assert_eq!(paper.programs.len(), PROGRAMS.len());
        assert_eq!(paper.program("hotspot").and_then(|p| p.prefetch_percent), Some(-4.0));
    }
}
