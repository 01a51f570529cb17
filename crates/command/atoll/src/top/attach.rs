//! Finds running programs, and maps their control blocks read-only.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use atoll_memory::control::{Control, MAGIC, MEMFD_NAME};
use atoll_record::Figures;

use crate::figures;
use crate::machine::line;
use crate::run::process::stat;

/// A control block seen from outside. Its program may end at any time; the memory stays.
#[derive(Debug)]
pub(crate) struct Attached {
    /// The launcher's process.
    pub(crate) launcher: i32,
    at: NonNull<Control>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and no reference outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), Control::BYTES) };
    }
}

/// The runs that were found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The runs whose program runs, by launcher.
    pub(crate) running: Vec<Attached>,
    /// The runs whose program has ended while their launcher lives: what started the program may go on for long.
    pub(crate) ended: Vec<Attached>,
}

/// Returns the runs whose launcher or program is `pid`, or all runs.
pub(crate) fn find(pid: Option<i32>) -> Found {
    let Ok(entries) = fs::read_dir("/proc") else { return Found::default() };
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut found: Vec<Attached> = pids
        .filter(|launcher| line(&format!("/proc/{launcher}/comm")) == "atoll")
        .filter_map(attach)
        .filter(|a| pid.is_none_or(|pid| pid == a.launcher || pid == a.program()))
        .collect();
    found.sort_by_key(|a| a.launcher);
    // The origin's run stands for those whose launchers it started.
    let launchers: Vec<i32> = found.iter().map(|a| a.launcher).collect();
    found.retain(|a| {
        a.control().settings.node == 0 || !parent(a.launcher).is_some_and(|p| launchers.contains(&p))
    });
    let (running, ended) = found.into_iter().partition(Attached::is_running);
    Found { running, ended }
}

fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn attach(launcher: i32) -> Option<Attached> {
    let name = format!("/memfd:{}", MEMFD_NAME.to_string_lossy());
    let links = fs::read_dir(format!("/proc/{launcher}/fd")).ok()?;
    let path: PathBuf = links
        .filter_map(|e| Some(e.ok()?.path()))
        .find(|path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with(&name)))?;
    map(launcher, &File::open(path).ok()?)
}

fn map(launcher: i32, file: &File) -> Option<Attached> {
    if file.metadata().ok()?.len() < Control::BYTES as u64 {
        return None;
    }
    // SAFETY: a fresh mapping of a file that is long enough and never shrinks.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            Control::BYTES,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return None;
    }
    let attached = Attached { launcher, at: NonNull::new(at.cast())? };
    (attached.control().magic == MAGIC).then_some(attached)
}

impl Attached {
    /// Returns the control block.
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: mapped for as long as `self` lives; all that changes in it is atomic.
        unsafe { self.at.as_ref() }
    }

    /// Returns the program's process; 0 while there is none.
    pub(crate) fn program(&self) -> i32 {
        self.control().program.load(Ordering::Relaxed)
    }

    /// Whether the launcher still lives, and the program if there was one. A process that nobody has waited for yet keeps its
    /// number and its name, but is over.
    pub(crate) fn is_running(&self) -> bool {
        let lives = |pid| stat(pid).is_some_and(|stat| !stat.is_zombie);
        let program = self.program();
        let is_launcher = line(&format!("/proc/{}/comm", self.launcher)) == "atoll";
        is_launcher && lives(self.launcher) && (program == 0 || lives(program))
    }

    /// Returns the counters now. `rate` is in ticks a second.
    pub(crate) fn figures(&self, rate: f64) -> Figures {
        let program = match self.program() {
            0 => String::new(),
            pid => line(&format!("/proc/{pid}/comm")),
        };
        figures::collect(self.control(), &program, self.age(), rate)
    }

    /// Returns the seconds since the launcher started.
    fn age(&self) -> f64 {
        let age = || {
            let start = atoll_transport::process_started(self.launcher.cast_unsigned())?;
            let up: f64 = line("/proc/uptime").split(' ').next()?.parse().ok()?;
            // SAFETY: no pointers.
            let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
            Some(up - start as f64 / ticks as f64)
        };
        age().unwrap_or(0.0).max(0.0)
    }
}
