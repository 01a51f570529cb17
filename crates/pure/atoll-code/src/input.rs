//! The analysis's input: loaded objects, as bytes with addresses.
//!
//! Made by [`crate::elf`]; read by everything else here.

/// A kind of processor whose code can be examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    #[cfg(any(target_arch = "aarch64", feature = "aarch64"))]
    Aarch64,
}

impl Processor {
    /// The kind that this program itself runs on.
    #[cfg(target_arch = "aarch64")]
    pub const HERE: Processor = Processor::Aarch64;
    /// The kind that this program itself runs on.
    #[cfg(not(target_arch = "aarch64"))]
    pub const HERE: Processor = Processor::X86_64;
}

impl Default for Processor {
    fn default() -> Processor {
        Processor::HERE
    }
}

/// A loaded object: the executable or a shared library.
#[derive(Debug, Clone, Default)]
pub struct Object<'a> {
    /// The path or file name; empty for the executable of a running process.
    pub name: String,
    /// The processor that its code is for.
    pub processor: Processor,
    /// The address it is loaded to, to which its own addresses are relative.
    pub base: u64,
    /// The address behind its last loaded byte.
    pub end: u64,
    /// The parts that are mapped and never written: code and constants.
    pub segments: Vec<Segment<'a>>,
    /// The words of its linkage tables that the dynamic linker fills.
    pub slots: Vec<Slot<'a>>,
    /// The object's functions and parts of functions; may be empty or incomplete.
    pub functions: Vec<Function<'a>>,
}

/// A stretch of an object that is never written.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// The address where it is mapped.
    pub address: u64,
    /// The content.
    pub bytes: &'a [u8],
    /// Whether it is code.
    pub executable: bool,
}

/// A word of a linkage table (PLT or GOT).
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    /// The address of the word.
    pub address: u64,
    /// The name of its symbol, if it has one.
    pub name: Option<&'a str>,
    /// The address that it holds or will hold, if known.
    pub target: Option<u64>,
}

/// A function, or a part of one that lies elsewhere (`foo.cold`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function<'a> {
    /// The address of its first byte.
    pub start: u64,
    /// The address behind its last byte; equal to `start` if unknown.
    pub end: u64,
    /// The name of its symbol.
    pub name: Option<&'a str>,
    /// The places to which control goes when something is thrown in it.
    pub handlers: Handlers,
}

/// A function's exception handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Handlers {
    /// The function has none.
    None,
    /// The table of its handlers is at this address.
    At(u64),
    /// The function may have some, but its unwinding information is not understood.
    NotUnderstood,
}
