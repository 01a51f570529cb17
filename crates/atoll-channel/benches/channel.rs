//! What a message costs between two pinned processes, and how close that is to what the hardware takes for a line:
//! `cargo bench -p atoll-channel`. Some 20 seconds on a quiet machine with two CPUs.
#![allow(clippy::unwrap_used, reason = "a bench ends where something is missing")]

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use atoll_channel::{Channel, Message, Placement, RecvError, Settings, WaitSet};

/// One way, for a message of 8 bytes.
const TARGET_US: f64 = 0.20;
const ROUNDS: usize = 300_000;
const WARM: usize = 20_000;
/// Runs of which the median is printed, for throughput.
const RUNS: usize = 5;
const SECONDS: Option<Duration> = Some(Duration::from_secs(10));
const BOTH: [Placement; 2] = [Placement::Sender, Placement::Receiver];

fn main() {
    // SAFETY: sets a timer; its signal ends a bench that hangs.
    unsafe { libc::alarm(120) };
    let cpus = cpus();
    let [first, second] = cpus[..] else {
        println!("only one CPU: two processes cannot be pinned apart, nothing was measured");
        return;
    };
    pin(first);
    println!(
        "two processes pinned to CPUs {first} and {second}; one way is half a round trip; clock read once a round trip"
    );
    println!();
    let line = bare_line(second);
    println!("{:<60} {:>9} {:>9}", "8 bytes one way", "median us", "99% us");
    println!("{:<60} {:>9.3} {:>9.3}", "bare line, stored and polled", line.0, line.1);
    let mut of_default = 0.0;
    for outgoing in BOTH {
        for incoming in BOTH {
            let settings = Settings { outgoing, incoming, ..Settings::default() };
            let (median, late) = latency(second, settings);
            if settings == Settings::default() {
                of_default = median;
            }
            let name =
                format!("channel, there in the {outgoing:?}'s, back in the {incoming:?}'s").to_lowercase();
            println!("{name:<60} {median:>9.3} {late:>9.3}   {}", verdict(median));
        }
    }
    println!();
    println!("{:<10} {:>22} {:>22}", "throughput", "in the sender's memory", "in the receiver's");
    println!("{:<10} {:>11} {:>10} {:>11} {:>10}", "bytes", "messages/s", "MB/s", "messages/s", "MB/s");
    for bytes in [8, 56, 64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20] {
        let rates = BOTH.map(|outgoing| {
            let settings = Settings { outgoing, ..Settings::default() };
            let mut runs: Vec<f64> = (0..RUNS).map(|_| throughput(second, settings, bytes)).collect();
            runs.sort_unstable_by(f64::total_cmp);
            runs[RUNS / 2]
        });
        print!("{bytes:<10}");
        for rate in rates {
            print!(" {rate:>11.0} {:>10.1}", rate * bytes as f64 / 1e6);
        }
        println!();
    }
    println!();
    println!("{:<60} {:>9}", "wait set, a message to one channel at random", "ns each");
    for channels in [1, 100, 10_000] {
        println!("{:<60} {:>9.0}", format!("{channels} channels"), served(second, channels));
    }
    println!();
    println!(
        "8 bytes one way {of_default:.3} us, bare line {:.3} us, target {TARGET_US:.2} us: {}",
        line.0,
        verdict(of_default)
    );
}

fn verdict(us: f64) -> &'static str {
    if us <= TARGET_US { "met" } else { "not met" }
}

/// Two CPUs this process may use, or fewer.
fn cpus() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).take(2).collect()
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// Runs `work` in a forked process on `cpu`; `wait` ends it.
fn child(cpu: usize, work: impl FnOnce()) -> i32 {
    // SAFETY: this process has one thread.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: no pointers; the child ends with its parent.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        pin(cpu);
        work();
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) };
    }
    pid
}

fn wait(pid: i32) {
    let mut status = 0;
    // SAFETY: status is valid for writes.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0, "the other process failed");
}

/// Median and 99th percentile in µs of half the time between two of `times`.
fn half_trips(times: &[Instant]) -> (f64, f64) {
    let mut trips: Vec<f64> =
        times.windows(2).map(|two| (two[1] - two[0]).as_secs_f64() * 1e6 / 2.0).collect();
    trips.sort_unstable_by(f64::total_cmp);
    (trips[trips.len() / 2], trips[trips.len() * 99 / 100])
}

