//! The phases of a function: the findings and calls that can come between one barrier that it calls and the next.
//!
//! Used by `reach`, for the function that it is asked for. A region that synchronises only behind its last barrier, as a
//! reduction does, can run under another protocol until there.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::body::{Body, Callee};
use crate::finding::{Finding, Kind};
use crate::input::Handlers;
use crate::reach::Code;

/// The entry points whose calls begin phases.
const BARRIERS: [&str; 2] = ["GOMP_barrier", "__kmpc_barrier"];

/// What can happen from one place until the next barrier or the function's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// The address to which a barrier returns; for the first phase, the function's first instruction.
    pub begin: u64,
    /// All findings, by address.
    pub findings: Vec<Finding>,
    /// The names of the known library entry points called.
    pub calls: BTreeSet<String>,
}

/// The phases of the first of these functions, which can reach the others and has these `findings`. `None` if another one calls
/// the barrier, or something may be thrown, since the order is then unknown.
///
/// Workers that come from one phase may meet at different calls of the barrier, for instance where a compiler doubled the code
/// around it: the next phases of all of them then count as one.
pub(crate) fn phases(
    code: &Code<'_>,
    bodies: &[Body<'_>],
    index: &HashMap<u64, usize>,
    findings: &[Finding],
) -> Option<Vec<Phase>> {
    let (first, others) = bodies.split_first()?;
    let start = first.ins.first()?.ip;
    let is_barrier =
        |callee: &Callee<'_>| matches!(callee, Callee::Known(name, _) if BARRIERS.contains(name));
    let calls_barrier = |body: &Body<'_>| body.calls.iter().any(|call| is_barrier(&call.callee));
    let throws = code.function(start).is_none_or(|function| function.handlers != Handlers::None);
    if throws || others.iter().any(calls_barrier) {
        return None;
    }
    let mut calls: HashMap<u32, Vec<Callee<'_>>> = HashMap::new();
    for call in &first.calls {
        calls.entry(call.at).or_default().push(call.callee);
    }
    let ends = |at: u32| calls.get(&at).is_some_and(|callees| callees.iter().any(is_barrier));
    let barriers: Vec<u32> = (0..first.ins.len() as u32).filter(|&at| ends(at)).collect();
    // The begin of each phase; one behind a barrier that no code of the function follows ends at once.
    let begins: Vec<u32> =
        std::iter::once(0).chain(barriers.iter().map(|&at| first.ins[at as usize].next)).collect();
    let reached: Vec<Vec<bool>> = begins.iter().map(|&at| until_barrier(first, at, &ends)).collect();
    let next =
        |reached: &Vec<bool>| (1..begins.len()).filter(|&n| reached[barriers[n - 1] as usize]).collect();
    let nexts: Vec<Vec<usize>> = reached.iter().map(next).collect();
    let together = together(&nexts);

    // Only addresses with findings are asked for.
    let addresses: HashSet<u64> = findings.iter().map(|finding| finding.address).collect();
    let everywhere: HashSet<u64> = ips(bodies).filter(|ip| addresses.contains(ip)).collect();
    let found: Vec<(HashSet<u64>, BTreeSet<String>)> =
        reached.iter().map(|reached| within(bodies, index, reached, &calls, &addresses)).collect();
    let phase = |(at, begin): (usize, &u32)| {
        let same = || (0..begins.len()).filter(|&other| together[other] == together[at]);
        let is_here = |finding: &&Finding| {
            // A loop that waits may contain barriers.
            let anywhere = matches!(finding.kind, Kind::Wait | Kind::MayWait);
            anywhere
                || !everywhere.contains(&finding.address)
                || same().any(|other| found[other].0.contains(&finding.address))
        };
        Some(Phase {
            begin: first.ins.get(*begin as usize)?.ip,
            findings: findings.iter().filter(is_here).copied().collect(),
            calls: same().flat_map(|other| &found[other].1).cloned().collect(),
        })
    };
    Some(begins.iter().enumerate().filter_map(phase).collect())
}

fn ips<'b>(bodies: &'b [Body<'_>]) -> impl Iterator<Item = u64> + 'b {
    bodies.iter().flat_map(|body| body.ins.iter()).map(|ins| ins.ip)
}

/// A number for each phase that it shares with those that workers may be in at the same time, computed from the phases that may
/// follow each.
fn together(nexts: &[Vec<usize>]) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..nexts.len()).collect();
    loop {
        let before = numbers.clone();
        for number in 0..nexts.len() {
            let following = (0..nexts.len()).filter(|&at| numbers[at] == number).flat_map(|at| &nexts[at]);
            let following: HashSet<usize> = following.map(|&at| numbers[at]).collect();
            if let Some(&least) = following.iter().min() {
                numbers
                    .iter_mut()
                    .filter(|number| following.contains(number))
                    .for_each(|number| *number = least);
            }
        }
        if numbers == before {
            return numbers;
        }
    }
}

/// Those of the `addresses` that the marked instructions of the first function can reach, and the known entry points called.
fn within(
    bodies: &[Body<'_>],
    index: &HashMap<u64, usize>,
    reached: &[bool],
    calls: &HashMap<u32, Vec<Callee<'_>>>,
    addresses: &HashSet<u64>,
) -> (HashSet<u64>, BTreeSet<String>) {
    let mut names = BTreeSet::new();
    let mut called: HashSet<usize> = HashSet::new();
    let mut open: Vec<Callee<'_>> = Vec::new();
    for (at, callees) in calls {
        if reached[*at as usize] {
            open.extend(callees);
        }
    }
    while let Some(callee) = open.pop() {
        match callee {
            Callee::Function(target) => {
                if let Some(&at) = index.get(&target)
                    && called.insert(at)
                {
                    open.extend(bodies[at].calls.iter().map(|call| call.callee));
                }
            }
            Callee::Known(name, _) => drop(names.insert(name.to_owned())),
            Callee::Unknown => {}
        }
    }
    let own = bodies[0].ins.iter().zip(reached).filter(|(_, reached)| **reached).map(|(ins, _)| ins.ip);
    let deep = called.iter().flat_map(|&at| ips(std::slice::from_ref(&bodies[at])));
    (own.chain(deep).filter(|ip| addresses.contains(ip)).collect(), names)
}

/// Marks the instructions to which control can pass from `from` on without a barrier, including the barriers themselves.
fn until_barrier(body: &Body<'_>, from: u32, ends: &dyn Fn(u32) -> bool) -> Vec<bool> {
    let mut reached = vec![false; body.ins.len()];
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        // Control ends where nothing follows.
        let Some(reached) = reached.get_mut(at as usize) else { continue };
        if std::mem::replace(reached, true) || ends(at) {
            continue;
        }
        let (block, place) = body.graph.place(at);
        let Some(block) = body.graph.blocks.get(block as usize) else { continue };
        match block.ins.get(place as usize + 1) {
            Some(&next) => open.push(next),
            None => open
                .extend(block.next.iter().filter_map(|&next| body.graph.blocks[next as usize].ins.first())),
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_may_meet_at_different_calls_are_in_phases_together() {
        // The phases come one after the other.
        assert_eq!(together(&[vec![1], vec![2], vec![]]), [0, 1, 2]);
        // The first phase leads to either of two, and each of those to one.
        assert_eq!(together(&[vec![1, 2], vec![3], vec![4], vec![], vec![]]), [0, 1, 1, 3, 3]);
        // In a loop, either the barrier in it or the one behind it follows.
        assert_eq!(together(&[vec![1], vec![1, 2], vec![]]), [0, 1, 1]);
    }
}
