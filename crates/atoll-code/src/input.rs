//! What the analysis is given: loaded objects, as bytes with addresses.
//!
//! Made by [`crate::elf`]; read by everything else here.

/// A loaded object: the executable or a shared library.
#[derive(Debug, Clone, Default)]
pub struct Object<'a> {
    /// Path or file name; empty for the executable of a running process.
    pub name: String,
    /// Where it is loaded (what its own addresses are relative to).
    pub base: u64,
    /// Behind everything that is loaded of it.
    pub end: u64,
    /// What is mapped and never written: code and constants.
    pub segments: Vec<Segment<'a>>,
    /// Words of its linkage tables that the dynamic linker fills.
    pub slots: Vec<Slot<'a>>,
    /// Where functions and parts of functions lie; may be empty or incomplete.
    pub functions: Vec<Function<'a>>,
}

/// A stretch of an object that is never written.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// Where it is mapped.
    pub address: u64,
    /// What it holds.
    pub bytes: &'a [u8],
    /// Code?
    pub executable: bool,
}

/// A word of a linkage table (PLT or GOT).
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    /// Where the word lies.
    pub address: u64,
    /// The symbol it stands for, if it stands for one.
    pub name: Option<&'a str>,
    /// The address it holds or will hold, if known.
    pub target: Option<u64>,
}

/// A function, or a part of one that lies elsewhere (`foo.cold`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its first byte.
    pub start: u64,
    /// Behind its last byte; equal to `start` if not known.
    pub end: u64,
    /// Its symbol.
    pub name: Option<&'a str>,
    /// Where control goes in it when something is thrown.
    pub handlers: Handlers,
}

/// What is known of a function's exception handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Handlers {
    /// It has none.
    None,
    /// Their table lies here.
    At(u64),
    /// It may have some, but its unwinding information is not understood.
    NotUnderstood,
}
