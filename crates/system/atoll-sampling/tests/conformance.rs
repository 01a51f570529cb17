//! Tests what every sampler promises, written once against the trait and run on each sampler that works here: samples are of
//! the threads it was attached to, of their times, and of memory that they touched; losses are counted; a thread that is gone
//! does no harm.
//!
//! `touches` and the harvester's own thread need a whole program: `tests/e2e/tests/samplers.rs` tests the same on records.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::hint::black_box;
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};

use atoll_profile_wire::{Mark, What, userfault};

use atoll_record::profile::Access;
use atoll_sampling::code::Code;
use atoll_sampling::damon::{self, Damon};
use atoll_sampling::faults::Faults;
use atoll_sampling::hardware::Hardware;
use atoll_sampling::hardware::pmu::Pmu;
use atoll_sampling::sampler::Knobs;
use atoll_sampling::timer::Timer;
use atoll_sampling::touches::Touches;
use atoll_sampling::writes::Writes;
use atoll_sampling::{Found, Harvest, Sampler, SamplerError, clock};

const BYTES: usize = 4 << 20;
const KNOBS: Knobs = Knobs { period: 0, buffer_bytes: 16 << 10, harvest_thread: false };

type Make = fn() -> Result<Box<dyn Sampler>, SamplerError>;

/// Returns every sampler with its name.
fn samplers() -> [(&'static str, Make); 7] {
    [
        ("timer", || Ok(Box::new(Timer::new(Knobs { period: 100_000, ..KNOBS }, 1e-5)?))),
        ("timer, harvested by a thread", || {
            Ok(Box::new(Timer::new(Knobs { period: 100_000, harvest_thread: true, ..KNOBS }, 1e-5)?))
        }),
        ("faults", || Ok(Box::new(Faults::new(Knobs { period: 1, ..KNOBS })?))),
        ("hardware", || {
            let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let pmu = Pmu::find(Path::new("/sys/bus/event_source/devices"), &processor)?;
            Ok(Box::new(Hardware::new(&pmu, Knobs { period: 1000, ..KNOBS })?))
        }),
        ("writes", || Ok(Box::new(Writes::new(20_000)?))),
        ("damon", || Ok(Box::new(Damon::new(Path::new(damon::DIRECTORY), 5000)?))),
        ("touches", || {
            let touches = Touches::new(1000);
            Err(SamplerError::Absent(format!(
                "atoll's runtime drops the pages of {}: see tests/e2e/tests/samplers.rs",
                touches.info().name
            )))
        }),
    ]
}

/// Calls `check` with each sampler that works here, and prints why the others do not. They run one at a time, as some sample
/// the whole process.
fn with_each(check: impl Fn(&str, Box<dyn Sampler>)) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, make) in samplers() {
        match make() {
            Ok(sampler) => check(name, sampler),
            Err(error) => atoll_skips::skip_part!("{name}: {error}"),
        }
    }
}

/// Attaches the sampler to a thread of this process, and does what a program's inside does.
fn attach(sampler: &mut dyn Sampler, tid: u32) {
    let pid = std::process::id();
    sampler.attach(pid, tid, false).unwrap();
    if let Ok(fault) = userfault() {
        let what = What::Userfault { fd: fault.into_raw_fd() };
        sampler.told(&Mark { time_ns: clock::now_ns(), pid, what });
    }
}

fn detach(sampler: &mut dyn Sampler, tid: u32) {
    sampler.detach(tid);
    sampler.detach(std::process::id());
}

/// Whether the sampler has buffers of the kernel that can be full.
fn has_buffers(sampler: &dyn Sampler) -> bool {
    let mut any = false;
    sampler.descriptors(&mut |_| any = true);
    any
}

/// The number of bytes of its stack that the thread may use.
const STACK: u64 = 64 << 10;

/// A thread that faults in, writes and reads `BYTES` again and again until told to stop.
struct Worker {
    tid: u32,
    start: u64,
    /// An address on its stack.
    stack: u64,
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
        let here = (&raw const words) as u64;
        // SAFETY: no pointers.
        tell.send((unsafe { libc::gettid() } as u32, words.as_ptr() as u64, here)).unwrap();
        let _ = wait.recv();
        while !stopped.load(Ordering::Relaxed) {
            for pass in 0..20 {
                for word in words.iter_mut() {
                    *word = black_box(*word + pass);
                }
                // Told while the memory is there: whoever looks right then is to find it, on a busy machine, too.
                if pass == 10 {
                    let _ = round.try_send(());
                }
            }
            // SAFETY: the memory is this thread's, and zeros are words.
            unsafe { libc::madvise(words.as_mut_ptr().cast(), BYTES, libc::MADV_DONTNEED) };
        }
    });
    let (tid, start, stack) = told.recv().unwrap();
    Worker { tid, start, stack, stop, go, rounds, thread }
}

