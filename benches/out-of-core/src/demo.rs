//! The demonstration: runs one program at half its memory natively, under Linux swap, and under atoll.

use std::time::Duration;

use crate::Options;
use crate::bench::{Bench, Places};
use crate::error::Error;
use crate::part::Cell;
use crate::sheet::{Sheet, mebibytes};
use crate::subject::{Atoll, Device, Subject};
use crate::{full, plan, report};

const SWAP_BYTES: u64 = 1280 << 20;
/// The longest time of a run of the demonstration.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Shows the table; returns `false` if a run failed or its result was wrong.
pub(crate) fn demo(options: &Options) -> Result<bool, Error> {
    let places = Places::beside(
        plan::DEMO.name,
        options.atoll.clone(),
        options.programs_dir.clone(),
        options.dir.clone(),
    )?;
    let bench = Bench::new(places, TIMEOUT, SWAP_BYTES, 0, &options.zram_algorithm)?;
    println!("{}\n", full::machine(&bench));
    let mut sheet = Sheet::new(&bench, plan::DEMO, options.percent)?;
    let pages = ["4K", "64K"];
    for page in pages {
        sheet.calibrate(&bench, page)?;
    }
    let mut subjects = vec![
        Subject::Native,
        Subject::Swap(Device::Zram),
        Subject::Swap(Device::File),
        Subject::Atoll(plan::DEFAULTS),
    ];
    for far in plan::FARS_HELD_AGAINST_SWAP {
        for page in pages {
            subjects.push(Subject::Atoll(Atoll {
                limited: true,
                far: Some(far),
                page: Some(page),
                ..Atoll::default()
            }));
        }
    }
    for subject in subjects {
        let mut cell = Cell::new(subject);
        cell.out = bench.refused(&cell.subject);
        // Trying both ways of waiting would take too long here.
        cell.waiting = Some(sheet.waiting);
        sheet.limited.cells.push(cell);
    }
    for index in 0..sheet.limited.cells.len() {
        sheet.sample(&bench, false, index)?;
    }
    let title = format!(
        "\n{}: needs {}, gets {} near{}",
        sheet.limited.words.join(" "),
        mebibytes(sheet.footprint),
        mebibytes(sheet.limit),
        if bench.groups.is_ok() { ", all in" } else { "" }
    );
    print!("{}", report::part(&title, &sheet.limited));
    if sheet.wrong.is_empty() {
        println!("\nEvery run gave the checksum of the native one, {}.", sheet.limited.checksum);
    }
    for what in &sheet.wrong {
        println!("wrong: {what}");
    }
    println!(
        "Defaults are --near with the limit and no other flag: far pages lie in memory that the machine can spare."
    );
    println!("Held against each other: lz4 and zram, file and swap file.");
    Ok(sheet.wrong.is_empty())
}
