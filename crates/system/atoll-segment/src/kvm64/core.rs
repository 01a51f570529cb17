//! A 64-bit core: a virtual CPU that runs the program at user privilege, and its thread in this process.
//!
//! `mod.rs` sets up the machine and starts the first core; the program's `clone` starts others. Everything a core executes is
//! 64-bit user code, except one instruction at `LANDING`. So it runs at native speed even where KVM emulates the rest.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use kvm_bindings::{CpuId, Msrs, kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs, kvm_xcrs};
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};

use super::pages::{LANDING, LOW, SLOTS};
use super::ring::{Ring, SLOT};
use crate::backend::{End, SegmentError, machine as failed};
use crate::calls::{Caller, CloneRequest, Delegate, Outcome};
use crate::errno::Errno;
use crate::kvm::failed as kvm;
use crate::violation::{explain_64, signal_of};

/// The port that the landing page's `out` names.
pub(super) const PORT: u16 = 0x10;
/// The place of the task state segment in the landing page, and the offset of its list of ports, all of which are allowed.
const TASK: usize = 0x100;
const TASK_BYTES: usize = 104;
const PORT_BYTES: usize = 8;

/// Returns the landing page: `out PORT, al`, which software virtualisation executes at user privilege, and the tables that
/// allow it there.
pub(super) fn landing() -> Vec<u8> {
    let mut page = vec![0xe7, PORT as u8];
    page.resize(TASK + TASK_BYTES - 2, 0);
    page.extend((TASK_BYTES as u16).to_le_bytes());
    page.resize(TASK + TASK_BYTES + PORT_BYTES, 0);
    page.push(0xff);
    page
}

/// The machine that all cores of a program are part of.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) vm: VmFd,
    pub(super) cpuid: CpuId,
    /// The vector registers that both the processor and KVM have.
    pub(super) vectors: u64,
    /// The address of the top page table.
    pub(super) root: u64,
    pub(super) delegate: Arc<Delegate>,
    pub(super) ring: Arc<Ring>,
    pub(super) end: Mutex<Sender<End>>,
}

impl Machine {
    fn end(&self, end: End) {
        // Nobody receives this if the program has already ended.
        let _ = self.end.lock().unwrap_or_else(PoisonError::into_inner).send(end);
    }
}

const STAR: u32 = 0xc000_0081;
const LSTAR: u32 = 0xc000_0082;
const SFMASK: u32 = 0xc000_0084;

/// Control registers for long mode, paging, NX and `syscall`, with SSE and AVX on.
const EFER: u64 = 0xd01;
const CR0: u64 = 0x8005_0033;
const CR4: u64 = 0x4_0620;

fn segment(selector: u16, kind: u8, long: bool) -> kvm_segment {
    kvm_segment {
        limit: u32::MAX,
        selector,
        type_: kind,
        present: 1,
        dpl: 3,
        db: u8::from(!long),
        s: 1,
        l: u8::from(long),
        g: 1,
        ..kvm_segment::default()
    }
}

/// One core of a program.
pub(super) struct Core {
    machine: Arc<Machine>,
    number: usize,
    vcpu: VcpuFd,
    /// The special registers that the core goes on with after a call.
    special: kvm_sregs,
    caller: Caller,
}

impl Core {
    /// Makes a virtual CPU that will begin with these registers.
    pub(super) fn new(
        machine: &Arc<Machine>,
        registers: &kvm_regs,
        thread_pointer: u64,
    ) -> Result<Core, SegmentError> {
        let again = || std::io::Error::from_raw_os_error(libc::EAGAIN);
        let number = machine.ring.take().ok_or_else(again).map_err(failed("another core"))?;
        Core::with_slot(machine, number, registers, thread_pointer)
            .inspect_err(|_| machine.ring.give_back(number))
    }

