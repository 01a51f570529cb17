//! What every sampler promises, tried on each that works here: samples are of the threads it was attached to, of their times,
//! and of memory that they touched; what is lost is counted; what is gone does no harm.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use atoll_record::profile::Access;
use atoll_sampling::code::Code;
use atoll_sampling::faults::Faults;
use atoll_sampling::hardware::Hardware;
use atoll_sampling::hardware::pmu::Pmu;
use atoll_sampling::sampler::Knobs;
use atoll_sampling::timer::Timer;
use atoll_sampling::{Found, Harvest, Sampler, SamplerError, clock};

const BYTES: usize = 4 << 20;
const KNOBS: Knobs = Knobs { period: 0, buffer_bytes: 16 << 10 };

type Make = fn() -> Result<Box<dyn Sampler>, SamplerError>;

/// Every sampler that works by itself.
fn samplers() -> [(&'static str, Make); 3] {
    [
        ("timer", || Ok(Box::new(Timer::new(Knobs { period: 100_000, ..KNOBS }, 1e-5)?))),
        ("faults", || Ok(Box::new(Faults::new(Knobs { period: 1, ..KNOBS })?))),
        ("hardware", || {
            let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let pmu = Pmu::find(Path::new("/sys/bus/event_source/devices"), &processor)?;
            Ok(Box::new(Hardware::new(&pmu, Knobs { period: 1000, ..KNOBS })?))
        }),
    ]
}

/// Calls `check` with each sampler that works here, and says of the others why they do not.
fn with_each(check: impl Fn(&str, Box<dyn Sampler>)) {
    for (name, make) in samplers() {
        match make() {
            Ok(sampler) => check(name, sampler),
            Err(error) => println!("skipped: {name}: {error}"),
        }
    }
}

/// A thread that faults in, writes and reads `BYTES` again and again until told to stop.
struct Worker {
    tid: u32,
    start: u64,
    stop: Arc<AtomicBool>,
    go: mpsc::Sender<()>,
    rounds: mpsc::Receiver<()>,
    thread: std::thread::JoinHandle<()>,
}

fn worker() -> Worker {
    let (tell, told) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let (round, rounds) = mpsc::sync_channel(1000);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping, used by this thread only, as 64-bit words.
        let words = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, BYTES, libc::MADV_NOHUGEPAGE);
            std::slice::from_raw_parts_mut(at.cast::<u64>(), BYTES / 8)
        };
        // SAFETY: no pointers.
        tell.send((unsafe { libc::gettid() } as u32, words.as_ptr() as u64)).unwrap();
        let _ = wait.recv();
        while !stopped.load(Ordering::Relaxed) {
            for pass in 0..20 {
                for word in words.iter_mut() {
                    *word = black_box(*word + pass);
                }
            }
            // SAFETY: the memory is this thread's, and zeros are words.
            unsafe { libc::madvise(words.as_mut_ptr().cast(), BYTES, libc::MADV_DONTNEED) };
            let _ = round.try_send(());
        }
    });
    let (tid, start) = told.recv().unwrap();
    Worker { tid, start, stop, go, rounds, thread }
}

impl Worker {
    /// Lets it do some rounds.
    fn rounds(&self, n: usize) {
        let _ = self.go.send(());
        while self.rounds.try_recv().is_ok() {}
        (0..n).for_each(|_| self.rounds.recv().unwrap());
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.go.send(());
        self.thread.join().unwrap();
    }
}

fn harvest(sampler: &mut dyn Sampler) -> (Vec<Found>, Harvest) {
    let mut found = Vec::new();
    let harvest = sampler.harvest(&mut Code::default(), &mut found);
    (found, harvest)
}

#[test]
fn samples_are_of_the_thread_its_time_and_its_memory() {
    with_each(|name, mut sampler| {
        let worker = worker();
        let begin = clock::now_ns();
        sampler.attach(std::process::id(), worker.tid, false).unwrap();
        worker.rounds(3);
        let (found, harvest) = harvest(&mut *sampler);
        let end = clock::now_ns();
        sampler.detach(worker.tid);
        let tid = worker.tid;
        let range = worker.start..worker.start + BYTES as u64;
        worker.end();
        assert!(!found.is_empty(), "{name}");
        assert!(harvest.records > 0 && harvest.bytes > 0, "{name}: {harvest:?}");
        assert!(found.iter().all(|f| f.tid == tid), "{name}");
        assert!(found.iter().all(|f| (begin..=end).contains(&f.time_ns)), "{name}");
        assert!(found.is_sorted_by_key(|f| f.time_ns), "{name}");
        let inside: Vec<_> = found.iter().filter(|f| range.contains(&f.address)).collect();
        assert!(inside.len() * 2 > found.len(), "{name}: {} of {}", inside.len(), found.len());
        let info = sampler.info();
        assert!(info.reads && info.writes && !info.meaning.is_empty(), "{name}");
        let writes = inside.iter().filter(|f| f.access == Access::Write).count();
        assert!(writes > 0, "{name}: no writes of {}", inside.len());
    });
}

#[test]
fn what_does_not_fit_is_counted() {
    with_each(|name, mut sampler| {
        sampler.set_period(1);
        let worker = worker();
        sampler.attach(std::process::id(), worker.tid, false).unwrap();
        worker.rounds(12);
        let (first, counted) = harvest(&mut *sampler);
        worker.rounds(1);
        let (_, rest) = harvest(&mut *sampler);
        worker.end();
        // The kernel tells of losses with the next record that fits.
        let lost = counted.lost + rest.lost;
        assert!(!first.is_empty(), "{name}");
        assert!(lost > 0, "{name}: {} found, {counted:?}, {rest:?}", first.len());
    });
}

#[test]
fn a_thread_that_is_gone_does_no_harm() {
    with_each(|name, mut sampler| {
        let worker = worker();
        let tid = worker.tid;
        worker.end();
        assert!(sampler.attach(std::process::id(), tid, false).is_ok(), "{name}");
        assert_eq!(harvest(&mut *sampler).0, [], "{name}");
        sampler.detach(tid);
        sampler.detach(tid);
    });
}

#[test]
fn nothing_is_found_after_the_end() {
    with_each(|name, mut sampler| {
        let worker = worker();
        sampler.attach(std::process::id(), worker.tid, false).unwrap();
        worker.rounds(1);
        sampler.detach(worker.tid);
        worker.rounds(1);
        assert_eq!(harvest(&mut *sampler).0, [], "{name}");
        worker.end();
    });
}

#[test]
fn periods_are_what_was_set() {
    with_each(|name, mut sampler| {
        let doubled = sampler.period() * 2;
        sampler.set_period(doubled);
        assert_eq!((sampler.period(), sampler.info().period), (doubled, doubled), "{name}");
        sampler.jitter(0.9);
        assert_eq!(sampler.period(), doubled, "{name}");
    });
}
