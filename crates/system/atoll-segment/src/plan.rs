//! Places a program, its heap and its stack in a segment, in the same way for every backend.
//!
//! Every `load` uses it; `space.rs` then keeps account of what lies between image and stack.

use crate::backend::{Program, SegmentError};
use crate::calls::{About, Delegate};
use crate::errno::Errno;
use crate::image::Width;
use crate::memory::Discard;
use crate::space::{PAGE, Space};
use crate::start::{self, Places};
use crate::window::Window;

/// The smallest segment, in bytes: a small program of glibc needs it.
pub(crate) const LEAST: u64 = 1 << 20;

/// The offset at which a position-independent program is loaded.
const MOVABLE: u64 = 4 << 20;

/// A program in its segment.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The paging side of the program.
    pub(crate) delegate: Delegate,
    /// The number of bytes by which it was loaded higher than linked.
    pub(crate) slide: u64,
    /// The first instruction.
    pub(crate) entry: u64,
    /// The stack pointer at the first instruction.
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
    // The stack is as large as under Linux, or smaller in a small segment.
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
    // The place of the headers is only passed on to the program, so it need not be checked.
    let headers = image.headers.map(|(at, count)| (at.wrapping_add(slide), count));
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::image::tests::{small, small_64};
    use crate::memory::Memory;

    const AROUND: usize = 64 << 10;
    const LOW: u64 = 0x1000;
    const BYTES: usize = 8 << 20;
    const MARK: u8 = 0xa5;

    /// Loads a file into a segment with marks around it; returns whether it was accepted.
    fn loaded(file: &[u8]) -> Result<bool, TestCaseError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, file).unwrap();
        let memory = Memory::private(None, BYTES + 2 * AROUND).unwrap();
        let ends = [(0, AROUND + LOW as usize), (AROUND + BYTES, AROUND)];
        for (at, len) in ends {
            // SAFETY: inside the mapping.
            unsafe { std::ptr::write_bytes(memory.base().wrapping_add(at), MARK, len) };
        }
        let window = memory.window(AROUND as i64, LOW, BYTES as u64);
        let taken = match Program::open(&path, vec!["a".into()], vec!["B=c".into()]) {
            Ok(program) => load(&program, window, memory.discard(), Some((LOW, LOW)), true),
            Err(error) => Err(error),
        };
        for (at, len) in ends {
            // SAFETY: inside the mapping.
            let marks = unsafe { std::slice::from_raw_parts(memory.base().wrapping_add(at), len) };
            prop_assert!(marks.iter().all(|&byte| byte == MARK), "touched what is around {at:#x}");
        }
        let Ok(taken) = taken else { return Ok(false) };
        prop_assert!((LOW..BYTES as u64).contains(&taken.stack) && taken.entry < BYTES as u64);
        Ok(true)
    }

    /// Places the file somewhere in the segment, so that not every one is refused for that alone.
    fn placed(mut file: Vec<u8>, address: u32) -> Vec<u8> {
        let wide = file[4] == 2;
        let (entry, place) = if wide { (24, 0x50) } else { (24, 0x3c) };
        let header = if wide { 0x78 } else { 0x54 };
        file[entry..entry + 4].copy_from_slice(&(address + header).to_le_bytes());
        file[place..place + 4].copy_from_slice(&address.to_le_bytes());
        file
    }

    #[test]
    fn the_undamaged_are_taken() {
        for file in [small(|_| ()), small_64()] {
            assert!(loaded(&placed(file, 0x10_0000)).unwrap());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn hostile_files_touch_nothing_around_the_segment(
            wide: bool,
            address in prop_oneof![Just(0x10_0000_u32), any::<u32>(), 0_u32..BYTES as u32],
            changes in prop::collection::vec((0x10_usize..0x78, prop_oneof![any::<u8>(), Just(0xff), Just(0)]), 0..6),
            cut in prop_oneof![Just(usize::MAX), 0_usize..0x90],
        ) {
            let mut file = placed(if wide { small_64() } else { small(|_| ()) }, address % (1 << 30));
            let len = file.len();
            for (at, byte) in changes {
                file[at % len] = byte;
            }
            file.truncate(cut);
            loaded(&file)?;
        }
    }
}
