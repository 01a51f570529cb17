//! Which samplers a profile is made with, and why.

use atoll_record::profile::SamplerInfo;
use atoll_sampling::calibrate;
use atoll_sampling::sampler::{Knobs, Sampler, SamplerError};
use atoll_sampling::timer::{LEAST_PERIOD_NS, Timer};

use crate::cli::{ProfileArgs, SamplerArg};

/// What was chosen.
pub(super) struct Chosen {
    pub(super) samplers: Vec<Box<dyn Sampler>>,
    /// As the record's header has them.
    pub(super) infos: Vec<SamplerInfo>,
    /// Why these, in a sentence.
    pub(super) reason: String,
    /// Those not taken, and why.
    pub(super) refused: Vec<(String, String)>,
}

/// No sampler works here, or not the one that was asked for.
#[derive(thiserror::Error, Debug)]
#[error("sampler {0} cannot be used here: {1}")]
pub(crate) struct NoSampler(&'static str, SamplerError);

/// Chooses.
///
/// # Errors
/// None works.
pub(super) fn choose(args: &ProfileArgs) -> Result<Chosen, NoSampler> {
    let timer = timer(args).map_err(|e| NoSampler("timer", e))?;
    let mut info = timer.info();
    info.overhead_target = args.reset.is_none().then_some(args.overhead.0);
    info.harvest_thread = args.harvest_thread;
    let reason = match args.sampler {
        SamplerArg::Auto => {
            "the processor's counters are not there, and the timer works with any program".to_owned()
        }
        SamplerArg::Timer => "it was asked for".to_owned(),
    };
    Ok(Chosen { samplers: vec![Box::new(timer)], infos: vec![info], reason, refused: Vec::new() })
}

fn timer(args: &ProfileArgs) -> Result<Timer, SamplerError> {
    let cost = calibrate::timer_sample_seconds()?;
    // What is left is for harvesting.
    let held = (cost / (0.85 * args.overhead.0) * 1e9) as u64;
    let period = args.reset.unwrap_or(held).max(LEAST_PERIOD_NS);
    Timer::new(Knobs { period, buffer_bytes: args.buffer.0 as usize }, cost)
}
