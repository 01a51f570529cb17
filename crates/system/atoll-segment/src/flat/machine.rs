//! The memory of a 32-bit machine without paging, and the paging side's end of its ring.
//!
//! The segment begins at physical address 0. The monitor (`monitor.rs`), its tables and the ring lie behind the limit.
//! `qemu.rs` and `kvm.rs` make a processor run in this memory. This module serves what the processor asks for, and takes every
//! word of the ring for hostile.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::monitor;
use crate::backend::{End, Kind, Program, SegmentError, machine, segment_bytes};
use crate::calls::{Caller, Delegate, Outcome};
use crate::errno::Errno;
use crate::memory::Memory;
use crate::plan;
use crate::shared_object::shared_object;
use crate::violation::{Registers, Violation, explain, signal_of};

/// The lowest offset of the gate: the PC's own tables, its screen and its firmware lie below.
const GATE: u64 = 1 << 20;
/// The lowest offset that belongs to the program.
const LOW: u64 = GATE + 0x10000;
const LEAST: u64 = 4 << 20;
/// The largest segment in bytes: with the monitor it stays below a PC's devices.
const MOST: u64 = 2 << 30;
/// The number of bytes that firmware takes at the end of memory.
const FIRMWARE: u64 = 16 << 20;

/// The number of the first descriptor that programs are given for their thread pointer.
const THREAD_DESCRIPTOR: u32 = crate::calls::THREAD_DESCRIPTOR;

/// The offset of the stub that programs call, behind the header of its shared object.
const CALL: u32 = 0x100;

/// States of the ring's first word; 0 is free.
const POSTED: u32 = 1;
const SERVED: u32 = 2;

/// How long the paging side looks without a pause when no call comes, and how long it then pauses at a time.
const PATIENCE: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(50);

/// A machine's memory with a program and the monitor in it.
#[derive(Debug)]
pub(super) struct Machine {
    memory: Memory,
    delegate: Delegate,
    sizes: Sizes,
    /// The offset of the monitor.
    pub(super) monitor: u32,
}

/// The sizes of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The bytes of the segment.
    segment: u64,
    /// The bytes of all memory.
    pub(super) all: u64,
}

impl Sizes {
    /// Returns the sizes for a segment of `bytes`.
    ///
    /// # Errors
    /// The segment is too small or too large.
    pub(super) fn of(bytes: u64) -> Result<Sizes, SegmentError> {
        let segment = segment_bytes(bytes, 1 << 20, LEAST..=MOST, "it must end below a PC's devices")?;
        Ok(Sizes { segment, all: segment + FIRMWARE })
    }
}

/// Makes a segment descriptor of `limit` bytes (whole pages if more than 1 MiB) with these access and size flags.
fn descriptor(base: u32, limit: u64, access: u64, flags: u64) -> u64 {
    let (limit, granular) = if limit > 1 << 20 { (limit / 4096 - 1, 8) } else { (limit - 1, 0) };
    let base = u64::from(base);
    (limit & 0xffff)
        | (base & 0xff_ffff) << 16
        | access << 40
        | (limit >> 16 & 0xf) << 48
        | (flags | granular) << 52
        | (base >> 24) << 56
}

/// Access flags of present 32-bit code and data of each privilege.
const CODE_ACCESS: u64 = 0x9b;
const DATA_ACCESS: u64 = 0x93;
const USER: u64 = 0x60;
const BITS_32: u64 = 4;

