//! Writes results of simulations as Parquet. It is there only where atoll was built with the feature `parquet`.
//!
//! The columns are those of the CSV ([`table`](super::table)).

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::table::Value;

/// Writes lines that have the same columns.
pub(super) fn write(path: &Path, lines: &[Vec<(String, Value)>]) -> Result<(), ParquetError> {
    let Some(first) = lines.first() else { return Ok(()) };
    let column = |(name, value): &(String, Value)| match value {
        Value::Text(_) => format!("required binary {name} (UTF8);"),
        Value::Count(_) => format!("optional int64 {name};"),
        Value::Number(_) => format!("optional double {name};"),
    };
    let fields: Vec<String> = first.iter().map(column).collect();
    let schema = Arc::new(parse_message_type(&format!("message simulation {{ {} }}", fields.join(" ")))?);
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = SerializedFileWriter::new(File::create(path)?, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let mut index = 0;
    while let Some(mut column) = group.next_column()? {
        let values = || lines.iter().map(|line| &line[index].1);
        match column.untyped() {
            ColumnWriter::ByteArrayColumnWriter(texts) => {
                let text = |value: &Value| match value {
                    Value::Text(text) => ByteArray::from(text.as_str()),
                    Value::Count(_) | Value::Number(_) => ByteArray::from(""),
                };
                texts.write_batch(&values().map(text).collect::<Vec<_>>(), None, None)?;
            }
            ColumnWriter::Int64ColumnWriter(counts) => {
                let count =
                    |value: &Value| if let Value::Count(n) = value { n.map(|n| n as i64) } else { None };
                let (present, levels) = present(values().map(count));
                counts.write_batch(&present, Some(&levels), None)?;
            }
            ColumnWriter::DoubleColumnWriter(numbers) => {
                let number = |value: &Value| if let Value::Number(n) = value { *n } else { None };
                let (present, levels) = present(values().map(number));
                numbers.write_batch(&present, Some(&levels), None)?;
            }
            _ => return Err(ParquetError::General("a column of a kind that is not written here".to_owned())),
        }
        column.close()?;
        index += 1;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

/// Returns the values that are there, and for each line whether it has one.
fn present<T>(values: impl Iterator<Item = Option<T>>) -> (Vec<T>, Vec<i16>) {
    let (mut present, mut levels) = (Vec::new(), Vec::new());
    for value in values {
        levels.push(i16::from(value.is_some()));
        present.extend(value);
    }
    (present, levels)
}
