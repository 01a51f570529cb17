//! When a process started, which tells it from an earlier or later process with the same number.
//!
//! UCX's watch over peers (`transport/ucx/deaths.rs`), copies between processes and `atoll top` use it.

/// Returns the time when the process with this number was started, in clock ticks since the machine started (`_SC_CLK_TCK` of
/// them a second); `None` if there is no such process, or it must not be looked at.
pub fn process_started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold any characters; the field starttime is number 22, and number 3 follows the name.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_its_start_and_its_child_starts_no_earlier() {
        let own = process_started(std::process::id()).unwrap();
        assert_eq!(process_started(std::process::id()), Some(own));
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(process_started(child.id()).unwrap() >= own);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn no_process_has_no_start() {
        assert_eq!(process_started(u32::MAX), None);
    }
}
