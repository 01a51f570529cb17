//! The part of `atoll bench segment` about segmentation cores: the cost of a delegated call, and i386 programs beside Linux.
//!
//! The programs are static ones of `programs/`. A kind of core that this machine lacks is named with the reason.
//! `crate::translations` runs the i386 programs, in turns.

use std::process::Command;
use std::time::Duration;

use atoll_memory::segment::PageKind;

use super::segment::{CORES_BUDGET, graph500, judged, randomaccess};
use super::table::{Cell, Table};
use crate::said;
use crate::translations::rounds::{output, rate, speed};
use crate::translations::{Core, Measured, Plan, Translation, measure};

/// The most microseconds that a delegated `getppid` may take with a free CPU.
const CALL: f64 = 3.0;
/// The least share of Linux's speed that an i386 program must have in segments.
const NATIVE: f64 = 0.97;
/// The number of runs with each setting; the best counts.
const ROUNDS: usize = 5;

/// The kinds of cores that are measured.
const KINDS: [Core; 5] = [Core::Ldt, Core::Process, Core::Kvm64, Core::Kvm32, Core::Qemu];

/// The translations for i386 programs: Linux alone, with pages of 4K and of 2M, and segments.
const I386: [Translation; 3] = [
    Translation::Native32(None),
    Translation::Native32(Some(PageKind::Huge2M)),
    Translation::Core(Core::Ldt),
];

/// Returns the number that a program prints behind `label`, or why it did not.
fn number(command: Command, label: &str, limit: Duration) -> Result<f64, String> {
    let (stdout, stderr) = output(command, limit, || ())?;
    let found = stdout.lines().find_map(|line| line.strip_prefix(label));
    let found = found.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    found.ok_or_else(|| said::last(&stderr).unwrap_or("it said nothing").to_owned())
}

/// Returns the microseconds of a `getppid` of the program `calls`: delegated, and by Linux alone.
fn call(core: Core, plan: &Plan) -> [Result<f64, String>; 2] {
    let load =
        crate::translations::Workload { program: "calls", arguments: vec![], bytes: 64 << 20, blocks: 1 };
    let translation = Translation::Core(core);
    let file = translation.file(&plan.programs, &load);
    let mut best = [Ok(f64::INFINITY), Ok(f64::INFINITY)];
    for _ in 0..ROUNDS {
        let commands = [translation.command(&plan.programs, &load, 1), Command::new(&file)];
        for (best, command) in best.iter_mut().zip(commands) {
            let now = number(command, "Call:", plan.limit);
            *best = now.and_then(|now| best.clone().map(|best: f64| best.min(now)));
        }
    }
    best
}

/// Returns the tables of calls and of i386 programs, and the lines of targets.
pub(super) fn bench(plan: &Plan) -> (Table, Table, Vec<String>) {
    let mut calls = Table::new(["getppid", "us", "alone us", "why not"]);
    let mut lines = Vec::new();
    for core in KINDS {
        let [here, alone] = call(core, plan);
        let name = Translation::Core(core).name();
        calls.row(vec![
            name.clone().into(),
            Cell::number(here.clone().ok(), 3),
            Cell::number(alone.ok(), 3),
            here.as_ref().err().map_or(Cell::Nothing, |why| format!("skipped: {why}").into()),
        ]);
        match here {
            // These kinds have no target: one is there for correctness, one for programs that mean harm.
            _ if [Core::Qemu, Core::Process].contains(&core) => {}
            Ok(us) => lines.push(format!(
                "{name}: a delegated getppid in at most {CALL} us; {us:.3}: {}",
                judged(us <= CALL)
            )),
            Err(why) => lines.push(format!("{name}: a delegated getppid: skipped: {why}")),
        }
    }
    let mut programs = Table::new(["i386", "Linux, 4K", "Linux, 2M", "core ldt", "to 4K", "to 2M", "rounds"]);
    for load in [randomaccess(22, 16), randomaccess(24, 4), graph500('A', 16)] {
        let plan = Plan { workers: 1, rounds: ROUNDS, budget: CORES_BUDGET, ..plan.clone() };
        let all = measure(&I386, &load, &plan);
        let rates = I386.map(|translation| rate(&all, translation));
        let over = |base: usize| Some(rates[2]? / rates[base]?);
        let mut row = vec![Cell::from(format!("{} {}", load.program, load.arguments.join(" ")))];
        row.extend(rates.map(|rate| rate.map_or(Cell::Nothing, |rate| speed(rate).into())));
        row.extend([0, 1].map(|base| Cell::number(over(base), 2)));
        row.push(all[2].runs.as_ref().map_or(0, Vec::len).to_string().into());
        programs.row(row);
        lines.push(beside_linux(load.program, load.bytes, &all));
    }
    (calls, programs, lines)
}

/// Returns the target's line of an i386 program in segments, beside Linux's own pages of 4K.
fn beside_linux(program: &str, bytes: u64, all: &[Measured]) -> String {
    let name = format!("core ldt: i386 {program}, {}", crate::run::summary::bytes(bytes));
    let why =
        |translation| all.iter().find(|m| m.translation == translation).and_then(|m| m.runs.as_ref().err());
    match (rate(all, I386[0]), rate(all, I386[2])) {
        (Some(alone), Some(here)) => {
            let ratio = here / alone;
            format!(
                "{name}, at least {NATIVE} of its speed under Linux; {ratio:.2} times: {}",
                judged(ratio >= NATIVE)
            )
        }
        _ => {
            let why = why(I386[0]).or(why(I386[2])).map_or("it did not run", String::as_str);
            format!("{name}: skipped: {why}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translations::outcome::Outcome;

    #[test]
    fn a_number_is_found_or_the_reason_is() {
        let shell = |line: &str, seconds| {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            number(command, "Call:", Duration::from_secs(seconds))
        };
        assert_eq!(shell("echo x; echo Call: 1.25 us", 60), Ok(1.25));
        assert_eq!(shell("echo why >&2; exit 3", 60), Err("why".to_owned()));
        assert_eq!(shell("exit 3", 60), Err("it said nothing".to_owned()));
        assert!(shell("exec sleep 60", 0).unwrap_err().contains("longer than 0 s"));
    }

    #[test]
    fn segments_are_judged_beside_the_same_binary() {
        let ran = |translation, rate| {
            let run = Outcome { rate, faults: None, pieces: None, noise: None, walks: None };
            Measured { translation, runs: Ok(vec![run]) }
        };
        let slow = [ran(I386[0], 1.0), ran(I386[2], 0.96)];
        assert!(beside_linux("x", 1 << 20, &slow).ends_with("0.96 times: not met"));
        let good = [ran(I386[0], 1.0), ran(I386[2], 0.98)];
        assert!(beside_linux("x", 1 << 20, &good).ends_with("0.98 times: met"));
        let none = [ran(I386[0], 1.0), Measured { translation: I386[2], runs: Err("no segments".into()) }];
        assert!(beside_linux("x", 1 << 20, &none).ends_with("skipped: no segments"));
    }
}
