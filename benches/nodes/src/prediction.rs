//! Simulates the programs on the paper's machine: their accesses, traced here, on 1 to 64 of its nodes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use crate::error::Error;
use crate::places::Places;
use crate::plan::Program;
use crate::process;

/// The paper's machine.
const MACHINE: &str = "xeon-e5-2620+thunderx";
/// The number of workers of a node, on any number of nodes: few, as all of them are traced on the CPUs of this machine.
const EACH: u32 = 4;
/// The numbers of nodes. The first is what the others are compared with.
const NODES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// How many of these a quick prediction takes.
const QUICK: usize = 4;
const ITERATIONS: &str = "3";
/// The most time for tracing or simulating a program.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the numbers of nodes that are predicted; the first is one.
pub(crate) fn nodes(quick: bool) -> &'static [u32] {
    if quick { &NODES[..QUICK] } else { &NODES }
}

/// The prediction for one program.
pub(crate) struct Prediction {
    pub(crate) program: Program,
    /// The simulated seconds by nodes, protocol and prefetch.
    found: Seconds,
    /// The reason why some are missing.
    pub(crate) missing: Option<String>,
}

type Seconds = BTreeMap<(u32, String, bool), f64>;

impl Prediction {
    /// Returns the simulated seconds.
    pub(crate) fn seconds(&self, nodes: u32, protocol: &str, prefetch: bool) -> Option<f64> {
        self.found.get(&(nodes, protocol.to_owned(), prefetch)).copied()
    }
}

/// Returns a line that says what was simulated.
pub(crate) fn about(class: &str) -> String {
    format!("class {class}, {ITERATIONS} iterations, {EACH} workers on each node of {MACHINE}")
}

/// Predicts for one program, up to the first number of nodes for which that fails.
///
/// # Errors
/// If atoll cannot be started.
pub(crate) fn predict(
    places: &Places,
    program: Program,
    class: &str,
    quick: bool,
) -> Result<Prediction, Error> {
    let mut prediction = Prediction { program, found: BTreeMap::new(), missing: None };
    for &nodes in nodes(quick) {
        places.say(&format!("{} {class}: predicting {nodes} nodes", program.name));
        match simulate(places, program, class, nodes)? {
            Ok(found) => prediction.found.extend(found),
            Err(why) => {
                prediction.missing = Some(format!("{nodes} nodes: {why}"));
                break;
            }
        }
    }
    Ok(prediction)
}

/// Predicts one number of nodes: traces as many workers as they have, and has the trace simulated.
fn simulate(
    places: &Places,
    program: Program,
    class: &str,
    nodes: u32,
) -> Result<Result<Seconds, String>, Error> {
    let folder = tempfile::tempdir().map_err(|e| Error::said(format!("no temporary folder: {e}")))?;
    let (trace, csv) = (folder.path().join("trace"), folder.path().join("lines.csv"));
    let workers = (EACH * nodes).to_string();
    let run = |words: Vec<OsString>| -> Result<Option<String>, Error> {
        let all: Vec<OsString> = std::iter::once(places.atoll.clone().into()).chain(words).collect();
        Ok(process::run(&all, &[("OMP_NUM_THREADS", workers.clone())], PATIENCE)?.failure_or_cut())
    };
    let mut words = ["trace", "--workers", &workers, "-o"].map(OsString::from).to_vec();
    words.extend([trace.clone().into(), "--".into(), places.program(program.name).into()]);
    words.extend([class, "--iterations", ITERATIONS].map(OsString::from));
    if let Some(why) = run(words)? {
        return Ok(Err(format!("it could not be traced ({why})")));
    }
    let mut words = ["sim", "--machine", MACHINE, "--nodes", &nodes.to_string()].map(OsString::from).to_vec();
    let grid = ["--consistency", "sc,mw,smart", "--prefetch", "on,off", "--warm", "1", "--csv"];
    words.extend(grid.map(OsString::from));
    words.extend([csv.clone().into(), trace.into()]);
    if let Some(why) = run(words)? {
        return Ok(Err(format!("it could not be simulated ({why})")));
    }
    let text = std::fs::read_to_string(&csv).map_err(|e| Error::at("read", &csv, e))?;
    Ok(parse(&text).ok_or_else(|| "the simulator's table is not understood".to_owned()))
}

fn parse(text: &str) -> Option<Seconds> {
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next()?.split(',').collect();
    let column = |name: &str| heads.iter().position(|head| *head == name);
    let (nodes, protocol) = (column("nodes")?, column("protocol")?);
    let (prefetch, seconds) = (column("prefetch")?, column("seconds")?);
    lines
        .map(|line| {
            let values: Vec<&str> = line.split(',').collect();
            let key = (
                values.get(nodes)?.parse().ok()?,
                (*values.get(protocol)?).to_owned(),
                *values.get(prefetch)? == "on",
            );
            Some((key, values.get(seconds)?.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_the_simulator_is_read() {
        let text = "machine,nodes,protocol,prefetch,seconds,more\nm,2,sc,on,0.5,9\nm,2,mw,off,0.25,9\n";
        let found = parse(text).unwrap();
        assert_eq!(found[&(2, "sc".to_owned(), true)], 0.5);
        assert_eq!(found[&(2, "mw".to_owned(), false)], 0.25);
        assert!(parse("machine,nodes\n1,2\n").is_none());
    }
}
