//! Looks after the lenders of a run: whether they answer, how far away they are, how much they could still lend, and what they want
//! back.
//!
//! The launcher has one as long as the program runs. The program's workers look at the states that are kept here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atoll_memory::far::hosts::lenders::{LenderFigures, LenderSettings, LenderState, Lenders};
use atoll_memory::far::hosts::wire::{Verb, Wish};
use atoll_memory::signals::SignalsBlocked;

use crate::control::{Control, ControlError};

/// The time between two questions.
const PERIOD: Duration = Duration::from_millis(200);
/// The time between two looks for a lender that is gone.
const SEARCH: Duration = Duration::from_millis(500);
/// How long an answer may take before the lender counts as slow.
const SLOW: Duration = Duration::from_millis(500);

/// A lender that was lost.
#[derive(Debug)]
pub struct Loss {
    /// The lender.
    pub settings: &'static LenderSettings,
    /// What was counted of it.
    pub figures: &'static LenderFigures,
    /// Why, in words.
    pub why: String,
}

/// What a launcher hears of its lenders.
pub trait Watch: Send + Sync + 'static {
    /// A lender is lost. Heard of each once.
    fn lost(&self, loss: Loss);

    /// Looks whether the lender of `settings`, which is lost or has left, is there again, perhaps started anew: a session with it, what
    /// the run's workers must know of it, and the round trip.
    fn find(&self, settings: &LenderSettings) -> Option<(Control, LenderSettings, Duration)>;

    /// A lender was found again, and is used from now on.
    fn is_back(&self, settings: &'static LenderSettings);
}

/// The threads that look after lenders. Dropping it ends the sessions, and all memory is free again.
pub struct Keeper {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    /// Begins to look after `lenders`, with which `controls` are the sessions in the same order.
    ///
    /// # Errors
    /// The system's refusal to start a thread.
    pub fn start(lenders: Lenders, controls: Vec<Control>, watch: impl Watch) -> std::io::Result<Keeper> {
        let mut keeper = Keeper { ends: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        let watch = Arc::new(watch);
        for (lender, control) in lenders.all().zip(controls) {
            let (ends, watch) = (Arc::clone(&keeper.ends), Arc::clone(&watch));
            let work = move || {
                // Signals are for the launcher's own thread.
                let _blocked = SignalsBlocked::new();
                let mut now = Some((lender, control));
                while let Some((lender, control)) = now.take() {
                    now = keep(lender, control, &ends, &*watch)
                        .then(|| find(lenders, lender.0, &ends, &*watch))
                        .flatten();
                }
            };
            keeper.threads.push(std::thread::Builder::new().name("lenders".into()).spawn(work)?);
        }
        Ok(keeper)
    }
}

type Lender = (&'static LenderSettings, &'static LenderFigures);

/// Looks after a lender until it is lost or has left; whether it may be looked for again.
fn keep((settings, figures): Lender, control: Control, ends: &AtomicBool, watch: &impl Watch) -> bool {
    let Some((why, is_gone)) = look_after(control, figures, ends) else { return false };
    figures.set_state(LenderState::Lost);
    // One that has everything back and said that it ends is no loss.
    if figures.leaves.load(Relaxed) == 0 || figures.borrowed_bytes.load(Relaxed) > 0 {
        watch.lost(Loss { settings, figures, why });
    }
    is_gone
}

/// Looks for a lender until it is there again, or the run ends. It is another one for the run: nothing that was there is there now.
fn find(
    lenders: Lenders,
    settings: &LenderSettings,
    ends: &AtomicBool,
    watch: &impl Watch,
) -> Option<(Lender, Control)> {
    while !ends.load(Acquire) {
        std::thread::park_timeout(SEARCH);
        if let Some((control, settings, trip)) = watch.find(settings) {
            let lender = lenders.add(settings, trip.as_nanos() as u64)?;
            watch.is_back(lender.0);
            return Some((lender, control));
        }
    }
    None
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.ends.store(true, Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Asks until the run ends (`None`), or the lender is lost: why, and whether it does not answer. One that answers, and was lost by a
/// worker, lied or refuses.
fn look_after(mut control: Control, figures: &LenderFigures, ends: &AtomicBool) -> Option<(String, bool)> {
    if let Err(error) = control.set_patience(Some(SLOW)) {
        return Some((error.to_string(), true));
    }
    let mut was_lost = false;
    while !ends.load(Acquire) {
        match ask(&mut control, figures, ends) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) if figures.keep_bytes().is_some() && figures.borrowed_bytes.load(Relaxed) > 0 => {
                return Some((format!("{}; it wanted its memory back", words(&error)), true));
            }
            Err(error) => return Some((words(&error), true)),
        }
        // A worker that found the lender lost says so in the state. It may have been sooner than the question.
        if was_lost {
            return Some(("it does not take a connection any more".to_owned(), false));
        }
        was_lost = figures.state() == LenderState::Lost;
        std::thread::park_timeout(if was_lost { Duration::from_millis(10) } else { PERIOD });
    }
    None
}

fn words(error: &ControlError) -> String {
    match error {
        ControlError::Os(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "it closed the connection".to_owned()
        }
        error => error.to_string(),
    }
}

/// One question and its answer, however long that takes; `false` if the run ended meanwhile.
fn ask(control: &mut Control, figures: &LenderFigures, ends: &AtomicBool) -> Result<bool, ControlError> {
    let began = Instant::now();
    control.send(Verb::Ping, &[])?;
    loop {
        match control.receive() {
            Ok((free, wish)) => {
                let wish = wish.as_slice().try_into().map_err(|_| ControlError::Nonsense)?;
                let wish = Wish::decode(wish);
                figures.set_keep_bytes(wish.keep_bytes);
                figures.leaves.store(wish.leaves.into(), Relaxed);
                figures.free_bytes.store(free, Relaxed);
                figures.round_trip_ns.store(began.elapsed().as_nanos() as u64, Relaxed);
                figures.set_state(LenderState::Well);
                return Ok(true);
            }
            Err(ControlError::Os(error)) if is_late(&error) => {
                figures.set_state(LenderState::Slow);
                if ends.load(Acquire) {
                    return Ok(false);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
        && error.raw_os_error() != Some(libc::ETIMEDOUT)
}
