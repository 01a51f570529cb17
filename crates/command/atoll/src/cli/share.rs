//! The amount of near memory as `atoll sweep` and `atoll sim` take it: a percentage or a size.

use std::fmt;
use std::str::FromStr;

use atoll_pages::Size;

/// An amount of near memory: a share of the footprint, or a size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Share {
    /// In percent.
    Percent(f64),
    /// In bytes.
    Size(Size),
}

/// What `--near` says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Near {
    /// No limit.
    None,
    /// A limit.
    Limit(Share),
}

impl FromStr for Near {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, ShareError> {
        if text == "none" {
            return Ok(Self::None);
        }
        match text.parse()? {
            Share::Size(Size(0)) => Err(ShareError::Nothing),
            share => Ok(Self::Limit(share)),
        }
    }
}

#[derive(thiserror::Error, Debug, PartialEq)]
pub(crate) enum ShareError {
    #[error("a share is a percentage above 0, as in 50%")]
    Percent,
    #[error("a program with no near memory at all cannot run: give a size, as in 64M, or a share, as in 50%")]
    Nothing,
    #[error("{0}")]
    Size(#[from] atoll_pages::size::SizeError),
}

impl Share {
    /// Returns the size, if this is one.
    pub(crate) fn size(self) -> Option<Size> {
        match self {
            Self::Size(size) => Some(size),
            Self::Percent(_) => None,
        }
    }
}

impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, ShareError> {
        match text.strip_suffix('%') {
            Some(number) => match number.parse::<f64>() {
                Ok(percent) if percent > 0.0 && percent.is_finite() => Ok(Self::Percent(percent)),
                _ => Err(ShareError::Percent),
            },
            None => Ok(Self::Size(text.parse()?)),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Size(size) => size.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_or_sizes() {
        assert_eq!("50%".parse(), Ok(Share::Percent(50.0)));
        assert_eq!("2M".parse(), Ok(Share::Size(Size(2 << 20))));
        for wrong in ["0%", "-1%", "%", "inf%", "NaN%"] {
            assert_eq!(wrong.parse::<Share>(), Err(ShareError::Percent), "{wrong}");
        }
    }
}
