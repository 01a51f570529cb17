//! Sizes are printed so that they are read back exactly.

use atoll_pages::Size;
use proptest::prelude::*;

proptest! {
    #[test]
    fn what_is_printed_is_read_back(
        bytes in prop_oneof![any::<u64>(), 0..1_u64 << 40, (0..1_u64 << 24).prop_map(|n| n << 20)],
    ) {
        prop_assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
    }

    #[test]
    fn nothing_written_is_a_trap(text in "[0-9.KMGTkmgt%é-]{0,24}") {
        let _ = text.parse::<Size>();
    }
}