    fn with_slot(
        machine: &Arc<Machine>,
        number: usize,
        registers: &kvm_regs,
        thread_pointer: u64,
    ) -> Result<Core, SegmentError> {
        // Cores that follow each other have the same number, but a virtual CPU cannot be taken away, so each core gets a new
        // one.
        let vcpu = machine.vm.create_vcpu(next_cpu()).map_err(kvm("making a virtual CPU"))?;
        vcpu.set_cpuid2(&machine.cpuid).map_err(kvm("the virtual CPU's features"))?;
        let mut special = vcpu.get_sregs().map_err(kvm("reading a virtual CPU"))?;
        (special.cr0, special.cr3, special.cr4, special.efer) = (CR0, machine.root, CR4, EFER);
        special.cs = segment(0x33, 11, true);
        let data = segment(0x2b, 3, false);
        (special.ss, special.ds, special.es) = (data, data, data);
        special.fs = kvm_segment { base: thread_pointer, ..data };
        special.gs = kvm_segment { base: SLOTS + number as u64 * SLOT, ..data };
        special.tr = kvm_segment {
            base: LANDING + TASK as u64,
            limit: (TASK_BYTES + PORT_BYTES) as u32,
            selector: 0x40,
            type_: 11,
            present: 1,
            ..kvm_segment::default()
        };
        // Faults find no handler. That stops the virtual CPU with all registers as they were.
        special.idt.limit = 0;
        special.gdt.limit = 0;
        vcpu.set_sregs(&special).map_err(kvm("setting up a virtual CPU"))?;
        let mut xcrs = kvm_xcrs { nr_xcrs: 1, ..kvm_xcrs::default() };
        xcrs.xcrs[0].value = machine.vectors;
        vcpu.set_xcrs(&xcrs).map_err(kvm("the virtual CPU's vector registers"))?;
        let msr = |index, data| kvm_msr_entry { index, data, ..kvm_msr_entry::default() };
        // Flags that are cleared on the way to the landing page: trap, interrupts, direction, alignment.
        let entries = [msr(STAR, 0x0023_0010 << 32), msr(LSTAR, LANDING), msr(SFMASK, 0x4_0700)];
        let msrs = Msrs::from_entries(&entries)
            .map_err(|_| failed("the virtual CPU's landing")(std::io::Error::other("too many")))?;
        vcpu.set_msrs(&msrs).map_err(kvm("the virtual CPU's landing"))?;
        vcpu.set_regs(registers).map_err(kvm("setting up a virtual CPU"))?;
        machine.delegate.hide(std::os::fd::AsRawFd::as_raw_fd(&vcpu));
        let caller = Caller { thread_pointer, ..Caller::default() };
        Ok(Core { machine: Arc::clone(machine), number, vcpu, special, caller })
    }

    /// Runs the core on a thread of its own.
    pub(super) fn spawn(mut self, ready: impl FnOnce(i32) + Send + 'static) -> Result<(), SegmentError> {
        let started = std::thread::Builder::new().name(format!("core {}", self.number)).spawn(move || {
            // SAFETY: no arguments.
            ready(unsafe { libc::syscall(libc::SYS_gettid) } as i32);
            if let Some(end) = self.run() {
                self.machine.end(end);
            }
            self.machine.delegate.core_ended(&self.caller);
            self.machine.ring.give_back(self.number);
        });
        started.map(|_| ()).map_err(failed("starting a core's thread"))
    }

    /// Runs until the core ends, which returns `None`, or until the program ends.
    fn run(&mut self) -> Option<End> {
        loop {
            let next = match self.vcpu.run() {
                Ok(VcpuExit::IoOut(PORT, _)) => self.call(),
                Ok(VcpuExit::Shutdown) => return Some(self.fault()),
                Ok(VcpuExit::Intr) => continue,
                Ok(_) => return Some(self.fault()),
                Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => continue,
                Err(error) => {
                    let why = format!("its virtual CPU failed ({error})");
                    return Some(End::Signal(libc::SIGKILL, Some(why)));
                }
            };
            match next {
                Ok(Next::On) => {}
                Ok(Next::Stop) => return None,
                Ok(Next::End(end)) => return Some(end),
                Err(error) => return Some(End::Signal(libc::SIGKILL, Some(error.to_string()))),
            }
        }
    }

