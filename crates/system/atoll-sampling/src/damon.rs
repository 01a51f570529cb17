//! The kernel's own access monitor, DAMON, where it watches virtual addresses.
//!
//! DAMON checks one page of each stretch of memory at every sampling interval, and joins and splits stretches by what it finds.
//! This module sets it up through sysfs and reads how often each stretch was found touched
//! (`Documentation/admin-guide/mm/damon/usage.rst` of Linux). It needs root and a kernel with CONFIG_DAMON_VADDR. Many kernels
//! have DAMON for physical addresses only, which say nothing of a program's variables. A machine has one set of monitors, and a
//! set that another program runs is left alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use atoll_record::profile::{Access, SamplerInfo};

use crate::clock;
use crate::instruction::CodeBytes;
use crate::random::Random;
use crate::sampler::{Found, Harvest, Sampler, SamplerError};

/// The directory of sysfs where a kernel with DAMON shows it.
pub const DIRECTORY: &str = "/sys/kernel/mm/damon/admin/kdamonds";
/// The number of checks of a stretch whose counts are reported together.
const CHECKS: u64 = 20;
/// The least and the greatest number of stretches.
const STRETCHES: (u64, u64) = (100, 2000);
/// The seconds of one check, with the walk of the page table and its share of the joining.
const SECONDS_A_CHECK: f64 = 1e-6;

/// The sampler that reads DAMON.
#[derive(Debug)]
pub struct Damon {
    directory: PathBuf,
    /// Microseconds between two checks.
    period_us: u64,
    /// The process that is watched; `None` before the first.
    pid: Option<u32>,
    read_ns: u64,
    random: Random,
}

/// A stretch of memory and the number of checks that found it touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    start: u64,
    end: u64,
    touched: u64,
}

impl Damon {
    /// Sets DAMON up, with `period_us` microseconds between two checks.
    ///
    /// # Errors
    /// This kernel has no DAMON, has it for physical addresses only, forbids it to this user, or another program uses it.
    pub fn new(directory: &Path, period_us: u64) -> Result<Self, SamplerError> {
        let absent = |why: &str| Err(SamplerError::Absent(why.into()));
        let number = directory.join("nr_kdamonds");
        let Ok(count) = fs::read_to_string(&number) else {
            return absent("this kernel has no DAMON (CONFIG_DAMON_SYSFS)");
        };
        if count.trim() != "0" {
            let offered =
                fs::read_to_string(directory.join("0/contexts/0/avail_operations")).unwrap_or_default();
            if !offered.is_empty() && !offers_virtual(&offered) {
                return absent(PHYSICAL_ONLY);
            }
            return absent("DAMON is in use: setting up a monitor of ours would end another user's");
        }
        let kernel = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => SamplerError::Absent("DAMON is for root".into()),
            _ => SamplerError::Kernel { what: "setting up DAMON", error },
        };
        fs::write(number, "1").map_err(kernel)?;
        // From here on the monitor belongs to this value, and is removed with it.
        let damon = Self {
            directory: directory.to_owned(),
            period_us: period_us.max(100),
            pid: None,
            read_ns: 0,
            random: Random::new(clock::now_ns()),
        };
        damon.write("contexts/nr_contexts", "1").map_err(kernel)?;
        let offered = fs::read_to_string(damon.at("contexts/0/avail_operations")).map_err(kernel)?;
        if !offers_virtual(&offered) {
            return absent(PHYSICAL_ONLY);
        }
        damon.set_up().map_err(kernel)?;
        Ok(damon)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join("0").join(name)
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.at(name), value)
    }

    fn set_up(&self) -> io::Result<()> {
        let most = u64::MAX.to_string();
        for (name, value) in [
            ("operations", "vaddr".to_owned()),
            ("targets/nr_targets", "1".to_owned()),
            ("monitoring_attrs/nr_regions/min", STRETCHES.0.to_string()),
            ("monitoring_attrs/nr_regions/max", STRETCHES.1.to_string()),
            ("schemes/nr_schemes", "1".to_owned()),
            ("schemes/0/action", "stat".to_owned()),
            ("schemes/0/access_pattern/sz/max", most.clone()),
            ("schemes/0/access_pattern/nr_accesses/min", "1".to_owned()),
            ("schemes/0/access_pattern/nr_accesses/max", CHECKS.to_string()),
            ("schemes/0/access_pattern/age/max", most),
        ] {
            self.write(&format!("contexts/0/{name}"), &value)?;
        }
        self.set_intervals()
    }

    fn set_intervals(&self) -> io::Result<()> {
        let intervals = "contexts/0/monitoring_attrs/intervals";
        self.write(&format!("{intervals}/sample_us"), &self.period_us.to_string())?;
        self.write(&format!("{intervals}/aggr_us"), &(CHECKS * self.period_us).to_string())?;
        self.write(&format!("{intervals}/update_us"), &(10 * CHECKS * self.period_us).to_string())
    }

    /// Returns the stretches that were found touched in the last interval.
    fn stretches(&self) -> Vec<Stretch> {
        if self.write("state", "update_schemes_tried_regions").is_err() {
            return Vec::new();
        }
        let Ok(entries) = fs::read_dir(self.at("contexts/0/schemes/0/tried_regions")) else {
            return Vec::new();
        };
        let mut all: Vec<Stretch> = entries.flatten().filter_map(|entry| stretch(&entry.path())).collect();
        all.sort_by_key(|stretch| stretch.start);
        all
    }
}

