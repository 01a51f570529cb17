//! Writes a profile as comma-separated values: a line a sample.

use std::io::Write;

use atoll_record::profile::Profile;

use super::row::COLUMNS;
use super::{Failed, rows};
use crate::csv::word;

/// Writes the profile's samples.
///
/// # Errors
/// The error of reading or writing.
pub(super) fn write(profile: &Profile, to: &mut dyn Write) -> Result<(), Failed> {
    writeln!(to, "{}", COLUMNS.join(","))?;
    rows(profile, |row| {
        let s = &row.sample;
        let (name, kind, place) = row
            .variable
            .map_or((String::new(), "", String::new()), |v| (word(&v.name), v.kind.word(), word(&v.place())));
        writeln!(
            to,
            "{},{},{},{},{:#x},{:#x},{},{},{:#x},{name},{kind},{place},{},{}",
            s.time_ns,
            word(row.sampler),
            s.worker,
            row.worker.map_or(0, |w| w.tid),
            s.address,
            row.page,
            row.access(),
            s.weight,
            s.ip,
            row.region.map_or(String::new(), |r| word(&r.name)),
            row.offset.map_or(String::new(), |offset| offset.to_string()),
        )?;
        Ok(())
    })
}
