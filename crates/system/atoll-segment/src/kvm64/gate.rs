//! The quick way out of a 64-bit core: system calls of the program become jumps to a stub that posts them to a ring.
//!
//! At load, `mov eax, NUMBER; syscall` becomes `jmp thunk; syscall`. Code that jumps to the `syscall` itself still makes an
//! ordinary call. `ring.rs` is the other side of the slots, and `core.rs` serves ordinary calls.
//!
//! A slot belongs to a core, which finds it through its gs base. States: 0 free, 1 posted, 2 served, 3 to be made as an
//! ordinary call, 4 being served. The server or the core moves a slot from 1 by compare-and-swap.

use std::arch::global_asm;

use super::pages::{GATE, LANDING};
use crate::window::Window;

/// The number of looks before a core makes a call as an ordinary one: some tens of microseconds.
const SPINS: u32 = 2000;

global_asm!(
    ".pushsection .rodata.atoll_segment_stub,\"a\",@progbits",
    ".hidden atoll_segment_stub",
    ".globl atoll_segment_stub",
    "atoll_segment_stub:",
    "mov gs:[72], rcx",
    "cmp dword ptr gs:[4], 0",
    "je 5f",
    "mov gs:[8], rax",
    "mov gs:[16], rdi",
    "mov gs:[24], rsi",
    "mov gs:[32], rdx",
    "mov gs:[40], r10",
    "mov gs:[48], r8",
    "mov gs:[56], r9",
    "mov dword ptr gs:[0], 1",
    "2:",
    "mov r11d, {spins}",
    "3:",
    "pause",
    "mov ecx, gs:[0]",
    "cmp ecx, 2",
    "je 6f",
    "cmp ecx, 3",
    "je 4f",
    "dec r11d",
    "jnz 3b",
    "mov eax, 1",
    "mov ecx, 3",
    "lock cmpxchg gs:[0], ecx",
    "jne 2b",
    "4:",
    "mov rax, gs:[8]",
    "mov dword ptr gs:[0], 0",
    "5:",
    "syscall",
    "jmp 7f",
    "6:",
    "mov rax, gs:[64]",
    "mov dword ptr gs:[0], 0",
    "7:",
    "mov rcx, gs:[72]",
    "jmp rcx",
    ".hidden atoll_segment_stub_end",
    ".globl atoll_segment_stub_end",
    "atoll_segment_stub_end:",
    ".popsection",
    spins = const SPINS,
);

unsafe extern "C" {
    static atoll_segment_stub: u8;
    static atoll_segment_stub_end: u8;
}

fn stub() -> &'static [u8] {
    let (from, end) = (&raw const atoll_segment_stub, &raw const atoll_segment_stub_end);
    // SAFETY: both labels are of the one block of code above.
    unsafe { std::slice::from_raw_parts(from, end as usize - from as usize) }
}

/// `mov r9, [rsp + 8]`, which libc's `syscall` function has in front of the instruction.
const LOAD_R9: [u8; 5] = [0x4c, 0x8b, 0x4c, 0x24, 0x08];
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// A bound for the numbers of calls: none has a number as high.
const MOST_NUMBERS: u32 = 1024;

/// Whether these bytes can be moved from their place in front of a `syscall`.
fn is_movable(five: &[u8]) -> bool {
    let number = u32::from_le_bytes([five[1], five[2], five[3], five[4]]);
    (five[0] == 0xb8 && number < MOST_NUMBERS) || five == LOAD_R9
}

/// Returns where calls are made in code that begins at offset `at`.
fn sites(code: &[u8], at: u64) -> impl Iterator<Item = (u64, [u8; 5])> {
    code.windows(7).zip(at..).filter_map(|(seven, place)| {
        let five: [u8; 5] = seven[..5].try_into().ok()?;
        (seven[5..] == SYSCALL && is_movable(&five)).then_some((place, five))
    })
}

/// Writes the gate, and leads the calls of `code` (ranges of offsets) to it; returns the number of calls.
pub(super) fn install(window: &Window, code: &[(u64, u64)]) -> usize {
    let mut page = stub().to_vec();
    let mut installed = 0;
    for &(from, end) in code {
        let mut bytes = vec![0; (end.saturating_sub(from)) as usize];
        if window.read_bytes(from, &mut bytes).is_err() {
            continue;
        }
        for (place, five) in sites(&bytes, from) {
            let thunk = GATE + page.len() as u64;
            let Some(made) = thunk_of(five, place + 7, thunk) else { continue };
            let Some(distance) = distance(place + 5, thunk) else { continue };
            if (GATE as usize + page.len() + made.len()) > LANDING as usize {
                break;
            }
            page.extend(made);
            let mut jump = vec![0xe9];
            jump.extend(distance.to_le_bytes());
            // The range was read from there just before.
            let _ = window.write_bytes(place, &jump);
            installed += 1;
        }
    }
    // The gate lies below the program's own part, in the window of the whole memory.
    let to = window.base().wrapping_add(GATE as usize);
    // SAFETY: GATE..LANDING is mapped here, and no core runs yet.
    unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), to, page.len()) };
    installed
}

/// Returns the instruction that was in front, `lea rcx, [back]` and `jmp` to the stub.
fn thunk_of(five: [u8; 5], back: u64, at: u64) -> Option<Vec<u8>> {
    let mut out = five.to_vec();
    out.extend([0x48, 0x8d, 0x0d]);
    out.extend(distance(at + 12, back)?.to_le_bytes());
    out.push(0xe9);
    out.extend(distance(at + 17, GATE)?.to_le_bytes());
    Some(out)
}

fn distance(from: u64, to: u64) -> Option<i32> {
    i32::try_from(to as i64 - from as i64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_call_is_led_to_the_stub_and_back() {
        let mut memory = vec![0_u8; 0x20000];
        // mov eax, 39; syscall; ret; and bytes that are no call: mov eax, 0x01000000; syscall
        let code = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3, 0xb8, 0, 0, 0, 1, 0x0f, 0x05];
        memory[0x11000..0x11000 + code.len()].copy_from_slice(&code);
        // SAFETY: the test keeps the memory.
        let window = unsafe { Window::new(memory.as_mut_ptr(), 0x10000, 0x20000) };
        assert_eq!(install(&window, &[(0x11000, 0x12000), (0x1f000, 0x30000)]), 1);
        let word = |at: usize| i32::from_le_bytes(memory[at..at + 4].try_into().unwrap());
        assert_eq!((memory[0x11000], &memory[0x11005..0x11007]), (0xe9, &SYSCALL[..]));
        let thunk = (0x11005 + word(0x11001)) as usize;
        assert_eq!(thunk, GATE as usize + stub().len());
        assert_eq!(memory[thunk..thunk + 5], code[..5]);
        assert_eq!(thunk as i32 + 12 + word(thunk + 8), 0x11007);
        assert_eq!(thunk as i32 + 17 + word(thunk + 13), GATE as i32);
        assert_eq!(memory[0x11008..0x1100f], code[8..]);
    }

    proptest! {
        #[test]
        fn any_code_is_searched(code in prop::collection::vec(any::<u8>(), 0..300)) {
            for (place, five) in sites(&code, 0) {
                prop_assert_eq!(&code[place as usize..place as usize + 5], &five[..]);
            }
        }
    }
}
