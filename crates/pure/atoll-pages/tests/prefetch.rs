//! What the prefetcher fetches on known walks.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::collections::HashSet;
use std::ops::RangeInclusive;

use atoll_pages::Prefetcher;
use atoll_pages::prefetch::Direction;
use proptest::prelude::*;

const ALL: RangeInclusive<u64> = 0..=u64::MAX;

/// Walks the pages in order, fetching what is asked for; the faults, and the size of the last window.
fn walk(prefetcher: &mut Prefetcher, pages: impl Iterator<Item = u64>) -> (usize, u32) {
    let (mut resident, mut faults, mut last) = (HashSet::new(), 0, 0);
    for page in pages {
        if !resident.contains(&page) {
            faults += 1;
            let window = prefetcher.fault(page, ALL);
            assert_eq!(window.pages().next(), Some(page));
            last = window.count;
            resident.extend(window.pages());
        }
    }
    (faults, last)
}

#[test]
fn a_sequential_walk_ends_at_one_fault_a_window() {
    let mut prefetcher = Prefetcher::new(64, 1 << 20);
    // Pages 0, 1, 2 (fetches 2), 4 (4), 8 (8), 16 (16), 32 (32), 64 (64), and 64 more each from there.
    let (faults, last) = walk(&mut prefetcher, 0..64 * 101);
    assert_eq!((faults, last), (7 + 100, 64));
}

#[test]
fn a_backward_walk_is_as_good_and_stops_at_page_0() {
    let mut prefetcher = Prefetcher::new(64, 1 << 20);
    let (faults, last) = walk(&mut prefetcher, (0..64 * 101).rev());
    assert_eq!((faults, last), (7 + 100, 64));
    let mut prefetcher = Prefetcher::new(64, 1 << 20);
    let windows: Vec<_> = [20, 19, 18, 16, 12, 4].map(|page| prefetcher.fault(page, ALL)).into();
    assert_eq!(windows.iter().map(|window| window.count).collect::<Vec<_>>(), [1, 1, 2, 4, 8, 5]);
    assert_eq!((windows[4].lowest(), windows[4].direction()), (5, Direction::Backward));
    assert_eq!(windows[5].lowest(), 0);
}

#[test]
fn random_pages_are_fetched_alone() {
    let mut prefetcher = Prefetcher::new(64, 1 << 20);
    let mut state = 1_u64;
    for _ in 0..100_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        assert_eq!(prefetcher.fault(state >> 40, ALL).count, 1);
    }
}

#[test]
fn random_pages_of_little_memory_fetch_little() {
    let mut prefetcher = Prefetcher::new(64, 1000);
    let (mut state, mut fetched) = (1_u64, 0);
    for _ in 0..100_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        fetched += prefetcher.fault((state >> 40) % 2000, ALL).count;
    }
    assert!(fetched < 120_000, "{fetched} pages for 100000 faults");
}

#[test]
fn sixteen_arrays_in_turn_are_all_followed() {
    for apart in [1_000_u64, 5_003] {
        let mut prefetcher = Prefetcher::new(64, 1 << 20);
        let pages = (0..960_u64).flat_map(|index| (0..16).map(move |array| array * apart + index));
        let (faults, _) = walk(&mut prefetcher, pages);
        // Seven faults to grow, then one for each 64 of the 896 other pages, in each array.
        assert_eq!(faults, 16 * (7 + 14));
    }
}

#[test]
fn strided_walks_fetch_their_own_pages_only() {
    for stride in [2_i64, 7, 64, -3, -64] {
        let mut prefetcher = Prefetcher::new(32, 1 << 20);
        let start = 1_000_000_u64;
        let mut last = 0;
        let mut page = start;
        for _ in 0..20 {
            let window = prefetcher.fault(page, ALL);
            assert!(window.pages().all(|page| (page as i64 - start as i64) % stride == 0));
            if window.count > 1 {
                assert_eq!(window.stride, stride);
            }
            last = window.count;
            page = window.pages().last().unwrap().wrapping_add_signed(stride);
        }
        assert_eq!(last, 32, "stride {stride}");
    }
}

/// Walks down a column of a matrix with rows of so many bytes; faults, and pages fetched that are not of the walk.
fn column(row: u64, rows: u64, column: u64, is_forward: bool) -> (usize, usize) {
    let mut prefetcher = Prefetcher::new(64, 1 << 20);
    let place = |index: u64| (if is_forward { index } else { rows - 1 - index }) * row + column;
    let walked: HashSet<u64> = (0..rows).map(|index| place(index) >> 12).collect();
    let (mut resident, mut faults) = (HashSet::new(), 0);
    for at in (0..rows).map(place) {
        if !resident.contains(&(at >> 12)) {
            faults += 1;
            let window = prefetcher.fault_at(at >> 12, (at & 4095) as u32, ALL);
            assert_eq!(window.pages().next(), Some(at >> 12));
            resident.extend(window.pages());
        }
    }
    (faults, resident.difference(&walked).count())
}

