//! zstd without allocation: contexts in the lane's scratch memory (`ZSTD_initStatic*`: the library never calls
//! malloc for them, it fails instead).
//!
//! Fault path: no allocation, no lock the program could hold, no arena access, no panic.

use std::ffi::c_int;

use zstd_sys as z;

use super::FarError;
use super::compressed::Codec;

/// Level 1: the fastest of the regular ones. Negative levels come close to LZ4's speed and size.
const LEVEL: c_int = 1;

/// zstd at level 1.
pub struct Zstd;

/// At the start of the scratch area: where the contexts are. The rest is their workspaces.
#[repr(C, align(64))]
struct Contexts {
    compress: *mut z::ZSTD_CCtx,
    decompress: *mut z::ZSTD_DCtx,
}

fn compress_bytes(unit: u32) -> usize {
    // SAFETY: pure functions of their arguments.
    let (any, exact) = unsafe {
        let parameters = z::ZSTD_getCParams(LEVEL, u64::from(unit), 0);
        (z::ZSTD_estimateCCtxSize(LEVEL), z::ZSTD_estimateCCtxSize_usingCParams(parameters))
    };
    any.max(exact).next_multiple_of(64)
}

impl Codec for Zstd {
    fn scratch_bytes(unit: u32) -> usize {
        // SAFETY: returns a constant.
        size_of::<Contexts>() + compress_bytes(unit) + unsafe { z::ZSTD_estimateDCtxSize() }
    }

    unsafe fn prepare(scratch: *mut u8, unit: u32) -> Result<(), FarError> {
        let (at, bytes) = (size_of::<Contexts>(), compress_bytes(unit));
        // SAFETY: both workspaces lie in the scratch area, which has scratch_bytes bytes, is page-aligned
        // (so each is 8-aligned) and outlives every use: the lane keeps the mapping.
        let contexts = unsafe {
            Contexts {
                compress: z::ZSTD_initStaticCCtx(scratch.add(at).cast(), bytes),
                decompress: z::ZSTD_initStaticDCtx(
                    scratch.add(at + bytes).cast(),
                    z::ZSTD_estimateDCtxSize(),
                ),
            }
        };
        if contexts.compress.is_null() || contexts.decompress.is_null() {
            return Err(FarError::Unavailable("zstd rejects its scratch memory"));
        }
        // SAFETY: the start of the scratch area is large and aligned enough for Contexts.
        unsafe { scratch.cast::<Contexts>().write(contexts) };
        Ok(())
    }

    unsafe fn compress(scratch: *mut u8, src: *const u8, unit: u32, dst: *mut u8, room: u32) -> Option<u32> {
        // SAFETY: `prepare` wrote the contexts in this process; src has unit bytes and dst has room.
        let length = unsafe {
            let context = (*scratch.cast::<Contexts>()).compress;
            z::ZSTD_compressCCtx(context, dst.cast(), room as usize, src.cast(), unit as usize, LEVEL)
        };
        // Errors (does not fit, above all) are huge numbers.
        u32::try_from(length).ok().filter(|l| *l > 0 && *l <= room)
    }

    unsafe fn decompress(scratch: *mut u8, src: *const u8, length: u32, dst: *mut u8, unit: u32) -> bool {
        // SAFETY: as above; the decoder stays inside both buffers whatever src says.
        let got = unsafe {
            let context = (*scratch.cast::<Contexts>()).decompress;
            z::ZSTD_decompressDCtx(context, dst.cast(), unit as usize, src.cast(), length as usize)
        };
        got == unit as usize
    }
}
