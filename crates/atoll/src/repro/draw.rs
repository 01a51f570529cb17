//! The figures, drawn: one SVG file for each of the paper's.
//!
//! [`report`](super::report) prints the same numbers. Text is left to whoever shows the file, so no fonts are needed here.

use std::path::Path;

use atoll_pages::PageSize;
use plotters::prelude::*;

use super::ReproError;
use super::cmcp::Results;
use super::plan::{self, Line, TOP};

/// A line of a figure.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// One figure.
struct Figure<'a> {
    file: String,
    title: String,
    x: &'a str,
    y: &'a str,
    series: Vec<Series>,
}

/// Draws all of them into `dir`.
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
        draw(figure, &path).map_err(|what| ReproError::Draw(path.display().to_string(), what))?;
    }
    println!("\nfigures: {}/cmcp-*.svg", dir.display());
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
        series: series.collect(),
    }
}

fn draw(figure: &Figure<'_>, path: &Path) -> Result<(), String> {
    let say = |e: &dyn std::fmt::Display| e.to_string();
    let all = || figure.series.iter().flat_map(|series| &series.points);
    let (least, most) = all().fold((f64::INFINITY, 0.0_f64), |(l, m), (x, _)| (l.min(*x), m.max(*x)));
    let top = all().fold(0.0_f64, |most, (_, y)| most.max(*y)) * 1.05;
    if !least.is_finite() || most <= least || top <= 0.0 {
        return Err("there are no points to draw".to_owned());
    }
    let area = SVGBackend::new(path, (720, 460)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| say(&e))?;
    let mut chart = ChartBuilder::on(&area)
        .caption(&figure.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(least..most, 0.0..top)
        .map_err(|e| say(&e))?;
    chart.configure_mesh().x_desc(figure.x).y_desc(figure.y).draw().map_err(|e| say(&e))?;
    for (index, series) in figure.series.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(series.points.iter().copied(), colour.stroke_width(2)).point_size(3))
            .map_err(|e| say(&e))?
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.4))
        .draw()
        .map_err(|e| say(&e))?;
    area.present().map_err(|e| say(&e))
}
