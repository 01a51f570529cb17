//! Where a program, its heap and its stack go in a segment: the same for every backend.
//!
//! Used by each `load`; `space.rs` then keeps what lies between image and stack.

use crate::backend::{Program, SegmentError};
use crate::calls::{About, Delegate};
use crate::errno::Errno;
use crate::image::Width;
use crate::memory::Discard;
use crate::space::{PAGE, Space};
use crate::start::{self, Places};
use crate::window::Window;

/// The smallest segment, in bytes: what a small program of glibc needs.
pub(crate) const LEAST: u64 = 1 << 20;

/// Where a position-independent program is loaded.
const MOVABLE: u64 = 4 << 20;

/// A program in its segment.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Its paging side.
    pub(crate) delegate: Delegate,
    /// How much higher than linked it was loaded.
    pub(crate) slide: u64,
    /// The first instruction.
    pub(crate) entry: u64,
    /// The stack pointer it begins with.
    pub(crate) stack: u64,
}

/// Loads a program into a window of zeros.
pub(crate) fn load(
    program: &Program,
    window: Window,
    discard: Discard,
    gate: Option<(u64, u64)>,
    threads: bool,
) -> Result<Loaded, SegmentError> {
    let image = &program.image;
    let wrong = |e| SegmentError::Image(program.path.clone(), e);
    let slide = if image.movable { MOVABLE.max(window.low()) } else { 0 };
    image.load(&program.path, &window, slide).map_err(wrong)?;
    let (_, end) = image.extent();
    let first_break = (end + slide).next_multiple_of(PAGE);
    // As Linux has it, or less in a small segment.
    let room = (window.limit() / 16).clamp(64 << 10, 8 << 20) / PAGE * PAGE;
    let top = window.limit() - room;
    if first_break > top {
        let beyond = crate::image::ImageError::DoesNotFit {
            what: "a stack",
            offset: first_break,
            low: window.low(),
            limit: window.limit(),
        };
        return Err(wrong(beyond));
    }
    let entry = image.entry + slide;
    let headers = image.headers.map(|(at, count)| (at + slide, count));
    let gate = gate.filter(|_| image.width == Width::Bits32);
    let places = Places { entry, headers, gate, stack: window.limit() - 16 };
    let stack = start::stack(&window, image.width, places, &program.start(), room / 2)
        .map_err(|errno: Errno| SegmentError::Arguments(errno))?;
    let delegate = Delegate::new(About {
        width: image.width,
        window,
        discard,
        threads,
        program: program.path.clone(),
        space: Space::new(first_break, top),
    });
    Ok(Loaded { delegate, slide, entry, stack })
}
