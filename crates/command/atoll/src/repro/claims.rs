//! The CMCP paper's claims, each judged by the simulations.
//!
//! The rule of each judgement is written beside the figures, so that a reader can disagree with it. No rule is fitted.

use atoll_machine::Counts;
use atoll_pages::PageSize;
use serde::{Deserialize, Serialize};

use super::cmcp::Results;
use super::page::{self, tell};
use super::paper::Program;
use super::plan::{self, Line, TOP};
use super::table1;

/// The points of percent by which a gain may differ from the paper's and still be the same finding.
const GAIN_MARGIN: f64 = 5.0;
/// Half of the memory, in percent.
const HALF: f64 = 50.0;
/// The least factor of speed that counts as a gain.
const GAINS: f64 = 1.1;
/// Page sizes whose speeds differ by less than this share are as good.
const TIE: f64 = 0.02;
/// The least speed that counts as not degraded.
const UNDISTURBED: f64 = 0.95;

/// A claim of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// The paper's statement, its figure included.
    pub(super) paper: String,
    /// The result here.
    pub(super) ours: String,
    /// Whether the claim holds.
    pub(super) held: bool,
    /// The cause if it does not hold, as far as an experiment has shown it.
    pub(super) because: Option<String>,
}

pub(super) fn claim(paper: impl Into<String>, ours: impl Into<String>, held: bool) -> Claim {
    Claim { paper: paper.into(), ours: ours.into(), held, because: None }
}

/// Prints the list of claims.
pub(super) fn print(claims: &[Claim]) {
    tell!("\nClaims");
    for Claim { paper, ours, held, because } in claims {
        tell!("  {paper}; ours: {ours}: {}", if *held { "held" } else { "not held" });
        if let Some(because) = because {
            tell!("      {because}");
        }
    }
    page::claim(claims);
    let held = claims.iter().filter(|claim| claim.held).count();
    tell!("  {held} of {} held", claims.len());
}

/// Returns all claims.
pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let mut claims = Vec::new();
    for program in &results.paper.programs {
        claims.extend(sharing(results, program));
    }
    for program in &results.paper.programs {
        claims.extend(scaling(results, program));
    }
    for program in &results.paper.programs {
        claims.extend(lru(results, program));
    }
    for program in &results.paper.programs {
        claims.extend(invalidations(results, program));
    }
    for program in &results.paper.programs {
        claims.extend(gain(results, program));
    }
    claims.push(ratios(results));
    for program in &results.paper.programs {
        claims.extend(constraint(results, program));
    }
    for program in &results.paper.programs {
        claims.extend(page_sizes(results, program));
    }
    claims.extend(at_half(results));
    claims.extend(table1::claims(results));
    for claim in claims.iter_mut().filter(|claim| !claim.held) {
        let cause = results.paper.causes.iter().find(|cause| claim.paper.starts_with(&cause.claim));
        claim.because = cause.map(|cause| cause.because.clone());
    }
    claims
}

/// Judges section 7. Of programs that lose speed at half: CG turns at 35 % and has all of its speed at half, in the paper's
/// figure 8 as here.
fn at_half(results: &Results) -> Option<Claim> {
    let base = plan::by_near(None);
    let mut best: Option<(f64, String)> = None;
    for program in results.paper.programs.iter().filter(|program| program.loses_at(HALF)) {
        for point in plan::halves(results.best.get(&program.name).copied().unwrap_or(0.5)) {
            let speed = results.store.relative(&program.name, &point, &base)?;
            if best.as_ref().is_none_or(|(most, _)| speed > *most) {
                best = Some((speed, format!("{}, {}, {} pages", program.paper, point.policy, point.page)));
            }
        }
    }
    let ((best, which), paper) = (best?, results.paper.text.native_at_half);
    Some(claim(
        format!("up to {paper} of the speed without data movement with half of the memory"),
        format!("{best:.2} ({which}; rule: the best policy and page size within 0.1)"),
        (best - paper).abs() <= 0.1,
    ))
}

