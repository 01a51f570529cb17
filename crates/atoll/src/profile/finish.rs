//! The end of a profile: names, what it cost, and what is said of it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use atoll_record::profile::{Header, SamplerTotals, Trailer};
use atoll_record::{Figures, Run};
use atoll_sampling::recorder::Recorded;
use atoll_sampling::{SamplerError, symbols};

use crate::run::summary::count;
use crate::run::watch::Ending;

/// A program that is over.
pub(super) struct Over {
    pub(super) wall_seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) ending: Ending,
    /// What the runtime counted, where the program ran under it.
    pub(super) under_runtime: Option<(Run, Figures)>,
}

/// Ends the record and says what is in it; `false` if it is not whole.
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
    let written = match (recorded.writer, recorded.failed) {
        (Some(writer), _) => {
            let names = symbols::names(&recorded.wanted);
            let run = over.under_runtime.as_ref().map(|(run, _)| run);
            let figures = over.under_runtime.as_ref().map(|(_, figures)| figures);
            writer.finish(&names, run, figures, &trailer).and_then(|mut file| file.flush())
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
    eprintln!(
        "atoll: overhead {:.2}% of {:.2} s of processor time ({:.2}% in the program, {:.2}% beside it); {}",
        100.0 * trailer.overhead(),
        trailer.cpu_seconds,
        100.0 * trailer.sampling_seconds / trailer.cpu_seconds.max(1e-9),
        100.0 * trailer.harvest_seconds / trailer.cpu_seconds.max(1e-9),
        header.choice
    );
    eprintln!("atoll: `atoll report {}` shows it", output.display());
    true
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
    }
}
