//! Makes Parquet of a trace: a row for each event.
//!
//! Columns that an event's kind does not have are null. It is there only where atoll was built with the feature `parquet`.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use atoll_record::trace::{Event, Reader, TraceError};
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::launch::{SaveError, create, save};

/// The number of rows in a group: about 30 MB while it is put together.
const GROUP_ROWS: usize = 1 << 19;

const SCHEMA: &str = "message event {
    required binary kind (UTF8);
    optional int32 worker;
    optional int64 page;
    optional boolean write;
    optional int64 pages;
    optional int64 name;
    optional int64 instructions;
}";

/// The reason why a trace was not exported.
#[derive(thiserror::Error, Debug)]
pub(crate) enum ExportError {
    /// The trace cannot be read.
    #[error("{0}: {1}")]
    Trace(String, TraceError),
    /// The file cannot be written.
    #[error("{0}")]
    Save(#[from] SaveError),
    /// The contents cannot be encoded.
    #[error("{0} cannot be written: {1}")]
    Parquet(String, ParquetError),
}

/// Exports `from`.
///
/// # Errors
/// See [`ExportError`]; `to` is then as it was.
pub(crate) fn export(from: &Path, to: &Path) -> Result<(), ExportError> {
    let trace = |error| ExportError::Trace(from.display().to_string(), error);
    let failed = |error| ExportError::Parquet(to.display().to_string(), error);
    let mut reader = Reader::open(from).map_err(trace)?;
    let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut file = create(to)?;
    let opened = file.as_file().try_clone().map_err(|e| failed(e.into()))?;
    let mut writer =
        SerializedFileWriter::new(BufWriter::new(opened), schema, Arc::new(properties)).map_err(failed)?;
    let mut events = Vec::new();
    loop {
        let more = reader.next_chunk(&mut events).map_err(trace)?;
        if events.len() >= GROUP_ROWS || (!more && !events.is_empty()) {
            write_group(&mut writer, &events).map_err(failed)?;
            events.clear();
        }
        if !more {
            break;
        }
    }
    writer.close().map_err(failed)?;
    file.as_file_mut().sync_data().map_err(|e| failed(e.into()))?;
    Ok(save(BufWriter::new(file), to)?)
}

/// An event as a row.
#[derive(Default)]
struct Row {
    kind: &'static str,
    worker: Option<i32>,
    page: Option<i64>,
    write: Option<bool>,
    pages: Option<i64>,
    name: Option<i64>,
    instructions: Option<i64>,
}

fn row(event: &Event) -> Row {
    let row = Row { worker: event.worker().map(i32::from), ..Row::default() };
    let mark = |kind, name: u64, row| Row { kind, name: Some(name as i64), ..row };
    let mapping = |kind, first: u64, pages: u64| Row {
        kind,
        page: Some(first as i64),
        pages: Some(pages as i64),
        ..Row::default()
    };
    match *event {
        Event::Access { page, write, .. } => {
            Row { kind: "access", page: Some(page as i64), write: Some(write), ..row }
        }
        Event::Compute { instructions, .. } => {
            Row { kind: "compute", instructions: Some(instructions as i64), ..row }
        }
        Event::RegionBegin { name, .. } => mark("region_begin", name, row),
        Event::RegionEnd { name, .. } => mark("region_end", name, row),
        Event::Barrier { name, .. } => mark("barrier", name, row),
        Event::Map { first, pages } => mapping("map", first, pages),
        Event::Unmap { first, pages } => mapping("unmap", first, pages),
    }
}

/// Returns the values of a column that has nulls, and for each row whether it has a value.
fn present<T>(rows: &[Row], value: impl Fn(&Row) -> Option<T>) -> (Vec<T>, Vec<i16>) {
    let levels = rows.iter().map(|row| i16::from(value(row).is_some())).collect();
    (rows.iter().filter_map(value).collect(), levels)
}

fn write_group(
    writer: &mut SerializedFileWriter<BufWriter<File>>,
    events: &[Event],
) -> Result<(), ParquetError> {
    let rows: Vec<Row> = events.iter().map(row).collect();
    let mut group = writer.next_row_group()?;
    let mut index = 0;
    while let Some(mut column) = group.next_column()? {
        match column.untyped() {
            ColumnWriter::ByteArrayColumnWriter(kinds) => {
                let values: Vec<ByteArray> = rows.iter().map(|row| row.kind.into()).collect();
                kinds.write_batch(&values, None, None)?;
            }
            ColumnWriter::Int32ColumnWriter(workers) => {
                let (values, levels) = present(&rows, |row| row.worker);
                workers.write_batch(&values, Some(&levels), None)?;
            }
            ColumnWriter::BoolColumnWriter(writes) => {
                let (values, levels) = present(&rows, |row| row.write);
                writes.write_batch(&values, Some(&levels), None)?;
            }
            ColumnWriter::Int64ColumnWriter(numbers) => {
                let (values, levels) = present(&rows, |row| match index {
                    PAGE => row.page,
                    PAGES => row.pages,
                    NAME => row.name,
                    _ => row.instructions,
                });
                numbers.write_batch(&values, Some(&levels), None)?;
            }
            _ => return Err(ParquetError::General("a column of no type that is in the schema".to_owned())),
        }
        column.close()?;
        index += 1;
    }
    group.close().map(drop)
}

/// The indexes of columns in the schema.
const PAGE: usize = 2;
const PAGES: usize = 4;
const NAME: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_record::trace::{Header, Writer};
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use std::collections::BTreeMap;

    #[test]
    fn every_event_is_a_row() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("a.parquet"));
        let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
        let last = Event::Barrier { worker: 5, name: 0x40 };
        let accesses = (0..600_000).map(|page| Event::Access { worker: 3, page, write: page % 2 == 1 });
        for event in accesses.chain([Event::Map { first: 7, pages: 9 }, last]) {
            writer.push(&event).unwrap();
        }
        std::fs::write(&from, writer.finish(0, BTreeMap::new()).unwrap()).unwrap();
        export(&from, &to).unwrap();
        let reader = SerializedFileReader::new(File::open(&to).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 600_002);
        let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|r| r.unwrap().to_string()).collect();
        let null = "null";
        let expect = |kind: &str, rest: [&str; 6]| {
            let [worker, page, write, pages, name, instructions] = rest;
            format!(
                "{{kind: \"{kind}\", worker: {worker}, page: {page}, write: {write}, pages: {pages}, name: {name}, instructions: {instructions}}}"
            )
        };
        assert_eq!(rows[599_999], expect("access", ["3", "599999", "true", null, null, null]));
        assert_eq!(rows[600_000], expect("map", [null, "7", null, "9", null, null]));
        assert_eq!(rows[600_001], expect("barrier", ["5", null, null, null, "64", null]));
        std::fs::write(&from, b"ATOLLTRC").unwrap();
        std::fs::remove_file(&to).unwrap();
        assert!(matches!(export(&from, &to), Err(ExportError::Trace(..))));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
