//! The program that a script started, for nodes other than the origin: they run the same one in its directory, with its words and its
//! environment, and not the script.
//!
//! `nodes` has the launchers of such nodes started by it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use atoll_memory::control;

use crate::cli::RunArgs;
use crate::script_line;

/// The variables that a launcher sets for its program, and that the launcher of another node sets anew.
const OWN: [&str; 4] =
    [control::ENVIRONMENT, control::ENVIRONMENT_FIRST, control::ENVIRONMENT_PRELOAD, "LD_PRELOAD"];

/// Makes `command`, which starts a launcher, run the program that process `pid` is, with the flags of this launcher's own command line.
pub(super) fn same_program(command: &mut Command, pid: i32, args: &RunArgs) -> io::Result<()> {
    let of = |what: &str| std::fs::read(format!("/proc/{pid}/{what}"));
    let words = of("cmdline")?;
    let program = std::fs::read_link(format!("/proc/{pid}/exe"))?;
    let own: Vec<OsString> = script_line::words(std::env::args_os()).into_iter().collect();
    let flags = own.len().saturating_sub(args.program.words.len());
    let flags = own.get(1..flags).unwrap_or_default();
    command.args(flags);
    if flags.last().is_none_or(|last| last != "--") {
        command.arg("--");
    }
    command.arg(program).args(strings(&words).skip(1));
    command.env_clear();
    for variable in strings(&of("environ")?) {
        let mut parts = variable.as_bytes().splitn(2, |byte| *byte == b'=');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
        if !OWN.iter().any(|own| own.as_bytes() == name) {
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        } else if name == control::ENVIRONMENT_PRELOAD.as_bytes() {
            // The script may preload other libraries than this launcher was started with.
            command.env("LD_PRELOAD", OsStr::from_bytes(value));
        }
    }
    command.current_dir(std::fs::read_link(format!("/proc/{pid}/cwd"))?);
    Ok(())
}

/// The strings in `bytes`, each with a NUL behind it.
fn strings(bytes: &[u8]) -> impl Iterator<Item = &OsStr> {
    bytes.strip_suffix(&[0]).unwrap_or(bytes).split(|byte| *byte == 0).map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_words_are_words() {
        let all: Vec<&OsStr> = strings(b"sh\0\0-c\0").collect();
        assert_eq!(all, ["sh", "", "-c"]);
    }
}
