//! Words that several nodes wrote in one region, with the names in the program's symbols.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use atoll_memory::control::Control;
use atoll_record::figures::{Race, Races};

use crate::names::Names;

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Returns the words that several nodes wrote, if races were looked for, and the regions whose twins near memory was too small
/// for.
pub(crate) fn races(control: &Control, program: &Path) -> (Option<Races>, Vec<String>) {
    let mut names = Names::default();
    names.loaded(control.program_bias.load(Ordering::Relaxed), program.to_owned());
    let found = &control.races;
    let crowded = found.crowded.iter().map(get).filter(|function| *function != 0);
    let crowded = crowded.map(|function| function_name(&mut names, function)).collect();
    if control.settings.check_races == 0 {
        return (None, crowded);
    }
    let used = found.all.iter().filter(|race| get(&race.function) != 0);
    let mut all: Vec<[u64; 4]> =
        used.map(|r| [&r.function, &r.address, &r.nodes, &r.count].map(get)).collect();
    all.sort_unstable();
    let mut words: Vec<Race> = Vec::new();
    for [function, address, nodes, count] in all {
        let nodes = (0..64).filter(|node| nodes >> node & 1 != 0).collect();
        let region = function_name(&mut names, function);
        let (variable, offset) = match names.variable(address) {
            Some((name, offset)) => (name.to_owned(), offset),
            None => (place(address).to_owned(), 0),
        };
        match words.last_mut() {
            Some(last)
                if last.region == region
                    && last.variable == variable
                    && last.nodes == nodes
                    && (offset != 0 || last.address + 8 * last.words == address) =>
            {
                last.words += 1;
                last.count += count;
            }
            _ => words.push(Race { region, variable, offset, address, words: 1, nodes, count }),
        }
    }
    words.sort_by_key(|race| std::cmp::Reverse(race.count));
    let races = Races {
        checked_regions: get(&found.checked),
        unchecked_regions: get(&found.unchecked),
        lost: get(&found.lost),
        words,
    };
    (Some(races), crowded)
}

/// Returns what lies at an address that belongs to no variable of the program.
fn place(address: u64) -> &'static str {
    if atoll_memory::layout::in_arena(address as usize) {
        "heap"
    } else if address >> 40 == 0x7f {
        "stack"
    } else {
        ""
    }
}

fn function_name(names: &mut Names, function: u64) -> String {
    names.function(function).map_or_else(|| format!("{function:#x}"), str::to_owned)
}
