//! The output of one run of a workload: its speed, whether it verified, its page faults, its noise.
//!
//! It is read from standard output, and for `atoll run` from the summary (JSON) on standard error.

use atoll_record::Figures;

use crate::said;

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    /// The updates or edges a second, in the program's unit; 0 of a program that has none.
    pub(crate) rate: f64,
    /// The page faults after the start, of a segment whose workers were counted.
    pub(crate) faults: Option<u64>,
    /// The number of physical pieces of the segment, and the bytes of the largest.
    pub(crate) pieces: Option<(u64, u64)>,
    /// The distribution of quanta, of the program `noise`.
    pub(crate) noise: Option<Noise>,
    /// The number of page walks, where the processor counts them.
    pub(crate) walks: Option<u64>,
}

/// The distribution of a fixed quantum of work, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Noise {
    /// The least, median, p90, p99, p99.9, p99.99 and greatest time.
    pub(crate) times: [f64; 7],
    /// The percentage by which the mean is above the least.
    pub(crate) percent: f64,
}

impl Outcome {
    /// Reads what a program printed.
    ///
    /// # Errors
    /// What is wrong with the output.
    pub(crate) fn read(stdout: &str, stderr: &str) -> Result<Outcome, String> {
        if !stdout
            .lines()
            .any(|line| line.starts_with("Verification: successful") || line.contains("not applicable"))
        {
            let told =
                |line: &&str| ["atoll:", "error:", "Verification:"].iter().any(|head| line.starts_with(head));
            let lines = || stderr.lines().chain(stdout.lines());
            let said = lines().find(told).or(lines().next());
            if let Some(refused) = said.filter(|line| line.starts_with("atoll:")) {
                return Err(said::without_name(refused).to_owned());
            }
            return Err(format!("it did not verify: {}", said.unwrap_or("it said nothing")));
        }
        let noise = Noise::read(stdout);
        let rate = rate(stdout).or(noise.map(|_| 0.0)).ok_or("its output has no speed")?;
        let figures: Option<Figures> = stderr
            .lines()
            .find(|line| line.starts_with('{'))
            .and_then(|line| serde_json::from_str(line).ok());
        let segment = figures.and_then(|figures| figures.segment);
        Ok(Outcome {
            rate,
            faults: segment.as_ref().and_then(atoll_record::segment::Segment::faults),
            pieces: segment.and_then(|s| Some((s.physical_pieces?, s.largest_piece_bytes?))),
            noise,
            walks: None,
        })
    }
}

/// Returns the number before `GUPS`, or behind `TEPS (…):`.
fn rate(stdout: &str) -> Option<f64> {
    stdout.lines().find_map(|line| {
        if let Some(updates) = line.strip_suffix(" GUPS") {
            return updates.rsplit(' ').next()?.parse().ok();
        }
        line.strip_prefix("TEPS (").and_then(|rest| rest.rsplit(": ").next()?.trim().parse().ok())
    })
}

impl Noise {
    fn read(stdout: &str) -> Option<Noise> {
        let line = stdout.lines().find_map(|line| line.strip_prefix("Microseconds: "))?;
        let mut numbers = line.split(' ').filter_map(|word| word.parse::<f64>().ok());
        let mut noise = Noise::default();
        for time in &mut noise.times {
            *time = numbers.next()?;
        }
        let line = stdout.lines().find_map(|line| line.strip_prefix("Noise: "))?;
        noise.percent = line.split(' ').next()?.parse().ok()?;
        Some(noise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_and_failures_are_none() {
        let good =
            "RandomAccess class S: 2^16 words, 262144 updates, 0.013113 GUPS\nVerification: successful\n";
        assert_eq!(Outcome::read(good, "").unwrap().rate, 0.013113);
        let good = "Root 5: 3 edges in 0.1 s, 1.0e2 TEPS\nTEPS (harmonic mean of 4): 1.2500e+08\nVerification: successful\n";
        assert_eq!(Outcome::read(good, "noise\n").unwrap().rate, 1.25e8);
        let bad = "RandomAccess class S: 1 GUPS\nVerification: failed (got 1, expected 0)\n";
        assert!(Outcome::read(bad, "").unwrap_err().contains("failed"));
        assert_eq!(Outcome::read("", "atoll: no segment\n").unwrap_err(), "no segment");
        assert!(Outcome::read("Verification: successful\n", "").is_err());
    }

    #[test]
    fn quanta_are_read() {
        let text = "Microseconds: least 40.72 median 47.74 p90 155.20 p99 12244.23 p99.9 20356.57 p99.99 24268.82 most 28341.57\n\
                    Noise: 715.202 % more than the least quantum on average\nVerification: successful\n";
        let noise = Outcome::read(text, "").unwrap().noise.unwrap();
        assert_eq!((noise.times[0], noise.times[6], noise.percent), (40.72, 28341.57, 715.202));
        assert_eq!(Noise::read("Microseconds: least x\n"), None);
    }

    #[test]
    fn faults_are_read_from_the_summary() {
        let json = r#"{"segment":{"physical_pieces":2,"largest_piece_bytes":7,"workers":[{"minor":0,"major":0},{"minor":3,"major":1}]}}"#;
        let out = "x 1.5 GUPS\nVerification: successful\n";
        let outcome = Outcome::read(out, json).unwrap();
        assert_eq!((outcome.faults, outcome.pieces), (Some(4), Some((2, 7))));
        let json = r#"{"segment":{"workers":[{"minor":0,"major":null}]}}"#;
        assert_eq!(Outcome::read(out, json).unwrap().faults, None);
    }
}
