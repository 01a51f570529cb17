//! Arm's statistical profiling extension: decodes the packets that the processor writes to the second buffer.
//!
//! A record is a row of packets that ends with a time stamp or an end packet (Arm Architecture Reference Manual, chapter D18,
//! "Statistical Profiling Extension sample record specification").

use atoll_record::profile::Access;

use super::operation::Operation;

/// Returns the operations in a stretch of packets. Packets that are cut off at either end, and bytes that are no packet, are
/// passed over.
pub fn operations(bytes: &[u8]) -> impl Iterator<Item = Operation> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || record(&mut rest))
}

/// Returns the next whole record.
fn record(rest: &mut &[u8]) -> Option<Operation> {
    let mut operation = Operation::default();
    let mut any = false;
    loop {
        let (&head, after) = rest.split_first()?;
        *rest = after;
        match head {
            // Padding.
            0x00 => continue,
            // End of the record.
            0x01 => {
                if any {
                    return Some(operation);
                }
                continue;
            }
            _ => {}
        }
        // A head of two bytes has the rest of the packet's index in its first.
        let (head, index_high) = if head & 0xfc == 0x20 {
            let (&second, after) = rest.split_first()?;
            *rest = after;
            // A second byte of zeros aligns what follows.
            if second & 0x0f == 0 && second & 0xf0 == 0 {
                continue;
            }
            (second, (head & 3) << 3)
        } else {
            (head, 0)
        };
        let Some((payload, after)) = rest.split_at_checked(1 << (head >> 4 & 3)) else {
            *rest = &[];
            return None;
        };
        *rest = after;
        let value = payload.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
        match head {
            0x71 => {
                operation.timestamp = value;
                return Some(operation);
            }
            // Operation type: class 1 is load or store, whose lowest bit says which.
            head if head & 0xfc == 0x48 => {
                if head & 3 == 1 {
                    operation.access = Some(if value & 1 != 0 { Access::Write } else { Access::Read });
                }
                any = true;
            }
            head if head & 0xf8 == 0xb0 => {
                match head & 7 | index_high {
                    // The top byte says at which exception level the code ran.
                    0 => operation.ip = value & 0x00ff_ffff_ffff_ffff,
                    2 => operation.address = Some(without_tag(value)),
                    3 => operation.physical = Some(value & 0x00ff_ffff_ffff_ffff),
                    _ => {}
                }
                any = true;
            }
            // Counters: the first is the total latency.
            head if head & 0xf8 == 0x98 => {
                if head & 7 | index_high == 0 {
                    operation.latency = value as u16;
                }
                any = true;
            }
            // Events, data sources, contexts, and what comes later.
            _ => any = true,
        }
    }
}

/// Returns a virtual address as the program has it: the top byte is a tag, and bit 55 says whether it is in the kernel's half.
fn without_tag(address: u64) -> u64 {
    ((address << 8) as i64 >> 8) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A load that took 57 cycles, as a Neoverse N1 writes it, behind padding.
    const LOAD: [u8; 49] = [
        0, 0, // padding
        0xb0, 0x5a, 0x13, 0x40, 0, 0, 0, 0, 0x80, // pc 0x40135a, EL0
        0x99, 0x04, 0x00, // issue latency
        0x98, 0x39, 0x00, // total latency 57
        0x49, 0x00, // load
        0x52, 0x16, 0x00, // events
        0xb2, 0x40, 0x71, 0x5f, 0xf7, 0xff, 0xff, 0, 0x3c, // data address, with a tag
        0xb3, 0x40, 0x71, 0x9a, 0x3b, 1, 0, 0, 0x80, // physical address
        0x43, 0x08, // data source
        0x65, 7, 0, 0, 0,    // context 7
        0x01, // end
        0x00,
    ];

    #[test]
    fn a_load_is_decoded_byte_for_byte() {
        let load = Operation {
            ip: 0x40135a,
            access: Some(Access::Read),
            address: Some(0xffff_f75f_7140),
            physical: Some(0x1_3b9a_7140),
            latency: 57,
            timestamp: 0,
        };
        assert_eq!(operations(&LOAD).collect::<Vec<_>>(), [load]);
        let mut twice = LOAD.to_vec();
        // The second record is a store and ends by a time stamp; behind it is a record that is cut off.
        twice.extend_from_slice(&[
            0x49, 0x01, 0xb2, 8, 0, 0, 0, 0, 0, 0, 0, 0x71, 7, 0, 0, 0, 0, 0, 0, 0, 0xb0, 1,
        ]);
        let all: Vec<_> = operations(&twice).collect();
        let store =
            Operation { access: Some(Access::Write), address: Some(8), timestamp: 7, ..Default::default() };
        assert_eq!(all, [load, store]);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(operations(&bytes).count() <= bytes.len());
        }
    }
}
