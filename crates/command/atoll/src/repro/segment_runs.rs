//! The part of `atoll repro segmentation` that runs programs: under pages, direct segments and segmentation cores of this
//! machine.
//!
//! `crate::translations` runs them; `segmentation` simulates the talk's machine afterwards. Source: `hybrid-segmentation.txt`,
//! evaluation (RandomAccess, Graph500) and future work (several threads, OS noise).

use std::time::Duration;

use atoll_memory::segment::PageKind;

use super::claims::Claim;
use super::page::{self, tell};
use super::segmentation::{OVER_2M, OVER_4K};
use super::steps::Steps;
use crate::bench::segment::{graph500, randomaccess};
use crate::cli::ReproArgs;
use crate::machine::usable_cpus;
use crate::run::summary::{bytes, count, write_aligned_behind};
use crate::translations::rounds::{rate, skipped, speed};
use crate::translations::{Core, Measured, Noise, Plan, Translation, Workload, measure};

const SMALL: Translation = Translation::Native(None);
const LARGE: Translation = Translation::Native(Some(PageKind::Huge2M));
/// An i386 program is compared with the same program run natively.
const SMALL_32: Translation = Translation::Native32(None);
const LARGE_32: Translation = Translation::Native32(Some(PageKind::Huge2M));
/// All translations except QEMU, whose speed means nothing.
const TRANSLATIONS: [Translation; 12] = [
    SMALL,
    LARGE,
    Translation::Native(Some(PageKind::Huge1G)),
    Translation::Segment(PageKind::Transparent),
    Translation::Segment(PageKind::Huge2M),
    Translation::Segment(PageKind::Huge1G),
    SMALL_32,
    LARGE_32,
    Translation::Core(Core::Ldt),
    Translation::Core(Core::Process),
    Translation::Core(Core::Kvm32),
    Translation::Core(Core::Kvm64),
];
/// The translations under which noise is measured: pages, and each kind of segmentation core.
const NOISE_TRANSLATIONS: [Translation; 8] = [
    SMALL,
    Translation::Segment(PageKind::Transparent),
    Translation::Segment(PageKind::Huge1G),
    SMALL_32,
    Translation::Core(Core::Ldt),
    Translation::Core(Core::Process),
    Translation::Core(Core::Kvm32),
    Translation::Core(Core::Kvm64),
];
/// The number of programs that are run under all translations.
const LOADS: usize = 2;
/// The points of percent by which a gain may differ from the talk's.
const MARGIN: f64 = 5.0;

/// Runs all programs and prints the results; returns the talk's claims as judged on this machine.
pub(super) fn runs(args: &ReproArgs, steps: &mut Steps) -> Vec<Claim> {
    let loads: [Workload; LOADS] = if args.quick {
        [randomaccess(24, 4), graph500('A', 4)]
    } else {
        [randomaccess(26, 2), graph500('B', 4)]
    };
    let plan = |workers| Plan {
        programs: args.programs.clone(),
        rounds: if args.quick { 1 } else { 3 },
        workers,
        limit: Duration::from_secs(if args.quick { 60 } else { 300 }),
        budget: Duration::MAX,
    };
    tell!("Segments (Soma, Gerofi, Ishikawa, 2014) on this machine; a translation's best round counts");
    tell!(
        "the talk, on a Xeon Phi with one thread: {OVER_4K}% over 4K pages and {OVER_2M}% over 2M pages (Graph500)"
    );
    let mut claims = Vec::new();
    for workers in 1..=most_workers() {
        for load in &loads {
            let with = if workers > 1 { format!("{workers} workers") } else { "one worker".to_owned() };
            steps.next(&format!("{} with {with} under pages and segments of all kinds", load.program));
            let all = measure(&TRANSLATIONS, load, &plan(workers));
            tell!(
                "\n{} of {} with {workers} worker{}",
                load.program,
                bytes(load.bytes),
                if workers > 1 { "s" } else { "" }
            );
            let talk = load.program == "graph500" && workers == 1;
            page::tell_text(&table(&all, talk));
            if talk {
                claims.extend(judged(&all));
            }
        }
    }
    steps.next("noise");
    noise(args, &plan(1));
    steps.next("QEMU, for correctness");
    qemu(&plan(1));
    claims
}

/// Returns the most workers of a run: one, or two where there are two CPUs.
fn most_workers() -> u32 {
    usable_cpus().min(2)
}

/// Returns the number of steps of [`runs`].
pub(super) fn steps() -> usize {
    LOADS * most_workers() as usize + 2
}

fn aligned(rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_aligned_behind(&mut out, "  ", rows);
    out
}

