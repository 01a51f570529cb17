//! Encodes numbers in seven bits a byte, the lowest first; signed ones as zigzag.
//!
//! `sample` and `event` use it.

/// Appends a number.
pub(super) fn put(to: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        to.push(n as u8 | 0x80);
        n >>= 7;
    }
    to.push(n as u8);
}

/// Appends the step from `*last` to `n`, which becomes the last.
pub(super) fn put_step(to: &mut Vec<u8>, last: &mut u64, n: u64) {
    let step = n.wrapping_sub(*last) as i64;
    *last = n;
    put(to, ((step << 1) ^ (step >> 63)) as u64);
}

/// Takes a number off the front; returns `None` where there is none.
pub(super) fn take(from: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        n |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// Takes a step off the front that [`put_step`] appended.
pub(super) fn take_step(from: &mut &[u8], last: &mut u64) -> Option<u64> {
    let n = take(from)?;
    let step = (n >> 1) as i64 ^ -((n & 1) as i64);
    *last = last.wrapping_add(step as u64);
    Some(*last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers in proptest::collection::vec(any::<u64>(), 0..50)) {
            let (mut bytes, mut last) = (Vec::new(), 7);
            for &n in &numbers {
                put(&mut bytes, n);
                put_step(&mut bytes, &mut last, n);
            }
            let (mut rest, mut last) = (&*bytes, 7);
            for &n in &numbers {
                prop_assert_eq!(take(&mut rest), Some(n));
                prop_assert_eq!(take_step(&mut rest, &mut last), Some(n));
            }
            prop_assert_eq!(take(&mut rest), None);
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        assert_eq!(take(&mut &[0xff; 12][..]), None);
        assert_eq!(take(&mut &[0x80; 3][..]), None);
    }
}
