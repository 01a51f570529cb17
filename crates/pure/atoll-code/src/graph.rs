//! The control flow of one function: blocks, loops as sets of blocks, and the definitions that reach an instruction.
//!
//! Made by `body`; `value` asks for definitions anywhere, `loops` for those within a loop.

use crate::isa::{Flow, Registers};
use crate::listing::Listing;
use crate::reach::Budget;

/// The number that stands for no instruction.
pub(crate) const NONE: u32 = u32::MAX;

/// A run of instructions that is entered at its first only.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The block's instructions.
    pub(crate) ins: Vec<u32>,
    /// All registers that they write.
    pub(crate) writes: Registers,
    pub(crate) next: Vec<u32>,
    pub(crate) before: Vec<u32>,
}

/// The blocks of a function, the first of which is its entry.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) blocks: Vec<Block>,
    /// The block of each instruction, and its place in the block.
    places: Vec<(u32, u32)>,
    /// Whether control can pass from each block to an end of the function other than a call that does not return.
    pub(crate) comes_to_an_end: Vec<bool>,
}

/// The instructions that may have produced the value that another reads.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    pub(crate) found: Vec<u32>,
    /// Whether the value may also come from outside the blocks examined.
    pub(crate) outside: bool,
}

impl Graph {
    /// Builds the blocks of these instructions, the first of which is the entry.
    pub(crate) fn new(ins: &Listing<'_>, jumps: &[(u32, u32)]) -> Graph {
        let mut leads = vec![false; ins.len()];
        let mut entries = vec![0u32; ins.len()];
        let mut jumping = vec![false; ins.len()];
        if let Some(first) = leads.first_mut() {
            *first = true;
        }
        for &(from, to) in jumps {
            leads[to as usize] = true;
            jumping[from as usize] = true;
        }
        for (at, one) in ins.iter().enumerate() {
            // A branch that leaves the function ends its block, too, though its jump is not known here.
            jumping[at] |= one.branches;
            if let Some(next) = ins.get(one.next as usize).map(|_| one.next as usize) {
                entries[next] += 1;
                leads[next] |= jumping[at] || entries[next] > 1;
            }
        }
        let mut blocks: Vec<Block> = Vec::new();
        let mut places = vec![(NONE, 0); ins.len()];
        for start in (0..ins.len()).filter(|&at| leads[at]) {
            let mut block = Block::default();
            let mut at = start;
            loop {
                places[at] = (blocks.len() as u32, block.ins.len() as u32);
                block.ins.push(at as u32);
                block.writes |= ins[at].access.writes;
                let next = ins[at].next as usize;
                if next >= ins.len() || leads[next] {
                    break;
                }
                at = next;
            }
            blocks.push(block);
        }
        let comes_to_an_end = vec![false; blocks.len()];
        let mut graph = Graph { blocks, places, comes_to_an_end };
        let falls = ins.iter().enumerate().map(|(at, one)| (at as u32, one.next));
        let edges: Vec<(u32, u32)> = falls
            .filter(|&(_, to)| (to as usize) < ins.len() && leads[to as usize])
            .chain(jumps.iter().copied())
            .map(|(from, to)| (graph.places[from as usize].0, graph.places[to as usize].0))
            .collect();
        for (from, to) in edges {
            // An instruction that no path reaches is in no block.
            if from == NONE || to == NONE || graph.blocks[from as usize].next.contains(&to) {
                continue;
            }
            graph.blocks[from as usize].next.push(to);
            graph.blocks[to as usize].before.push(from);
        }
        graph.find_ends(ins);
        graph
    }

