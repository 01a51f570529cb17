//! What all measurements share: where files are, what this machine allows, and one run of one subject.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use atoll_pages::Size;

use crate::error::Error;
use crate::group::{Group, Groups};
use crate::process::{self, Outcome, Run};
use crate::setting::Setting;
use crate::subject::{Atoll, Device, Subject, Waiting};
use crate::swap::Swap;

/// The places that the command line names for all measurements.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) atoll: PathBuf,
    pub(crate) programs: PathBuf,
    /// The folder of the swap file and of far memory's file.
    pub(crate) disk: PathBuf,
}

/// The most runs under swap until one is not killed. The kernel (6.18, cgroup version 1) sometimes finds nothing to swap out to
/// zram while half of it is free, and kills the program instead.
const KILLED_AT_MOST: u32 = 10;

/// Something that this machine allows, or a sentence that says why it does not.
pub(crate) type Allowed<T> = Result<T, String>;

/// The machine, as it is set up for measuring. Dropping it undoes all of that.
pub(crate) struct Bench {
    pub(crate) places: Places,
    pub(crate) groups: Allowed<Groups>,
    pub(crate) zram: Allowed<Swap>,
    pub(crate) file: Allowed<Swap>,
    pub(crate) huge: Allowed<Setting>,
    _swappiness: Option<Setting>,
    _alone: File,
    pub(crate) timeout: Duration,
    /// The most runs under swap until one is not killed.
    pub(crate) killed_at_most: u32,
    pub(crate) start: Instant,
}

/// The lock that is held while this measures: two measurements at once would swap to each other's devices.
const LOCK: &str = "/tmp/atoll-out-of-core.lock";

/// Takes the lock, which ends with this process; an error if another process holds it.
fn alone() -> Result<File, Error> {
    let path = Path::new(LOCK);
    // Another user may have made the file, and it may only be read.
    let file = File::create(path).or_else(|_| File::open(path)).map_err(|e| Error::at("open", path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::said(format!(
            "another out-of-core measures on this machine ({LOCK} is locked): wait for its end"
        ))),
        Err(TryLockError::Error(e)) => Err(Error::at("lock", path, e)),
    }
}

/// Keeps the error's sentence, but passes an interruption on.
fn allowed<T>(result: Result<T, Error>) -> Result<Allowed<T>, Error> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Error::Said(sentence)) => Ok(Err(sentence)),
        Err(Error::Interrupted) => Err(Error::Interrupted),
    }
}

/// The parameters of a subject's run.
pub(crate) struct Asked<'a> {
    pub(crate) subject: &'a Subject,
    /// The program and its arguments.
    pub(crate) words: &'a [String],
    pub(crate) threads: usize,
    pub(crate) waiting: Waiting,
    /// The memory limit of a swap run, in bytes.
    pub(crate) limit: u64,
    /// The near limit of an atoll run, in bytes.
    pub(crate) near: u64,
    pub(crate) timeout: Duration,
}

impl Bench {
    /// Sets up what a measurement needs of this machine: swap of `swap_bytes`, `huge_bytes` of huge pages.
    ///
    /// # Errors
    /// If interrupted, or if another process measures. What the machine does not allow is kept as a sentence.
    pub(crate) fn new(
        places: Places,
        timeout: Duration,
        swap_bytes: u64,
        huge_bytes: u64,
        algorithm: &str,
    ) -> Result<Bench, Error> {
        let alone = alone()?;
        let groups = allowed(Groups::find())?;
        let no_group = || Err("there is no memory cgroup to limit a program with".to_owned());
        let zram = if groups.is_ok() { allowed(Swap::zram(swap_bytes, algorithm))? } else { no_group() };
        let file = if groups.is_ok() { allowed(Swap::file(&places.disk, swap_bytes))? } else { no_group() };
        let huge = allowed(Setting::huge_pages(huge_bytes.div_ceil(crate::setting::HUGE_PAGE)))?;
        // A cgroup of version 2 has no swappiness of its own.
        let swappiness = Setting::change("/proc/sys/vm/swappiness", |_| 100);
        let swappiness = if zram.is_ok() || file.is_ok() { swappiness.ok() } else { None };
        Ok(Bench {
            places,
            groups,
            zram,
            file,
            huge,
            _swappiness: swappiness,
            _alone: alone,
            timeout,
            killed_at_most: KILLED_AT_MOST,
            start: Instant::now(),
        })
    }

    /// Returns the name of atoll's default policy.
    pub(crate) fn default_policy(&self) -> Result<String, Error> {
        let subject = Subject::Atoll(Atoll { limited: true, ..Atoll::default() });
        let words = ["sweep", "S"].map(str::to_owned);
        let (waiting, near, timeout) = (Waiting::Passive, 64 << 20, self.timeout);
        let asked =
            Asked { subject: &subject, words: &words, threads: 1, waiting, limit: near, near, timeout };
        let outcome = self.run(&asked)?;
        match (outcome.output.failure(), outcome.output.figures()) {
            (None, Some(figures)) => {
                Ok(figures.settings.policy.split(':').next().unwrap_or_default().to_owned())
            }
            (why, _) => Err(Error::said(format!(
                "atoll does not run here: {}",
                why.unwrap_or_else(|| "no summary".to_owned())
            ))),
        }
    }

