//! Which policy, with which options: parsed from what a user writes, and built over given storage.
//!
//! The commands parse it, the run's shared header keeps it, `atoll-memory` and the simulator build from it.

use core::fmt;
use core::str::FromStr;

use crate::policy::{Foresight, Policy, Wants};
use crate::storage::Storage;

/// What a policy's file says about its options. Written `name` or `name:key=value,key=value`.
pub trait Options: Copy + fmt::Debug + fmt::Display + PartialEq + Sized {
    /// The policy these options build.
    type Policy<'a>: Policy;
    /// The name users write.
    const NAME: &'static str;
    /// The options of the bare name.
    const DEFAULT: Self;
    /// How many lists the policy keeps.
    const LISTS: usize;
    /// Whether the policy keeps a tag word for every frame.
    const TAGGED: bool;
    /// What the policy needs of the pager.
    const WANTS: Wants;

    /// Sets one option from what was written.
    ///
    /// # Errors
    ///
    /// The option does not exist, or its value is out of range.
    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError>;

    /// Turns on an option that has no value.
    ///
    /// # Errors
    ///
    /// There is no such option.
    fn turn_on(&mut self, key: &str) -> Result<(), SpecError> {
        let _ = key;
        Err(SpecError::MissingValue)
    }

    /// The policy, empty, over `storage` made for these options.
    fn build(self, storage: Storage<'_>) -> Self::Policy<'_>;
}

/// Why a written policy is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecError {
    /// No policy has this name.
    UnknownPolicy,
    /// The policy has no such option.
    UnknownOption {
        /// The policy's name.
        policy: &'static str,
        /// The options it has.
        known: &'static str,
    },
    /// An option's value is missing or out of range.
    WrongValue {
        /// The option's name.
        option: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// An option was written without `=`.
    MissingValue,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy => {
                f.write_str("no such replacement policy; there are ")?;
                for (index, spec) in PolicySpec::ALL.iter().enumerate() {
                    write!(f, "{}{}", if index == 0 { "" } else { ", " }, spec.name())?;
                }
                Ok(())
            }
            Self::UnknownOption { policy, known } => write!(f, "no such option of {policy}; it has: {known}"),
            Self::WrongValue { option, expected } => write!(f, "{option} must be {expected}"),
            Self::MissingValue => f.write_str("options of a policy are written name:option=value"),
        }
    }
}

impl core::error::Error for SpecError {}

macro_rules! policies {
    ($($(#[$doc:meta])* $variant:ident($options:ty),)*) => {
        /// A policy and its options. `Display` writes what `FromStr` reads: `fifo`, `lru`, `cmcp:p=0.5`.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub enum PolicySpec {
            $($(#[$doc])* $variant($options),)*
        }

        /// Any of the policies. It holds no address but those of its storage and no function pointer, so it may lie
        /// in memory that workers share, given the storage is at the same address in each.
        #[derive(Debug)]
        #[allow(clippy::large_enum_variant, reason = "lies once in a run's header, where no box can be")]
        pub enum AnyPolicy<'a> {
            $($(#[$doc])* $variant(<$options as Options>::Policy<'a>),)*
        }

        impl PolicySpec {
            /// Every policy with its default options.
            pub const ALL: &'static [Self] = &[$(Self::$variant(<$options>::DEFAULT),)*];

            /// The policy's name without options.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => <$options>::NAME,)* }
            }

            /// How many lists the policy keeps.
            pub(crate) fn lists(&self) -> usize {
                match self { $(Self::$variant(_) => <$options>::LISTS,)* }
            }

            /// Whether it keeps a tag word for every frame.
            pub(crate) fn is_tagged(&self) -> bool {
                match self { $(Self::$variant(_) => <$options>::TAGGED,)* }
            }

            fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
                match self { $(Self::$variant(options) => options.set(key, value),)* }
            }

            fn turn_on(&mut self, key: &str) -> Result<(), SpecError> {
                match self { $(Self::$variant(options) => options.turn_on(key),)* }
            }
        }

        impl fmt::Display for PolicySpec {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Self::$variant(options) => options.fmt(f),)* }
            }
        }

        impl<'a> AnyPolicy<'a> {
            /// The policy of `spec`, empty, over storage made for the same `spec`.
            pub fn new(spec: PolicySpec, storage: Storage<'a>) -> Self {
                match spec { $(PolicySpec::$variant(options) => Self::$variant(options.build(storage)),)* }
            }

            /// What the policy needs of the pager.
            pub fn wants(&self) -> Wants {
                match self { $(Self::$variant(_) => <$options>::WANTS,)* }
            }
        }

        macro_rules! each {
            ($any:expr, $policy:ident => $call:expr) => { match $any { $(AnyPolicy::$variant($policy) => $call,)* } };
        }
    };
}

policies! {
    /// First in, first out.
    Fifo(crate::fifo::FifoOptions),
    /// The Linux approximation of least recently used.
    Lru(crate::lru::LruOptions),
    /// Core-map count based priority.
    Cmcp(crate::cmcp::CmcpOptions),
    /// The order of next uses, as far as the program's rounds foretell it; else FIFO.
    Adaptive(crate::adaptive::AdaptiveOptions),
    /// Newest first.
    Newest(crate::newest::NewestOptions),
}

