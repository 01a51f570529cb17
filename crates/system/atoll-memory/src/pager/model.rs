//! The model checker's tests: every order in which two or three workers lock, map, unmap and evict one page.
//!
//! They drive the very files that workers share, `page_word.rs`, `frames.rs` and `pages.rs`, with loom's atomics from `sync.rs`. What the
//! kernel does is a few steps here, each of them whole, as the kernel's own locks make it. The order of steps is that of `fault`,
//! `copy_out` and `leaving`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p atoll-memory --lib pager::model`

use atoll_pages::Habit;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::frames::Frames;
use super::page_word::{self, PageWord, State, Word};
use super::pages::Pages;

/// Checks all orders with at most `preemptions` forced changes of thread, beside those at which a thread waits.
fn check(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Who waits for a page's lock looks at it again and again.
    builder.max_branches = 20_000;
    builder.check(test);
}

/// Workers, and words of a page: each worker writes one of its own.
const WORKERS: usize = 3;
type Content = [u8; WORKERS];

/// What a page table says of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mapping {
    None,
    ReadOnly,
    Writable,
}

/// What the kernel and far memory have of one page.
struct Kernel {
    file: Option<Content>,
    far: Option<Content>,
    tables: [Mapping; WORKERS],
}

/// One page, with as many frames as tests need.
struct Machine {
    pages: Pages,
    kernel: Mutex<Kernel>,
    /// Touched by who holds the lock of page 0 alone, which the checker sees to.
    guarded: UnsafeCell<u32>,
}

// SAFETY: the cell is what the tests are about: loom reports two who use it at once.
unsafe impl Sync for Machine {}
// SAFETY: as above.
unsafe impl Send for Machine {}

impl Machine {
    /// Pages and frames of the same numbers, of which page 0 is near in frame 0, clean, and mapped by nobody.
    fn new(pages: usize) -> Arc<Machine> {
        let words: &'static [Word] = (0..pages).map(|_| Word::new(0)).collect::<Vec<_>>().leak();
        let machine = Machine {
            pages: Pages::new(words, &[], Frames::of_model(pages)),
            kernel: Mutex::new(Kernel {
                file: Some([0; WORKERS]),
                far: None,
                tables: [Mapping::None; WORKERS],
            }),
            guarded: UnsafeCell::new(0),
        };
        machine.pages.frames.fill(0, 0, false, false);
        page_word::unlock(machine.pages.word(0), PageWord::resident(0, Habit::Read));
        Arc::new(machine)
    }

    /// Holds the lock of page 0: nobody else does.
    fn locked(&self) {
        self.guarded.with_mut(|count| {
            // SAFETY: the lock is held, or loom reports it.
            unsafe { *count += 1 };
        });
    }

    /// Worker `me` writes `value` to its word: through its page table, else by a fault first.
    fn write(&self, me: usize, value: u8) {
        loop {
            {
                let mut kernel = self.kernel.lock().unwrap();
                if kernel.tables[me] == Mapping::Writable {
                    kernel.file.as_mut().unwrap()[me] = value;
                    return;
                }
            }
            self.fault(me);
        }
    }

    /// A write fault of worker `me`, as `fault` resolves it.
    fn fault(&self, me: usize) {
        let frames = &self.pages.frames;
        let seen = self.pages.hold(0);
        self.locked();
        let mut kernel = self.kernel.lock().unwrap();
        let frame = match seen.state() {
            State::Resident => seen.frame(),
            _ => {
                // A page that stayed where it lies is in the file still.
                let content = kernel.file.or(kernel.far).unwrap_or_default();
                kernel.file = Some(content);
                frames.fill(0, 0, true, seen.state() == State::Far);
                0
            }
        };
        drop(kernel);
        frames.set_used(frame);
        frames.set_dirty(frame);
        self.kernel.lock().unwrap().tables[me] = Mapping::Writable;
        frames.add_mapper(frame, me);
        page_word::unlock(self.pages.word(0), PageWord::resident(frame, Habit::Written));
    }

