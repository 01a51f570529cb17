//! Writes all measurements in the form of a machine's description.
//!
//! It takes the measurements of the other files here. `atoll-machine` documents the form and reads it.

use std::convert::Infallible;
use std::fmt::Write;

use super::super::statistics::{ROUNDS, median, middle};
use super::super::{BenchError, far, pin};
use super::faults::Ground;
use super::{Number, clock, copy, interrupts, tlbs, walks};
use crate::machine::{machine, usable_cpu_numbers};

fn sure(once: impl Fn() -> f64) -> f64 {
    let Ok(value) = median(|| Ok::<_, Infallible>(once()));
    value
}

/// Measures, and writes the description down.
pub(super) fn describe(lender: Option<&str>) -> Result<String, BenchError> {
    let cpus = usable_cpu_numbers().unwrap_or_default();
    let here = cpus.first().copied().unwrap_or(0);
    pin::pin(here);
    let mut text = head(cpus.len());
    let mhz = sure(clock::mhz);
    section(
        &mut text,
        "[node.cores]",
        &[
            ("count", Number::measured(cpus.len() as f64, "CPUs this process may use")),
            ("threads_per_core", Number::assumed(1.0, "every CPU is taken for a core")),
            ("clock_mhz", Number::measured(mhz.round(), "a chain of multiplications")),
            ("cycles_per_instruction", Number::assumed(0.7, "it is the program's")),
        ],
    );
    for tlb in known_tlbs() {
        let pages = tlb.0.iter().map(|page| format!("{page:?}")).collect::<Vec<_>>().join(", ");
        section(&mut text, &format!("[[node.tlb]]\npages = [{pages}]"), &tlb.1);
    }
    let cycles = |ns: f64| (ns * mhz / 1e3).round();
    let small = walks::Pages::small()?;
    let walk_4k = cycles(sure(|| small.walk_ns()));
    let how = "reads of 16,384 pages beside reads of 8, all of them the kernel's zero page";
    let walk_2m = match walks::Pages::huge()? {
        Some(huge) => Number::measured(cycles(sure(|| huge.walk_ns())), "the same with 4,096 pages of 2M"),
        None => Number::assumed(walk_4k, "as of 4K: the kernel gives no huge pages for reading here"),
    };
    section(
        &mut text,
        "[node.walk]",
        &[("cycles_4k", Number::measured(walk_4k, how)), ("cycles_2m", walk_2m)],
    );
    let far = copy::far();
    let bandwidth = sure(|| copy::gb_per_s(&far));
    let there = cpus.get(1).copied();
    let handover = match there {
        Some(there) => {
            Number::measured(sure(|| clock::handover_ns(here, there)).round(), "a cache line to and fro")
        }
        None => Number::assumed(100.0, "there is one CPU"),
    };
    let ground = Ground::new()?;
    let bring = median(|| ground.bring())?;
    let (map, touch, drop) =
        (median(|| ground.map())?, median(|| ground.touch())?, median(|| ground.unmap())?);
    section(
        &mut text,
        "[node.fault]",
        &[
            (
                "entry_ns",
                Number::measured((touch - map).max(0.0).round(), "touching pages less mapping them by calls"),
            ),
            ("minor_ns", Number::measured(map.round(), "UFFDIO_CONTINUE")),
            (
                "major_ns",
                Number::measured((bring - 4096.0 / bandwidth).max(0.0).round(), "UFFDIO_COPY less its copy"),
            ),
            ("policy_lock_ns", handover.clone()),
            ("lock_waiter_ns", handover),
        ],
    );
    let (sender, target) = match there {
        Some(there) => {
            ground.map()?;
            let how = "write-protecting while another CPU runs the same page table, less without it";
            let costs =
                (0..ROUNDS).map(|_| interrupts::cost(&ground, here, there)).collect::<Result<Vec<_>, _>>()?;
            let sender = middle(costs.iter().map(|cost| cost.sender).collect());
            let target = middle(costs.iter().map(|cost| cost.target).collect());
            (
                Number::measured(sender.round(), how),
                Number::measured(target.round(), "what the interrupted CPU computes less"),
            )
        }
        None => (Number::assumed(1200.0, "there is one CPU"), Number::assumed(600.0, "there is one CPU")),
    };
    section(
        &mut text,
        "[node.invalidation]",
        &[
            ("send_ns", Number::assumed(0.0, "all of it is counted for the target")),
            ("per_target_ns", sender),
            ("per_sender", Number::assumed(0.0, "senders do not disturb each other")),
            ("receive_ns", target),
            ("page_ns", Number::measured(drop.round(), "MADV_DONTNEED, 64 pages a call")),
        ],
    );
    let _ = writeln!(
        text,
        "\n[node.scan]\nperiod_ms = {{ value = 10, source = \"atoll's pager\" }}\n\
         accessed_bit = {{ value = false, source = \"user space sees no accessed bit\" }}"
    );
    match lender {
        None => memory_as_far(&mut text, bandwidth, cpus.len()),
        Some(name) => lender_as_far(&mut text, name)?,
    }
    Ok(text)
}

