//! Writes a profile as trace events, which Perfetto reads: regions as slices, samples a second of the hottest variables as
//! counters.
//!
//! The format is Chrome's "Trace Event Format", in JSON.

use std::collections::BTreeMap;
use std::io::Write;

use atoll_record::profile::Profile;
use serde_json::json;

use super::{Failed, rows};
use crate::report::Tally;

/// The number of variables that get a counter.
const COUNTERS: usize = 20;
/// The most points of a counter over the whole run.
const POINTS: u64 = 2000;

/// Writes the profile's regions and samples.
///
/// # Errors
/// The error of reading or writing.
pub(super) fn write(profile: &Profile, to: &mut dyn Write) -> Result<(), Failed> {
    let mut first = true;
    let mut event = |to: &mut dyn Write, value: serde_json::Value| -> Result<(), Failed> {
        to.write_all(if first { b"{\"traceEvents\":[\n" } else { b",\n" })?;
        first = false;
        serde_json::to_writer(to, &value)?;
        Ok(())
    };
    let program = profile.header.arguments.first().cloned().unwrap_or_default();
    event(to, json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": program}}))?;
    for phase in &profile.phases {
        let end = phase.end_ns.min(profile.end_ns);
        let name = &profile.regions[phase.region as usize].name;
        let (ts, dur) = (micro(phase.begin_ns), micro(end.saturating_sub(phase.begin_ns)));
        event(
            to,
            json!({"ph": "X", "pid": 1, "tid": 1, "name": name, "cat": "region", "ts": ts, "dur": dur}),
        )?;
    }
    let hottest: Vec<u32> =
        Tally::of(profile)?.hottest().into_iter().take(COUNTERS).map(|(number, _)| number).collect();
    let step = (profile.end_ns / POINTS).max(1_000_000);
    let mut counts: BTreeMap<(u64, usize), u64> = BTreeMap::new();
    let mut locator = profile.locator();
    rows(profile, |row| {
        let variable = locator.place(&row.sample).variable;
        if let Some(place) = hottest.iter().position(|&number| Some(number) == variable) {
            *counts.entry((row.sample.time_ns / step, place)).or_default() += 1;
        }
        Ok(())
    })?;
    for slot in 0..=profile.end_ns / step {
        for (place, &number) in hottest.iter().enumerate() {
            let count = counts.get(&(slot, place)).copied().unwrap_or(0);
            // A counter that stays at zero needs no more points.
            if count == 0 && slot > 0 && !counts.contains_key(&(slot - 1, place)) {
                continue;
            }
            let name = &profile.variables[number as usize].name;
            let rate = count as f64 * 1e9 / step as f64;
            event(
                to,
                json!({"ph": "C", "pid": 1, "name": name, "ts": micro(slot * step), "args": {"samples/s": rate}}),
            )?;
        }
    }
    to.write_all(b"\n]}\n")?;
    Ok(())
}

fn micro(ns: u64) -> f64 {
    ns as f64 * 1e-3
}
