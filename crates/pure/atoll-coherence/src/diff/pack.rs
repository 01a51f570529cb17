//! Packs chosen bytes of a word side by side, as a diff holds a word that changed in part.
//!
//! `diff` packs and spreads one word after the other. With BMI2 each is one instruction; the choice is made once for a page.

/// The operations that pack and spread bytes of words.
pub(super) trait Pack: Copy {
    /// The bytes of `word` where `bytes` is 0xff, from the lowest place on.
    fn pack(self, word: u64, bytes: u64) -> u64;
    /// The lowest bytes of `packed`, put where `bytes` is 0xff; 0 elsewhere.
    fn spread(self, packed: u64, bytes: u64) -> u64;
}

/// Packs byte by byte, on every processor.
#[derive(Clone, Copy)]
pub(super) struct Plain;

impl Pack for Plain {
    #[inline(always)]
    fn pack(self, word: u64, bytes: u64) -> u64 {
        places(bytes).zip(0_u32..).fold(0, |packed, (from, to)| packed | (word >> from & 0xff) << (8 * to))
    }

    #[inline(always)]
    fn spread(self, packed: u64, bytes: u64) -> u64 {
        places(bytes).zip(0_u32..).fold(0, |word, (to, from)| word | (packed >> (8 * from) & 0xff) << to)
    }
}

/// The positions in bits of the bytes that are 0xff, ascending.
#[inline(always)]
fn places(bytes: u64) -> impl Iterator<Item = u32> {
    let mut left = bytes & LOWEST;
    std::iter::from_fn(move || {
        let at = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (at < u64::BITS).then_some(at)
    })
}

/// A word with the lowest bit of each byte set.
const LOWEST: u64 = 0x0101_0101_0101_0101;

/// 0xff in each byte whose bit is set in `mask`.
#[inline(always)]
pub(super) fn expand(mask: u8) -> u64 {
    // Moves bit i to the lowest bit of byte i: seven bits by one product, in which they do not meet, and then the last.
    let low = u64::from(mask & 0x7f).wrapping_mul(0x0002_0408_1020_4081) & LOWEST;
    (low | u64::from(mask >> 7) << 56) * 0xff
}

/// Whether a byte of the word is 0.
#[inline(always)]
pub(super) fn has_zero(word: u64) -> bool {
    word.wrapping_sub(LOWEST) & !word & LOWEST << 7 != 0
}

/// Packs by BMI2.
#[cfg(target_arch = "x86_64")]
pub(super) mod bmi2 {
    use super::Pack;

    /// A value that exists only where the processor has BMI2.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Bmi2(());

    impl Bmi2 {
        /// The value, if the processor has BMI2.
        #[inline]
        pub(in super::super) fn here() -> Option<Bmi2> {
            std::arch::is_x86_feature_detected!("bmi2").then_some(Bmi2(()))
        }
    }

    impl Pack for Bmi2 {
        #[inline(always)]
        fn pack(self, word: u64, bytes: u64) -> u64 {
            // SAFETY: the value exists only where the processor has the instruction.
            unsafe { std::arch::x86_64::_pext_u64(word, bytes) }
        }

        #[inline(always)]
        fn spread(self, packed: u64, bytes: u64) -> u64 {
            // SAFETY: as above.
            unsafe { std::arch::x86_64::_pdep_u64(packed, bytes) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pack: impl Pack) {
        let word = u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
        for mask in 0..=u8::MAX {
            let bytes = expand(mask);
            let chosen: Vec<u8> = (0..8).filter(|at| mask >> at & 1 != 0).map(|at| at + 1).collect();
            let packed = pack.pack(word, bytes);
            assert_eq!(&packed.to_le_bytes()[..chosen.len()], &chosen, "{mask:#x}");
            assert_eq!(pack.spread(packed, bytes), word & bytes, "{mask:#x}");
        }
    }

    #[test]
    fn bytes_are_packed_and_spread_by_every_way() {
        check(Plain);
        #[cfg(target_arch = "x86_64")]
        if let Some(bmi2) = bmi2::Bmi2::here() {
            check(bmi2);
        }
    }

    #[test]
    fn a_zero_byte_is_found() {
        for at in 0..8 {
            assert!(has_zero(!(0xff << (8 * at))));
            assert!(has_zero(LOWEST & !(0xff << (8 * at))));
        }
        assert!(!has_zero(LOWEST) && !has_zero(u64::MAX) && !has_zero(LOWEST << 7));
    }
}
