//! The modelled job: agents, memories, messages under way, and the progress of each program.

use std::collections::{BTreeMap, VecDeque};

use atoll_coherence::Impossible;
use atoll_coherence::agent::{Agent, Fault, Message, Mode};
use atoll_coherence::copy::State as Copy;
use atoll_coherence::directory::Want;
use atoll_coherence::merge::Page;
use atoll_coherence::nodes::Node;
use stateright::{Model, Property};

use crate::memory::{Data, Diff, Pages, WORDS};
use crate::programs::{Program, Step, first_mode};

/// The messages between nodes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Sent {
    Protocol(Message<Data, Diff>),
    /// From the origin: a region begins.
    Begin,
}

/// The system that stateright explores.
pub(crate) struct System {
    program: &'static Program,
    /// Whether invalidations are lost, for the test of the checker itself.
    pub(crate) loses_invalidations: bool,
    /// Whether nodes can tell that no worker has used a page yet.
    pub(crate) knows_untouched: bool,
}

impl System {
    pub(crate) fn new(program: &'static Program) -> Self {
        Self { program, loses_invalidations: false, knows_untouched: false }
    }
}

/// The reasons why a node waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Waits {
    Nothing,
    Page,
    Barrier,
    /// At a barrier: a thread that is not at it waits for a page, or until it may ask for one.
    Late,
    Leave,
}

/// The state of a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Place {
    agent: Agent<Data, Diff>,
    memory: Pages,
    /// The number of the next step.
    at: usize,
    waits: Waits,
    mode: Mode,
    /// The mode of the region after the barrier.
    next: Mode,
    /// The number of regions that it was told of and has not begun.
    told: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    places: Vec<Place>,
    network: BTreeMap<(Node, Node), VecDeque<Sent>>,
    /// The values written last, by page.
    last: Vec<[u8; WORDS]>,
    stale: bool,
    impossible: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Move {
    /// The node makes its next step, or faults.
    Run(Node),
    /// The oldest message from the first node to the second arrives.
    Deliver(Node, Node),
}

impl System {
    fn step(&self, place: &Place) -> Option<Step> {
        self.program.nodes[usize::from(place.me())].get(place.at).copied()
    }
}

impl Place {
    fn me(&self) -> Node {
        self.agent.me()
    }

    fn is_at_barrier(&self) -> bool {
        matches!(self.waits, Waits::Barrier | Waits::Late | Waits::Leave)
    }

    /// Checks, after an action of the agent, whether the barrier is over, or a thread that is not at it may ask.
    fn look(&mut self, program: &Program) -> Result<(), Impossible> {
        if !self.is_at_barrier() {
            return Ok(());
        }
        if self.agent.released() {
            (self.waits, self.mode) = (Waits::Nothing, self.next);
            return self.begin(program);
        }
        if self.waits == Waits::Leave && self.agent.is_out() {
            self.waits = Waits::Barrier;
        }
        Ok(())
    }

    fn arrive(&mut self, program: &Program) -> Result<(), Impossible> {
        self.waits = Waits::Barrier;
        self.agent.arrive(&mut self.memory)?;
        self.look(program)
    }

    /// Makes the next step, which is that of a thread that does not wait where the others of its node do.
    fn late(&mut self, page: Page, write: bool, program: &Program) -> Result<(), Impossible> {
        let fault = if write { Fault::Write } else { Fault::Read };
        if self.agent.withdraw(&mut self.memory)? {
            self.waits = Waits::Late;
            self.agent.fault(page, fault, self.mode, &mut self.memory)
        } else {
            self.waits = Waits::Leave;
            self.look(program)
        }
    }

    /// Begins the region after a barrier.
    fn begin(&mut self, program: &Program) -> Result<(), Impossible> {
        match self.mode {
            _ if !program.layout.watched => Ok(()),
            Mode::ManyWriters => {
                let me = self.agent.me();
                let first = (0..program.pages).filter(|page| program.layout.first_owner(*page) == me);
                self.agent.watch(first, &mut self.memory)
            }
            Mode::OneWriter => self.agent.unwatch(&mut self.memory),
        }
    }
}

