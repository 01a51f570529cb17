//! Two memories and an engine that copies between them, for every engine and every pair of kinds that it reaches.

use atoll_channel::bulk::{Access, Engine, Memcpy, Memory, Writers};

/// One end of the transfers of a rig: the memory, and a way to it that uses no engine.
pub(crate) struct End {
    pub(crate) memory: Memory,
    view: View,
}

enum View {
    /// The memory, or another mapping of it, in this process.
    Mapped(Memory),
}

impl End {
    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) {
        match &self.view {
            View::Mapped(memory) => memory.write(offset, bytes).unwrap(),
        }
    }

    pub(crate) fn get(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let mut got = vec![0; bytes];
        match &self.view {
            View::Mapped(memory) => memory.read(offset, &mut got).unwrap(),
        }
        got
    }
}

/// What the suite tests.
pub(crate) struct Rig {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) to: End,
    pub(crate) from: End,
}

/// Makes a rig whose memories have so many bytes.
pub(crate) type Make = Box<dyn Fn(u64) -> Rig>;

fn own(bytes: u64) -> End {
    let memory = Memory::new(bytes).unwrap();
    End { view: View::Mapped(memory.clone()), memory }
}

/// Shared memory, which transfers reach through a second mapping.
fn shared(bytes: u64) -> End {
    let (memory, file) = Memory::shared(bytes, Writers::Everyone).unwrap();
    let again = Memory::attach(std::os::fd::AsFd::as_fd(&file), Access::READ_WRITE).unwrap();
    End { view: View::Mapped(memory), memory: again }
}

/// All rigs, by name.
pub(crate) fn all() -> Vec<(String, Make)> {
    let mut all: Vec<(String, Make)> = Vec::new();
    for engine in Memcpy::all() {
        let name = engine.name();
        all.push((
            format!("{name} within a process"),
            Box::new(|bytes| Rig { engine: Box::new(*engine), to: own(bytes), from: own(bytes) }),
        ));
        all.push((
            format!("{name} between shared memories"),
            Box::new(|bytes| Rig { engine: Box::new(*engine), to: shared(bytes), from: shared(bytes) }),
        ));
    }
    all
}
