//! Runs all workloads at random settings for a time, or the whole matrix of settings, and compares checksums with the native
//! ones.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use atoll_e2e::random::Random;
use atoll_e2e::workloads::{Case, POLICIES, natively};

const USAGE: &str = "usage: stress [--seconds N] [--seed S]
       stress --matrix [--class W] [--program NAME] [--percent N] [--policy P] [--page SIZE] [--part I/N]
              [--pairs] [--iterations N]
Runs the workloads at random near sizes, policies, page sizes, page tables, fault modes, far stores and worker counts for
N seconds (60), or each of them at every setting of the matrix, and compares with the native checksums: of N iterations
where said, else of all and verified (class B: 2). With --pairs only so many settings of the matrix that every two values
of different kinds meet in one run of each program. Prints the command line of each run that fails. Ends with `N passed, N failed`; status 1 if any failed.";

#[derive(Debug, Default)]
struct Options {
    seconds: u64,
    seed: u64,
    matrix: bool,
    class: Option<char>,
    program: Option<String>,
    percent: Option<u64>,
    policy: Option<String>,
    page: Option<String>,
    part: Option<(u64, u64)>,
    pairs: bool,
    iterations: Option<u32>,
}

fn options() -> Option<Options> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_secs());
    let mut options = Options { seconds: 60, seed: now, ..Options::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--matrix" => options.matrix = true,
            "--pairs" => options.pairs = true,
            "--seconds" => options.seconds = words.next()?.parse().ok()?,
            "--seed" => options.seed = words.next()?.parse().ok()?,
            "--class" => options.class = words.next()?.chars().next(),
            "--iterations" => options.iterations = Some(words.next()?.parse().ok()?),
            "--program" => options.program = words.next(),
            "--percent" => options.percent = Some(words.next()?.parse().ok()?),
            "--policy" => options.policy = words.next(),
            "--page" => options.page = words.next(),
            "--part" => {
                let text = words.next()?;
                let (i, n) = text.split_once('/')?;
                options.part = Some((i.parse().ok()?, n.parse().ok()?));
            }
            _ => return None,
        }
    }
    Some(options)
}

/// Whether pages of 2 MB are available.
fn huge_pages() -> bool {
    let read = |path: &str| {
        std::fs::read_to_string(path).ok().and_then(|t| t.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let folder = "/sys/kernel/mm/hugepages/hugepages-2048kB";
    read(&format!("{folder}/free_hugepages")) + read(&format!("{folder}/nr_overcommit_hugepages")) > 64
}

/// Returns the page sizes that are available.
fn pages() -> Vec<&'static str> {
    let mut pages = vec!["4K", "64K"];
    if huge_pages() {
        pages.push("2M");
    }
    pages
}

fn matrix(options: &Options) -> Vec<Case> {
    let class = options.class.unwrap_or('W');
    let mut cases = Vec::new();
    for program in ["cg", "lu", "bt", "sp", "stencil"] {
        for percent in [100, 75, 50, 25] {
            for policy in POLICIES {
                for page in pages() {
                    for tables in ["private", "shared"] {
                        for faults in ["self", "thread"] {
                            cases.push(Case {
                                program: program.into(),
                                class,
                                iterations: options.iterations.or((class == 'B').then_some(2)),
                                percent,
                                policy: policy.into(),
                                page: page.into(),
                                tables: tables.into(),
                                faults: faults.into(),
                                far: "ram".into(),
                                workers: 2,
                            });
                        }
                    }
                }
            }
        }
    }
    let is = |wanted: &Option<String>, what: &str| wanted.as_ref().is_none_or(|w| w == what);
    cases.retain(|c| {
        is(&options.program, &c.program) && is(&options.policy, &c.policy) && is(&options.page, &c.page)
    });
    cases.retain(|c| options.percent.is_none_or(|p| p == c.percent));
    if options.pairs {
        cases = pairs(cases);
    }
    if let Some((i, n)) = options.part {
        let mut index = 0;
        cases.retain(|_| {
            index += 1;
            index % n == i % n
        });
    }
    cases
}

/// Returns a few of the cases, such that every two values of different settings that meet in one of all cases still meet.
fn pairs(mut cases: Vec<Case>) -> Vec<Case> {
    let met = |case: &Case| {
        let percent = case.percent.to_string();
        let values = [&percent, &case.policy, &case.page, &case.tables, &case.faults].map(String::clone);
        let at = |i: usize, j: usize| (case.program.clone(), i, values[i].clone(), j, values[j].clone());
        (0..values.len()).flat_map(|j| (0..j).map(move |i| (i, j))).map(|(i, j)| at(i, j)).collect::<Vec<_>>()
    };
    let mut open: HashSet<_> = cases.iter().flat_map(met).collect();
    let mut chosen = Vec::new();
    let adds = |open: &HashSet<_>, case: &Case| met(case).iter().filter(|pair| open.contains(*pair)).count();
    while !open.is_empty() {
        // An open pair belongs to a case that was not chosen.
        let Some(best) = (0..cases.len()).max_by_key(|i| (adds(&open, &cases[*i]), Reverse(*i))) else {
            break;
        };
        let case = cases.remove(best);
        met(&case).iter().for_each(|pair| {
            open.remove(pair);
        });
        chosen.push(case);
    }
    chosen
}

struct Tally {
    passed: u64,
    failed: Vec<String>,
}

impl Tally {
    fn run(&mut self, case: &Case, limit: u64) {
        print!(
            "{:<13}{} {:>4}% {:<9}{:<5}{:<8}{:<7}{:<5}{} workers  ",
            case.program,
            case.class,
            case.percent,
            case.policy,
            case.page,
            case.tables,
            case.faults,
            case.far,
            case.workers
        );
        match case.check(limit) {
            Ok(run) => {
                self.passed += 1;
                let (faults, out) = (run.figure("total/major_faults"), run.figure("total/evictions_dirty"));
                println!("{:>7.2} s {faults:>9} major {out:>9} dirty  passed", run.seconds);
            }
            Err(why) => {
                println!("FAILED\n{why}");
                let first = why.lines().next().unwrap_or_default().to_owned();
                self.failed.push(first);
            }
        }
    }
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut tally = Tally { passed: 0, failed: Vec::new() };
    if options.matrix {
        for case in matrix(&options) {
            tally.run(&case, 1800);
        }
    } else {
        println!("seed {}", options.seed);
        let mut random = Random(options.seed);
        let pages = pages();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(options.seconds) {
            let mut case = Case::random(&mut random, &['S', 'W', 'W', 'W'], &pages);
            case.percent = 5 + random.below(110);
            case.workers = 1 + random.below(8);
            tally.run(&case, 200);
        }
        let _ = natively("cg", 'S', None);
    }
    for line in &tally.failed {
        println!("failed: {line}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed.len());
    if tally.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
