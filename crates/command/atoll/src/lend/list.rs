//! `atoll lenders`: who lends, how much is free, how far away, and who has what.

use std::process::ExitCode;
use std::thread;

use atoll_lend::{Card, ControlError, Directory, DirectoryError, Report};
use atoll_memory::control::EXIT_SETUP;
use serde::Serialize;

use crate::run::summary::{bytes, write_aligned_behind};

/// Round trips measured of each lender.
const TRIPS: usize = 21;

/// One lender, as it is printed.
#[derive(Serialize)]
struct Row {
    name: String,
    host: String,
    /// Why it does not answer.
    trouble: Option<String>,
    round_trip_us: Option<f64>,
    bytes: u64,
    free_bytes: u64,
    borrowers: Vec<Borrower>,
}

#[derive(Serialize)]
struct Borrower {
    name: String,
    bytes: u64,
    /// Of these, what lies in files of the lender's host.
    filed_bytes: u64,
    wanted_bytes: u64,
}

impl Borrower {
    fn text(&self) -> String {
        let mut text = format!("{} ({}", self.name, bytes(self.bytes));
        if self.filed_bytes > 0 {
            text += &format!(", {} of it in files", bytes(self.filed_bytes));
        }
        if self.wanted_bytes > 0 {
            text += &format!(", of which it moves {}", bytes(self.wanted_bytes));
        }
        text + ")"
    }
}

fn ask(card: &Card, key: &[u8; 32]) -> Result<(f64, Report), ControlError> {
    let (mut control, _) = card.open(key)?;
    let (trip, _) = control.measure(TRIPS)?;
    Ok((trip.as_secs_f64() * 1e6, control.report()?))
}

fn row(card: &Card, answer: Result<(f64, Report), ControlError>) -> Row {
    let (name, host) = (card.name.clone(), card.host.clone());
    match answer {
        Ok((trip, report)) => Row {
            name,
            host,
            trouble: None,
            round_trip_us: Some(trip),
            bytes: report.bytes,
            free_bytes: report.free_bytes,
            borrowers: report
                .loans
                .into_iter()
                .map(|loan| Borrower {
                    name: loan.borrower,
                    bytes: loan.bytes,
                    filed_bytes: loan.filed_bytes,
                    wanted_bytes: loan.wanted_bytes,
                })
                .collect(),
        },
        Err(error) => Row {
            name,
            host,
            trouble: Some(error.to_string()),
            round_trip_us: None,
            bytes: 0,
            free_bytes: 0,
            borrowers: Vec::new(),
        },
    }
}

fn rows() -> Result<Vec<Row>, DirectoryError> {
    let directory = Directory::open()?;
    let key = directory.secret()?.key();
    let cards = directory.cards()?;
    // All at once: one that does not answer takes seconds.
    let mut rows: Vec<Row> = thread::scope(|scope| {
        let asked: Vec<_> = cards.iter().map(|card| (card, scope.spawn(|| ask(card, &key)))).collect();
        let answers = asked.into_iter().map(|(card, asked)| Some(row(card, asked.join().ok()?)));
        answers.flatten().collect()
    });
    let distance = |row: &Row| row.round_trip_us.unwrap_or(f64::INFINITY);
    rows.sort_by(|one, other| distance(one).total_cmp(&distance(other)));
    Ok(rows)
}

fn text(rows: &[Row]) -> String {
    let mut table =
        vec![["lender", "host", "lends", "free", "round trip", "lent to"].map(str::to_owned).to_vec()];
    for row in rows {
        let lent: Vec<String> = row.borrowers.iter().map(Borrower::text).collect();
        table.push(match &row.trouble {
            None => vec![
                row.name.clone(),
                row.host.clone(),
                bytes(row.bytes),
                bytes(row.free_bytes),
                format!("{:.0} us", row.round_trip_us.unwrap_or(0.0)),
                lent.join(", "),
            ],
            Some(trouble) => {
                let none = || "-".to_owned();
                vec![
                    row.name.clone(),
                    row.host.clone(),
                    none(),
                    none(),
                    none(),
                    format!("no answer: {trouble}"),
                ]
            }
        });
    }
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_aligned_behind(&mut out, "", &table);
    out
}

/// Prints the lenders, the nearest first. Fails where the folder is of no use; that nobody lends is no failure.
pub(crate) fn list(json: bool) -> ExitCode {
    let rows = match rows() {
        Ok(rows) => rows,
        Err(error) => {
            eprintln!("atoll: {error}");
            return ExitCode::from(EXIT_SETUP as u8);
        }
    };
    if json {
        match serde_json::to_string_pretty(&rows) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("atoll: the lenders cannot be written as JSON: {error}"),
        }
    } else if rows.is_empty() {
        println!("nobody lends: start a lender on another host with `atoll lend SIZE`");
    } else {
        print!("{}", text(&rows));
    }
    ExitCode::SUCCESS
}
