//! Formats numbers for people.
//!
//! The sentences of the report use these functions. Its tables carry numbers, which the page formats.

/// Returns bytes as in `1.5G`: powers of two, three digits.
pub(crate) fn bytes(n: u64) -> String {
    let units = [(1u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    for (unit, letter) in units {
        if n >= unit {
            let value = n as f64 / unit as f64;
            let digits =
                if value >= 100.0 || n.is_multiple_of(unit) { 0 } else { usize::from(value < 10.0) + 1 };
            return format!("{value:.digits$}{letter}");
        }
    }
    format!("{n} bytes")
}

/// Returns a number as in `12,345`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Returns a share, from 0 to 1, in percent.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 0.0 && percent < 0.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

/// Returns `part` of `all`, from 0 to 1; 0 if `all` is 0.
pub(crate) fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

/// Returns a number with its noun: `1 page`, `2 pages`.
pub(crate) fn many(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(4096), "4K");
        assert_eq!(bytes(1_395_864_371), "1.30G");
        assert_eq!(bytes(65_536_000), "62.5M");
        assert_eq!(count(1234567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!((percent(0.004), percent(0.5), percent(0.0)), ("0.4%".into(), "50%".into(), "0%".into()));
        assert_eq!(many(1, "page"), "1 page");
    }
}
