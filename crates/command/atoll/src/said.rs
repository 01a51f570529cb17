//! Reads what another atoll printed, for a message of this one, without the name that stands before every line of both.
//!
//! `bench`, `repro` and the side-by-side runs start atoll again and report why that failed.

use std::process::ExitStatus;

use atoll_memory::control::EXIT_SETUP;

/// The name before each line.
const NAME: &str = "atoll: ";

/// Returns a line without the name.
pub(crate) fn without_name(line: &str) -> &str {
    line.strip_prefix(NAME).unwrap_or(line)
}

/// Returns the last line that was printed, without the name.
pub(crate) fn last(stderr: &str) -> Option<&str> {
    stderr.lines().map(str::trim).rfind(|line| !line.is_empty()).map(without_name)
}

/// Returns why an atoll failed, if it failed by itself: its last line, as earlier lines are notices. A program that failed
/// under it is reported by its status.
pub(crate) fn why(status: ExitStatus, stderr: &str) -> Option<String> {
    last(stderr).filter(|_| status.code() == Some(EXIT_SETUP)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "atoll: ./cg could not be profiled (atoll: sampler pebs cannot be used here …)".
    #[test]
    fn another_atolls_message_had_the_name_twice() {
        let stderr = "atoll: a notice\natoll: sampler pebs cannot be used here: none\n\n";
        assert_eq!(last(stderr), Some("sampler pebs cannot be used here: none"));
        assert_eq!(last("  \n"), None);
        let status = |code: i32| std::os::unix::process::ExitStatusExt::from_raw(code << 8);
        assert_eq!(why(status(EXIT_SETUP), stderr), last(stderr).map(str::to_owned));
        assert_eq!(why(status(1), stderr), None);
        assert_eq!(without_name("it did not verify"), "it did not verify");
    }
}
