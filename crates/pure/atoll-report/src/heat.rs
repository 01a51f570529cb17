//! Heatmaps of address by time (the paper's Figures 4 and 5): of all memory, and of each hot variable, by worker too.
//!
//! This reads `cells`, and the page draws its result. Rows are equal pieces of the memory that was seen, with gaps of more than
//! a megabyte left out. A map holds a bounded number of entries, and gets coarser rather than larger.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::cells::{Cell, Cells};

/// The most rows of a map.
const ROWS: u64 = 192;
/// The most squares of a map for each of its samples.
const SQUARES_A_SAMPLE: u64 = 8;
/// The most squares of a map by worker that are counted, all workers together.
const SQUARES: u64 = 2 << 20;
/// The most workers shown apart; all others are shown as one.
pub(crate) const WORKERS: usize = 256;
/// The least bytes of a gap that is left out.
const GAP: u64 = 1 << 20;

/// One heatmap.
#[derive(Debug, Serialize)]
pub(crate) struct Map {
    /// The variable; `None`: all memory.
    pub(crate) variable: Option<u32>,
    /// The pieces of memory: for each the blocks before it, the first address in hexadecimal, and its blocks.
    pub(crate) pieces: Vec<(u64, String, u64)>,
    /// The bytes of a block.
    pub(crate) block_bytes: u64,
    /// The squares of all workers together.
    pub(crate) together: Grid,
    /// The squares of each worker; empty where there is one.
    pub(crate) apart: Grid,
    /// In the map of all memory: the variable seen most in each row.
    pub(crate) row_variables: Vec<Option<u32>>,
}

/// The squares of a map that have counts. They are numbered by worker, row, column and access (reads, then writes), the last
/// running fastest. Each entry is the distance from the square before and its count, both in seven bits a byte.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Grid {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    /// The number of blocks in a row.
    pub(crate) row_blocks: u64,
    pub(crate) squares: String,
}

/// Memory that was seen, without its gaps.
#[derive(Debug, Default)]
struct Layout {
    /// Space, first block, blocks, and blocks before it.
    pieces: Vec<(u32, u64, u64, u64)>,
    blocks: u64,
}

impl Layout {
    fn of(cells: impl Iterator<Item = (Cell, u32)>, block_bytes: u64) -> Self {
        let mut seen: Vec<(u32, u64)> = cells.map(|(cell, _)| (cell.space, cell.page)).collect();
        seen.dedup();
        seen.sort_unstable();
        let gap = (GAP / block_bytes).max(1);
        let mut layout = Self::default();
        for (space, block) in seen {
            match layout.pieces.last_mut() {
                Some((s, first, blocks, _)) if *s == space && block - *first < *blocks + gap => {
                    *blocks = (*blocks).max(block - *first + 1);
                }
                _ => layout.pieces.push((space, block, 1, 0)),
            }
        }
        for piece in &mut layout.pieces {
            piece.3 = layout.blocks;
            layout.blocks += piece.2;
        }
        layout
    }

    /// Returns the number of blocks before this one.
    fn place(&self, space: u32, block: u64) -> u64 {
        let behind = self.pieces.partition_point(|&(s, first, ..)| (s, first) <= (space, block));
        let Some(&(_, first, blocks, before)) = behind.checked_sub(1).and_then(|i| self.pieces.get(i)) else {
            return 0;
        };
        before + (block - first).min(blocks - 1)
    }
}

/// The numbers of workers in the maps: workers with most accesses have their own, and all others share the last.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lane_of: Vec<u32>,
    pub(crate) lanes: u32,
}

impl Lanes {
    /// Makes lanes from the accesses of each worker; workers without any have no lane of their own.
    pub(crate) fn of(accesses: &[u64]) -> Self {
        let mut busy: Vec<usize> = (0..accesses.len()).filter(|&w| accesses[w] > 0).collect();
        busy.sort_by_key(|&w| (std::cmp::Reverse(accesses[w]), w));
        let apart = if busy.len() > WORKERS { WORKERS - 1 } else { busy.len() };
        let mut own: Vec<usize> = busy[..apart].to_vec();
        own.sort_unstable();
        let mut lane_of = vec![apart as u32; accesses.len()];
        for (lane, &worker) in own.iter().enumerate() {
            lane_of[worker] = lane as u32;
        }
        let lanes = apart + usize::from(busy.len() > apart);
        Self { lane_of, lanes: lanes.max(1) as u32 }
    }

