//! Reads a file and keeps the offset, so that an error can name it.
//!
//! [`container`](crate::container) and [`trace`](crate::trace) read through it and make errors of their own.

use std::io::{self, Read};

/// A file that is being read.
#[derive(Debug)]
pub(crate) struct Source<R> {
    pub(crate) from: R,
    /// The number of bytes read so far.
    pub(crate) offset: u64,
}

impl<R: Read> Source<R> {
    /// Starts reading at offset 0.
    pub(crate) fn new(from: R) -> Self {
        Self { from, offset: 0 }
    }

    /// Reads into `to` as many bytes as there are.
    ///
    /// # Errors
    /// The reader's error, which happened at `offset`; an interrupted read is repeated.
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
