//! Reads a profile: everything but the samples at once, the samples chunk by chunk.
//!
//! A file that ends too early, or is damaged from some byte on, is read up to that point, and [`Profile::cut`] says so.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::event::{self, Event, Loss};
use super::header::{Header, Trailer};
use super::locator::Locator;
use super::names::Names;
use super::sample::{self, Sample};
use super::span::{self, Memory, Phase, Region, Span, Variable};
use super::{FORMAT, TAG_EVENTS, TAG_HEADER, TAG_NAMES, TAG_SAMPLES, TAG_TRAILER};
use crate::container::{Chunk, ReadError, Reader};
use crate::{Figures, Run, figures, run};

/// The most bytes that names or a chunk of events decompress to.
const MAX_NAMES: usize = 256 << 20;

/// The reason why a file is no profile.
#[derive(thiserror::Error, Debug)]
pub enum ProfileError {
    /// The file cannot be opened.
    #[error("{0} cannot be opened: {1}")]
    Open(String, io::Error),
    /// The file is no record, or ends before its header.
    #[error("{0}")]
    Container(#[from] ReadError),
    /// The file is a record of something else.
    #[error(
        "the record holds no profile: `atoll show` prints it; `atoll profile -- PROGRAM` makes a profile"
    )]
    NoProfile,
    /// The file was written by a later atoll.
    #[error(
        "the profile has format {0}, this atoll reads up to {FORMAT}: read it with the atoll that wrote it"
    )]
    LaterFormat(u32),
    /// A chunk holds something else than its tag says.
    #[error("the profile is damaged at byte {offset}: {what}")]
    Damaged {
        /// The offset of the chunk.
        offset: u64,
        /// The kind of damage.
        what: String,
    },
}

/// A worker: a thread of the program, or a process of atoll's runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Whose address space it works in.
    pub space: u32,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The worker's number in the team, where it is known.
    pub number: Option<u32>,
    /// The worker's node.
    pub node: u32,
    /// The worker's name. Untrusted text.
    pub name: String,
    /// The time at which it came.
    pub begin_ns: u64,
    /// The time at which it ended; `u64::MAX`: not before the program.
    pub end_ns: u64,
}

/// One wake-up of a harvester.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wakeup {
    /// The time, in nanoseconds since the record's start.
    pub time_ns: u64,
    /// An index of [`Header::samplers`].
    pub sampler: u32,
    /// The number of records found.
    pub records: u64,
    /// The number of bytes of these.
    pub bytes: u64,
}

/// A profile without its samples.
#[derive(Debug, Default)]
pub struct Profile {
    /// The description from before the first sample.
    pub header: Header,
    /// The description from after the last sample; `None` if the file ends before it.
    pub trailer: Option<Trailer>,
    /// The description of the run, if the run reached its end.
    pub run: Option<Run>,
    /// The runtime's counters, where the program ran under it.
    pub figures: Option<Figures>,
    /// The workers; samples name them by index.
    pub workers: Vec<Worker>,
    /// The variables that memory belonged to.
    pub variables: Vec<Variable>,
    /// The memory of these variables, in the order in which it was born.
    pub spans: Vec<Span>,
    /// The parallel regions.
    pub regions: Vec<Region>,
    /// The times at which regions ran, in the order in which they began.
    pub phases: Vec<Phase>,
    /// The wake-ups, in their order.
    pub wakeups: Vec<Wakeup>,
    /// The changes of a sampler's period: time, sampler, new period.
    pub periods: Vec<(u64, u32, u64)>,
    /// The losses: time at which they were noticed, sampler, number, reason.
    pub losses: Vec<(u64, u32, u64, Loss)>,
    /// All events beside the samples.
    pub events: Vec<Event>,
    /// The names as they were stored.
    pub names: Names,
    /// The number of samples in the file, all samplers together.
    pub samples: u64,
    /// The last time that the record names, or the wall time where the run reached its end.
    pub end_ns: u64,
    /// The reason why the file could not be read to its end; `None` if it could.
    pub cut: Option<ReadError>,
    path: PathBuf,
}

/// Some samples of one sampler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// An index of [`Header::samplers`].
    pub sampler: usize,
    /// The samples in the order of time, except for a few.
    pub samples: Vec<Sample>,
}

/// Whether the file looks like a profile, so that [`Profile::open`] should be tried; `false` also where it cannot be read.
pub fn is_profile(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let Ok(mut reader) = Reader::new(BufReader::new(file)) else { return false };
    matches!(reader.next_chunk(), Ok(Some(chunk)) if chunk.tag == TAG_HEADER)
}