const PHYSICAL_ONLY: &str = "this kernel's DAMON watches physical addresses only (no vaddr in avail_operations: CONFIG_DAMON_VADDR is off)";

fn offers_virtual(operations: &str) -> bool {
    operations.split_whitespace().any(|word| word == "vaddr")
}

fn stretch(directory: &Path) -> Option<Stretch> {
    let number = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
    let (start, end, touched) = (number("start")?, number("end")?, number("nr_accesses")?);
    (start < end).then_some(Stretch { start, end, touched: touched.min(CHECKS) })
}

impl Sampler for Damon {
    fn info(&self) -> SamplerInfo {
        SamplerInfo {
            name: "damon".into(),
            meaning:
                "a check in which the kernel found a page of a stretch touched, put at random in that stretch"
                    .into(),
            period: self.period_us,
            period_unit: "us between two checks of each stretch".into(),
            reads: true,
            writes: true,
            weight: "pages of the stretch".into(),
            ..SamplerInfo::default()
        }
    }

    fn attach(&mut self, pid: u32, _tid: u32, _at_exec: bool) -> Result<(), SamplerError> {
        // Only one program is watched; processes that it forks are not.
        if self.pid.is_some() {
            return Ok(());
        }
        let kernel = |error| SamplerError::Kernel { what: "starting DAMON", error };
        self.write("contexts/0/targets/0/pid_target", &pid.to_string()).map_err(kernel)?;
        self.write("state", "on").map_err(kernel)?;
        self.pid = Some(pid);
        self.read_ns = clock::now_ns();
        Ok(())
    }

    fn needs_perf(&self) -> bool {
        false
    }

    fn harvest(&mut self, _code: &mut dyn CodeBytes, found: &mut Vec<Found>) -> Harvest {
        let now = clock::now_ns();
        let Some(pid) = self.pid else { return Harvest::default() };
        if now - self.read_ns < CHECKS * self.period_us * 1000 {
            return Harvest::default();
        }
        self.read_ns = now;
        let mut harvest = Harvest::default();
        for Stretch { start, end, touched } in self.stretches() {
            let pages = (end - start) / 4096;
            harvest.records += CHECKS;
            for _ in 0..touched {
                found.push(Found {
                    time_ns: now,
                    pid,
                    tid: pid,
                    address: start + 4096 * self.random.below(pages),
                    access: Access::Unknown,
                    weight: pages,
                    ..Found::default()
                });
            }
        }
        harvest
    }

    fn detach(&mut self, tid: u32) {
        if self.pid == Some(tid) {
            let _ = self.write("state", "off");
            self.pid = None;
        }
    }

    fn period(&self) -> u64 {
        self.period_us
    }

    fn set_period(&mut self, period: u64) {
        self.period_us = period.max(100);
        if self.set_intervals().is_ok() && self.pid.is_some() {
            let _ = self.write("state", "commit");
        }
    }

    /// Does nothing: DAMON checks at random places within its stretches, so the interval stays.
    fn jitter(&mut self, _factor: f64) {}

    fn seconds_a_sample(&self) -> f64 {
        SECONDS_A_CHECK
    }
}

impl Drop for Damon {
    fn drop(&mut self) {
        let _ = self.write("state", "off");
        let _ = fs::write(self.directory.join("nr_kdamonds"), "0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_there_is_none_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let why = |folder: &Path| Damon::new(folder, 5000).unwrap_err().to_string();
        assert!(why(folder.path()).contains("CONFIG_DAMON_SYSFS"));
        let context = folder.path().join("0/contexts/0");
        fs::create_dir_all(&context).unwrap();
        fs::write(folder.path().join("nr_kdamonds"), "1\n").unwrap();
        fs::write(context.join("avail_operations"), "paddr\n").unwrap();
        assert!(why(folder.path()).contains("CONFIG_DAMON_VADDR"));
        fs::write(context.join("avail_operations"), "vaddr\nfvaddr\npaddr\n").unwrap();
        fs::write(folder.path().join("0/state"), "on\n").unwrap();
        assert!(why(folder.path()).contains("in use"));
        // The monitor of another program was left as it is.
        assert_eq!(fs::read_to_string(folder.path().join("0/state")).unwrap(), "on\n");
        assert_eq!(fs::read_to_string(folder.path().join("nr_kdamonds")).unwrap(), "1\n");
    }

    #[test]
    fn stretches_are_read_as_the_kernel_writes_them() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name, text| fs::write(folder.path().join(name), text).unwrap();
        write("start", "140000000004096\n");
        assert_eq!(stretch(folder.path()), None);
        write("end", "140000000012288\n");
        write("nr_accesses", "7\n");
        write("age", "0\n");
        let want = Stretch { start: 140_000_000_004_096, end: 140_000_000_012_288, touched: 7 };
        assert_eq!(stretch(folder.path()), Some(want));
        write("nr_accesses", "999999999\n");
        assert_eq!(stretch(folder.path()).unwrap().touched, CHECKS);
        write("end", "1\n");
        assert_eq!(stretch(folder.path()), None);
    }
}
