//! What must be the same on all nodes: the program and its libraries, and where everything lies.
//!
//! `agent` sends it first; a difference ends the run with a sentence that names it.

use serde::{Deserialize, Serialize};

use crate::start::objects::Object;

/// One node's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Identity {
    /// Version of what nodes say to each other.
    version: u32,
    page_bytes: u64,
    /// Objects in the order of the link map: file name, load address, and where its writable data lies.
    objects: Vec<(String, u64, Vec<(u64, u64)>)>,
    /// The main stack.
    stack: (u64, u64),
}

/// The version of [`super::wire`].
const VERSION: u32 = 1;

impl Identity {
    pub(super) fn new(objects: &[Object], page_bytes: usize, stack: (usize, usize)) -> Identity {
        let pair = |&(a, b): &(usize, usize)| (a as u64, b as u64);
        let objects = objects
            .iter()
            .map(|o| (o.file_name().to_owned(), o.base as u64, o.data.iter().map(pair).collect()))
            .collect();
        Identity { version: VERSION, page_bytes: page_bytes as u64, objects, stack: pair(&stack) }
    }

    /// How `other` differs, if it does: a sentence for the user.
    pub(super) fn difference(&self, other: &Identity) -> Option<String> {
        if self.version != other.version {
            return Some("it runs another version of atoll".to_owned());
        }
        if self.page_bytes != other.page_bytes {
            return Some("its pages have another size".to_owned());
        }
        for (mine, theirs) in self.objects.iter().zip(&other.objects) {
            let name = |name: &str| {
                if name.is_empty() { "the program".to_owned() } else { name.to_owned() }
            };
            if mine.0 != theirs.0 {
                return Some(format!("it has {} where {} is here", name(&theirs.0), name(&mine.0)));
            }
            if mine.1 != theirs.1 {
                return Some(format!(
                    "{} lies at {:#x} there and at {:#x} here",
                    name(&mine.0),
                    theirs.1,
                    mine.1
                ));
            }
            if mine.2 != theirs.2 {
                return Some(format!("{} is not the same file there", name(&mine.0)));
            }
        }
        if self.objects.len() != other.objects.len() {
            return Some("it loaded other libraries".to_owned());
        }
        (self.stack != other.stack).then(|| "its main stack lies elsewhere".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str, base: usize) -> Identity {
        let object =
            Object { name: format!("/lib/{name}"), base, data: vec![(base, base + 4096)], segments: vec![] };
        Identity::new(&[object], 4096, (1, 2))
    }

    #[test]
    fn a_library_that_differs_is_named() {
        let here = identity("libm.so.6", 0x1000);
        assert_eq!(here.difference(&here.clone()), None);
        assert!(here.difference(&identity("libm.so.7", 0x1000)).is_some_and(|d| d.contains("libm.so.7")));
        assert!(here.difference(&identity("libm.so.6", 0x2000)).is_some_and(|d| d.contains("0x2000")));
    }
}
