//! The CMCP paper's numbers, as `papers/cmcp.toml` has them.
//!
//! The reports compare with these; nothing of the paper's is written anywhere else.

use serde::Deserialize;

const CMCP: &str = include_str!("../../../../../papers/cmcp.toml");

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    pub(super) table1: Table1,
    #[serde(rename = "program")]
    pub(super) programs: Vec<Program>,
    pub(super) text: Text,
    /// The causes of claims that do not hold.
    #[serde(default, rename = "cause")]
    pub(super) causes: Vec<Cause>,
}

/// The cause of a claim that does not hold here, as an experiment showed it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cause {
    /// The beginning of the claim.
    pub(super) claim: String,
    pub(super) because: String,
}

/// Table 1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table1 {
    pub(super) about: String,
    /// Whether the numbers are printed in the paper, and not read off a figure.
    pub(super) exact: bool,
    pub(super) cores: Vec<u32>,
    #[serde(rename = "row")]
    pub(super) rows: Vec<Row>,
}

/// A row of table 1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) program: String,
    pub(super) policy: String,
    pub(super) count: String,
    /// A value for each of the table's core counts.
    pub(super) values: Vec<u64>,
}

/// The paper's text about a program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    /// The name of atoll's program.
    pub(super) name: String,
    /// The name of the paper's program.
    pub(super) paper: String,
    /// The iterations of the paper's class; 0 where it does not say.
    pub(super) iterations: u32,
    pub(super) near_percent: f64,
    pub(super) near_source: String,
    pub(super) gain_percent: f64,
    pub(super) shows_at_once: bool,
    pub(super) turning_percent: Option<f64>,
    pub(super) private_percent: Option<f64>,
}

impl Program {
    /// Whether the program loses speed with this percentage of its memory near (section 5.3).
    pub(super) fn loses_at(&self, near: f64) -> bool {
        self.shows_at_once || self.turning_percent.is_some_and(|turning| near < turning)
    }
}

/// The paper's text about all programs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text {
    pub(super) relative_low: f64,
    pub(super) relative_high: f64,
    pub(super) regular_stops_at: u32,
    pub(super) few_mappers: usize,
    pub(super) native_at_half: f64,
}

/// Returns the paper. The file is part of this program, and a test reads it.
pub(super) fn cmcp() -> Result<Paper, toml::de::Error> {
    toml::from_str(CMCP)
}

impl Paper {
    /// Returns a cell of table 1.
    pub(super) fn cell(&self, program: &str, policy: &str, count: &str, cores: u32) -> Option<u64> {
        let column = self.table1.cores.iter().position(|&n| n == cores)?;
        let row = self
            .table1
            .rows
            .iter()
            .find(|r| r.program == program && r.policy == policy && r.count == count)?;
        row.values.get(column).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_table_1_is_there() {
        let paper = cmcp().unwrap();
        assert!(paper.table1.exact && paper.table1.rows.len() == 36);
        for program in &paper.programs {
            for policy in ["fifo", "lru", "cmcp"] {
                for count in ["faults", "invalidations", "tlb_misses"] {
                    for &cores in &paper.table1.cores {
                        assert!(paper.cell(&program.name, policy, count, cores).is_some());
                    }
                }
            }
        }
        let losing = paper.programs.iter().filter(|program| program.loses_at(50.0));
        assert_eq!(losing.map(|program| &*program.name).collect::<Vec<_>>(), ["bt", "lu", "stencil"]);
        assert_eq!(paper.cell("cg", "lru", "faults", 16), Some(204_362));
        assert_eq!(paper.cell("bt", "fifo", "tlb_misses", 56), Some(45_131_883));
        assert_eq!(paper.cell("bt", "fifo", "faults", 12), None);
    }
}
