//! Grants, revocation and moving pages in every order: a model of two workers, the thread that moves pages, and two lenders.
//!
//! Each step is one that others can come between: a look at a page's checksum or at its place, a request to a lender, a change of a
//! word. The order of steps is that of `far/hosts/` in `atoll-memory`: `held.rs` has the rules, `keep.rs`, `fetch.rs`, `moving.rs` and
//! `room.rs` follow them. A page's content is a number that stands for its checksum, too. A worker's first and third call store the same.

use stateright::{Checker, Model, Property};

/// Pages; each worker uses one, as no two calls are at work on one page.
const PAGES: usize = 2;
/// Places of the first lender's only piece, which it wants back, and of the second one's.
const PLACES: [usize; 2] = [2, 1];
/// Calls of each worker.
const CALLS: [u8; PAGES] = [3, 2];

type Content = u8;

/// A place: the lender's number, and the place in its piece.
type Place = (usize, usize);

/// A place in a piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
enum Bit {
    Free,
    Taken,
    Kept,
}

/// What the next step of a worker is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Work {
    Idle,
    /// To take the checksum away, and then to store the content, or to discard.
    Claim(Option<Content>),
    /// To take a place.
    Take(Content, Option<Place>),
    /// To write there, or to the file.
    Write(Content, Option<Place>),
    /// To note the place.
    Note(Content, Place),
    /// To note the checksum.
    Hold(Content),
    /// To look at the checksum.
    LoadSum,
    /// To look at the place.
    LoadPlace(Content),
    /// To ask the lender.
    Fetch(Content, Option<Place>),
    /// To see whether the page has moved, as what came was not right.
    Again(Content, Option<Place>),
}

/// What the next step of the thread that moves pages is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Mover {
    Idle,
    Place(usize, Content),
    Read(usize, Content, Place),
    Take(usize, Content, Place),
    Mark(usize, Content, Place, Option<Place>),
    Same(usize, Content, Place, Option<Place>),
    Write(usize, Content, Place, Option<Place>),
    Note(usize, Content, Place, Option<Place>),
    Unmark(usize, Content, Place, Option<Place>),
    Free(Place),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    /// Checksum, and whether it has the mark.
    sums: [(Content, bool); PAGES],
    places: [Option<Place>; PAGES],
    file: [Content; PAGES],
    /// What is in the lenders' pieces; `None`: the piece is not lent.
    memory: [Option<[Content; 2]>; 2],
    bits: [[Bit; 2]; 2],
    closed: bool,
    /// How often the first lender lent its piece again.
    again: u8,
    workers: [Work; PAGES],
    calls: [u8; PAGES],
    mover: Mover,
    /// What the program stored last, 0 for nothing.
    truth: [Content; PAGES],
    /// What went wrong.
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Store(usize),
    Load(usize),
    Discard(usize),
    Go(usize),
    Close,
    Move(usize),
    Mover,
    Sweep,
    LendAgain,
}

struct Lending;

impl State {
    /// Takes a free place of a piece that is lent and not closed, other than the lender `not`.
    fn take(&mut self, not: Option<usize>) -> Option<Place> {
        for lender in (0..2).filter(|lender| Some(*lender) != not) {
            if self.memory[lender].is_none() || (lender == 0 && self.closed) {
                continue;
            }
            let free = (0..PLACES[lender]).find(|place| self.bits[lender][*place] == Bit::Free);
            if let Some(place) = free {
                self.bits[lender][place] = Bit::Taken;
                return Some((lender, place));
            }
        }
        None
    }

    fn free(&mut self, place: Option<Place>) {
        if let Some((lender, place)) = place {
            if self.bits[lender][place] != Bit::Taken {
                self.wrong = Some("a place is freed that was not taken");
            }
            self.bits[lender][place] = Bit::Free;
        }
    }

    fn write(&mut self, (lender, place): Place, content: Content) {
        match &mut self.memory[lender] {
            Some(memory) => memory[place] = content,
            None => self.wrong = Some("a page is written to memory that went back"),
        }
    }

