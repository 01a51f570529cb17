//! Pages of near memory for the suite, with contents that are known by a kind and a number.

use atoll_memory::far::Transfer;

/// Kinds of contents: zeros, equal words, numbers that shrink well, random ones, and mixtures.
pub(crate) const KINDS: u64 = 6;

/// Page-aligned memory of a number of pages, shared with forked children.
pub(crate) struct Near {
    base: *mut u8,
    page_size: usize,
    pages: usize,
}

// SAFETY: an address range; tests give each page to one thread or child at a time.
unsafe impl Sync for Near {}

impl Near {
    pub(crate) fn new(pages: usize, page_size: usize) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), pages * page_size, access, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self { base: base.cast(), page_size, pages }
    }

    pub(crate) fn at(&self, i: usize) -> *mut u8 {
        assert!(i < self.pages);
        // SAFETY: inside the mapping.
        unsafe { self.base.add(i * self.page_size) }
    }

    pub(crate) fn word(&self, i: usize, n: usize) -> *mut u64 {
        assert!(n < self.page_size / 8);
        // SAFETY: inside page i.
        unsafe { self.at(i).cast::<u64>().add(n) }
    }

    pub(crate) fn transfer(&self, page: u64, i: usize) -> Transfer {
        // SAFETY: page i of the mapping is aligned and valid.
        unsafe { Transfer::new(page, self.at(i)) }
    }

    pub(crate) fn fill(&self, i: usize, kind: u64, seed: u64) {
        for n in 0..self.page_size / 8 {
            // SAFETY: a word of a page that one test or child uses at a time.
            unsafe { self.word(i, n).write(word(kind, seed, n as u64)) };
        }
    }

    pub(crate) fn is(&self, i: usize, kind: u64, seed: u64) -> bool {
        // SAFETY: as above.
        (0..self.page_size / 8).all(|n| unsafe { self.word(i, n).read() } == word(kind, seed, n as u64))
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        // SAFETY: our mapping.
        unsafe { libc::munmap(self.base.cast(), self.pages * self.page_size) };
    }
}

pub(crate) fn mix(seed: u64) -> u64 {
    let x = (seed ^ seed >> 30).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Word `i` of a page of one of the kinds; pages of different seeds differ unless they are zero.
pub(crate) fn word(kind: u64, seed: u64, i: u64) -> u64 {
    match kind % KINDS {
        0 => 0,
        1 => seed + 1,
        2 => (1.0 + seed as f64 + (i / 8) as f64 / 4096.0).to_bits(),
        3 => mix(mix(seed) ^ i),
        4 if i.is_multiple_of(2) => mix(mix(seed) ^ i) & 0xff,
        4 => seed,
        _ => (seed << 32) | (i / 7),
    }
}
