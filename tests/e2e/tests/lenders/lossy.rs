//! A link that loses some packets and delivers others out of order: two tunnel devices, and threads that carry packets between them.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use atoll_e2e::build::atoll;
use atoll_e2e::{built, skip};

use crate::world::{Held, Hosts, checksum, text, wait_until};

/// One in so many packets is lost, and one in so many delivered behind the next one.
const LOST: u64 = 100;
const LATE: u64 = 10;
const ADDRESSES: [&str; 2] = ["10.79.0.1", "10.79.0.2"];

/// The link, as long as it lives.
struct Lossy {
    ends: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
    late: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

/// A tunnel device `lossy0` in the namespace of a process; a thread of its own goes there.
fn device(process: i32) -> std::io::Result<File> {
    let inside = move || {
        let network = File::open(format!("/proc/{process}/ns/net"))?;
        // SAFETY: no pointers; the thread ends after this.
        if unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let mut open = OpenOptions::new();
        let device = open.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        // SAFETY: all zeros are a request.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(b"lossy0") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        // SAFETY: the request is filled, and lives on.
        match unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } {
            0 => Ok(device),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    std::thread::spawn(inside).join().expect("joined")
}

/// Carries packets one way.
fn carry(mut from: File, mut to: File, link: (Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)) {
    let (ends, lost, late) = link;
    let mut packet = vec![0; 65_536];
    let mut held: Option<Vec<u8>> = None;
    let mut random = 1_u64;
    while !ends.load(Relaxed) {
        let mut ready = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry. A packet that is held goes on soon if no other one comes.
        unsafe { libc::poll(&raw mut ready, 1, if held.is_some() { 5 } else { 50 }) };
        let Ok(bytes) = from.read(&mut packet) else {
            if let Some(held) = held.take() {
                let _ = to.write(&held);
            }
            continue;
        };
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = random >> 33;
        if draw.is_multiple_of(LOST) {
            lost.fetch_add(1, Relaxed);
        } else if draw % LATE == 1 && held.is_none() {
            late.fetch_add(1, Relaxed);
            held = Some(packet[..bytes].to_owned());
        } else {
            // A full queue loses packets, too.
            let _ = to.write(&packet[..bytes]);
            if let Some(held) = held.take() {
                let _ = to.write(&held);
            }
        }
    }
}

impl Lossy {
    fn between(hosts: &Hosts) -> std::io::Result<Lossy> {
        let devices = [device(hosts.holders[0].pid())?, device(hosts.holders[1].pid())?];
        for (host, address) in ADDRESSES.iter().enumerate() {
            hosts.ip(host, &format!("address add {address}/24 dev lossy0"));
            hosts.ip(host, "link set lossy0 up");
        }
        let mut link =
            Lossy { ends: Arc::default(), lost: Arc::default(), late: Arc::default(), threads: Vec::new() };
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) = (devices[from].try_clone()?, devices[to].try_clone()?);
            let counts = (Arc::clone(&link.ends), Arc::clone(&link.lost), Arc::clone(&link.late));
            link.threads.push(std::thread::spawn(move || carry(from, to, counts)));
        }
        Ok(link)
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[test]
fn over_a_link_that_loses_and_reorders_no_lender_is_taken_for_lost() {
    let Some(hosts) = Hosts::new() else { skip!("there are no namespaces") };
    let Ok(link) = Lossy::between(&hosts) else { skip!("the system makes no tunnel device") };
    let mut command = hosts.on(1, atoll());
    command.args(["lend", "512M", "--name", "rack1", "--listen", &format!("{}:0", ADDRESSES[1])]);
    let _lender = Held(command.stderr(Stdio::null()).spawn().expect("atoll"));
    wait_until("nobody lends", || !hosts.lenders().is_empty());
    // One time step: each lost packet can take 0.2 s.
    let steps = ["--iterations", "1"];
    let native = Command::new(built("stencil")).arg("S").args(steps).output().expect("started");
    let run = hosts.run("--near 5M --workers 2", "stencil", "S").args(steps).output().expect("atoll");
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert_eq!(checksum(&run), checksum(&native));
    let (lost, late) = (link.lost.load(Relaxed), link.late.load(Relaxed));
    assert!(lost > 3 && late > 20, "{lost} packets lost, {late} late");
    assert!(!text(&run.stderr).contains("is lost"), "{}", text(&run.stderr));
    // The end of the run's connection may be lost, too, and is sent again.
    wait_until("the run's memory is not free again", || hosts.borrowed() == 0);
}