impl State {
    fn send(&mut self, system: &System, from: Node) {
        for (to, message) in self.places[usize::from(from)].agent.take_outbox() {
            if system.loses_invalidations && matches!(message, Message::Invalidate(_)) {
                // As if the other node had reported that it dropped its copy, and kept it.
                let Message::Invalidate(page) = message else { continue };
                let dropped = Sent::Protocol(Message::Dropped(page));
                self.network.entry((to, from)).or_default().push_back(dropped);
                continue;
            }
            self.network.entry((from, to)).or_default().push_back(Sent::Protocol(message));
        }
    }

    fn wake(&mut self, node: Node) {
        let place = &mut self.places[usize::from(node)];
        let resumed = !std::mem::take(&mut place.memory.resumed).is_empty();
        match place.waits {
            Waits::Page if resumed => place.waits = Waits::Nothing,
            Waits::Late if resumed => place.waits = Waits::Barrier,
            _ => {}
        }
    }
}

impl Model for System {
    type State = State;
    type Action = Move;

    fn init_states(&self) -> Vec<State> {
        let layout = self.program.layout;
        let memory = |node: Node| {
            let own = (0..self.program.pages).filter(|page| layout.first_owner(*page) == node);
            let mut memory = Pages::with(own.clone());
            memory.untouched = own.filter(|_| self.knows_untouched).collect();
            memory
        };
        let place = |node: Node| Place {
            agent: Agent::new(node, layout),
            memory: memory(node),
            at: 0,
            waits: Waits::Nothing,
            mode: first_mode(),
            next: first_mode(),
            told: 0,
        };
        vec![State {
            places: (0..layout.nodes).map(place).collect(),
            network: BTreeMap::new(),
            last: vec![[0; WORDS]; self.program.pages as usize],
            stale: false,
            impossible: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Move>) {
        if state.stale || state.impossible {
            return;
        }
        for place in &state.places {
            let runs = match (place.waits, self.step(place)) {
                (Waits::Nothing, Some(Step::Begin(_))) => match place.me() == self.program.layout.origin {
                    true => place.agent.is_settled(),
                    false => place.told > 0,
                },
                (Waits::Nothing, step) => step.is_some(),
                (Waits::Barrier, step) => matches!(step, Some(Step::Late(..))),
                _ => false,
            };
            if runs {
                actions.push(Move::Run(place.me()));
            }
        }
        for (&(from, to), messages) in &state.network {
            if !messages.is_empty() {
                actions.push(Move::Deliver(from, to));
            }
        }
    }

    fn next_state(&self, before: &State, action: Move) -> Option<State> {
        let mut state = before.clone();
        let node = match action {
            Move::Deliver(from, to) => {
                let queue = state.network.get_mut(&(from, to))?;
                let message = queue.pop_front()?;
                if queue.is_empty() {
                    state.network.remove(&(from, to));
                }
                let place = &mut state.places[usize::from(to)];
                match message {
                    Sent::Protocol(message) => {
                        let done = place.agent.receive(from, message, &mut place.memory);
                        state.impossible |= done.is_err() || place.look(self.program).is_err();
                    }
                    Sent::Begin => place.told += 1,
                }
                to
            }
            Move::Run(node) => {
                let place = &mut state.places[usize::from(node)];
                let step = self.step(place)?;
                let copy = |page| place.agent.state(page);
                match step {
                    Step::Read(page, word) | Step::Late(page, word, None) if copy(page).readable() => {
                        let value = place.memory.load(page, word);
                        state.stale |= value != Some(state.last[page as usize][word]);
                        place.at += 1;
                        state.impossible |= place.agent.is_out() && place.arrive(self.program).is_err();
                    }
                    Step::Write(page, word, value) | Step::Late(page, word, Some(value))
                        if copy(page).writable() =>
                    {
                        state.impossible |= !place.memory.store(page, word, value);
                        state.last[page as usize][word] = value;
                        place.at += 1;
                        state.impossible |= place.agent.is_out() && place.arrive(self.program).is_err();
                    }
                    Step::Late(page, _, value) if place.is_at_barrier() => {
                        state.impossible |= place.late(page, value.is_some(), self.program).is_err();
                    }
                    Step::Late(page, _, value) => {
                        let fault = if value.is_some() { Fault::Write } else { Fault::Read };
                        place.waits = Waits::Page;
                        let done = place.agent.fault(page, fault, place.mode, &mut place.memory);
                        state.impossible |= done.is_err();
                    }
                    Step::Ahead(page) => {
                        place.at += 1;
                        if matches!(copy(page), Copy::Nothing | Copy::Shared) {
                            let done = place.agent.fault(page, Fault::Write, place.mode, &mut place.memory);
                            state.impossible |= done.is_err();
                        }
                    }
                    Step::Begin(mode) => {
                        (place.at, place.mode) = (place.at + 1, mode);
                        state.impossible |= place.begin(self.program).is_err();
                        if node == self.program.layout.origin {
                            let others = (0..self.program.layout.nodes).filter(|to| *to != node);
                            others.for_each(|to| {
                                state.network.entry((node, to)).or_default().push_back(Sent::Begin);
                            });
                        } else {
                            place.told -= 1;
                        }
                    }
                    Step::Read(page, _) | Step::Write(page, ..) => {
                        let fault = if matches!(step, Step::Read(..)) { Fault::Read } else { Fault::Write };
                        place.waits = Waits::Page;
                        let done = place.agent.fault(page, fault, place.mode, &mut place.memory);
                        state.impossible |= done.is_err();
                    }
                    Step::Barrier(mode) => {
                        (place.at, place.next) = (place.at + 1, mode);
                        state.impossible |= place.arrive(self.program).is_err();
                    }
                }
                node
            }
        };
        state.wake(node);
        state.send(self, node);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no read is stale", |_, state: &State| !state.stale),
            Property::always("no step is impossible", |_, state: &State| !state.impossible),
            Property::always("one writer, or many by leave", |system: &Self, state: &State| {
                (0..system.program.pages).all(|page| {
                    // Nobody reads the pages of a node that waits at a barrier; its orders are under way.
                    let awake = || state.places.iter().filter(|place| !place.is_at_barrier());
                    let copies = || awake().map(|place| place.agent.state(page));
                    let exclusive = copies().filter(|copy| *copy == Copy::Exclusive);
                    match exclusive.count() {
                        0 => true,
                        1 => copies().filter(|copy| copy.readable()).count() == 1,
                        _ => false,
                    }
                })
            }),
            // A page of a node that may have a twin is exempt: see `Memory::lend`.
            Property::always("what is lent stays as it was lent", |system: &Self, state: &State| {
                let many = |step: &Step| {
                    matches!(step, Step::Barrier(Mode::ManyWriters) | Step::Begin(Mode::ManyWriters))
                };
                let lends = |node: Node| {
                    let layout = &system.program.layout;
                    let never_many = !system.program.nodes.iter().any(|steps| steps.iter().any(many));
                    never_many || node == layout.origin && !layout.watched
                };
                let under_way = || {
                    state.network.iter().flat_map(|((from, _), sent)| sent.iter().map(move |m| (*from, m)))
                };
                under_way().filter(|(from, _)| lends(*from)).all(|(from, message)| {
                    let Sent::Protocol(Message::Data(page, Want::Read, data)) = message else { return true };
                    let place = &state.places[usize::from(from)];
                    let now = place.memory.content(*page);
                    now.is_some()
                        && (place.agent.state(*page).written_among_many() || now.as_ref() == Some(data))
                })
            }),
            Property::eventually("all programs end", |system: &Self, state: &State| {
                state.network.is_empty() && state.places.iter().all(|place| system.step(place).is_none())
            }),
        ]
    }
}