/// Calls `trip` often enough, and takes the time of each.
fn measure(mut trip: impl FnMut(u64)) -> (f64, f64) {
    (0..WARM as u64).for_each(&mut trip);
    let mut times = Vec::with_capacity(ROUNDS + 1);
    times.push(Instant::now());
    for round in 0..ROUNDS as u64 {
        trip(WARM as u64 + round);
        times.push(Instant::now());
    }
    half_trips(&times)
}

/// What the hardware takes: a number stored in one line and polled, and back in another.
fn bare_line(cpu: usize) -> (f64, f64) {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: two lines at the mapping's begin, aligned; it stays until the process ends.
    let lines: &[Line; 2] = unsafe { &*base.cast() };
    let count = (WARM + ROUNDS) as u64;
    let pid = child(cpu, || {
        for round in 1..=count {
            while lines[0].0.load(Ordering::Acquire) != round {
                std::hint::spin_loop();
            }
            lines[1].0.store(round, Ordering::Release);
        }
    });
    let times = measure(|round| {
        lines[0].0.store(round + 1, Ordering::Release);
        while lines[1].0.load(Ordering::Acquire) != round + 1 {
            std::hint::spin_loop();
        }
    });
    wait(pid);
    times
}

/// A channel to a process on `cpu` that does `work` with its end.
fn with_child(cpu: usize, settings: Settings, work: impl FnOnce(Channel)) -> (i32, Channel) {
    let (here, there) = UnixStream::pair().unwrap();
    let pid = child(cpu, || {
        work(Channel::connect(&there, settings.mirrored(), None, SECONDS).unwrap());
    });
    (pid, Channel::connect(&here, settings, None, SECONDS).unwrap())
}

fn latency(cpu: usize, settings: Settings) -> (f64, f64) {
    let (pid, mut channel) = with_child(cpu, settings, |mut channel| {
        let mut message = Message::default();
        while channel.recv(&mut message, SECONDS).is_ok() {
            channel.send(message.kind, &message.bytes, SECONDS).unwrap();
        }
    });
    let mut message = Message::default();
    let times = measure(|round| {
        channel.send(0, &round.to_le_bytes(), SECONDS).unwrap();
        channel.recv(&mut message, SECONDS).unwrap();
        assert_eq!(message.bytes, round.to_le_bytes());
    });
    drop(channel);
    wait(pid);
    times
}

/// Messages a second from this process to one on `cpu`.
fn throughput(cpu: usize, settings: Settings, bytes: usize) -> f64 {
    let count = (200_000_000 / (bytes + 200)).clamp(100, 500_000);
    let (pid, mut channel) = with_child(cpu, settings, |mut channel| {
        let mut message = Message::default();
        for _ in 0..count {
            channel.recv(&mut message, SECONDS).unwrap();
        }
        channel.send(0, b"all here", SECONDS).unwrap();
        assert_eq!(channel.recv(&mut message, SECONDS), Err(RecvError::Closed));
    });
    let payload = vec![7; bytes];
    let begin = Instant::now();
    for _ in 0..count {
        channel.send(0, &payload, SECONDS).unwrap();
    }
    channel.recv(&mut Message::default(), SECONDS).unwrap();
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    drop(channel);
    wait(pid);
    rate
}

/// Nanoseconds a message of a set of `channels`, to each of which a process on `cpu` sends now and then.
fn served(cpu: usize, channels: u32) -> f64 {
    const MESSAGES: u32 = 300_000;
    let (here, there) = UnixStream::pair().unwrap();
    let pid = child(cpu, || {
        let connect = |_| Channel::connect(&there, Settings::default(), None, SECONDS).unwrap();
        let mut ends: Vec<Channel> = (0..channels).map(connect).collect();
        let mut random = 1u32;
        for number in 0..MESSAGES {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ends[((random >> 8) % channels) as usize].send(0, &number.to_le_bytes(), SECONDS).unwrap();
        }
        let closed = ends[0].recv(&mut Message::default(), SECONDS);
        assert_eq!(closed, Err(RecvError::Closed));
    });
    let mut set = WaitSet::new(channels).unwrap();
    let mut senders = Vec::new();
    for _ in 0..channels {
        let channel =
            Channel::connect(&here, Settings::default(), Some(set.seat().unwrap()), SECONDS).unwrap();
        senders.push(channel.sender);
        set.add(channel.receiver).unwrap();
    }
    let mut message = Message::default();
    let begin = Instant::now();
    for _ in 0..MESSAGES {
        let token = set.wait(SECONDS).unwrap();
        assert!(set.get(token).unwrap().try_recv(&mut message).unwrap());
    }
    let each = begin.elapsed().as_nanos() as f64 / f64::from(MESSAGES);
    drop(senders);
    wait(pid);
    each
}