    /// The next step of a worker; `None` where it waits.
    fn go(&mut self, page: usize) -> Option<()> {
        let next = match self.workers[page] {
            Work::Idle => return None,
            Work::Claim(content) => {
                let (sum, moves) = self.sums[page];
                if moves {
                    return None;
                }
                self.sums[page] = (0, false);
                let place = self.places[page].filter(|_| sum != 0);
                match content {
                    Some(content) => Work::Take(content, place),
                    None => {
                        self.free(place);
                        self.places[page] = None;
                        self.file[page] = 0;
                        self.truth[page] = 0;
                        Work::Idle
                    }
                }
            }
            Work::Take(content, place) => {
                let mut place = place;
                if place.is_some_and(|(lender, _)| lender == 0 && self.closed) {
                    self.free(place.take());
                }
                Work::Write(content, place.or_else(|| self.take(None)))
            }
            Work::Write(content, None) => {
                self.places[page] = None;
                self.file[page] = content;
                self.truth[page] = content;
                Work::Idle
            }
            Work::Write(content, Some(place)) => {
                self.write(place, content);
                Work::Note(content, place)
            }
            Work::Note(content, place) => {
                self.places[page] = Some(place);
                Work::Hold(content)
            }
            Work::Hold(content) => {
                self.sums[page] = (content, false);
                self.file[page] = 0;
                self.truth[page] = content;
                Work::Idle
            }
            Work::LoadSum => match self.sums[page].0 {
                0 => self.came(page, self.file[page]),
                sum => Work::LoadPlace(sum),
            },
            Work::LoadPlace(sum) => Work::Fetch(sum, self.places[page]),
            Work::Fetch(_, None) => Work::LoadSum,
            Work::Fetch(sum, Some((lender, place))) => {
                match self.memory[lender].map(|memory| memory[place]) {
                    Some(content) if content == sum => self.came(page, content),
                    _ => Work::Again(sum, Some((lender, place))),
                }
            }
            Work::Again(sum, place) => {
                if (self.sums[page].0, self.places[page]) == (sum, place) {
                    self.wrong = Some("a lender is blamed for what moved");
                }
                Work::LoadSum
            }
        };
        self.workers[page] = next;
        Some(())
    }

    /// A page came.
    fn came(&mut self, page: usize, content: Content) -> Work {
        if content != self.truth[page] {
            self.wrong = Some("a page is lost, or came with other bytes");
        }
        Work::Idle
    }

    fn move_on(&mut self) -> Option<()> {
        let next = match self.mover {
            Mover::Idle => return None,
            Mover::Place(page, sum) => match self.places[page] {
                Some((0, place)) if self.closed => Mover::Read(page, sum, (0, place)),
                _ => Mover::Idle,
            },
            Mover::Read(page, sum, place) => {
                let came = self.memory[place.0].map(|memory| memory[place.1]);
                if came == Some(sum) { Mover::Take(page, sum, place) } else { Mover::Idle }
            }
            Mover::Take(page, sum, old) => Mover::Mark(page, sum, old, self.take(Some(0))),
            Mover::Mark(page, sum, old, new) => {
                if self.sums[page] == (sum, false) {
                    self.sums[page].1 = true;
                    Mover::Same(page, sum, old, new)
                } else {
                    self.free(new);
                    Mover::Idle
                }
            }
            Mover::Same(page, sum, old, new) => {
                if self.places[page] == Some(old) {
                    Mover::Write(page, sum, old, new)
                } else {
                    self.sums[page] = (sum, false);
                    self.free(new);
                    Mover::Idle
                }
            }
            Mover::Write(page, sum, old, new) => {
                match new {
                    Some(place) => self.write(place, sum),
                    None => self.file[page] = sum,
                }
                Mover::Note(page, sum, old, new)
            }
            Mover::Note(page, sum, old, new) => {
                self.places[page] = new;
                Mover::Unmark(page, sum, old, new)
            }
            Mover::Unmark(page, sum, old, new) => {
                self.sums[page] = (if new.is_some() { sum } else { 0 }, false);
                Mover::Free(old)
            }
            Mover::Free(old) => {
                self.free(Some(old));
                Mover::Idle
            }
        };
        self.mover = next;
        Some(())
    }
}

