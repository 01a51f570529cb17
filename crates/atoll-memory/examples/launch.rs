use atoll_memory::control::*;
use std::os::unix::process::CommandExt;
use std::sync::atomic::Ordering::Relaxed;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let near: u64 = a[1].parse().unwrap();
    let mut s = Settings::new(&a[2], &std::env::var("FAR").unwrap_or("ram".into()));
    if near > 0 { s.near_bytes = near << 20; }
    s.page_shift = a[3].parse().unwrap();
    s.page_tables = std::env::var("SHARED").is_ok() as u32;
    s.faults = std::env::var("THREAD").is_ok() as u32;
    s.workers = std::env::var("OMP_NUM_THREADS").map(|v| v.parse().unwrap()).unwrap_or(2);
    let (fd, c) = Control::create(s).unwrap();
    let lib = std::env::var("LIB").unwrap_or(format!("{}/target/release/libatoll_openmp.so", env!("CARGO_MANIFEST_DIR").replace("/crates/atoll-memory", "")));
    let t = std::time::Instant::now();
    unsafe { let st = std::process::Command::new(&a[4]).args(&a[5..]).env("LD_PRELOAD", lib).env("ATOLL_CONTROL_FD", fd.to_string())
        .pre_exec(|| { libc::prctl(libc::PR_SET_PDEATHSIG, 9); Ok(()) }).status().unwrap();
    eprintln!("status {st:?} wall {:.3}", t.elapsed().as_secs_f64()); }
    let n = c.workers.load(Relaxed);
    let tsc = 2.6e9;
    for i in (0..n as usize).chain([MAX_WORKERS]) { let f = &c.figures[i];
        eprintln!("w{i}: minor {} major {} first {} write {} pre {} clean {} dirty {} in {}M out {}M inv {} fault {:.3}s evict {:.3}s waits {} pid {}", f.minor_faults.load(Relaxed), f.major_faults.load(Relaxed), f.first_faults.load(Relaxed), f.write_faults.load(Relaxed), f.prefetched.load(Relaxed), f.evictions_clean.load(Relaxed), f.evictions_dirty.load(Relaxed), f.bytes_in.load(Relaxed)>>20, f.bytes_out.load(Relaxed)>>20, f.invalidations.load(Relaxed), f.fault_ticks.load(Relaxed) as f64/tsc, f.evict_ticks.load(Relaxed) as f64/tsc, f.waits.load(Relaxed), f.pid.load(Relaxed)); }
    let t = &c.totals;
    eprintln!("resident peak {}M touched peak {}M pinned peak {}K tables {}K failure {}", t.resident_peak.load(Relaxed)>>20, t.touched_peak.load(Relaxed)>>20, t.pinned_peak.load(Relaxed)>>10, t.table_bytes.load(Relaxed)>>10, c.failure.load(Relaxed));
    for i in 0..n as usize { let p = c.figures[i].pid.load(Relaxed); if p > 0 { unsafe { libc::kill(p, 9); } } }
}
