//! The remote shell, which starts a command on another host.
//!
//! `link.rs` runs it for each host that is not this machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

use super::trouble::LaunchError;

/// The command that reaches another host: words, to which the host and the command are appended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rsh {
    words: Vec<OsString>,
    /// Whether the other end gives the command to a shell, so that its words are quoted.
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
    /// A command like `ssh`, at whose other end a shell reads the appended words.
    pub fn new(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Rsh, LaunchError> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        if words.is_empty() { Err(LaunchError::Rsh) } else { Ok(Rsh { words, shell: true }) }
    }

    /// A command as [`Rsh::new`] makes it, from one line that is split into words as a shell would.
    pub fn parse(line: &str) -> Result<Rsh, LaunchError> {
        Rsh::new(shlex::split(line).ok_or(LaunchError::Rsh)?)
    }

    /// The same command without a shell at the other end, as with `ip netns exec`: the words of the command arrive as they are.
    #[must_use]
    pub fn without_shell(self) -> Rsh {
        Rsh { shell: false, ..self }
    }

    /// The command's name, for messages.
    pub(super) fn name(&self) -> String {
        self.words[0].to_string_lossy().into_owned()
    }

    /// Whether it is OpenSSH, judged by its name.
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

/// Quotes `word` so that a shell takes it for one word.
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
        // As ssh does, the words are joined by spaces and given to a shell.
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
