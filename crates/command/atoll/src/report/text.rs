//! A profile's report for the terminal.

use std::fmt::Write;

use atoll_record::profile::span::place;
use atoll_record::profile::{Kind, Profile, Span};

use super::tally::Tally;
use crate::run::summary::{bytes, count, ending_text};

/// The number of rows of a table.
const ROWS: usize = 20;

/// Returns the report. Variables whose memory is below `least` bytes are left out.
pub(crate) fn text(profile: &Profile, tally: &Tally, least: u64) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut out, profile, tally);
    let _ = variables(&mut out, profile, tally, least);
    let _ = regions(&mut out, profile, tally);
    let _ = workers(&mut out, profile, tally);
    out
}

/// Returns text that a terminal shows as it is: nothing of the program's may move the cursor.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn head(out: &mut String, profile: &Profile, tally: &Tally) -> std::fmt::Result {
    let header = &profile.header;
    writeln!(out, "{}  (atoll {})", plain(&header.arguments.join(" ")), plain(&header.atoll_version))?;
    writeln!(
        out,
        "  on {}: {}, {} of {} CPUs; {:.3} s{}",
        plain(&header.machine.host),
        plain(&header.machine.cpu),
        header.machine.cpus_usable,
        header.machine.cpus_online,
        profile.seconds(),
        profile
            .trailer
            .as_ref()
            .map_or(", end unknown".to_owned(), |t| format!(", {}", ending_text(t.ending)))
    )?;
    if let Some(program) = sampled_program(profile) {
        writeln!(out, "  most samples are of {}, which it started", plain(program))?;
    }
    for (number, info) in header.samplers.iter().enumerate() {
        let totals =
            profile.trailer.as_ref().and_then(|t| t.samplers.get(number)).cloned().unwrap_or_default();
        let target = info.overhead_target.map_or(String::new(), |t| format!(", to hold {:.1}%", 100.0 * t));
        writeln!(
            out,
            "  sampler {}: every {} {}{target}, buffer {}; {} samples, {} lost, {} dropped, {} without address",
            plain(&info.name),
            info.period,
            plain(&info.period_unit),
            bytes(info.buffer_bytes),
            count(totals.samples),
            count(totals.lost),
            count(totals.dropped),
            count(totals.foreign)
        )?;
    }
    if let Some(trailer) = &profile.trailer {
        writeln!(
            out,
            "  overhead {:.2}% of the program's own {:.3} s of processor time",
            100.0 * trailer.overhead(),
            trailer.own_seconds()
        )?;
    }
    if let Some(cut) = &profile.cut {
        writeln!(out, "  this profile is not whole: {cut}")?;
    }
    let every = tally.all.total() + tally.waiting + tally.paging + tally.own;
    let others = [
        (tally.waiting, "of OpenMP's own code, most of it waiting"),
        (tally.paging, "of atoll's paging, while accesses of the program faulted (column paging)"),
        (tally.own, "of atoll's own code and memory"),
    ];
    for (n, what) in others.into_iter().filter(|(n, _)| *n > 0) {
        writeln!(out, "  {:.1}% of {} samples are {what}", 100.0 * n as f64 / every as f64, count(every))?;
    }
    writeln!(
        out,
        "  {}{} samples of accesses on {} pages, {:.0}% of them writes",
        if tally.all.total() < every { "the rest: " } else { "" },
        count(tally.all.total()),
        count(tally.pages.len() as u64),
        100.0 * tally.all.writes as f64 / tally.all.total().max(1) as f64
    )?;
    let coverage = &tally.coverage;
    if tally.all.total() == 0 {
        return Ok(());
    }
    // Few samples look like a small program.
    let pages = count(coverage.pages as u64);
    if coverage.tells() {
        writeln!(out, "  about {pages} pages are touched")
    } else {
        writeln!(
            out,
            "  too few to tell how much memory is used: at least {pages} pages are touched, about {:.0}% of the accesses go to pages that no \
             sample saw",
            100.0 * coverage.unseen
        )
    }
}

/// Returns the file of the program that was sampled, where the command only started it.
fn sampled_program(profile: &Profile) -> Option<&str> {
    let program = profile.trailer.as_ref().map(|trailer| &*trailer.program)?;
    (!program.is_empty() && program != profile.header.program).then_some(program)
}

/// Returns the most bytes that a variable had at one time.
pub(crate) fn peak_bytes(profile: &Profile, variable: u32) -> u64 {
    let mut steps: Vec<(u64, i128)> = Vec::new();
    let own = |s: &&Span| s.variable == variable;
    for span in profile.spans.iter().filter(own) {
        steps.push((span.born_ns, i128::from(span.bytes)));
        steps.push((span.died_ns, -i128::from(span.bytes)));
    }
    steps.sort_unstable();
    let (mut now, mut most) = (0i128, 0i128);
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    u64::try_from(most).unwrap_or(u64::MAX)
}

