//! The names of far stores on the command line: `auto`, `ram`, `lz4`, `zstd`, `file`, `file:DIR`, `hosts`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Which far store a run uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FarSpec {
    /// Plain memory: stands for a slower or remote tier.
    #[default]
    Ram,
    /// Memory, compressed by LZ4.
    Lz4,
    /// Memory, compressed by zstd at level 1: smaller than LZ4 and slower.
    Zstd,
    /// An unlinked file in this directory; none: `$TMPDIR` if set and on a disk, else `/var/tmp`.
    File(Option<PathBuf>),
    /// Memory of other hosts, which lenders lend.
    Hosts,
    /// Memory, compressed by LZ4, as long as the machine has some to spare; then a file as that of `file`.
    Auto,
}

/// A name that is none of a far store's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no far store is called `{0}`: use auto, ram, lz4, zstd, file, file:DIR or hosts")]
pub struct FarSpecError(pub String);

impl FromStr for FarSpec {
    type Err = FarSpecError;

    fn from_str(text: &str) -> Result<Self, FarSpecError> {
        match text.split_once(':') {
            None => match text {
                "auto" => Ok(Self::Auto),
                "ram" => Ok(Self::Ram),
                "lz4" => Ok(Self::Lz4),
                "zstd" => Ok(Self::Zstd),
                "file" => Ok(Self::File(None)),
                "hosts" => Ok(Self::Hosts),
                _ => Err(FarSpecError(text.to_owned())),
            },
            Some(("file", dir)) if !dir.is_empty() => Ok(Self::File(Some(dir.into()))),
            Some(_) => Err(FarSpecError(text.to_owned())),
        }
    }
}

impl fmt::Display for FarSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => out.write_str("auto"),
            Self::Ram => out.write_str("ram"),
            Self::Lz4 => out.write_str("lz4"),
            Self::Zstd => out.write_str("zstd"),
            Self::File(None) => out.write_str("file"),
            Self::Hosts => out.write_str("hosts"),
            Self::File(Some(dir)) => write!(out, "file:{}", dir.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip() {
        for name in ["auto", "ram", "lz4", "zstd", "file", "file:/mnt/a:b", "hosts"] {
            assert_eq!(name.parse::<FarSpec>().unwrap().to_string(), name);
        }
        for wrong in ["", "RAM", "file:", "lz4:9", "disk"] {
            assert!(wrong.parse::<FarSpec>().is_err(), "{wrong}");
        }
    }
}
