//! Manual pages and completions, made from the flags' definitions.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

/// Prints completions for a shell.
pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "atoll", &mut text);
    written("standard output", io::stdout().write_all(&text))
}

/// Prints the manual page, or writes one a command into `dir`.
pub(crate) fn manual(dir: Option<&Path>) -> ExitCode {
    match dir {
        Some(dir) => written(&dir.display().to_string(), clap_mangen::generate_to(Cli::command(), dir)),
        None => written("standard output", clap_mangen::Man::new(Cli::command()).render(&mut io::stdout())),
    }
}

fn written(place: &str, result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: {place} cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}
