//! `atoll bench far --programs`: programs at half of their memory whose far memory is a lender behind a link, beside a file.
//!
//! The programs and commands are those of users: `atoll lend` in the second namespace, `atoll run` in the first one.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use atoll_record::Record;

use super::failed;
use super::link::{self, ADDRESSES, Holder, Link};
use crate::bench::BenchError;
use crate::bench::held::Held;
use crate::bench::output::{Output, verdict};
use crate::bench::statistics::middle;
use crate::bench::table::{Cell, Table};
use crate::cli::FarBenchArgs;

/// The programs: one that gathers, one that sweeps, one that solves line by line.
const PROGRAMS: [[&str; 4]; 3] = [
    ["cg", "A", "--iterations", "2"],
    ["stencil", "A", "--iterations", "2"],
    ["sp", "A", "--iterations", "4"],
];
const ROUNDS: usize = 3;
/// How many times as fast as with a file a program is to be.
const LEAST_TIMES: f64 = 2.0;
/// The link in Gbit/s.
const GIGABITS: u32 = 56;

/// This command, with the lenders of `folder` and no others.
fn atoll(folder: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    // This is the name by which `atoll top` and messages know it.
    command.arg0("atoll").env("ATOLL_LENDERS", folder).stdin(Stdio::null());
    command
}

fn lend(folder: &Path, holder: &Holder) -> Result<Held, BenchError> {
    let mut command = atoll(folder);
    let address = format!("{}:0", ADDRESSES[1]);
    command.args(["lend", "4G", "--name", "bench", "--listen", &address]).stderr(Stdio::piped());
    link::runs_there(&mut command, holder.pid()).map_err(failed("the link's other end"))?;
    let mut lender = Held(command.spawn().map_err(failed("a lender"))?);
    let mut line = String::new();
    if let Some(errors) = lender.0.stderr.as_mut() {
        BufReader::new(errors).read_line(&mut line).map_err(failed("a lender"))?;
    }
    if line.contains(" lends ") { Ok(lender) } else { Err(BenchError::Other(line.trim().to_owned())) }
}

/// What a run took in seconds, and its footprint in bytes.
fn run(
    folder: &Path,
    args: &FarBenchArgs,
    words: &[&str],
    near: Option<u64>,
    far: &str,
) -> Result<(f64, u64), BenchError> {
    let record = tempfile::NamedTempFile::new().map_err(failed("a temporary file"))?;
    let mut command = atoll(folder);
    let near = near.map_or("none".to_owned(), |bytes| bytes.to_string());
    command.args(["run", "--summary", "none", "--near", &near, "--far", far, "--record"]).arg(record.path());
    command.arg("--").arg(args.programs_dir.join(words[0])).args(&words[1..]);
    let output = command.output().map_err(failed("atoll run"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(BenchError::Other(format!("{} with --far {far}: {}: {said}", words[0], output.status)));
    }
    let figures = Record::open(record.path()).map_err(failed("a record"))?.figures;
    Ok((figures.wall_seconds, figures.memory.footprint_peak_bytes))
}

/// Measures and prints.
pub(super) fn bench(output: &Output<'_>, args: &FarBenchArgs) -> Result<(), BenchError> {
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => {
            println!("programs need a link of a limited bandwidth, and there is none: {why}");
            return Ok(());
        }
    };
    let holder = Holder::start(&link, GIGABITS).map_err(failed("the link"))?;
    let folder = tempfile::tempdir().map_err(failed("a temporary folder"))?;
    let _lender = lend(folder.path(), &holder)?;
    println!(
        "programs at half of their memory, over a link of {GIGABITS} Gbit/s or as much as the CPUs move; medians of {ROUNDS} rounds\n"
    );
    let mut table = Table::new(["", "near", "all near s", "file s", "hosts s", "file / hosts"]);
    let mut all = Vec::new();
    for words in PROGRAMS {
        let (native, footprint) = run(folder.path(), args, &words, None, "ram")?;
        let near = footprint / 2;
        let (mut file, mut hosts) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            file.push(run(folder.path(), args, &words, Some(near), "file")?.0);
            hosts.push(run(folder.path(), args, &words, Some(near), "hosts")?.0);
        }
        let (file, hosts) = (middle(file), middle(hosts));
        all.push((words, file / hosts));
        table.row(vec![
            words.join(" ").into(),
            crate::run::summary::bytes(near).into(),
            Cell::Number(native, 2),
            Cell::Number(file, 2),
            Cell::Number(hosts, 2),
            Cell::Number(file / hosts, 2),
        ]);
    }
    output.table("far-programs", &table)?;
    for (words, times) in &all {
        println!(
            "{} is {times:.2} times as fast as with a file; target: at least {LEAST_TIMES}: {}",
            words[0],
            verdict(*times >= LEAST_TIMES)
        );
    }
    let devices = ["/sys/module/nbd", "/sys/module/nvme_tcp"];
    if devices.into_iter().any(|path| Path::new(path).exists()) {
        println!(
            "Linux swap over nbd or nvme-tcp is not measured here: a swap device holds for the whole machine"
        );
    } else {
        println!(
            "this kernel has neither nbd nor nvme-tcp: Linux swap from a lender's memory cannot be measured beside"
        );
    }
    Ok(())
}
