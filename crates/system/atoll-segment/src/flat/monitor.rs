//! The monitor: the few instructions at supervisor privilege that a 32-bit processor without paging needs.
//!
//! It enters the program at user privilege and, at `int 0x80` or a fault, copies its registers to the ring and waits for the
//! paging side (`machine.rs`, which lays out memory and writes the tables). The same bytes serve as a multiboot image for QEMU and
//! as the start of a KVM virtual CPU. They are linked at offset 0 of segments that begin where they are loaded.

use std::arch::global_asm;

/// Offsets from the monitor's start: the tables, the ring, the end of the stack and the code; and the number of all bytes.
pub(super) const GDT: u32 = 0x0;
pub(super) const IDT: u32 = 0x100;
pub(super) const TASK: u32 = 0xa00;
/// The offset of what `lgdt` and `lidt` read.
pub(super) const GDT_POINTER: u32 = 0xb00;
pub(super) const IDT_POINTER: u32 = 0xb10;
pub(super) const RING: u32 = 0x1000;
pub(super) const STACK: u32 = 0x3000;
pub(super) const TEXT: u32 = 0x3000;
pub(super) const BYTES: u32 = 0x5000;

/// Selectors: the monitor's code and data, the program's, the task.
pub(super) const CODE: u32 = 0x08;
pub(super) const DATA: u32 = 0x10;
pub(super) const USER_CODE: u32 = 0x1b;
pub(super) const USER_DATA: u32 = 0x23;
pub(super) const TASK_SELECTOR: u32 = 0x28;

/// The ring's first word when firmware is done.
pub(super) const READY: u32 = 0x4154_4f4c;

/// The number of bytes of the stub of each of the first 32 gates.
pub(super) const STUB: u32 = 16;

global_asm!(
    ".pushsection .rodata.atoll_segment_monitor,\"a\",@progbits",
    ".code32",
    ".p2align 4",
    ".hidden atoll_segment_monitor", ".globl atoll_segment_monitor",
    "atoll_segment_monitor:",
    // The multiboot header: magic, addresses given, checksum; then header, load, end, end of zeros and entry, which are filled
    // in when it is loaded.
    ".long 0x1badb002, 0x00010000, -(0x1badb002 + 0x00010000)",
    ".long 0, 0, 0, 0, 0",
    // At 32 multiboot begins, in flat segments. The addresses are filled in. Until now firmware has left things in memory, so
    // only now it is said that the program may be loaded.
    "cli",
    ".byte 0xc7, 0x05",
    ".hidden atoll_segment_ready_place", ".globl atoll_segment_ready_place",
    "atoll_segment_ready_place:", ".long 0, {ready}",
    "6:",
    "pause",
    ".byte 0x83, 0x3d",
    ".hidden atoll_segment_wait_place", ".globl atoll_segment_wait_place",
    "atoll_segment_wait_place:", ".long 0", ".byte 2",
    "jne 6b",
    ".byte 0x0f, 0x01, 0x15",
    ".hidden atoll_segment_gdt_place", ".globl atoll_segment_gdt_place",
    "atoll_segment_gdt_place:", ".long 0",
    ".byte 0x0f, 0x01, 0x1d",
    ".hidden atoll_segment_idt_place", ".globl atoll_segment_idt_place",
    "atoll_segment_idt_place:", ".long 0",
    ".byte 0xea", ".long 2f - atoll_segment_monitor + {text}", ".short {code}",
    // From here on the code runs in segments that begin at the monitor's start. KVM begins here.
    ".hidden atoll_segment_begin", ".globl atoll_segment_begin",
    "atoll_segment_begin:",
    "2:",
    "mov eax, {data}",
    "mov ds, eax",
    "mov ss, eax",
    "mov eax, {user_data}",
    "mov es, eax",
    "xor eax, eax",
    "mov fs, eax",
    "mov gs, eax",
    "mov eax, {task}",
    "ltr ax",
    // This switches SSE on and makes x87 errors faults.
    "mov eax, cr4",
    "or eax, 0x600",
    "mov cr4, eax",
    "mov eax, cr0",
    "and eax, -5",
    "or eax, 0x22",
    "mov cr0, eax",
    "fninit",
    "jmp 5f",

    // The program comes here with the stack, from the top: vector, error, eip, cs, eflags, esp, ss.
    "3:",
    // push ds, whole: the assembler would take half a word.
    ".byte 0x1e",
    "push eax",
    "mov eax, {data}",
    "mov ds, eax",
    "pop eax",
    "mov ds:[{ring} + 8], eax",
    "mov ds:[{ring} + 12], ebx",
    "mov ds:[{ring} + 16], ecx",
    "mov ds:[{ring} + 20], edx",
    "mov ds:[{ring} + 24], esi",
    "mov ds:[{ring} + 28], edi",
    "mov ds:[{ring} + 32], ebp",
    "pop eax",
    "mov ds:[{ring} + 56], eax",
    "mov eax, ss:[esp]",
    "mov ds:[{ring} + 4], eax",
    "mov eax, ss:[esp + 4]",
    "mov ds:[{ring} + 48], eax",
    "mov eax, ss:[esp + 8]",
    "mov ds:[{ring} + 40], eax",
    "mov eax, ss:[esp + 12]",
    "mov ds:[{ring} + 52], eax",
    "mov eax, ss:[esp + 16]",
    "mov ds:[{ring} + 44], eax",
    "mov eax, ss:[esp + 20]",
    "mov ds:[{ring} + 36], eax",
    "cld",
    "mov dword ptr ds:[{ring}], 1",
    "4:",
    "pause",
    "cmp dword ptr ds:[{ring}], 2",
    "jne 4b",
    "5:",
    "mov dword ptr ds:[{ring}], 0",
    "mov esp, {stack}",
    "push {user_data}",
    "push dword ptr ds:[{ring} + 36]",
    "push dword ptr ds:[{ring} + 44]",
    "push {user_code}",
    "push dword ptr ds:[{ring} + 40]",
    "push dword ptr ds:[{ring} + 56]",
    "mov ebx, ds:[{ring} + 12]",
    "mov ecx, ds:[{ring} + 16]",
    "mov edx, ds:[{ring} + 20]",
    "mov esi, ds:[{ring} + 24]",
    "mov edi, ds:[{ring} + 28]",
    "mov ebp, ds:[{ring} + 32]",
    "mov eax, ds:[{ring} + 8]",
    // pop ds, whole.
    ".byte 0x1f",
    "iretd",

    // There is a stub for each vector. The stubs of 8, 10 to 14, 17, 21, 29 and 30 find an error on the stack.
    ".p2align 4",
    ".hidden atoll_segment_stubs", ".globl atoll_segment_stubs",
    "atoll_segment_stubs:",
    ".set vector, 0",
    ".rept 32",
    ".p2align 4",
    ".if (0x60227d00 >> vector) & 1",
    ".else",
    "push 0",
    ".endif",
    "push vector",
    "jmp 3b",
    ".set vector, vector + 1",
    ".endr",
    ".p2align 4",
    ".hidden atoll_segment_int80", ".globl atoll_segment_int80",
    "atoll_segment_int80:",
    "push 0",
    "push 0x80",
    "jmp 3b",
    ".hidden atoll_segment_monitor_end", ".globl atoll_segment_monitor_end",
    "atoll_segment_monitor_end:",
    ".code64",
    ".popsection",
    code = const CODE,
    data = const DATA,
    user_code = const USER_CODE,
    user_data = const USER_DATA,
    task = const TASK_SELECTOR,
    ring = const RING,
    stack = const STACK,
    text = const TEXT,
    ready = const READY,
);

