//! Prints the CMCP paper's figures and its table 1 as text, our numbers beside the paper's.

use std::fmt::Write;

use atoll_pages::PageSize;

use super::capture::Run;
use super::cmcp::Results;
use super::page;
use super::paper::Program;
use super::plan::{self, Line, TOP};
use super::store::{REPLAYS, WITHIN};
use super::table1::{self, COUNTS, POLICIES, What};
use crate::run::summary::{bytes, count, write_aligned};

/// Prints all figures and the table.
pub(super) fn print(results: &Results) {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = whole(&mut out, results);
    page::tell_text(&out);
}

fn whole(out: &mut String, results: &Results) -> std::fmt::Result {
    let paper = &results.paper;
    writeln!(out, "CMCP (Gerofi and others, HPDC'14) on the simulated machine knc-5110p")?;
    writeln!(
        out,
        "calibrated: an interrupt for an invalidation takes {:.0} ns, at {:.2} cycles an instruction, so that bt at {TOP} cores with FIFO, private \
         page tables and 64% near has {:.3} of its speed without data movement (wanted: {:.3}); everything else is prediction",
        results.receive, results.cycles, results.calibrated.1, results.calibrated.0
    )?;
    for program in &paper.programs {
        if let Some(run) = results.run(program) {
            writeln!(
                out,
                "{}: ours is {} {}, {:.2} iterations of it, footprint {}, near limit {}% ({}); best p at {TOP} cores: {}",
                program.paper,
                run.program,
                run.class,
                run.share(),
                bytes(results.store.footprint(&program.name)),
                program.near_percent,
                program.near_source,
                results.best.get(&program.name).copied().unwrap_or_default()
            )?;
        }
    }
    let ((some, some_not), (more, more_not)) = (results.store.settled(), results.large.settled());
    writeln!(
        out,
        "each of {} simulations was replayed until two iterations brought as many pages within {}%, {} of them the most that \
         is done, {REPLAYS} times",
        some + more,
        WITHIN * 100.0,
        some_not + more_not
    )?;
    figure6(out, results)?;
    figure7(out, results)?;
    table1(out, results)?;
    table1::print(out, results)?;
    figure8(out, results)?;
    half(out, results)?;
    figure9(out, results)?;
    figure10(out, results)
}

fn head(first: &str, rest: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(rest).collect()
}

fn share(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.3}"))
}

fn percent(part: u64, all: u64) -> String {
    format!("{:.1}%", part as f64 * 100.0 / all.max(1) as f64)
}

fn figure6(out: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(
        out,
        "\nFigure 6: pages by the number of cores that use them (paper: cg and SCALE over half private;"
    )?;
    writeln!(out, "LU and BT over half by at most three, most by fewer than six)")?;
    let mut rows = vec![head("", ["cores", "1", "2", "3", "4-5", "6-15", "16 and more"].map(str::to_owned))];
    for program in &results.paper.programs {
        for &cores in &results.plan.cores {
            let Some(pages) = results.store.distribution(&program.name, cores) else { continue };
            let all = pages.iter().sum();
            let within = |from: usize, to: usize| percent(pages.iter().take(to + 1).skip(from).sum(), all);
            let cells = [(1, 1), (2, 2), (3, 3), (4, 5), (6, 15), (16, usize::MAX - 1)];
            rows.push(head(
                &program.name,
                [cores.to_string()].into_iter().chain(cells.map(|(from, to)| within(from, to))),
            ));
        }
    }
    write_aligned(out, &rows)
}

fn figure7(out: &mut String, results: &Results) -> std::fmt::Result {
    for (letter, program) in ["a", "b", "c", "d"].iter().zip(&results.paper.programs) {
        writeln!(
            out,
            "\nFigure 7{letter}: {}, simulated milliseconds an iteration by cores (the paper prints no numbers)",
            program.paper
        )?;
        let mut rows = vec![head("", results.plan.cores.iter().map(u32::to_string))];
        let iterations = results.run(program).map_or(1.0, Run::share);
        for line in Line::ALL {
            let cell = |&cores: &u32| {
                let seconds = results.seconds(program, line, cores);
                seconds.map_or("-".to_owned(), |s| format!("{:.1}", s * 1e3 / iterations))
            };
            rows.push(head(line.legend(), results.plan.cores.iter().map(cell)));
        }
        write_aligned(out, &rows)?;
    }
    Ok(())
}

