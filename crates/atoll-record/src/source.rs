//! Reads a file while knowing how far it has come, so that an error can name the offset.
//!
//! [`container`](crate::container) and [`trace`](crate::trace) read through it and make errors of their own.

use std::io::{self, Read};

/// A file being read.
#[derive(Debug)]
pub(crate) struct Source<R> {
    pub(crate) from: R,
    /// Bytes read so far.
    pub(crate) offset: u64,
}

impl<R: Read> Source<R> {
    /// At the beginning.
    pub(crate) fn new(from: R) -> Self {
        Self { from, offset: 0 }
    }

    /// Reads as much of `to` as there is.
    ///
    /// # Errors
    /// The reader's, behind `offset`; an interrupted read is made again.
    pub(crate) fn fill(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < to.len() {
            match self.from.read(&mut to[done..]) {
                Ok(0) => break,
                Ok(n) => {
                    done += n;
                    self.offset += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}
