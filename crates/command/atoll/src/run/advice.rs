//! Gives one line of advice at the end of a run that spent most of its time in faults: what would have been enough, and what
//! would be faster.
//!
//! `summary` prints it. All of it follows from the run's own figures; nothing is advised that they do not show.

use atoll_record::Figures;
use atoll_record::figures::Counters;

use super::summary::{bytes, count};

/// The least share of a worker's time in faults at which advice is given.
const MUCH: f64 = 0.5;
/// The least number of pages fetched for one fault at which larger pages are worth trying: a quarter of what a page of 64K
/// brings.
const SIDE_BY_SIDE: f64 = 4.0;
/// Pages of 4K that a huge page is.
const HUGE_PAGES: u64 = 512;
/// If pages compress to this share or less, compressed far memory moves less than a file does.
const SMALL: f64 = 0.6;
/// If pages compress to this share or more, compressing gains nothing.
const LARGE: f64 = 0.85;
/// The least bytes that must have been tried for the share to say something.
const TRIED: u64 = 8 * 4096;

/// Returns the advice; `None` where faults took less than half of each worker's time.
pub(super) fn of(f: &Figures) -> Option<String> {
    let share = |c: &Counters| if f.wall_seconds > 0.0 { c.fault_seconds / f.wall_seconds } else { 0.0 };
    let busiest = f.workers.iter().max_by(|a, b| share(&a.counters).total_cmp(&share(&b.counters)))?;
    let most = share(&busiest.counters);
    if !f.managed || most <= MUCH {
        return None;
    }
    let evicted = f.total.evictions_clean + f.total.evictions_dirty;
    let whose = match f.workers.len() {
        1 => format!("{:.0}% of its time went into faults", 100.0 * most),
        _ => format!("worker {} spent {:.0}% of its time in faults", busiest.index, 100.0 * most),
    };
    if evicted == 0 && f.total.major_faults == 0 {
        return not_of_a_limit(f).map(|tip| format!("{whose}, though nothing was evicted: try {tip}"));
    }
    let rest = (f.wall_seconds - busiest.counters.fault_seconds).max(0.0);
    let enough = format!(
        "--near {} would have been enough to evict nothing, and to take about {rest:.1} s",
        bytes(f.memory.footprint_peak_bytes)
    );
    let tips = at_this_limit(f);
    Some(match tips.split_last() {
        None => format!("{whose}: {enough}"),
        Some((tip, [])) => format!("{whose}: {enough}; at this limit try {tip}"),
        Some((tip, before)) => {
            format!("{whose}: {enough}; at this limit try {}, and {tip}", before.join(", "))
        }
    })
}

/// Returns what may be faster at the same limit, and why.
fn at_this_limit(f: &Figures) -> Vec<String> {
    let (s, m, t) = (&f.settings, &f.memory, &f.total);
    let mut tips = Vec::new();
    let together = (t.major_faults + t.prefetched_pages) as f64 / t.major_faults.max(1) as f64;
    // What comes in huge pages comes in larger ones than that already.
    let few_are_huge = m.huge_pages * HUGE_PAGES < (t.major_faults + t.prefetched_pages) / 2;
    if s.page_bytes == 4096 && f.nodes.is_empty() && together >= SIDE_BY_SIDE && few_are_huge {
        tips.push(format!("--page 64K (a fault brought {together:.0} pages side by side)"));
    }
    let is_file = s.far == "file" || s.far.starts_with("file:");
    // Pages that are to lie as they are say nothing of compression.
    let [far, stored] =
        [m.far_bytes, m.far_stored_bytes].map(|bytes| bytes.saturating_sub(m.far_plain_bytes));
    if is_file && m.tried_bytes >= TRIED {
        let packed = m.tried_packed_bytes as f64 / m.tried_bytes as f64;
        if packed <= SMALL {
            let tried = bytes(m.tried_bytes);
            tips.push(format!("--far lz4 ({tried} of evicted pages shrank to {:.0}%)", 100.0 * packed));
        }
    } else if !is_file
        && !["ram", "hosts"].contains(&s.far.as_str())
        && far >= m.data_peak_bytes / 4
        && far > 0
    {
        // A program's memory that is freed at its end is no longer counted.
        let packed = stored as f64 / far as f64;
        if packed >= LARGE {
            let saved = (100.0 * (1.0 - packed)).max(0.0);
            tips.push(format!("--far ram (compressing saves {saved:.0}%)"));
        }
    }
    if s.faults == "thread" {
        tips.push("--faults self (a handler thread has to be woken for each fault)".to_owned());
    }
    if !s.policy.starts_with("adaptive") {
        tips.push("--policy adaptive".to_owned());
    }
    tips
}

/// Returns what may help a program that fits into near memory.
fn not_of_a_limit(f: &Figures) -> Option<String> {
    let (s, t) = (&f.settings, &f.total);
    if t.minor_faults > t.first_faults && s.page_tables == "private" && f.workers.len() > 1 {
        let why = format!("{} faults were on pages that another worker had mapped", count(t.minor_faults));
        return Some(format!("--page-tables shared ({why})"));
    }
    let small = s.page_bytes == 4096 && f.nodes.is_empty();
    small.then(|| format!("--page 64K ({} faults were first touches)", count(t.first_faults)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_record::figures::Worker;

    fn figures(far: &str, fault_seconds: f64) -> Figures {
        let counters = Counters {
            major_faults: 100,
            prefetched_pages: 1200,
            evictions_dirty: 1300,
            fault_seconds,
            ..Counters::default()
        };
        let mut f = Figures {
            managed: true,
            wall_seconds: 4.0,
            total: counters,
            workers: vec![Worker { index: 0, pid: 1, counters }],
            ..Figures::default()
        };
        f.settings.page_bytes = 4096;
        f.settings.far = far.to_owned();
        f.settings.policy = "adaptive".to_owned();
        f.memory.footprint_peak_bytes = 131 << 20;
        f
    }

    #[test]
    fn a_run_that_mostly_faulted_got_no_advice() {
        assert_eq!(of(&figures("file", 1.9)), None);
        assert_eq!(
            of(&figures("file", 3.0)).unwrap(),
            "75% of its time went into faults: --near 131M would have been enough to evict nothing, and to take about 1.0 s; at this limit \
             try --page 64K (a fault brought 13 pages side by side)"
        );
        let mut f = figures("file:/tmp", 3.0);
        (f.memory.tried_bytes, f.memory.tried_packed_bytes) = (100 << 12, 34 << 12);
        f.total.prefetched_pages = 0;
        let advice = of(&f).unwrap();
        assert!(advice.ends_with("try --far lz4 (400K of evicted pages shrank to 34%)"), "{advice}");
        f.memory.tried_packed_bytes = 90 << 12;
        assert!(of(&f).unwrap().ends_with("about 1.0 s"));
        let mut f = figures("lz4", 3.0);
        (f.memory.far_bytes, f.memory.far_stored_bytes) = (100, 95);
        f.settings.policy = "lru".to_owned();
        let advice = of(&f).unwrap();
        assert!(advice.ends_with("--far ram (compressing saves 5%), and --policy adaptive"), "{advice}");
    }

    #[test]
    fn a_program_that_fits_is_told_something_else() {
        let mut f = figures("file", 3.0);
        f.total = Counters { first_faults: 5000, fault_seconds: 3.0, ..Counters::default() };
        assert_eq!(
            of(&f).unwrap(),
            "75% of its time went into faults, though nothing was evicted: try --page 64K (5000 faults were first touches)"
        );
        f.settings.page_bytes = 65536;
        assert_eq!(of(&f), None);
    }
}
