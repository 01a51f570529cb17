//! A pattern: a name with parts left open. `dma@2.*` is any instance on node 2, `dma@*.0` the first of any node, `bench/*@*.*`
//! all that begin with `bench/`. `dma@2` and `dma` are short for `dma@2.*` and `dma@*.*`.
//!
//! Stands on `name.rs`; `registry.rs` looks up by it.
//!
//! Source: the barrelfish paper, section 6.8.2 (`XEON_PHI_DOMAIN_DONT_CARE`, there a regular expression).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::name::{Name, NameError, Problem, check_service, number, split};
use atoll_transport::Node;

/// A pattern, which selects names.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    service: Service,
    node: Number,
    instance: Number,
}

/// The services that a pattern selects.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Service {
    /// The service with this name.
    Exactly(String),
    /// The services whose names begin with this text, which may be empty.
    Beginning(String),
}

/// The nodes or instances that a pattern selects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Number {
    /// The one with this number.
    Exactly(u32),
    /// All.
    Any,
}

impl Number {
    /// The least and the greatest number selected.
    pub(super) fn range(self) -> (u32, u32) {
        match self {
            Number::Exactly(number) => (number, number),
            Number::Any => (0, u32::MAX),
        }
    }

    fn matches(self, number: u32) -> bool {
        match self {
            Number::Exactly(this) => this == number,
            Number::Any => true,
        }
    }

    fn parse(text: &str) -> Result<Number, Problem> {
        if text == "*" { Ok(Number::Any) } else { number(text).map(Number::Exactly) }
    }
}

impl Service {
    fn check(&self) -> Result<(), (usize, Problem)> {
        match self {
            Service::Beginning(prefix) if prefix.is_empty() => Ok(()),
            Service::Exactly(service) | Service::Beginning(service) => check_service(service),
        }
    }
}

impl Pattern {
    /// The pattern of `instance` of `service` at `node`.
    pub fn new(service: Service, node: Number, instance: Number) -> Result<Pattern, NameError> {
        match service.check() {
            Ok(()) => Ok(Pattern { service, node, instance }),
            Err((position, problem)) => Err(NameError::new(&service.to_string(), position, problem)),
        }
    }

    /// The pattern of all instances of `service` anywhere.
    pub fn service(service: &str) -> Result<Pattern, NameError> {
        Pattern::new(Service::Exactly(service.to_owned()), Number::Any, Number::Any)
    }

    /// The pattern of all instances of `service` at `node`.
    pub fn at(service: &str, node: Node) -> Result<Pattern, NameError> {
        Pattern::new(Service::Exactly(service.to_owned()), Number::Exactly(node.0), Number::Any)
    }

    /// Whether the pattern selects `name`.
    pub fn matches(&self, name: &Name) -> bool {
        let service = match &self.service {
            Service::Exactly(this) => name.service() == this,
            Service::Beginning(prefix) => name.service().starts_with(prefix.as_str()),
        };
        service && self.node.matches(name.node().0) && self.instance.matches(name.instance())
    }

    /// The services, nodes and instances that it selects.
    pub fn parts(&self) -> (&Service, Number, Number) {
        (&self.service, self.node, self.instance)
    }
}

impl From<&Name> for Pattern {
    fn from(name: &Name) -> Pattern {
        Pattern {
            service: Service::Exactly(name.service().to_owned()),
            node: Number::Exactly(name.node().0),
            instance: Number::Exactly(name.instance()),
        }
    }
}

impl FromStr for Pattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Pattern, NameError> {
        let wrong = |position, problem| NameError::new(text, position, problem);
        let parts = split(text);
        let service = match parts.service.strip_suffix('*') {
            Some(prefix) => Service::Beginning(prefix.to_owned()),
            None => Service::Exactly(parts.service.to_owned()),
        };
        service.check().map_err(|(position, problem)| wrong(position, problem))?;
        let part = |part: Option<(usize, &str)>| match part {
            None => Ok(Number::Any),
            Some((position, part)) => Number::parse(part).map_err(|problem| wrong(position, problem)),
        };
        Ok(Pattern { service, node: part(parts.node)?, instance: part(parts.instance)? })
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Service::Exactly(service) => f.write_str(service),
            Service::Beginning(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Exactly(number) => write!(f, "{number}"),
            Number::Any => f.write_str("*"),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}.{}", self.service, self.node, self.instance)
    }
}

impl TryFrom<String> for Pattern {
    type Error = NameError;

    fn try_from(text: String) -> Result<Pattern, NameError> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_can_be_left_open() {
        let dma = Name::new("dma", Node(2), 1).unwrap();
        let meant = |text: &str| text.parse::<Pattern>().unwrap().matches(&dma);
        for yes in ["dma@2.1", "dma@2.*", "dma@*.1", "dma@2", "dma", "d*@2", "dma*", "*", "*@2.*", "*@*.*"] {
            assert!(meant(yes), "{yes}");
        }
        for no in ["dma@1.*", "dma@2.0", "dm", "dmas*", "dm@2.1", "*@3", "*@*.0"] {
            assert!(!meant(no), "{no}");
        }
        assert_eq!("dma".parse::<Pattern>().unwrap().to_string(), "dma@*.*");
        assert_eq!("dma@2".parse::<Pattern>().unwrap(), Pattern::at("dma", Node(2)).unwrap());
        assert_eq!(Pattern::from(&dma).to_string(), "dma@2.1");
    }

    #[test]
    fn what_is_no_pattern_is_told_with_its_place() {
        let why = |text: &str| text.parse::<Pattern>().map_err(|e| (e.position, e.problem)).unwrap_err();
        assert_eq!(why(""), (0, Problem::NoService));
        assert_eq!(why("d*a@1"), (1, Problem::Star));
        assert_eq!(why("**"), (0, Problem::Star));
        assert_eq!(why("dma@"), (4, Problem::Number));
        assert_eq!(why("dma@2*"), (4, Problem::Number));
        assert_eq!(why("dma@*.**"), (6, Problem::Number));
        assert_eq!(why("d\n@1"), (1, Problem::Character('\n')));
        assert!(Pattern::service("a*").is_err());
    }

    proptest! {
        #[test]
        fn a_pattern_is_what_its_text_says(text in "[a-b@.*0-1]{0,9}") {
            if let Ok(pattern) = text.parse::<Pattern>() {
                let full = pattern.to_string();
                prop_assert!(full.starts_with(&text), "{} {}", text, full);
                prop_assert_eq!(full.parse::<Pattern>().unwrap(), pattern);
            }
        }

        #[test]
        fn a_name_as_a_pattern_matches_itself_alone(
            one in "[ab]{1,2}", n in 0u32..2, i in 0u32..2, two in "[ab]{1,2}", m in 0u32..2, k in 0u32..2,
        ) {
            let (one, two) = (Name::of(&one, Node(n), i), Name::of(&two, Node(m), k));
            prop_assert_eq!(Pattern::from(&one).matches(&two), one == two);
        }
    }
}