/// Writes the gate, the program, the monitor and its tables; returns the paging side and the registers that the program begins
/// with.
fn fill(memory: &Memory, sizes: Sizes, program: &Program) -> Result<(Delegate, Registers), SegmentError> {
    let window = memory.window(0, LOW, sizes.segment);
    let everything = memory.window(0, 0, sizes.all);
    let put = |at: u64, bytes: &[u8]| everything.write_bytes(at, bytes).map_err(SegmentError::Arguments);
    // int 0x80; ret
    let mut gate = shared_object(CALL);
    gate.resize(CALL as usize, 0);
    gate.extend([0xcd, 0x80, 0xc3]);
    put(GATE, &gate)?;
    let loaded = plan::load(program, window, memory.discard(), Some((GATE, GATE + u64::from(CALL))), false)?;

    let monitor = sizes.segment as u32;
    let at = |offset: u32| u64::from(monitor) + u64::from(offset);
    put(at(monitor::TEXT), &monitor::image(monitor))?;
    let own = u64::from(monitor::BYTES);
    let table = [
        0,
        descriptor(monitor, own, CODE_ACCESS, BITS_32),
        descriptor(monitor, own, DATA_ACCESS, BITS_32),
        descriptor(0, sizes.segment, CODE_ACCESS | USER, BITS_32),
        descriptor(0, sizes.segment, DATA_ACCESS | USER, BITS_32),
        descriptor(monitor + monitor::TASK, 104, 0x89, 0),
    ];
    for (i, entry) in table.into_iter().enumerate() {
        put(at(monitor::GDT) + 8 * i as u64, &entry.to_le_bytes())?;
    }
    let gate_to = |offset: u32, privilege: u64| {
        let offset = u64::from(offset);
        (offset & 0xffff) | u64::from(monitor::CODE) << 16 | (0x8e | privilege) << 40 | (offset >> 16) << 48
    };
    for vector in 0..32 {
        // A program may set a breakpoint anywhere.
        let privilege = if vector == 3 || vector == 4 { USER } else { 0 };
        let entry = gate_to(monitor::stub(vector), privilege);
        put(at(monitor::IDT) + 8 * u64::from(vector), &entry.to_le_bytes())?;
    }
    put(at(monitor::IDT) + 8 * 0x80, &gate_to(monitor::call(), USER).to_le_bytes())?;
    // The task state segment says where the monitor's stack is.
    let stack = [monitor::STACK.to_le_bytes(), monitor::DATA.to_le_bytes()].concat();
    put(at(monitor::TASK) + 4, &stack)?;
    for (place, table, bytes) in
        [(monitor::GDT_POINTER, monitor::GDT, 0x100_u16), (monitor::IDT_POINTER, monitor::IDT, 0x81 * 8)]
    {
        put(at(place), &(bytes - 1).to_le_bytes())?;
        put(at(place) + 2, &(monitor + table).to_le_bytes())?;
    }
    let registers =
        Registers { eip: loaded.entry as u32, esp: loaded.stack as u32, eflags: 2, ..Registers::default() };
    Ok((loaded.delegate, registers))
}

impl Machine {
    /// Puts a program and the monitor into memory of zeros.
    pub(super) fn load(
        memory: Memory,
        sizes: Sizes,
        program: &Program,
        kind: Kind,
    ) -> Result<Machine, SegmentError> {
        program.for_width(kind)?;
        let (delegate, registers) = fill(&memory, sizes, program)?;
        let machine = Machine { memory, delegate, sizes, monitor: sizes.segment as u32 };
        machine.begin_with(&registers);
        Ok(machine)
    }

