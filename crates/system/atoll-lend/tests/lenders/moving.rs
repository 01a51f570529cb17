//! Lenders that want memory back while it is used: pages move elsewhere, and none is lost.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atoll_lend::{Control, Keeper, Lender, Loss, Terms, Watch};
use atoll_memory::far::hosts::lenders::{FIRST_LENDERS, LenderSettings, LenderState, Lenders, MAX_LENDERS};
use atoll_memory::far::hosts::wire::Status;
use atoll_memory::far::pressure::machine_memory;

use crate::pages::{self, Pages};
use crate::raw::{KEY, Raw, SOON, lender, session};

const PIECE: u64 = 4 << 20;

/// Hears of lost lenders, and finds one that is started anew where `again` says.
struct Watcher {
    losses: Arc<AtomicU64>,
    again: Arc<Mutex<Option<SocketAddr>>>,
}

impl Watch for Watcher {
    fn lost(&self, _: Loss) {
        self.losses.fetch_add(1, Relaxed);
    }

    fn find(&self, settings: &LenderSettings) -> Option<(Control, LenderSettings, Duration)> {
        let address = (*self.again.lock().unwrap())?;
        let control = Control::open(address, &KEY, SOON).ok()?;
        let (session, key, piece) = (control.session(), control.key(), control.piece_bytes());
        let settings = LenderSettings::new(settings.label.text(), address, session, key, piece);
        Some((control, settings, Duration::from_micros(100)))
    }

    fn is_back(&self, _: &'static LenderSettings) {}
}

/// Looks after the lenders as a run's launcher does, and counts those that are lost.
fn keep(pages: &Pages, controls: Vec<Control>) -> (Keeper, Arc<AtomicU64>) {
    let (keeper, losses, _) = keep_and_find(pages, controls);
    (keeper, losses)
}

type Again = Arc<Mutex<Option<SocketAddr>>>;

fn keep_and_find(pages: &Pages, controls: Vec<Control>) -> (Keeper, Arc<AtomicU64>, Again) {
    let (losses, again) = (Arc::new(AtomicU64::new(0)), Again::default());
    let watcher = Watcher { losses: Arc::clone(&losses), again: Arc::clone(&again) };
    (Keeper::start(pages.lenders, controls, watcher).unwrap(), losses, again)
}

#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_lender_that_left_is_used_again_when_it_is_started_anew() {
    let first = lender(64 << 20);
    let (mut pages, controls) = Pages::with(&[&first], 1);
    pages.store(0..2500, 1).unwrap();
    let (_keeper, losses, again) = keep_and_find(&pages, controls);
    first.close();
    pages.give_back_until(|| first.lent_bytes() == 0);
    drop(first);
    assert_eq!(pages.behind().1, 2500);
    // Its pieces are of another size now.
    let anew = lender(8 << 30);
    *again.lock().unwrap() = Some(anew.address());
    wait_until("the lender is not found again", || pages.lenders.count() == 2);
    pages.store(0..3000, 2).unwrap();
    assert_eq!((pages.held(0), pages.held(1)), (0, 3000));
    assert!(anew.lent_bytes() > 0);
    assert!(pages.load(0..3000, 2).unwrap());
    // It can leave again, too.
    anew.close();
    pages.give_back_until(|| anew.lent_bytes() == 0);
    assert!(pages.load(0..3000, 2).unwrap());
    assert_eq!(losses.load(Relaxed), 0);
}

#[test]
fn a_lender_that_was_lost_comes_back_without_what_it_had() {
    let mut lenders = vec![lender(64 << 20), lender(64 << 20)];
    let (mut pages, controls) = Pages::with(&[&lenders[0], &lenders[1]], 2);
    pages.store(0..500, 1).unwrap();
    let (_keeper, losses, again) = keep_and_find(&pages, controls);
    drop(lenders.remove(0));
    wait_until("the lender is not lost", || losses.load(Relaxed) == 1);
    assert!(pages.load(0..500, 1).unwrap());
    let anew = lender(64 << 20);
    *again.lock().unwrap() = Some(anew.address());
    wait_until("the lender is not found again", || pages.lenders.count() == 3);
    // What was there is read from the other copy, and gets its second one when it is written.
    assert!(pages.load(0..500, 1).unwrap());
    pages.store(0..200, 2).unwrap();
    assert_eq!((pages.held(1), pages.held(2)), (500, 200));
    drop(lenders);
    wait_until("the lender is not lost", || losses.load(Relaxed) == 2);
    assert!(pages.load(0..200, 2).unwrap() && pages.load(300..310, 1).is_err());
}