#[test]
fn rows_that_are_no_whole_number_of_pages_began_a_stream_anew_every_few_pages() {
    // Three or four faults, windows of 1, 2, 4 and so on, then one of 64 pages for each 64 rows.
    for (row, offset) in [(24_000, 0), (24_000, 7919 * 2), (8008, 16), (100_000, 4088), (6144, 0)] {
        for is_forward in [true, false] {
            let (faults, wasted) = column(row, 3000, offset, is_forward);
            assert!(faults < 60 && wasted <= 64, "{row} bytes: {faults} faults, {wasted} wasted");
        }
    }
}

#[test]
fn places_within_pages_do_not_disturb_strides_of_whole_pages() {
    let mut prefetcher = Prefetcher::new(64, 1 << 20);
    let (mut resident, mut faults) = (HashSet::new(), 0);
    for (page, part) in (0..1000_u64).map(|n| (n * 7, (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as u32)) {
        if !resident.contains(&page) {
            faults += 1;
            resident.extend(prefetcher.fault_at(page, part, ALL).pages());
        }
    }
    assert!(faults < 30, "{faults}");
}

#[test]
fn what_is_resident_already_does_not_end_a_stream() {
    let mut prefetcher = Prefetcher::new(16, 1 << 20);
    walk(&mut prefetcher, 0..128);
    // Another worker fetched the pages up to 134.
    let window = prefetcher.fault(135, ALL);
    assert_eq!((window.first, window.count), (135, 16));
}

#[test]
fn a_page_lost_before_its_use_halves_the_window() {
    let mut prefetcher = Prefetcher::new(16, 1 << 20);
    for page in [0, 1, 2, 4, 8] {
        prefetcher.fault(page, ALL);
    }
    assert_eq!(prefetcher.fault(16, ALL).count, 16);
    assert_eq!(prefetcher.fault(20, ALL).count, 8);
    assert_eq!(prefetcher.fault(22, ALL).count, 4);
    assert_eq!(prefetcher.fault(26, ALL).count, 8);
}

#[test]
fn a_window_cut_at_a_bound_goes_on_there() {
    let mut prefetcher = Prefetcher::new(64, 1 << 20);
    let mut faults = 0;
    let mut page = 0;
    // Pages are made ahead only within their block of 16.
    while page < 16 * 100 {
        let block = page / 16 * 16;
        page += u64::from(prefetcher.fault(page, block..=block + 15).count);
        faults += 1;
    }
    assert_eq!(faults, 5 + 99, "pages 0, 1, 2 (fetches 2), 4 (4), 8 (8), and 16 from there");
    assert_eq!(prefetcher.fault(7, 8..=15).count, 1, "a page out of bounds comes alone");
}

#[test]
fn the_ends_of_the_page_numbers_are_no_traps() {
    let mut prefetcher = Prefetcher::new(64, 1 << 20);
    for page in [u64::MAX - 3, u64::MAX - 2, u64::MAX - 1, u64::MAX, 0, 1, 2, u64::MAX, 0, u64::MAX / 2] {
        assert!(prefetcher.fault(page, ALL).count >= 1);
    }
    assert!(size_of::<Prefetcher>() <= 8192);
    assert_eq!(Prefetcher::new(0, 1 << 20).fault(3, ALL).count, 1);
}

proptest! {
    #[test]
    fn a_window_begins_with_the_fault_and_keeps_its_bounds(
        faults in prop::collection::vec(prop_oneof![0..300_u64, any::<u64>(), u64::MAX - 300..], 1..500),
        max in prop_oneof![0..100_u32, Just(u32::MAX)],
    ) {
        let mut prefetcher = Prefetcher::new(max, 1 << 20);
        for page in faults {
            let window = prefetcher.fault(page, ALL);
            prop_assert!(window.first == page && (1..=max.max(1)).contains(&window.count) && window.stride != 0);
            let after = i128::from(window.count - window.before) - 1;
            let last = i128::from(page) + i128::from(window.stride) * after;
            prop_assert!((0..=i128::from(u64::MAX)).contains(&last));
            let lowest = last.min(i128::from(page)) - i128::from(window.before);
            prop_assert_eq!(i128::from(window.lowest()), lowest);
            let pages: HashSet<u64> = window.pages().take(1000).collect();
            prop_assert!(pages.len() == window.count.min(1000) as usize && !pages.contains(&window.lowest().wrapping_sub(1)));
        }
    }
}
