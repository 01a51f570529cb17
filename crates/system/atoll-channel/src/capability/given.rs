//! The means by which memory was made accessible that a table cannot take back by forgetting the capability.
//!
//! `table.rs` records them, and reports them for each capability that is revoked; `mod.rs` says what must be done then.

bitflags::bitflags! {
    /// The means by which a capability's memory can be reached without its owner.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Given: u8 {
        /// The holder was handed the file that the memory lies in.
        const MAPPING = 1;
        /// The holder was told the address in the owner's process.
        const ADDRESS = 2;
        /// A transport registered the memory, and the holder has the key.
        const TRANSPORT = 4;
    }
}
