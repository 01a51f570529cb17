//! Measures nodes that do not share memory: pages and programs over UCX, through loopback and shaped links, beside UCX's own
//! round trip for a page.
//!
//! `shaped` makes the links, `message` measures UCX alone.

use std::path::PathBuf;

use crate::error::Error;
use crate::message;
use crate::micro::{self, Micro};
use crate::places::Places;
use crate::plan::Program;
use crate::setting::Setting;
use crate::shaped::{self, Link, Route};
use crate::sheet;
use crate::stats::median;

/// The rates of the links in Gbit/s: those of the paper's machines.
pub(crate) const RATES: [u32; 2] = [10, 56];
const PAGE: usize = 4096;
/// The settings in which programs are run over a link.
pub(crate) const SETTINGS: [Setting; 2] = [Setting::Sc, Setting::SmartPrefetch];

/// The measurements over one route.
pub(crate) struct Measured {
    pub(crate) name: String,
    /// The medians in microseconds.
    pub(crate) read: Option<f64>,
    pub(crate) upgrade: Option<f64>,
    /// UCX's own round trip: a message there, a page back.
    pub(crate) trip: f64,
    /// The rate in GB/s at which a region's pages are fetched ahead.
    pub(crate) fetch: Option<f64>,
    /// Each program with its seconds by [`SETTINGS`].
    pub(crate) programs: Vec<(&'static str, [Option<f64>; SETTINGS.len()])>,
}

/// The measurements over all routes.
#[derive(Default)]
pub(crate) struct Links {
    pub(crate) measured: Vec<Measured>,
    /// What could not be measured, and why.
    pub(crate) skipped: Vec<String>,
    pub(crate) wrong: Vec<String>,
}

/// Measures `programs` in `class`, each `runs` times, and single `steps`.
///
/// # Errors
/// If something cannot be started.
pub(crate) fn measure(
    places: &Places,
    steps: &Micro,
    programs: &[Program],
    class: &str,
    runs: u32,
) -> Result<Links, Error> {
    let mut links = Links::default();
    if let Err(why) = shaped::available() {
        links.skipped.push(format!("over UCX: {why}"));
        return Ok(links);
    }
    links.measured.push(over(places, &Route::Loopback, steps, &[], class, runs, &mut links.wrong)?);
    for rate in RATES {
        match Link::new(rate) {
            Ok(link) => {
                let route = Route::Link(link);
                let found = over(places, &route, steps, programs, class, runs, &mut links.wrong)?;
                links.measured.push(found);
            }
            Err(why) => links.skipped.push(format!("a link of {rate} Gbit/s: {why}")),
        }
    }
    Ok(links)
}

fn over(
    places: &Places,
    route: &Route,
    steps: &Micro,
    programs: &[Program],
    class: &str,
    runs: u32,
    wrong: &mut Vec<String>,
) -> Result<Measured, Error> {
    let name = route.name();
    places.say(&format!("{name}: single steps"));
    let mut told: Vec<(String, f64)> = Vec::new();
    for _ in 0..runs {
        for (program, setting) in [("faults", Setting::Sc), ("fetch", Setting::SmartPrefetch)] {
            let Some(path) = steps.program(program) else { continue };
            let outcome = places.run_over(&route.flags(), setting, path, &[])?;
            match outcome.failure_or_cut() {
                Some(why) => wrong.push(format!("{program}, {name}: {why}")),
                None => told.extend(micro::numbers(&outcome.stdout)),
            }
        }
    }
    let told = |what: &str| median(told.iter().filter(|(name, _)| name == what).map(|(_, value)| *value));
    let mut measured = Measured {
        read: told("read_single_us"),
        upgrade: told("upgrade_single_us"),
        fetch: told("fetch_gb_s"),
        trip: message::page_trip(route, PAGE)?,
        programs: Vec::new(),
        name,
    };
    for program in programs {
        let path: PathBuf = places.program(program.name);
        let mut seconds: [Vec<f64>; SETTINGS.len()] = Default::default();
        for _ in 0..runs {
            for (setting, seconds) in SETTINGS.into_iter().zip(&mut seconds) {
                let outcome = places.run_over(&route.flags(), setting, &path, &[class.to_owned()])?;
                match sheet::sample(&outcome) {
                    Ok(sample) => {
                        let (name, took) = (&measured.name, sample.seconds);
                        places.say(&format!("{} {class} {setting}, {name}: {took:.3} s", program.name));
                        seconds.push(took);
                    }
                    Err(why) => {
                        wrong.push(format!("{} {class}, {setting}, {}: {why}", program.name, measured.name));
                    }
                }
            }
        }
        measured.programs.push((program.name, seconds.map(median)));
    }
    Ok(measured)
}
