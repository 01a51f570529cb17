//! Finds whether anything of a run is managed at all, so that its near limit has an effect, and says so as soon as it is known.
//!
//! On one node a limit applies to programs without OpenMP, too, once they need memory (the runtime's `start::take_over`). In
//! other cases `launch` knows before the start whether a program has no OpenMP and can start nothing that has. While it runs,
//! this module looks whether anything is managed yet. If a library brings OpenMP too late, the runtime in that process says so.
//! `finish` looks again at the end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atoll_memory::control::Control;

use super::check::program::{Checked, Uses};
use super::process::Process;
use crate::cli::{RunArgs, SummaryForm, Translation};

/// How long a run may take to reach the program that is meant: a shell, `timeout` or `env` in front of it is quick.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time between two looks.
const PERIOD: Duration = Duration::from_millis(20);

/// How to have a program managed that is not linked with OpenMP.
const MEND: &str =
    "LD_PRELOAD=libgomp.so.1 in front of atoll makes atoll manage a program that is not linked with OpenMP";

/// The error that the program cannot be managed, with `--require`.
#[derive(thiserror::Error, Debug, PartialEq, Eq)]
#[error("{0} cannot be managed, which --require asks for: {1}. {MEND}")]
pub(crate) struct NotApplied(String, &'static str);

const ALONE: &str =
    "it is not linked with OpenMP (libgomp, libomp or libiomp5), nor does it start programs that could be";

/// Whether a limit applies to programs without OpenMP, too, as soon as they need memory. It does on one node whose memory is
/// paged, also where the machine sets the limit: a program that is not linked with OpenMP has one even if more are asked for on this
/// machine.
pub(super) fn applies_to_all(args: &RunArgs, checked: Checked) -> bool {
    let here = args.nodes.is_some_and(|nodes| nodes > 1) && checked.openmp != Uses::Alone;
    let several = here || !args.hosts.is_empty();
    // --require without a limit asks for a program with OpenMP.
    let limited = args.near().is_some() || (args.near_is_automatic() && !args.require);
    limited && !several && args.translation.translation == Translation::Paging
}

/// Says before the start that nothing will be managed, if that is known.
///
/// # Errors
/// `--require` was given.
pub(super) fn before(args: &RunArgs, checked: Checked) -> Result<(), NotApplied> {
    if checked.openmp != Uses::Alone || applies_to_all(args, checked) {
        return Ok(());
    }
    let name = args.program.words[0].display();
    if args.require {
        return Err(NotApplied(name.to_string(), ALONE));
    }
    if let Some(near) = args.near() {
        eprintln!("atoll: --near {near} is not applied: {name} cannot be managed, as {ALONE}. {MEND}");
    }
    Ok(())
}

/// Looks while the program runs, in a thread of its own, until something is managed or a line has said that nothing is.
pub(super) fn look_on(args: &RunArgs, checked: Checked, control: &'static Control, child: i32) {
    let Some(near) = args.near().filter(|_| checked.openmp == Uses::Other && !applies_to_all(args, checked))
    else {
        return;
    };
    let name = args.program.words[0].display().to_string();
    let Some(child) = Process::open(child) else { return };
    let look = move || {
        let began = Instant::now();
        // A process that was refused, or that loaded OpenMP too late, said so itself.
        let unknown = || {
            [&control.program, &control.failure, &control.late].iter().all(|n| n.load(Ordering::Relaxed) == 0)
        };
        while unknown() && !child.is_over() {
            if began.elapsed() > PATIENCE {
                eprintln!(
                    "atoll: --near {near} is not applied to anything so far: {name} is not linked with OpenMP (libgomp, libomp or libiomp5), and has \
                     started no program that is. {MEND}"
                );
                return;
            }
            std::thread::sleep(PERIOD);
        }
    };
    // Without a thread it is said at the end.
    let _ = std::thread::Builder::new().name("atoll-applied".into()).spawn(look);
}

/// What a program without OpenMP must ask libc for to be managed: see the runtime's `take_over`.
const NEEDS: &str = "an eighth of near memory, or 4M";

/// Says at the end that nothing was managed, and why; returns whether that is an error.
pub(crate) fn at_end(args: &RunArgs, checked: Checked, control: &Control, name: &str) -> bool {
    if control.program.load(Ordering::Relaxed) > 0 {
        return false;
    }
    // The runtime itself said what it refused.
    if control.failure.load(Ordering::Relaxed) != 0 {
        return args.require;
    }
    let why = match checked.openmp {
        Uses::Alone | Uses::Other if applies_to_all(args, checked) => {
            if control.late.load(Ordering::Relaxed) != 0 {
                "the program that needed memory runs as it is".to_owned()
            } else if control.settings.near_automatic != 0 {
                format!(
                    "neither {name} nor what it started uses OpenMP, and none of them asked libc for an eighth of the memory that the machine can give"
                )
            } else {
                format!(
                    "neither {name} nor what it started uses OpenMP, and none of them asked libc for {NEEDS}"
                )
            }
        }
        _ if control.late.load(Ordering::Relaxed) != 0 => {
            "a library brought OpenMP after the start, too late".to_owned()
        }
        Uses::Alone => format!("{name} is not linked with OpenMP (libgomp, libomp or libiomp5)"),
        Uses::Other => {
            format!(
                "atoll saw no program linked with OpenMP (libgomp, libomp or libiomp5), neither {name} nor one that it started"
            )
        }
        Uses::OpenMp => format!(
            "{name} ended before it was managed; a program that has OpenMP by its libraries only is managed once it has asked libc for {NEEDS}"
        ),
    };
    if args.summary != SummaryForm::None || args.require {
        let required = if args.require { ", which --require asks for" } else { "" };
        eprintln!("atoll: nothing was managed{required}: {why}");
    }
    args.require
}