impl Model for Lending {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            sums: [(0, false); PAGES],
            places: [None; PAGES],
            file: [0; PAGES],
            memory: [Some([0; 2]); 2],
            bits: [[Bit::Free; 2]; 2],
            closed: false,
            again: 0,
            workers: [Work::Idle; PAGES],
            calls: [0; PAGES],
            mover: Mover::Idle,
            truth: [0; PAGES],
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        for (page, most) in CALLS.into_iter().enumerate() {
            if state.workers[page] != Work::Idle {
                actions.push(Step::Go(page));
            } else if state.calls[page] < most {
                actions.push(Step::Store(page));
                if state.truth[page] != 0 {
                    actions.extend([Step::Load(page), Step::Discard(page)]);
                }
            }
        }
        if !state.closed && state.memory[0].is_some() && state.again < 2 {
            actions.push(Step::Close);
        }
        if state.mover != Mover::Idle {
            actions.push(Step::Mover);
        } else if state.closed && state.memory[0].is_some() {
            actions.extend((0..PAGES).map(Step::Move));
            actions.push(Step::Sweep);
        } else if state.closed && state.again < 1 {
            actions.push(Step::LendAgain);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        let content = |page: usize| 1 + page as u8 * 10 + last.calls[page] % 2;
        match step {
            Step::Store(page) => state.workers[page] = Work::Claim(Some(content(page))),
            Step::Load(page) => state.workers[page] = Work::LoadSum,
            Step::Discard(page) => state.workers[page] = Work::Claim(None),
            Step::Go(page) => state.go(page)?,
            Step::Close => state.closed = true,
            // A page that is on its way already is not looked at.
            Step::Move(page) => match state.sums[page] {
                (0, _) | (_, true) => return None,
                (sum, false) => state.mover = Mover::Place(page, sum),
            },
            Step::Mover => state.move_on()?,
            Step::Sweep => {
                for bit in state.bits[0].iter_mut().filter(|bit| **bit == Bit::Free) {
                    *bit = Bit::Kept;
                }
                if state.bits[0] == [Bit::Kept; 2] {
                    state.memory[0] = None;
                    let there = |place: &Option<Place>| place.is_some_and(|(lender, _)| lender == 0);
                    let held = state.sums.iter().zip(&state.places);
                    if held.filter(|(sum, _)| sum.0 != 0).any(|(_, place)| there(place)) {
                        state.wrong = Some("a piece went back with a page");
                    }
                }
            }
            Step::LendAgain => {
                state.memory[0] = Some([0; 2]);
                state.bits[0] = [Bit::Free; 2];
                state.closed = false;
                state.again += 1;
            }
        }
        if let Step::Store(page) | Step::Load(page) | Step::Discard(page) = step {
            state.calls[page] += 1;
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Lending>> {
        vec![
            Property::always("nothing goes wrong", |_, state: &State| state.wrong.is_none()),
            Property::always("a place is one page's", |_, state: &State| {
                let place = |page: usize| state.places[page].filter(|_| state.sums[page].0 != 0);
                place(0).is_none() || place(0) != place(1)
            }),
            Property::sometimes("a piece goes back", |_, state: &State| state.memory[0].is_none()),
            Property::sometimes("a page is moved to the other lender", |_, state: &State| {
                matches!(state.mover, Mover::Free(_))
                    && state.places.iter().any(|place| matches!(place, Some((1, _))))
            }),
            Property::sometimes("a page is moved to the file", |_, state: &State| {
                matches!(state.mover, Mover::Free(_)) && state.file.iter().any(|content| *content != 0)
            }),
            Property::sometimes("a worker waits for a move", |_, state: &State| {
                (0..PAGES).any(|page| state.sums[page].1 && matches!(state.workers[page], Work::Claim(_)))
            }),
            Property::sometimes("a worker looks for a page that moved", |_, state: &State| {
                state.workers.iter().any(|work| matches!(work, Work::Again(..)))
            }),
        ]
    }
}

#[test]
fn no_order_of_grants_moves_and_calls_loses_a_page() {
    let checker = Lending.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 50_000, "{}", checker.unique_state_count());
}
