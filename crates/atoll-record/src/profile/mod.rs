//! What `atoll profile` leaves: samples of memory accesses, and what is needed to say whose memory they touched.
//!
//! Written by the profiler (`atoll-sampling` and the command), read by the reports. The file is a container
//! ([`container`](crate::container)) whose chunks come as the program runs, so that a file that was cut off is read up to
//! the cut: [`header`] first, then [`sample`]s and [`event`]s in order of time, then [`names`], the chunks of a run, and the
//! [`header::Trailer`]. [`Profile`] is all of it but the samples, [`Batches`] are these, and [`Locator`] says what each
//! sample touched. The design is that of Roca Nonell and others, MCHPC'18, section 3: mappings are kept with their times, and
//! samples are matched with them when looked at.

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

/// The format of the chunks below that is written, and the latest that is read.
pub const FORMAT: u32 = 1;

/// JSON of the [`Header`].
pub const TAG_HEADER: Tag = Tag::new("profile");
/// [`Sample`]s.
pub const TAG_SAMPLES: Tag = Tag::new("samples");
/// [`Event`]s.
pub const TAG_EVENTS: Tag = Tag::new("events");
/// [`Names`].
pub const TAG_NAMES: Tag = Tag::new("names");
/// JSON of the [`Trailer`].
pub const TAG_TRAILER: Tag = Tag::new("profend");