fn memory_as_far(text: &mut String, bandwidth: f64, cpus: usize) {
    section(
        text,
        "[node.far]",
        &[
            (
                "gb_per_s",
                Number::measured((bandwidth * 10.0).round() / 10.0, "copies of random pages of 256M"),
            ),
            ("latency_ns", Number::assumed(0.0, "far memory is memory")),
            ("channels", Number::assumed(cpus as f64, "every CPU copies")),
        ],
    );
    let _ = writeln!(text, "duplex = {{ value = false, source = \"assumed\" }}");
}

fn lender_as_far(text: &mut String, name: &str) -> Result<(), BenchError> {
    let (page_us, rate) = far::lender(name)?;
    let latency = (page_us * 1e3 - 4096.0 / rate).max(0.0).round();
    section(
        text,
        "[node.far]",
        &[
            (
                "gb_per_s",
                Number::measured((rate * 100.0).round() / 100.0, "pages of the lender, 64 at a time"),
            ),
            (
                "latency_ns",
                Number::measured(latency, "a page of the lender, less its bytes at that bandwidth"),
            ),
            ("channels", Number::assumed(1.0, "one link leads to the lender")),
        ],
    );
    let _ = writeln!(text, "duplex = {{ value = true, source = \"assumed: as networks are\" }}");
    Ok(())
}

fn head(cpus: usize) -> String {
    let this = machine();
    let about = format!("{}, {cpus} CPUs, Linux {}; measured by atoll bench machine", this.cpu, this.kernel);
    format!("name = {:?}\nabout = {about:?}\nruns_on = \"host\"\n\n[[node]]\nname = \"host\"\n", this.host)
}

fn section(text: &mut String, head: &str, numbers: &[(&str, Number)]) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "\n{head}");
    for (name, Number { value, source }) in numbers {
        let _ = writeln!(text, "{name} = {{ value = {value}, source = {source:?} }}");
    }
}

type Described = (Vec<&'static str>, [(&'static str, Number); 3]);

/// Returns the TLBs that the processor reports; where it reports none, those of a common one.
fn known_tlbs() -> Vec<Described> {
    let hit = |level: u8| match level {
        1 => Number::assumed(0.0, "part of an instruction"),
        _ => Number::assumed(7.0, "as of current x86 cores"),
    };
    let said = |value: u32| Number { value: value.into(), source: "the processor (CPUID)".into() };
    let found: Vec<Described> = tlbs::tlbs()
        .into_iter()
        .map(|tlb| {
            let numbers =
                [("entries", said(tlb.entries)), ("ways", said(tlb.ways)), ("hit_cycles", hit(tlb.level))];
            (tlb.pages, numbers)
        })
        .collect();
    if !found.is_empty() {
        return found;
    }
    let why = "of the order of current x86 cores; this one says nothing";
    let one = |level, entries: f64, ways: f64| {
        let numbers = [
            ("entries", Number::assumed(entries, why)),
            ("ways", Number::assumed(ways, why)),
            ("hit_cycles", hit(level)),
        ];
        (vec!["4K", "2M"], numbers)
    };
    vec![one(1, 64.0, 64.0), one(2, 2048.0, 8.0)]
}
