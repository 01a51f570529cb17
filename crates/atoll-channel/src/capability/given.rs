//! In which ways memory was made accessible by a capability beyond what a table can take back by forgetting it.
//!
//! `table.rs` keeps it, and says it of each capability that is revoked; `mod.rs` says what must be done then.

bitflags::bitflags! {
    /// How a capability's memory can be reached without asking its owner.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Given: u8 {
        /// Its holder was handed the file that the memory lies in.
        const MAPPING = 1;
        /// Its holder was told the address in the owner's process.
        const ADDRESS = 2;
        /// A transport registered it, and its holder has the key.
        const TRANSPORT = 4;
    }
}
