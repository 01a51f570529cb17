//! One kind of event on many threads, each with a buffer of its own.
//!
//! What `timer`, `faults` and `hardware` have in common.

use std::collections::HashMap;
use std::os::fd::RawFd;

use super::{Event, Record, Setup, Who, record};
use crate::sampler::{Harvest, SamplerError};

/// An event and the threads it is on.
#[derive(Debug)]
pub struct Attached {
    setup: Setup,
    threads: HashMap<u32, Event>,
    bytes: Vec<u8>,
}

impl Attached {
    /// Asks the kernel whether it has the event, on the calling thread.
    ///
    /// # Errors
    /// See [`SamplerError`].
    pub fn new(setup: Setup) -> Result<Self, SamplerError> {
        Event::open(&Setup { at_exec: true, ..setup }, Who::Thread(0))?;
        Ok(Self { setup, threads: HashMap::new(), bytes: Vec::new() })
    }

    /// How it is set.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Puts it on a thread; from when that executes a program with `at_exec`.
    ///
    /// # Errors
    /// See [`SamplerError`]. A thread that is gone already is none.
    pub fn attach(&mut self, tid: u32, at_exec: bool) -> Result<(), SamplerError> {
        if let Some(event) = Event::open(&Setup { at_exec, ..self.setup }, Who::Thread(tid))? {
            self.threads.insert(tid, event);
        }
        Ok(())
    }

    /// Takes it off a thread.
    pub fn detach(&mut self, tid: u32) {
        self.threads.remove(&tid);
    }

    /// Hands every sample to `each`, and counts the rest. Samples of a thread come in their order.
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

    /// Hands what each thread's second buffer got to `each`, with the thread's number.
    pub fn harvest_aux(&mut self, mut each: impl FnMut(u32, &[u8])) {
        for (&tid, event) in &mut self.threads {
            self.bytes.clear();
            event.take_aux(&mut self.bytes);
            each(tid, &self.bytes);
        }
    }

    /// The kernel's own clock now, as far as any thread's buffer tells.
    pub fn kernel_clock(&self) -> Option<u64> {
        self.threads.values().find_map(Event::kernel_clock)
    }

    /// Calls `each` with every descriptor.
    pub fn descriptors(&self, each: &mut dyn FnMut(RawFd)) {
        self.threads.values().for_each(|event| each(event.descriptor()));
    }

    /// The period now.
    pub fn period(&self) -> u64 {
        self.setup.period
    }

    /// Sets the period, of threads to come too.
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
