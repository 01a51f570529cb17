//! Runs `ucx_perftest`, UCX's own measurement, beside ours where it is installed.
//!
//! Two processes of it run on the same two CPUs, and its last line is read.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::far::link;
use super::held::Held;
use super::pair::Cpus;

/// The results of one test of `ucx_perftest`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    /// The median of what it calls latency, in µs: half a round trip, or the time of one operation.
    pub(super) us: f64,
    /// MB/s over the whole test.
    pub(super) mb_per_s: f64,
    /// Messages a second over the whole test.
    pub(super) messages_per_s: f64,
}

/// The transports that UCX may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    /// Shared memory.
    Memory,
    /// TCP on the loopback interface.
    Tcp,
    /// TCP on a link of `far/link.rs`, to the namespace of this process.
    Link(u32),
}

/// Whether `ucx_perftest` is installed.
pub(super) fn installed() -> bool {
    Command::new("ucx_perftest").arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Runs `test` (`ucp_am_lat`, `ucp_get`, …) with messages of `bytes`, `count` times; returns `None` where it fails.
pub(super) fn run(cpus: Cpus, over: Over, test: &str, bytes: usize, count: usize) -> Option<Found> {
    // This port is free now; the system gives others to programs that ask next.
    let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port().to_string();
    let start = |is_here: bool| {
        let mut command = Command::new("timeout");
        let cpu = if is_here { cpus.here } else { cpus.there };
        // Over a link its two ends sometimes do not find each other; the tests there take a second.
        let seconds = if matches!(over, Over::Link(_)) { "10" } else { "60" };
        command.args([seconds, "ucx_perftest", "-p", &port, "-c", &cpu.to_string()]);
        let transports = if over == Over::Memory { "posix,cma,self" } else { "tcp,self" };
        let device = match over {
            Over::Link(other) => {
                link::sees_devices(&mut command, (!is_here).then_some(other)).ok()?;
                link::DEVICES[usize::from(!is_here)]
            }
            Over::Memory | Over::Tcp => "lo",
        };
        command.env("UCX_TLS", transports).env("UCX_NET_DEVICES", device).env("UCX_LOG_LEVEL", "fatal");
        command.stdin(Stdio::null()).stderr(Stdio::null());
        Some(command)
    };
    let address = if matches!(over, Over::Link(_)) { link::ADDRESSES[1] } else { Ipv4Addr::LOCALHOST };
    let address = address.to_string();
    let mut server = Held(start(false)?.stdout(Stdio::null()).spawn().ok()?);
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        // It listens a moment after its start, and refuses earlier connections.
        std::thread::sleep(Duration::from_millis(100));
        let mut client = start(true)?;
        client.args([&address, "-t", test, "-f", "-s", &bytes.to_string(), "-n", &count.to_string()]);
        client.args(["-w", &(count / 10 + 10).to_string()]);
        let found = client.output().ok()?;
        let text = String::from_utf8_lossy(&found.stdout);
        if let Some(found) = text.lines().rev().find_map(read) {
            return Some(found);
        }
        if Instant::now() > end || server.0.try_wait().ok()?.is_some() {
            return None;
        }
    }
}

/// Reads a line of its final numbers: count, percentile, average and overall latency, bandwidth twice, rate twice.
fn read(line: &str) -> Option<Found> {
    let numbers: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [_, us, _, _, _, mb_per_s, _, messages_per_s] = numbers[..] else { return None };
    // The MB of `ucx_perftest` are 2^20 bytes.
    Some(Found { us, mb_per_s: mb_per_s * 1.048_576, messages_per_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_read_and_no_other() {
        let line = "                      100000      0.611     0.629     0.629       12.12      12.12     1589031     1589031";
        let found = read(line).unwrap();
        assert_eq!((found.us, found.messages_per_s), (0.611, 1_589_031.0));
        assert!((found.mb_per_s - 12.709).abs() < 0.01);
        for other in ["", "|     Test     | # iterations | 50.0%ile |", "+-----+", "1 2 3"] {
            assert_eq!(read(other), None);
        }
    }
}