    /// A read fault of worker `me` on the page, if it is near.
    fn map_to_read(&self, me: usize) {
        let Some(seen) = self.pages.try_lock_in(0, 0) else { return };
        self.locked();
        let protect = !self.pages.frames.dirty(0);
        self.kernel.lock().unwrap().tables[me] = if protect { Mapping::ReadOnly } else { Mapping::Writable };
        self.pages.frames.add_mapper(0, me);
        page_word::unlock(self.pages.word(0), seen);
    }

    /// Worker `me` drops its own mapping of the page, as `leaving` and `scan` have it do.
    fn drop_mapping(&self, me: usize) {
        if !self.pages.frames.mapped_by(0, me) {
            return;
        }
        let Some(seen) = self.pages.try_lock_in(0, 0) else { return };
        self.locked();
        if self.pages.frames.mapped_by(0, me) && !self.pages.frames.pinned(0) {
            self.kernel.lock().unwrap().tables[me] = Mapping::None;
            self.pages.frames.remove_mapper(0, me);
        }
        page_word::unlock(self.pages.word(0), seen);
    }

    /// Evicts the page, if it may leave: by protecting it first, or by unmapping it first with its content in a pipe.
    fn evict(&self, unmap_first: bool) {
        let Some(victim) = self.pages.lock_victim(0, 0, 7) else { return };
        self.locked();
        let (frames, kernel) = (&self.pages.frames, &self.kernel);
        let forbid = || {
            for table in (0..WORKERS).filter(|&table| victim.dirty && frames.mapped_by(0, table)) {
                kernel.lock().unwrap().tables[table] = Mapping::ReadOnly;
            }
        };
        let copied = if unmap_first {
            let mut kernel = kernel.lock().unwrap();
            kernel.tables = [Mapping::None; WORKERS];
            kernel.file.take()
        } else {
            forbid();
            kernel.lock().unwrap().file
        };
        let mut kernel = kernel.lock().unwrap();
        let is_writer = |table: &usize| kernel.tables[*table] == Mapping::Writable;
        assert_eq!((0..WORKERS).find(is_writer), None, "a table that is in no core map is written through");
        if victim.store {
            kernel.far = copied;
        }
        kernel.tables = [Mapping::None; WORKERS];
        kernel.file = None;
        drop(kernel);
        page_word::unlock(
            self.pages.word(0),
            PageWord::far(victim.habit.leaving(victim.dirty), victim.token),
        );
    }

    /// Worker `me` lets the page stay where it lies, if nobody else maps it.
    fn leave_in_place(&self, me: usize) {
        let Some(victim) = self.pages.lock_victim(0, 0, 7) else { return };
        self.locked();
        let word = if (0..WORKERS).any(|table| table != me && self.pages.frames.mapped_by(0, table)) {
            PageWord::resident(0, victim.habit)
        } else {
            self.kernel.lock().unwrap().tables[me] = Mapping::None;
            PageWord::far(victim.habit.leaving(victim.dirty), victim.token)
        };
        page_word::unlock(self.pages.word(0), word);
    }

    /// Moves the page to far memory, if it is far and stayed where it lies.
    fn pack(&self) {
        let word = self.pages.word(0);
        let seen = page_word::load(word);
        if seen.state() != State::Far || !page_word::try_lock(word, seen) {
            return;
        }
        self.locked();
        let mut kernel = self.kernel.lock().unwrap();
        assert_eq!(kernel.tables, [Mapping::None; WORKERS], "a far page is mapped");
        if let Some(content) = kernel.file.take() {
            kernel.far = Some(content);
        }
        drop(kernel);
        page_word::unlock(word, seen);
    }

    /// What the page holds, wherever it is. Nobody works on it any more.
    fn content(&self) -> Content {
        let kernel = self.kernel.lock().unwrap();
        kernel.file.or(kernel.far).unwrap_or_default()
    }
}

