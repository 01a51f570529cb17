//! The barrelfish paper's numbers, as `papers/barrelfish.toml` has them.
//!
//! The tables of `atoll bench` print these beside ours; nothing of the paper's is written anywhere else.

use serde::Deserialize;

const BARRELFISH: &str = include_str!("../../../../../papers/barrelfish.toml");

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    pub(super) latency: Latency,
    pub(super) channel: Channel,
    pub(super) throughput: Throughput,
}

/// Table 5.1 of the paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Latency {
    pub(super) about: String,
    #[serde(rename = "row")]
    pub(super) rows: Vec<Memory>,
}

/// A row of table 5.1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    pub(super) memory: String,
    pub(super) ns: f64,
}

/// Table 5.2 of the paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Channel {
    pub(super) about: String,
    #[serde(rename = "row")]
    pub(super) rows: Vec<Location>,
}

/// A row of table 5.2: nanoseconds of a round trip.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Location {
    pub(super) location: String,
    pub(super) least: f64,
    pub(super) median: f64,
    /// The 99th percentile.
    pub(super) late: f64,
}

/// What section 5.4 and appendix A.5 say of engines and their service.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Throughput {
    pub(super) dma_from_bytes: u64,
    pub(super) service_cycles: f64,
    pub(super) service_hidden_bytes: u64,
}

/// Reads the file, which is part of this program; the test below checks that it is right.
pub(super) fn paper() -> Result<Paper, toml::de::Error> {
    toml::from_str(BARRELFISH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_numbers_can_be_read() {
        let paper = paper().unwrap();
        assert_eq!(paper.latency.rows.len(), 11);
        assert_eq!(paper.channel.rows[0].median, 155.0);
        assert_eq!(paper.throughput.dma_from_bytes, 16 << 10);
    }
}
