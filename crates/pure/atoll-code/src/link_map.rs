//! The objects that a process has loaded, and how they differ between two nodes.
//!
//! Nodes run one program at the same addresses, so all must have loaded the same objects to the same places. Lists come from
//! [`crate::loaded::libraries`], are exchanged by the connection of the nodes, and compared at start.

use std::fmt;

/// A loaded object, as nodes describe it to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// The path it was loaded from; empty for the program.
    pub name: String,
    /// The name that it states among libraries, if any.
    pub soname: Option<String>,
    /// The address it is loaded to.
    pub base: u64,
    /// The bytes from its first mapping's start to its last one's end.
    pub size: u64,
    /// The build identity that its linker gave it; empty if none.
    pub build_id: Vec<u8>,
}

impl Library {
    /// The name for users: its soname, else its file name, else `the program`.
    pub fn title(&self) -> &str {
        let file = self.name.rsplit('/').next().filter(|name| !name.is_empty());
        self.soname.as_deref().or(file).unwrap_or("the program")
    }

    /// The key for matching: a library's title, or that the object is the program.
    fn key(&self) -> &str {
        if self.name.is_empty() { "" } else { self.title() }
    }
}

/// A difference between two nodes' loaded objects. Its text is a sentence that names the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// The library is loaded here only.
    OnlyHere(Library),
    /// The library is loaded there only.
    OnlyThere(Library),
    /// The other node has another build of it.
    Build {
        /// The library here.
        mine: Library,
        /// The library there.
        theirs: Library,
    },
    /// The library is at another address there.
    Address {
        /// The library here.
        mine: Library,
        /// The library there.
        theirs: Library,
    },
    /// The library has another size there, and there are no build identities that tell whether it is the same.
    Size {
        /// The library here.
        mine: Library,
        /// The library there.
        theirs: Library,
    },
}

fn hexadecimal(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "none".to_string();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn place(library: &Library) -> String {
    if library.name.is_empty() { String::new() } else { format!(" ({})", library.name) }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::OnlyHere(library) => {
                write!(f, "{} is loaded here{} but not on the other node.", library.title(), place(library))
            }
            Difference::OnlyThere(library) => {
                write!(f, "{} is loaded on the other node{} but not here.", library.title(), place(library))
            }
            Difference::Build { mine, theirs } => write!(
                f,
                "{} is another build here{} than on the other node{}: build ids {} and {}.",
                mine.title(),
                place(mine),
                place(theirs),
                hexadecimal(&mine.build_id),
                hexadecimal(&theirs.build_id)
            ),
            Difference::Address { mine, theirs } => write!(
                f,
                "{} is loaded at {:#x} here and at {:#x} on the other node: address-space randomisation must be off on both.",
                mine.title(),
                mine.base,
                theirs.base
            ),
            Difference::Size { mine, theirs } => write!(
                f,
                "{} has {} bytes here{} and {} on the other node{}, and no build ids.",
                mine.title(),
                mine.size,
                place(mine),
                theirs.size,
                place(theirs)
            ),
        }
    }
}

/// Whether it is the kernel's own object, which differs with the kernel and holds no data of the program.
fn is_kernels(library: &Library) -> bool {
    library.title().starts_with("linux-vdso") || library.title().starts_with("linux-gate")
}

/// The differences between the objects of this node and of another, in this node's order; empty if they are the same. The
/// kernel's own object and the order of loading are not compared.
pub fn differences(mine: &[Library], theirs: &[Library]) -> Vec<Difference> {
    let mut found = Vec::new();
    // A name can occur twice (dlmopen): each is matched with one that is left.
    let mut left: Vec<&Library> = theirs.iter().filter(|library| !is_kernels(library)).collect();
    for library in mine.iter().filter(|library| !is_kernels(library)) {
        let Some(at) = left.iter().position(|other| other.key() == library.key()) else {
            found.push(Difference::OnlyHere(library.clone()));
            continue;
        };
        let other = left.remove(at);
        let (mine, theirs) = (library.clone(), other.clone());
        if library.build_id != other.build_id {
            found.push(Difference::Build { mine, theirs });
        } else if library.build_id.is_empty() && library.size != other.size {
            found.push(Difference::Size { mine, theirs });
        } else if library.base != other.base {
            found.push(Difference::Address { mine, theirs });
        }
    }
    found.extend(left.into_iter().cloned().map(Difference::OnlyThere));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, base: u64, id: &[u8]) -> Library {
        Library { name: name.to_string(), soname: None, base, size: 4096, build_id: id.to_vec() }
    }

    #[test]
    fn equal_lists_do_not_differ_in_whatever_order() {
        let mine = [
            library("", 0x1000, &[1]),
            library("/lib/libm.so.6", 0x2000, &[2]),
            library("/lib/libc.so.6", 0x3000, &[3]),
        ];
        let theirs = [mine[0].clone(), mine[2].clone(), mine[1].clone()];
        assert_eq!(differences(&mine, &theirs), []);
    }

    #[test]
    fn each_difference_names_its_library() {
        let mine = [
            library("", 0x1000, &[1]),
            library("/lib/libm.so.6", 0x2000, &[2]),
            library("/lib/libz.so.1", 0x5000, &[9]),
            library("/lib/libq.so", 0x7000, &[]),
            library("linux-vdso.so.1", 0x9000, &[7]),
        ];
        let mut theirs = [
            library("", 0x1000, &[8]),
            library("/opt/lib/libm.so.6", 0x2100, &[2]),
            library("/lib/liby.so.1", 0x5000, &[9]),
            library("/lib/libq.so", 0x7000, &[]),
            library("linux-vdso.so.1", 0xa000, &[6]),
        ];
        theirs[3].size = 8192;
        let sentences: Vec<String> = differences(&mine, &theirs).iter().map(ToString::to_string).collect();
        assert_eq!(
            sentences,
            [
                "the program is another build here than on the other node: build ids 01 and 08.",
                "libm.so.6 is loaded at 0x2000 here and at 0x2100 on the other node: address-space randomisation must be off on both.",
                "libz.so.1 is loaded here (/lib/libz.so.1) but not on the other node.",
                "libq.so has 4096 bytes here (/lib/libq.so) and 8192 on the other node (/lib/libq.so), and no build ids.",
                "liby.so.1 is loaded on the other node (/lib/liby.so.1) but not here.",
            ]
        );
    }
}
