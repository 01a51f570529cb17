//! A node's identity, which must be the same on all nodes: the program and its libraries, and where everything lies.
//!
//! `meeting` sends it first; a difference ends the run with a sentence that names it. `atoll_code::link_map` compares what is
//! loaded.

use std::hash::{DefaultHasher, Hasher};

use atoll_code::link_map::{self, Library};
use atoll_code::loaded;
use serde::{Deserialize, Serialize};

/// The identity of one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Version of what nodes say to each other.
    version: u32,
    /// Version of atoll.
    atoll: String,
    page_bytes: u64,
    objects: Vec<Loaded>,
    /// The first and last address of the main stack.
    stack: (u64, u64),
}

/// A library that is loaded, with the fields of [`Library`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Loaded {
    name: String,
    soname: Option<String>,
    base: u64,
    size: u64,
    build_id: Vec<u8>,
}

/// The version of [`super::wire`].
const VERSION: u32 = 4;

impl From<Library> for Loaded {
    fn from(Library { name, soname, base, size, build_id }: Library) -> Loaded {
        Loaded { name, soname, base, size, build_id }
    }
}

impl From<Loaded> for Library {
    fn from(Loaded { name, soname, base, size, build_id }: Loaded) -> Library {
        Library { name, soname, base, size, build_id }
    }
}

/// Stands for the build id that a linker did not give: a hash of the file.
fn content_id(name: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(if name.is_empty() { "/proc/self/exe" } else { name }).ok()?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Some(hasher.finish().to_be_bytes().to_vec())
}

impl Identity {
    pub(crate) fn new(page_bytes: usize, stack: (usize, usize)) -> Identity {
        let mut objects: Vec<Loaded> = loaded::libraries().into_iter().map(Loaded::from).collect();
        for object in objects.iter_mut().filter(|object| object.build_id.is_empty()) {
            object.build_id = content_id(&object.name).unwrap_or_default();
        }
        Identity {
            version: VERSION,
            atoll: env!("CARGO_PKG_VERSION").to_owned(),
            page_bytes: page_bytes as u64,
            objects,
            stack: (stack.0 as u64, stack.1 as u64),
        }
    }

    /// The difference between this node and `other`, if there is one: a sentence for the user.
    pub(crate) fn difference(&self, other: &Identity) -> Option<String> {
        if self.version != other.version || self.atoll != other.atoll {
            return Some(format!("it runs atoll {}, and here is atoll {}", other.atoll, self.atoll));
        }
        if self.page_bytes != other.page_bytes {
            return Some("its pages have another size".to_owned());
        }
        let libraries = |all: &[Loaded]| all.iter().cloned().map(Library::from).collect::<Vec<_>>();
        let found = link_map::differences(&libraries(&self.objects), &libraries(&other.objects));
        if let Some(first) = found.first() {
            return Some(first.to_string().trim_end_matches('.').to_owned());
        }
        (self.stack != other.stack).then(|| "its main stack lies elsewhere".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str, base: u64, build: u8) -> Identity {
        let object =
            Loaded { name: format!("/lib/{name}"), soname: None, base, size: 4096, build_id: vec![build] };
        Identity { objects: vec![object], ..Identity::new(4096, (1, 2)) }
    }

    #[test]
    fn a_library_that_differs_is_named() {
        let here = identity("libm.so.6", 0x1000, 1);
        assert_eq!(here.difference(&here.clone()), None);
        let says = |other: &Identity, text: &str| {
            let difference = here.difference(other).unwrap();
            assert!(difference.contains(text), "{difference}");
        };
        says(&identity("libm.so.7", 0x1000, 1), "libm.so.6 is loaded here (/lib/libm.so.6) but not");
        says(&identity("libm.so.6", 0x2000, 1), "0x2000");
        says(&identity("libm.so.6", 0x1000, 2), "libm.so.6 is another build");
        says(&Identity { stack: (1, 3), ..here.clone() }, "main stack");
        says(&Identity { atoll: "0.0.1".into(), ..here.clone() }, "atoll 0.0.1");
    }

    #[test]
    fn everything_that_is_loaded_has_an_id() {
        let this = Identity::new(4096, (1, 2));
        let kernels = |name: &str| name.starts_with("linux-vdso");
        assert!(this.objects.len() > 1);
        for object in this.objects.iter().filter(|object| !kernels(&object.name)) {
            assert!(!object.build_id.is_empty(), "{object:?}");
        }
    }
}
