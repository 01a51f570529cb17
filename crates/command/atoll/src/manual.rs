//! Makes manual pages and completions from the flags' definitions.

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

/// Prints the manual page, or writes a page for each command into `dir`.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the commands' long help, one section each.
    fn page() -> String {
        let mut out = include_str!("commands_head.md").to_owned();
        for command in Cli::command().get_subcommands() {
            let mut command = command.clone().bin_name(format!("atoll {}", command.get_name()));
            let name = command.get_name().to_owned();
            if name == "help" || command.is_hide_set() {
                continue;
            }
            command = command.term_width(100);
            out += &format!("\n## atoll {name}\n\n```text\n{}```\n", command.render_long_help());
        }
        out.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    /// `ATOLL_BLESS=1 cargo test -p atoll commands_page` writes the page anew.
    #[test]
    fn the_commands_page_says_what_the_flags_are() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/commands.md");
        if std::env::var_os("ATOLL_BLESS").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            written,
            page(),
            "docs/commands.md is behind the flags: ATOLL_BLESS=1 cargo test -p atoll commands_page"
        );
    }

    #[test]
    fn every_command_has_a_manual_page_and_completions() {
        let dir = tempfile::tempdir().unwrap();
        clap_mangen::generate_to(Cli::command(), dir.path()).unwrap();
        for name in ["atoll.1", "atoll-run.1", "atoll-doctor.1", "atoll-top.1", "atoll-sweep.1"] {
            assert!(dir.path().join(name).exists(), "{name}");
        }
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "atoll", &mut text);
            assert!(String::from_utf8(text).unwrap().contains("cmcp-p"), "{shell}");
        }
    }
}