/// Judges section 5.2.
fn sharing(results: &Results, program: &Program) -> Option<Claim> {
    let pages = results.store.distribution(&program.name, TOP)?;
    let all = pages.iter().sum::<u64>().max(1) as f64;
    let within =
        |from: usize, to: usize| pages.iter().take(to + 1).skip(from).sum::<u64>() as f64 * 100.0 / all;
    Some(match program.private_percent {
        Some(least) => claim(
            format!("{}: over {least}% of pages are core private", program.paper),
            format!("{:.1}% at {TOP} cores", within(1, 1)),
            within(1, 1) > least,
        ),
        None => {
            let few = results.paper.text.few_mappers;
            let (some, most) = (within(1, 3), within(1, few - 1));
            claim(
                format!(
                    "{}: over half of pages are mapped by at most 3 cores, most by less than {few}",
                    program.paper
                ),
                format!("{some:.1}% and {most:.1}% at {TOP} cores"),
                some > 50.0 && most > 50.0,
            )
        }
    })
}

/// Judges section 5.4, on regular page tables.
fn scaling(results: &Results, program: &Program) -> Option<Claim> {
    let stop = results.paper.text.regular_stops_at;
    let few = results.paper.table1.cores.first().copied()?;
    let speedup =
        |line, from, to| Some(results.seconds(program, line, from)? / results.seconds(program, line, to)?);
    let first = speedup(Line::RegularFifo, few, stop)?;
    let (regular, private) = (speedup(Line::RegularFifo, stop, TOP)?, speedup(Line::Fifo, stop, TOP)?);
    Some(claim(
        format!(
            "{}: regular page tables gain from {few} to {stop} cores and not from there to {TOP}, where private ones do",
            program.paper
        ),
        format!(
            "{first:.2}, {regular:.2} and {private:.2} times as fast (rule: above {GAINS}, below, and above)"
        ),
        first > GAINS && regular < GAINS && private > GAINS,
    ))
}

fn per_core(results: &Results, program: &Program, line: Line, what: fn(&Counts) -> u64) -> Option<f64> {
    Some(results.store.get(&program.name, &results.point(program, line, TOP))?.per_worker(what))
}

/// Judges section 5.5.
fn lru(results: &Results, program: &Program) -> Option<Claim> {
    let faults = per_core(results, program, Line::Lru, Counts::page_ins)?
        / per_core(results, program, Line::Fifo, Counts::page_ins)?;
    let time = results.seconds(program, Line::Lru, TOP)? / results.seconds(program, Line::Fifo, TOP)?;
    let table = |policy| results.paper.cell(&program.name, policy, "faults", TOP);
    let paper = table("lru")? as f64 / table("fifo")? as f64;
    Some(claim(
        format!("{}: LRU has fewer faults than FIFO ({paper:.2} of them) yet is slower", program.paper),
        format!("{faults:.2} of the faults, {time:.2} of the time"),
        faults < 1.0 && time > 1.0,
    ))
}

/// Judges table 1.
fn invalidations(results: &Results, program: &Program) -> Option<Claim> {
    let what: fn(&Counts) -> u64 = |counts| counts.remote_invalidations;
    let ours = per_core(results, program, Line::Cmcp, what)? / per_core(results, program, Line::Fifo, what)?;
    let table = |policy| results.paper.cell(&program.name, policy, "invalidations", TOP);
    let paper = table("cmcp")? as f64 / table("fifo")? as f64;
    Some(claim(
        format!("{}: CMCP has {paper:.2} of FIFO's remote TLB invalidations, fewer than it", program.paper),
        format!("{ours:.2}"),
        ours < 1.0,
    ))
}

/// Judges section 5.4, on the gain.
fn gain(results: &Results, program: &Program) -> Option<Claim> {
    let fifo = results.seconds(program, Line::Fifo, TOP)?;
    let ours = (fifo / results.seconds(program, Line::Cmcp, TOP)? - 1.0) * 100.0;
    let paper = program.gain_percent;
    Some(claim(
        format!("{}: CMCP is {paper}% better than FIFO at {TOP} cores", program.paper),
        format!("{ours:.1}% (rule: within {GAIN_MARGIN} points)"),
        (ours - paper).abs() <= GAIN_MARGIN,
    ))
}

