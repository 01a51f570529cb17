//! Draws the figures: one SVG file for each of the paper's.
//!
//! [`report`](super::report) prints the same numbers. The program that shows the file draws the text, so no fonts are needed
//! here.

use std::path::Path;

use atoll_pages::PageSize;

use super::ReproError;
use super::cmcp::Results;
use super::page::tell;
use super::plan::{self, Line, TOP};
use crate::plot::{Figure, Scale, Series};

/// Draws all figures into `dir`.
pub(super) fn figures(results: &Results, dir: &Path) -> Result<(), ReproError> {
    std::fs::create_dir_all(dir).map_err(|e| ReproError::Write(dir.display().to_string(), e))?;
    let mut figures = vec![figure8(results), figure9(results)];
    for (letter, index) in ["a", "b", "c", "d"].iter().zip(0..) {
        figures.push(figure7(results, letter, index));
        figures.push(figure10(results, letter, index));
    }
    for cores in &results.plan.cores {
        figures.push(figure6(results, *cores));
    }
    for figure in &figures {
        let path = dir.join(format!("cmcp-{}.svg", figure.file));
        figure.draw(&path).map_err(|what| ReproError::Draw(path.display().to_string(), what))?;
    }
    tell!("\nfigures: {}/cmcp-*.svg", dir.display());
    Ok(())
}

fn figure6(results: &Results, cores: u32) -> Figure<'static> {
    let series = results.paper.programs.iter().map(|program| {
        let pages = results.store.distribution(&program.name, cores).unwrap_or_default();
        let all = pages.iter().sum::<u64>().max(1) as f64;
        let share = |(n, &pages): (usize, &u64)| (n as f64, pages as f64 * 100.0 / all);
        Series { name: program.name.clone(), points: pages.iter().enumerate().skip(1).map(share).collect() }
    });
    Figure {
        file: format!("6-{cores}-cores"),
        title: format!("Figure 6: pages by cores that use them, {cores} cores"),
        x: "cores that use a page",
        y: "percent of pages",
        scale: Scale::Plain,
        series: series.collect(),
    }
}

fn figure7(results: &Results, letter: &str, index: usize) -> Figure<'static> {
    let program = &results.paper.programs[index];
    let series = Line::ALL.into_iter().map(|line| {
        let point = |&cores: &u32| Some((f64::from(cores), results.seconds(program, line, cores)?));
        Series { name: line.legend().into(), points: results.plan.cores.iter().filter_map(point).collect() }
    });
    Figure {
        file: format!("7{letter}"),
        title: format!("Figure 7{letter}: {}", program.paper),
        x: "cores",
        y: "simulated seconds",
        scale: Scale::Plain,
        series: series.collect(),
    }
}

fn figure8(results: &Results) -> Figure<'static> {
    let series = results.paper.programs.iter().map(|program| {
        let speed = |&near: &f64| {
            let (point, base) = (plan::by_near(Some(near)), plan::by_near(None));
            Some((near, results.store.relative(&program.name, &point, &base)?))
        };
        Series { name: program.name.clone(), points: results.plan.near.iter().filter_map(speed).collect() }
    });
    Figure {
        file: "8".into(),
        title: format!("Figure 8: relative speed by memory, FIFO, {TOP} cores"),
        x: "percent of memory near",
        y: "relative speed",
        scale: Scale::Plain,
        series: series.collect(),
    }
}

fn figure9(results: &Results) -> Figure<'static> {
    let series = results.paper.programs.iter().map(|program| {
        let fifo = Line::Fifo.point(TOP, program.near_percent, 0.0);
        let speed = |&p: &f64| {
            let point = plan::by_ratio(program.near_percent, p);
            Some((p, results.store.relative(&program.name, &point, &fifo)?))
        };
        Series { name: program.name.clone(), points: results.plan.ratios.iter().filter_map(speed).collect() }
    });
    Figure {
        file: "9".into(),
        title: format!("Figure 9: CMCP by the ratio p, {TOP} cores"),
        x: "p",
        y: "speed relative to FIFO",
        scale: Scale::Plain,
        series: series.collect(),
    }
}

fn figure10(results: &Results, letter: &str, index: usize) -> Figure<'static> {
    let program = &results.paper.programs[index];
    let series = PageSize::ALL.into_iter().map(|size| {
        let speed = |&near: &f64| {
            let base = plan::by_page(PageSize::K4, None);
            Some((near, results.large.relative(&program.name, &plan::by_page(size, Some(near)), &base)?))
        };
        Series {
            name: size.to_string(),
            points: results.plan.near_by_page.iter().filter_map(speed).collect(),
        }
    });
    Figure {
        file: format!("10{letter}"),
        title: format!("Figure 10{letter}: {} by page size, {TOP} cores", program.paper),
        x: "percent of memory near",
        y: "relative speed",
        scale: Scale::Plain,
        series: series.collect(),
    }
}