/// Returns the table; with `talk` the talk's figures, of Graph500 with one thread, are a line of it.
fn table(all: &[Measured], talk: bool) -> String {
    let walks =
        |m: &Measured| m.runs.as_ref().ok().and_then(|runs| runs.iter().filter_map(|run| run.walks).min());
    let counted = all.iter().any(|m| walks(m).is_some());
    let mut heads = vec!["", "speed", "over 4K", "over 2M", "page faults"]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    if counted {
        heads.push("dTLB load misses (counted)".to_owned());
    }
    let mut rows = vec![heads];
    for measured in all.iter().filter(|m| m.runs.is_ok()) {
        let rate_here = measured.rate().unwrap_or(0.0);
        let (small, large) = match measured.translation {
            Translation::Native32(_)
            | Translation::Core(Core::Ldt | Core::Process | Core::Kvm32 | Core::Qemu) => (SMALL_32, LARGE_32),
            _ => (SMALL, LARGE),
        };
        let over =
            |base: Translation| rate(all, base).map_or_else(|| "-".to_owned(), |base| gain(rate_here, base));
        let mut row = vec![
            measured.translation.name(),
            speed(rate_here),
            over(small),
            over(large),
            measured.faults().map_or_else(|| "-".to_owned(), count),
        ];
        if counted {
            row.push(walks(measured).map_or_else(|| "-".to_owned(), count));
        }
        rows.push(row);
    }
    if talk {
        let percent = |n: f64| format!("+{n:.1}%");
        rows.push(vec!["the talk: a segment".to_owned(), "-".to_owned(), percent(OVER_4K), percent(OVER_2M)]);
    }
    let mut out = aligned(&rows) + &skipped(all);
    if !counted {
        out += "  page walks: this processor counts none for us; simulated ones are below (atoll sim)\n";
    }
    out
}

fn gain(rate: f64, base: f64) -> String {
    format!("{:+.1}%", (rate / base - 1.0) * 100.0)
}

/// Returns the talk's two figures beside ours, with the best segment that ran.
fn judged(all: &[Measured]) -> Vec<Claim> {
    let segments = [PageKind::Huge1G, PageKind::Huge2M, PageKind::Transparent].map(Translation::Segment);
    let Some((translation, best)) =
        segments.into_iter().find_map(|translation| Some((translation, rate(all, translation)?)))
    else {
        return Vec::new();
    };
    let claim = |base: Translation, percent: f64, pages: &str| {
        let base = rate(all, base)?;
        let ours = (best / base - 1.0) * 100.0;
        Some(Claim {
            paper: format!("Graph500: a segment is {percent}% better than {pages} pages"),
            ours: format!("{ours:.1}% here, {} (rule: within {MARGIN} points)", translation.name()),
            held: (ours - percent).abs() <= MARGIN,
            because: None,
        })
    };
    [claim(SMALL, OVER_4K, "4K"), claim(LARGE, OVER_2M, "2M")].into_iter().flatten().collect()
}

/// Prints the distribution of a fixed quantum of work, with and without segments.
fn noise(args: &ReproArgs, plan: &Plan) {
    let class = if args.quick { "S" } else { "W" };
    let load = Workload { program: "noise", arguments: vec![class.to_owned()], bytes: 8 << 20, blocks: 2 };
    let all = measure(&NOISE_TRANSLATIONS, &load, &Plan { rounds: 1, ..plan.clone() });
    tell!("\nOS noise: microseconds of a fixed quantum of work, one worker (the talk's future work)");
    let heads = ["", "least", "median", "p90", "p99", "p99.9", "p99.99", "most", "mean over least"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for measured in &all {
        let noise: Option<Noise> = measured.runs.as_ref().ok().and_then(|runs| runs.first()?.noise);
        let Some(noise) = noise else { continue };
        let mut row = vec![measured.translation.name()];
        row.extend(noise.times.iter().map(|time| format!("{time:.1}")));
        row.push(format!("{:+.1}%", noise.percent));
        rows.push(row);
    }
    page::tell_text(&format!("{}{}", aligned(&rows), skipped(&all)));
}

/// Prints whether the programs verify under QEMU; their speed does not matter.
fn qemu(plan: &Plan) {
    tell!("\nQEMU without acceleration, for correctness: class S");
    for program in ["randomaccess", "graph500"] {
        let load = Workload { program, arguments: vec!["S".to_owned()], bytes: 16 << 20, blocks: 1 };
        let all = measure(&[Translation::Core(Core::Qemu)], &load, &Plan { rounds: 1, ..plan.clone() });
        match &all[0].runs {
            Ok(_) => tell!("  {program}: verified"),
            Err(why) => tell!("  {program}: skipped: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translations::outcome::Outcome;

    #[test]
    fn gains_are_beside_the_talks() {
        let ran = |translation, rate| {
            let run = Outcome { rate, faults: Some(0), pieces: None, noise: None, walks: None };
            Measured { translation, runs: Ok(vec![run]) }
        };
        let all = [
            ran(SMALL, 1e8),
            ran(LARGE, 1.5e8),
            Measured { translation: Translation::Segment(PageKind::Huge1G), runs: Err("no pages".into()) },
            ran(Translation::Segment(PageKind::Huge2M), 1.62e8),
            ran(SMALL_32, 0.5e8),
            ran(Translation::Core(Core::Ldt), 0.5e8),
        ];
        let claims = judged(&all);
        assert_eq!(claims.iter().map(|c| c.held).collect::<Vec<_>>(), [false, true], "{claims:?}");
        let text = table(&all, true);
        let line = |start: &str| text.lines().find(|l| l.trim_start().starts_with(start)).unwrap().to_owned();
        assert!(line("segment, 2M").contains("+62.0%") && line("segment, 2M").contains("+8.0%"), "{text}");
        assert!(line("core ldt").contains("+0.0%") && line("the talk").contains("+81.0%"), "{text}");
        assert!(text.contains("skipped: no pages") && text.contains("atoll sim"), "{text}");
        assert!(judged(&all[..2]).is_empty());
    }
}
