//! A core: a thread of this process that runs the program in its segments and serves its calls.
//!
//! `mod.rs` starts the first core, and the program's `clone` the others. A call is served by the core's own thread on the
//! 64-bit side.

use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use super::descriptors::{CODE, DATA, Mailbox};
use super::frame::{self, Returns, Told};
use super::switch::{self, CORES, CoreState, Fault, Left, MOST_CORES};
use super::{gate, signal};
use crate::backend::{End, SegmentError, machine};
use crate::calls::{Caller, CloneRequest, Delegate, Outcome};
use crate::errno::Errno;
use crate::violation::{Registers, Violation, explain};

/// What all cores of a program share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) delegate: &'static Delegate,
    pub(super) mailbox: Mailbox,
    /// The linear address of the segment's offset 0.
    pub(super) base: u32,
    /// The offset of the program's side of the gate.
    pub(super) gate: u32,
    /// Sends the program's end to the thread that waits for it.
    pub(super) end: Mutex<Sender<End>>,
    /// Whether each number of a core is taken.
    pub(super) taken: [AtomicBool; MOST_CORES],
}

impl Shared {
    fn end(&self, end: End) {
        // Nobody receives this if the program has already ended.
        let _ = self.end.lock().unwrap_or_else(PoisonError::into_inner).send(end);
    }

    /// Takes a number for a core.
    fn take(&self) -> Option<usize> {
        let free = |taken: &AtomicBool| !taken.swap(true, Ordering::SeqCst);
        self.taken.iter().position(free)
    }
}

/// The state in which a core begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginning {
    pub(super) registers: Registers,
    /// The selector in gs, and the offset of the thread pointer.
    pub(super) gs: u32,
    pub(super) thread_pointer: Option<u32>,
    pub(super) clear_at_end: u64,
    pub(super) mask: u64,
}

/// Calls that a handler interrupts for good, whatever it asks for: sleeps and waits.
const NEVER_AGAIN: [u32; 8] = [162, 267, 407, 168, 29, 179, 119, 173];

/// Starts a core; `ready` gets its thread's number once it is set up.
pub(super) fn spawn(
    shared: &Arc<Shared>,
    begin: Beginning,
    ready: impl FnOnce(Result<i32, SegmentError>) + Send + 'static,
) -> Result<(), SegmentError> {
    let again = |what| machine(what)(std::io::Error::from_raw_os_error(libc::EAGAIN));
    let number = shared.take().ok_or_else(|| again("a core beyond the most there can be"))?;
    let all = Arc::clone(shared);
    let started = std::thread::Builder::new().name(format!("core {number}")).spawn(move || {
        match Core::new(&all, number, begin) {
            Ok(mut core) => {
                ready(Ok(core.state().tid));
                core.run();
                core.leave();
            }
            Err(error) => ready(Err(error)),
        }
        all.taken[number].store(false, Ordering::SeqCst);
    });
    started.map(|_| ()).map_err(machine("starting a core's thread"))
}

struct Core<'a> {
    shared: &'a Arc<Shared>,
    number: usize,
    /// The state of the core. Signal handlers reach it, too, so it is never borrowed across [`switch::enter`].
    state: *mut CoreState,
    caller: Caller,
    /// The vector registers of interrupted code, by the frames of their handlers.
    saved: Vec<(u32, Vec<u8>)>,
    vector_bytes: usize,
    /// The call to make again if a handler asks for it: its number and where it is made.
    again: Option<(u32, u32)>,
}

/// The most frames of handlers that are kept; programs that leave handlers by `longjmp` never take theirs back.
const MOST_FRAMES: usize = 32;

