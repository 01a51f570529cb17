//! Table 1 cell by cell, as ratios to FIFO on 8 cores, and the claims about the whole table.
//!
//! [`report`](super::report) prints the counts themselves. Ratios need no common unit, so they compare programs of other sizes
//! and with other numbers of iterations. The other claims are in [`claims`](super::claims).

use atoll_machine::Counts;

use super::claims::{Claim, claim};
use super::cmcp::Results;
use super::paper::Program;
use super::plan::{Line, TOP};
use crate::run::summary::{count, write_aligned};

/// The share by which a cell may differ from the paper's and still count as the same.
const NEAR: f64 = 0.25;
/// The least share of cells that have to be the same.
const MOST: f64 = 5.0 / 6.0;
/// The share by which the numbers of TLB misses may differ between policies and still count as equal.
const AS_MANY: f64 = 0.1;

/// Returns one of a worker's counts.
pub(super) type What = fn(&Counts) -> u64;

/// Table 1's counts: names in `papers/cmcp.toml`, words, and the count here.
pub(super) const COUNTS: [(&str, &str, What); 3] = [
    ("faults", "page faults", Counts::page_ins),
    ("invalidations", "remote TLB invalidations", |counts| counts.remote_invalidations),
    ("tlb_misses", "dTLB misses", |counts| counts.tlb_misses),
];

/// Table 1's policies: names there, and the lines of figure 7.
pub(super) const POLICIES: [(&str, Line); 3] =
    [("fifo", Line::Fifo), ("lru", Line::Lru), ("cmcp", Line::Cmcp)];

/// Returns a worker's average.
pub(super) fn ours(results: &Results, program: &Program, line: Line, cores: u32, what: What) -> Option<f64> {
    Some(results.store.get(&program.name, &results.point(program, line, cores))?.per_worker(what))
}

/// Returns the core counts that both have, the fewest first.
fn cores(results: &Results) -> Vec<u32> {
    let theirs = &results.paper.table1.cores;
    theirs.iter().copied().filter(|cores| results.plan.cores.contains(cores)).collect()
}

/// Returns a cell over FIFO on the fewest cores: the paper's ratio, and ours.
fn ratios(
    results: &Results,
    program: &Program,
    (policy, line): (&str, Line),
    (key, what): (&str, What),
    cores: u32,
) -> Option<(f64, f64)> {
    let least = self::cores(results).first().copied()?;
    let table = |policy: &str, cores| Some(results.paper.cell(&program.name, policy, key, cores)? as f64);
    let paper = table(policy, cores)? / table("fifo", least)?;
    let here = ours(results, program, line, cores, what)? / ours(results, program, Line::Fifo, least, what)?;
    Some((paper, here))
}

fn is_near((paper, ours): (f64, f64)) -> bool {
    (ours - paper).abs() <= NEAR * paper
}

/// Prints the ratios; those that differ from the paper's are marked.
pub(super) fn print(out: &mut String, results: &Results) -> std::fmt::Result {
    use std::fmt::Write;
    let cores = cores(results);
    let least = cores.first().copied().unwrap_or_default();
    writeln!(
        out,
        "\nTable 1 over FIFO with {least} cores: paper / ours, with ! where ours is not within a quarter of it"
    )?;
    for program in &results.paper.programs {
        for (key, words, what) in COUNTS {
            let head = std::iter::once(format!("{} {words}", program.paper));
            let mut rows: Vec<Vec<String>> =
                vec![head.chain(cores.iter().map(|n| format!("{n} cores"))).collect()];
            for (policy, line) in POLICIES {
                let cell = |&cores: &u32| match ratios(results, program, (policy, line), (key, what), cores) {
                    Some((paper, ours)) => {
                        format!("{paper:.2} / {ours:.2}{}", if is_near((paper, ours)) { "" } else { " !" })
                    }
                    None => "-".to_owned(),
                };
                rows.push(std::iter::once(policy.to_owned()).chain(cores.iter().map(cell)).collect());
            }
            write_aligned(out, &rows)?;
        }
    }
    Ok(())
}

/// Returns the claims.
pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let mut claims = Vec::new();
    for program in &results.paper.programs {
        claims.extend(totals(results, program));
    }
    for program in &results.paper.programs {
        claims.extend(translations(results, program));
    }
    for (key, words, what) in &COUNTS[..2] {
        for program in &results.paper.programs {
            claims.push(cells(results, program, words, (key, *what)));
        }
    }
    claims
}

/// Judges FIFO's faults, summed over the cores.
fn totals(results: &Results, program: &Program) -> Option<Claim> {
    let least = cores(results).first().copied()?;
    let paper =
        |cores: u32| Some(results.paper.cell(&program.name, "fifo", "faults", cores)? * u64::from(cores));
    let here =
        |cores: u32| Some(ours(results, program, Line::Fifo, cores, Counts::page_ins)? * f64::from(cores));
    let (few, many) = (here(least)?, here(TOP)?);
    Some(claim(
        format!(
            "{}: FIFO's page faults of all cores do not grow from {least} to {TOP} cores ({} to {})",
            program.paper,
            count(paper(least)?),
            count(paper(TOP)?)
        ),
        format!("{:.2} times as many (rule: at most 1.1)", many / few),
        many <= 1.1 * few,
    ))
}

/// Judges section 5.5: misses of the TLB depend on the program.
fn translations(results: &Results, program: &Program) -> Option<Claim> {
    let misses = |line| ours(results, program, line, TOP, |counts| counts.tlb_misses);
    let fifo = misses(Line::Fifo)?;
    let (lru, cmcp) = (misses(Line::Lru)? / fifo, misses(Line::Cmcp)? / fifo);
    let paper = |policy: &str| Some(results.paper.cell(&program.name, policy, "tlb_misses", TOP)? as f64);
    let base = paper("fifo")?;
    Some(claim(
        format!(
            "{}: the policy hardly changes dTLB misses (LRU {:.2}, CMCP {:.2} of FIFO's)",
            program.paper,
            paper("lru")? / base,
            paper("cmcp")? / base
        ),
        format!("{lru:.2} and {cmcp:.2} (rule: within {AS_MANY})"),
        [lru, cmcp].iter().all(|share| (share - 1.0).abs() <= AS_MANY),
    ))
}

/// Judges the cells of one count.
fn cells(results: &Results, program: &Program, words: &str, count: (&str, What)) -> Claim {
    let cores = cores(results);
    let all: Vec<(f64, f64)> = POLICIES
        .iter()
        .flat_map(|policy| cores.iter().map(move |&cores| (*policy, cores)))
        .filter_map(|(policy, cores)| ratios(results, program, policy, count, cores))
        .collect();
    let near = all.iter().filter(|&&cell| is_near(cell)).count();
    claim(
        format!("{}: table 1's {words} by policy and cores, over FIFO's with the fewest", program.paper),
        format!("{near} of {} cells within a quarter (rule: 5 of 6)", all.len()),
        !all.is_empty() && near as f64 >= MOST * all.len() as f64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_of_the_papers_ratio() {
        assert!(
            is_near((0.4, 0.49)) && is_near((0.4, 0.31)) && !is_near((0.4, 0.51)) && !is_near((4.0, 2.9))
        );
    }
}
