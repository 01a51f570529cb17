//! The shared object that 32-bit programs get in place of Linux's, for its entry to system calls.
//!
//! The 32-bit backends put it into segments, each with its own code behind it.

/// Makes the header of an i386 shared object without symbols: glibc uses the gate only if the kernel gives it one. It is
/// shorter than 256 bytes, and linked at 0.
pub(crate) fn shared_object(entry: u32) -> Vec<u8> {
    const HEADER: u32 = 52;
    const PROGRAM_HEADER: u32 = 32;
    const DYNAMIC: u32 = HEADER + 2 * PROGRAM_HEADER;
    let entries =
        |symbols: u32, strings: u32| [(5, strings), (6, symbols), (10, 18), (11, 16), (14, 1), (0, 0)];
    let symbols = DYNAMIC + 8 * entries(0, 0).len() as u32;
    let strings = symbols + 16;
    let mut out = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
    // The header is that of a shared object for i386 whose entry is the gate.
    for half in [3_u16, 3] {
        put(&half.to_le_bytes());
    }
    for word in [1, entry, HEADER, 0, 0] {
        put(&word.to_le_bytes());
    }
    for half in [HEADER as u16, PROGRAM_HEADER as u16, 2, 40, 0, 0] {
        put(&half.to_le_bytes());
    }
    let dynamic_bytes = symbols - DYNAMIC;
    let (load, dynamic) = (1_u32, 2_u32);
    for word in [load, 0, 0, 0, 4096, 4096, 5, 4096] {
        put(&word.to_le_bytes());
    }
    for word in [dynamic, DYNAMIC, DYNAMIC, DYNAMIC, dynamic_bytes, dynamic_bytes, 4, 4] {
        put(&word.to_le_bytes());
    }
    for (tag, value) in entries(symbols, strings) {
        put(&u32::to_le_bytes(tag));
        put(&value.to_le_bytes());
    }
    put(&[0; 16]);
    put(b"\0linux-gate.so.1\0");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_a_shared_object_without_symbols() {
        use object::{Object, ObjectSymbol};
        let mut page = shared_object(0x100);
        assert!(page.len() < 0x100);
        page.resize(4096, 0);
        let file = object::read::elf::ElfFile32::<object::Endianness>::parse(&*page).unwrap();
        assert_eq!((file.kind(), file.entry()), (object::ObjectKind::Dynamic, 0x100));
        assert_eq!(file.dynamic_symbols().filter(|s| s.is_definition()).count(), 0);
    }
}
