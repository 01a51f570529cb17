//! Profiles, which `atoll profile` writes: samples of memory accesses, and what is needed to say whose memory they touched.
//!
//! The profiler (`atoll-sampling` and the command) writes them, and the reports read them. The file is a container
//! ([`container`](crate::container)) whose chunks are written while the program runs, so that a file that was cut off is read
//! up to the cut: [`header`] first, then [`sample`]s and [`event`]s in the order of time, then [`names`], the chunks of a run,
//! and the [`header::Trailer`]. [`Profile`] is all of it except the samples, [`Batches`] are the samples, and [`Locator`] says
//! what each sample touched. The design is that of Roca Nonell and others, MCHPC'18, section 3: mappings are kept with their
//! times, and samples are matched with them when the profile is read.

pub mod event;
pub mod header;
pub mod locator;
pub mod names;
mod reader;
pub mod sample;
pub mod span;
mod varint;
mod writer;

pub use event::{Event, Loss};
pub use header::{Access, Header, SamplerInfo, SamplerTotals, Trailer};
pub use locator::{Doing, Locator, Place};
pub use names::{CodeLine, ModuleNames, Names};
pub use reader::{Batch, Batches, Profile, ProfileError, Wakeup, Worker, is_profile};
pub use sample::{PAGING, Sample};
pub use span::{Kind, Phase, Region, Span, Variable};
pub use writer::ProfileWriter;

use crate::container::Tag;

/// The format of the chunks below that this crate writes, and the latest that it reads.
pub const FORMAT: u32 = 1;

/// The tag of the [`Header`], in JSON.
pub const TAG_HEADER: Tag = Tag::new("profile");
/// The tag of [`Sample`]s.
pub const TAG_SAMPLES: Tag = Tag::new("samples");
/// The tag of [`Event`]s.
pub const TAG_EVENTS: Tag = Tag::new("events");
/// The tag of [`Names`].
pub const TAG_NAMES: Tag = Tag::new("names");
/// The tag of the [`Trailer`], in JSON.
pub const TAG_TRAILER: Tag = Tag::new("profend");
