//! Draws measurements and simulations as lines and bars in SVG files.
//!
//! `atoll repro` draws the papers' figures with it, and `atoll bench` its tables. The program that shows the file draws the
//! text, so no fonts are needed here.

use std::path::Path;

use plotters::prelude::*;

/// A line of a figure.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// The labels of the x axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// The number itself.
    Plain,
    /// Sizes, each twice the one before: x is the logarithm to base 2 of bytes.
    Sizes,
}

/// A figure of lines.
pub(crate) struct Figure<'a> {
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) scale: Scale,
    pub(crate) series: Vec<Series>,
}

/// A figure of horizontal bars, each with its name and length.
pub(crate) struct Bars<'a> {
    pub(crate) title: String,
    pub(crate) x: &'a str,
    pub(crate) bars: Vec<(String, f64)>,
}

/// Returns `2^x` bytes in words.
fn size(x: f64) -> String {
    atoll_pages::Size(x.exp2().round() as u64).to_string()
}

fn say(e: impl std::fmt::Display) -> String {
    e.to_string()
}

impl Figure<'_> {
    /// Writes the figure to the SVG file at `path`; on failure returns the reason.
    pub(crate) fn draw(&self, path: &Path) -> Result<(), String> {
        let all = || self.series.iter().flat_map(|series| &series.points);
        let (least, most) = all().fold((f64::INFINITY, 0.0_f64), |(l, m), (x, _)| (l.min(*x), m.max(*x)));
        let top = all().fold(0.0_f64, |most, (_, y)| most.max(*y)) * 1.05;
        if !least.is_finite() || most <= least || top <= 0.0 {
            return Err("there are no points to draw".to_owned());
        }
        let area = SVGBackend::new(path, (720, 460)).into_drawing_area();
        area.fill(&WHITE).map_err(say)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(least..most, 0.0..top)
            .map_err(say)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.x).y_desc(self.y);
        let label = |x: &f64| size(*x);
        if self.scale == Scale::Sizes {
            mesh.x_labels((most - least) as usize / 2 + 1).x_label_formatter(&label);
        }
        mesh.draw().map_err(say)?;
        for (index, series) in self.series.iter().enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            chart
                .draw_series(
                    LineSeries::new(series.points.iter().copied(), colour.stroke_width(2)).point_size(3),
                )
                .map_err(say)?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.4))
            .draw()
            .map_err(say)?;
        area.present().map_err(say)
    }
}

impl Bars<'_> {
    /// Writes the bars to the SVG file at `path`; on failure returns the reason.
    pub(crate) fn draw(&self, path: &Path) -> Result<(), String> {
        let most = self.bars.iter().fold(0.0_f64, |most, (_, x)| most.max(*x)) * 1.1;
        if most <= 0.0 {
            return Err("there are no bars to draw".to_owned());
        }
        let count = self.bars.len() as i32;
        let area = SVGBackend::new(path, (720, 90 + 26 * count.cast_unsigned())).into_drawing_area();
        area.fill(&WHITE).map_err(say)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(280)
            .build_cartesian_2d(0.0..most, (0..count).into_segmented())
            .map_err(say)?;
        // The first bar is at the top.
        let name = |segment: &SegmentValue<i32>| match segment {
            SegmentValue::CenterOf(at) => {
                self.bars.get((count - 1 - at) as usize).map_or(String::new(), |(name, _)| name.clone())
            }
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_labels(self.bars.len())
            .y_label_formatter(&name)
            .disable_y_mesh()
            .draw()
            .map_err(say)?;
        let bars = self.bars.iter().enumerate().map(|(index, (_, x))| {
            let at = count - 1 - index as i32;
            let corners = [(0.0, SegmentValue::Exact(at)), (*x, SegmentValue::Exact(at + 1))];
            let mut bar = Rectangle::new(corners, Palette99::pick(0).filled());
            bar.set_margin(4, 4, 0, 0);
            bar
        });
        chart.draw_series(bars).map_err(say)?;
        area.present().map_err(say)
    }
}