/// Each time that a lender comes back takes a number, and there are not many.
#[test]
fn a_lender_that_comes_back_again_and_again_is_left_alone_at_last() {
    let first: Vec<Lender> = (0..FIRST_LENDERS).map(|_| lender(64 << 20)).collect();
    let (mut pages, controls) = Pages::with(&first.iter().collect::<Vec<_>>(), 1);
    let (_keeper, losses, again) = keep_and_find(&pages, controls);
    let anew = lender(64 << 20);
    *again.lock().unwrap() = Some(anew.address());
    drop(first);
    wait_until("the lenders are not found again", || pages.lenders.count() == MAX_LENDERS);
    pages.store(0..100, 1).unwrap();
    assert_eq!((FIRST_LENDERS..MAX_LENDERS).map(|lender| pages.held(lender)).sum::<u64>(), 100);
    let lost = losses.load(Relaxed);
    drop(anew);
    wait_until("the lender is not lost", || losses.load(Relaxed) == lost + FIRST_LENDERS as u64);
    let last = lender(64 << 20);
    *again.lock().unwrap() = Some(last.address());
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!((pages.lenders.count(), last.sessions().0), (MAX_LENDERS, 0));
    pages.store(0..100, 2).unwrap();
    assert!(pages.load(0..100, 2).unwrap());
}

fn moved(pages: &Pages, lender: usize) -> (u64, u64) {
    let figures = &pages.lenders.figures[lender];
    (figures.pages_moved.load(Relaxed), figures.returned_bytes.load(Relaxed))
}

#[test]
fn a_lender_that_ends_has_all_back_and_its_pages_are_at_the_next_one() {
    let mut lenders = vec![lender(64 << 20), lender(64 << 20)];
    let (mut pages, controls) = Pages::with(&[&lenders[0], &lenders[1]], 1);
    pages.store(0..3000, 1).unwrap();
    assert_eq!((pages.held(0), pages.held(1)), (3000, 0));
    let (_keeper, losses) = keep(&pages, controls);
    lenders[0].close();
    pages.give_back_until(|| lenders[0].lent_bytes() == 0);
    assert_eq!((pages.held(0), pages.held(1), moved(&pages, 0)), (0, 3000, (3000, 3 * PIECE)));
    assert!(pages.load(0..3000, 1).unwrap());
    // It has said that it ends, so it is no loss.
    drop(lenders.remove(0));
    pages.give_back_until(|| pages_are_without(&losses, 0));
    assert!(pages.load(0..3000, 1).unwrap());
    pages.store(0..100, 2).unwrap();
    assert!(pages.load(0..100, 2).unwrap() && pages.load(100..3000, 1).unwrap());
    assert_eq!(losses.load(Relaxed), 0);
}

fn pages_are_without(losses: &AtomicU64, count: u64) -> bool {
    std::thread::sleep(Duration::from_millis(700));
    losses.load(Relaxed) == count
}

#[test]
fn a_lender_that_wants_a_part_has_whole_pieces_back_and_lends_the_rest_on() {
    let lenders = [lender(64 << 20), lender(64 << 20)];
    let (mut pages, controls) = Pages::with(&[&lenders[0], &lenders[1]], 1);
    pages.store(0..4000, 1).unwrap();
    // Of the second piece there is little, so it goes first.
    pages.discard(1100, 900);
    let _keeper = keep(&pages, controls);
    assert!(lenders[0].resize(2 * PIECE) && !lenders[0].resize(PIECE - 1));
    pages.give_back_until(|| lenders[0].lent_bytes() == 2 * PIECE);
    assert!(pages.load(0..1100, 1).unwrap() && pages.load(2000..4000, 1).unwrap());
    assert_eq!(pages.held(0) + pages.held(1), 3100);
    assert!(pages.held(0) >= 1900, "{}", pages.held(0));
    // When it may lend more again the run borrows of it again.
    assert!(lenders[0].resize(64 << 20));
    std::thread::sleep(Duration::from_millis(500));
    pages.store(5000..9000, 1).unwrap();
    assert!(lenders[0].lent_bytes() > 2 * PIECE);
    assert!(pages.load(5000..9000, 1).unwrap() && pages.load(2000..4000, 1).unwrap());
}

#[test]
fn without_another_lender_pages_move_to_the_file() {
    let lender = lender(64 << 20);
    let (mut pages, controls) = Pages::with(&[&lender], 1);
    pages.store(0..2500, 1).unwrap();
    let _keeper = keep(&pages, controls);
    lender.close();
    pages.give_back_until(|| lender.lent_bytes() == 0);
    assert_eq!((pages.held(0), pages.behind()), (0, (0, 2500)));
    assert!(pages.load(0..2500, 1).unwrap());
    pages.store(100..200, 2).unwrap();
    assert!(pages.load(100..200, 2).unwrap() && pages.load(200..2500, 1).unwrap());
}

