//! Follows a program: its processes and threads as they come and go, and what they map.
//!
//! It uses perf's side records, on every processor, inherited by everything that the program makes. The recorder asks it.

use std::os::fd::RawFd;

use perf_event_open_sys::bindings as sys;

use crate::perf::{Event, Layout, Record, Setup, Who, record};
use crate::sampler::SamplerError;

const LAYOUT: Layout = Layout {
    sample_type: (sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_CPU) as u64,
    registers: 0,
    stack_bytes: 0,
};

/// The number of bytes of each processor's buffer.
const RING_BYTES: usize = 256 << 10;

/// A change in the program's processes, with its time by CLOCK_MONOTONIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The time, in nanoseconds.
    pub time_ns: u64,
    /// The change.
    pub what: What,
}

/// The kinds of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A thread was made; it is the first of a new process where `pid` is `tid`.
    Came {
        /// The thread's process.
        pid: u32,
        /// The process that made it.
        parent: u32,
        /// The thread.
        tid: u32,
    },
    /// A thread ended.
    Went {
        /// The thread.
        tid: u32,
    },
    /// A thread got a name.
    Named {
        /// The thread's process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// Whether the thread executed another program.
        exec: bool,
        /// The name.
        name: String,
    },
    /// Memory was mapped.
    Mapped {
        /// The process.
        pid: u32,
        /// The first address.
        start: u64,
        /// The number of bytes.
        bytes: u64,
        /// The offset in the file.
        offset: u64,
        /// Whether the mapping is code.
        code: bool,
        /// The file, or the kernel's name of the mapping.
        path: String,
    },
}

/// Follows the processes and threads of one program.
#[derive(Debug)]
pub struct Threads {
    events: Vec<Event>,
    bytes: Vec<u8>,
    /// The number of records that did not fit into a buffer.
    pub lost: u64,
}

impl Threads {
    /// Follows thread `tid` and everything that it makes from now on.
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
            // A new thread is to be sampled at once.
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

    /// Makes a value that follows nothing, for use where perf is forbidden; reports from inside the program take its place.
    pub fn none() -> Self {
        Self { events: Vec::new(), bytes: Vec::new(), lost: 0 }
    }

    /// Whether this is [`none`](Self::none).
    pub fn is_none(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the mappings that a process has now, from /proc.
    pub fn mappings(pid: u32) -> Vec<What> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        text.lines().filter_map(|line| Self::mapping(pid, line)).collect()
    }

    /// Parses a line of /proc/PID/maps.
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

    /// Returns the changes since the last call, in the order of time.
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

    /// Returns descriptors that are readable when something has changed.
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

/// Returns the numbers of the processors that are online.
fn online_cpus() -> Vec<i32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = list(text.trim());
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Parses the numbers of a list like `0-3,8`.
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
