//! One perf event with its ring buffer.
//!
//! `record` says what the bytes taken from it mean.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use perf_event_open_sys as sys;
use sys::bindings::perf_event_attr;

use super::record::Layout;
use super::ring::Ring;
use crate::sampler::{Knobs, SamplerError};

/// The threads that an event watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// One thread, wherever it runs.
    Thread(u32),
    /// A thread and all threads that it makes, on one processor.
    Tree(u32, i32),
}

/// The settings of an event.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// The event's type, as in `/sys/bus/event_source/devices/*/type`.
    pub kind: u32,
    /// The event's configuration word.
    pub config: u64,
    /// The second configuration word.
    pub config1: u64,
    /// The third configuration word.
    pub config2: u64,
    /// The number of events between two samples; 0: no samples.
    pub period: u64,
    /// The fields of a record.
    pub layout: Layout,
    /// How close the address must be to that of the sampled instruction (0 to 3).
    pub precise: u8,
    /// The number of bytes of the ring buffer: a power of two of at least a page.
    pub ring_bytes: usize,
    /// The number of bytes after which the descriptor becomes readable.
    pub wakeup_bytes: usize,
    /// Whether there are also records of mappings, names, births and deaths.
    pub sideband: bool,
    /// Whether the event begins only when the thread executes a program.
    pub at_exec: bool,
    /// Whether the kernel's code is left out; some PMUs cannot do that.
    pub user_only: bool,
    /// The number of bytes of the second buffer, for PMUs that write packets of their own (Arm SPE); 0: none.
    pub aux_bytes: usize,
    /// Whether times are by CLOCK_MONOTONIC; else by the kernel's own clock, which lets hardware stamp records itself.
    pub monotonic: bool,
}

impl Setup {
    /// Returns the settings for a sampler with these knobs: for a thread in user mode, with times by CLOCK_MONOTONIC.
    pub fn of(knobs: &Knobs) -> Self {
        let ring_bytes = (2 * knobs.buffer_bytes).next_power_of_two();
        Self {
            kind: 0,
            config: 0,
            config1: 0,
            config2: 0,
            period: knobs.period,
            layout: Layout::default(),
            precise: 0,
            ring_bytes,
            // The kernel takes no more than the whole ring, and nobody waits for it.
            wakeup_bytes: if knobs.harvest_thread { ring_bytes } else { knobs.buffer_bytes },
            sideband: false,
            at_exec: false,
            user_only: true,
            aux_bytes: 0,
            monotonic: true,
        }
    }
}

/// An event, open and mapped.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
    ring: Ring,
    layout: Layout,
}

impl Event {
    /// Opens the event on a thread.
    ///
    /// # Errors
    /// See [`SamplerError`]. `Ok(None)` means that the thread is gone.
    pub fn open(setup: &Setup, who: Who) -> Result<Option<Event>, SamplerError> {
        let mut attr = attributes(setup);
        let (pid, cpu) = match who {
            Who::Thread(tid) => (tid as i32, -1),
            Who::Tree(tid, cpu) => {
                attr.set_inherit(1);
                (tid as i32, cpu)
            }
        };
        let flags = libc::c_ulong::from(sys::bindings::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: the attributes are initialised, and none of them makes the kernel write to our memory.
        let mut fd = unsafe { sys::perf_event_open(&raw mut attr, pid, cpu, -1, flags) };
        if fd < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EMFILE) {
            raise_descriptors();
            // SAFETY: as above.
            fd = unsafe { sys::perf_event_open(&raw mut attr, pid, cpu, -1, flags) };
        }
        if fd < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ESRCH) => Ok(None),
                Some(libc::EACCES | libc::EPERM) => Err(SamplerError::Forbidden(super::paranoid())),
                Some(libc::EBUSY) => Err(SamplerError::Busy),
                Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::ENOSYS) => {
                    Err(SamplerError::Absent(format!("this machine has no such event ({error})")))
                }
                _ => Err(SamplerError::Kernel { what: "perf_event_open", error }),
            };
        }
        // SAFETY: a fresh descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let ring =
            Ring::map(fd.as_raw_fd(), setup.ring_bytes, setup.aux_bytes).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::EPERM) => SamplerError::Memory(setup.ring_bytes >> 10),
                    _ => SamplerError::Kernel { what: "mapping an event's buffer", error },
                }
            })?;
        Ok(Some(Event { fd, ring, layout: setup.layout }))
    }

    /// Appends the records since the last call to `to`; returns their number of bytes.
    pub fn take(&mut self, to: &mut Vec<u8>) -> usize {
        self.ring.take(to)
    }

    /// Appends what was written to the second buffer since the last call.
    pub fn take_aux(&mut self, to: &mut Vec<u8>) {
        self.ring.take_aux(to);
    }

    /// Returns the kernel's own clock now, as records carry it, where the buffer's page says how to compute it from the time
    /// stamp counter.
    pub fn kernel_clock(&self) -> Option<u64> {
        self.ring.kernel_clock()
    }

    /// Returns the layout of the event's records.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Changes the event's period from the next sample on.
    pub fn set_period(&self, period: u64) {
        let period = period.max(1);
        let request = libc::c_ulong::from(sys::bindings::PERIOD);
        // SAFETY: the ioctl reads one number. An event that is over takes no period, and needs none.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), request, &raw const period) };
    }

    /// Returns the event's descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn attributes(setup: &Setup) -> perf_event_attr {
    let mut attr = perf_event_attr::default();
    attr.type_ = setup.kind;
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.config = setup.config;
    attr.config1 = setup.config1;
    attr.config2 = setup.config2;
    attr.sample_period = setup.period;
    attr.sample_type = setup.layout.sample_type;
    attr.sample_regs_user = setup.layout.registers;
    attr.sample_stack_user = setup.layout.stack_bytes;
    attr.set_precise_ip(u64::from(setup.precise));
    attr.set_watermark(1);
    attr.wakeup_watermark = setup.wakeup_bytes as u32;
    attr.set_exclude_kernel(u64::from(setup.user_only));
    attr.set_exclude_hv(u64::from(setup.user_only));
    attr.aux_watermark = if setup.aux_bytes > 0 { setup.wakeup_bytes as u32 } else { 0 };
    attr.set_sample_id_all(1);
    if setup.sideband {
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_mmap_data(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
    }
    if setup.at_exec {
        attr.set_disabled(1);
        attr.set_enable_on_exec(1);
    }
    if setup.monotonic {
        attr.set_use_clockid(1);
        attr.clockid = libc::CLOCK_MONOTONIC;
    }
    attr
}

/// Raises this process's limit of descriptors as far as it may: each thread of the program needs one.
fn raise_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: limit is valid for reads and writes.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
