//! One kind of event on many threads, each with a buffer of its own.
//!
//! `timer`, `faults` and `hardware` share it.

use std::collections::HashMap;
use std::os::fd::RawFd;

use super::{Event, Record, Setup, Who, record};
use crate::sampler::{Harvest, SamplerError};

/// An event and the threads that it is attached to.
#[derive(Debug)]
pub struct Attached {
    setup: Setup,
    threads: HashMap<u32, Event>,
    bytes: Vec<u8>,
}

impl Attached {
    /// Makes the event after asking the kernel, on the calling thread, whether it has it.
    ///
    /// # Errors
    /// See [`SamplerError`].
    pub fn new(setup: Setup) -> Result<Self, SamplerError> {
        Event::open(&Setup { at_exec: true, ..setup }, Who::Thread(0))?;
        Ok(Self { setup, threads: HashMap::new(), bytes: Vec::new() })
    }

    /// Returns the event's settings.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Attaches the event to a thread; with `at_exec`, from when the thread executes a program.
    ///
    /// # Errors
    /// See [`SamplerError`]. A thread that is already gone is no error.
    pub fn attach(&mut self, tid: u32, at_exec: bool) -> Result<(), SamplerError> {
        if let Some(event) = Event::open(&Setup { at_exec, ..self.setup }, Who::Thread(tid))? {
            self.threads.insert(tid, event);
        }
        Ok(())
    }

    /// Detaches the event from a thread.
    pub fn detach(&mut self, tid: u32) {
        self.threads.remove(&tid);
    }

    /// Calls `each` with every sample, and counts the other records. Samples of a thread come in their order.
    pub fn harvest(&mut self, mut each: impl FnMut(&record::Sample<'_>, &mut Harvest)) -> Harvest {
        let mut harvest = Harvest::default();
        for event in self.threads.values_mut() {
            self.bytes.clear();
            let bytes = event.take(&mut self.bytes) as u64;
            harvest.bytes += bytes;
            harvest.fullest = harvest.fullest.max(bytes);
            for record in record::records(&self.bytes, self.setup.layout) {
                match record {
                    Record::Sample(sample) => {
                        harvest.records += 1;
                        each(&sample, &mut harvest);
                    }
                    Record::Lost(n) => harvest.lost += n,
                    Record::Throttle => harvest.throttled += 1,
                    _ => {}
                }
            }
        }
        harvest
    }

    /// Calls `each` with what each thread's second buffer got, and with the thread's number.
    pub fn harvest_aux(&mut self, mut each: impl FnMut(u32, &[u8])) {
        for (&tid, event) in &mut self.threads {
            self.bytes.clear();
            event.take_aux(&mut self.bytes);
            each(tid, &self.bytes);
        }
    }

    /// Returns the kernel's own clock now, as far as any thread's buffer shows it.
    pub fn kernel_clock(&self) -> Option<u64> {
        self.threads.values().find_map(Event::kernel_clock)
    }

    /// Calls `each` with every descriptor.
    pub fn descriptors(&self, each: &mut dyn FnMut(RawFd)) {
        self.threads.values().for_each(|event| each(event.descriptor()));
    }

    /// Returns the current period.
    pub fn period(&self) -> u64 {
        self.setup.period
    }

    /// Sets the period, also for threads to come.
    pub fn set_period(&mut self, period: u64) {
        self.setup.period = period;
        self.jitter(1.0);
    }

    /// Sets another period for a while; threads to come have the period itself.
    pub fn jitter(&self, factor: f64) {
        let period = (self.setup.period as f64 * factor) as u64;
        self.threads.values().for_each(|event| event.set_period(period));
    }
}
