//! The paging side's end of the ring: a thread that looks at the cores' slots and serves posted calls.
//!
//! The thread only makes calls quicker: a core makes a call that nobody takes as an ordinary one. So the thread may sleep when
//! no calls come. Calls that wait or concern the core are left to the core's own thread (`core.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::pages::SLOTS;
use crate::calls::{Caller, Delegate, Outcome};
use crate::window::Window;

/// The most cores of one program; their slots fit into the pages for them.
pub(super) const MOST_CORES: usize = 64;
/// The number of bytes from one slot to the next.
pub(super) const SLOT: u64 = 256;

const POSTED: u32 = 1;
const SERVED: u32 = 2;
const ORDINARY: u32 = 3;
const TAKEN: u32 = 4;

/// How long the thread goes on looking without a call.
const PATIENCE: Duration = Duration::from_micros(500);

/// A core's slot; `gate.rs` has the other side's offsets.
#[repr(C)]
struct Slot {
    state: AtomicU32,
    /// Not zero while the thread looks.
    awake: AtomicU32,
    number: AtomicU64,
    arguments: [AtomicU64; 6],
    result: AtomicU64,
    /// The offset where the core goes on.
    back: AtomicU64,
}

/// The slots of a segment.
#[derive(Debug)]
pub(super) struct Ring {
    window: Window,
    delegate: Arc<Delegate>,
    used: [AtomicBool; MOST_CORES],
    server: std::sync::OnceLock<std::thread::Thread>,
    asleep: AtomicBool,
}

impl Ring {
    pub(super) fn new(delegate: Arc<Delegate>) -> Ring {
        let window = *delegate.window();
        let used = [const { AtomicBool::new(false) }; MOST_CORES];
        Ring { window, delegate, used, server: std::sync::OnceLock::new(), asleep: AtomicBool::new(false) }
    }

    fn slot(&self, core: usize) -> &Slot {
        assert!(core < MOST_CORES, "there is no such core");
        let at = self.window.base().wrapping_add((SLOTS + core as u64 * SLOT) as usize);
        // SAFETY: mapped as long as cores run, aligned, and made of atomics, which the program may write at any time.
        unsafe { &*at.cast::<Slot>() }
    }

    /// Returns a slot for a new core, if there is one.
    pub(super) fn take(&self) -> Option<usize> {
        let core = self.used.iter().position(|used| !used.swap(true, Ordering::SeqCst))?;
        self.slot(core).state.store(0, Ordering::SeqCst);
        self.slot(core).awake.store(u32::from(self.is_awake()), Ordering::SeqCst);
        Some(core)
    }

    /// Frees a core's slot.
    pub(super) fn give_back(&self, core: usize) {
        self.used[core].store(false, Ordering::SeqCst);
    }

    /// Returns the number of cores that run.
    pub(super) fn cores(&self) -> usize {
        self.used.iter().filter(|used| used.load(Ordering::SeqCst)).count()
    }

    /// Makes a core that begins inside the stub go on where its parent would.
    pub(super) fn copy_return(&self, from: usize, to: usize) {
        let back = self.slot(from).back.load(Ordering::SeqCst);
        self.slot(to).back.store(back, Ordering::SeqCst);
    }

    fn is_awake(&self) -> bool {
        self.server.get().is_some() && !self.asleep.load(Ordering::SeqCst)
    }

    /// Wakes the thread after a call came by an exit that could have come through the ring.
    pub(super) fn wake(&self) {
        if let Some(server) = self.server.get()
            && self.asleep.swap(false, Ordering::SeqCst)
        {
            server.unpark();
        }
    }

    /// Starts the ring's thread.
    pub(super) fn start(ring: &Arc<Ring>) -> std::io::Result<()> {
        let own = Arc::clone(ring);
        let thread = std::thread::Builder::new().name("delegation".to_owned()).spawn(move || own.serve())?;
        let _ = ring.server.set(thread.thread().clone());
        Ok(())
    }

    fn tell_awake(&self, awake: bool) {
        for core in 0..MOST_CORES {
            self.slot(core).awake.store(u32::from(awake), Ordering::SeqCst);
        }
    }

    fn serve(&self) {
        loop {
            self.tell_awake(true);
            let mut last = Instant::now();
            let mut looks = 0_u32;
            loop {
                let mut any = false;
                for core in 0..MOST_CORES {
                    if self.used[core].load(Ordering::Relaxed) {
                        any |= self.look(core);
                    }
                }
                if any {
                    looks = 0;
                    continue;
                }
                looks += 1;
                // Reading the clock in each round would cost too much.
                if looks == 1 {
                    last = Instant::now();
                } else if looks.is_multiple_of(64) && last.elapsed() > PATIENCE {
                    break;
                }
                std::hint::spin_loop();
            }
            self.tell_awake(false);
            self.asleep.store(true, Ordering::SeqCst);
            while self.asleep.load(Ordering::SeqCst) {
                std::thread::park();
            }
        }
    }

    /// Serves the call posted in a slot; returns whether there was one.
    fn look(&self, core: usize) -> bool {
        let slot = self.slot(core);
        if slot.state.load(Ordering::Acquire) != POSTED
            || slot.state.compare_exchange(POSTED, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // The program may have changed the arguments meanwhile; the values that are read here are served.
        let number = slot.number.load(Ordering::Relaxed);
        let arguments = slot.arguments.each_ref().map(|a| a.load(Ordering::Relaxed));
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        if !self.delegate.is_quick(number) {
            slot.state.store(ORDINARY, Ordering::Release);
            return true;
        }
        match self.delegate.serve(&mut Caller::default(), number, arguments) {
            Outcome::Value(value) => {
                slot.result.store(value, Ordering::Relaxed);
                slot.state.store(SERVED, Ordering::Release);
            }
            _ => slot.state.store(ORDINARY, Ordering::Release),
        }
        true
    }
}
