//! `atoll repro popcorn`: the nine programs on the paper's two machines, simulated under each of its protocols.
//!
//! Source: SYSTOR'20, section 5.2 and figure 2, whose printed numbers `papers/popcorn.toml` has. What two nodes of this machine do
//! is measured by `benches/nodes`. The simulation has computing, faults, links and barriers (`atoll sim --nodes`).

use atoll_machine::Machine;
use atoll_machine::job::{Consistency, JobOutcome, JobSetup};
use serde::Deserialize;

use super::ReproError;
use super::capture::Run;
use super::claims::{self, Claim, claim};
use super::page::{self, tell};
use super::steps::Steps;
use crate::cli::ReproArgs;
use crate::plot::Bars;
use crate::run::summary::write_aligned;
use crate::sim::replay::SimError;

const POPCORN: &str = include_str!("../../../../../papers/popcorn.toml");
/// The number of workers, half of them on each node.
const WORKERS: u32 = 16;
/// The iterations of each program: the first is not prefetched for, as nothing is known of it yet.
const ITERATIONS: u32 = 4;
/// The bars of figure 2 behind the first one, which is one node: names, protocols, and whether pages are fetched ahead.
const BARS: [(&str, Consistency, bool); 4] = [
    ("SC", Consistency::Sc, false),
    ("MW no smart", Consistency::Mw, false),
    ("MW", Consistency::Smart, false),
    ("MWPF", Consistency::Smart, true),
];
/// The programs whose invalidations come in batches (section 5.2.3), and those whose read faults go (section 5.2.4).
const BATCHED: [&str; 6] = ["bt", "sp", "lud", "lavamd", "kmeans", "cg"];
const FETCHED: [&str; 5] = ["bt", "sp", "cg", "lud", "kmeans"];

/// The paper's numbers that are used here; `benches/nodes` uses others of the file.
#[derive(Debug, Deserialize)]
struct Paper {
    average: Average,
    #[serde(rename = "program")]
    programs: Vec<Program>,
    claims: Claims,
}

#[derive(Debug, Deserialize)]
struct Average {
    smart_percent: f64,
    smart_prefetch_percent: f64,
}

#[derive(Debug, Deserialize)]
struct Program {
    name: String,
    paper: String,
    smart_percent: Option<f64>,
    smart_prefetch_percent: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Claims {
    batched_percent: [f64; 2],
    read_faults_removed_percent: [f64; 2],
}

/// The results of one program: on one node, and one for each bar.
struct Row<'p> {
    program: &'p Program,
    alone: JobOutcome,
    bars: Vec<JobOutcome>,
}

impl Row<'_> {
    /// Returns the percent by which a bar is faster than SC.
    fn gain(&self, bar: usize) -> f64 {
        (self.bars[0].elapsed as f64 / self.bars[bar].elapsed.max(1) as f64 - 1.0) * 100.0
    }

    /// Returns the percent of MW's invalidations that come in batches; `None` where there are none.
    fn batched(&self) -> Option<f64> {
        let all = &self.bars[1].all;
        let sum = all.invalidations + all.batched;
        (sum > 0).then(|| all.batched as f64 * 100.0 / sum as f64)
    }

    /// Returns the percent of read faults that prefetching removes; `None` where there are none.
    fn removed(&self) -> Option<f64> {
        let (without, with) = (self.bars[2].all.read_faults, self.bars[3].all.read_faults);
        (without > 0).then(|| (1.0 - with as f64 / without as f64) * 100.0)
    }
}

/// Simulates the programs and prints the results.
pub(super) fn popcorn(args: &ReproArgs) -> Result<(), ReproError> {
    let paper: Paper = toml::from_str(POPCORN).map_err(|e| ReproError::Paper("popcorn", e))?;
    let machine = Machine::shipped("xeon-e5-2620+thunderx").map_err(SimError::from)?;
    let class = if args.quick { "S" } else { "W" };
    let mut steps = Steps::new("popcorn", paper.programs.len());
    let mut rows = Vec::new();
    for program in &paper.programs {
        steps.next(&format!("{} {class} with {WORKERS} workers on one node and on two", program.name));
        // The programs have no such option that have nothing to repeat.
        let iterations = if program.name == "ep" { 1 } else { ITERATIONS };
        let run = Run {
            program: &program.name,
            class,
            iterations,
            options: &[],
            regions: &[],
            filter: 32,
            parts: (1, 1),
        };
        let (trace, _) = run.trace_of(args, WORKERS, 0)?;
        let simulate = |nodes, consistency, prefetch| {
            let workers = trace.workers;
            trace.job(&machine, JobSetup { workers, nodes, consistency, prefetch, stretch: 0 }, 0)
        };
        let alone = simulate(1, Consistency::Sc, false)?;
        let bars = BARS.iter().map(|&(_, consistency, prefetch)| simulate(2, consistency, prefetch));
        rows.push(Row { program, alone, bars: bars.collect::<Result<_, _>>()? });
    }
    print(&rows, class);
    figure(&rows, args)?;
    claims::print(&judged(&paper, &rows));
    Ok(())
}

