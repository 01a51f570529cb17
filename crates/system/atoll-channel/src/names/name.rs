//! A name: a service, its node, and its number there. Written `service@node.instance`, as in `dma@2.0`.
//!
//! `pattern.rs` leaves parts of it open. A name comes from a peer as text, and is checked like any other text.
//!
//! Source: the barrelfish paper, section 6.8.2 (`xeon_phi_domain_build_iface`: name, Xeon Phi and core).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::limits::MOST_SERVICE;
use atoll_transport::Node;

/// A service's name, 1 to [`MOST_SERVICE`] letters, digits, `-`, `_`, `.` and `/` (ASCII); its node; and its number among those
/// of this name there. Ordered by service, node, instance.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name {
    service: String,
    node: Node,
    instance: u32,
}

/// The reason why a text is no name or pattern, and the place in the text.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{text:?} is no name: {problem}, at byte {position}")]
pub struct NameError {
    /// The text, or its beginning if it is long.
    pub text: String,
    /// The number of bytes before the error.
    pub position: usize,
    /// The error at that place.
    pub problem: Problem,
}

/// The errors of names and patterns.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// There is no service.
    #[error("the service is missing")]
    NoService,
    /// The service is too long.
    #[error("the service is longer than {MOST_SERVICE} bytes")]
    LongService,
    /// The character cannot be in a service's name.
    #[error("{0:?} is none of letters, digits, '-', '_', '.' and '/'")]
    Character(char),
    /// A name needs a node.
    #[error("'@' and the node are missing")]
    NoNode,
    /// A name needs an instance.
    #[error("'.' and the instance are missing")]
    NoInstance,
    /// The text is not a number.
    #[error("this must be a number from 0 to 4294967295, without leading zeros")]
    Number,
    /// There can be no star here.
    #[error("'*' is for patterns, at the end of a part")]
    Star,
}

impl NameError {
    /// The error for a `text` of any length.
    pub(super) fn new(text: &str, position: usize, problem: Problem) -> NameError {
        // The error of a hostile peer's text must not be long either.
        NameError { text: text.chars().take(MOST_SERVICE + 32).collect(), position, problem }
    }
}

impl Name {
    /// The name of instance `instance` of `service` at `node`.
    pub fn new(service: &str, node: Node, instance: u32) -> Result<Name, NameError> {
        check_service(service).map_err(|(position, problem)| NameError::new(service, position, problem))?;
        Ok(Name { service: service.to_owned(), node, instance })
    }

    /// The name of parts that were checked.
    pub(super) fn of(service: &str, node: Node, instance: u32) -> Name {
        Name { service: service.to_owned(), node, instance }
    }

    /// The service's name.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The node on which the service runs.
    pub fn node(&self) -> Node {
        self.node
    }

    /// The number among those of its service at its node.
    pub fn instance(&self) -> u32 {
        self.instance
    }
}

/// Checks that `service` can be a service's name; the error has place and problem.
pub(super) fn check_service(service: &str) -> Result<(), (usize, Problem)> {
    if service.is_empty() {
        return Err((0, Problem::NoService));
    }
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    match service.char_indices().find(|(_, c)| !good(*c)) {
        Some((position, '*')) => Err((position, Problem::Star)),
        Some((position, c)) => Err((position, Problem::Character(c))),
        None if service.len() > MOST_SERVICE => Err((MOST_SERVICE, Problem::LongService)),
        None => Ok(()),
    }
}

/// Parses a number as `Display` writes it, so that every name has only one text.
pub(super) fn number(text: &str) -> Result<u32, Problem> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits || (text.len() > 1 && text.starts_with('0')) {
        return Err(Problem::Number);
    }
    text.parse().map_err(|_| Problem::Number)
}

/// The parts of the text of a name or pattern: service and, where present, node and instance with their positions.
pub(super) struct Split<'a> {
    pub(super) service: &'a str,
    pub(super) node: Option<(usize, &'a str)>,
    pub(super) instance: Option<(usize, &'a str)>,
}

/// Cuts a text at its `@` and the `.` behind it.
pub(super) fn split(text: &str) -> Split<'_> {
    let Some((service, rest)) = text.split_once('@') else {
        return Split { service: text, node: None, instance: None };
    };
    let at = service.len() + 1;
    match rest.split_once('.') {
        None => Split { service, node: Some((at, rest)), instance: None },
        Some((node, instance)) => {
            Split { service, node: Some((at, node)), instance: Some((at + node.len() + 1, instance)) }
        }
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        let wrong = |position, problem| NameError::new(text, position, problem);
        let parts = split(text);
        check_service(parts.service).map_err(|(position, problem)| wrong(position, problem))?;
        let whole = |(position, part): (usize, &str)| match part {
            "*" => Err(wrong(position, Problem::Star)),
            part => number(part).map_err(|problem| wrong(position, problem)),
        };
        let node = parts.node.ok_or_else(|| wrong(text.len(), Problem::NoNode)).and_then(whole)?;
        let instance =
            parts.instance.ok_or_else(|| wrong(text.len(), Problem::NoInstance)).and_then(whole)?;
        Ok(Name::of(parts.service, Node(node), instance))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}.{}", self.service, self.node.0, self.instance)
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Name, NameError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_name_is_told_with_its_place() {
        let why = |text: &str| text.parse::<Name>().map_err(|e| (e.position, e.problem)).unwrap_err();
        assert_eq!(why(""), (0, Problem::NoService));
        assert_eq!(why("@1.2"), (0, Problem::NoService));
        assert_eq!(why("dma"), (3, Problem::NoNode));
        assert_eq!(why("dma@1"), (5, Problem::NoInstance));
        assert_eq!(why("dma@.2"), (4, Problem::Number));
        assert_eq!(why("dma@1."), (6, Problem::Number));
        assert_eq!(why("dma@01.2"), (4, Problem::Number));
        assert_eq!(why("dma@1.+2"), (6, Problem::Number));
        assert_eq!(why("dma@1.4294967296"), (6, Problem::Number));
        assert_eq!(why("dma@1.2.3"), (6, Problem::Number));
        assert_eq!(why("dma@*.2"), (4, Problem::Star));
        assert_eq!(why("dma@1.*"), (6, Problem::Star));
        assert_eq!(why("d*@1.2"), (1, Problem::Star));
        assert_eq!(why("d a@1.2"), (1, Problem::Character(' ')));
        assert_eq!(why("dé@1.2"), (1, Problem::Character('é')));
        assert_eq!(why(&"x".repeat(65)), (64, Problem::LongService));
        assert_eq!(
            "d a@1.2".parse::<Name>().unwrap_err().to_string(),
            "\"d a@1.2\" is no name: ' ' is none of letters, digits, '-', '_', '.' and '/', at byte 1"
        );
        assert!(Name::new(&"x".repeat(64), Node(0), 0).is_ok());
        assert!(why(&"é".repeat(1 << 20)).0 == 0);
    }

    proptest! {
        #[test]
        fn every_name_has_one_text(service in "[a-zA-Z0-9_./-]{1,64}", node: u32, instance: u32) {
            let name = Name::new(&service, Node(node), instance).unwrap();
            prop_assert_eq!(name.to_string().parse::<Name>().unwrap(), name);
        }

        #[test]
        fn a_text_that_is_a_name_is_the_one_it_prints(text in "[a-b@.*0-1é]{0,9}") {
            if let Ok(name) = text.parse::<Name>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
