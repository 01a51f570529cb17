//! The direct segment: the program's memory as one stretch of huge pages that is there before the program starts.
//!
//! `make` makes the stretch, `kind` says of which pages, `contiguity` how it lies in physical memory; `fill` enters
//! every page of a process into its page table, and `faults` counts that none is missing afterwards. The OpenMP runtime
//! (`start/segment.rs` there) drives all of it; `figures` is its part of the control block. No userfaultfd here: what
//! the pager does has no place in a segment. `reserve` is what measurements and tests do around their runs.
//!
//! Source: `hybrid-segmentation.txt`, "Memory mapping": contiguous spaces are reserved as segments.

pub mod contiguity;
pub mod faults;
pub mod figures;
pub mod fill;
pub mod kind;
pub mod make;
pub mod reserve;

pub use figures::{SegmentFigures, SegmentSettings};
pub use kind::PageKind;
pub use make::{Segment, SegmentError};
pub use reserve::{Reservation, ReserveError};
