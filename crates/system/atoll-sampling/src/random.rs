//! Random numbers (xorshift64*). They need only not keep step with any program.
//!
//! The recorder changes periods by them, and `writes` chooses pages.

/// A sequence of random numbers.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Makes the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns the next number; `next_u64().trailing_zeros() < n` holds for all but one of 2^n.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number from 0 to 1, without 1.
    pub fn share(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number from 0 to `n`, without `n`; 0 for 0.
    pub fn below(&mut self, n: u64) -> u64 {
        (self.share() * n as f64) as u64
    }
}
