//! The actions of the nodes of the tests' jobs.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, exit};
use std::time::Duration;

use atoll_transport::start::{LONGEST, Start, StartError};

use crate::jobs::{Random, wait_until};

const SECONDS: Option<Duration> = Some(Duration::from_secs(60));

pub(crate) fn main(words: &[String]) {
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    match words[0].as_str() {
        "exchange" => exchange(number(1)),
        "tell" => tell(&words[1]),
        "print" => print(number(1), number(2) as usize),
        "cat" => cat(),
        "status" => status(number(1) as u32, number(2) as i32),
        "early" => early(),
        "late" => late(),
        "child" => child(),
        "secret" => secret(),
        "sleep" => sleep(&words[1], words.get(2).is_some()),
        other => panic!("no node does {other}"),
    }
}

fn start() -> Start {
    Start::detect(SECONDS).unwrap()
}

/// The bytes that `node` gives in `round`: of any length, some the longest allowed.
fn gift(node: u32, round: u64) -> Vec<u8> {
    let mut random = Random(u64::from(node) << 32 | round);
    let length = if random.next().is_multiple_of(8) { LONGEST } else { random.next() as usize % 300 };
    (0..length).map(|_| random.next() as u8).collect()
}

fn exchange(rounds: u64) {
    let mut start = start();
    for round in 0..rounds {
        let all = start.exchange(&gift(start.node().0, round), SECONDS).unwrap();
        assert_eq!(all.len(), start.nodes() as usize);
        for (node, given) in (0..).zip(all) {
            assert!(given == gift(node, round), "what {node} gave in round {round}");
        }
    }
    let mine = *start.secret().bytes();
    let secrets = start.exchange(&mine, SECONDS).unwrap();
    assert!(secrets.iter().all(|secret| secret == start.secret().bytes()));
    assert!(secrets.iter().flatten().any(|&byte| byte != 0));
    let neighbours: Vec<u32> = start.neighbours().map(|node| node.0).collect();
    println!("{} of {}, neighbours {neighbours:?}", start.node(), start.nodes());
    start.finish().unwrap();
}

/// Prints the arguments, a variable, and the directory, as this node has them.
fn tell(name: &str) {
    let mut text = String::new();
    for word in std::env::args_os().skip(4) {
        write!(text, "<{}>", word.as_bytes().escape_ascii()).unwrap();
    }
    let value = std::env::var_os(name).unwrap_or_default();
    let here = std::env::current_dir().unwrap();
    println!("{text} {} {}", value.as_bytes().escape_ascii(), here.display());
}

fn print(lines: u64, length: usize) {
    let start = start();
    let node = start.node().0;
    let mut random = Random(u64::from(node));
    let mut out = std::io::stdout().lock();
    let fill = "x".repeat(length);
    for line in 0..lines {
        let text = format!("{node} {line} {fill} end\n");
        // The output is split, but not by lines.
        let (first, second) = text.split_at(random.next() as usize % text.len());
        out.write_all(first.as_bytes()).unwrap();
        out.flush().unwrap();
        out.write_all(second.as_bytes()).unwrap();
    }
    out.flush().unwrap();
    eprintln!("{node} error");
    print!("{node} rest");
}

fn cat() {
    let start = start();
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).unwrap();
    let sum = bytes.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    println!("{} read {} {sum}", start.node().0, bytes.len());
}

/// Ends one node with a status, while the others wait for ever.
fn status(node: u32, status: i32) {
    let mut start = start();
    if start.node().0 == node {
        exit(status);
    }
    let _ = start.exchange(&[], None);
    std::thread::sleep(Duration::from_secs(3600));
}

/// Ends node 1 well, but before the others expect it.
fn early() {
    let mut start = start();
    start.exchange(&[], SECONDS).unwrap();
    if start.node().0 == 1 {
        return;
    }
    let error = start.exchange(&[], SECONDS).unwrap_err();
    assert!(matches!(error, StartError::Gone(node) if node.0 == 1), "{error}");
    assert!(matches!(start.exchange(&[], SECONDS), Err(StartError::Failed)));
    println!("{} knows", start.node());
}

/// Makes node 1 come to an exchange only after the others have given up.
fn late() {
    let mut start = start();
    if start.node().0 == 1 {
        std::thread::sleep(Duration::from_secs(4));
        return;
    }
    let error = start.exchange(&[], Some(Duration::from_millis(300))).unwrap_err();
    assert!(matches!(error, StartError::Timeout(_)), "{error}");
    println!("{} waited", start.node());
}

/// Checks that a child of a node is no node and is told so, and that another start in the same process is the same node.
fn child() {
    let mut start = start();
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["node", "early"]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("NoSocket"), "{said}");
    start.exchange(&[1], SECONDS).unwrap();
    let (node, secret) = (start.node(), start.secret().clone());
    start.finish().unwrap();
    let mut again = self::start();
    assert_eq!((again.node(), again.secret()), (node, &secret));
    again.exchange(&[2], SECONDS).unwrap();
    println!("{node} again");
}

/// Prints whether the secret is visible where other users can read.
fn secret() {
    let start = start();
    let secret = start.secret().bytes();
    let hex = secret.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let mut parent = std::process::id();
    let mut looked = 0;
    while parent > 1 {
        for file in ["cmdline", "environ"] {
            let bytes = std::fs::read(format!("/proc/{parent}/{file}")).unwrap_or_default();
            assert!(!bytes.windows(32).any(|window| window == secret));
            assert!(!String::from_utf8_lossy(&bytes).to_lowercase().contains(&hex));
            looked += bytes.len();
        }
        let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).unwrap();
        let after = stat.rsplit_once(')').unwrap().1;
        parent = after.split_whitespace().nth(1).unwrap().parse().unwrap();
    }
    assert!(looked > 0);
    println!("{} looked", start.node());
}

/// Leaves its process number, and those of a child and of one that left its session, in a folder, and waits.
fn sleep(folder: &str, stubborn: bool) {
    if stubborn {
        // SAFETY: only ignores signals.
        unsafe {
            libc::signal(libc::SIGTERM, libc::SIG_IGN);
            libc::signal(libc::SIGINT, libc::SIG_IGN);
        }
    }
    let start = start();
    let node = start.node().0;
    let leave = |name: &str, pid: u32| {
        let path = format!("{folder}/{node}.{name}");
        std::fs::write(format!("{path}.new"), pid.to_string()).unwrap();
        std::fs::rename(format!("{path}.new"), path).unwrap();
    };
    let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
    let mut own = Command::new("sleep");
    // SAFETY: one system call between fork and exec.
    unsafe {
        own.arg("3600").pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
    leave("child", child.id());
    leave("session", own.spawn().unwrap().id());
    leave("program", std::process::id());
    // SAFETY: the call only asks for a number.
    leave("keeper", unsafe { libc::getppid() } as u32);
    // Killed before it ends.
    child.wait().unwrap();
    wait_until(|| false);
}