#[test]
fn two_copies_stay_two_while_a_third_lender_has_room() {
    let mut lenders = vec![lender(64 << 20), lender(64 << 20), lender(64 << 20)];
    let all: Vec<_> = lenders.iter().collect();
    let (mut pages, controls) = Pages::with(&all, 2);
    pages.store(0..500, 1).unwrap();
    let _keeper = keep(&pages, controls);
    lenders[0].close();
    pages.give_back_until(|| lenders[0].lent_bytes() == 0);
    assert_eq!((pages.held(0), pages.held(1), pages.held(2)), (0, 500, 500));
    drop(lenders.remove(1));
    assert!(pages.load(0..500, 1).unwrap());
    // Both copies of the rest would lie on one host, so they are in the file.
    lenders[1].close();
    pages.give_back_until(|| lenders[1].lent_bytes() == 0);
    assert!(pages.load(0..500, 1).unwrap());
    assert_eq!(pages.behind().1, 500);
}

/// A worker stores, loads and drops pages all the time, while two lenders take turns in wanting all but a piece back.
///
/// A turn of the lenders lasts long enough for the launcher to hear of it, however fast the worker is, and there are
/// 20 of them or as many more as it takes until pages have moved.
fn use_pages_that_move(make: impl FnOnce(Lenders) -> Pages, is_slow: bool) {
    let lenders = [lender(64 << 20), lender(64 << 20)];
    let controls = lenders.each_ref().map(session);
    let mut pages = make(pages::lenders(&[(&lenders[0], &controls[0]), (&lenders[1], &controls[1])], 1));
    let (all, figures) = (pages.lenders, pages.lenders.figures);
    let _keeper = keep(&pages, controls.into());
    pages.at_once(|worker| {
        let mut salts = [0_u8; 64];
        let mut random = 1_u64;
        let moved = || figures[..2].iter().any(|figures| figures.pages_moved.load(Relaxed) > 0);
        let begin = Instant::now();
        let (mut turns, mut turn_began) = (0, None::<Instant>);
        for step in 0_u64.. {
            if turn_began.is_none_or(|began| began.elapsed() > Duration::from_millis(50)) {
                if turns >= 20 && moved() {
                    break;
                }
                assert!(begin.elapsed() < Duration::from_secs(60), "no page has moved");
                let (small, large) = (turns % 2, 1 - turns % 2);
                assert!(lenders[small].resize(PIECE) && lenders[large].resize(64 << 20));
                (turns, turn_began) = (turns + 1, Some(Instant::now()));
            }
            if is_slow {
                pages::slow_links(all);
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let group = (random >> 33) % 64;
            let (first, salt) = (group * 64, &mut salts[group as usize]);
            match random >> 60 {
                0 => {
                    worker.discard(first, 64);
                    *salt = 0;
                }
                1..=8 => {
                    *salt = salt.wrapping_add(1).max(1);
                    worker.store(first..first + 64, *salt).unwrap();
                }
                _ if *salt > 0 => assert!(worker.load(first..first + 64, *salt).unwrap(), "{step}"),
                _ => {}
            }
        }
        for (group, salt) in (0_u64..).zip(salts).filter(|(_, salt)| *salt > 0) {
            assert!(worker.load(group * 64..group * 64 + 64, salt).unwrap());
        }
    });
    assert!(figures[..2].iter().all(|figures| figures.state() == LenderState::Well));
}

#[test]
fn pages_that_move_while_they_are_used_are_never_others() {
    use_pages_that_move(Pages::over, false);
}

/// Every second store is of pages that shrink.
#[test]
fn packed_pages_that_move_while_they_are_used_are_never_others() {
    use_pages_that_move(Pages::over, true);
}

/// Pages that shrink are in memory, and the others with the lenders: they change places at each store.
#[test]
fn pages_behind_memory_that_move_while_they_are_used_are_never_others() {
    use_pages_that_move(|lenders| Pages::behind_memory(lenders, 1 << 20), false);
}

#[test]
fn who_gives_nothing_back_loses_all_after_a_while() {
    let patient = Terms { patience: Duration::from_millis(600), ..Terms::new("test", 64 << 20, KEY) };
    let lender = Lender::start(patient, "127.0.0.1:0".parse().unwrap()).unwrap();
    let (mut pages, controls) = Pages::with(&[&lender], 1);
    pages.store(0..2000, 1).unwrap();
    let (_keeper, losses) = keep(&pages, controls);
    assert!(lender.resize(PIECE));
    // This borrower moves nothing.
    let until = Instant::now() + Duration::from_secs(20);
    while losses.load(Relaxed) == 0 {
        assert!(Instant::now() < until, "the lender waits for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((lender.lent_bytes(), lender.taken_bytes()), (0, 2 * PIECE));
    assert!(pages.load(0..1, 1).unwrap_err().to_string().contains("lender0 on host0"));
}

/// A run that was stopped while its lender needed memory lost all that it had there.
#[test]
fn what_a_run_gives_back_too_late_moves_to_a_file_and_nothing_is_lost() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let files = Some(folder.path().to_owned());
    let terms = Terms { patience: Duration::from_millis(600), files, ..Terms::new("test", 64 << 20, KEY) };
    let lender = Lender::start(terms, "127.0.0.1:0".parse().unwrap()).unwrap();
    let (mut pages, controls) = Pages::with(&[&lender], 1);
    pages.store(0..4000, 1).unwrap();
    assert_eq!(lender.lent_bytes(), 4 * PIECE);
    let (_keeper, losses) = keep(&pages, controls);
    assert!(lender.resize(PIECE));
    // Pages are used while they move.
    let until = Instant::now() + Duration::from_secs(20);
    let mut round = 1;
    while lender.filed_bytes() < 3 * PIECE {
        assert!(Instant::now() < until, "{} bytes moved to files", lender.filed_bytes());
        assert!(pages.load(0..4000, round).unwrap());
        round = round % 100 + 1;
        pages.store(0..4000, round).unwrap();
    }
    assert_eq!((lender.lent_bytes(), lender.filed_bytes(), lender.taken_bytes()), (4 * PIECE, 3 * PIECE, 0));
    assert!(pages.load(0..4000, round).unwrap());
    pages.store(1000..3000, 3).unwrap();
    assert!(pages.load(1000..3000, 3).unwrap() && pages.load(0..1000, round).unwrap());
    // It wants all of it back when it ends.
    lender.close();
    pages.give_back_until(|| lender.lent_bytes() == 0);
    assert_eq!((lender.filed_bytes(), lender.taken_bytes(), losses.load(Relaxed)), (0, 0, 0));
    assert!(pages.load(1000..3000, 3).unwrap() && pages.load(3000..4000, round).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Where there is no room on the disk, the lender has its memory all the same.
#[test]
fn who_gives_nothing_back_loses_all_where_no_file_can_be_made() {
    let files = Some("/no/such/folder".into());
    let terms = Terms { patience: Duration::from_millis(300), files, ..Terms::new("test", 64 << 20, KEY) };
    let lender = Lender::start(terms, "127.0.0.1:0".parse().unwrap()).unwrap();
    let (mut pages, controls) = Pages::with(&[&lender], 1);
    pages.store(0..2000, 1).unwrap();
    let (_keeper, losses) = keep(&pages, controls);
    assert!(lender.resize(PIECE));
    wait_until("the lender waits for ever", || losses.load(Relaxed) == 1);
    assert_eq!((lender.lent_bytes(), lender.taken_bytes()), (0, 2 * PIECE));
}

#[test]
fn a_host_that_is_short_of_memory_has_some_back() {
    let memory = machine_memory().expect("/proc/meminfo");
    if memory.available < 4 << 30 {
        atoll_skips::skip!("there is too little memory for this test");
    }
    let free_bytes = Some(memory.available - (512 << 20));
    let terms = Terms { free_bytes, ..Terms::new("test", 64 << 20, KEY) };
    let lender = Lender::start(terms, "127.0.0.1:0".parse().unwrap()).unwrap();
    let (mut pages, controls) = Pages::with(&[&lender], 1);
    pages.store(0..2000, 1).unwrap();
    let _keeper = keep(&pages, controls);
    assert_eq!(lender.lent_bytes(), 2 * PIECE);
    let taken = vec![1_u8; 2 << 30];
    pages.give_back_until(|| lender.lent_bytes() == 0);
    assert_eq!(taken.iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>(), (2 << 30) / 4096);
    assert!(pages.load(0..2000, 1).unwrap());
}

#[test]
fn only_who_knows_the_secret_changes_how_much_is_lent() {
    let lender = lender(64 << 20);
    let mut control = session(&lender);
    let mut raw = Raw::of(&lender, &control);
    assert_eq!(raw.resize(&(8_u64 << 20).to_le_bytes()), Status::NotAllowed);
    assert_eq!(control.report().unwrap().bytes, 64 << 20);
    control.resize(8 << 20).unwrap();
    assert_eq!(control.report().unwrap().bytes, 8 << 20);
    assert!(control.resize(0).is_err());
    assert_eq!(control.report().unwrap().bytes, 8 << 20);
}