fn variables(out: &mut String, profile: &Profile, tally: &Tally, least: u64) -> std::fmt::Result {
    let all = tally.all.total().max(1) as f64;
    // This is the share of the paging, where there was some.
    let paging =
        |n: &dyn std::fmt::Display| if tally.paging > 0 { format!(" {n:>7}") } else { String::new() };
    writeln!(
        out,
        "\n  {:>6} {:>7}{} {:>8} {:>8}  {:<9} variable",
        "share",
        "writes",
        paging(&"paging"),
        "bytes",
        "workers",
        "kind"
    )?;
    let hottest = tally.hottest();
    let mut shown = 0;
    for &(number, counts) in &hottest {
        let bytes_of = peak_bytes(profile, number);
        if bytes_of < least {
            continue;
        }
        if shown == ROWS {
            break;
        }
        shown += 1;
        let variable = &profile.variables[number as usize];
        let workers = tally.workers_of.keys().filter(|(v, _)| *v == number).count();
        let mut name = plain(&variable.name);
        if !variable.place().is_empty() {
            name += &format!("  {}", plain(&variable.place()));
        }
        if !variable.function.is_empty() {
            name += &format!(" in {}", plain(&variable.function));
        }
        writeln!(
            out,
            "  {:>5.1}% {:>6.0}%{} {:>8} {:>8}  {:<9} {name}",
            100.0 * counts.total() as f64 / all,
            100.0 * counts.writes as f64 / counts.total().max(1) as f64,
            paging(&format!(
                "{:.1}%",
                100.0 * tally.paging_of[number as usize] as f64 / tally.paging.max(1) as f64
            )),
            if matches!(variable.kind, Kind::Heap | Kind::Global) { bytes(bytes_of) } else { String::new() },
            workers,
            variable.kind.word()
        )?;
    }
    if hottest.len() > shown {
        writeln!(out, "  and {} more", hottest.len() - shown)?;
    }
    if tally.nowhere > 0 {
        writeln!(out, "  {:>5.1}% in memory that is not known", 100.0 * tally.nowhere as f64 / all)?;
    }
    Ok(())
}

fn regions(out: &mut String, profile: &Profile, tally: &Tally) -> std::fmt::Result {
    if profile.regions.is_empty() {
        return Ok(());
    }
    let all = tally.all.total().max(1) as f64;
    let mut rows: Vec<(f64, u64, usize)> =
        tally.regions.iter().enumerate().map(|(i, c)| (0.0, c.total(), i)).collect();
    let mut entered = vec![0u64; rows.len()];
    for phase in &profile.phases {
        let end = if phase.end_ns == u64::MAX { profile.end_ns } else { phase.end_ns };
        rows[phase.region as usize].0 += end.saturating_sub(phase.begin_ns) as f64 * 1e-9;
        entered[phase.region as usize] += 1;
    }
    rows.sort_by(|a, b| b.1.cmp(&a.1).then(b.0.total_cmp(&a.0)));
    writeln!(out, "\n  {:>6} {:>9} {:>8}  region", "share", "seconds", "entered")?;
    for (seconds, samples, number) in rows.into_iter().take(ROWS) {
        let region = &profile.regions[number];
        writeln!(
            out,
            "  {:>5.1}% {seconds:>9.3} {:>8}  {}  {}",
            100.0 * samples as f64 / all,
            count(entered[number]),
            plain(&region.name),
            plain(&place(&region.file, region.line))
        )?;
    }
    Ok(())
}

fn workers(out: &mut String, profile: &Profile, tally: &Tally) -> std::fmt::Result {
    let all = tally.all.total().max(1) as f64;
    writeln!(out, "\n  {:>6} {:>7} {:>8}  worker", "share", "writes", "thread")?;
    let mut rows: Vec<usize> = (0..tally.workers.len()).collect();
    rows.sort_by_key(|&i| std::cmp::Reverse(tally.workers[i].total()));
    rows.retain(|&i| tally.workers[i].total() > 0);
    for number in rows.into_iter().take(ROWS) {
        let (worker, counts) = (&profile.workers[number], tally.workers[number]);
        writeln!(
            out,
            "  {:>5.1}% {:>6.0}% {:>8}  {}",
            100.0 * counts.total() as f64 / all,
            100.0 * counts.writes as f64 / counts.total().max(1) as f64,
            worker.tid,
            worker.number.map_or_else(|| number.to_string(), |n| n.to_string())
        )?;
    }
    Ok(())
}
