//! Runs `atoll sim` and `atoll repro` from the command line: what they print, and their errors.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_record::trace::{Event, Header, Writer};

/// Returns standard output, standard error, and whether the command succeeded.
fn atoll(words: &[&str]) -> (String, String, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_atoll")).args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.success())
}

/// Writes a trace of two workers that sweep over 300 pages each, four times, in one region.
fn trace(folder: &Path) -> PathBuf {
    let path = folder.join("sweep.trace");
    let header = Header { workers: 2, arguments: vec!["sweep".into()], ..Header::default() };
    let mut writer = Writer::new(File::create(&path).unwrap(), &header).unwrap();
    for worker in [0, 1] {
        writer.push(&Event::RegionBegin { worker, name: 7 }).unwrap();
    }
    for _ in 0..4 {
        for page in 0..300 {
            for worker in [0, 1] {
                writer.push(&Event::Compute { worker, instructions: 500 }).unwrap();
                let page = 1000 + page + 400 * u64::from(worker);
                writer.push(&Event::Access { worker, page, write: true }).unwrap();
            }
        }
        for worker in [0, 1] {
            writer.push(&Event::Barrier { worker, name: 8 }).unwrap();
        }
    }
    for worker in [0, 1] {
        writer.push(&Event::RegionEnd { worker, name: 7 }).unwrap();
    }
    writer.finish(0, BTreeMap::from([(7, "sweep._omp_fn.0".to_owned())])).unwrap();
    path
}

#[test]
fn a_grid_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, csv) = (trace(folder.path()), folder.path().join("out.csv"));
    let (path, csv) = (path.to_str().unwrap(), csv.to_str().unwrap());
    let words =
        ["sim", "--machine", "knc-5110p", "--near", "50%,1M", "--policy", "fifo,min", "--csv", csv, path];
    let (out, err, ok) = atoll(&words);
    assert!(ok && err.is_empty(), "{err}");
    assert!(out.contains("2 workers") && out.contains("1: 100.0%"), "{out}");
    // Everything near and four cells.
    let written = std::fs::read_to_string(csv).unwrap();
    assert_eq!(written.lines().count(), 6, "{written}");
    let column = |line: &str, name: &str| {
        let at = written.lines().next().unwrap().split(',').position(|head| head == name).unwrap();
        line.split(',').nth(at).unwrap().parse::<u64>().unwrap()
    };
    let cell = |share: &str, policy: &str| {
        let is = |line: &&str| line.contains(&format!(",{share},")) && line.contains(&format!(",{policy},"));
        written.lines().find(is).unwrap()
    };
    // A cyclic sweep defeats FIFO: three sweeps of 600 pages are fetched again, page by page. MIN keeps what fits.
    assert_eq!(column(cell("50%", "fifo"), "major_faults"), 3 * 600);
    assert!(column(cell("50%", "min"), "major_faults") < 3 * 310);
    assert_eq!(column(cell("all", "none"), "first_faults"), 600);
    // A second simulation gives the same result, to the picosecond.
    let (again, _, _) = atoll(&words);
    assert_eq!(out, again);
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path());
    let path = path.to_str().unwrap();
    let wrong = |words: &[&str], says: &str| {
        let (_, err, ok) = atoll(words);
        assert!(!ok && err.contains(says), "{words:?}: {err}");
    };
    wrong(
        &["sim", "--workers", "56", path],
        "has 2 workers, not 56: capture it with atoll trace --workers 56",
    );
    wrong(&["sim", "--machine", "cray", path], "no machine is called `cray`: use one of knc-5110p");
    wrong(&["sim", "--regions", "solve", path], "has no region of that name: there are sweep");
    wrong(&["sim", "--policy", "clock", path], "no such replacement policy");
    wrong(&["sim", "--page", "mixed", "--policy", "min", path], "policy min needs pages of one size");
    wrong(&["sim", "/nonexistent.trace"], "/nonexistent.trace");
    let machine = folder.path().join("m.toml");
    std::fs::write(&machine, "name = \"m\"\nabout = \"m\"\nrunson = \"m\"\n").unwrap();
    wrong(&["sim", "--machine", machine.to_str().unwrap(), path], "m.toml:3: unknown field `runson`");
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    wrong(&["sim", path], "cut off at byte");
    let nowhere = folder.path().to_str().unwrap();
    let results = folder.path().join("results");
    let out = results.to_str().unwrap();
    wrong(
        &["repro", "cmcp", "--quick", "--out", out, "--programs", nowhere, "--traces", nowhere],
        "make programs",
    );
}

