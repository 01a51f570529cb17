//! Follows a program: its processes and threads as they come and go, and what they map.
//!
//! By perf's side records, on every processor, inherited by all that the program makes. The recorder asks.

use std::os::fd::RawFd;

use perf_event_open_sys::bindings as sys;

use crate::perf::{Event, Layout, Record, Setup, Who, record};
use crate::sampler::SamplerError;

const LAYOUT: Layout = Layout {
    sample_type: (sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_CPU) as u64,
    registers: 0,
    stack_bytes: 0,
};

/// Buffer of each processor.
const RING_BYTES: usize = 256 << 10;

/// Something that happened, by CLOCK_MONOTONIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub time_ns: u64,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A thread came; of a new process where `pid` is `tid`.
    Came {
        /// Its process.
        pid: u32,
        /// The process that made it.
        parent: u32,
        /// It.
        tid: u32,
    },
    /// A thread ended.
    Went {
        /// It.
        tid: u32,
    },
    /// A thread has a name.
    Named {
        /// Its process.
        pid: u32,
        /// It.
        tid: u32,
        /// Did it execute another program?
        exec: bool,
        /// The name.
        name: String,
    },
    /// Memory was mapped.
    Mapped {
        /// In which process.
        pid: u32,
        /// First address.
        start: u64,
        /// How long.
        bytes: u64,
        /// Where in the file.
        offset: u64,
        /// Is it code?
        code: bool,
        /// The file, or what the kernel calls it.
        path: String,
    },
}

/// Follows one program.
#[derive(Debug)]
pub struct Threads {
    events: Vec<Event>,
    bytes: Vec<u8>,
    /// Records that did not fit.
    pub lost: u64,
}

impl Threads {
    /// Follows thread `tid` and all that it makes from now on.
    ///
    /// # Errors
    /// See [`SamplerError`].
    pub fn follow(tid: u32) -> Result<Self, SamplerError> {
        let setup = Setup {
            kind: sys::PERF_TYPE_SOFTWARE,
            config: u64::from(sys::PERF_COUNT_SW_DUMMY),
            config1: 0,
            config2: 0,
            period: 0,
            layout: LAYOUT,
            precise: 0,
            ring_bytes: RING_BYTES,
            // A thread that comes is to be sampled at once.
            wakeup_bytes: 1,
            sideband: true,
            at_exec: false,
            user_only: true,
            aux_bytes: 0,
            monotonic: true,
        };
        let mut events = Vec::new();
        for cpu in online_cpus() {
            events.extend(Event::open(&setup, Who::Tree(tid, cpu))?);
        }
        Ok(Self { events, bytes: Vec::new(), lost: 0 })
    }

    /// Follows nothing, where perf may not be used: what the program's inside tells must do.
    pub fn none() -> Self {
        Self { events: Vec::new(), bytes: Vec::new(), lost: 0 }
    }

    /// Is this [`none`](Self::none)?
    pub fn is_none(&self) -> bool {
        self.events.is_empty()
    }

    /// The mappings that a process has now, as /proc tells.
    pub fn mappings(pid: u32) -> Vec<What> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        text.lines().filter_map(|line| Self::mapping(pid, line)).collect()
    }

    /// A line of /proc/PID/maps.
    pub(crate) fn mapping(pid: u32, line: &str) -> Option<What> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let (rights, offset) = (words.next()?, words.next()?);
        let path = words.nth(2).unwrap_or_default().trim_start();
        let number = |text| u64::from_str_radix(text, 16).ok();
        let start = number(start)?;
        Some(What::Mapped {
            pid,
            start,
            bytes: number(end)?.checked_sub(start)?,
            offset: number(offset)?,
            code: rights.as_bytes().get(2) == Some(&b'x'),
            path: if path.is_empty() { "//anon".into() } else { path.into() },
        })
    }

    /// What happened since the last time, in order of time.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for event in &mut self.events {
            self.bytes.clear();
            event.take(&mut self.bytes);
            for record in record::records(&self.bytes, LAYOUT) {
                if let Record::Lost(n) = record {
                    self.lost += n;
                }
                changes.extend(change(&record));
            }
        }
        changes.sort_by_key(|change| change.time_ns);
        changes
    }

    /// Descriptors that are readable when something happened.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.events.iter().map(Event::descriptor)
    }
}

fn change(record: &Record<'_>) -> Option<Change> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (time_ns, what) = match *record {
        Record::Fork { pid, parent, tid, time } => (time, What::Came { pid, parent, tid }),
        Record::Exit { tid, time, .. } => (time, What::Went { tid }),
        Record::Name { pid, tid, exec, name, time } => {
            (time, What::Named { pid, tid, exec, name: text(name) })
        }
        Record::Map { pid, start, bytes, offset, code, path, time } => {
            (time, What::Mapped { pid, start, bytes, offset, code, path: text(path) })
        }
        _ => return None,
    };
    Some(Change { time_ns, what })
}

/// Numbers of the processors that are online.
fn online_cpus() -> Vec<i32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = list(text.trim());
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Numbers from a list like `0-3,8`.
fn list(text: &str) -> Vec<i32> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
            numbers.extend(first..=last.min(first.saturating_add(1 << 14)));
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_this_program_are_read() {
        let own = std::env::current_exe().unwrap().display().to_string();
        let all = Threads::mappings(std::process::id());
        assert!(all.iter().any(|m| matches!(m, What::Mapped { path, code: true, .. } if *path == own)));
        assert_eq!(Threads::mapping(1, "not a mapping"), None);
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(list("0-2,5"), [0, 1, 2, 5]);
        assert!(list("").is_empty());
    }
}