impl PolicySpec {
    /// Bytes of storage for each frame, beside the fixed size of the lists.
    pub fn bytes_per_frame(&self) -> usize {
        if self.is_tagged() { 12 } else { 8 }
    }

    /// How many `u32` words [`Storage::new`] needs for `frames` frames.
    pub fn words(&self, frames: u32) -> usize {
        frames as usize * (self.bytes_per_frame() / 4) + 2 * self.lists()
    }
}

impl FromStr for PolicySpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, options) =
            text.split_once(':').map_or((text, None), |(name, options)| (name, Some(options)));
        let mut spec = *Self::ALL.iter().find(|spec| spec.name() == name).ok_or(SpecError::UnknownPolicy)?;
        for option in options.into_iter().flat_map(|options| options.split(',')) {
            match option.split_once('=') {
                Some((key, value)) => spec.set(key, value)?,
                None => spec.turn_on(option)?,
            }
        }
        Ok(spec)
    }
}

impl Policy for AnyPolicy<'_> {
    fn insert(&mut self, frame: u32, mappers: u32) {
        each!(self, policy => policy.insert(frame, mappers));
    }

    fn insert_again(&mut self, frame: u32, mappers: u32, token: u32) {
        each!(self, policy => policy.insert_again(frame, mappers, token));
    }

    fn insert_huge(&mut self, frame: u32, pages: u32, token: Option<u32>) {
        each!(self, policy => policy.insert_huge(frame, pages, token));
    }

    fn split_huge(&mut self, frame: u32) {
        each!(self, policy => policy.split_huge(frame));
    }

    fn mapped(&mut self, frame: u32, mappers: u32) {
        each!(self, policy => policy.mapped(frame, mappers));
    }

    fn peek(&self) -> Option<u32> {
        each!(self, policy => policy.peek())
    }

    fn evict(&mut self) -> Option<u32> {
        each!(self, policy => policy.evict())
    }

    fn token(&self) -> u32 {
        each!(self, policy => policy.token())
    }

    fn remove(&mut self, frame: u32) {
        each!(self, policy => policy.remove(frame));
    }

    fn restore(&mut self, frame: u32, mappers: u32) {
        each!(self, policy => policy.restore(frame, mappers));
    }

    fn rescued(&mut self, frame: u32, mappers: u32, token: u32) {
        each!(self, policy => policy.rescued(frame, mappers, token));
    }

    fn scan(&mut self, unmap: &mut dyn FnMut(u32)) {
        each!(self, policy => policy.scan(unmap));
    }

    fn evict_also(&mut self, frame: u32) -> bool {
        each!(self, policy => policy.evict_also(frame))
    }

    fn evict_this(&mut self, frame: u32) -> bool {
        each!(self, policy => policy.evict_this(frame))
    }
    #[inline]
    fn lets_go(&mut self) -> bool {
        each!(self, policy => policy.lets_go())
    }

    fn mark(&mut self, id: u32) {
        each!(self, policy => policy.mark(id));
    }

    fn foresight(&self) -> Foresight {
        each!(self, policy => policy.foresight())
    }

    fn len(&self) -> usize {
        each!(self, policy => policy.len())
    }

    fn contains(&self, frame: u32) -> bool {
        each!(self, policy => policy.contains(frame))
    }

    fn name(&self) -> &'static str {
        each!(self, policy => policy.name())
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn what_is_written_is_what_is_read() {
        for text in [
            "fifo",
            "lru",
            "lru:scan=64",
            "lru:linux",
            "lru:linux,scan=64",
            "cmcp:p=0",
            "cmcp:p=0.5",
            "cmcp:p=0.125",
            "cmcp:p=1",
        ] {
            let spec: PolicySpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
            assert_eq!(spec.to_string().parse(), Ok(spec));
        }
        assert_eq!("cmcp".parse::<PolicySpec>().unwrap().to_string(), "cmcp:p=0.5");
        for spec in PolicySpec::ALL {
            assert_eq!(spec.name().parse(), Ok(*spec));
            assert!(spec.bytes_per_frame() <= 12);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let message = |text: &str| text.parse::<PolicySpec>().unwrap_err().to_string();
        assert!(message("clock").starts_with("no such replacement policy; there are fifo, lru, cmcp"));
        assert_eq!(message("cmcp:q=1"), "no such option of cmcp; it has: p");
        assert_eq!(message("fifo:p=1"), "no such option of fifo; it has: none");
        for text in ["cmcp:p=1.5", "cmcp:p=-0.1", "cmcp:p=NaN", "cmcp:p="] {
            assert_eq!(message(text), "p must be a ratio from 0 to 1");
        }
        assert_eq!(message("lru:bsd"), "options of a policy are written name:option=value");
        assert_eq!(message("cmcp:p"), "options of a policy are written name:option=value");
        assert_eq!(message("lru:scan=0"), "scan must be a number of frames from 1");
    }
}
