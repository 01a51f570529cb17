//! The machines that come with atoll: those of the papers, and this one.
//!
//! Their descriptions are `machines/*.toml`, built in so that a command needs no files beside it.

use super::{Machine, MachineError};

/// The names and descriptions of the shipped machines.
pub const SHIPPED: &[(&str, &str)] = &[
    ("knc-5110p", include_str!("../../../../../machines/knc-5110p.toml")),
    ("knl-7250", include_str!("../../../../../machines/knl-7250.toml")),
    ("xeon-e5-2670v2+phi-3210a", include_str!("../../../../../machines/xeon-e5-2670v2+phi-3210a.toml")),
    ("xeon-e5-2620+thunderx", include_str!("../../../../../machines/xeon-e5-2620+thunderx.toml")),
    ("this-machine", include_str!("../../../../../machines/this-machine.toml")),
];

impl Machine {
    /// Returns a shipped machine.
    ///
    /// # Errors
    /// There is no shipped machine of this name.
    pub fn shipped(name: &str) -> Result<Self, MachineError> {
        let Some((_, text)) = SHIPPED.iter().find(|(known, _)| *known == name) else {
            let known: Vec<_> = SHIPPED.iter().map(|(known, _)| *known).collect();
            return Err(MachineError::Unknown { name: name.to_owned(), known: known.join(", ") });
        };
        Self::read(&format!("machines/{name}.toml"), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_machine_can_be_read_and_names_its_sources() {
        for (name, _) in SHIPPED {
            let machine = Machine::shipped(name).unwrap();
            assert_eq!(machine.name, *name);
            assert!(!machine.numbers().is_empty());
        }
        let error = Machine::shipped("cray-1").unwrap_err().to_string();
        assert!(error.contains("cray-1") && error.contains("knc-5110p"), "{error}");
    }
}
