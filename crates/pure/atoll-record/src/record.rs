//! A run's record, made of the container's chunks.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::container::{Chunk, ReadError, Reader, Tag, Writer};
use crate::{Figures, Run, figures, run};

/// A run's record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Record {
    /// What was run, how, where and when.
    pub run: Run,
    /// The counters of the run.
    pub figures: Figures,
    /// Chunks that this crate does not know, in their order.
    pub others: Vec<Chunk>,
}

/// The reason why a record cannot be read.
#[derive(thiserror::Error, Debug)]
pub enum RecordError {
    /// The file cannot be opened.
    #[error("{0} cannot be opened: {1}")]
    Open(String, io::Error),
    /// The file's container is damaged.
    #[error("{0}")]
    Container(#[from] ReadError),
    /// A chunk is not what its tag says.
    #[error("the record is damaged at byte {offset}: chunk `{tag}` cannot be understood: {error}")]
    Chunk {
        /// The offset of the chunk.
        offset: u64,
        /// The chunk's tag.
        tag: Tag,
        /// The decoder's error.
        error: serde_json::Error,
    },
    /// A chunk that every record has is not there.
    #[error("the record has no chunk `{0}`: it was not finished, or another program wrote it")]
    Missing(Tag),
}

impl Record {
    /// Writes the record.
    ///
    /// # Errors
    /// The error of writing.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut writer = Writer::new(to)?;
        writer.chunk(run::TAG, &serde_json::to_vec(&self.run)?)?;
        writer.chunk(figures::TAG, &serde_json::to_vec(&self.figures)?)?;
        for chunk in &self.others {
            writer.chunk(chunk.tag, &chunk.payload)?;
        }
        writer.finish().map(drop)
    }

    /// Writes the record to an open file; waits until it is on the disk, so that errors of the disk are seen.
    ///
    /// # Errors
    /// The error of writing.
    pub fn save(&self, file: File) -> io::Result<()> {
        let mut buffer = BufWriter::new(file);
        self.write(&mut buffer)?;
        buffer.flush()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn read(from: impl Read) -> Result<Record, RecordError> {
        let mut reader = Reader::new(from)?;
        let (mut the_run, mut the_figures, mut others) = (None, None, Vec::new());
        while let Some(chunk) = reader.next_chunk()? {
            match chunk.tag {
                run::TAG if the_run.is_none() => the_run = Some(decode(&chunk)?),
                figures::TAG if the_figures.is_none() => the_figures = Some(decode(&chunk)?),
                _ => others.push(chunk),
            }
        }
        Ok(Record {
            run: the_run.ok_or(RecordError::Missing(run::TAG))?,
            figures: the_figures.ok_or(RecordError::Missing(figures::TAG))?,
            others,
        })
    }

    /// Reads the record in a file.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn open(path: &Path) -> Result<Record, RecordError> {
        let file = File::open(path).map_err(|e| RecordError::Open(path.display().to_string(), e))?;
        Self::read(BufReader::new(file))
    }
}

fn decode<T: DeserializeOwned>(chunk: &Chunk) -> Result<T, RecordError> {
    serde_json::from_slice(&chunk.payload).map_err(|error| RecordError::Chunk {
        offset: chunk.offset,
        tag: chunk.tag,
        error,
    })
}
