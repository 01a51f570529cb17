//! The kernel's own count of TLB shootdowns, from /proc/interrupts.

/// Returns the TLB shootdowns of all CPUs so far; `None` where the file is hidden or has no such line.
pub(crate) fn tlb_shootdowns() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/interrupts").ok()?)
}

fn parse(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("TLB:"))?;
    Some(line.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cpus_are_added() {
        let text = "           CPU0       CPU1\n  0:  12  0  IO-APIC timer\nTLB:      30379      34945   TLB shootdowns\n";
        assert_eq!(parse(text), Some(65_324));
        assert_eq!(parse("CPU0\n"), None);
    }
}
