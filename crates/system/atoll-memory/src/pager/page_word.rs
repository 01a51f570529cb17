//! The state of one page in 32 bits, changed by compare-and-swap: the shared page table's entry.
//!
//! Used by the pager's paths. A page that is `Busy` belongs to whoever made it so: that is the page lock, and the
//! only one a fault takes.
//!
//! Rules: no allocation, no locks, no arena access.

use atoll_pages::Habit;

use super::sync::{AtomicU32, Ordering};

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Never touched, or freed: reads as zeros.
    Absent,
    /// In far memory.
    Far,
    /// In near memory, in the frame the word names.
    Resident,
    /// Being fetched, mapped, evicted or freed by one executor.
    Busy,
}

/// One entry, in shared memory.
pub type Word = AtomicU32;

/// One entry's value. Bits 0–1: state; bits 2–3: [`Habit`]; bits 4–31: the frame of a resident page, the policy's
/// token of a far one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageWord(pub u32);

const STATE: u32 = 3;
const HABIT_SHIFT: u32 = 2;
const FRAME_SHIFT: u32 = 4;

/// Frames a word can name.
pub const MAX_FRAMES: u32 = 1 << 28;

impl PageWord {
    /// A page that is resident in `frame`.
    pub fn resident(frame: u32, habit: Habit) -> PageWord {
        PageWord(2 | (habit as u32) << HABIT_SHIFT | (frame << FRAME_SHIFT))
    }

    /// A page in far memory; `token`: what the policy wants to be told when it returns (28 bits are kept).
    pub fn far(habit: Habit, token: u32) -> PageWord {
        PageWord(1 | (habit as u32) << HABIT_SHIFT | (token << FRAME_SHIFT))
    }

    /// The policy's token of a far page.
    #[inline]
    pub fn token(self) -> u32 {
        self.0 >> FRAME_SHIFT
    }

    /// A page that reads as zeros.
    pub const ABSENT: PageWord = PageWord(0);

    /// An absent page over which the program has another mapping: see `cover`.
    pub const COVERED: PageWord = PageWord(1 << FRAME_SHIFT);

    /// Whether the program has another mapping over the page.
    #[inline]
    pub fn is_covered(self) -> bool {
        self == PageWord::COVERED
    }

    /// Where it is.
    #[inline]
    pub fn state(self) -> State {
        match self.0 & STATE {
            0 => State::Absent,
            1 => State::Far,
            2 => State::Resident,
            _ => State::Busy,
        }
    }

    /// The frame of a resident page.
    #[inline]
    pub fn frame(self) -> u32 {
        self.0 >> FRAME_SHIFT
    }

    /// What it is used for.
    #[inline]
    pub fn habit(self) -> Habit {
        match self.0 >> HABIT_SHIFT & 3 {
            0 => Habit::Read,
            1 => Habit::Unknown,
            _ => Habit::Written,
        }
    }

    #[inline]
    fn busy(self) -> PageWord {
        PageWord(self.0 | STATE)
    }
}

/// Takes the page lock if the word is still `seen` (which is not busy).
#[inline]
pub fn try_lock(word: &Word, seen: PageWord) -> bool {
    // Acquire: pairs with the Release in `unlock` of whoever held the page before, whose writes to the frame's
    // entry are then seen here.
    word.compare_exchange(seen.0, seen.busy().0, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Makes a word that is not locked another one; without effect where it is not `from`.
pub fn replace(word: &Word, from: PageWord, to: PageWord) {
    // Both say that the page holds nothing, so there is nothing to be seen with them.
    let _ = word.compare_exchange(from.0, to.0, Ordering::Relaxed, Ordering::Relaxed);
}

/// Gives the page lock back, with the page's new state.
#[inline]
pub fn unlock(word: &Word, now: PageWord) {
    // Release: pairs with the Acquire in `try_lock`.
    word.store(now.0, Ordering::Release);
}

/// Reads the word.
#[inline]
pub fn load(word: &Word) -> PageWord {
    PageWord(word.load(Ordering::Acquire))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_what_it_is_given() {
        for habit in [Habit::Read, Habit::Unknown, Habit::Written] {
            for number in [0, 1, MAX_FRAMES - 1] {
                let near = PageWord::resident(number, habit);
                assert_eq!((near.state(), near.frame(), near.habit()), (State::Resident, number, habit));
                let far = PageWord::far(habit, number);
                assert_eq!((far.state(), far.token(), far.habit()), (State::Far, number, habit));
            }
        }
        assert_eq!((PageWord::ABSENT.state(), PageWord::ABSENT.is_covered()), (State::Absent, false));
        assert_eq!((PageWord::COVERED.state(), PageWord::COVERED.is_covered()), (State::Absent, true));
    }

    #[test]
    fn one_of_many_gets_the_page() {
        let word = Word::new(PageWord::far(Habit::Read, 7).0);
        let count = Word::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..10_000 {
                        let seen = load(&word);
                        if seen.state() != State::Busy && try_lock(&word, seen) {
                            let n = count.load(Ordering::Relaxed);
                            std::hint::spin_loop();
                            count.store(n + 1, Ordering::Relaxed);
                            unlock(&word, PageWord::far(Habit::Read, (n + 1) % MAX_FRAMES));
                        }
                    }
                });
            }
        });
        assert_eq!(load(&word).token(), count.load(Ordering::Relaxed));
    }
}
