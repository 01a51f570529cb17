//! Generated programs: all short ones of two nodes, and random ones of three.

use atoll_coherence::agent::{Layout, Mode};

use crate::memory::WORDS;
use crate::programs::{Program, Step};

/// A generator of numbers in a fixed order.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Keeps a program for as long as the tests run, which the checker asks of a model.
fn keep(name: &str, layout: Layout, pages: u64, nodes: Vec<Vec<Step>>) -> &'static Program {
    let nodes: Vec<&'static [Step]> = nodes.into_iter().map(|steps| &*steps.leak()).collect();
    let name: &'static str = name.to_owned().leak();
    Box::leak(Box::new(Program { name, layout, pages, nodes: nodes.leak() }))
}

/// Every program of two nodes with two pages and two steps each, of one writer at a time.
pub(crate) fn all_short() -> impl Iterator<Item = &'static Program> {
    let step = |code: usize, value: u8| match code {
        0 | 1 => Step::Read(code as u64, 0),
        _ => Step::Write(code as u64 - 2, 0, value),
    };
    (0..256).map(move |code: usize| {
        let digit = |at: u32| code / 4_usize.pow(at) % 4;
        let nodes =
            vec![vec![step(digit(0), 1), step(digit(1), 2)], vec![step(digit(2), 3), step(digit(3), 4)]];
        keep("all of two steps", Layout::new(2, 0, 1), 2, nodes)
    })
}

/// Random programs of three nodes with two steps each, of one writer at a time.
pub(crate) fn racing(count: usize) -> impl Iterator<Item = &'static Program> {
    let mut numbers = Numbers(1);
    (0..count).map(move |number| {
        let mut value = 0;
        let mut steps = |_| {
            let mut step = || {
                value += 1;
                let page = numbers.below(2) as u64;
                if numbers.below(2) == 0 { Step::Read(page, 0) } else { Step::Write(page, 0, value) }
            };
            vec![step(), step()]
        };
        let nodes = (0..3).map(&mut steps).collect();
        let layout = Layout::new(3, (number % 3) as u8, number as u64 % 2);
        keep("random, one writer", layout, 2, nodes)
    })
}

/// Random programs of two or three nodes in which threads that are at no barrier read and write words that nobody else uses in
/// the phases before and after it.
pub(crate) fn late(count: usize) -> impl Iterator<Item = &'static Program> {
    let mut numbers = Numbers(3);
    (0..count).map(move |number| {
        let nodes = 2 + number as u8 % 2;
        let all = usize::from(nodes);
        let mut steps = vec![Vec::new(); all];
        let mut value = 0;
        for (page, word) in [(0, 0), (0, 1)] {
            if numbers.below(2) == 0 {
                value += 1;
                steps[numbers.below(all)].push(Step::Write(page, word, value));
            }
        }
        // Word 0 is the late threads', word 1 the others'.
        for mode in [Mode::ManyWriters, [Mode::OneWriter, Mode::ManyWriters][number / 2 % 2]] {
            let writes = numbers.below(2) == 0;
            let (late, other) = (numbers.below(all), numbers.below(all));
            for (node, steps) in steps.iter_mut().enumerate() {
                // Two barriers, as a late access may come before one of them.
                steps.extend([Step::Barrier(Mode::ManyWriters), Step::Barrier(mode)]);
                if node == late {
                    value += 1;
                    steps.push(Step::Late(0, 0, writes.then_some(value)));
                }
                if node == other {
                    value += 1;
                    steps.push(Step::Write(0, 1, value));
                }
            }
        }
        let last = numbers.below(all);
        for (node, steps) in steps.iter_mut().enumerate() {
            steps.push(Step::Barrier(Mode::OneWriter));
            steps.extend((node == last).then_some(Step::Read(0, 1)));
            steps.extend([Step::Barrier(Mode::OneWriter), Step::Read(0, 0)]);
        }
        let mut layout = Layout::new(nodes, number as u8 % nodes, 0);
        layout.reclaim = (0, number as u64 / 4 % 2);
        layout.watched = number % 5 == 4;
        keep("random, late threads", layout, 1, steps)
    })
}

/// Random programs of three nodes without races: in each of two regions of many writers each word has at most one writer, and
/// no other node reads it; at the end every node reads something.
pub(crate) fn in_regions(count: usize) -> impl Iterator<Item = &'static Program> {
    let mut numbers = Numbers(2);
    (0..count).map(move |number| {
        let pages = 1 + number as u64 % 2;
        let mut nodes = vec![Vec::new(); 3];
        let mut value = 0;
        for _ in 0..2 {
            nodes.iter_mut().for_each(|steps| steps.push(Step::Barrier(Mode::ManyWriters)));
            for page in 0..pages {
                for word in 0..WORDS {
                    match numbers.below(5) {
                        writer @ 0..3 => {
                            value += 1;
                            nodes[writer].push(Step::Write(page, word, value));
                        }
                        // Nobody writes the word, so any node may read it.
                        3 => nodes[numbers.below(3)].push(Step::Read(page, word)),
                        _ => {}
                    }
                }
            }
        }
        for steps in &mut nodes {
            steps.push(Step::Barrier(Mode::OneWriter));
            steps.push(Step::Read(numbers.below(pages as usize) as u64, numbers.below(WORDS)));
        }
        let mut layout = Layout::new(3, (number % 3) as u8, number as u64 / 2 % 2);
        // In some, the first page is taken back at each barrier; in some, another node has pages at first.
        layout.reclaim = (0, number as u64 % 2);
        layout.areas[1].each = u64::from(number % 4 == 3);
        // In some, races are looked for.
        layout.watched = number % 5 < 2;
        keep("random, many writers", layout, pages, nodes)
    })
}