    /// Serves a call that came by an exit.
    fn call(&mut self) -> Result<Next, SegmentError> {
        let mut r = self.vcpu.get_regs().map_err(kvm("reading a virtual CPU"))?;
        // The registers are as the instruction left them.
        (r.rip, r.rflags) = (r.rcx, r.r11 | 2);
        let number = u32::try_from(r.rax).unwrap_or(u32::MAX);
        let machine = Arc::clone(&self.machine);
        if machine.delegate.is_quick(number) {
            machine.ring.wake();
        }
        let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        r.rax = match machine.delegate.serve(&mut self.caller, number, arguments) {
            Outcome::Value(value) => value,
            Outcome::ThreadPointer { base } => {
                self.special.fs.base = base;
                0
            }
            Outcome::Clone(request) => self.clone(&request, &r),
            Outcome::SignalReturn { .. } => {
                let why = "it returned from a signal handler, and none is run here";
                return Ok(Next::End(End::Signal(libc::SIGSEGV, Some(why.to_owned()))));
            }
            Outcome::EndCore(status) => {
                let others = machine.ring.cores() > 1;
                return Ok(if others { Next::Stop } else { Next::End(End::Status(status)) });
            }
            Outcome::End(status) => return Ok(Next::End(End::Status(status))),
            Outcome::Kill(signal) => return Ok(Next::End(End::Signal(signal, None))),
        };
        self.vcpu.set_regs(&r).map_err(kvm("setting a virtual CPU"))?;
        self.vcpu.set_sregs(&self.special).map_err(kvm("setting a virtual CPU"))?;
        Ok(Next::On)
    }

    /// Starts another core with a copy of this one's registers.
    fn clone(&mut self, request: &CloneRequest, registers: &kvm_regs) -> u64 {
        self.try_clone(request, registers).unwrap_or_else(|_| Errno(libc::EAGAIN).returned())
    }

    fn try_clone(&mut self, request: &CloneRequest, registers: &kvm_regs) -> Result<u64, SegmentError> {
        let begin = kvm_regs { rax: 0, rsp: request.stack, ..*registers };
        let pointer = request.thread_pointer.unwrap_or(self.special.fs.base);
        let mut core = Core::new(&self.machine, &begin, pointer)?;
        self.machine.ring.copy_return(self.number, core.number);
        core.caller.clear_at_end = request.clear_at_end;
        core.caller.mask = self.caller.mask;
        let vectors = self.vcpu.get_xsave().map_err(kvm("reading a virtual CPU"))?;
        // SAFETY: no state beyond the structure's 4 KiB was asked for by this process.
        unsafe { core.vcpu.set_xsave(&vectors) }.map_err(kvm("setting up a virtual CPU"))?;
        let (tell, told) = std::sync::mpsc::channel();
        let window = *self.machine.delegate.window();
        let places = [request.tell_parent, request.tell_child];
        core.spawn(move |tid| {
            // The number is stored before the new core runs, as the kernel does.
            for at in places.into_iter().flatten() {
                let _ = window.write(at, tid);
            }
            let _ = tell.send(tid);
        })?;
        told.recv().map(|tid| tid as u64).map_err(|e| failed("a core's start")(std::io::Error::other(e)))
    }

    /// Returns how a program ended whose core stopped.
    fn fault(&mut self) -> End {
        let (Ok(r), Ok(s)) = (self.vcpu.get_regs(), self.vcpu.get_sregs()) else {
            return End::Signal(libc::SIGSEGV, Some("its virtual CPU cannot be read".to_owned()));
        };
        let window = self.machine.delegate.window();
        let mut code = [0_u8; 15];
        let there = code.len().min(window.limit().saturating_sub(r.rip) as usize);
        // An instruction outside the segment cannot be read, and none of its bytes is needed.
        let _ = window.read_bytes(r.rip, &mut code[..there]);
        if let Some(signal) = signal_of(&code[..there], 64) {
            return End::Signal(signal, None);
        }
        let numbered = [
            r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
            r.r14, r.r15,
        ];
        let limit = window.limit();
        let mut found = explain_64(&code[..there], r.rip, &numbered, self.special.fs.base, LOW, limit);
        if found.offset.is_none() && !(LOW..limit).contains(&s.cr2) {
            (found.offset, found.bytes) = (Some(s.cr2), 1);
        }
        End::Signal(libc::SIGSEGV, Some(found.to_string()))
    }
}

/// Returns the number of a virtual CPU; each number is used once.
fn next_cpu() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

/// What a core does next.
enum Next {
    On,
    /// The core stops.
    Stop,
    /// The whole program ends.
    End(End),
}
