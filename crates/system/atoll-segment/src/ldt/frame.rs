//! The frames that 32-bit signal handlers run on, as Linux lays them out for i386.
//!
//! `core.rs` makes a frame when a signal is due and takes it back at `sigreturn`. Vector registers are kept on atoll's side, as
//! the program could change them to values that the processor refuses to load.

use crate::calls::{Action, Caller, bit};
use crate::errno::Errno;
use crate::violation::Registers;
use crate::window::Window;

/// Flags that a program may set.
const FLAGS: u32 = 0x0024_0dd5;

const SA_RESTORER: u64 = 0x0400_0000;

/// The number of bytes of i386's `struct sigcontext`.
const CONTEXT: u64 = 88;
/// Offsets from the start of the older frame: return address, number, context; the extra mask lies behind a register area of
/// 624 bytes.
const OLD_CONTEXT: u64 = 8;
const OLD_MASK: u64 = OLD_CONTEXT + CONTEXT + 624;
const OLD_BYTES: u64 = OLD_MASK + 4;
/// Offsets from the start of the newer frame: return address, number, two pointers, siginfo (128 bytes), ucontext.
const INFO: u64 = 16;
const UCONTEXT: u64 = INFO + 128;
const RT_CONTEXT: u64 = UCONTEXT + 20;
const RT_MASK: u64 = RT_CONTEXT + CONTEXT;
const RT_BYTES: u64 = RT_MASK + 8;

/// The values that a handler gets about its signal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) signal: i32,
    pub(super) code: i32,
    pub(super) trap: u32,
    pub(super) error: u32,
    pub(super) address: u32,
}

/// The offsets that handlers return to if the program names none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Returns {
    pub(super) old: u32,
    pub(super) rt: u32,
}

fn context(r: &Registers, t: &Told, mask: u64) -> [u32; 22] {
    // The values of gs, fs, es and ds that a 32-bit program would find mean nothing here and are not taken back.
    [
        0,
        0,
        0,
        0,
        r.edi,
        r.esi,
        r.ebp,
        r.esp,
        r.ebx,
        r.edx,
        r.ecx,
        r.eax,
        t.trap,
        t.error,
        r.eip,
        0,
        r.eflags,
        r.esp,
        0,
        0,
        mask as u32,
        t.address,
    ]
}

/// Puts a frame on the program's stack and sets the registers to the begin of its handler; returns the frame's offset.
///
/// # Errors
/// EFAULT where the segment has no room for the frame.
pub(super) fn push(
    window: &Window,
    registers: &mut Registers,
    caller: &mut Caller,
    action: &Action,
    told: &Told,
    returns: Returns,
) -> Result<u32, Errno> {
    let rt = action.flags & libc::SA_SIGINFO as u64 != 0;
    let before = *registers;
    let mut top = u64::from(before.esp);
    if action.flags & libc::SA_ONSTACK as u64 != 0
        && let Some((at, bytes)) = caller.signal_stack
        && !(at..at + bytes).contains(&top)
    {
        top = at + bytes;
    }
    let bytes = if rt { RT_BYTES } else { OLD_BYTES };
    // The ABI: the stack pointer plus 4 is a multiple of 16 at a function's entry.
    let frame = (top.saturating_sub(bytes) & !15).saturating_sub(4);
    window.address(frame, bytes)?;
    let mask = caller.mask_after.take().unwrap_or(caller.mask);
    let restorer = if action.flags & SA_RESTORER != 0 { action.restorer as u32 } else { 0 };
    let write = |at: u64, words: &[u32]| -> Result<(), Errno> {
        words.iter().zip((0..).step_by(4)).try_for_each(|(&word, i)| window.write(frame + at + i, word))
    };
    let signal = told.signal as u32;
    let words = context(&before, told, mask);
    if rt {
        let (info, ucontext) = ((frame + INFO) as u32, (frame + UCONTEXT) as u32);
        let to = if restorer == 0 { returns.rt } else { restorer };
        write(0, &[to, signal, info, ucontext])?;
        write(INFO, &[0; 32])?;
        write(INFO, &[signal, 0, told.code as u32, told.address])?;
        write(UCONTEXT, &[0; 5])?;
        write(RT_CONTEXT, &words)?;
        write(RT_MASK, &[mask as u32, (mask >> 32) as u32])?;
        (registers.edx, registers.ecx) = (info, ucontext);
    } else {
        let to = if restorer == 0 { returns.old } else { restorer };
        write(0, &[to, signal])?;
        write(OLD_CONTEXT, &words)?;
        write(OLD_MASK, &[(mask >> 32) as u32])?;
        (registers.edx, registers.ecx) = (0, 0);
    }
    registers.eax = signal;
    registers.esp = frame as u32;
    registers.eip = action.handler as u32;
    registers.eflags &= !0x0500; // direction and trap flags
    caller.mask |= action.mask;
    if action.flags & libc::SA_NODEFER as u64 == 0 {
        caller.mask |= bit(told.signal);
    }
    Ok(frame as u32)
}

/// Takes back the frame that the program returns from; returns its offset.
///
/// # Errors
/// EFAULT where the stack pointer is not at a frame.
pub(super) fn pop(
    window: &Window,
    registers: &mut Registers,
    caller: &mut Caller,
    old: bool,
) -> Result<u32, Errno> {
    // `ret` has taken the return address, and the restorer of the older form the number.
    let frame = u64::from(registers.esp.wrapping_sub(if old { 8 } else { 4 }));
    let at = frame + if old { OLD_CONTEXT } else { RT_CONTEXT };
    window.address(at, CONTEXT)?;
    let word = |i: u64| window.read::<u32>(at + 4 * i);
    let mask = if old {
        u64::from(word(20)?) | u64::from(window.read::<u32>(frame + OLD_MASK)?) << 32
    } else {
        window.read::<u64>(frame + RT_MASK)?
    };
    *registers = Registers {
        edi: word(4)?,
        esi: word(5)?,
        ebp: word(6)?,
        esp: word(7)?,
        ebx: word(8)?,
        edx: word(9)?,
        ecx: word(10)?,
        eax: word(11)?,
        eip: word(14)?,
        eflags: word(16)? & FLAGS | 0x202,
    };
    caller.mask = mask & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
    Ok(frame as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_taken_back() {
        let mut memory = vec![0_u8; 0x4000];
        // SAFETY: the test keeps the memory.
        let window = unsafe { Window::new(memory.as_mut_ptr(), 0, 0x4000) };
        for flags in [0, libc::SA_SIGINFO as u64] {
            let before =
                Registers { eax: 1, ebx: 2, esp: 0x3003, eip: 0x77, eflags: 0x202, ..Registers::default() };
            let (mut r, mut c) = (before, Caller { mask: 4, ..Caller::default() });
            let action = Action { handler: 0x500, flags, mask: 1 << 40, restorer: 0 };
            let told = Told { signal: libc::SIGUSR1, ..Told::default() };
            push(&window, &mut r, &mut c, &action, &told, Returns { old: 0xa, rt: 0xb }).unwrap();
            assert_eq!((r.eip, (r.esp + 4) % 16), (0x500, 0));
            assert_eq!(c.mask, 4 | 1 << 40 | bit(libc::SIGUSR1));
            assert_eq!(window.read::<u32>(u64::from(r.esp)).unwrap(), if flags == 0 { 0xa } else { 0xb });
            // ret, and pop eax.
            r.esp += if flags == 0 { 8 } else { 4 };
            pop(&window, &mut r, &mut c, flags == 0).unwrap();
            assert_eq!((r, c.mask), (before, 4));
        }
    }
}
