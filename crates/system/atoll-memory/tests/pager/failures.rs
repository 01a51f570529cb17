//! One failure a test: what the kernel or far memory refuses at the worst moment, and what must be true afterwards.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use atoll_memory::far::{FarError, FarOp};
use atoll_memory::pager::FaultError;
use atoll_memory::sys::Errno;

use crate::alone;
use crate::orders::{self, Act, Call, order};
use crate::team::{Team, fault, map_first, word_of};
use crate::traces::{Peek, near_for};

/// For what runs in the middle of a system call.
static TEAM: AtomicPtr<Team> = AtomicPtr::new(std::ptr::null_mut());

fn team_now() -> &'static Team {
    // SAFETY: the tests that come here leak their team.
    unsafe { &*TEAM.load(Ordering::Acquire) }
}

fn leaked(team: Team) -> &'static Team {
    let team = Box::leak(Box::new(team));
    TEAM.store(team, Ordering::Release);
    team
}

/// Near memory of about so many frames.
const FRAMES: u64 = 60;

fn team(workers: usize, shift: u32, policy: &str, far: &str) -> Option<Team> {
    Team::new(workers, shift, near_for(FRAMES, shift), policy, far, u64::MAX)
}

/// Worker `worker` writes its number and the page's into pages.
fn fill(team: &Team, worker: usize, pages: impl IntoIterator<Item = usize>) {
    for page in pages {
        team.write(worker, team.at(page) + word_of(worker, 1), value(worker, page)).unwrap();
    }
}

fn value(worker: usize, page: usize) -> u64 {
    ((worker as u64 + 1) << 32) | (page as u64 + 1)
}

/// All these pages hold what `fill` wrote, wherever they are.
fn check(team: &Team, worker: usize, pages: impl IntoIterator<Item = usize>) {
    let mut peek = Peek::new(team);
    for page in pages {
        let content = peek.content(team, page);
        let at = word_of(worker, 1);
        let word = u64::from_ne_bytes(content[at..at + 8].try_into().unwrap());
        assert_eq!(word, value(worker, page), "page {page} of worker {worker}");
    }
}

/// Worker 0 writes new pages from `first` on until an order was met; how many pages it wrote, and what refused the next one.
fn write_until_met(team: &Team, first: usize) -> (usize, Option<FaultError>) {
    let left = orders::left();
    for page in first..first + 4000 {
        let address = team.at(page) + word_of(0, 1);
        let refused = fault(address, true, false).err();
        if refused.is_none() {
            // SAFETY: the arena's memory.
            unsafe { (address as *mut u64).write_volatile(value(0, page)) };
        }
        if refused.is_some() || orders::left() < left {
            return (page - first + usize::from(refused.is_none()), refused);
        }
    }
    panic!("no such call was made");
}

/// Whether this process's page table maps `address`: bit 63 of its entry in `/proc/self/pagemap`.
fn is_mapped_here(address: usize) -> bool {
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    let mut entry = [0; 8];
    map.read_exact_at(&mut entry, address as u64 / 4096 * 8).unwrap();
    u64::from_ne_bytes(entry) >> 63 != 0
}

