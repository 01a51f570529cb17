//! `atoll show` for a trace: prints its header and its counts, after reading all of it.
//!
//! `atoll_record::trace` reads it; the crate's `show` prints records.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use atoll_record::trace::{Header, Reader, TraceError, Trailer, frame};
use serde::Serialize;

use crate::run::summary;

#[derive(Serialize)]
struct Whole<'a> {
    header: &'a Header,
    trailer: &'a Trailer,
}

/// Whether the file begins like a trace.
pub(crate) fn is_trace(path: &Path) -> bool {
    let mut magic = [0; frame::MAGIC.len()];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok()) && magic == frame::MAGIC
}

/// Prints what is in a trace.
///
/// # Errors
/// The trace is damaged.
pub(crate) fn show(path: &Path, json: bool) -> Result<(), TraceError> {
    let mut reader = Reader::open(path)?;
    let mut events = Vec::new();
    while reader.next_chunk(&mut events)? {
        events.clear();
    }
    let none = Trailer::default();
    let (header, trailer) = (reader.header(), reader.trailer().unwrap_or(&none));
    if json {
        match serde_json::to_string_pretty(&Whole { header, trailer }) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("atoll: the trace cannot be written as JSON: {error}"),
        }
        return Ok(());
    }
    let bytes = path.metadata().map_or(0, |metadata| metadata.len());
    print!("{}", text(header, trailer, bytes));
    Ok(())
}

fn text(header: &Header, trailer: &Trailer, bytes: u64) -> String {
    let mut out = format!("{}  (atoll {})\n", header.arguments.join(" "), header.atoll_version);
    let mut line = |text: String| {
        out += "  ";
        out += &text;
        out.push('\n');
    };
    line(format!("engine {}, {} workers asked for, {} seen", header.engine, header.workers, trailer.workers));
    line(match (&header.filter, header.exact) {
        (Some(filter), _) => format!(
            "filter of {} places, emptied after {} instructions",
            filter.entries, filter.refresh_instructions
        ),
        (None, true) => "every access".to_owned(),
        (None, false) => "some accesses are missing".to_owned(),
    });
    if let Some(regions) = &header.regions {
        line(format!("only regions {regions}"));
    }
    if let Some(iterations) = header.iterations {
        line(format!("only {iterations} iterations"));
    }
    let accesses = trailer.reads + trailer.writes;
    let seen = match trailer.accesses_seen {
        0 => String::new(),
        seen => format!(" of {seen} seen ({:.3}%)", accesses as f64 * 100.0 / seen as f64),
    };
    line(format!("{accesses} accesses{seen}: {} reads, {} writes", trailer.reads, trailer.writes));
    if header.compute_quantum > 0 {
        line(format!("{} instructions", trailer.instructions));
    }
    line(format!("{} regions, {} barriers of the first worker", trailer.regions, trailer.barriers));
    for (address, name) in &trailer.names {
        line(format!("  {address:#x}  {name}"));
    }
    let each = bytes as f64 / trailer.events.max(1) as f64;
    line(format!(
        "{} events in {} chunks, {} ({each:.2} bytes each)",
        trailer.events,
        trailer.chunks,
        summary::bytes(bytes)
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_record::trace::Filter;

    #[test]
    fn a_trace_says_what_it_is() {
        let header = Header {
            arguments: vec!["./cg".into(), "S".into()],
            engine: "qemu".into(),
            filter: Some(Filter { entries: 64, refresh_instructions: 7 }),
            ..Header::default()
        };
        let trailer = Trailer { events: 4, reads: 1, writes: 1, accesses_seen: 200, ..Trailer::default() };
        let text = text(&header, &trailer, 10);
        for part in
            ["./cg S", "engine qemu", "64 places", "2 accesses of 200 seen (1.000%)", "2.50 bytes each"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
}
