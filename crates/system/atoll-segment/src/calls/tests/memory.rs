//! Cases of calls about memory.

use super::*;

pub(super) fn brk(b: &mut Bench) {
    let start = b.call("brk", &[0]) as u64;
    assert_eq!(b.call("brk", &[start + 0x2000]) as u64, start + 0x2000);
    b.text(start + 0x1800, "dirt");
    b.call("brk", &[start + 0x1000]);
    b.call("brk", &[start + 0x2000]);
    assert_eq!(b.bytes(start + 0x1800, 4), [0; 4], "what is taken again is zeros");
    let limit = b.d.limit();
    assert_eq!(b.call("brk", &[limit]) as u64, start + 0x2000);
}
const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
fn anonymous(b: &mut Bench, len: u64) -> i64 {
    let name = if b.d.is_32() { "mmap2" } else { "mmap" };
    b.call(name, &[0, len, 3, ANONYMOUS, u64::MAX, 0])
}
fn map(b: &mut Bench, name: &str) {
    let at = b.call(name, &[0, 0x3000, 3, ANONYMOUS, u64::MAX, 0]) as u64;
    assert!(at > 0x20000 && at.is_multiple_of(4096));
    let fd = b.file("content");
    let file = b.call(name, &[0, 0x1000, 1, libc::MAP_PRIVATE as u64, fd, 0]) as u64;
    assert_eq!(b.bytes(file, 8), b"content\0");
    assert_eq!(b.call(name, &[0, 0x1000, 1, libc::MAP_SHARED as u64, fd, 0]), errno(libc::ENODEV));
    let fixed = ANONYMOUS | libc::MAP_FIXED as u64;
    assert_eq!(b.call(name, &[at, 0x1000, 3, fixed, u64::MAX, 0]) as u64, at);
    let limit = b.d.limit();
    assert_eq!(b.call(name, &[limit - 0x1000, 0x2000, 3, fixed, u64::MAX, 0]), errno(libc::ENOMEM));
    assert_eq!(b.call(name, &[0, 0, 3, ANONYMOUS, u64::MAX, 0]), errno(libc::EINVAL));
    assert_eq!(b.call(name, &[0, 0xffff_f000, 3, ANONYMOUS, u64::MAX, 0]), errno(libc::ENOMEM));
}
pub(super) fn mmap(b: &mut Bench) {
    map(b, "mmap");
}
pub(super) fn mmap2(b: &mut Bench) {
    map(b, "mmap2");
}
pub(super) fn old_mmap(b: &mut Bench) {
    b.d.window.write(B, [0_u32, 0x1000, 3, ANONYMOUS as u32, u32::MAX, 0]).unwrap();
    assert!(b.call("old_mmap", &[B]) > 0x20000);
    assert_eq!(b.call("old_mmap", &[0]), errno(libc::EFAULT));
}
pub(super) fn munmap(b: &mut Bench) {
    let at = anonymous(b, 0x2000) as u64;
    b.text(at, "dirt");
    assert_eq!(b.call("munmap", &[at, 0x2000]), 0);
    assert_eq!(anonymous(b, 0x2000) as u64, at);
    assert_eq!(b.bytes(at, 4), [0; 4]);
    assert_eq!(b.call("munmap", &[at + 1, 1]), errno(libc::EINVAL));
}
pub(super) fn mremap(b: &mut Bench) {
    let below = anonymous(b, 0x1000) as u64;
    let at = anonymous(b, 0x1000) as u64;
    b.text(at, "kept");
    let moved = b.call("mremap", &[at, 0x1000, 0x3000, libc::MREMAP_MAYMOVE as u64]) as u64;
    assert_ne!(moved, at);
    assert_eq!((b.bytes(moved, 4), b.bytes(at, 4)), (b"kept".to_vec(), vec![0; 4]));
    assert_eq!(b.call("mremap", &[moved, 0x3000, 0x1000, 0]) as u64, moved);
    assert_eq!(b.call("mremap", &[below, 0x9000, 0xa000, 0]), errno(libc::EFAULT));
}
pub(super) fn mprotect(b: &mut Bench) {
    assert_eq!(b.call("mprotect", &[A, 0x1000, 1]), 0);
    let limit = b.d.limit();
    assert_eq!(b.call("mprotect", &[limit, 0x1000, 1]), errno(libc::ENOMEM));
}
pub(super) fn madvise(b: &mut Bench) {
    let at = anonymous(b, 0x2000) as u64;
    b.text(at, "dirt");
    assert_eq!(b.call("madvise", &[at, 0x1000, libc::MADV_DONTNEED as u64]), 0);
    assert_eq!(b.bytes(at, 4), [0; 4]);
    assert_eq!(b.call("madvise", &[A, 0x1000, libc::MADV_DONTNEED as u64]), errno(libc::ENOMEM));
    assert_eq!(b.call("madvise", &[A, 0x1000, libc::MADV_HUGEPAGE as u64]), 0);
}
pub(super) fn mlock(b: &mut Bench) {
    assert_eq!(b.call("mlock", &[A, 0x1000]), 0);
}
pub(super) fn munlock(b: &mut Bench) {
    assert_eq!(b.call("munlock", &[0, 0x1000]), errno(libc::ENOMEM));
}
