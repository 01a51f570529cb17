//! `atoll bench latency`: measures how long a load waits for every kind of memory on this machine.
//!
//! Source: the barrelfish paper, section 5.3, table 5.1 and appendix A.2. The paper's remote memory is across PCI Express; ours is
//! another CPU's cache, another NUMA node, and pages that must be mapped or brought near first.

use std::convert::Infallible;

use super::lists::{List, Order};
use super::machine::{clock, faults::Ground};
use super::mapping::Mapping;
use super::output::{Output, held};
use super::pair::Cpus;
use super::statistics::{ROUNDS, median, middle};
use super::table::{Cell, Table};
use super::{BenchError, paper, pin};
use crate::arch;
use crate::cli::BenchArgs;
use crate::machine::{meminfo, usable_cpu_numbers};
use crate::plot::Bars;

/// The number of loads in one walk.
const LOADS: usize = 1 << 20;
/// The bytes of a list for the first cache, as in the paper.
const FIRST: usize = 8 << 10;
/// The most bytes of a list for main memory.
const MOST: usize = 1 << 30;

/// The nanoseconds of a kind of memory.
struct Row {
    memory: String,
    bytes: Option<usize>,
    sequential: Option<f64>,
    random: Option<f64>,
}

/// Measures and prints.
pub(super) fn bench(args: &BenchArgs) -> Result<(), BenchError> {
    let output = Output::new(args.output.as_deref())?;
    let usable = usable_cpu_numbers().unwrap_or_default();
    let asked = args.cpus.as_ref().and_then(|cpus| cpus.first().copied());
    let here = asked.or(usable.first().copied()).unwrap_or(0);
    if !usable.contains(&here) {
        return Err(BenchError::Cpu(here, usable));
    }
    let there = Cpus::choose(args.cpus.as_deref()).ok().map(|cpus| cpus.there);
    pin::pin(here);
    let Ok(mhz) = median(|| Ok::<_, Infallible>(clock::mhz()));
    println!(
        "on CPU {here}, {mhz:.0} MHz; medians of {ROUNDS}; a list of pointers, each load needs the one before\n"
    );

    let rows = measure(here, there)?;
    let mut table = Table::new(["memory", "list", "sequential ns", "random ns", "random cycles"]);
    for row in &rows {
        let bytes =
            row.bytes.map_or(Cell::Nothing, |bytes| atoll_pages::Size(bytes as u64).to_string().into());
        table.row(vec![
            row.memory.as_str().into(),
            bytes,
            Cell::number(row.sequential, 1),
            Cell::number(row.random, 1),
            Cell::number(row.random.map(|ns| ns * mhz / 1e3), 0),
        ]);
    }
    output.table("latency", &table)?;
    output.drawing("latency", |path| {
        let bars = rows.iter().filter_map(|row| Some((row.memory.clone(), row.random?)));
        let title = "Latency of a load, random order".to_owned();
        Bars { title, x: "nanoseconds", bars: bars.collect() }.draw(path)
    })?;

    let paper = paper::paper().map_err(|e| BenchError::Channel("the paper's numbers", e.into()))?;
    println!("the paper, {}:", paper.latency.about);
    for row in &paper.latency.rows {
        println!("  {:<48} {:>7.0}", row.memory, row.ns);
    }
    implications(&rows);
    output.end();
    Ok(())
}

/// Prints the conclusions of section 5.3.3, with the numbers of this machine.
fn implications(rows: &[Row]) {
    let find = |name: &str| rows.iter().find(|row| row.memory.starts_with(name));
    let (Some(first), Some(main)) = (find("cache, level 1"), find("main memory, 4K")) else { return };
    println!("\nwhat the paper concludes (section 5.3.3), here:");
    if let (Some(near), Some(far)) = (first.random, main.random) {
        println!(
            "  hot data belongs in the first cache: main memory takes {:.0} times as long (in the paper 118): {}",
            far / near,
            held(far > 10.0 * near)
        );
    }
    if let (Some(sequential), Some(random)) = (main.sequential, main.random) {
        println!(
            "  where the order can be predicted, latency is hidden: in order {:.0} times faster: {}",
            random / sequential,
            held(random > 2.0 * sequential)
        );
    }
    if let (Some(line), Some(far)) = (find("line another CPU"), main.random) {
        let line = line.random.unwrap_or(0.0);
        println!(
            "  what another core just wrote is as far as memory: {line:.0} ns, memory {far:.0} ns: {}",
            held(line > 0.5 * far)
        );
    }
}

