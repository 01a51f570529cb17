//! Chooses the samplers of a profile, and says why.
//!
//! They are those that were asked for, or the best that work: the processor's own, else the timer. Without perf it is touches
//! under atoll's runtime, and writes for programs that run as they are.

use std::path::Path;

use atoll_record::profile::SamplerInfo;
use atoll_sampling::calibrate;
use atoll_sampling::damon::{self, Damon};
use atoll_sampling::faults::Faults;
use atoll_sampling::hardware::Hardware;
use atoll_sampling::hardware::pmu::{Kind, Pmu};
use atoll_sampling::sampler::{Knobs, Sampler, SamplerError};
use atoll_sampling::timer::{self, LEAST_PERIOD_NS, Timer};
use atoll_sampling::touches::{self, Touches};
use atoll_sampling::writes::{self, Writes};

use crate::cli::{ProfileArgs, RuntimeArg, SamplerArg};

/// The part of the permitted overhead that samples may take; the rest is for harvesting.
const SHARE: f64 = 0.85;
/// The part of the permitted overhead that the timer's first samples may take, harvesting included. The cost of beginning adds
/// to it, and a short run is over before the period has been changed.
const FIRST_SHARE: f64 = 0.5;
/// The number of accesses between the first hardware samples where an overhead is to be kept to; it is changed later.
const FIRST_RESET: u64 = 10_000;

/// The microseconds between the first two of DAMON's checks: the kernel's own default.
const FIRST_CHECK_US: u64 = 5000;

/// The samplers that were chosen.
pub(super) struct Chosen {
    pub(super) samplers: Vec<Box<dyn Sampler>>,
    /// Their descriptions for the record's header.
    pub(super) infos: Vec<SamplerInfo>,
    /// The reason for the choice, in a sentence.
    pub(super) reason: String,
    /// The samplers that were not taken, and why.
    pub(super) refused: Vec<(String, String)>,
    /// The nanoseconds after which each worker drops a page; 0: never.
    pub(super) drop_every_ns: u64,
}

/// The reason why there is no sampler: none works here, or the one that was asked for does not.
#[derive(thiserror::Error, Debug)]
pub(crate) enum NoSampler {
    /// The sampler that was asked for is not available.
    #[error("sampler {0} cannot be used here: {1}")]
    Refused(&'static str, SamplerError),
    /// The sampler needs the runtime.
    #[error("sampler {0} needs atoll's runtime: leave --runtime off away")]
    Runtime(&'static str),
    /// The runtime uses what the sampler needs.
    #[error(
        "sampler writes is for programs that run as they are: under atoll's runtime pages are protected by the runtime itself (sampler touches)"
    )]
    Alone,
    /// None of them works.
    #[error("no sampler works here: {0}")]
    None(String),
}

/// Whether the program runs under atoll's runtime.
pub(super) fn managed(args: &ProfileArgs) -> bool {
    match args.runtime {
        RuntimeArg::On => true,
        RuntimeArg::Off => false,
        RuntimeArg::Auto => {
            args.run.near().is_some()
                || args.run.require
                || args.run.nodes.is_some_and(|n| n > 1)
                || matches!(args.sampler, SamplerArg::Touches | SamplerArg::Both)
        }
    }
}

/// Chooses the samplers.
///
/// # Errors
/// None works.
pub(super) fn choose(args: &ProfileArgs) -> Result<Chosen, NoSampler> {
    let asked = "it was asked for".to_owned();
    let refused = |name| move |e| NoSampler::Refused(name, e);
    let one = |sampler: Box<dyn Sampler>| Ok(chosen(args, vec![sampler], asked.clone(), Vec::new(), 0));
    let hardware_of = |kind: Kind| -> Result<Chosen, NoSampler> {
        let sampler = hardware(args, Some(kind)).map_err(refused(kind.word()))?;
        one(Box::new(sampler))
    };
    match args.sampler {
        SamplerArg::Pebs => hardware_of(Kind::Pebs),
        SamplerArg::Ibs => hardware_of(Kind::Ibs),
        SamplerArg::Spe => hardware_of(Kind::Spe),
        SamplerArg::Timer => one(Box::new(timer(args, 1.0).map_err(refused("timer"))?)),
        SamplerArg::Faults => {
            one(Box::new(Faults::new(knobs(args, args.reset.unwrap_or(1))).map_err(refused("faults"))?))
        }
        SamplerArg::Touches | SamplerArg::Both if !managed(args) => Err(NoSampler::Runtime("touches")),
        SamplerArg::Touches => {
            let period = drop_period(args, 1.0);
            Ok(chosen(args, vec![Box::new(Touches::new(period))], asked, Vec::new(), period))
        }
        SamplerArg::Writes if managed(args) => Err(NoSampler::Alone),
        SamplerArg::Writes => one(Box::new(writes(args).map_err(refused("writes"))?)),
        SamplerArg::Damon => {
            let period = args.reset.unwrap_or(FIRST_CHECK_US);
            one(Box::new(Damon::new(Path::new(damon::DIRECTORY), period).map_err(refused("damon"))?))
        }
        SamplerArg::Both => {
            let period = drop_period(args, 0.5);
            let timer = timer(args, 0.5).map_err(refused("timer"))?;
            let both: Vec<Box<dyn Sampler>> = vec![Box::new(timer), Box::new(Touches::new(period))];
            Ok(chosen(args, both, asked, Vec::new(), period))
        }
        SamplerArg::Auto => automatic(args),
    }
}