#[test]
fn machines_name_their_sources() {
    for machine in
        ["knc-5110p", "knl-7250", "xeon-e5-2670v2+phi-3210a", "xeon-e5-2620+thunderx", "this-machine"]
    {
        let (out, _, ok) = atoll(&["sim", "--machine", machine, "--describe"]);
        assert!(ok && out.contains("cores.count") && out.contains("far.gb_per_s"), "{out}");
    }
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let end = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["sim", "--machine", "knc-5110p", "--describe"])
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(
        (end.status.signal(), String::from_utf8_lossy(&end.stderr).as_ref()),
        (Some(libc::SIGPIPE), "")
    );
}

/// This test is built and run by `cargo test -p atoll --features parquet`.
#[cfg(feature = "parquet")]
#[test]
fn results_are_written_as_parquet() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let (file, csv) = (folder.path().join("results.parquet"), folder.path().join("results.csv"));
    let words = ["sim", "--machine", "knc-5110p", "--near", "50%,1M", "--policy", "fifo,min", "--parquet"];
    let files = [file.to_str().unwrap(), "--csv", csv.to_str().unwrap(), trace.to_str().unwrap()];
    let (_, said, well) = atoll(&[&words[..], &files[..]].concat());
    assert!(well, "{said}");
    let csv = std::fs::read_to_string(csv).unwrap();
    let heads: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap()).collect();
    assert_eq!(rows.len(), csv.lines().count() - 1);
    let at = |name: &str| heads.iter().position(|head| *head == name).unwrap();
    for (row, line) in rows.iter().zip(csv.lines().skip(1)) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(row.len(), heads.len());
        assert_eq!(row.get_string(at("machine")).unwrap(), cells[at("machine")]);
        assert_eq!(row.get_long(at("major_faults")).unwrap().to_string(), cells[at("major_faults")]);
        assert!(
            (row.get_double(at("seconds")).unwrap() - cells[at("seconds")].parse::<f64>().unwrap()).abs()
                < 1e-8
        );
    }
}

#[test]
fn workers_on_two_nodes_fetch_what_the_other_has() {
    let folder = tempfile::tempdir().unwrap();
    let (path, csv) = (trace(folder.path()), folder.path().join("out.csv"));
    let (path, csv) = (path.to_str().unwrap(), csv.to_str().unwrap());
    let machine = "xeon-e5-2620+thunderx";
    let words = ["sim", "--machine", machine, "--nodes", "1,2", "--prefetch", "off", "--csv", csv, path];
    let (out, err, ok) = atoll(&words);
    assert!(ok && err.is_empty() && out.contains("2 workers"), "{err}{out}");
    let written = std::fs::read_to_string(csv).unwrap();
    let mut lines = written.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows: Vec<BTreeMap<&str, &str>> =
        lines.map(|line| names.iter().copied().zip(line.split(',')).collect()).collect();
    let row = |nodes, protocol| {
        rows.iter().find(|row| row["nodes"] == nodes && row["protocol"] == protocol).unwrap().clone()
    };
    // One node has everything. The second has to fetch the 300 pages that its worker writes, once.
    assert_eq!(row("1", "sc")["messages"], "0");
    let sc = row("2", "sc");
    assert_eq!(
        (sc["write_faults"], sc["pages"], sc["invalidations"], sc["batched"]),
        ("300", "300", "300", "0")
    );
    let mw = row("2", "mw");
    assert_eq!(
        (mw["write_faults"], mw["twins"], mw["invalidations"], mw["batched"]),
        ("300", "300", "0", "300")
    );
    // No page is written by both.
    assert_eq!((mw["diffs"], mw["read_faults"]), ("0", "0"));

    let (_, err, ok) = atoll(&["sim", "--nodes", "2", "--near", "50%", path]);
    assert!(!ok && err.contains("--near"), "{err}");
    let (_, err, ok) = atoll(&["sim", "--nodes", "3", path]);
    assert!(!ok && err.contains("3 nodes for 2 workers"), "{err}");
}