unsafe extern "C" {
    static atoll_segment_monitor: u8;
    static atoll_segment_ready_place: u8;
    static atoll_segment_wait_place: u8;
    static atoll_segment_gdt_place: u8;
    static atoll_segment_idt_place: u8;
    static atoll_segment_begin: u8;
    static atoll_segment_stubs: u8;
    static atoll_segment_int80: u8;
    static atoll_segment_monitor_end: u8;
}

/// The offset where multiboot enters.
const MULTIBOOT_ENTRY: u32 = 32;

fn offset(label: *const u8) -> u32 {
    (label as usize - &raw const atoll_segment_monitor as usize) as u32
}

/// Returns the offset of a label from the monitor's start.
fn place(label: *const u8) -> u32 {
    TEXT + offset(label)
}

/// Returns the offset where a KVM virtual CPU begins.
pub(super) fn begin() -> u32 {
    place(&raw const atoll_segment_begin)
}

/// Returns the offset of a vector's stub.
pub(super) fn stub(vector: u32) -> u32 {
    place(&raw const atoll_segment_stubs) + vector * STUB
}

/// Returns the offset where calls come in.
pub(super) fn call() -> u32 {
    place(&raw const atoll_segment_int80)
}

/// Returns the monitor's code as a multiboot image, for a monitor that begins at `monitor`.
pub(super) fn image(monitor: u32) -> Vec<u8> {
    let at = monitor + TEXT;
    let end = offset(&raw const atoll_segment_monitor_end);
    // SAFETY: both labels are of the one block above.
    let mut image =
        unsafe { std::slice::from_raw_parts(&raw const atoll_segment_monitor, end as usize) }.to_vec();
    assert!(TEXT + end <= BYTES, "the monitor is longer than its room");
    let mut put = |place: u32, value: u32| {
        image[place as usize..place as usize + 4].copy_from_slice(&value.to_le_bytes());
    };
    for (i, value) in [at, at, at + end, at + end, at + MULTIBOOT_ENTRY].into_iter().enumerate() {
        put(12 + 4 * i as u32, value);
    }
    put(offset(&raw const atoll_segment_ready_place), monitor + RING);
    put(offset(&raw const atoll_segment_wait_place), monitor + RING);
    put(offset(&raw const atoll_segment_gdt_place), monitor + GDT_POINTER);
    put(offset(&raw const atoll_segment_idt_place), monitor + IDT_POINTER);
    image
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    #[test]
    fn the_image_is_what_multiboot_wants() {
        let image = image(0x0100_0000);
        let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(0).wrapping_add(word(4)).wrapping_add(word(8))), (0x1bad_b002, 0));
        assert_eq!((word(12), word(16), word(28)), (0x0100_3000, 0x0100_3000, 0x0100_3020));
        let mut start = Decoder::new(32, &image[32..], DecoderOptions::NONE);
        let names: Vec<_> = start.iter().take(8).map(|i| i.mnemonic()).collect();
        use Mnemonic::{Cli, Cmp, Jmp, Jne, Lgdt, Lidt, Mov, Pause};
        assert_eq!(names, [Cli, Mov, Pause, Cmp, Jne, Lgdt, Lidt, Jmp]);
    }

    #[test]
    fn a_stub_pushes_an_error_where_the_processor_does_not() {
        let image = image(0);
        for vector in 0..32 {
            let code = &image[(stub(vector) - TEXT) as usize..];
            let first = Decoder::new(32, code, DecoderOptions::NONE).decode();
            let own = [8, 10, 11, 12, 13, 14, 17, 21, 29, 30].contains(&vector);
            assert_eq!(first.mnemonic(), Mnemonic::Push);
            assert_eq!(first.immediate(0) as u32, if own { vector } else { 0 }, "{vector}");
        }
    }
}
