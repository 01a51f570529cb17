//! The end of a profile: writes names and costs, and prints what the profile holds.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use atoll_record::profile::{Header, SamplerTotals, Trailer};
use atoll_record::{Figures, Run};
use atoll_sampling::recorder::Recorded;
use atoll_sampling::{SamplerError, symbols};

use crate::run::summary::count;
use crate::run::watch::Ending;

/// A program that has ended.
pub(super) struct Over {
    pub(super) wall_seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) ending: Ending,
    /// The runtime's counters, where the program ran under it.
    pub(super) under_runtime: Option<(Run, Figures)>,
}

/// Ends the record and prints what is in it; returns `false` if it is not whole.
pub(super) fn finish(
    header: &Header,
    output: &Path,
    recorded: Result<Recorded<BufWriter<File>>, SamplerError>,
    over: &Over,
) -> bool {
    let recorded = match recorded {
        Ok(recorded) => recorded,
        Err(error) => {
            eprintln!("atoll: nothing was sampled: {error}");
            return false;
        }
    };
    let trailer = trailer(&recorded, over);
    let mut place = output.to_owned();
    let written = match (recorded.writer, recorded.failed) {
        (Some(writer), _) => {
            let names = symbols::names(&recorded.wanted);
            let run = over.under_runtime.as_ref().map(|(run, _)| run);
            let figures = over.under_runtime.as_ref().map(|(_, figures)| figures);
            writer.finish(&names, run, figures, &trailer).and_then(|mut file| {
                place = place_of(file.get_ref(), output);
                file.flush()
            })
        }
        (None, Some(error)) => Err(error),
        (None, None) => Ok(()),
    };
    if let Err(error) = written {
        eprintln!(
            "atoll: the profile {} is cut off, as it could not be written: {error}; what is there can be read",
            output.display()
        );
        return false;
    }
    for (info, totals) in header.samplers.iter().zip(&trailer.samplers) {
        say(&info.name, totals);
    }
    if let Some(error) = &recorded.unsampled {
        let threads: u64 = trailer.samplers.iter().map(|t| t.unsampled).sum();
        eprintln!("atoll: {} threads could not be sampled: {error}", count(threads));
    }
    let target: f64 = header.samplers.iter().filter_map(|info| info.overhead_target).sum();
    let short = target > 0.0 && trailer.overhead() > target && trailer.own_seconds() < SHORT_SECONDS;
    let short = if short { ", as it ended before it could be held" } else { "" };
    eprintln!("atoll: {}{short}; {}", overhead(&trailer), header.choice);
    eprintln!("atoll: `atoll report {}` shows it", place.display());
    true
}

/// The processor time in seconds below which a run may cost more than the overhead to keep to, as the cost of beginning is not
/// spread over anything.
const SHORT_SECONDS: f64 = 0.1;

/// Returns the cost of sampling in parts that add up to the whole: all are shares of what the program would have used without
/// sampling.
fn overhead(trailer: &Trailer) -> String {
    let own = trailer.own_seconds();
    let percent = |seconds: f64| if own > 0.0 { 100.0 * seconds / own } else { 0.0 };
    // The parts are rounded as they are printed, so that they add up there, too.
    let printed = |percent: f64| (100.0 * percent).round() / 100.0;
    let (whole, inside) = (printed(100.0 * trailer.overhead()), printed(percent(trailer.sampling_seconds)));
    format!(
        "overhead {whole:.2}% of the program's own {own:.3} s of processor time ({inside:.2}% in the program, {:.2}% beside it)",
        (whole - inside).max(0.0)
    )
}

/// Returns the file's present name: another profile of the program that began later may have taken its name.
fn place_of(file: &File, output: &Path) -> PathBuf {
    let now = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let same = |now: &PathBuf| output.canonicalize().is_ok_and(|output| output == *now);
    now.ok().filter(|now| now.is_file() && !same(now)).unwrap_or_else(|| output.to_owned())
}

fn say(name: &str, totals: &SamplerTotals) {
    let mut notes = String::new();
    for (n, what) in [
        (totals.foreign, "without a known address"),
        (totals.lost, "lost in full buffers"),
        (totals.dropped, "dropped at the record's limit"),
    ] {
        if n > 0 {
            notes += &format!(", {} {what}", count(n));
        }
    }
    if totals.throttled > 0 {
        notes += &format!(", throttled {} times", count(totals.throttled));
    }
    eprintln!(
        "atoll: {} samples by {name} in {} wake-ups{notes}",
        count(totals.samples),
        count(totals.wakeups)
    );
}

fn trailer<W: Write>(recorded: &Recorded<W>, over: &Over) -> Trailer {
    let cost = |t: &SamplerTotals| t.records as f64 * t.seconds_a_sample;
    Trailer {
        samplers: recorded.samplers.clone(),
        marks_lost: recorded.lost,
        wall_seconds: over.wall_seconds,
        cpu_seconds: over.cpu_seconds,
        sampling_seconds: recorded.samplers.iter().map(cost).sum(),
        harvest_seconds: recorded.harvest_seconds,
        ending: over.ending.into(),
        program: recorded.program.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole was a share of the program's own time, and its parts were shares of all the time that was used.
    #[test]
    fn overheads_did_not_add_up() {
        let trailer =
            Trailer { cpu_seconds: 1.5, sampling_seconds: 0.5, harvest_seconds: 0.25, ..Trailer::default() };
        assert_eq!(
            overhead(&trailer),
            "overhead 75.00% of the program's own 1.000 s of processor time (50.00% in the program, 25.00% beside it)"
        );
        let trailer = Trailer {
            cpu_seconds: 1.000_04,
            sampling_seconds: 0.000_04,
            harvest_seconds: 0.000_04,
            ..Trailer::default()
        };
        // Each part would be rounded to nothing, and the whole would not.
        assert!(
            overhead(&trailer).ends_with("(0.00% in the program, 0.01% beside it)"),
            "{}",
            overhead(&trailer)
        );
        assert!(overhead(&Trailer::default()).starts_with("overhead 0.00%"));
    }
}
