//! AMD's instruction-based sampling: decodes the registers that the kernel adds to a sample as raw data.
//!
//! The data is a word of capabilities, then IBS_OP_CTL, RIP, DATA, DATA2, DATA3, DC_LINADDR and DC_PHYSADDR, eight bytes each
//! (AMD64 Architecture Programmer's Manual, volume 2, section 13.3).

use atoll_record::profile::Access;

use super::operation::Operation;

const CAPABILITIES: usize = 4;

/// Decodes the raw data of one sample; returns `None` where it is too short.
pub fn decode(raw: &[u8]) -> Option<Operation> {
    let register = |i: usize| -> Option<u64> {
        let at = CAPABILITIES + 8 * i;
        raw.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
    };
    let (ip, data3) = (register(1)?, register(4)?);
    let bit = |n: u32| data3 >> n & 1 != 0;
    let access = match (bit(0), bit(1)) {
        // An operation that loads and stores counts as a write.
        (_, true) => Some(Access::Write),
        (true, false) => Some(Access::Read),
        (false, false) => None,
    };
    Some(Operation {
        ip,
        access,
        address: if bit(17) { Some(register(5)?) } else { None },
        physical: if bit(18) { Some(register(6)?) } else { None },
        latency: (data3 >> 32) as u16,
        timestamp: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A load that missed the first cache, as Zen 3 reports it.
    const LOAD: [u8; 60] = [
        0xff, 0x03, 0, 0, // capabilities
        0x90, 0x09, 0x06, 0, 0, 0, 0, 0, // IBS_OP_CTL
        0x5a, 0x13, 0x40, 0, 0, 0, 0, 0, // IBS_OP_RIP
        0x1e, 0, 0x22, 0, 0, 0, 0, 0, // IBS_OP_DATA
        0x02, 0, 0, 0, 0, 0, 0, 0, // IBS_OP_DATA2
        0x81, 0, 0x06, 0x04, 0x8c, 0, 0,
        0, // IBS_OP_DATA3: load, missed, both addresses known, 140 cycles
        0x40, 0x71, 0x5f, 0xf7, 0xff, 0x7f, 0, 0, // IBS_DC_LINADDR
        0x40, 0x71, 0x9a, 0x3b, 1, 0, 0, 0, // IBS_DC_PHYSADDR
    ];

    #[test]
    fn a_load_is_decoded_byte_for_byte() {
        let load = Operation {
            ip: 0x40135a,
            access: Some(Access::Read),
            address: Some(0x7fff_f75f_7140),
            physical: Some(0x1_3b9a_7140),
            latency: 140,
            timestamp: 0,
        };
        assert_eq!(decode(&LOAD), Some(load));
        let mut store = LOAD;
        store[36] = 2;
        store[38] = 2;
        let store = decode(&store).unwrap();
        assert_eq!((store.access, store.physical), (Some(Access::Write), None));
        let mut neither = LOAD;
        neither[36] = 0;
        assert_eq!(decode(&neither).unwrap().access, None);
        assert_eq!(decode(&LOAD[..43]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
        }
    }
}
