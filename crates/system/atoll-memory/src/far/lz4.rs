//! LZ4 without allocation: the caller's state, block format.
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::ffi::{c_char, c_int, c_void};

use lz4_sys::LZ4_decompress_safe;

use super::FarError;
use super::compressed::Codec;

// lz4-sys compiles these but does not declare them.
unsafe extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_initStream(buffer: *mut c_void, size: usize) -> *mut c_void;
    fn LZ4_compress_fast_extState_fastReset(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_size: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
}

/// LZ4 at its fast setting.
pub struct Lz4;

impl Codec for Lz4 {
    fn scratch_bytes(_unit: u32) -> usize {
        // SAFETY: returns a constant.
        unsafe { LZ4_sizeofState() as usize }
    }

    unsafe fn prepare(scratch: *mut u8, unit: u32) -> Result<(), FarError> {
        // SAFETY: the scratch area has scratch_bytes bytes, page-aligned.
        let state = unsafe { LZ4_initStream(scratch.cast(), Self::scratch_bytes(unit)) };
        if state.is_null() { Err(FarError::Unavailable("LZ4 rejects its scratch memory")) } else { Ok(()) }
    }

    unsafe fn compress(scratch: *mut u8, src: *const u8, unit: u32, dst: *mut u8, room: u32) -> Option<u32> {
        // SAFETY: src has unit bytes, dst has room, both by this function's contract; the state was made
        // by `prepare` and used only by this function since, which is what fastReset asks. A block that
        // does not fit returns 0 and leaves the state usable: its offset is advanced before any output.
        let length = unsafe {
            LZ4_compress_fast_extState_fastReset(
                scratch.cast(),
                src.cast(),
                dst.cast(),
                unit as c_int,
                room as c_int,
                1,
            )
        };
        u32::try_from(length).ok().filter(|l| *l > 0)
    }

    unsafe fn decompress(_scratch: *mut u8, src: *const u8, length: u32, dst: *mut u8, unit: u32) -> bool {
        // SAFETY: src has length bytes, dst has unit; the decoder stays inside both whatever src says.
        let got = unsafe { LZ4_decompress_safe(src.cast(), dst.cast(), length as c_int, unit as c_int) };
        got == unit as c_int
    }
}
