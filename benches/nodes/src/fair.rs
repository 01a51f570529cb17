//! Nodes that own their CPUs: two nodes with a CPU each beside one node on one CPU, which is what a user compares who adds a host.
//!
//! Each node's processes, its agent among them, run on one CPU alone, with one worker a node. Programs run in classes large enough that a
//! region takes 10 ms or more, over shared memory and over the links of `shaped`, with no flag but the hosts; programs of tasks with
//! `--home-alone off`, without which tasks stay where they were made.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use atoll_bench_common::table;

use crate::error::Error;
use crate::links::RATES;
use crate::places::Places;
use crate::process;
use crate::report::number;
use crate::shaped::{self, Link};
use crate::sheet;
use crate::stats::median;
use crate::targets::{SLOWER, line};

/// The routes that are measured: shared memory, then each link.
const ROUTES: usize = 1 + RATES.len();

/// A program, its arguments, and how many times as fast it is to be over shared memory and over the last link.
struct Program {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Flags of `atoll run` for two nodes, besides the hosts.
    flags: &'static [&'static str],
    aims: [f64; 2],
}

impl Program {
    /// Its name and its arguments.
    fn words(&self) -> String {
        format!("{} {}", self.name, self.arguments.join(" "))
    }
}

const fn program(name: &'static str, arguments: &'static [&'static str], aims: [f64; 2]) -> Program {
    Program { name, arguments, flags: &[], aims }
}

/// A program whose tasks travel.
const fn tasks(name: &'static str, arguments: &'static [&'static str]) -> Program {
    Program { name, arguments, flags: &["--home-alone", "off"], aims: [1.4, 1.4] }
}

/// The programs for which the issue sets a target. Steps of solvers are alike, so that some of them are enough.
const PROGRAMS: [Program; 12] = [
    program("ep", &["A"], [1.7, 1.6]),
    program("lavamd", &["A"], [1.7, 1.6]),
    program("blackscholes", &["A"], [1.7, 1.6]),
    program("kmeans", &["B", "--iterations", "10"], [1.7, 1.6]),
    program("bt", &["B", "--iterations", "6"], [1.3, 1.2]),
    program("sp", &["B", "--iterations", "10"], [1.3, 1.2]),
    program("cg", &["B", "--iterations", "3"], [1.3, 1.2]),
    program("stencil", &["B"], [1.3, 1.2]),
    tasks("strassen", &["B"]),
    tasks("mergesort", &["B"]),
    tasks("sparselu", &["B"]),
    program("lud", &["A"], [SLOWER, SLOWER]),
];

/// The names of the programs.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|program| program.name)
}

/// What one program took.
struct Row {
    program: &'static Program,
    /// Seconds on one node.
    one: Vec<f64>,
    /// Seconds on two nodes, by route.
    two: [Vec<f64>; ROUTES],
}

/// All that was measured.
#[derive(Default)]
pub(crate) struct Fair {
    rows: Vec<Row>,
    /// The names of the routes.
    routes: Vec<String>,
    pub(crate) skipped: Vec<String>,
    pub(crate) wrong: Vec<String>,
}

/// A command that starts nodes on their CPUs, in place of ssh. Removed when dropped, as the link is.
struct Starter {
    path: PathBuf,
    hosts: [String; 2],
    /// Without one, both hosts are this machine.
    link: Option<Link>,
}

impl Starter {
    fn new(link: Option<Link>) -> Result<Starter, Error> {
        let hosts = link.as_ref().map_or(["cpu0".into(), "cpu1".into()], |link| link.names().clone());
        let name = format!("atoll-bench-starter-{}-{}", std::process::id(), hosts[0]);
        let path = std::env::temp_dir().join(name);
        let inside = if link.is_some() { "ip netns exec \"$host\" " } else { "" };
        let script = format!(
            "#!/bin/sh\nhost=$1\nshift\ncpu=1\n[ \"$host\" = {} ] && cpu=0\nexec taskset -c $cpu {inside}sh -c \"$*\"\n",
            hosts[0]
        );
        let failed = |e| Error::at("write", &path, e);
        fs::write(&path, script).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        Ok(Starter { path, hosts, link })
    }

    /// The name of the route between the nodes.
    fn route(&self) -> String {
        self.link.as_ref().map_or("memory".to_owned(), Link::rate)
    }

    /// The flags of `atoll run` for these nodes.
    fn flags(&self) -> Vec<OsString> {
        let mut flags = vec![format!("--hosts={}", self.hosts.join(",")).into(), "--rsh".into()];
        flags.push(self.path.clone().into());
        if self.link.is_some() {
            flags.extend(["--transport", "ucx", "--network", shaped::DEVICE].map(OsString::from));
        }
        flags
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Measures the programs for which `chosen` holds, each `runs` times in each way.
///
/// # Errors
/// If something cannot be started.
pub(crate) fn measure(places: &Places, chosen: impl Fn(&str) -> bool, runs: u32) -> Result<Fair, Error> {
    let mut fair = Fair::default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        fair.skipped.push("nodes that own their CPUs: there is one CPU only".to_owned());
        return Ok(fair);
    }
    fair.rows = PROGRAMS
        .iter()
        .filter(|program| chosen(program.name))
        .map(|program| Row { program, one: Vec::new(), two: Default::default() })
        .collect();
    let mut starters = vec![Starter::new(None)?];
    if let Err(why) = shaped::available() {
        fair.skipped.push(format!("nodes that own their CPUs, over UCX: {why}"));
    } else {
        for rate in RATES {
            match Link::new(rate) {
                Ok(link) => starters.push(Starter::new(Some(link))?),
                Err(why) => fair.skipped.push(format!("a link of {rate} Gbit/s: {why}")),
            }
        }
    }
    fair.routes = starters.iter().map(Starter::route).collect();
    for round in 1..=runs {
        places.say(&format!("a CPU for each node, round {round} of {runs}"));
        for row in &mut fair.rows {
            let (path, arguments) = (places.program(row.program.name), row.program.arguments);
            let mut words: Vec<OsString> = ["taskset", "-c", "0"].map(OsString::from).into();
            words.extend(places.under_atoll(1, Vec::new(), &path, arguments));
            row.one.extend(run(places, row.program, "one node", &words, 1, &mut fair.wrong)?);
            for (starter, seconds) in starters.iter().zip(&mut row.two) {
                let flags = starter.flags().into_iter().chain(row.program.flags.iter().map(OsString::from));
                let words = places.under_atoll(2, flags.collect(), &path, arguments);
                let what = format!("two nodes, {}", starter.route());
                seconds.extend(run(places, row.program, &what, &words, 2, &mut fair.wrong)?);
            }
        }
    }
    Ok(fair)
}

/// Runs a program once by these words, with `workers`. Returns its seconds.
fn run(
    places: &Places,
    program: &Program,
    what: &str,
    words: &[OsString],
    workers: u32,
    wrong: &mut Vec<String>,
) -> Result<Option<f64>, Error> {
    let outcome = process::run(words, &[("OMP_NUM_THREADS", workers.to_string())], places.timeout)?;
    let name = program.words();
    match sheet::sample(&outcome) {
        Ok(sample) => {
            places.say(&format!("{name} {what}: {:.3} s", sample.seconds));
            Ok(Some(sample.seconds))
        }
        Err(why) => {
            places.say(&format!("{name} {what}: {why}"));
            wrong.push(format!("{name}, {what}: {why}"));
            Ok(None)
        }
    }
}

impl Row {
    /// How many times as fast the program is on two nodes over the route of this number.
    fn times(&self, route: usize) -> Option<f64> {
        let (one, two) = (median(self.one.iter().copied())?, median(self.two[route].iter().copied())?);
        Some(one / two)
    }
}

impl Fair {
    /// Seconds, and how many times as fast two nodes are.
    pub(crate) fn table(&self) -> String {
        let mut head = vec![String::new(), "one node, s".to_owned()];
        for route in &self.routes {
            head.extend([format!("two, {route}, s"), "times as fast".to_owned()]);
        }
        let mut rows = vec![head];
        for row in &self.rows {
            let mut cells = vec![row.program.words(), number(median(row.one.iter().copied()), 3)];
            for route in 0..self.routes.len() {
                cells.push(number(median(row.two[route].iter().copied()), 3));
                cells.push(number(row.times(route), 2));
            }
            rows.push(cells);
        }
        table(&rows)
    }

    /// A line for each program's target, and one for the least gain of all.
    pub(crate) fn targets(&self) -> Vec<String> {
        let figure = |times: f64| Some(format!("{times:.2}"));
        let mut lines = Vec::new();
        for row in &self.rows {
            for (route, aim) in [(0, row.program.aims[0]), (ROUTES - 1, row.program.aims[1])] {
                let Some(name) = self.routes.get(route) else { continue };
                let target = format!(
                    "{} on two nodes with a CPU each, {name}: at least {aim} times as fast as on one",
                    row.program.name
                );
                lines.extend(row.times(route).map(|times| line(&target, figure(times), times >= aim)));
            }
        }
        let all =
            self.rows.iter().flat_map(|row| (0..self.routes.len()).filter_map(|route| row.times(route)));
        if let Some(least) = all.min_by(f64::total_cmp) {
            let target = format!("the same, every program over every route: at least {SLOWER}");
            lines.push(line(&target, Some(format!("least {least:.2}")), least >= SLOWER));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_its_line_and_the_slowest_program_one_more() {
        let row = |name, one, memory, slow, fast| Row {
            program: PROGRAMS.iter().find(|program| program.name == name).unwrap(),
            one: vec![one],
            two: [vec![memory], vec![slow], vec![fast]],
        };
        let fair = Fair {
            rows: vec![row("ep", 4.0, 2.0, 2.2, 2.1), row("lud", 1.0, 1.1, 1.0, 1.0)],
            routes: ["memory", "10 Gbit/s", "56 Gbit/s"].map(str::to_owned).into(),
            ..Fair::default()
        };
        let lines = fair.targets();
        assert_eq!(lines.len(), 5);
        assert!(lines[0].ends_with("at least 1.7 times as fast as on one: 2.00  met"), "{}", lines[0]);
        assert!(lines[4].ends_with("least 0.91  not met"), "{}", lines[4]);
    }
}