    fn lane(&self, worker: u32) -> u32 {
        self.lane_of.get(worker as usize).copied().unwrap_or(0).min(self.lanes - 1)
    }

    /// Returns the worker of each lane that belongs to one worker alone.
    pub(crate) fn workers(&self) -> Vec<Option<u32>> {
        let mut of = vec![None; self.lanes as usize];
        for (worker, &lane) in self.lane_of.iter().enumerate() {
            if let Some(slot) = of.get_mut(lane as usize) {
                *slot = Some(worker as u32);
            }
        }
        if self.lanes as usize == WORKERS
            && let Some(last) = of.last_mut()
        {
            *last = None;
        }
        of
    }
}

/// Makes the map of some cells, which are those of a variable in their order, with at most `most` entries.
pub(crate) fn map(
    variable: Option<u32>,
    cells: impl Iterator<Item = (Cell, u32)> + Clone,
    of: &Cells,
    lanes: &Lanes,
    most: usize,
) -> Map {
    let layout = Layout::of(cells.clone(), of.block_bytes);
    // Few samples in many squares are hard to see.
    let samples: u64 = cells.clone().map(|(_, n)| u64::from(n)).sum();
    let mut size = (ROWS, of.times);
    while size.0 * u64::from(size.1) > SQUARES_A_SAMPLE * samples && size.0 > 32 {
        if u64::from(size.1) > size.0 { size.1 /= 2 } else { size.0 /= 2 }
    }
    let together = grid(cells.clone(), &layout, of.times, None, size, most);
    let apart = if lanes.lanes > 1 {
        while size.0 > 8 && size.0 * u64::from(size.1) * 2 * u64::from(lanes.lanes) > SQUARES {
            size = (size.0 / 2, (size.1 / 2).max(8));
        }
        grid(cells.clone(), &layout, of.times, Some(lanes), size, most)
    } else {
        Grid::default()
    };
    let row_variables =
        if variable.is_none() { row_variables(cells, &layout, &together) } else { Vec::new() };
    let address = |block: u64| format!("{:x}", u128::from(block) * u128::from(of.block_bytes));
    let pieces =
        layout.pieces.iter().map(|&(_, first, blocks, before)| (before, address(first), blocks)).collect();
    Map { variable, pieces, block_bytes: of.block_bytes, together, apart, row_variables }
}

fn grid(
    cells: impl Iterator<Item = (Cell, u32)> + Clone,
    layout: &Layout,
    times: u32,
    lanes: Option<&Lanes>,
    (mut rows, mut columns): (u64, u32),
    most: usize,
) -> Grid {
    loop {
        let row_blocks = layout.blocks.div_ceil(rows).max(1);
        let real_rows = layout.blocks.div_ceil(row_blocks).max(1);
        let lane_count = lanes.map_or(1, |l| l.lanes) as usize;
        let row_squares = columns as usize * 2;
        let mut squares = vec![0u32; lane_count * real_rows as usize * row_squares];
        for (cell, n) in cells.clone() {
            let row = layout.place(cell.space, cell.page) / row_blocks;
            let column =
                (u64::from(cell.time) * u64::from(columns) / u64::from(times)).min(u64::from(columns) - 1);
            let lane = lanes.map_or(0, |l| l.lane(cell.worker)) as usize;
            let at = (lane * real_rows as usize + row as usize) * row_squares
                + column as usize * 2
                + usize::from(cell.write);
            squares[at] = squares[at].saturating_add(n);
        }
        if squares.iter().filter(|n| **n > 0).count() > most && (columns > 32 || rows > 16) {
            (rows, columns) = ((rows / 2).max(16), (columns / 2).max(32));
            continue;
        }
        return Grid { rows: real_rows as u32, columns, row_blocks, squares: pack(&squares) };
    }
}