impl Worker {
    /// Lets the thread do some rounds.
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

fn harvest(sampler: &mut dyn Sampler, found: &mut Vec<Found>) -> Harvest {
    sampler.harvest(&mut Code::default(), found)
}

#[test]
fn samples_are_of_the_thread_its_time_and_its_memory() {
    with_each(|name, mut sampler| {
        let worker = worker();
        let begin = clock::now_ns();
        attach(&mut *sampler, worker.tid);
        let (mut found, mut total) = (Vec::new(), Harvest::default());
        let range = worker.start..worker.start + BYTES as u64;
        let inside = |found: &Found| range.contains(&found.address);
        // This goes on until there are some samples, however slow the machine is. Where threads cannot be told apart, the first
        // samples may all be of other tests.
        for _ in 0..500 {
            worker.rounds(1);
            total += harvest(&mut *sampler, &mut found);
            if found.len() >= 500 && found.iter().filter(|f| inside(f)).count() >= 100 {
                break;
            }
        }
        let end = clock::now_ns();
        detach(&mut *sampler, worker.tid);
        // A sampler that cannot tell threads apart reports the process's first.
        let tids = [worker.tid, if has_buffers(&*sampler) { worker.tid } else { std::process::id() }];
        let stack = worker.stack;
        worker.end();
        assert!(!found.is_empty(), "{name}");
        assert!(total.records > 0, "{name}: {total:?}");
        assert!(found.iter().all(|f| f.pid == std::process::id() && tids.contains(&f.tid)), "{name}");
        assert!(found.iter().all(|f| (begin..=end).contains(&f.time_ns)), "{name}");
        assert!(found.is_sorted_by_key(|f| f.time_ns), "{name}");
        let inside: Vec<_> = found.iter().filter(|f| inside(f)).collect();
        // The thread's stack is its memory, too.
        let on_stack = found.iter().filter(|f| f.address.abs_diff(stack) < STACK).count();
        let others = found.len() - on_stack;
        // Where threads cannot be told apart, the harvesting thread and the other tests are seen as well.
        let enough = if has_buffers(&*sampler) { inside.len() * 2 > others } else { inside.len() >= 100 };
        assert!(enough, "{name}: {} of {others}", inside.len());
        let info = sampler.info();
        assert!(info.writes && !info.meaning.is_empty(), "{name}");
        assert!(info.reads || inside.iter().all(|f| f.access == Access::Write), "{name}");
        assert!(info.byte_addresses || inside.iter().all(|f| f.address % 4096 == 0), "{name}");
        let writes = inside.iter().filter(|f| f.access != Access::Read).count();
        assert!(writes > 0, "{name}: no writes of {}", inside.len());
    });
}

#[test]
fn what_does_not_fit_is_counted() {
    with_each(|name, mut sampler| {
        sampler.set_period(1);
        let worker = worker();
        attach(&mut *sampler, worker.tid);
        if !has_buffers(&*sampler) {
            atoll_skips::skip_part!("{name}: it has no buffer that can be full");
            return worker.end();
        }
        let mut found = Vec::new();
        worker.rounds(12);
        let mut total = harvest(&mut *sampler, &mut found);
        // The kernel reports losses with the next record that fits.
        worker.rounds(1);
        total += harvest(&mut *sampler, &mut found);
        worker.end();
        assert!(!found.is_empty(), "{name}");
        assert!(total.lost > 0, "{name}: {} found, {total:?}", found.len());
        assert!(total.fullest > 0 && total.fullest <= total.bytes, "{name}: {total:?}");
    });
}

#[test]
fn a_thread_that_is_gone_does_no_harm() {
    with_each(|name, mut sampler| {
        let worker = worker();
        let tid = worker.tid;
        worker.end();
        assert!(sampler.attach(std::process::id(), tid, false).is_ok(), "{name}");
        let mut found = Vec::new();
        harvest(&mut *sampler, &mut found);
        assert_eq!(found, [], "{name}");
        sampler.detach(tid);
        sampler.detach(tid);
    });
}

#[test]
fn a_process_that_is_gone_does_no_harm() {
    with_each(|name, mut sampler| {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let what = What::Userfault { fd: 3 };
        sampler.told(&Mark { time_ns: 1, pid: child.id(), what });
        assert!(sampler.attach(child.id(), child.id(), false).is_ok(), "{name}");
        let mut found = Vec::new();
        harvest(&mut *sampler, &mut found);
        assert_eq!(found, [], "{name}");
        sampler.executed(child.id());
        sampler.detach(child.id());
    });
}

#[test]
fn nothing_is_found_after_the_end() {
    with_each(|name, mut sampler| {
        let worker = worker();
        attach(&mut *sampler, worker.tid);
        worker.rounds(1);
        detach(&mut *sampler, worker.tid);
        worker.rounds(1);
        let mut found = Vec::new();
        harvest(&mut *sampler, &mut found);
        assert_eq!(found, [], "{name}");
        worker.end();
    });
}

/// Two profilers may look at the same thread.
#[test]
fn two_at_once_find_what_each_would() {
    with_each(|name, mut one| {
        let other = samplers().into_iter().find(|(n, _)| *n == name).and_then(|(_, make)| make().ok());
        let Some(mut other) = other else {
            atoll_skips::skip_part!("{name}: there is one at a time");
            return;
        };
        let worker = worker();
        // A mapping can be write-protected by one user only: the second finds nothing, and does no harm.
        let shares = has_buffers(&*one);
        attach(&mut *one, worker.tid);
        attach(&mut *other, worker.tid);
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for _ in 0..500 {
            worker.rounds(1);
            harvest(&mut *one, &mut found);
            harvest(&mut *other, &mut others);
            if !found.is_empty() && (!shares || !others.is_empty()) {
                break;
            }
        }
        detach(&mut *one, worker.tid);
        detach(&mut *other, worker.tid);
        worker.end();
        if shares {
            assert!(!found.is_empty() && !others.is_empty(), "{name}: {} {}", found.len(), others.len());
        } else {
            assert!(!found.is_empty() || !others.is_empty(), "{name}");
        }
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