macro_rules! failures {
    ($($(#[$doc:meta])* fn $name:ident() $body:block)*) => {
        $($(#[$doc])* #[test]
        fn $name() {
            alone(concat!("failures::", stringify!($name)), || $body.is_some());
        })*
    };
}

failures! {
    /// The pipe was closed twice, the second time as descriptor 0.
    fn a_refused_splice_closed_the_programs_standard_input() {
        team(2, 12, "fifo", "ram").map(|team| {
            fill(&team, 1, 0..100);
            order(Call::Splice, 1, Act::Fail(libc::EAGAIN));
            let (count, refused) = write_until_met(&team, 1000);
            assert_eq!(refused, None);
            // SAFETY: asks for a flag.
            assert!(unsafe { libc::fcntl(0, libc::F_GETFD) } >= 0, "standard input is closed");
            check(&team, 1, 0..100);
            check(&team, 0, 1000..1000 + count);
        })
    }

    /// The write went to a page that was copied already and then removed.
    fn a_write_was_lost_when_its_page_could_not_be_write_protected() {
        team(2, 12, "fifo", "ram").map(|team| {
            let team = leaked(team);
            fill(team, 1, 0..100);
            // Without a pipe pages are write-protected, copied and only then unmapped.
            order(Call::Pipe, 1, Act::Fail(libc::EMFILE));
            order(Call::Protect, 1, Act::Fail(libc::ENOMEM));
            order(Call::Punch, 1, Act::After(|| {
                let team = team_now();
                team.begin_to_write(1, team.at(0) + word_of(1, 1), 77);
                std::thread::sleep(Duration::from_millis(100));
            }));
            for page in 1000..4000 {
                fill(team, 0, [page]);
                if orders::left() == 0 {
                    break;
                }
            }
            assert_eq!(orders::left(), 0);
            team.await_end(1).unwrap();
            assert_eq!(team.read(0, team.at(0) + word_of(1, 1)), Some(77));
            check(team, 1, 1..100);
        })
    }

    /// The next fault on the page found a part of it there, and the program ended.
    fn a_part_of_a_larger_page_stayed_when_memory_ran_out() {
        team(1, 16, "fifo", "ram").map(|team| {
            order(Call::Zero, 1, Act::Part(16384, libc::EAGAIN));
            order(Call::Zero, 2, Act::Fail(libc::ENOMEM));
            assert_eq!(fault(team.at(0), true, false), Err(FaultError::Kernel(Errno(libc::ENOMEM))));
            assert!((0..16).all(|part| team.in_file(team.at(0) + part * 4096, &mut [0; 4096]).is_none()));
            fill(&team, 0, 0..200);
            let far = (0..200).find(|&page| !team.is_near(page)).unwrap();
            order(Call::Copy, 1, Act::Part(16384, libc::EAGAIN));
            order(Call::Copy, 2, Act::Fail(libc::ENOMEM));
            assert_eq!(fault(team.at(far), true, false), Err(FaultError::Kernel(Errno(libc::ENOMEM))));
            check(&team, 0, 0..200);
            (0..200).for_each(|page| assert!(team.read(0, team.at(page)).is_some()));
            check(&team, 0, 0..200);
        })
    }

    /// What was asked for is there; what came ahead comes another time.
    fn memory_ran_out_for_a_page_fetched_ahead() {
        team(1, 12, "fifo", "lz4").map(|team| {
            fill(&team, 0, 0..600);
            (0..8).for_each(|page| assert!(team.read(0, team.at(page)).is_some()));
            order(Call::Copy, 1, Act::Part(4096, libc::EAGAIN));
            order(Call::Copy, 2, Act::Fail(libc::ENOMEM));
            for page in 8..60 {
                assert_eq!(team.read(0, team.at(page) + word_of(0, 1)), Some(value(0, page)));
            }
            assert_eq!(orders::left(), 0);
            check(&team, 0, 0..600);
        })
    }

    fn another_thread_of_the_worker_mapped_the_page_first() {
        // A policy with exact counts has no neighbours mapped.
        team(2, 12, "lru:scan=40", "ram").map(|team| {
            let team = leaked(team);
            fill(team, 1, 0..4);
            order(Call::Continue, 1, Act::After(|| map_first(team_now().at(0), 4096)));
            assert_eq!(team.read(0, team.at(0) + word_of(1, 1)), Some(value(1, 0)));
            order(Call::Continue, 1, Act::After(|| map_first(team_now().at(1), 4096)));
            fill(team, 0, [1]);
            assert_eq!(orders::left(), 0);
            check(team, 1, 0..4);
            check(team, 0, [1]);
        })
    }

    /// Half of a larger page was mapped by another thread, or before an interruption.
    fn a_part_of_a_larger_page_is_mapped_already() {
        team(2, 16, "fifo", "ram").map(|team| {
            fill(&team, 1, 0..4);
            order(Call::Continue, 1, Act::Part(16384, libc::EAGAIN));
            fill(&team, 0, 0..4);
            assert_eq!(orders::left(), 0);
            check(&team, 1, 0..4);
            check(&team, 0, 0..4);
        })
    }

    /// The core map did not have that mapping: what was written through it while the page left was lost.
    fn a_part_of_a_page_that_was_mapped_before_memory_ran_out_lost_writes() {
        team(2, 16, "fifo", "ram").map(|team| {
            fill(&team, 1, 0..4);
            let address = team.at(0) + word_of(0, 1);
            order(Call::Continue, 1, Act::Part(16384, libc::EAGAIN));
            order(Call::Continue, 2, Act::Fail(libc::ENOMEM));
            assert_eq!(fault(address, true, false), Err(FaultError::Kernel(Errno(libc::ENOMEM))));
            assert!(!is_mapped_here(address));
            fill(&team, 0, 0..4);
            assert!(is_mapped_here(address));
            check(&team, 1, 0..4);
            check(&team, 0, 0..4);
        })
    }

    /// The disk is full behind the second page: all stay near, those that were unmapped, too.
    fn a_far_store_failed_in_the_middle_of_a_batch() {
        team(2, 12, "fifo", "file").map(|team| {
            for (worker, first) in [(0, 0), (1, 500)] {
                fill(&team, worker, first..first + 100);
                order(Call::WriteMany, 1, Act::Short(8192));
                order(Call::WriteOne, 1, Act::Fail(libc::ENOSPC));
                let mut next = 1000 + first;
                while orders::left() > 0 {
                    let (count, refused) = write_until_met(&team, next);
                    check(&team, 0, next..next + count);
                    next += count;
                    let full = FarError::Io { errno: libc::ENOSPC, op: FarOp::Write };
                    assert!(refused.is_none_or(|refused: FaultError| refused == FaultError::Far(full)), "{refused:?}");
                    // While the pager's tables grow a batch may have two pages, which are written whole: the next batch is cut short.
                    if orders::left() == 1 {
                        order(Call::WriteMany, 1, Act::Short(8192));
                    }
                }
                check(&team, worker, first..first + 100);
                fill(&team, 0, next..next + 100);
                check(&team, worker, first..first + 100);
                check(&team, 0, next..next + 100);
            }
        })
    }

    fn far_memory_is_full_until_pages_are_freed() {
        Team::new(2, 12, near_for(FRAMES, 12), "fifo", "ram", 40 << 12).map(|team| {
            let mut page = 0;
            let refused = loop {
                match fault(team.at(page) + word_of(0, 1), true, false) {
                    Ok(()) => fill(&team, 0, [page]),
                    Err(refused) => break refused,
                }
                page += 1;
            };
            assert_eq!(refused, FaultError::Far(FarError::Full));
            check(&team, 0, 0..page);
            team.pager.release(team.at(0), team.at(80), &team.pager.control().figures[0]);
            fill(&team, 0, page..page + 30);
            check(&team, 0, 80..page + 30);
        })
    }

    /// One page in a window cannot be read: nobody asked for it yet.
    fn a_neighbour_that_far_memory_could_not_read_failed_the_page_that_was_asked_for() {
        team(1, 12, "fifo", "file").map(|team| {
            fill(&team, 0, 0..600);
            (0..8).for_each(|page| assert!(team.read(0, team.at(page)).is_some()));
            order(Call::ReadMany, 1, Act::Short(4096));
            order(Call::ReadOne, 1, Act::Fail(libc::EIO));
            for page in 8..80 {
                assert_eq!(fault(team.at(page), false, false), Ok(()), "page {page}");
            }
            assert_eq!(orders::left(), 0);
            check(&team, 0, 0..600);
        })
    }

    /// A hole that is refused: the pages stay, in either order of copying and unmapping.
    fn a_refused_hole_keeps_its_pages() {
        team(2, 12, "fifo", "lz4").map(|team| {
            for (worker, first) in [(0, 0), (1, 500)] {
                fill(&team, worker, first..first + 100);
                order(Call::Punch, 1, Act::Fail(libc::ENOMEM));
                let (count, _) = write_until_met(&team, 1000 + first);
                check(&team, worker, first..first + 100);
                fill(&team, worker, first..first + 100);
                check(&team, worker, first..first + 100);
                check(&team, 0, 1000 + first..1000 + first + count);
            }
        })
    }

    /// Pages that it was moving stay locked, and the run ends; until then the others find all other pages as they were.
    fn a_worker_that_died_in_an_eviction_leaves_the_others_alone() {
        team(2, 12, "fifo", "ram").map(|team| {
            fill(&team, 0, 0..20);
            fill(&team, 1, 100..120);
            order(Call::Punch, 1, Act::Die);
            let died = (200..4000).find(|&page| team.write(1, team.at(page) + word_of(1, 1), value(1, page)).is_none());
            let died = died.unwrap();
            fill(&team, 0, 5000..5600);
            check(&team, 0, (0..20).chain(5000..5600));
            check(&team, 1, (100..120).chain(200..died));
        })
    }
}
