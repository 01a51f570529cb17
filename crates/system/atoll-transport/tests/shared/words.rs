//! Messages that any receiver can check: their length and bytes are random, made from their number, and they contain a
//! checksum.

/// A simple source of random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ self.0 >> 29;
        x.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ x >> 32
    }

    /// A length that is mostly short, and now and then many times the ring.
    pub(crate) fn length(&mut self) -> usize {
        let bits = self.next() % 15;
        (self.next() % (1 << bits)) as usize
    }
}

/// Makes the message with number `number`: its bytes are random and end in their checksum.
pub(crate) fn message(number: u64, bytes: &mut Vec<u8>) {
    let mut random = Random(number ^ 0x5bd1_e995);
    let length = random.length();
    bytes.clear();
    bytes.extend_from_slice(&number.to_le_bytes());
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length.max(8));
    let sum = sum(bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
}

fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Checks a message's checksum and returns its number.
pub(crate) fn check(bytes: &[u8]) -> u64 {
    let (body, end) = bytes.split_last_chunk::<8>().expect("a sum");
    assert_eq!(sum(body), u64::from_le_bytes(*end), "a message of {} bytes is damaged", bytes.len());
    u64::from_le_bytes(*body.first_chunk().expect("a number"))
}
