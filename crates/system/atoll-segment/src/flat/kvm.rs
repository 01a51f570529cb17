//! A 32-bit machine without paging in a KVM virtual CPU, as in the talk.
//!
//! Where KVM emulates such code instead of running it (software virtualisation), `probe` finds that out by an instruction that
//! KVM's emulator lacks, and the machine is refused with the reason. `machine.rs` has its memory.

use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, Receiver};

use kvm_bindings::{kvm_regs, kvm_segment};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};

use super::machine::{Machine, Sizes};
use super::monitor;
use crate::backend::{Cores, End, Kind, Program, SegmentError, machine as failed};
use crate::kvm::{failed as kvm, give};
use crate::memory::Memory;
use crate::stage::Stage;

/// A core of a KVM virtual machine.
#[derive(Debug)]
pub struct Kvm32Cores {
    kvm: Kvm,
    stage: Stage<Loaded, Running>,
}

#[derive(Debug)]
struct Loaded {
    machine: Machine,
    vm: VmFd,
    vcpu: VcpuFd,
}

#[derive(Debug)]
struct Running {
    machine: Machine,
    /// Kept because the virtual CPU needs it.
    vm: VmFd,
    /// Receives the reason if the virtual CPU stops.
    stopped: Receiver<String>,
}

/// The register CR0 for protected mode without paging.
const CR0: u64 = 0x31;

/// Makes a flat or based segment of supervisor privilege.
fn segment(base: u32, limit: u32, selector: u32, kind: u8) -> kvm_segment {
    kvm_segment {
        base: u64::from(base),
        limit,
        selector: selector as u16,
        type_: kind,
        present: 1,
        db: 1,
        s: 1,
        g: u8::from(limit > 0xf_ffff),
        ..kvm_segment::default()
    }
}

/// Makes a virtual CPU begin in protected mode at `entry`, counted from `base`.
fn begin(
    vcpu: &VcpuFd,
    base: u32,
    limit: u32,
    entry: u32,
    tables: Option<(u32, u32)>,
) -> Result<(), SegmentError> {
    let mut special = vcpu.get_sregs().map_err(kvm("reading a virtual CPU"))?;
    special.cr0 = CR0;
    special.cs = segment(base, limit, monitor::CODE, 11);
    let data = segment(base, limit, monitor::DATA, 3);
    (special.ds, special.es, special.fs, special.gs, special.ss) = (data, data, data, data, data);
    if let Some((gdt, idt)) = tables {
        (special.gdt.base, special.gdt.limit) = (u64::from(gdt), 0xff);
        (special.idt.base, special.idt.limit) = (u64::from(idt), 0x81 * 8 - 1);
    }
    vcpu.set_sregs(&special).map_err(kvm("setting up a virtual CPU"))?;
    let registers = kvm_regs { rip: u64::from(entry), rflags: 2, ..kvm_regs::default() };
    vcpu.set_regs(&registers).map_err(kvm("setting up a virtual CPU"))
}

fn processor(kvm_: &Kvm, vm: &VmFd) -> Result<VcpuFd, SegmentError> {
    let vcpu = vm.create_vcpu(0).map_err(kvm("making a virtual CPU"))?;
    vcpu.set_cpuid2(&crate::kvm::features(kvm_)?).map_err(kvm("the virtual CPU's features"))?;
    Ok(vcpu)
}

