//! The copying loops: libc's memcpy, stores that bypass the caches, and the processor's string move.
//!
//! `memcpy.rs` makes engines of them and `memory.rs` reads and writes by the first. Other processes, and other threads through
//! other mappings, may write to the memory at the same time. So none of these loops is visible to the compiler: libc's is
//! called through an opaque pointer, the others are assembly. The copied bytes may then be any mixture of old and new ones.

use std::ffi::c_void;
use std::hint::black_box;

type Memcpy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// The bytes below which stores past the caches are not worth their fence.
#[cfg(target_arch = "x86_64")]
const LEAST_STREAMED: usize = 1024;

/// Copies with libc's memcpy.
///
/// # Safety
/// Both ranges are mapped, `to` for writing, and do not overlap.
#[inline]
pub(crate) unsafe fn plain(to: *mut u8, from: *const u8, bytes: usize) {
    let memcpy: Memcpy = black_box(libc::memcpy);
    // SAFETY: the caller's promise.
    unsafe { memcpy(to.cast(), from.cast(), bytes) };
}

/// Copies with the widest stores past the caches that this processor has; the destination is then in memory and in no cache.
///
/// # Safety
/// The same as for `plain`.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) {
    if bytes < LEAST_STREAMED {
        // SAFETY: the caller's promise.
        return unsafe { plain(to, from, bytes) };
    }
    // Whole lines are streamed; the bytes before the first and after the last are not.
    let head = to.align_offset(64).min(bytes);
    let blocks = (bytes - head) / 256;
    let tail = head + blocks * 256;
    // SAFETY: three parts of the caller's ranges; the middle one begins at a line of the destination, and the
    // processor has the instructions.
    unsafe {
        plain(to, from, head);
        if blocks > 0 {
            if std::arch::is_x86_feature_detected!("avx512f") {
                stream_512(to.add(head), from.add(head), blocks);
            } else if std::arch::is_x86_feature_detected!("avx") {
                stream_256(to.add(head), from.add(head), blocks);
            } else {
                stream_128(to.add(head), from.add(head), blocks);
            }
        }
        plain(to.add(tail), from.add(tail), bytes - tail);
    }
}

/// Defines a loop that streams 256 bytes a round.
#[cfg(target_arch = "x86_64")]
macro_rules! streaming {
    ($name:ident, $($instruction:literal),+) => {
        /// # Safety
        /// The same as for `plain`, for `blocks` times 256 bytes, at least one block; `to` is aligned to 64, and the processor
        /// has the instructions.
        unsafe fn $name(to: *mut u8, from: *const u8, blocks: usize) {
            // SAFETY: reads and writes only the caller's ranges; the fence orders the stores before all later
            // ones.
            unsafe {
                std::arch::asm!(
                    "2:",
                    "prefetcht0 [{from} + 1024]",
                    "prefetcht0 [{from} + 1088]",
                    "prefetcht0 [{from} + 1152]",
                    "prefetcht0 [{from} + 1216]",
                    $($instruction,)+
                    "add {from}, 256",
                    "add {to}, 256",
                    "sub {blocks}, 1",
                    "jnz 2b",
                    "sfence",
                    "vzeroupper",
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                    blocks = inout(reg) blocks => _,
                    out("xmm0") _,
                    out("xmm1") _,
                    out("xmm2") _,
                    out("xmm3") _,
                    options(nostack),
                );
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
streaming! {
    stream_512,
    "vmovdqu64 zmm0, [{from}]",
    "vmovdqu64 zmm1, [{from} + 64]",
    "vmovdqu64 zmm2, [{from} + 128]",
    "vmovdqu64 zmm3, [{from} + 192]",
    "vmovntdq [{to}], zmm0",
    "vmovntdq [{to} + 64], zmm1",
    "vmovntdq [{to} + 128], zmm2",
    "vmovntdq [{to} + 192], zmm3"
}

#[cfg(target_arch = "x86_64")]
streaming! {
    stream_256,
    "vmovdqu ymm0, [{from}]",
    "vmovdqu ymm1, [{from} + 32]",
    "vmovdqu ymm2, [{from} + 64]",
    "vmovdqu ymm3, [{from} + 96]",
    "vmovntdq [{to}], ymm0",
    "vmovntdq [{to} + 32], ymm1",
    "vmovntdq [{to} + 64], ymm2",
    "vmovntdq [{to} + 96], ymm3",
    "vmovdqu ymm0, [{from} + 128]",
    "vmovdqu ymm1, [{from} + 160]",
    "vmovdqu ymm2, [{from} + 192]",
    "vmovdqu ymm3, [{from} + 224]",
    "vmovntdq [{to} + 128], ymm0",
    "vmovntdq [{to} + 160], ymm1",
    "vmovntdq [{to} + 192], ymm2",
    "vmovntdq [{to} + 224], ymm3"
}

#[cfg(target_arch = "x86_64")]
unsafe fn stream_128(to: *mut u8, from: *const u8, blocks: usize) {
    for at in (0..blocks * 256).step_by(64) {
        // SAFETY: the same as for the other loops, with instructions that every processor of this kind has.
        unsafe {
            std::arch::asm!(
                "movdqu xmm0, [{from}]",
                "movdqu xmm1, [{from} + 16]",
                "movdqu xmm2, [{from} + 32]",
                "movdqu xmm3, [{from} + 48]",
                "movntdq [{to}], xmm0",
                "movntdq [{to} + 16], xmm1",
                "movntdq [{to} + 32], xmm2",
                "movntdq [{to} + 48], xmm3",
                from = in(reg) from.add(at),
                to = in(reg) to.add(at),
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                options(nostack, preserves_flags),
            );
        }
    }
    // SAFETY: orders the stores before all later ones.
    unsafe { std::arch::asm!("sfence", options(nostack, preserves_flags)) };
}

/// Copies with the processor's string move, which some processors run in microcode faster than any loop.
///
/// # Safety
/// The same as for `plain`.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn string(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: reads and writes only the caller's ranges; the direction flag is clear, as the ABI has it.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    type Loop = unsafe fn(*mut u8, *const u8, usize);

    #[test]
    fn every_width_streams_the_same() {
        let from: Vec<u8> = (0..4096 + 13u32).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut loops: Vec<(&str, Loop)> = vec![("128", super::stream_128)];
        if std::arch::is_x86_feature_detected!("avx") {
            loops.push(("256", super::stream_256));
        }
        if std::arch::is_x86_feature_detected!("avx512f") {
            loops.push(("512", super::stream_512));
        }
        for (name, stream) in loops {
            for blocks in [1, 2, 15] {
                let mut to = vec![0u8; 4096 + 64];
                let start = to.as_ptr().align_offset(64);
                // SAFETY: `to` has room for 16 blocks behind the first line, `from` for 16 behind 13 bytes.
                unsafe { stream(to.as_mut_ptr().add(start), from.as_ptr().add(13), blocks) };
                let end = start + blocks * 256;
                assert_eq!(to[start..end], from[13..13 + blocks * 256], "{name} {blocks}");
                assert!(to[..start].iter().chain(&to[end..]).all(|byte| *byte == 0), "{name} {blocks}");
            }
        }
    }
}
