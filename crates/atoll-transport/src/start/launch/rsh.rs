//! The remote shell: how a command is started on another host.
//!
//! `link.rs` runs it for each host that is not this machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

use super::trouble::LaunchError;

/// What starts a command on another host: words, after which the host and the command are appended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rsh {
    words: Vec<OsString>,
    /// The other end gives the command to a shell, so its words are quoted.
    shell: bool,
}

impl Default for Rsh {
    /// `ssh` that asks nothing, and gives up a host that does not answer for 45 seconds.
    fn default() -> Rsh {
        Rsh::new(["ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"])
            .unwrap_or_else(|_| unreachable!())
    }
}

impl Rsh {
    /// A command like `ssh`: a shell at the other end reads what is appended.
    pub fn new(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Rsh, LaunchError> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        if words.is_empty() { Err(LaunchError::Rsh) } else { Ok(Rsh { words, shell: true }) }
    }

    /// As [`Rsh::new`], from one line that is split as a shell would.
    pub fn parse(line: &str) -> Result<Rsh, LaunchError> {
        Rsh::new(shlex::split(line).ok_or(LaunchError::Rsh)?)
    }

    /// There is no shell at the other end, as with `ip netns exec`: the words of the command arrive as they are.
    #[must_use]
    pub fn without_shell(self) -> Rsh {
        Rsh { shell: false, ..self }
    }

    /// What it is called, for messages.
    pub(super) fn name(&self) -> String {
        self.words[0].to_string_lossy().into_owned()
    }

    /// It is OpenSSH, as far as its name tells.
    pub(super) fn is_ssh(&self) -> bool {
        self.words[0].as_bytes().rsplit(|&byte| byte == b'/').next() == Some(b"ssh")
    }

    /// The command that starts `words` on `host`.
    pub(super) fn command(&self, host: &str, words: &[OsString]) -> Result<Command, LaunchError> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(host);
        for word in words {
            command.arg(if self.shell { quote(word)? } else { word.clone() });
        }
        Ok(command)
    }
}

/// `word` as a shell takes it for one word.
fn quote(word: &OsStr) -> Result<OsString, LaunchError> {
    let quoted = shlex::bytes::try_quote(word.as_bytes()).map_err(|_| LaunchError::Agent)?;
    Ok(OsString::from_vec(quoted.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_quoted_words_as_they_were() {
        let odd = [
            "plain",
            "",
            " two  words ",
            "it's",
            "\"$HOME\" `id` \\ !! * ~",
            "line\nline",
            "-n",
            "\u{e4}\t#",
        ];
        let words: Vec<OsString> = odd.iter().map(Into::into).collect();
        // As ssh does: the words joined by spaces go to a shell.
        let rsh = Rsh::new(["sh", "-c", r#"shift; exec sh -c "printf '<%s>' $*""#, "sh"]).unwrap();
        let output = rsh.command("host", &words).unwrap().output().unwrap();
        let expected: String = odd.iter().map(|word| format!("<{word}>")).collect();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }

    #[test]
    fn a_line_is_split_as_a_shell_would_and_nothing_is_no_command() {
        let rsh = Rsh::parse("/usr/bin/ssh -o 'User name' -p22").unwrap();
        assert_eq!(rsh.words, ["/usr/bin/ssh", "-o", "User name", "-p22"]);
        assert!(rsh.is_ssh() && !Rsh::parse("env").unwrap().is_ssh());
        for bad in ["", "  ", "ssh 'open"] {
            assert!(matches!(Rsh::parse(bad), Err(LaunchError::Rsh)));
        }
    }
}
