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

/// The threads that look after lenders. Dropping it ends the sessions, and all memory is free again.
pub struct Keeper {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    /// Begins to look after `lenders`, with which `controls` are the sessions in the same order. `lost` hears of each that is
    /// lost, once.
    ///
    /// # Errors
    /// The system's refusal to start a thread.
    pub fn start(
        lenders: Lenders,
        controls: Vec<Control>,
        lost: impl Fn(Loss) + Send + Sync + 'static,
    ) -> std::io::Result<Keeper> {
        let mut keeper = Keeper { ends: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        let lost = Arc::new(lost);
        for ((settings, figures), control) in lenders.all().zip(controls) {
            let (ends, lost) = (Arc::clone(&keeper.ends), Arc::clone(&lost));
            let work = move || {
                // Signals are for the launcher's own thread.
                let _blocked = SignalsBlocked::new();
                if let Some(why) = look_after(control, figures, &ends) {
                    figures.set_state(LenderState::Lost);
                    // One that has everything back and said that it ends is no loss.
                    if figures.leaves.load(Relaxed) == 0 || figures.borrowed_bytes.load(Relaxed) > 0 {
                        lost(Loss { settings, figures, why });
                    }
                }
            };
            keeper.threads.push(std::thread::Builder::new().name("lenders".into()).spawn(work)?);
        }
        Ok(keeper)
    }
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

/// Asks until the run ends (`None`), or the lender is lost: why.
fn look_after(mut control: Control, figures: &LenderFigures, ends: &AtomicBool) -> Option<String> {
    if let Err(error) = control.set_patience(Some(SLOW)) {
        return Some(error.to_string());
    }
    while !ends.load(Acquire) {
        match ask(&mut control, figures, ends) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) if figures.keep_bytes().is_some() && figures.borrowed_bytes.load(Relaxed) > 0 => {
                return Some(format!("{}; it wanted its memory back", words(&error)));
            }
            Err(error) => return Some(words(&error)),
        }
        // A worker that found the lender lost says so in the state.
        if figures.state() == LenderState::Lost {
            return Some("it does not take a connection any more".to_owned());
        }
        std::thread::park_timeout(PERIOD);
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
