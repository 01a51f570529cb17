//! `atoll diff`: prints two profiles side by side, variable by variable and region by region.
//!
//! Samples of two runs are compared as accesses a second of the run and as shares, as runs differ in length and in period.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use atoll_memory::control::EXIT_SETUP;
use atoll_record::profile::{Profile, ProfileError};

use super::tally::Tally;
use super::{is_whole, open, plain, status};
use crate::cli::DiffArgs;

/// The number of rows of a table.
const ROWS: usize = 20;

/// Compares what the command line names.
pub(crate) fn diff(args: &DiffArgs) -> ExitCode {
    let load = |path| -> Result<(Side, bool), ProfileError> {
        let profile = open(path)?;
        let whole = is_whole(path, &profile);
        Ok((Side::of(&profile)?, whole))
    };
    let sides = [&args.before, &args.after].map(|path| load(path).map_err(|e| (path, e)));
    match sides {
        [Ok((before, first)), Ok((after, second))] => {
            print!("{}", table(&before, &after));
            status(first && second)
        }
        [Err((path, error)), _] | [_, Err((path, error))] => {
            eprintln!("atoll: {}: {error}", path.display());
            ExitCode::from(EXIT_SETUP as u8)
        }
    }
}

/// The part of a profile that is compared.
struct Side {
    seconds: f64,
    overhead: Option<f64>,
    /// The shares of all samples, by kind, name and place.
    variables: BTreeMap<String, f64>,
    /// The seconds, by name and place.
    regions: BTreeMap<String, f64>,
}

impl Side {
    fn of(profile: &Profile) -> Result<Side, ProfileError> {
        let tally = Tally::of(profile)?;
        let all = tally.all.total().max(1) as f64;
        let mut variables = BTreeMap::new();
        for (number, counts) in tally.hottest() {
            let variable = &profile.variables[number as usize];
            let name = format!("{:<9} {}  {}", variable.kind.word(), variable.name, variable.place());
            *variables.entry(name.trim_end().to_owned()).or_default() += counts.total() as f64 / all;
        }
        let mut regions: BTreeMap<String, f64> = BTreeMap::new();
        for phase in &profile.phases {
            let region = &profile.regions[phase.region as usize];
            let end = phase.end_ns.min(profile.end_ns);
            *regions.entry(region.name.clone()).or_default() +=
                end.saturating_sub(phase.begin_ns) as f64 * 1e-9;
        }
        let overhead = profile.trailer.as_ref().map(|trailer| trailer.overhead());
        Ok(Side { seconds: profile.seconds(), overhead, variables, regions })
    }
}

/// Returns rows with both sides' values, those that changed most first.
fn rows(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> Vec<(String, f64, f64)> {
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value = |side: &BTreeMap<String, f64>, name: &String| side.get(name).copied().unwrap_or(0.0);
    let mut rows: Vec<_> =
        names.into_iter().map(|name| (name.clone(), value(before, name), value(after, name))).collect();
    rows.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()).then_with(|| a.0.cmp(&b.0)));
    rows
}

fn table(before: &Side, after: &Side) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut out, before, after);
    out
}

fn write_table(out: &mut String, before: &Side, after: &Side) -> std::fmt::Result {
    let change =
        |a: f64, b: f64| if a > 0.0 { format!("{:+.1}%", 100.0 * (b - a) / a) } else { "new".to_owned() };
    writeln!(
        out,
        "  seconds  {:.3} before, {:.3} after ({})",
        before.seconds,
        after.seconds,
        change(before.seconds, after.seconds)
    )?;
    if let (Some(a), Some(b)) = (before.overhead, after.overhead) {
        writeln!(out, "  overhead of profiling  {:.2}% before, {:.2}% after", 100.0 * a, 100.0 * b)?;
    }
    writeln!(out, "\n  {:>7} {:>7} {:>8}  variable, share of samples", "before", "after", "points")?;
    for (name, a, b) in rows(&before.variables, &after.variables).into_iter().take(ROWS) {
        let (a, b) = (100.0 * a, 100.0 * b);
        writeln!(out, "  {a:>6.1}% {b:>6.1}% {:>+8.1}  {}", b - a, plain(&name))?;
    }
    let regions = rows(&before.regions, &after.regions);
    if !regions.is_empty() {
        writeln!(out, "\n  {:>9} {:>9} {:>8}  region, seconds", "before", "after", "change")?;
    }
    for (name, a, b) in regions.into_iter().take(ROWS) {
        writeln!(out, "  {a:>9.3} {b:>9.3} {:>8}  {}", change(a, b), plain(&name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_most_comes_first() {
        let side = |a: f64, seconds: f64| Side {
            seconds,
            overhead: None,
            variables: [("a".to_owned(), a), ("b".to_owned(), 0.3)].into(),
            regions: [("r".to_owned(), seconds)].into(),
        };
        let text = table(&side(0.5, 2.0), &side(0.1, 1.0));
        let line = |n: usize| text.lines().nth(n).unwrap_or_default();
        assert!(line(0).contains("-50.0%"), "{text}");
        assert!(line(3).ends_with("-40.0  a"), "{text}");
        assert!(line(4).ends_with("+0.0  b"), "{text}");
    }
}