impl<'a> Core<'a> {
    /// Makes this thread a core.
    fn new(shared: &'a Arc<Shared>, number: usize, begin: Beginning) -> Result<Core<'a>, SegmentError> {
        // SAFETY: the processor has what the kernel has enabled; 0xd describes it.
        let (vectors_mask, leaf) = unsafe { (xcr0(), __cpuid_count(0xd, 0)) };
        let vector_bytes = leaf.ebx as usize;
        // 64 bytes more let the area begin on a boundary. It is never freed, as a late signal may still look at it.
        let area: &'static mut [u8] = Box::leak(vec![0_u8; vector_bytes + 64].into_boxed_slice());
        let vectors = (area.as_mut_ptr() as u64).next_multiple_of(64);
        // A new program finds no exceptions and rounding to nearest. All else is zeros.
        let put = |at: u64, value: u32| {
            // SAFETY: inside the area.
            unsafe { ((vectors + at) as *mut u32).write(value) };
        };
        put(0, 0x037f);
        put(24, 0x1f80);
        put(512, 3);
        // SAFETY: no arguments.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        let state = Box::leak(Box::new(CoreState {
            registers: begin.registers,
            code: CODE,
            data: DATA,
            left: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            host_stack: 0,
            host_fs: switch::fs_base(),
            vectors,
            vectors_mask,
            has_fsgsbase: u32::from(has_fsgsbase()),
            gate_return: shared.gate + gate::RETURN,
            fault: Fault::default(),
            tid,
        }));
        signal::give_stack();
        let set = |what, done: std::io::Result<()>| done.map_err(machine(what));
        set("the descriptor of the core's number", shared.mailbox.set_identity(number))?;
        if let Some(at) = begin.thread_pointer {
            let at = shared.base.wrapping_add(at);
            set("the descriptor of the thread pointer", shared.mailbox.set_thread_pointer(number, at))?;
        }
        set("syscall user dispatch", dispatch_calls())?;
        CORES[number].store(state, Ordering::SeqCst);
        // SAFETY: descriptors of this program, set up before.
        unsafe { switch::load_segments(DATA, begin.gs) };
        let caller = Caller {
            clear_at_end: begin.clear_at_end,
            mask: begin.mask,
            thread_pointer: u64::from(begin.thread_pointer.unwrap_or(0)),
            ..Caller::default()
        };
        Ok(Core { shared, number, state, caller, saved: Vec::new(), vector_bytes, again: None })
    }

    fn state(&mut self) -> &mut CoreState {
        // SAFETY: leaked, and handlers of this thread touch it only while it is in `enter`.
        unsafe { &mut *self.state }
    }

    /// Runs until the core or the program ends.
    fn run(&mut self) {
        loop {
            let end = self.deliver().or_else(|| {
                let (eip, limit) = (self.state().registers.eip, self.shared.delegate.limit());
                (u64::from(eip) >= limit).then(|| self.violated(libc::SIGSEGV))
            });
            if let Some(end) = end {
                return self.shared.end(end);
            }
            // SAFETY: this thread's, and complete.
            let next = match unsafe { switch::enter(self.state) } {
                Left::Call => self.call(),
                Left::Fault => self.fault(),
                Left::Signal => Next::On,
            };
            match next {
                Next::On => {}
                Next::Stop => return,
                Next::End(end) => return self.shared.end(end),
            }
        }
    }

    /// Serves the call that is in the registers.
    fn call(&mut self) -> Next {
        let r = self.state().registers;
        let by_gate = r.eip == self.shared.gate + gate::RETURN;
        self.again =
            Some((r.eax, if by_gate { self.shared.gate + gate::CALL } else { r.eip.wrapping_sub(2) }));
        let arguments = [r.ebx, r.ecx, r.edx, r.esi, r.edi, r.ebp].map(u64::from);
        let value = match self.shared.delegate.serve(&mut self.caller, r.eax, arguments) {
            Outcome::Value(value) => value,
            Outcome::ThreadPointer { base } => {
                let at = self.shared.base.wrapping_add(base as u32);
                let set = self.shared.mailbox.set_thread_pointer(self.number, at);
                set.map_or_else(|e| Errno(e.raw_os_error().unwrap_or(libc::EINVAL)).returned(), |()| 0)
            }
            Outcome::Clone(request) => self.clone(&request),
            Outcome::SignalReturn { old } => return self.returned(old),
            Outcome::EndCore(status) => {
                // The end of the last core is the program's end.
                let others =
                    self.shared.taken.iter().filter(|taken| taken.load(Ordering::SeqCst)).count() > 1;
                return if others { Next::Stop } else { Next::End(End::Status(status)) };
            }
            Outcome::End(status) => return Next::End(End::Status(status)),
            Outcome::Kill(signal) => return Next::End(End::Signal(signal, None)),
        };
        self.state().registers.eax = value as u32;
        Next::On
    }

    /// Starts another core with a copy of this one's registers.
    fn clone(&mut self, request: &CloneRequest) -> u64 {
        let mut registers = self.state().registers;
        registers.eax = 0;
        registers.esp = request.stack as u32;
        let begin = Beginning {
            registers,
            gs: switch::gs_selector(),
            thread_pointer: Some(request.thread_pointer.unwrap_or(self.caller.thread_pointer) as u32),
            clear_at_end: request.clear_at_end,
            mask: self.caller.mask,
        };
        let (tell, told) = std::sync::mpsc::channel();
        let window = *self.shared.delegate.window();
        let places = [request.tell_parent, request.tell_child];
        let ready = move |made: Result<i32, SegmentError>| {
            // The number is stored before the new core runs, as the kernel does.
            if let Ok(tid) = made {
                for at in places.into_iter().flatten() {
                    let _ = window.write(at, tid);
                }
            }
            let _ = tell.send(made.ok());
        };
        match spawn(self.shared, begin, ready).ok().and_then(|()| told.recv().ok().flatten()) {
            Some(tid) => tid as u64,
            None => Errno(libc::EAGAIN).returned(),
        }
    }

    /// Delivers pending signals to their handlers; returns the program's end if one of them ends it.
    fn deliver(&mut self) -> Option<End> {
        self.state().pending.store(0, Ordering::SeqCst);
        let signals = self.shared.delegate.signals();
        while let Some((signal, action)) = signals.next(self.caller.mask) {
            match action.handler {
                0 => return Some(End::Signal(signal, None)),
                1 => continue,
                _ => {}
            }
            if let Some((number, place)) = self.again.take()
                && self.state().registers.eax == Errno(libc::EINTR).returned() as u32
                && action.flags & libc::SA_RESTART as u64 != 0
                && !NEVER_AGAIN.contains(&number)
            {
                (self.state().registers.eax, self.state().registers.eip) = (number, place);
            }
            if let Some(end) = self.handle(&action, &Told { signal, ..Told::default() }) {
                return Some(end);
            }
        }
        self.again = None;
        None
    }

    /// Sets the registers to the begin of a handler.
    fn handle(&mut self, action: &crate::calls::Action, told: &Told) -> Option<End> {
        let (rt, old) = (self.shared.gate + gate::RT_SIGRETURN, self.shared.gate + gate::SIGRETURN);
        let window = self.shared.delegate.window();
        let mut registers = self.state().registers;
        let pushed = frame::push(window, &mut registers, &mut self.caller, action, told, Returns { old, rt });
        let Ok(frame) = pushed else {
            return Some(End::Signal(
                libc::SIGSEGV,
                Some("there is no room for a signal handler's frame".to_owned()),
            ));
        };
        self.state().registers = registers;
        if self.saved.len() == MOST_FRAMES {
            self.saved.remove(0);
        }
        let (from, bytes) = (self.state().vectors, self.vector_bytes);
        // SAFETY: the core's own area of that size.
        let vectors = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) }.to_vec();
        self.saved.push((frame, vectors));
        None
    }

    /// Takes back the frame of a handler that returned.
    fn returned(&mut self, old: bool) -> Next {
        let window = self.shared.delegate.window();
        let mut registers = self.state().registers;
        let Ok(frame) = frame::pop(window, &mut registers, &mut self.caller, old) else {
            return Next::End(End::Signal(
                libc::SIGSEGV,
                Some("it returned from a signal handler without a frame".into()),
            ));
        };
        self.state().registers = registers;
        while let Some((at, vectors)) = self.saved.pop() {
            if at == frame {
                // SAFETY: the core's own area, of the size that was saved.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        vectors.as_ptr(),
                        self.state().vectors as *mut u8,
                        vectors.len(),
                    );
                }
                break;
            }
        }
        Next::On
    }

    /// Handles an instruction or access that the processor or the kernel does not allow.
    fn fault(&mut self) -> Next {
        let fault = self.state().fault;
        if fault.code_segment != u64::from(CODE) {
            let why =
                format!("it left its segments by a far jump (to code segment {:#x})", fault.code_segment);
            return Next::End(End::Signal(fault.signal, Some(why)));
        }
        let action = self.shared.delegate.signals().take(fault.signal);
        let masked = self.caller.mask & crate::calls::bit(fault.signal) != 0;
        if action.handler <= 1 || masked {
            return Next::End(self.violated(fault.signal));
        }
        let told = Told {
            signal: fault.signal,
            code: fault.code,
            trap: fault.trap as u32,
            error: fault.error as u32,
            address: (fault.address as u32).wrapping_sub(self.shared.base),
        };
        self.handle(&action, &told).map_or(Next::On, Next::End)
    }

    /// Returns how a program ended that violated its segment.
    fn violated(&mut self, signal: i32) -> End {
        const PROTECTION: u64 = 13;
        const STACK: u64 = 12;
        const PAGE: u64 = 14;
        let (registers, fault) = (self.state().registers, self.state().fault);
        let outside = u64::from(registers.eip) >= self.shared.delegate.limit();
        if !outside && ![PROTECTION, STACK, PAGE].contains(&fault.trap) {
            return End::Signal(signal, None);
        }
        let window = self.shared.delegate.window();
        let mut code = [0_u8; 15];
        let eip = u64::from(registers.eip);
        let there = code.len().min(window.limit().saturating_sub(eip) as usize);
        // An instruction outside the segment cannot be read, and none of its bytes is needed.
        let _ = window.read_bytes(eip, &mut code[..there]);
        let mut found =
            explain(&code[..there], &registers, self.caller.thread_pointer, window.low(), window.limit());
        if found.offset.is_none() && fault.trap == PAGE {
            let offset = u64::from((fault.address as u32).wrapping_sub(self.shared.base));
            found = Violation { offset: Some(offset), bytes: 1, write: fault.error & 2 != 0, ..found };
        }
        // Violations of the stack segment come as SIGBUS, and mean the same.
        End::Signal(libc::SIGSEGV, Some(found.to_string()))
    }

    /// Ends this core's part in the program.
    fn leave(&mut self) {
        CORES[self.number].store(std::ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: null selectors are allowed.
        unsafe { switch::load_segments(0, 0) };
        self.shared.delegate.core_ended(&self.caller);
    }
}

/// What a core does next.
enum Next {
    On,
    /// The core stops.
    Stop,
    /// The whole program ends.
    End(End),
}

/// Returns the vector registers that the kernel has enabled.
#[target_feature(enable = "xsave")]
fn xcr0() -> u64 {
    // SAFETY: register 0 exists where there is xsave.
    unsafe { _xgetbv(0) }
}

/// Whether user code may set its own thread pointer.
fn has_fsgsbase() -> bool {
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    // SAFETY: no pointers.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}

/// From now on system calls of this thread's program arrive as signals. System calls of atoll's own code go on as before.
fn dispatch_calls() -> std::io::Result<()> {
    const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
    const PR_SYS_DISPATCH_ON: u64 = 1;
    // The instruction pointer tells them apart: the program's is an offset below 4 GiB.
    let (from, bytes) = (1_u64 << 32, 1_u64 << 47);
    // SAFETY: no pointers but a null one.
    match unsafe { libc::prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, from, bytes, 0_u64) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