fn table1(out: &mut String, results: &Results) -> std::fmt::Result {
    let table = &results.paper.table1;
    writeln!(out, "\n{}{}", table.about, if table.exact { "" } else { " (read off)" })?;
    writeln!(
        out,
        "paper / ours, ours times the paper's iterations over ours where it says how many; then relative to FIFO"
    )?;
    let cores: Vec<u32> =
        table.cores.iter().copied().filter(|cores| results.plan.cores.contains(cores)).collect();
    for program in &results.paper.programs {
        for (key, words, what) in COUNTS {
            let mut rows =
                vec![head(&format!("{} {words}", program.paper), cores.iter().map(|n| format!("{n} cores")))];
            for (policy, line) in POLICIES {
                let cell = |&cores: &u32| cell(results, program, (policy, line), (key, what), cores);
                rows.push(head(policy, cores.iter().map(cell)));
            }
            write_aligned(out, &rows)?;
        }
    }
    Ok(())
}

fn cell(
    results: &Results,
    program: &Program,
    (policy, line): (&str, Line),
    (key, what): (&str, What),
    cores: u32,
) -> String {
    let ours = |line: Line| table1::ours(results, program, line, cores, what);
    let theirs = |policy: &str| results.paper.cell(&program.name, policy, key, cores);
    let (Some(mine), Some(paper)) = (ours(line), theirs(policy)) else { return "-".to_owned() };
    let scale = match (program.iterations, results.run(program)) {
        (1.., Some(run)) => f64::from(program.iterations) / run.share(),
        _ => 1.0,
    };
    let mut text = format!("{} / {}", count(paper), count((mine * scale).round() as u64));
    if let (Some(fifo), Some(paper_fifo)) = (ours(Line::Fifo), theirs("fifo"))
        && line != Line::Fifo
    {
        let _ = write!(text, "  {:.2} / {:.2}", paper as f64 / paper_fifo as f64, mine / fifo);
    }
    text
}

fn figure8(out: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(
        out,
        "\nFigure 8: speed relative to no data movement by memory near, FIFO, 4K, private, {TOP} cores"
    )?;
    let columns = results.plan.near.iter().map(|near| format!("{near}%"));
    let mut rows = vec![head("", columns)];
    for program in &results.paper.programs {
        let cell = |&near: &f64| {
            share(results.store.relative(&program.name, &plan::by_near(Some(near)), &plan::by_near(None)))
        };
        rows.push(head(&program.name, results.plan.near.iter().map(cell)));
    }
    write_aligned(out, &rows)
}

/// Prints section 7: the remaining speed with half of the memory.
fn half(out: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(
        out,
        "\nHalf of the memory: speed relative to 4K pages without data movement, private, {TOP} cores"
    )?;
    let halves = |program: &Program| plan::halves(results.best.get(&program.name).copied().unwrap_or(0.5));
    let words = |point: &plan::Point| format!("{} {}", point.policy, point.page);
    for program in &results.paper.programs {
        let mut rows = vec![head("", halves(program).iter().map(words))];
        let cell = |point| share(results.store.relative(&program.name, point, &plan::by_near(None)));
        rows.push(head(&program.name, halves(program).iter().map(cell)));
        write_aligned(out, &rows)?;
    }
    Ok(())
}

fn figure9(out: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(out, "\nFigure 9: speed of CMCP relative to FIFO by the ratio p, {TOP} cores")?;
    let mut rows = vec![head("", results.plan.ratios.iter().map(|p| format!("p={p}")))];
    for program in &results.paper.programs {
        let fifo = Line::Fifo.point(TOP, program.near_percent, 0.0);
        let cell = |&p: &f64| {
            share(results.store.relative(&program.name, &plan::by_ratio(program.near_percent, p), &fifo))
        };
        rows.push(head(&program.name, results.plan.ratios.iter().map(cell)));
    }
    write_aligned(out, &rows)
}

fn figure10(out: &mut String, results: &Results) -> std::fmt::Result {
    for (letter, program) in ["a", "b", "c", "d"].iter().zip(&results.paper.programs) {
        let class =
            results.plan.large.iter().find(|run| run.program == program.name).map_or("", |run| run.class);
        writeln!(
            out,
            "\nFigure 10{letter}: {} {class}, speed relative to 4K pages without data movement, FIFO, private, {TOP} cores",
            program.name
        )?;
        let columns = results.plan.near_by_page.iter().map(|near| format!("{near}%"));
        let mut rows = vec![head("", ["all".to_owned()].into_iter().chain(columns))];
        for size in PageSize::ALL {
            let cell = |near: Option<f64>| {
                let base = plan::by_page(PageSize::K4, None);
                share(results.large.relative(&program.name, &plan::by_page(size, near), &base))
            };
            let limits = results.plan.near_by_page.iter().map(|near| Some(*near));
            rows.push(head(&size.to_string(), [None].into_iter().chain(limits).map(cell)));
        }
        write_aligned(out, &rows)?;
    }
    Ok(())
}