impl Profile {
    /// Reads the profile in a file.
    ///
    /// # Errors
    /// See [`ProfileError`]. A file that is cut off behind its header is no error.
    pub fn open(path: &Path) -> Result<Profile, ProfileError> {
        let file = File::open(path).map_err(|e| ProfileError::Open(path.display().to_string(), e))?;
        let profile = Self::read(BufReader::with_capacity(1 << 20, file))?;
        Ok(Profile { path: path.to_owned(), ..profile })
    }

    /// Reads a profile from bytes; its samples are read with [`Batches::new`] from the same bytes.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub fn read(from: impl Read) -> Result<Profile, ProfileError> {
        let mut reader = Reader::new(from)?;
        let first = reader.next_chunk()?.filter(|chunk| chunk.tag == TAG_HEADER);
        let first = first.ok_or(ProfileError::NoProfile)?;
        let header: Header = json(&first)?;
        if header.format > FORMAT {
            return Err(ProfileError::LaterFormat(header.format));
        }
        let mut profile = Profile { header, ..Profile::default() };
        loop {
            match reader.next_chunk() {
                Ok(Some(chunk)) => profile.take(&chunk)?,
                Ok(None) => break,
                Err(error) => {
                    profile.cut = Some(error);
                    break;
                }
            }
        }
        profile.put_together();
        Ok(profile)
    }

    fn take(&mut self, chunk: &Chunk) -> Result<(), ProfileError> {
        match chunk.tag {
            TAG_SAMPLES => self.samples += u64::from(sample_head(chunk)?.1),
            TAG_EVENTS => {
                let raw = chunk
                    .payload
                    .split_first_chunk::<4>()
                    .and_then(|(len, rest)| inflate(rest, u32::from_le_bytes(*len) as usize));
                let decoded = raw.and_then(|raw| event::decode(&raw));
                let decoded = decoded.ok_or_else(|| damaged(chunk, "its events cannot be understood"))?;
                self.events.extend(decoded.events);
            }
            TAG_NAMES => {
                let raw = inflate(&chunk.payload, MAX_NAMES)
                    .ok_or_else(|| damaged(chunk, "its names cannot be decompressed"))?;
                self.names = serde_json::from_slice(&raw).map_err(|e| damaged(chunk, &e.to_string()))?;
            }
            TAG_TRAILER => self.trailer = Some(json(chunk)?),
            run::TAG => self.run = Some(json(chunk)?),
            figures::TAG => self.figures = Some(json(chunk)?),
            _ => {}
        }
        Ok(())
    }

    /// Builds variables, spans, regions and phases from events and names.
    fn put_together(&mut self) {
        self.events.sort_by_key(Event::time_ns);
        for event in &self.events {
            let time_ns = event.time_ns();
            self.end_ns = self.end_ns.max(time_ns);
            match *event {
                Event::Worker { space, pid, tid, number, node, ref name, .. } => self.workers.push(Worker {
                    space,
                    pid,
                    tid,
                    number: (number != u32::MAX).then_some(number),
                    node,
                    name: name.clone(),
                    begin_ns: time_ns,
                    end_ns: u64::MAX,
                }),
                Event::WorkerEnd { worker, .. } => {
                    if let Some(worker) = self.workers.get_mut(worker as usize) {
                        worker.end_ns = time_ns;
                    }
                }
                Event::Number { worker, number, .. } => {
                    if let Some(worker) = self.workers.get_mut(worker as usize) {
                        worker.number = Some(number);
                    }
                }
                Event::Wakeup { sampler, records, bytes, .. } => {
                    self.wakeups.push(Wakeup { time_ns, sampler, records, bytes });
                }
                Event::Period { sampler, period, .. } => self.periods.push((time_ns, sampler, period)),
                Event::Lost { sampler, samples, cause, .. } => {
                    self.losses.push((time_ns, sampler, samples, cause));
                }
                _ => {}
            }
        }
        if let Some(trailer) = &self.trailer {
            self.end_ns = self.end_ns.max((trailer.wall_seconds * 1e9) as u64);
        }
        let Memory { variables, spans, regions, phases } = span::build(&self.events, &self.names);
        (self.variables, self.spans, self.regions, self.phases) = (variables, spans, regions, phases);
    }

    /// Replaces the file's names, for a profile that was cut off before them.
    pub fn set_names(&mut self, names: Names) {
        self.names = names;
        let memory = span::build(&self.events, &self.names);
        self.variables = memory.variables;
        self.spans = memory.spans;
        self.regions = memory.regions;
        self.phases = memory.phases;
    }

    /// Reads the samples, from the file again.
    ///
    /// # Errors
    /// The file cannot be opened any more.
    pub fn batches(&self) -> Result<Batches<BufReader<File>>, ProfileError> {
        let failed = |e| ProfileError::Open(self.path.display().to_string(), e);
        let file = File::open(&self.path).map_err(failed)?;
        Batches::new(BufReader::with_capacity(1 << 20, file))
    }

    /// Returns a locator, which says whose memory each sample touched.
    pub fn locator(&self) -> Locator<'_> {
        Locator::new(self)
    }

    /// Returns why the profile is not whole: it was cut off or damaged, or is still being written. `None`: it is whole.
    pub fn lacks(&self) -> Option<String> {
        match (&self.cut, &self.trailer) {
            (Some(ReadError::Cut { .. }), _) | (None, None) => Some(
                "it was not finished: its writer was killed, or the machine stopped, or it is still being written".to_owned(),
            ),
            (Some(error), _) => Some(error.to_string()),
            (None, Some(_)) => None,
        }
    }

    /// Returns the file of the program that most samples are of; for a profile that does not say that, the program that was
    /// started.
    pub fn program(&self) -> &str {
        let sampled = self.trailer.as_ref().map_or("", |trailer| &*trailer.program);
        if sampled.is_empty() { &self.header.program } else { sampled }
    }

    /// Returns the seconds from the first to the last known time.
    pub fn seconds(&self) -> f64 {
        self.end_ns as f64 * 1e-9
    }
}