/// Judges section 5.6.
fn ratios(results: &Results) -> Claim {
    let best: Vec<String> = results.best.iter().map(|(program, p)| format!("{program} {p}")).collect();
    let of = |program: &str| results.best.get(program).copied().unwrap_or(0.5);
    let differ = results.best.values().any(|p| *p != of("cg"));
    claim(
        "the best p differs by program: low for CG, high for LU and SCALE",
        format!("{} (rule: CG's below those of LU and SCALE)", best.join(", ")),
        differ && of("cg") < of("lu") && of("cg") < of("stencil"),
    )
}

/// Judges section 5.3.
fn constraint(results: &Results, program: &Program) -> Option<Claim> {
    let relative =
        |near: f64| results.store.relative(&program.name, &plan::by_near(Some(near)), &plan::by_near(None));
    if program.shows_at_once {
        let near = results.plan.near.iter().copied().filter(|&near| near < 100.0).fold(0.0, f64::max);
        let ours = relative(near)?;
        return Some(claim(
            format!("{}: slower as soon as memory is below 100%", program.paper),
            format!("{ours:.2} of the speed at {near}% (rule: below {UNDISTURBED})"),
            ours < UNDISTURBED,
        ));
    }
    let turning = program.turning_percent?;
    let above = results.plan.near.iter().copied().filter(|&near| near >= turning).fold(100.0, f64::min);
    let below = results.plan.near.iter().copied().filter(|&near| near < turning).fold(0.0, f64::max);
    let (kept, lost) = (relative(above)?, relative(below)?);
    Some(claim(
        format!(
            "{}: no significant loss above about {turning}% of memory, a steady one below",
            program.paper
        ),
        format!("{kept:.2} of the speed at {above}%, {lost:.2} at {below}% (rule: {UNDISTURBED} between)"),
        kept >= UNDISTURBED && lost < UNDISTURBED,
    ))
}

/// Judges section 5.7.
fn page_sizes(results: &Results, program: &Program) -> Option<Claim> {
    let speed = |size, near| {
        let base = plan::by_page(PageSize::K4, None);
        results.large.relative(&program.name, &plan::by_page(size, near), &base)
    };
    let mut winners: Vec<(String, PageSize)> = Vec::new();
    for near in [None].into_iter().chain(results.plan.near_by_page.iter().map(|near| Some(*near))) {
        let mut best: Option<(f64, PageSize)> = None;
        for size in PageSize::ALL {
            let speed = speed(size, near)?;
            if best.is_none_or(|(most, _)| speed > most) {
                best = Some((speed, size));
            }
        }
        winners.push((near.map_or("all".to_owned(), |near| format!("{near}%")), best?.1));
    }
    let most = PageSize::ALL.iter().filter_map(|size| speed(*size, None)).fold(0.0, f64::max);
    let first_is_large = speed(PageSize::M2, None)? >= most * (1.0 - TIE);
    let list = winners.iter().map(|(near, size)| format!("{size} at {near}")).collect::<Vec<_>>().join(", ");
    if program.shows_at_once {
        let smaller_and_smaller = winners.windows(2).all(|pair| pair[1].1 <= pair[0].1);
        return Some(claim(
            format!(
                "{}: 2M pages win with much memory, then 64K, then 4K (a tie within {TIE} is none lost)",
                program.paper
            ),
            list,
            first_is_large
                && smaller_and_smaller
                && PageSize::ALL.iter().all(|size| winners.iter().any(|(_, winner)| winner == size)),
        ));
    }
    let beaten = results
        .plan
        .near_by_page
        .iter()
        .filter(|near| {
            speed(PageSize::K64, Some(**near)).unwrap_or(0.0)
                < speed(PageSize::K4, Some(**near)).unwrap_or(0.0)
        })
        .count();
    Some(claim(
        format!(
            "{}: 2M pages win with much memory (a tie within {TIE} is none lost); 64K pages beat 4K at every limit",
            program.paper
        ),
        format!("{list}; 64K below 4K at {beaten} of {} limits", results.plan.near_by_page.len()),
        first_is_large && beaten == 0,
    ))
}