    /// Returns why this subject cannot be measured here, if it cannot.
    pub(crate) fn refused(&self, subject: &Subject) -> Option<String> {
        match subject {
            Subject::Native => None,
            Subject::Swap(device) => self.device(*device).as_ref().err().cloned(),
            Subject::Atoll(atoll) if atoll.page == Some("2M") => self.huge.as_ref().err().cloned(),
            Subject::Atoll(_) => None,
        }
    }

    fn device(&self, device: Device) -> &Allowed<Swap> {
        if device == Device::Zram { &self.zram } else { &self.file }
    }

    /// Prints a line on standard error, behind the time since the start.
    pub(crate) fn say(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs();
        eprintln!("[{:2}:{:02}] {what}", seconds / 60, seconds % 60);
    }

    fn group(&self, limit: Option<u64>) -> Result<Option<Group>, Error> {
        self.groups.as_ref().ok().map(|groups| groups.group(limit)).transpose()
    }

    /// Runs a subject once.
    pub(crate) fn run(&self, asked: &Asked) -> Result<Outcome, Error> {
        let threads = ("OMP_NUM_THREADS", asked.threads.to_string());
        let program = self.places.programs.join(&asked.words[0]).into_os_string();
        let mut command = vec![program];
        command.extend(asked.words[1..].iter().map(OsString::from));
        match asked.subject {
            Subject::Native => self.measured(&command, vec![threads, asked.waiting.variable()], None, asked),
            Subject::Swap(device) => {
                let swap = self.device(*device).as_ref().map_err(|why| Error::said(why.clone()))?;
                // The device is on for this run only: the two devices must not help each other.
                let _on = swap.on()?;
                let mut killed = 0;
                loop {
                    let environment = vec![threads.clone(), asked.waiting.variable()];
                    let mut outcome = self.measured(&command, environment, Some(asked.limit), asked)?;
                    if !outcome.was_killed() || killed + 1 == self.killed_at_most {
                        outcome.killed = killed + u32::from(outcome.was_killed());
                        return Ok(outcome);
                    }
                    killed += 1;
                    self.say(&format!(
                        "{}: killed by the kernel under {}, again",
                        asked.words[0], asked.subject
                    ));
                }
            }
            Subject::Atoll(atoll) => {
                let mut words = self.atoll_words(atoll, asked);
                words.append(&mut command);
                self.measured(&words, vec![threads], None, asked)
            }
        }
    }

    fn atoll_words(&self, atoll: &Atoll, asked: &Asked) -> Vec<OsString> {
        let mut words = vec![self.places.atoll.clone().into_os_string(), "run".into()];
        let mut flag = |name: &str, value: String| words.extend([name.into(), value.into()]);
        flag("--workers", asked.threads.to_string());
        flag("--summary", "json".to_owned());
        if atoll.limited {
            flag("--near", Size(asked.near).to_string());
        }
        match atoll.far {
            Some("file") => flag("--far", format!("file:{}", self.places.disk.display())),
            Some(far) => flag("--far", far.to_owned()),
            None => {}
        }
        if let Some(page) = atoll.page {
            flag("--page", page.to_owned());
        }
        if let Some(policy) = atoll.policy {
            flag("--policy", policy.to_owned());
        }
        words.push("--".into());
        words
    }

    fn measured(
        &self,
        command: &[OsString],
        environment: Vec<(&'static str, String)>,
        limit: Option<u64>,
        asked: &Asked,
    ) -> Result<Outcome, Error> {
        let group = self.group(limit)?;
        let huge = asked.subject.atoll().is_some_and(|atoll| atoll.page == Some("2M"));
        let timeout = asked.timeout;
        process::run(&Run { command, environment, group: group.as_ref(), timeout, huge })
    }
}

impl Places {
    /// Finds the files beside this executable, as cargo and the Makefile build them; `workload` is one that is needed.
    pub(crate) fn beside(
        workload: &str,
        atoll: Option<PathBuf>,
        programs: Option<PathBuf>,
        disk: PathBuf,
    ) -> Result<Places, Error> {
        let executable = std::env::current_exe().unwrap_or_default();
        let folder = executable.parent().unwrap_or(Path::new("."));
        let places = Places {
            atoll: atoll.unwrap_or_else(|| folder.join("atoll")),
            programs: programs.unwrap_or_else(|| folder.join("../programs")),
            disk,
        };
        for (what, path) in [("atoll", &places.atoll), ("the workloads", &places.programs.join(workload))] {
            if !path.exists() {
                return Err(Error::said(format!(
                    "{what} should be at {}: make build builds it",
                    path.display()
                )));
            }
        }
        Ok(places)
    }
}
