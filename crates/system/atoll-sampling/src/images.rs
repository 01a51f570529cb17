//! Knows which programs a profile's processes execute, and which program most samples are of.
//!
//! A profile may begin with a command that only starts the program (`timeout`, `env`, a script). The recorder reports the
//! beginning of each program.

use std::collections::HashMap;

/// The files of all programs, with their numbers of samples.
#[derive(Debug, Default)]
pub(crate) struct Images {
    /// The program's file by address space; empty while the file is not known.
    of: HashMap<u32, String>,
    samples: HashMap<String, u64>,
}

impl Images {
    /// Notes that a process was made by another.
    pub(crate) fn fork(&mut self, space: u32, parent: u32) {
        if let Some(file) = self.of.get(&parent).cloned() {
            self.of.insert(space, file);
        }
    }

    /// Notes that a process executes another program, whose file is the first that is mapped from now on.
    pub(crate) fn execute(&mut self, space: u32) {
        self.of.insert(space, String::new());
    }

    /// Notes that a process mapped code of a file.
    pub(crate) fn map(&mut self, space: u32, file: &str) {
        let image = self.of.entry(space).or_default();
        if image.is_empty() && file.starts_with('/') {
            file.clone_into(image);
        }
    }

    /// Notes that a process was sampled.
    pub(crate) fn sampled(&mut self, space: u32) {
        let Some(file) = self.of.get(&space).filter(|file| !file.is_empty()) else { return };
        match self.samples.get_mut(file) {
            Some(samples) => *samples += 1,
            None => drop(self.samples.insert(file.clone(), 1)),
        }
    }

    /// Returns the file of the program that most samples are of.
    pub(crate) fn most_sampled(&self) -> Option<String> {
        let most = self.samples.iter().max_by_key(|(file, samples)| (**samples, std::cmp::Reverse(*file)));
        most.map(|(file, _)| file.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_is_not_the_program() {
        let mut images = Images::default();
        images.execute(1);
        images.map(1, "/usr/bin/timeout");
        images.map(1, "/lib/libc.so.6");
        images.sampled(1);
        images.fork(2, 1);
        images.sampled(2);
        assert_eq!(images.most_sampled().as_deref(), Some("/usr/bin/timeout"));
        images.execute(2);
        images.sampled(2);
        images.map(2, "/home/program");
        images.map(2, "/lib/libc.so.6");
        (0..3).for_each(|_| images.sampled(2));
        assert_eq!(images.most_sampled().as_deref(), Some("/home/program"));
    }
}
