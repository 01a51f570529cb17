//! The subjects that are compared: the program alone, under Linux swap, under atoll with some settings.

use std::fmt;

/// A way to run a program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Subject {
    /// Without atoll and without a limit.
    Native,
    /// Without atoll, under a limit, with a device to swap to.
    Swap(Device),
    Atoll(Atoll),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    Zram,
    File,
}

/// The settings of `atoll run`; a setting that is `None` is left to its default.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Atoll {
    /// Whether near memory is as small as the limit asks.
    pub(crate) limited: bool,
    /// Near memory in percent of the footprint, where it is not the sheet's limit.
    pub(crate) percent: Option<u32>,
    pub(crate) far: Option<&'static str>,
    pub(crate) page: Option<&'static str>,
    pub(crate) policy: Option<&'static str>,
}

impl Subject {
    pub(crate) fn atoll(&self) -> Option<&Atoll> {
        if let Subject::Atoll(atoll) = self { Some(atoll) } else { None }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Native => f.write_str("native"),
            Subject::Swap(Device::Zram) => f.write_str("swap zram"),
            Subject::Swap(Device::File) => f.write_str("swap file"),
            Subject::Atoll(a) => {
                f.write_str("atoll")?;
                if !a.limited {
                    f.write_str(" all near")?;
                }
                let set = [a.far, a.page, a.policy];
                if a.limited && set.iter().all(Option::is_none) {
                    f.write_str(" defaults")?;
                }
                for word in set.into_iter().flatten() {
                    write!(f, " {word}")?;
                }
                a.percent.map_or(Ok(()), |percent| write!(f, " {percent}% near"))
            }
        }
    }
}

/// How libgomp's threads wait and where they run. When its two spinning threads meet on one CPU they hold each other up for
/// milliseconds, and this machine's scheduler puts them there. Native and swap runs get the way that is faster for the program.
/// Atoll runs get neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    Passive,
    Bound,
}

impl Waiting {
    pub(crate) const ALL: [Waiting; 2] = [Waiting::Passive, Waiting::Bound];

    pub(crate) fn variable(self) -> (&'static str, String) {
        match self {
            Waiting::Passive => ("OMP_WAIT_POLICY", "passive".to_owned()),
            Waiting::Bound => ("OMP_PROC_BIND", "true".to_owned()),
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, value) = self.variable();
        write!(f, "{name}={value}")
    }
}
