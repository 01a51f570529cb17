//! 64-bit code at user privilege in a KVM virtual CPU, on identity-mapped huge pages.
//!
//! For 64-bit programs this is nearest to the talk: x86-64 has no segments any more, so the segment is the only memory there
//! is. Page tables are made once (`pages.rs`) and never change, so no fault and no remote TLB invalidation happens after a page
//! was first touched. Calls go through a ring (`gate.rs`, `ring.rs`) where another CPU can serve them, else by an exit
//! (`core.rs`).

mod core;
mod gate;
mod pages;
mod ring;

use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};

use kvm_bindings::kvm_regs;
use kvm_ioctls::Kvm;

use self::core::{Core, Machine, landing};
use self::ring::Ring;
use crate::backend::{Cores, End, Kind, Program, SegmentError, machine, segment_bytes};
use crate::kvm;
use crate::memory::{HUGE, Memory};
use crate::plan;
use crate::stage::Stage;

/// The smallest segment in bytes: 2 huge pages.
const LEAST: u64 = 4 << 20;
/// The largest segment in bytes: what one table of the second level reaches.
const MOST: u64 = 512 << 30;

/// Cores of a KVM virtual machine.
#[derive(Debug)]
pub struct Kvm64Cores {
    kvm: Kvm,
    stage: Stage<Loaded, Receiver<End>>,
}

#[derive(Debug)]
struct Loaded {
    machine: Arc<Machine>,
    registers: Box<kvm_regs>,
    ended: Receiver<End>,
}

impl Kvm64Cores {
    /// Makes cores without a program.
    ///
    /// # Errors
    /// There is no KVM, or this process may not use it.
    pub fn new() -> Result<Kvm64Cores, SegmentError> {
        Ok(Kvm64Cores { kvm: kvm::open(Kind::Kvm64)?, stage: Stage::default() })
    }
}

impl Cores for Kvm64Cores {
    fn load(&mut self, program: &Program, bytes: u64) -> Result<(), SegmentError> {
        program.for_width(Kind::Kvm64)?;
        let bytes = segment_bytes(bytes, HUGE as u64, LEAST..=MOST, "one page table reaches that far")?;
        let refused = |bytes: u64| move |error| SegmentError::Memory { bytes, error };
        let memory = Memory::private(None, bytes as usize).map_err(refused(bytes))?;
        let table_bytes = pages::size(bytes);
        let tables_memory = Memory::private(None, table_bytes).map_err(refused(table_bytes as u64))?;

        let vm = self.kvm.create_vm().map_err(kvm::failed("making a virtual machine"))?;
        let cpuid = kvm::features(&self.kvm)?;
        let entries = cpuid.as_slice();
        let leaf = |function, index| entries.iter().find(|e| e.function == function && e.index == index);
        // The features have x87 and SSE at least.
        let vectors = leaf(0xd, 0).map_or(3, |e| u64::from(e.eax) | u64::from(e.edx) << 32) & SMALL_VECTORS;
        let giant = leaf(0x8000_0001, 0).is_some_and(|e| e.edx & 1 << 26 != 0);
        // The tables lie behind the segment, where no page of the program's leads.
        let at = bytes.next_multiple_of(1 << 30);
        let tables = pages::make(bytes, at, giant);
        let place = tables_memory.window(0, 0, table_bytes as u64);
        place.write_bytes(0, &tables.bytes).map_err(SegmentError::Arguments)?;
        for (slot, (memory, at)) in [(&memory, 0), (&tables_memory, at)].into_iter().enumerate() {
            // SAFETY: both mappings stay for the rest of the process, see below.
            unsafe { kvm::give(&vm, slot as u32, memory, at) }?;
        }

        let window = memory.window(0, pages::LOW, bytes);
        let loaded = plan::load(program, window, memory.discard(), None, true)?;
        memory
            .window(0, 0, bytes)
            .write_bytes(pages::LANDING, &landing())
            .map_err(SegmentError::Arguments)?;
        // Without a second CPU no thread could serve the ring while the program runs.
        let alone = std::thread::available_parallelism().map_or(1, usize::from) < 2;
        if !alone {
            gate::install(&window, &program.image.code(loaded.slide));
        }
        // Cores are not stopped one by one at the program's end, so their memory belongs to the process for good.
        std::mem::forget((memory, tables_memory));

        let delegate = Arc::new(loaded.delegate);
        delegate.hide(self.kvm.as_raw_fd());
        delegate.hide(vm.as_raw_fd());
        let ring = Arc::new(Ring::new(Arc::clone(&delegate)));
        if !alone {
            Ring::start(&ring).map_err(machine("starting the delegation thread"))?;
        }
        let registers =
            kvm_regs { rip: loaded.entry, rsp: loaded.stack, rflags: 0x202, ..kvm_regs::default() };
        let (end, ended) = mpsc::channel();
        let machine = Machine { vm, cpuid, vectors, root: tables.root, delegate, ring, end: Mutex::new(end) };
        self.stage =
            Stage::Loaded(Loaded { machine: Arc::new(machine), registers: Box::new(registers), ended });
        Ok(())
    }

    fn start(&mut self) -> Result<(), SegmentError> {
        let Loaded { machine, registers, ended } = self.stage.loaded()?;
        Core::new(&machine, &registers, 0)?.spawn(|_| ())?;
        self.stage = Stage::Running(ended);
        Ok(())
    }

    fn serve(&mut self) -> Result<End, SegmentError> {
        self.stage.wait()
    }
}

/// Vector registers up to AVX-512; a process must ask the kernel for the larger tiles.
const SMALL_VECTORS: u64 = 0xe7;
