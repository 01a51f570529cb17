//! Writes a profile, chunk by chunk, while the program runs.
//!
//! The other side is `reader`. After [`ProfileWriter::flush`] everything that was pushed is with the system, so a file whose
//! writer was killed is whole up to there.

use std::io::{self, Write};

use serde::Serialize;

use super::event::Event;
use super::header::{Header, Trailer};
use super::names::Names;
use super::sample::{self, Sample};
use super::{TAG_EVENTS, TAG_HEADER, TAG_NAMES, TAG_SAMPLES, TAG_TRAILER};
use crate::container::{Tag, Writer};
use crate::{Figures, Run, figures, run};

/// The number of samples in a chunk: enough to compress well, few enough to lose little.
const CHUNK_SAMPLES: usize = 1 << 16;
/// The bytes of events in a chunk.
const CHUNK_BYTES: usize = 1 << 18;
/// The compression level, which is fast, as it runs beside the program.
const LEVEL: i32 = 1;

/// Writes a profile.
#[derive(Debug)]
pub struct ProfileWriter<W: Write> {
    to: Writer<W>,
    samples: Vec<Vec<Sample>>,
    events: Vec<u8>,
    bytes: u64,
}

impl<W: Write> ProfileWriter<W> {
    /// Starts with the header, which is in the file when this function returns.
    ///
    /// # Errors
    /// The error of writing.
    pub fn new(to: W, header: &Header) -> io::Result<Self> {
        let mut to = Writer::new(to)?;
        let json = serde_json::to_vec(header)?;
        to.chunk(TAG_HEADER, &json)?;
        to.flush()?;
        let samples = vec![Vec::new(); header.samplers.len().max(1)];
        Ok(Self { to, samples, events: Vec::new(), bytes: json.len() as u64 })
    }

    /// Returns the bytes of the chunks written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a sample of sampler `sampler`, an index of the header's.
    ///
    /// # Errors
    /// The error of writing.
    pub fn sample(&mut self, sampler: usize, sample: Sample) -> io::Result<()> {
        let Some(samples) = self.samples.get_mut(sampler) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a sampler that the header does not name",
            ));
        };
        samples.push(sample);
        if samples.len() >= CHUNK_SAMPLES { self.flush_samples(sampler) } else { Ok(()) }
    }

    /// Adds an event.
    ///
    /// # Errors
    /// The error of writing.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        event.encode(&mut self.events);
        if self.events.len() >= CHUNK_BYTES { self.flush_events() } else { Ok(()) }
    }

    /// Writes everything that was pushed, so that it outlives this process.
    ///
    /// # Errors
    /// The error of writing.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flush_events()?;
        (0..self.samples.len()).try_for_each(|sampler| self.flush_samples(sampler))?;
        self.to.flush()
    }

    /// Adds what is known at the end and returns the writer.
    ///
    /// # Errors
    /// The error of writing.
    pub fn finish(
        mut self,
        names: &Names,
        run: Option<&Run>,
        figures: Option<&Figures>,
        trailer: &Trailer,
    ) -> io::Result<W> {
        self.flush()?;
        let names = zstd::bulk::compress(&serde_json::to_vec(names)?, LEVEL)?;
        self.to.chunk(TAG_NAMES, &names)?;
        if let Some(run) = run {
            self.json(run::TAG, run)?;
        }
        if let Some(figures) = figures {
            self.json(figures::TAG, figures)?;
        }
        self.json(TAG_TRAILER, trailer)?;
        self.to.finish()
    }

    fn json(&mut self, tag: Tag, what: &impl Serialize) -> io::Result<()> {
        self.to.chunk(tag, &serde_json::to_vec(what)?)
    }

    fn flush_samples(&mut self, sampler: usize) -> io::Result<()> {
        let samples = &mut self.samples[sampler];
        if samples.is_empty() {
            return Ok(());
        }
        let raw = sample::encode(samples);
        let mut head = Vec::with_capacity(12);
        head.extend_from_slice(&(sampler as u32).to_le_bytes());
        head.extend_from_slice(&(samples.len() as u32).to_le_bytes());
        head.extend_from_slice(&(raw.len() as u32).to_le_bytes());
        head.extend_from_slice(&zstd::bulk::compress(&raw, LEVEL)?);
        samples.clear();
        self.bytes += head.len() as u64;
        self.to.chunk(TAG_SAMPLES, &head)
    }

    fn flush_events(&mut self) -> io::Result<()> {
        if self.events.is_empty() {
            return Ok(());
        }
        let mut head = (self.events.len() as u32).to_le_bytes().to_vec();
        head.extend_from_slice(&zstd::bulk::compress(&self.events, LEVEL)?);
        self.events.clear();
        self.bytes += head.len() as u64;
        self.to.chunk(TAG_EVENTS, &head)
    }
}