fn automatic(args: &ProfileArgs) -> Result<Chosen, NoSampler> {
    let mut refused = Vec::new();
    match hardware(args, None) {
        Ok(sampler) => {
            let reason = "the processor samples accesses itself".to_owned();
            return Ok(chosen(args, vec![Box::new(sampler)], reason, refused, 0));
        }
        Err(error) => refused.push(("hardware".to_owned(), error.to_string())),
    }
    match timer(args, 1.0) {
        Ok(sampler) => {
            let reason = format!("sampler timer, as {}", refused[0].1);
            return Ok(chosen(args, vec![Box::new(sampler)], reason, refused, 0));
        }
        Err(error) => refused.push(("timer".to_owned(), error.to_string())),
    }
    if managed(args) {
        let period = drop_period(args, 1.0);
        let reason = format!("sampler touches, as for perf {}", refused[1].1);
        return Ok(chosen(args, vec![Box::new(Touches::new(period))], reason, refused, period));
    }
    match writes(args) {
        Ok(sampler) => {
            let reason = format!("sampler writes, as for perf {}", refused[1].1);
            return Ok(chosen(args, vec![Box::new(sampler)], reason, refused, 0));
        }
        Err(error) => refused.push(("writes".to_owned(), error.to_string())),
    }
    let all: Vec<String> = refused.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    Err(NoSampler::None(all.join("; ")))
}

fn chosen(
    args: &ProfileArgs,
    samplers: Vec<Box<dyn Sampler>>,
    reason: String,
    refused: Vec<(String, String)>,
    drop_every_ns: u64,
) -> Chosen {
    let share = args.overhead.0 / samplers.len() as f64;
    let info = |sampler: &dyn Sampler| SamplerInfo {
        overhead_target: args.reset.is_none().then_some(share),
        harvest_thread: args.harvest_thread,
        ..sampler.info()
    };
    let infos = samplers.iter().map(|sampler| info(sampler.as_ref())).collect();
    Chosen { samplers, infos, reason, refused, drop_every_ns }
}

fn knobs(args: &ProfileArgs, period: u64) -> Knobs {
    Knobs { period, buffer_bytes: args.buffer.0 as usize, harvest_thread: args.harvest_thread }
}

fn hardware(args: &ProfileArgs, wanted: Option<Kind>) -> Result<Hardware, SamplerError> {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let pmu = Pmu::find(Path::new("/sys/bus/event_source/devices"), &processor)?;
    if wanted.is_some_and(|kind| kind != pmu.kind) {
        return Err(SamplerError::Absent(format!("this processor has {}", pmu.kind.word())));
    }
    let period = args.reset.unwrap_or(FIRST_RESET);
    Hardware::new(&pmu, knobs(args, period))
}

/// Makes a timer that keeps to `share` of the overhead.
fn timer(args: &ProfileArgs, share: f64) -> Result<Timer, SamplerError> {
    let cost = calibrate::timer_sample_seconds()?;
    let each = cost + timer::HARVEST_SECONDS;
    let held = (each / (FIRST_SHARE * share * args.overhead.0) * 1e9) as u64;
    let period = args.reset.unwrap_or(held).max(LEAST_PERIOD_NS);
    Timer::new(knobs(args, period), cost)
}

/// Makes a sampler of writes that keeps to the overhead.
fn writes(args: &ProfileArgs) -> Result<Writes, SamplerError> {
    let held = (writes::SECONDS_A_SAMPLE / (SHARE * args.overhead.0) * 1e9) as u64;
    Writes::new(args.reset.unwrap_or(held))
}

/// Returns the nanoseconds after which each worker drops a page, to keep to `share` of the overhead.
fn drop_period(args: &ProfileArgs, share: f64) -> u64 {
    let held = (touches::SECONDS_A_SAMPLE / (SHARE * share * args.overhead.0) * 1e9) as u64;
    args.reset.unwrap_or(held).max(1)
}
