//! Rigs of the suite: two memories and an engine that copies between them, for every engine and every pair of kinds that it
//! reaches.

use std::any::Any;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use atoll_channel::bulk::{Access, Engine, FileIo, Helper, Memcpy, Memory, ProcessVm, Uring, Writers};
use atoll_transport::transport;

use crate::forked::Child;

/// One end of a rig's transfers: the memory, and access to it without an engine.
pub(crate) struct End {
    pub(crate) memory: Memory,
    view: View,
    _holder: Option<Box<dyn Any>>,
}

enum View {
    /// The memory, or another mapping of it, in this process.
    Mapped(Memory),
    File(File),
    /// Memory that another node registered with its transport.
    Registered(Arc<transport::Memory>),
}

impl End {
    pub(crate) fn put(&self, offset: u64, bytes: &[u8]) {
        match &self.view {
            View::Mapped(memory) => memory.write(offset, bytes).unwrap(),
            View::File(file) => file.write_all_at(bytes, offset).unwrap(),
            View::Registered(memory) => memory.write(offset as usize, bytes).unwrap(),
        }
    }

    pub(crate) fn get(&self, offset: u64, bytes: usize) -> Vec<u8> {
        let mut got = vec![0; bytes];
        match &self.view {
            View::Mapped(memory) => memory.read(offset, &mut got).unwrap(),
            View::File(file) => file.read_exact_at(&mut got, offset).unwrap(),
            View::Registered(memory) => memory.read(offset as usize, &mut got).unwrap(),
        }
        got
    }
}

/// The two ends and the engine that the suite tests.
pub(crate) struct Rig {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) to: End,
    pub(crate) from: End,
}

/// Makes a rig whose memories have this number of bytes.
pub(crate) type Make = Box<dyn Fn(u64) -> Rig>;

/// Memory of this process alone.
pub(crate) fn own(bytes: u64) -> End {
    let memory = Memory::new(bytes).unwrap();
    End { view: View::Mapped(memory.clone()), memory, _holder: None }
}

/// Shared memory, which transfers reach through a second mapping.
pub(crate) fn shared(bytes: u64) -> End {
    let (memory, file) = Memory::shared(bytes, Writers::Everyone).unwrap();
    let again = Memory::attach(file.as_fd(), Access::READ_WRITE).unwrap();
    End { view: View::Mapped(memory), memory: again, _holder: None }
}

/// Memory of a child, which this process sees through a mapping that it inherited.
pub(crate) fn child(bytes: u64) -> End {
    let (memory, _) = Memory::shared(bytes, Writers::Everyone).unwrap();
    let holder = Child::idle(|| {});
    let address = memory.mapped_at().unwrap().as_ptr().addr() as u64;
    let there = Memory::of_process(&holder.peer(), address, bytes, Access::READ_WRITE).unwrap();
    End { view: View::Mapped(memory), memory: there, _holder: Some(Box::new(holder)) }
}

/// A file on a disk, whose bytes after the first page are the memory.
pub(crate) fn file(bytes: u64) -> End {
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes).unwrap();
    let memory = Memory::of_file(file.try_clone().unwrap(), 0, bytes, Access::READ_WRITE).unwrap();
    End { memory, view: View::File(file), _holder: None }
}

/// Memory that the node of `holder` registered.
pub(crate) fn registered(memory: Memory, there: Arc<transport::Memory>, holder: impl Any) -> End {
    End { memory, view: View::Registered(there), _holder: Some(Box::new(holder)) }
}

/// All rigs of this process and its children, by name.
pub(crate) fn all() -> Vec<(String, Make)> {
    fn make(
        name: &str,
        to: fn(u64) -> End,
        from: fn(u64) -> End,
        engine: impl Fn() -> Box<dyn Engine> + 'static,
    ) -> (String, Make) {
        // The engine is made last: a helper has a thread, and the ends fork.
        let make = move |bytes| {
            let (to, from) = (to(bytes), from(bytes));
            Rig { engine: engine(), to, from }
        };
        (name.into(), Box::new(make))
    }
    let mut all = Vec::new();
    for engine in Memcpy::all() {
        let name = engine.name();
        all.push(make(&format!("{name} within a process"), own, own, || Box::new(*engine)));
        all.push(make(&format!("{name} between shared memories"), shared, shared, || Box::new(*engine)));
    }
    all.push(make("process_vm reads", own, child, || Box::new(ProcessVm)));
    all.push(make("process_vm writes", child, own, || Box::new(ProcessVm)));
    let helper = || Box::new(Helper::new(Memcpy::PLAIN).unwrap()) as Box<dyn Engine>;
    all.push(make("a helper within a process", own, shared, helper));
    all.push(make("a helper reads a process", own, child, helper));
    all.push(make("pread", own, file, || Box::new(FileIo)));
    all.push(make("pwrite", file, shared, || Box::new(FileIo)));
    match Uring::new() {
        Ok(_) => {
            all.push(make("io_uring reads", own, file, || Box::new(Uring::new().unwrap())));
            all.push(make("io_uring writes", file, shared, || Box::new(Uring::new().unwrap())));
        }
        Err(e) => atoll_skips::skip_part!("io_uring is not to be had here: {e}"),
    }
    all
}
