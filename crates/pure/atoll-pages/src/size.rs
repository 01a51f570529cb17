//! Amounts of memory as users write them: `4096`, `64K`, `2M`, `1.5G`, in powers of two.
//!
//! The commands parse and print with it; nothing else in this crate needs it.

use core::fmt;
use core::str::FromStr;

/// An amount of memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Size(
    /// The bytes.
    pub u64,
);

const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// Digits read behind the point; more could not matter below an exabyte.
const FRACTION_DIGITS: usize = 18;

/// Why what was written is no size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeError {
    /// Nothing was written.
    Empty,
    /// A share of something: `100%`.
    Percent,
    /// No number in front, or something else than digits and one point in it.
    NotANumber,
    /// The number is followed by something else than K, M, G or T.
    UnknownUnit,
    /// A fraction of a byte, or more than 18 digits behind the point.
    Fraction,
    /// 2^64 bytes or more.
    TooLarge,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a size is missing: write bytes or 64K, 2M, 1.5G",
            Self::Percent => "a percentage is not a size: write bytes or 64K, 2M, 1.5G",
            Self::NotANumber => "a size is a number: write bytes or 64K, 2M, 1.5G",
            Self::UnknownUnit => "the unit of a size is K, M, G or T (powers of 1024), or none for bytes",
            Self::Fraction => "a size is a whole number of bytes",
            Self::TooLarge => "a size is below 16,777,216T",
        })
    }
}

impl core::error::Error for SizeError {}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        if text.is_empty() {
            return Err(SizeError::Empty);
        }
        if text.ends_with('%') {
            return Err(SizeError::Percent);
        }
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let shift = match unit {
            "" => 0,
            unit => UNITS
                .iter()
                .find(|(name, _)| unit.chars().eq([*name]) || unit.chars().eq([name.to_ascii_lowercase()]))
                .map(|(_, shift)| *shift)
                .ok_or(if number.is_empty() { SizeError::NotANumber } else { SizeError::UnknownUnit })?,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
            return Err(SizeError::NotANumber);
        }
        if fraction.len() > FRACTION_DIGITS || (shift == 0 && number.len() != whole.len()) {
            return Err(SizeError::Fraction);
        }
        // Only digits are left, so parsing fails on too many of them alone.
        let whole: u64 = whole.parse().map_err(|_| SizeError::TooLarge)?;
        let bytes = u128::from(whole) << shift;
        let part: u64 =
            if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| SizeError::Fraction)? };
        // A part of a unit that is no whole number of bytes is rounded down: 0.1K is 102.
        let part = (u128::from(part) << shift) / 10_u128.pow(fraction.len() as u32);
        u64::try_from(bytes + part).map(Self).map_err(|_| SizeError::TooLarge)
    }
}

impl fmt::Display for Size {
    /// The shortest of the exact ways to write it, with at most two digits behind the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, shift) in UNITS {
            let hundredths = u128::from(self.0) * 100;
            let unit = 1 << shift;
            if u128::from(self.0) < unit || hundredths % unit != 0 {
                continue;
            }
            let (whole, part) = (hundredths / unit / 100, hundredths / unit % 100);
            return match (part / 10, part % 10) {
                (0, 0) => write!(f, "{whole}{name}"),
                (tenths, 0) => write!(f, "{whole}.{tenths}{name}"),
                _ => write!(f, "{whole}.{part:02}{name}"),
            };
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, bytes) in [
            ("0", 0),
            ("4095", 4095),
            ("64K", 65_536),
            ("2M", 2 << 20),
            ("1.5G", 3 << 29),
            ("1.25T", 5 << 38),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!("0.5k".parse(), Ok(Size(512)));
        assert_eq!("0.1K".parse(), Ok(Size(102)));
        assert_eq!(Size(1025).to_string(), "1025");
        assert_eq!(Size((1 << 30) + (1 << 20)).to_string(), "1025M");
    }

    #[test]
    fn what_is_no_size_is_named() {
        for (text, error) in [
            ("", SizeError::Empty),
            ("100%", SizeError::Percent),
            ("K", SizeError::NotANumber),
            ("-1K", SizeError::NotANumber),
            ("1.2.3K", SizeError::NotANumber),
            (".5K", SizeError::NotANumber),
            ("5.K", SizeError::NotANumber),
            ("1.5", SizeError::Fraction),
            ("64KB", SizeError::UnknownUnit),
            ("1é", SizeError::UnknownUnit),
            ("16777216T", SizeError::TooLarge),
            ("18446744073709551616", SizeError::TooLarge),
        ] {
            assert_eq!(text.parse::<Size>(), Err(error), "{text}");
        }
    }
}
