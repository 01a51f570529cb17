//! Programs that end well: what all nodes wrote is what one process computes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use atoll_memory::control::NodeCount;
use atoll_nodes::region::SinglePhases;
use atoll_nodes::{ask, calls, futexes};

use crate::nodes::{Setup, run, seed};
use crate::program::{Array, COUNT, ENDED, FREED, HEARD, LATE, Loop, Node, PAGE, Part, RAISED, Words};

/// Nodes are busy, machines are slow: this is for what hangs.
const LIMIT: Duration = Duration::from_secs(100);

/// All of them by name.
pub(crate) const ALL: &[(&str, fn())] = &[
    ("loops_with_one_writer", || on_any_number(|node| loops(node, false))),
    ("loops_with_many_writers", || on_any_number(|node| loops(node, true))),
    ("arrays_that_are_filled_where_they_are_used", || on_any_number(fills)),
    ("random_accesses", || on_any_number(random_accesses)),
    ("random_accesses_over_a_bad_way", || {
        well(Setup { bad_way: true, ..Setup::of(3) }, random_accesses);
    }),
    ("random_accesses_in_little_near_memory", || {
        well(Setup { near: Some(NEAR), ..Setup::of(2) }, random_accesses_of_much);
    }),
    ("additions_under_a_lock", || on_any_number(additions_under_a_lock)),
    ("atomic_additions_with_one_writer", || on_any_number(atomic_additions)),
    ("one_node_wakes_another", || well(Setup::of(3), wakes)),
    ("what_the_origin_has_for_all", || well(Setup::of(3), services)),
    ("words_that_two_nodes_write", || well(Setup { check_races: true, ..Setup::of(2) }, races)),
];

/// Near memory of a node that has less than the program's data.
const NEAR: u64 = 8 << 20;

fn well(setup: Setup, main: fn(&Node)) {
    let ends = run(setup, LIMIT, main);
    assert!(ends.iter().all(|end| *end == 0), "{ends:?}");
}

fn on_any_number(main: fn(&Node)) {
    (2..=4).for_each(|nodes| well(Setup::of(nodes), main));
}

/// What a random number becomes next.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

fn plain(part: Part, seed: u64, many: bool) -> Loop {
    Loop { part, seed, many, phases: SinglePhases::NONE }
}

/// Compares the arena's words with those of `expected`.
fn compare(found: &Array, expected: &Vec<u64>) {
    let differs = (0..expected.len()).find(|at| found.get(*at) != expected.get(*at));
    if let Some(at) = differs {
        panic!("word {at} is {:#x} and not {:#x}", found.get(at), expected.get(at));
    }
}

/// Words of the loops' array.
const WORDS: usize = 24 * PAGE;

/// One node's part of a loop over all words: each becomes what its neighbour's value of the phase before makes of it. Every other run
/// deals words out in turns, so that every page has many writers.
fn sweep(words: &mut impl Words, seed: u64, (me, nodes): (u32, u32), pass: u32) {
    let from = if pass == 0 { 0 } else { WORDS / 2 };
    let to = WORDS / 2 - from;
    for at in 0..WORDS / 2 {
        let turn = if seed.is_multiple_of(2) { at } else { at * nodes as usize / (WORDS / 2) };
        if turn % nodes as usize == me as usize {
            let value = words.get(from + (at + seed as usize) % (WORDS / 2));
            words.set(to + at, mix(value ^ seed));
        }
    }
}

fn loop_part(node: &Node, seed: u64) {
    let mut array = node.array(WORDS);
    for pass in 0..2 {
        if pass != 0 {
            ask::barrier(100, false);
        }
        sweep(&mut array, seed, (node.me, node.nodes), pass);
    }
}

fn loops(node: &Node, many: bool) {
    let (mut expected, array) = (vec![0; WORDS], node.array(WORDS));
    for run in 0..9 {
        node.region(plain(loop_part, run, many));
        for pass in 0..2 {
            (0..node.nodes).for_each(|other| sweep(&mut expected, run, (other, node.nodes), pass));
        }
        // Now and then: a node that reads all is one more that has copies.
        if run % 4 == 0 {
            compare(&array, &expected);
        }
    }
    compare(&array, &expected);
    assert_eq!(ENDED.load(Ordering::Relaxed), 9 * (node.nodes - 1));
    node.end();
    let counted = |count| node.control.nodes.iter().map(|node| node.get(count)).sum::<u64>();
    // The program may end while other nodes still wait for the differences of its last barrier.
    let all = 18 * u64::from(node.nodes);
    assert!((all - u64::from(node.nodes - 1)..=all).contains(&counted(NodeCount::Barriers)));
    assert_eq!(many, counted(NodeCount::Twins) > 0);
}