fn measure(here: usize, there: Option<usize>) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    let caches = caches();
    let mut largest = 0;
    for (level, bytes) in caches {
        // The first cache's list is the paper's. The others take half of their cache, which the next smaller cache does not
        // hold.
        let list = if level == 1 { FIRST } else { bytes / 2 };
        largest = largest.max(bytes);
        rows.push(walked(&format!("cache, level {level}"), list, libc::MADV_HUGEPAGE, None)?);
    }
    let available = meminfo("MemAvailable").unwrap_or(0) as usize;
    let main = (8 * largest.max(8 << 20)).min(MOST).min(available / 4).next_multiple_of(2 << 20);
    rows.push(walked("main memory, 4K pages", main, libc::MADV_NOHUGEPAGE, None)?);
    rows.push(walked("main memory, 2M pages where the kernel gives them", main, libc::MADV_HUGEPAGE, None)?);
    let nodes = numa_nodes();
    if nodes.len() > 1 {
        for node in nodes {
            let name = format!("main memory of NUMA node {node}, 2M pages");
            rows.push(walked(&name, main, libc::MADV_HUGEPAGE, Some(node))?);
        }
    }
    if let Some(there) = there {
        let Ok(ns) = median(|| Ok::<_, Infallible>(clock::handover_ns(here, there)));
        rows.push(once(&format!("line another CPU ({there}) wrote"), ns));
    } else {
        println!("a line that another CPU wrote: not measured, this process may use one CPU");
    }
    match Ground::new() {
        Ok(ground) => {
            ground.bring()?;
            rows.push(once("page that is near, mapped by a fault (4K)", median(|| ground.touch())?));
            let (touch, map) = (median(|| ground.touch())?, median(|| ground.map())?);
            let bring = median(|| ground.bring())?;
            rows.push(once("page of far memory, brought by a fault (4K)", (touch - map).max(0.0) + bring));
        }
        Err(why) => println!("pages that come by faults: not measured: {why}"),
    }
    Ok(rows)
}

fn once(memory: &str, ns: f64) -> Row {
    Row { memory: memory.to_owned(), bytes: None, sequential: None, random: Some(ns) }
}

/// Walks lists of both orders through `bytes` of memory.
fn walked(memory: &str, bytes: usize, advice: i32, node: Option<u32>) -> Result<Row, BenchError> {
    let len = bytes.next_multiple_of(2 << 20);
    let mut mapping = Mapping::new(len + (2 << 20), advice)?;
    if let Some(node) = node
        && !mapping.bind(node)
    {
        println!("{memory}: the kernel refuses to place memory there");
    }
    // The memory begins at a boundary of 2M, so that the kernel can use such pages.
    let skip = mapping.at().next_multiple_of(2 << 20) - mapping.at();
    let memory_bytes = &mut mapping.bytes()[skip..skip + bytes];
    let mut walk = |order| {
        let list = List::new(memory_bytes, order);
        middle((0..ROUNDS).map(|_| list.walk_ns(LOADS)).collect())
    };
    let sequential = walk(Order::Sequential);
    let random = walk(Order::Random);
    Ok(Row {
        memory: memory.to_owned(),
        bytes: Some(bytes),
        sequential: Some(sequential),
        random: Some(random),
    })
}

/// Returns the data caches of this CPU by level, with their bytes, as the processor reports them.
fn caches() -> Vec<(u8, usize)> {
    let mut found = arch::caches();
    found.retain(|&(_, bytes)| bytes >= FIRST);
    found.sort_unstable();
    found.dedup_by_key(|&mut (level, _)| level);
    if found.is_empty() {
        found = (1..=4).filter_map(|level| Some((level, of_kernel(level)?))).collect();
    }
    found
}

/// Returns the size of this CPU's cache of a level, as the kernel reports it.
fn of_kernel(level: u8) -> Option<usize> {
    let read = |index: u32, file: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
        let line = crate::machine::line(&path);
        (!line.is_empty()).then_some(line)
    };
    let index = (0..8).find(|&index| {
        read(index, "level").as_deref() == Some(&level.to_string())
            && read(index, "type").as_deref() != Some("Instruction")
    })?;
    read(index, "size")?.parse::<atoll_pages::Size>().ok().map(|size| size.0 as usize)
}

/// Returns the machine's NUMA nodes that have memory.
fn numa_nodes() -> Vec<u32> {
    let line = crate::machine::line("/sys/devices/system/node/has_memory");
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<u32>().ok()?..=to.parse::<u32>().ok()?)
    };
    line.split(',').filter_map(range).flatten().collect()
}
