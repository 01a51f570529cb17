//! What a page is used for, by what was seen of it, and whether it is mapped writable when it comes back.
//!
//! The pager keeps a [`Habit`] in each page's entry and [`Guesses`] for each worker; the simulator does the same. To map a page
//! read-only costs a second fault if the page is written, and saves its way to far memory if it is not.

use crate::pacing::LOOK;

/// What was seen of a page's writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Habit {
    /// The page was not written when it was last resident.
    #[default]
    Read,
    /// The page may have been written: it was mapped writable, and nobody looked.
    Unknown,
    /// The page was seen to be written after it had been mapped read-only.
    Written,
}

impl Habit {
    /// The habit of a page that is mapped writable from now on.
    #[inline]
    pub fn mapped_writable(self) -> Habit {
        if self == Habit::Read { Habit::Unknown } else { self }
    }

    /// The habit of a page that a fault is about to write. `was_protected`: it was mapped read-only, and is seen to be written.
    #[inline]
    pub fn written(self, was_protected: bool) -> Habit {
        if was_protected { Habit::Written } else { self.mapped_writable() }
    }

    /// The habit that a page takes to far memory. `is_dirty`: somebody mapped it writable while it was near.
    #[inline]
    pub fn leaving(self, is_dirty: bool) -> Habit {
        if is_dirty { self } else { Habit::Read }
    }
}

/// How often one worker has guessed what a page will be used for. All zero is a valid value.
#[derive(Debug, Clone, Copy, Default)]
pub struct Guesses {
    made: u32,
}

impl Guesses {
    /// Whether a page that comes near is mapped writable at once: if this fault writes it, if it never was anywhere, and if it is
    /// known to be written. One in [`LOOK`] of the pages known to be written is mapped read-only, to notice when that changes.
    #[inline]
    pub fn is_writable(&mut self, is_write: bool, is_new: bool, habit: Habit) -> bool {
        if is_write || is_new {
            return true;
        }
        self.made = self.made.wrapping_add(1);
        habit == Habit::Written && !self.made.is_multiple_of(LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_habit_is_learned_from_a_write_to_a_protected_page_and_lost_without_writes() {
        assert_eq!(Habit::Read.written(false), Habit::Unknown);
        assert_eq!(Habit::Unknown.written(true), Habit::Written);
        assert_eq!(Habit::Written.written(false), Habit::Written);
        assert_eq!(Habit::Written.leaving(true).leaving(false), Habit::Read);
    }

    #[test]
    fn one_in_64_guesses_looks_whether_a_page_is_still_written() {
        let mut guesses = Guesses::default();
        assert!(
            guesses.is_writable(true, false, Habit::Read) && guesses.is_writable(false, true, Habit::Read)
        );
        let writable = (0..640).filter(|_| guesses.is_writable(false, false, Habit::Written)).count();
        assert_eq!(writable, 630);
        assert!(!guesses.is_writable(false, false, Habit::Unknown));
    }
}
