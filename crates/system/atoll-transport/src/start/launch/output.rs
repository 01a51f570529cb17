//! Prints the nodes' output, whole lines of each at a time.
//!
//! Each node's reader (`link.rs`) has a [`Lines`] for each stream; all nodes' lines of a stream share its descriptor here.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::start::frame::Stream;

/// The bytes beyond which a line is printed in parts.
const LONGEST_LINE: usize = 64 << 10;

/// The launcher's own standard output and error.
#[derive(Clone)]
pub(super) struct Output(Arc<[Mutex<File>; 2]>);

impl Output {
    /// Opens copies of this process's descriptors.
    pub(super) fn new() -> io::Result<Output> {
        let copy =
            |file: BorrowedFd<'_>| Ok::<_, io::Error>(Mutex::new(File::from(file.try_clone_to_owned()?)));
        Ok(Output(Arc::new([copy(rustix::stdio::stdout())?, copy(rustix::stdio::stderr())?])))
    }

    /// Prints `bytes` in one piece.
    pub(super) fn print(&self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let Output(files) = self;
        files[stream as usize].lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)
    }
}

/// One stream of one node: the part of its last line that has come.
pub(super) struct Lines {
    rest: Vec<u8>,
    /// Whether the last output was part of a line.
    open: bool,
    /// Whether nobody else prints, so that no line's end need be awaited.
    alone: bool,
}

impl Lines {
    pub(super) fn new(alone: bool) -> Lines {
        Lines { rest: Vec::new(), open: false, alone }
    }

    /// Takes `bytes`, and passes the lines that are complete now to `print`.
    pub(super) fn push<E>(
        &mut self,
        bytes: &[u8],
        print: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let old = self.rest.len();
        self.rest.extend_from_slice(bytes);
        let whole = match bytes.iter().rposition(|&byte| byte == b'\n') {
            _ if self.alone => self.rest.len(),
            Some(at) => old + at + 1,
            None if self.rest.len() > LONGEST_LINE => self.rest.len(),
            None => return Ok(()),
        };
        self.open = !self.alone && !self.rest[..whole].ends_with(b"\n");
        let printed = print(&self.rest[..whole]);
        self.rest.drain(..whole);
        printed
    }

    /// Prints an incomplete last line, with a newline where other nodes print too.
    pub(super) fn end<E>(&mut self, print: impl FnOnce(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.rest.is_empty() && !self.open {
            return Ok(());
        }
        self.rest.push(b'\n');
        print(&std::mem::take(&mut self.rest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn printed(pieces: &[Vec<u8>], alone: bool) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(alone);
        let mut all = Vec::new();
        let mut keep = |bytes: &[u8]| {
            all.push(bytes.to_vec());
            Ok::<_, ()>(())
        };
        for piece in pieces {
            lines.push(piece, &mut keep).unwrap();
        }
        lines.end(&mut keep).unwrap();
        all
    }

    #[test]
    fn whole_lines_are_printed_and_the_last_gets_its_end() {
        let pieces = [&b"a"[..], b"b\nc", b"\nd\n", b"e"].map(<[u8]>::to_vec);
        assert_eq!(printed(&pieces, false), [&b"ab\n"[..], b"c\nd\n", b"e\n"]);
        assert_eq!(printed(&pieces, true).concat(), b"ab\nc\nd\ne");
        let long = vec![vec![b'x'; 50_000]; 4];
        assert_eq!(printed(&long, false).concat().len(), 200_001);
        assert!(printed(&long, false).len() > 1);
        // A long line's end and the start of the next come in one piece: the next was printed with it, and got no end.
        let pieces = [vec![b'x'; LONGEST_LINE], b"x\nrest".to_vec()];
        assert!(printed(&pieces, false).concat().ends_with(b"x\nrest\n"));
        assert!(printed(&[vec![b'x'; LONGEST_LINE + 1]], false).concat().ends_with(b"x\n"));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_every_print_ends_a_line(
            pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'x')], 0..9), 0..20),
        ) {
            let mut whole = pieces.concat();
            if whole.last().is_some_and(|&byte| byte != b'\n') {
                whole.push(b'\n');
            }
            let all = printed(&pieces, false);
            prop_assert!(all.iter().all(|print| print.ends_with(b"\n")));
            prop_assert_eq!(all.concat(), whole);
        }
    }
}
