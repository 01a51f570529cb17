//! Runs a program under atoll's runtime, as `atoll run` does, with samplers on it.

use std::mem::MaybeUninit;

use atoll_profile_wire as wire;
use atoll_record::run::Settings;

use super::choose;
use super::finish::{self, Over};
use super::session::{self, Ended, ProfileError};
use crate::cli::{ProfileArgs, Share};
use crate::run::check::path;
use crate::run::{applied, finish as run_finish, launch};

/// Runs the program to its end.
///
/// # Errors
/// See [`ProfileError`].
pub(super) fn launch(args: &ProfileArgs) -> Result<Ended, ProfileError> {
    let program = path::find(&args.run.program.words[0], std::env::var_os("PATH").as_deref())?;
    let chosen = choose::choose(args)?;
    let dropped = chosen.drop_every_ns;
    let session = session::begin(args, &program, Some(settings(args)), chosen)?;
    let launched = launch::launch_with(
        &args.run,
        |settings| {
            settings.sample_period_ns = dropped;
            settings.count_regions = 1;
        },
        |command| {
            if let Some(fd) = session.journal {
                command.env(wire::ENVIRONMENT, fd.to_string());
            }
            session.gate.put_in(command);
        },
    );
    drop(session.gate);
    let recorded = session.harvester.finish();
    let finished = launched?;
    let ending = finished.ending;
    let over = Over {
        wall_seconds: finished.wall_seconds,
        cpu_seconds: children_seconds(),
        ending,
        under_runtime: Some((run_finish::describe(&args.run, &finished), run_finish::collect(&finished))),
    };
    run_finish::keep_footprint(&args.run, &finished);
    if let Some((_, figures)) = &over.under_runtime {
        run_finish::print(args.run.summary, figures);
    }
    let name = over.under_runtime.as_ref().map_or("", |(_, figures)| &figures.program);
    let none = applied::at_end(&args.run, finished.checked, finished.control, name);
    Ok(Ended { ending, failed: !finish::finish(&session.header, &session.output, recorded, &over) || none })
}

/// Returns the settings that are decided already; the record of the run at the end has all of them.
fn settings(args: &ProfileArgs) -> Settings {
    Settings {
        // The runtime knows what a share is in bytes.
        near_bytes: args.run.near().and_then(Share::size).map(|size| size.0),
        near_is_automatic: args.run.near_is_automatic(),
        page_bytes: 1 << args.run.page.shift(),
        page_tables: args.run.memory.page_tables.word().to_owned(),
        faults: args.run.memory.faults.word().to_owned(),
        workers: args.run.memory.workers.unwrap_or(0),
        policy: args.run.policy.to_string(),
        far: args.run.memory.far.to_string(),
        far_limit_bytes: args.run.memory.far_limit.map(|size| size.0),
    }
}

/// Returns the processor time of all children that ended, in seconds: of a program and its workers.
pub(crate) fn children_seconds() -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: valid for writes; a zeroed usage is one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
