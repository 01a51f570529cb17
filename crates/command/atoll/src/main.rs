//! The `atoll` commands.
//!
//! Without the feature `tools` only the commands that run programs are there; the demonstration (`./demo`) builds these.

// Modules that only the other commands use.
#![cfg_attr(not(feature = "tools"), allow(dead_code, unused_imports))]

mod arch;
#[cfg(feature = "tools")]
mod bench;
mod cgroup;
mod cli;
#[cfg(feature = "tools")]
mod csv;
mod defaults;
mod doctor;
#[cfg(feature = "tools")]
mod export;
mod figures;
mod lend;
mod machine;
#[cfg(feature = "tools")]
mod manual;
mod names;
#[cfg(feature = "tools")]
mod plot;
#[cfg(feature = "tools")]
mod profile;
#[cfg(feature = "tools")]
mod report;
#[cfg(feature = "tools")]
mod repro;
mod run;
#[cfg(feature = "tools")]
mod said;
mod script_line;
#[cfg(feature = "tools")]
mod segment;
#[cfg(feature = "tools")]
mod show;
#[cfg(feature = "tools")]
mod sim;
#[cfg(feature = "tools")]
mod sweep;
#[cfg(feature = "tools")]
mod top;
#[cfg(feature = "tools")]
mod trace;
#[cfg(feature = "tools")]
mod translations;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

/// Makes this process end as other filters do when the pipe on standard output closes (`atoll sim … | head`), rather than with
/// a panic.
fn end_with_the_reader() {
    // SAFETY: sets a disposition, and nothing else of this process has one for it.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// The bytes of the stack that commands run on: the shell's limit (`ulimit -s`) is meant for the program.
const STACK_BYTES: usize = 16 << 20;

/// Blocks all signals for this thread. The thread that a command runs on gets them; it may block some of them and wait for
/// those.
fn leave_signals_to_others() {
    // SAFETY: a set of all signals, for the calling thread alone.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// Whether this is the agent that starts a node on one of several hosts. It makes its keeper by fork, which only a process with
/// one thread can do safely.
fn is_agent() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == "agent")
}

fn main() -> ExitCode {
    if is_agent() {
        return command();
    }
    match std::thread::Builder::new().name("atoll".into()).stack_size(STACK_BYTES).spawn(command) {
        Ok(thread) => {
            leave_signals_to_others();
            thread.join().unwrap_or(ExitCode::from(101))
        }
        // The machine gives no further thread: the stack that is there may do.
        Err(_) => command(),
    }
}

/// Whether the command runs a program. Such commands outlive their readers, as the program may.
fn runs_a_program(command: &Command) -> bool {
    match command {
        Command::Run(_)
        | Command::Agent
        | Command::Lend(_)
        | Command::StartLenders(_)
        | Command::LendWorker => true,
        #[cfg(feature = "tools")]
        Command::Sweep(_) | Command::Trace(_) | Command::Profile(_) => true,
        _ => false,
    }
}

fn command() -> ExitCode {
    let command = Cli::parse_from(script_line::words(std::env::args_os())).command;
    if !runs_a_program(&command) {
        end_with_the_reader();
    }
    match command {
        Command::Run(args) => run::run(&args),
        #[cfg(feature = "tools")]
        Command::Sweep(args) => sweep::sweep(&args),
        #[cfg(feature = "tools")]
        Command::Segment(what) => segment::segment(&what),
        #[cfg(feature = "tools")]
        Command::Top(args) => top::top(&args),
        #[cfg(feature = "tools")]
        Command::Trace(args) => trace::trace(&args),
        #[cfg(feature = "tools")]
        Command::Profile(args) => profile::profile(&args),
        #[cfg(feature = "tools")]
        Command::Report(args) => report::report(&args),
        #[cfg(feature = "tools")]
        Command::Diff(args) => report::diff(&args),
        #[cfg(feature = "tools")]
        Command::Export(args) => export::export(&args),
        #[cfg(feature = "tools")]
        Command::Show(args) => show::show(&args),
        #[cfg(feature = "tools")]
        Command::Repro(args) => repro::repro(&args),
        #[cfg(feature = "tools")]
        Command::Sim(args) => sim::sim(&args),
        #[cfg(feature = "tools")]
        Command::Bench(what) => bench::bench(&what),
        Command::Lend(args) => lend::lend(&args),
        Command::StartLenders(args) => lend::start_all(&args),
        Command::LendWorker => lend::work(),
        Command::Lenders { json } => lend::list(json),
        Command::Agent => run::hosts::agent(),
        Command::Doctor { json } => doctor::doctor(json),
        #[cfg(feature = "tools")]
        Command::Completions { shell } => manual::completions(shell),
        #[cfg(feature = "tools")]
        Command::Manual { dir } => manual::manual(dir.as_deref()),
    }
}
