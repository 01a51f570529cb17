//! Tests on the running process's own objects and code.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicU64, Ordering};

use atoll_code::link_map::differences;
use atoll_code::{Function, Handlers, Verdict, loaded};

static COUNT: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
extern "C" fn counts(by: u64) -> u64 {
    COUNT.fetch_add(by, Ordering::SeqCst)
}

/// The number at `a`; in assembly, because code that the compiler adds in tests to catch mistakes may print, under a lock.
#[unsafe(naked)]
extern "C" fn first(a: *const u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("mov rax, [rdi]", "ret");
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("ldr x0, [x0]", "ret");
}

#[inline(never)]
extern "C" fn copies(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller gives two stretches of `n` bytes.
    unsafe { libc::memcpy(to.cast(), from.cast(), n) };
}

#[test]
fn its_own_functions_have_their_verdicts() {
    let (mut to, from) = ([0u8; 4], [1u8; 4]);
    counts(1);
    copies(to.as_mut_ptr(), from.as_ptr(), to.len());
    assert_eq!(first([1, 2].as_ptr()), 1);
    let start = counts as *const () as u64;
    let symbols = [Function { start, end: start, name: Some("counts"), handlers: Handlers::None }];
    loaded::with_code(&symbols, |code| {
        let reach = code.reach(start);
        assert!(matches!(reach.verdict, Verdict::Atomic(_)), "{:?}", reach.verdict);
        assert!(
            code.sentence(&reach.findings[0]).starts_with("counts"),
            "{}",
            code.sentence(&reach.findings[0])
        );
        assert_eq!(code.reach(first as *const () as u64).verdict, Verdict::Plain);
        let copying = code.reach(copies as *const () as u64);
        assert_eq!(copying.verdict, Verdict::Plain, "{:?}", copying.calls);
        assert!(copying.calls.contains_key("memcpy"), "{:?}", copying.calls);
    })
    .unwrap();
}

#[test]
fn its_libraries_are_listed() {
    let mine = loaded::libraries();
    assert!(mine[0].name.is_empty(), "the program comes first");
    let libc = mine.iter().find(|library| library.title().starts_with("libc.so"));
    let libc = libc.expect("libc is loaded");
    assert!(libc.size > 1 << 20 && libc.base != 0);
    assert!(differences(&mine, &loaded::libraries()).is_empty());
    let mut theirs = mine.clone();
    theirs.retain(|library| library != libc);
    let found: Vec<String> = differences(&mine, &theirs).iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("libc.so.6 is loaded here"), "{found:?}");
}
