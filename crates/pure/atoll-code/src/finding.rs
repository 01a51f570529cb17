//! The findings in a region's code, and the verdict that follows from them.
//!
//! Made by `body` (single instructions) and `loops` (loops that wait), collected by [`crate::Code::reach`].

use std::fmt;

/// The kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A locked read-modify-write, an exchange with memory, an exclusive load or store, or a transaction.
    AtomicUpdate,
    /// A fence: `mfence`, `dmb` and their like, a locked operation on the stack, or on aarch64 a load or store that orders others, by which
    /// acquire and release are made there.
    Fence,
    /// A call of a library function that synchronises through memory of the program, such as a pthread lock.
    SynchronisingCall,
    /// A loop that ends only when another worker stores something, or an instruction that only such loops contain.
    Wait,
    /// A loop whose end depends on memory that the loop itself may or may not write.
    MayWait,
    /// A call through memory or a register whose target is not known.
    IndirectCall,
    /// A jump through memory or a register whose targets are not known.
    IndirectJump,
    /// A call of a function that no loaded object defines.
    UnresolvedCall,
    /// A system call made inline.
    SystemCall,
    /// Code that is missing or is not an instruction.
    NotCode,
    /// An instruction of which it is not known what it does.
    NotKnown,
    /// The limit on work was reached here.
    Limit,
}

impl Kind {
    /// Whether it certainly synchronises workers.
    pub fn synchronises(self) -> bool {
        matches!(self, Kind::AtomicUpdate | Kind::Fence | Kind::SynchronisingCall | Kind::Wait)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::AtomicUpdate => "an atomic update",
            Kind::Fence => "a fence",
            Kind::SynchronisingCall => "a call that synchronises",
            Kind::Wait => "a wait for another worker",
            Kind::MayWait => "a loop that may wait for another worker",
            Kind::IndirectCall => "an indirect call",
            Kind::IndirectJump => "an indirect jump",
            Kind::UnresolvedCall => "a call of an unknown function",
            Kind::SystemCall => "a system call",
            Kind::NotCode => "no code",
            Kind::NotKnown => "an instruction that is not known",
            Kind::Limit => "the limit of what is followed",
        })
    }
}

/// The memory of a finding, where that is easily known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// No memory.
    None,
    /// The worker's own stack.
    Stack,
    /// The global at this address.
    Global(u64),
    /// Memory whose address is computed.
    Other,
}

/// A finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// The instruction's address.
    pub address: u64,
    /// The finding's kind.
    pub kind: Kind,
    /// The memory it works on.
    pub operand: Place,
}

/// The consequence for the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is no synchronisation except through the OpenMP runtime: several workers may write a page at once.
    Plain,
    /// There is synchronisation: a page needs a single writer. Holds the first finding.
    Atomic(Finding),
    /// Something could not be followed or proved: a single writer, to be safe. Holds the first such finding.
    Unknown(Finding),
}

impl Verdict {
    /// The verdict that follows from all findings.
    #[must_use]
    pub fn of(findings: &[Finding]) -> Verdict {
        findings
            .iter()
            .find(|f| f.kind.synchronises())
            .map(|f| Verdict::Atomic(*f))
            .or_else(|| findings.first().map(|f| Verdict::Unknown(*f)))
            .unwrap_or(Verdict::Plain)
    }
}