/// One node's part of the first stores into an array: whole pages.
fn fill_part(node: &Node, seed: u64) {
    let mut array = node.array(WORDS);
    let part = |node: usize, nodes: usize| WORDS / PAGE * node / nodes * PAGE;
    let (me, nodes) = (node.me as usize, node.nodes as usize);
    (part(me, nodes)..part(me + 1, nodes)).for_each(|at| array.set(at, mix(seed ^ at as u64)));
}

/// No page is sent that nobody has used before: there are no copies to write beside, but for those of pages fetched as the ones before.
fn fills(node: &Node) {
    let array = node.array(WORDS);
    node.region(plain(fill_part, 7, true));
    let expected: Vec<u64> = (0..WORDS).map(|at| mix(7 ^ at as u64)).collect();
    compare(&array, &expected);
    node.end();
    let twins: u64 = node.control.nodes.iter().map(|node| node.get(NodeCount::Twins)).sum();
    assert!(twins <= 4 * u64::from(node.nodes), "{twins}");
}

/// Phases of a region of random accesses, each with the site of the barrier before.
const PHASES: u64 = 3;
const SITES: [u64; PHASES as usize] = [11, 22, 33];

/// One node's random accesses in one phase. Each word belongs to one node, which writes it, or to none, and is read by all.
fn access(words: &mut impl Words, count: usize, (seed, phase): (u64, u64), (me, nodes): (u32, u32)) {
    let owner = |at: usize| mix(seed ^ phase << 32 ^ (at as u64) << 40) % (u64::from(nodes) + 1);
    let mut random = mix(seed ^ phase << 8 ^ u64::from(me) << 16);
    let mut sum = random;
    for _ in 0..400 {
        random = mix(random);
        let at = random as usize % count;
        let owner = owner(at);
        if owner == u64::from(me) {
            words.set(at, mix(words.get(at) ^ sum));
        } else if owner == u64::from(nodes) {
            sum = mix(sum ^ words.get(at));
        }
    }
}

/// Words that random accesses go to.
const FEW: usize = 16 * PAGE;

fn access_part(node: &Node, seed: u64) {
    for phase in 0..PHASES {
        if phase != 0 {
            ask::barrier(SITES[phase as usize] as usize, false);
        }
        access(&mut node.array(FEW), FEW, (seed, phase), (node.me, node.nodes));
    }
}

fn random_accesses(node: &Node) {
    let (mut expected, first) = (vec![0; FEW], seed() * 1000);
    for run in first..first + 10 {
        let random = mix(run);
        let begin = access_part as Part as usize as u64;
        let single = [begin, SITES[1], SITES[2]].into_iter().zip([random & 2, random & 4, random & 8]);
        let single: Vec<_> = single.map(|(begin, single)| (begin, single != 0)).collect();
        let phases = SinglePhases::of(single.into_iter());
        let many = random & 1 != 0 && phases.is_some();
        node.region(Loop {
            part: access_part,
            seed: run,
            many,
            phases: phases.unwrap_or(SinglePhases::NONE),
        });
        for phase in 0..PHASES {
            (0..node.nodes).for_each(|other| access(&mut expected, FEW, (run, phase), (other, node.nodes)));
        }
    }
    compare(&node.array(FEW), &expected);
}

/// Words of more pages than near memory has.
const MUCH: usize = 2 * NEAR as usize / 8;

fn access_much(node: &Node, seed: u64) {
    access(&mut node.array(MUCH), MUCH, (seed, 0), (node.me, node.nodes));
}

/// Writes one word of each page of the node's part.
fn touch_much(node: &Node, seed: u64) {
    let mut array = node.array(MUCH);
    for page in (0..MUCH / PAGE).filter(|page| page % node.nodes as usize == node.me as usize) {
        array.set(page * PAGE, mix(seed ^ page as u64));
    }
}

fn random_accesses_of_much(node: &Node) {
    let mut expected = vec![0; MUCH];
    node.region(plain(touch_much, 1, true));
    (0..MUCH / PAGE).for_each(|page| expected[page * PAGE] = mix(1 ^ page as u64));
    for run in 0..6 {
        node.region(plain(access_much, run, run % 2 == 0));
        (0..node.nodes).for_each(|other| access(&mut expected, MUCH, (run, 0), (other, node.nodes)));
    }
    compare(&node.array(MUCH), &expected);
    let figures = &node.control.figures;
    let evicted = |of: fn(&atoll_memory::control::Figures) -> &AtomicU64| -> u64 {
        figures.iter().map(|figures| of(figures).load(Ordering::Relaxed)).sum()
    };
    assert!(evicted(|figures| &figures.evictions_dirty) + evicted(|figures| &figures.evictions_clean) > 0);
}

