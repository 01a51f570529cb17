//! The stages of cores: empty, a program loaded, running. They are the same for every backend, so that calls out of order are
//! errors.
//!
//! A backend says what it keeps in each stage. A backend whose cores have threads that report the end waits by [`Stage::wait`].

use std::sync::mpsc::Receiver;

use crate::backend::{End, SegmentError, machine};

/// A stage; `L` is kept while a program is loaded, `R` while it runs.
#[derive(Debug, Default)]
pub(crate) enum Stage<L, R> {
    #[default]
    Empty,
    Loaded(L),
    Running(R),
}

impl<L, R> Stage<L, R> {
    /// Takes what was loaded, to run it; the stage is empty until [`Stage::run`].
    ///
    /// # Errors
    /// No program is loaded, or one runs already.
    pub(crate) fn loaded(&mut self) -> Result<L, SegmentError> {
        match std::mem::take(self) {
            Stage::Loaded(loaded) => Ok(loaded),
            other => {
                *self = other;
                Err(machine("starting cores")(std::io::Error::other("no program is loaded")))
            }
        }
    }

    /// Takes what is kept of the running program.
    ///
    /// # Errors
    /// No program was started.
    pub(crate) fn running(&mut self) -> Result<R, SegmentError> {
        match std::mem::take(self) {
            Stage::Running(running) => Ok(running),
            other => {
                *self = other;
                Err(machine("serving cores")(std::io::Error::other("none was started")))
            }
        }
    }
}

impl<L> Stage<L, Receiver<End>> {
    /// Waits until the cores' threads report how the program ended.
    ///
    /// # Errors
    /// No program was started, or all threads are gone without a report.
    pub(crate) fn wait(&mut self) -> Result<End, SegmentError> {
        self.running()?.recv().map_err(|e| machine("serving cores")(std::io::Error::other(e)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_of_order_is_an_error() {
        let mut stage: Stage<u8, Receiver<End>> = Stage::default();
        assert!(stage.loaded().unwrap_err().to_string().contains("no program is loaded"));
        assert!(stage.wait().unwrap_err().to_string().contains("none was started"));
        stage = Stage::Loaded(3);
        assert!(stage.wait().is_err());
        assert_eq!(stage.loaded().unwrap(), 3, "an error loses nothing");
        let (end, ended) = std::sync::mpsc::channel();
        stage = Stage::Running(ended);
        assert!(stage.loaded().is_err());
        end.send(End::Status(5)).unwrap();
        assert_eq!(stage.wait().unwrap(), End::Status(5));
    }
}