/// The samples of a profile, chunk by chunk. The iterator ends where the file is cut off, as [`Profile::cut`] says.
#[derive(Debug)]
pub struct Batches<R: Read> {
    reader: Reader<R>,
}

impl<R: Read> Batches<R> {
    /// Reads from the bytes of a whole profile.
    ///
    /// # Errors
    /// The bytes are no profile.
    pub fn new(from: R) -> Result<Self, ProfileError> {
        Ok(Self { reader: Reader::new(from)? })
    }
}

impl<R: Read> Iterator for Batches<R> {
    type Item = Result<Batch, ProfileError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.reader.next_chunk() {
                Ok(Some(chunk)) if chunk.tag == TAG_SAMPLES => return Some(batch(&chunk)),
                Ok(Some(_)) => {}
                Ok(None) | Err(ReadError::Cut { .. } | ReadError::Damaged { .. }) => return None,
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

fn batch(chunk: &Chunk) -> Result<Batch, ProfileError> {
    let (sampler, count, raw) = sample_head(chunk)?;
    let samples = inflate(&chunk.payload[12..], raw as usize).and_then(|raw| sample::decode(&raw, count));
    let samples = samples.ok_or_else(|| damaged(chunk, "its samples cannot be understood"))?;
    Ok(Batch { sampler: sampler as usize, samples })
}

/// Returns the sampler, the number of samples, and the bytes before compression.
fn sample_head(chunk: &Chunk) -> Result<(u32, u32, u32), ProfileError> {
    let word = |i: usize| chunk.payload.get(4 * i..4 * i + 4)?.try_into().ok().map(u32::from_le_bytes);
    match (word(0), word(1), word(2)) {
        (Some(sampler), Some(count), Some(raw))
            if count <= sample::MAX_SAMPLES && raw as usize <= sample::MAX_BYTES =>
        {
            Ok((sampler, count, raw))
        }
        _ => Err(damaged(chunk, "its samples have no head")),
    }
}

fn inflate(bytes: &[u8], most: usize) -> Option<Vec<u8>> {
    // The frame's own length is trusted up to the limit. A frame without its length is read piece by piece.
    let mut raw = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(bytes).ok()?;
    let n = decoder.take(most as u64 + 1).read_to_end(&mut raw).ok()?;
    (n <= most).then_some(raw)
}

fn damaged(chunk: &Chunk, what: &str) -> ProfileError {
    ProfileError::Damaged { offset: chunk.offset, what: format!("in chunk `{}`, {what}", chunk.tag) }
}

fn json<T: DeserializeOwned>(chunk: &Chunk) -> Result<T, ProfileError> {
    serde_json::from_slice(&chunk.payload).map_err(|e| damaged(chunk, &e.to_string()))
}