fn row_variables(cells: impl Iterator<Item = (Cell, u32)>, layout: &Layout, grid: &Grid) -> Vec<Option<u32>> {
    let mut best: Vec<(Option<u32>, u64)> = vec![(None, 0); grid.rows as usize];
    let mut run: Option<((u64, u32), u64)> = None;
    let mut settle = |run: Option<((u64, u32), u64)>| {
        if let Some(((row, variable), n)) = run
            && let Some(slot) = best.get_mut(row as usize)
            && n > slot.1
        {
            *slot = ((variable != crate::cells::NOWHERE).then_some(variable), n);
        }
    };
    for (cell, n) in cells {
        let key = (layout.place(cell.space, cell.page) / grid.row_blocks, cell.variable);
        match &mut run {
            Some((last, sum)) if *last == key => *sum += u64::from(n),
            _ => {
                settle(run);
                run = Some((key, u64::from(n)));
            }
        }
    }
    settle(run);
    best.into_iter().map(|(variable, _)| variable).collect()
}

fn pack(squares: &[u32]) -> String {
    let mut bytes = Vec::new();
    let mut put = |mut n: u64| {
        while n >= 0x80 {
            bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        bytes.push(n as u8);
    };
    let mut next = 0;
    for (at, &n) in squares.iter().enumerate().filter(|(_, n)| **n > 0) {
        put((at - next) as u64);
        put(u64::from(n));
        next = at + 1;
    }
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(list: &[(u64, u32, u32, u32)]) -> Vec<(Cell, u32)> {
        let cell = |&(page, time, worker, n): &(u64, u32, u32, u32)| {
            (Cell { space: 0, variable: 1, page, time, worker, write: false }, n)
        };
        list.iter().map(cell).collect()
    }

    /// Returns the squares of a grid, with number and count.
    fn unpack(grid: &Grid) -> Vec<(u64, u64)> {
        let bytes = STANDARD.decode(&grid.squares).expect("base64");
        let (mut numbers, mut value, mut shift) = (Vec::new(), 0u64, 0);
        for byte in bytes {
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                numbers.push(value);
                (value, shift) = (0, 0);
            }
        }
        let mut next = 0;
        numbers
            .chunks(2)
            .map(|pair| {
                let at = next + pair[0];
                next = at + 1;
                (at, pair[1])
            })
            .collect()
    }

    #[test]
    fn a_gap_takes_no_rows() {
        let of = Cells::new(4096);
        let lanes = Lanes::of(&[5, 5]);
        let map = map(
            Some(1),
            cells(&[(10, 0, 0, 1), (11, 5, 1, 2), (1 << 40, 511, 0, 70_000)]).into_iter(),
            &of,
            &lanes,
            1000,
        );
        assert_eq!(map.pieces, [(0, "a000".into(), 2), (2, "10000000000000".into(), 1)]);
        assert_eq!((map.together.rows, map.together.columns), (3, 512));
        let at = |row: u64, column: u64| (row * 512 + column) * 2;
        assert_eq!(unpack(&map.together), [(at(0, 0), 1), (at(1, 5), 2), (at(2, 511), 70_000)]);
        let at = |lane: u64, row: u64, column: u64| ((lane * 3 + row) * 512 + column) * 2;
        assert_eq!(unpack(&map.apart), [(at(0, 0, 0), 1), (at(0, 2, 511), 70_000), (at(1, 1, 5), 2)]);
    }

    #[test]
    fn a_full_map_gets_coarser_and_loses_nothing() {
        let of = Cells::new(4096);
        let list: Vec<(u64, u32, u32, u32)> =
            (0..50_000).map(|i| (i / 50, (i % 50 * 10) as u32, 0, 1)).collect();
        let map = map(None, cells(&list).into_iter(), &of, &Lanes::of(&[1]), 2000);
        let squares = unpack(&map.together);
        assert!(squares.len() <= 2000, "{}", squares.len());
        assert_eq!(squares.iter().map(|s| s.1).sum::<u64>(), 50_000);
        assert_eq!(map.row_variables, vec![Some(1); map.together.rows as usize]);
    }

    #[test]
    fn the_least_busy_of_many_workers_share_a_lane() {
        let mut accesses = vec![1u64; 500];
        accesses[499] = 9;
        let lanes = Lanes::of(&accesses);
        assert_eq!(lanes.lanes as usize, WORKERS);
        assert_eq!(lanes.workers()[254], Some(499));
        assert_eq!(lanes.workers()[255], None);
        assert_eq!(Lanes::of(&[0, 0]).lanes, 1);
    }
}
