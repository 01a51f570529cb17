//! Opens the report in headless Chromium: it draws, in the given time, in light and dark, and runs nothing of the program's
//! names.
//!
//! The tests are skipped, with the reason, where there is no Chromium.

mod headless;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use atoll_record::profile::names::{Global, ModuleNames};
use atoll_record::profile::{
    Access, Event, Header, Names, Profile, ProfileWriter, Sample, SamplerInfo, Trailer,
};

use headless::{browse, chromium};

/// Names that would do something if they were taken for markup or script.
const HOSTILE: [&str; 4] = [
    "</script><script>document.title='broken'</script>",
    "<img src=x onerror=\"document.title='broken'\">",
    "<!--<script>",
    "\u{2028}`${document.title='broken'}`'\"&lt;b&gt;",
];

const BASE: u64 = 0x5555_0000_0000;
const PAGE: u64 = 4096;

/// Writes a profile with hostile names: two workers that sweep and stride over four globals.
fn record(path: &Path) {
    let sampler = SamplerInfo {
        name: "timer".into(),
        meaning: HOSTILE[1].into(),
        period: 1000,
        period_unit: "ns".into(),
        reads: true,
        writes: true,
        ..SamplerInfo::default()
    };
    let header = Header {
        format: 1,
        arguments: vec![HOSTILE[0].into(), HOSTILE[2].into()],
        page_bytes: PAGE as u32,
        samplers: vec![sampler],
        ..Header::default()
    };
    let file = BufWriter::new(File::create(path).expect("a file"));
    let mut writer = ProfileWriter::new(file, &header).expect("header");
    for tid in [7, 8] {
        let name = HOSTILE[3].to_owned();
        let worker = Event::Worker { time_ns: 0, space: 7, pid: 7, tid, number: tid - 7, node: 0, name };
        writer.event(&worker).expect("event");
    }
    let map = |time_ns| Event::Map {
        time_ns,
        space: 7,
        start: BASE,
        bytes: 4 << 20,
        offset: 0,
        path: "/bin/app".into(),
        code: false,
    };
    writer.event(&map(1)).expect("event");
    for i in 0..40_000u64 {
        let worker = (i % 2) as u32;
        let page = if worker == 0 { i / 40 } else { i * 17 % 900 };
        let access = if i.is_multiple_of(5) { Access::Write } else { Access::Read };
        let sample = Sample {
            time_ns: 1000 + i * 25_000,
            address: BASE + page * PAGE,
            worker,
            access,
            ..Sample::default()
        };
        writer.sample(0, sample).expect("sample");
        if i.is_multiple_of(500) {
            let wakeup = Event::Wakeup { time_ns: 1000 + i * 25_000, sampler: 0, records: 500, bytes: 9 };
            writer.event(&wakeup).expect("event");
        }
    }
    let globals = HOSTILE.iter().enumerate().map(|(i, name)| Global {
        address: (i as u64) << 20,
        bytes: 1 << 20,
        name: (*name).into(),
        file: "<b>a.c".into(),
        line: 3,
    });
    let module =
        ModuleNames { segments: vec![(0, 4 << 20, 0)], globals: globals.collect(), ..ModuleNames::default() };
    let names = Names { modules: [("/bin/app".to_owned(), module)].into() };
    let trailer = Trailer { wall_seconds: 1.01, cpu_seconds: 2.0, ..Trailer::default() };
    writer.finish(&names, None, None, &trailer).expect("end");
}

fn report(folder: &Path) -> PathBuf {
    let (from, to) = (folder.join("app.atoll"), folder.join("app.html"));
    record(&from);
    let profile = Profile::open(&from).expect("profile");
    atoll_report::write_html(&profile, File::create(&to).expect("a file")).expect("report");
    to
}

#[test]
fn the_report_is_drawn_and_runs_no_name() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let page = report(folder.path());
    let output = browse(browser, folder.path(), &page, &["--dump-dom", "--enable-logging=stderr"]);
    let dom = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    let head = dom.get(..400).unwrap_or(&dom);
    assert!(dom.contains("data-ready=\""), "the page did not get ready: {head}\n{log}");
    assert!(!dom.contains("data-ready=\"failed\""), "{head}\n{log}");
    assert!(!dom.contains("<title>broken"), "a name was run");
    // As text, the name's brackets are escaped.
    assert!(!dom.contains("<img src"), "a name became markup");
    assert!(!log.contains("Uncaught"), "{log}");
    assert!(!log.contains("Content Security Policy"), "{log}");
    for id in ["map-chart", "near-chart", "pages-chart", "workers-chart", "wakeups-chart"] {
        let (_, chart) = dom.split_once(&format!("id=\"{id}\"")).expect("the chart's place");
        let chart = chart.get(..6000.min(chart.len())).unwrap_or(chart);
        assert!(chart.contains("main-svg"), "nothing was drawn in {id}");
    }
    // The map's axis had addresses only.
    let (_, map) = dom.split_once("id=\"map-chart\"").expect("the map");
    let ticks: Vec<&str> =
        map.split("class=\"ytick\"").skip(1).take(3).filter_map(|t| t.split('<').nth(1)).collect();
    assert!(!ticks.is_empty() && ticks.iter().all(|tick| !tick.contains(">0x")), "{ticks:?}");
    let names = dom.matches("&lt;img src=x onerror").count();
    assert!(names >= 2, "the name is shown as it is: {names}");
}

#[test]
fn screenshots_differ_in_light_and_dark() {
    let Some(browser) = chromium() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let page = report(folder.path());
    let shot = |name: &str, more: &[&str]| {
        let to = folder.path().join(name);
        let flag = format!("--screenshot={}", to.display());
        browse(browser, folder.path(), &page, &[&[flag.as_str()], more].concat());
        fs::read(to).expect("a screenshot")
    };
    let light = shot("light.png", &[]);
    let dark = shot("dark.png", &["--blink-settings=preferredColorScheme=0"]);
    assert!(light.len() > 10_000 && dark.len() > 10_000, "{} {}", light.len(), dark.len());
    assert_ne!(light, dark);
}

#[test]
fn the_file_needs_nothing_else_and_is_of_moderate_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = fs::read_to_string(report(folder.path())).expect("the page");
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
    assert!(page.contains("default-src 'none'"));
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!page.contains(outside), "the page loads {outside}");
    }
    // There are the page's own three script elements, and none of a name's.
    assert_eq!(page.matches("<script").count(), 3);
    assert_eq!(page.matches("</script").count(), 3);
}