    fn find_ends(&mut self, ins: &Listing<'_>) {
        let gives_up = |flow| matches!(flow, Flow::Call(_) | Flow::IndirectCall | Flow::Stop | Flow::System);
        let last = |block: &Block| block.ins.last().map(|&at| ins.instruction(at).flow);
        let ends = |block: &Block| block.next.is_empty() && !last(block).is_some_and(gives_up);
        let mut open: Vec<usize> = (0..self.blocks.len()).filter(|&at| ends(&self.blocks[at])).collect();
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut self.comes_to_an_end[at], true) {
                open.extend(self.blocks[at].before.iter().map(|&before| before as usize));
            }
        }
    }

    /// The block an instruction is in, and its place there.
    pub(crate) fn place(&self, ins: u32) -> (u32, u32) {
        self.places[ins as usize]
    }

    /// The last instructions for which `is` holds on each path to instruction `at`, within the marked blocks (all, if none are
    /// given). `may` skips blocks without such an instruction. `None` if the budget is used up.
    pub(crate) fn definitions(
        &self,
        within: Option<&[bool]>,
        at: u32,
        may: &dyn Fn(&Block) -> bool,
        is: &dyn Fn(u32) -> bool,
        budget: &mut Budget,
    ) -> Option<Definitions> {
        let mut result = Definitions::default();
        let (own, place) = self.place(at);
        if own == NONE {
            return Some(Definitions { outside: true, ..result });
        }
        let mut seen = vec![false; self.blocks.len()];
        let mut open: Vec<(u32, usize)> = vec![(own, place as usize)];
        while let Some((number, end)) = open.pop() {
            if !budget.step() {
                return None;
            }
            let block = &self.blocks[number as usize];
            if may(block) {
                let mut hit = None;
                for &ins in block.ins[..end].iter().rev() {
                    if !budget.step() {
                        return None;
                    }
                    if is(ins) {
                        hit = Some(ins);
                        break;
                    }
                }
                if let Some(ins) = hit {
                    if !result.found.contains(&ins) {
                        result.found.push(ins);
                    }
                    continue;
                }
            }
            result.outside |= number == 0;
            for &before in &block.before {
                if within.is_some_and(|marked| !marked[before as usize]) {
                    result.outside = true;
                } else if !std::mem::replace(&mut seen[before as usize], true) {
                    open.push((before, self.blocks[before as usize].ins.len()));
                }
            }
        }
        Some(result)
    }

    /// The sets of blocks among `nodes` that can reach each other; single blocks only if they lead to themselves.
    pub(crate) fn cycles(&self, nodes: &[u32], budget: &mut Budget) -> Option<Vec<Vec<u32>>> {
        const UNSEEN: u32 = u32::MAX;
        let count = self.blocks.len();
        let mut number = vec![UNSEEN; count];
        let mut low = vec![0u32; count];
        let mut member = vec![false; count];
        let mut on_stack = vec![false; count];
        for &node in nodes {
            member[node as usize] = true;
        }
        let (mut next_number, mut stack, mut found) = (0, Vec::new(), Vec::new());
        for &root in nodes {
            if number[root as usize] != UNSEEN {
                continue;
            }
            // Tarjan's algorithm; each entry is a block and the number of its edges taken.
            let mut path: Vec<(u32, usize)> = vec![(root, 0)];
            while let Some((node, edge)) = path.last_mut() {
                if !budget.step() {
                    return None;
                }
                let at = *node as usize;
                if *edge == 0 && number[at] == UNSEEN {
                    number[at] = next_number;
                    low[at] = next_number;
                    next_number += 1;
                    stack.push(*node);
                    on_stack[at] = true;
                }
                let next = self.blocks[at].next.get(*edge).map(|&to| to as usize);
                *edge += 1;
                match next {
                    Some(to) if !member[to] => {}
                    Some(to) if number[to] == UNSEEN => path.push((to as u32, 0)),
                    Some(to) if on_stack[to] => low[at] = low[at].min(number[to]),
                    Some(_) => {}
                    None => {
                        path.pop();
                        if let Some(&(parent, _)) = path.last() {
                            low[parent as usize] = low[parent as usize].min(low[at]);
                        }
                        if low[at] != number[at] {
                            continue;
                        }
                        let mut set = Vec::new();
                        while let Some(one) = stack.pop() {
                            on_stack[one as usize] = false;
                            set.push(one);
                            if one as usize == at {
                                break;
                            }
                        }
                        if set.len() > 1 || self.blocks[at].next.contains(&(at as u32)) {
                            found.push(set);
                        }
                    }
                }
            }
        }
        Some(found)
    }
}
