//! Measures how long the report of ten million samples takes, how much memory it takes, and how long it takes to open: `cargo
//! test -p atoll-report --release --test large -- --ignored --nocapture`. It runs alone in its process, as it reads the
//! process's own peak of memory.

mod headless;

use std::fs::{self, File};
use std::io::BufWriter;
use std::time::Instant;

use atoll_record::profile::{
    Access, Event, Header, Names, Profile, ProfileWriter, Sample, SamplerInfo, Trailer,
};

/// The targets: seconds to report, mebibytes at most, seconds to open.
const TARGETS: [f64; 3] = [5.0, 500.0, 2.0];
const SAMPLES: u64 = 10_000_000;
const BLOCKS: u64 = 200;
const BLOCK: u64 = 32 << 20;
const BASE: u64 = 0x7f00_0000_0000;

fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn target(what: &str, measured: f64, most: f64, unit: &str) {
    println!("{what}: {measured:.2} {unit}  {}", if measured <= most { "met" } else { "not met" });
}

#[test]
#[ignore = "a measurement"]
fn ten_million_samples() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.atoll");
    let sampler = SamplerInfo { name: "pebs".into(), reads: true, writes: true, ..SamplerInfo::default() };
    let header = Header { format: 1, page_bytes: 4096, samplers: vec![sampler], ..Header::default() };
    let mut writer =
        ProfileWriter::new(BufWriter::new(File::create(&path).expect("file")), &header).expect("head");
    for tid in 0..64 {
        let name = "app".to_owned();
        let worker = Event::Worker { time_ns: 0, space: 1, pid: 1, tid: tid + 1, number: tid, node: 0, name };
        writer.event(&worker).expect("event");
    }
    for i in 0..BLOCKS {
        let block =
            Event::Block { time_ns: 1, space: 1, start: BASE + i * BLOCK, bytes: BLOCK, site: 0x1000 + i };
        writer.event(&block).expect("event");
    }
    for i in 0..200_000u64 {
        let (time_ns, region) = (10 + i * 50_000, i % 40);
        let begin = Event::RegionBegin { time_ns, space: 1, function: 0x2000 + region };
        writer.event(&begin).expect("event");
        writer.event(&Event::RegionEnd { time_ns: time_ns + 40_000, space: 1 }).expect("event");
    }
    let mut state = 1u64;
    for i in 0..SAMPLES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Half of the accesses are at random in six gigabytes, half in sweeps.
        let address =
            if i.is_multiple_of(2) { (state >> 20) % (BLOCKS * BLOCK) } else { i * 4096 % (BLOCKS * BLOCK) };
        let access = if state >> 60 == 0 { Access::Write } else { Access::Read };
        let worker = (state >> 40) as u32 % 64;
        let sample =
            Sample { time_ns: 10 + i * 1000, address: BASE + address, worker, access, ..Sample::default() };
        writer.sample(0, sample).expect("sample");
    }
    writer
        .finish(&Names::default(), None, None, &Trailer { wall_seconds: 10.0, ..Trailer::default() })
        .expect("end");
    let before = peak_bytes();
    let begun = Instant::now();
    let profile = Profile::open(&path).expect("profile");
    let opened = begun.elapsed();
    let to = folder.path().join("large.html");
    atoll_report::write_html(&profile, BufWriter::new(File::create(&to).expect("file"))).expect("report");
    let bytes = fs::metadata(&to).expect("report").len();
    let (reported, peak) = (begun.elapsed().as_secs_f64(), (peak_bytes() >> 20) as f64);
    println!(
        "{SAMPLES} samples: opened in {:.2} s, reported in {:.2} s, peak {} MB (before {} MB), file {} KB",
        opened.as_secs_f64(),
        reported,
        peak,
        before >> 20,
        bytes >> 10
    );
    let [most_seconds, most_memory, most_opening] = TARGETS;
    target("report: at most 5 s", reported, most_seconds, "s");
    target("memory: at most 500 MB", peak, most_memory, "MB");
    if let Some(browser) = headless::chromium() {
        let begun = Instant::now();
        let seen = headless::browse(browser, folder.path(), &to, &["--dump-dom"]);
        let took = begun.elapsed().as_secs_f64();
        let page = String::from_utf8_lossy(&seen.stdout);
        let ready = page.split_once("data-ready=\"").and_then(|(_, rest)| rest.split_once('"'));
        println!("drawn after {} ms by the page's own clock", ready.expect("the page got ready").0);
        target("opening: at most 2 s, with all that a browser's start and end take", took, most_opening, "s");
    }
    if let Ok(keep) = std::env::var("ATOLL_KEEP_REPORT") {
        fs::copy(&to, keep).expect("copy");
    }
}