/// Whether KVM runs 32-bit code without paging on the processor, tried with SSE2 instructions.
fn probe(kvm_: &Kvm) -> Result<bool, SegmentError> {
    const PORT: u16 = 0x10;
    let memory =
        Memory::private(None, 2 << 20).map_err(|error| SegmentError::Memory { bytes: 2 << 20, error })?;
    let code = [
        0x0f, 0x20, 0xe0, // mov eax, cr4
        0x0d, 0x00, 0x06, 0x00, 0x00, // or eax, 0x600
        0x0f, 0x22, 0xe0, // mov cr4, eax
        0x66, 0x0f, 0xef, 0xc0, // pxor xmm0, xmm0
        0x66, 0x0f, 0xfe, 0xc0, // paddd xmm0, xmm0
        0xe7, PORT as u8, // out PORT, eax
    ];
    memory.window(0, 0, 2 << 20).write_bytes(0x1000, &code).map_err(SegmentError::Arguments)?;
    let vm = kvm_.create_vm().map_err(kvm("making a virtual machine"))?;
    // SAFETY: the memory is dropped after the machine.
    unsafe { give(&vm, 0, &memory, 0) }?;
    let mut vcpu = processor(kvm_, &vm)?;
    begin(&vcpu, 0, u32::MAX, 0x1000, None)?;
    let ran = matches!(vcpu.run(), Ok(VcpuExit::IoOut(PORT, _)));
    drop((vcpu, vm));
    Ok(ran)
}

impl Kvm32Cores {
    /// Makes cores without a program.
    ///
    /// # Errors
    /// There is no KVM, this process may not use it, or it only emulates such code.
    pub fn new() -> Result<Kvm32Cores, SegmentError> {
        let kvm = crate::kvm::open(Kind::Kvm32)?;
        if !probe(&kvm)? {
            let why = "KVM here emulates code without paging instead of running it, and knows no SSE2 (software virtualisation): use ldt or qemu";
            return Err(SegmentError::Unavailable { kind: Kind::Kvm32, why: why.to_owned() });
        }
        Ok(Kvm32Cores { kvm, stage: Stage::default() })
    }
}

impl Cores for Kvm32Cores {
    fn load(&mut self, program: &Program, bytes: u64) -> Result<(), SegmentError> {
        let sizes = Sizes::of(bytes)?;
        let refused = |error| SegmentError::Memory { bytes: sizes.all, error };
        let memory = Memory::private(None, sizes.all as usize).map_err(refused)?;
        let machine = Machine::load(memory, sizes, program, Kind::Kvm32)?;
        let vm = self.kvm.create_vm().map_err(kvm("making a virtual machine"))?;
        // SAFETY: kept in the stage beside the machine, and for good once a virtual CPU runs.
        unsafe { give(&vm, 0, machine.memory(), 0) }?;
        let vcpu = processor(&self.kvm, &vm)?;
        let at = machine.monitor;
        begin(&vcpu, at, monitor::BYTES - 1, monitor::begin(), Some((at + monitor::GDT, at + monitor::IDT)))?;
        for fd in [self.kvm.as_raw_fd(), vm.as_raw_fd(), vcpu.as_raw_fd()] {
            machine.delegate().hide(fd);
        }
        self.stage = Stage::Loaded(Loaded { machine, vm, vcpu });
        Ok(())
    }

    fn start(&mut self) -> Result<(), SegmentError> {
        let Loaded { machine, vm, mut vcpu } = self.stage.loaded()?;
        let (tell, stopped) = mpsc::channel();
        let run = move || loop {
            let why = match vcpu.run() {
                Ok(VcpuExit::Intr) => continue,
                Ok(exit) => format!("its virtual CPU stopped ({exit:?})"),
                Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => continue,
                Err(error) => format!("its virtual CPU failed ({error})"),
            };
            // Nobody receives this once the program has ended.
            let _ = tell.send(why);
            return;
        };
        std::thread::Builder::new()
            .name("core 0".to_owned())
            .spawn(run)
            .map_err(failed("starting a core's thread"))?;
        self.stage = Stage::Running(Running { machine, vm, stopped });
        Ok(())
    }

    fn serve(&mut self) -> Result<End, SegmentError> {
        let Running { machine, vm, stopped } = self.stage.running()?;
        let end = machine.serve(|| stopped.try_recv().ok());
        // The core's thread spins in the machine until the process ends, so the memory stays.
        std::mem::forget((machine, vm));
        Ok(end)
    }
}
