//! Writes a profile as Parquet: the columns of `csv`, a row a sample. It is there only where atoll was built with the feature
//! `parquet`.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::ByteArray;
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use atoll_record::profile::Profile;

use super::row::Row;
use super::{Failed, rows};

/// The number of rows of a group.
const GROUP_ROWS: usize = 1 << 18;

/// The columns, in `row::COLUMNS`' order.
const SCHEMA: &str = "message sample {
    required int64 time_ns;
    required binary sampler (UTF8);
    required int64 worker;
    required int64 thread;
    required int64 address;
    required int64 page;
    required binary access (UTF8);
    required int64 weight;
    required int64 ip;
    required binary variable (UTF8);
    required binary kind (UTF8);
    required binary place (UTF8);
    required binary region (UTF8);
    required int64 offset;
}";

/// The reason why a profile was not exported.
#[derive(thiserror::Error, Debug)]
pub(super) enum ParquetFailed {
    /// The profile cannot be read.
    #[error("{0}")]
    Profile(#[from] Failed),
    /// The file cannot be written.
    #[error("the file cannot be written: {0}")]
    Parquet(#[from] ParquetError),
    /// The file cannot be made.
    #[error("the file cannot be made: {0}")]
    Create(#[from] std::io::Error),
}

/// The columns of rows that are still to be written.
#[derive(Default)]
struct Group {
    numbers: [Vec<i64>; 7],
    texts: [Vec<ByteArray>; 6],
}

impl Group {
    fn push(&mut self, row: &Row<'_>) {
        let s = &row.sample;
        let text = |text: &str| ByteArray::from(text.as_bytes().to_vec());
        let numbers = [
            s.time_ns as i64,
            i64::from(s.worker),
            row.worker.map_or(0, |w| i64::from(w.tid)),
            s.address as i64,
            row.page as i64,
            s.weight as i64,
            s.ip as i64,
        ];
        for (column, value) in self.numbers.iter_mut().zip(numbers) {
            column.push(value);
        }
        let variable = row.variable;
        let texts = [
            text(row.sampler),
            text(row.access()),
            text(variable.map_or("", |v| &v.name)),
            text(variable.map_or("", |v| v.kind.word())),
            text(&variable.map_or(String::new(), |v| v.place())),
            text(row.region.map_or("", |r| &r.name)),
        ];
        for (column, value) in self.texts.iter_mut().zip(texts) {
            column.push(value);
        }
    }
}

/// Writes the profile's samples.
///
/// # Errors
/// See [`ParquetFailed`].
pub(super) fn write(profile: &Profile, to: &Path) -> Result<(), ParquetFailed> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer =
        SerializedFileWriter::new(BufWriter::new(File::create(to)?), schema, Arc::new(properties))?;
    let (mut group, mut offsets) = (Group::default(), Vec::new());
    let mut failed = None;
    rows(profile, |row| {
        group.push(row);
        offsets.push(row.offset.map_or(-1, |offset| offset as i64));
        if offsets.len() >= GROUP_ROWS && failed.is_none() {
            failed = flush(&mut writer, &std::mem::take(&mut group), &std::mem::take(&mut offsets)).err();
        }
        Ok(())
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if !offsets.is_empty() {
        flush(&mut writer, &group, &offsets)?;
    }
    writer.close()?;
    Ok(())
}

fn flush(
    writer: &mut SerializedFileWriter<BufWriter<File>>,
    group: &Group,
    offsets: &[i64],
) -> Result<(), ParquetError> {
    let mut numbers = group.numbers.iter().map(Vec::as_slice).chain([offsets]);
    let mut texts = group.texts.iter();
    let mut to = writer.next_row_group()?;
    while let Some(mut column) = to.next_column()? {
        match column.untyped() {
            ColumnWriter::Int64ColumnWriter(column) => {
                column.write_batch(numbers.next().unwrap_or_default(), None, None)?;
            }
            ColumnWriter::ByteArrayColumnWriter(column) => {
                column.write_batch(texts.next().map(Vec::as_slice).unwrap_or_default(), None, None)?;
            }
            _ => return Err(ParquetError::General("a column of no type that is in the schema".to_owned())),
        }
        column.close()?;
    }
    to.close().map(drop)
}