const ADDITIONS: u64 = 60;

fn add_under_a_lock(node: &Node, lock: u64) {
    let mut array = node.array(2 * PAGE);
    for turn in 0..ADDITIONS {
        if turn % 7 == 0 {
            while !ask::try_lock(lock as usize) {}
        } else {
            ask::lock(lock as usize);
        }
        // Two words on pages of different nodes, which always are the same.
        let value = array.get(0);
        assert_eq!(value, array.get(PAGE));
        array.set(0, value + 1);
        array.set(PAGE, value + 1);
        ask::unlock(lock as usize);
    }
}

fn additions_under_a_lock(node: &Node) {
    for lock in [4096, 77] {
        node.region(plain(add_under_a_lock, lock, false));
    }
    assert_eq!(node.array(2 * PAGE).get(PAGE), 2 * ADDITIONS * u64::from(node.nodes));
}

fn add_atomically(node: &Node, _: u64) {
    for turn in 0..ADDITIONS as usize {
        // SAFETY: a word of the arena, aligned, which all use so.
        let word = unsafe { AtomicU64::from_ptr(node.array(2 * PAGE).word(turn % 3 * 5)) };
        word.fetch_add(1, Ordering::Relaxed);
    }
}

fn atomic_additions(node: &Node) {
    (0..3).for_each(|seed| node.region(plain(add_atomically, seed, false)));
    let array = node.array(2 * PAGE);
    let each = 3 * ADDITIONS / 3 * u64::from(node.nodes);
    assert_eq!([0, 5, 10].map(|at| array.get(at)), [each; 3]);
}

/// Node 0 waits for a word that the last node changes, who waits for node 1.
fn wake_in_turn(node: &Node, _: u64) {
    // SAFETY: words of the arena, aligned, which all use so.
    let word = |at: usize| unsafe { AtomicU32::from_ptr(node.array(2 * PAGE).word(at).cast()) };
    let (before, mine) = (word(node.me as usize * 8), word((node.me + 1) as usize % node.nodes as usize * 8));
    if node.me != 1 {
        while before.load(Ordering::Acquire) == 0 {
            futexes::wait(before, 0, 1, None);
        }
    }
    mine.store(1, Ordering::Release);
    futexes::wake(mine, 1, u32::MAX);
    if node.me == 1 {
        let word = word(PAGE);
        let slept = futexes::wait(word, 0, 1, Some(Duration::from_millis(3)));
        assert_eq!(slept, futexes::Slept::TimeOver);
        assert_eq!(futexes::wait(word, 1, 1, None), futexes::Slept::Changed);
    }
}

fn wakes(node: &Node) {
    node.region(plain(wake_in_turn, 0, false));
}

/// Each node asks the origin for all it has.
fn ask_for_all(node: &Node, published: u64) {
    assert_eq!(ask::program(COUNT, [1, 0, 0])[1], node.me.into());
    assert_eq!(ask::program(LATE, [0; 3]), [7, node.me.into()]);
    if node.me == 0 {
        ask::publish(published);
    } else {
        assert!(HEARD.load(Ordering::Relaxed) > 0);
        ask::free((node.me as usize) << 12, 0);
        ask::raise(12);
    }
    let reply = calls::call((node.me + 1) % node.nodes, [1, 2, 3, node.me.into()], b"abc");
    assert_eq!((reply.result, reply.errno), (6 + i64::from(node.me), 3));
    assert_eq!(reply.bytes, b"cba");
    ask::barrier(5, false);
    assert_eq!(ask::published(), published);
}

fn services(node: &Node) {
    for published in [99, 98] {
        node.region(plain(ask_for_all, published, false));
    }
    assert_eq!(ask::program(COUNT, [0; 3])[0], 2 * u64::from(node.nodes));
    assert_eq!(FREED.load(Ordering::Relaxed), (2 * (1 + 2)) << 12);
    assert_eq!(RAISED.load(Ordering::Relaxed), 12 * 2 + 1);
}

/// All nodes write the third word, and each a word of its own.
fn write_the_same(node: &Node, seed: u64) {
    let mut array = node.array(2 * PAGE);
    array.set(3, mix(seed ^ u64::from(node.me)));
    array.set(10 + node.me as usize, 1);
}

fn races(node: &Node) {
    node.region(plain(write_the_same, 7, true));
    let code = write_the_same as Part as usize as u64;
    let found = node.control.races.all.iter().filter(|race| race.function.load(Ordering::Relaxed) == code);
    let found: Vec<_> = found
        .map(|race| (race.address.load(Ordering::Relaxed), race.nodes.load(Ordering::Relaxed)))
        .collect();
    assert_eq!(found, [(node.array(2 * PAGE).word(3) as u64, 0b11)]);
}