    /// Waits until firmware has finished with memory, and loads the program anew; `gone` is as for [`Machine::serve`].
    pub(super) fn load_after_firmware(
        &mut self,
        program: &Program,
        mut gone: impl FnMut() -> Option<String>,
    ) -> Result<(), SegmentError> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let begun = Instant::now();
        while self.word(0).load(Ordering::Acquire) != monitor::READY {
            let why = gone().or_else(|| (begun.elapsed() > PATIENCE).then(|| "it does not start".to_owned()));
            if let Some(why) = why {
                return Err(machine("starting the machine")(std::io::Error::other(why)));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let text = u64::from(self.monitor) + u64::from(monitor::TEXT);
        self.memory.discard().zero(&self.memory.window(0, GATE, text), GATE, text - GATE);
        let (delegate, registers) = fill(&self.memory, self.sizes, program)?;
        self.delegate = delegate;
        self.begin_with(&registers);
        self.word(0).store(SERVED, Ordering::Release);
        Ok(())
    }

    /// Writes the registers that the monitor enters the program with.
    fn begin_with(&self, registers: &Registers) {
        self.set_registers(registers);
        self.word(56).store(monitor::USER_DATA, Ordering::SeqCst);
    }

    /// Returns all of the memory.
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the paging side.
    pub(super) fn delegate(&self) -> &Delegate {
        &self.delegate
    }

    /// Returns a word of the ring: state, vector, registers as in [`Registers`], error, code and data selectors.
    fn word(&self, offset: u32) -> &AtomicU32 {
        assert!(offset < 64 && offset.is_multiple_of(4), "there is no such word");
        let at = self.memory.base().wrapping_add((self.monitor + monitor::RING + offset) as usize);
        // SAFETY: mapped as long as this lives, aligned, and an atomic that the machine may write at any time.
        unsafe { &*at.cast::<AtomicU32>() }
    }

    fn registers(&self) -> Registers {
        let at = |i: u32| self.word(8 + 4 * i).load(Ordering::Relaxed);
        Registers {
            eax: at(0),
            ebx: at(1),
            ecx: at(2),
            edx: at(3),
            esi: at(4),
            edi: at(5),
            ebp: at(6),
            esp: at(7),
            eip: at(8),
            eflags: at(9),
        }
    }

    fn set_registers(&self, r: &Registers) {
        let values = [r.eax, r.ebx, r.ecx, r.edx, r.esi, r.edi, r.ebp, r.esp, r.eip, r.eflags];
        for (i, value) in values.into_iter().enumerate() {
            self.word(8 + 4 * i as u32).store(value, Ordering::Relaxed);
        }
    }

    /// Serves calls until the program ends, or until `gone` returns why the processor stopped.
    pub(super) fn serve(&self, mut gone: impl FnMut() -> Option<String>) -> End {
        const CALL_VECTOR: u32 = 0x80;
        let mut caller = Caller::default();
        let mut last = Instant::now();
        let mut looks = 0_u32;
        loop {
            if self.word(0).load(Ordering::Acquire) != POSTED {
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(64) && last.elapsed() > PATIENCE {
                    if let Some(why) = gone() {
                        return End::Signal(libc::SIGKILL, Some(why));
                    }
                    std::thread::sleep(PAUSE);
                }
                std::hint::spin_loop();
                continue;
            }
            let mut r = self.registers();
            let vector = self.word(4).load(Ordering::Relaxed);
            if vector != CALL_VECTOR {
                return self.fault(vector, &r, caller.thread_pointer);
            }
            let arguments = [r.ebx, r.ecx, r.edx, r.esi, r.edi, r.ebp].map(u64::from);
            let value = match self.delegate.serve(&mut caller, r.eax, arguments) {
                Outcome::Value(value) => value,
                Outcome::ThreadPointer { base } => {
                    self.set_thread_pointer(base as u32);
                    0
                }
                Outcome::Clone(_) => Errno(libc::ENOSYS).returned(),
                Outcome::SignalReturn { .. } => {
                    let why = "it returned from a signal handler, and none is run here";
                    return End::Signal(libc::SIGSEGV, Some(why.to_owned()));
                }
                // The end of the only core is the program's end.
                Outcome::EndCore(status) | Outcome::End(status) => return End::Status(status),
                Outcome::Kill(signal) => return End::Signal(signal, None),
            };
            r.eax = value as u32;
            self.word(8).store(r.eax, Ordering::Relaxed);
            self.word(0).store(SERVED, Ordering::Release);
            last = Instant::now();
            looks = 0;
        }
    }

    /// Sets the thread pointer. libc reaches below it, so its offsets wrap round all of memory.
    fn set_thread_pointer(&self, base: u32) {
        let entry = descriptor(base, 1 << 32, DATA_ACCESS | USER, BITS_32);
        let everything = self.memory.window(0, 0, self.memory.bytes() as u64);
        let at = self.monitor + monitor::GDT + 8 * THREAD_DESCRIPTOR;
        // The descriptor lies inside memory, as the machine was laid out.
        let _ = everything.write_bytes(u64::from(at), &entry.to_le_bytes());
    }

    /// Returns how a program ended that the processor stopped.
    fn fault(&self, vector: u32, r: &Registers, thread_pointer: u64) -> End {
        let window = self.delegate.window();
        let mut code = [0_u8; 15];
        let there = code.len().min(window.limit().saturating_sub(u64::from(r.eip)) as usize);
        // An instruction outside the segment cannot be read, and none of its bytes is needed.
        let _ = window.read_bytes(u64::from(r.eip), &mut code[..there]);
        let signal = match vector {
            0 | 16 | 19 => libc::SIGFPE,
            1 | 3 => libc::SIGTRAP,
            6 => libc::SIGILL,
            _ => libc::SIGSEGV,
        };
        if signal != libc::SIGSEGV {
            return End::Signal(signal_of(&code[..there], 32).unwrap_or(signal), None);
        }
        // The lowest offsets are ordinary memory here.
        let found: Violation = explain(&code[..there], r, thread_pointer, 0, window.limit());
        End::Signal(signal, Some(found.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_as_the_processor_reads_them() {
        // This is a descriptor of 4 GiB of 32-bit user data from 0, as in every Linux.
        assert_eq!(descriptor(0, 1 << 32, DATA_ACCESS | USER, BITS_32), 0x00cf_f300_0000_ffff);
        assert_eq!(descriptor(0x1234_5678, 104, 0x89, 0), 0x1200_8934_5678_0067);
        assert_eq!(descriptor(0, 3 << 20, CODE_ACCESS, BITS_32), 0x00c0_9b00_0000_02ff);
    }
}