fn run(works: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = works.into_iter().map(thread::spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn work(machine: &Arc<Machine>, work: impl FnOnce(&Machine) + Send + 'static) -> Box<dyn FnOnce() + Send> {
    let machine = Arc::clone(machine);
    Box::new(move || work(&machine))
}

#[test]
fn no_write_is_lost_while_a_page_is_evicted() {
    for unmap_first in [false, true] {
        check(3, move || {
            let machine = Machine::new(1);
            run(vec![
                work(&machine, |machine| (1..=2).for_each(|value| machine.write(0, value))),
                work(&machine, move |machine| machine.evict(unmap_first)),
            ]);
            assert_eq!(machine.content(), [2, 0, 0]);
        });
    }
}

#[test]
fn no_write_of_two_workers_is_lost_while_a_third_evicts() {
    for unmap_first in [false, true] {
        check(1, move || {
            let machine = Machine::new(1);
            run(vec![
                work(&machine, |machine| machine.write(0, 5)),
                work(&machine, |machine| machine.write(1, 6)),
                work(&machine, move |machine| machine.evict(unmap_first)),
            ]);
            assert_eq!(machine.content(), [5, 6, 0]);
        });
    }
}

#[test]
fn no_write_is_lost_while_a_page_stays_where_it_lies_and_is_packed() {
    check(2, || {
        let machine = Machine::new(1);
        run(vec![
            work(&machine, |machine| (1..=2).for_each(|value| machine.write(0, value))),
            work(&machine, |machine| {
                machine.leave_in_place(1);
                machine.write(1, 4);
                machine.leave_in_place(1);
            }),
            work(&machine, Machine::pack),
        ]);
        assert_eq!(machine.content(), [2, 4, 0]);
    });
}

#[test]
fn core_maps_have_exactly_who_maps_the_page() {
    check(3, || {
        let machine = Machine::new(1);
        machine.map_to_read(1);
        run(vec![
            work(&machine, |machine| machine.map_to_read(0)),
            work(&machine, |machine| machine.drop_mapping(1)),
            work(&machine, |machine| machine.write(2, 9)),
        ]);
        let kernel = machine.kernel.lock().unwrap();
        for (table, mapping) in kernel.tables.iter().enumerate() {
            assert_eq!(machine.pages.frames.mapped_by(0, table), *mapping != Mapping::None, "table {table}");
        }
    });
}

#[test]
fn a_pinned_page_stays() {
    check(3, || {
        let machine = Machine::new(1);
        run(vec![
            work(&machine, |machine| {
                let Some(seen) = machine.pages.try_lock_in(0, 0) else { return };
                machine.locked();
                machine.pages.frames.pin(0);
                page_word::unlock(machine.pages.word(0), seen);
                // The system call: the page is there all the time.
                assert!(machine.kernel.lock().unwrap().file.is_some());
                let seen = machine.pages.hold(0);
                assert_eq!(seen.state(), State::Resident);
                machine.locked();
                machine.pages.frames.unpin(0);
                page_word::unlock(machine.pages.word(0), seen);
            }),
            work(&machine, |machine| machine.evict(false)),
            work(&machine, |machine| machine.map_to_read(1)),
        ]);
    });
}

/// Frame 0 goes from page 0 to page 1 while another worker still has the victim's old name.
#[test]
fn a_victim_is_locked_only_in_the_frame_that_holds_it() {
    check(3, || {
        let machine = Machine::new(2);
        let reuse = work(&machine, |machine| {
            let Some(victim) = machine.pages.lock_victim(0, 0, 0) else { return };
            let seen = machine.pages.hold(1);
            machine.pages.frames.fill(victim.frame, 1, false, false);
            page_word::unlock(machine.pages.word(0), PageWord::far(Habit::Read, 0));
            page_word::unlock(machine.pages.word(1), PageWord::resident(victim.frame, seen.habit()));
        });
        let choose = |page| {
            move |machine: &Machine| {
                let frame = machine.pages.frame_of(page);
                for frame in frame.into_iter().chain([0]) {
                    if let Some(victim) = machine.pages.lock_victim(page, frame, 0) {
                        assert_eq!(machine.pages.frames.page(victim.frame), page);
                        page_word::unlock(machine.pages.word(page), PageWord::resident(frame, victim.habit));
                    }
                }
            }
        };
        run(vec![reuse, work(&machine, choose(0)), work(&machine, choose(1))]);
    });
}