fn print(rows: &[Row<'_>], class: &str) {
    tell!("Popcorn (Chuang and others, SYSTOR'20) on the simulated machine xeon-e5-2620+thunderx");
    tell!(
        "class {class}, {WORKERS} workers, half on each node (the paper: 16 and 96, larger inputs); the paper prints few bars as numbers"
    );
    tell!(
        "\nFigure 2: speed over one node; then percent faster than SC, paper / ours; invalidations in batches; read faults gone"
    );
    let mut table = vec![vec![String::new()]];
    table[0].extend(BARS.iter().map(|(name, ..)| (*name).to_owned()));
    table[0].extend(["MW over SC", "MWPF over SC", "batched", "prefetched"].map(str::to_owned));
    let percent = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}%"));
    for row in rows {
        let mut line = vec![row.program.paper.clone()];
        let speed = |bar: &JobOutcome| format!("{:.2}", row.alone.elapsed as f64 / bar.elapsed.max(1) as f64);
        line.extend(row.bars.iter().map(speed));
        line.push(format!("{} / {:.1}%", percent(row.program.smart_percent), row.gain(2)));
        line.push(format!("{} / {:.1}%", percent(row.program.smart_prefetch_percent), row.gain(3)));
        line.extend([percent(row.batched()), percent(row.removed())]);
        table.push(line);
    }
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_aligned(&mut out, &table);
    page::tell_text(&out);
}

fn figure(rows: &[Row<'_>], args: &ReproArgs) -> Result<(), ReproError> {
    let path = args.out.join("popcorn-2.svg");
    std::fs::create_dir_all(&args.out).map_err(|e| ReproError::Write(args.out.display().to_string(), e))?;
    let bars = rows.iter().flat_map(|row| {
        row.bars.iter().zip(BARS).map(|(bar, (name, ..))| {
            (format!("{} {name}", row.program.paper), row.alone.elapsed as f64 / bar.elapsed.max(1) as f64)
        })
    });
    let title = "Figure 2: speed on two nodes over one, simulated".to_owned();
    Bars { title, x: "speed over one node", bars: bars.collect() }
        .draw(&path)
        .map_err(|what| ReproError::Draw(path.display().to_string(), what))
}

/// Returns the paper's claims of section 5.2.
fn judged(paper: &Paper, rows: &[Row<'_>]) -> Vec<Claim> {
    let mean = |bar: usize| rows.iter().map(|row| row.gain(bar)).sum::<f64>() / rows.len().max(1) as f64;
    let named = |names: &[&str]| -> Vec<&Row<'_>> {
        rows.iter().filter(|row| names.contains(&row.program.name.as_str())).collect()
    };
    let list = |rows: &[&Row<'_>], value: &dyn Fn(&Row<'_>) -> Option<f64>| {
        let words = rows.iter().map(|row| {
            format!("{} {}", row.program.name, value(row).map_or("none".to_owned(), |v| format!("{v:.1}%")))
        });
        words.collect::<Vec<_>>().join(", ")
    };
    let least = |rows: &[&Row<'_>], value: &dyn Fn(&Row<'_>) -> Option<f64>| {
        rows.iter().filter_map(|row| value(row)).fold(f64::INFINITY, f64::min)
    };
    let Average { smart_percent, smart_prefetch_percent } = paper.average;
    let (batched, fetched) = (named(&BATCHED), named(&FETCHED));
    let ([most_least, most_most], [gone_least, gone_most]) =
        (paper.claims.batched_percent, paper.claims.read_faults_removed_percent);
    let harmed = rows.iter().filter(|row| row.gain(1) < row.gain(2)).count();
    vec![
        claim(
            format!("smart regions are {smart_percent}% faster than SC on average of nine programs"),
            format!("{:.1}% (rule: faster)", mean(2)),
            mean(2) > 0.0,
        ),
        claim(
            format!("with prefetch, {smart_prefetch_percent}% faster, more than without"),
            format!("{:.1}% (rule: faster than without)", mean(3)),
            mean(3) > mean(2),
        ),
        claim(
            "many writers everywhere are often worse than in smart regions alone (CG, Blackscholes, Hotspot, Kmeans)",
            format!("worse for {harmed} of {} programs (rule: for some)", rows.len()),
            harmed > 0,
        ),
        claim(
            format!("{most_least} to {most_most}% of invalidations come in batches"),
            format!("{} (rule: over 90%)", list(&batched, &|row| row.batched())),
            least(&batched, &|row| row.batched()) > 90.0,
        ),
        claim(
            format!("prefetching removes {gone_least} to {gone_most}% of read faults"),
            format!("{} (rule: over half)", list(&fetched, &|row| row.removed())),
            least(&fetched, &|row| row.removed()) > 50.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_nine_programs_are_there() {
        let paper: Paper = toml::from_str(POPCORN).unwrap();
        assert_eq!(paper.programs.len(), 9);
        for name in BATCHED.iter().chain(&FETCHED) {
            assert!(paper.programs.iter().any(|program| program.name == *name), "{name}");
        }
    }
}
