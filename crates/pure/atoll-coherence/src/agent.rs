//! A node's part in the protocols: its copies, the directory entries of the pages whose home it is, and the barrier.
//!
//! Drives the tables of `copy.rs` and `directory.rs` and plans with `merge.rs`. The content and the protection of pages are the
//! business of [`Memory`]; the caller of [`Agent::receive`] carries messages. Messages must arrive once, and in order from each
//! node to each other.
//!
//! Source: the Popcorn paper, sections 3.1, 3.4 and 4.1.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use crate::copy::{self, Action, Event, State};
use crate::directory::{Entry, Order, Want};
use crate::merge::{self, Orders, Page};
use crate::nodes::{Node, Nodes};
use crate::table::Impossible;

/// The operations of an agent on its node's memory. Calls name only pages that the agent's state says are there.
pub trait Memory {
    /// A page's content.
    type Data: Clone + Eq + Hash + std::fmt::Debug;
    /// The difference between a page and its twin.
    type Diff: Clone + Eq + Hash + std::fmt::Debug;

    /// Puts content that node `from` sent in place; workers may read it, and write it if `writable`.
    fn install(&mut self, page: Page, from: Node, data: &Self::Data, writable: bool);
    /// Lets workers write the page, or forbids it: writes under way end first.
    fn protect(&mut self, page: Page, writable: bool);
    /// Takes the page from the workers.
    fn remove(&mut self, page: Page);
    /// The page's present content.
    fn read(&mut self, page: Page) -> Self::Data;
    /// Takes the page from the workers; returns its content when none of them can write it any more.
    fn take(&mut self, page: Page) -> Self::Data {
        self.protect(page, false);
        let data = self.read(page);
        self.remove(page);
        data
    }
    /// The page's content, or the place of it, for node `to`, which is going to read it. The copy here stays until that node
    /// has told the home that it is served. Only in a region of many writers is the page written meanwhile; except at the
    /// origin, the content must then not be read later than now.
    fn lend(&mut self, page: Page, to: Node) -> Self::Data {
        let _ = to;
        self.read(page)
    }
    /// Takes from the workers a page of zeros that none of them has used yet; it is then [taken](Memory::take). `false`: they have
    /// used it, or nobody can tell, and nothing has changed.
    fn seize_untouched(&mut self, page: Page) -> bool {
        let _ = page;
        false
    }
    /// The content of the page's twin.
    fn read_twin(&mut self, page: Page) -> Self::Data;
    /// Keeps the page's content as a twin.
    fn make_twin(&mut self, page: Page);
    /// Drops the page's twin.
    fn drop_twin(&mut self, page: Page);
    /// The difference of the page from its twin.
    fn diff(&mut self, page: Page) -> Self::Diff;
    /// Writes the differences that node `from` sent.
    fn apply(&mut self, page: Page, from: Node, diff: &Self::Diff);
    /// Lets the workers go on that wait for the page.
    fn resume(&mut self, page: Page);
}

/// The messages between nodes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Message<D, F> {
    /// To the home: a copy is wanted.
    Ask(Page, Want),
    /// To the home: the request is served.
    Installed(Page),
    /// To the home: the request to read is served, and the node has the only copy.
    InstalledAlone(Page),
    /// To the home: the copy is gone.
    Dropped(Page),
    /// From the home: drop the copy.
    Invalidate(Page),
    /// From the home: send a copy to that node.
    Forward(Page, Node, Want),
    /// From the home: the copy may be written.
    Grant(Page),
    /// The page.
    Data(Page, Want, D),
    /// To each home at the end of a region: its pages that this node wrote in the region of many writers. Sent even if there
    /// are none.
    Written(Vec<Page>),
    /// From each home, when every node has arrived.
    Merge(Orders),
    /// To the home: this node is not at the barrier yet, because it needs a page first.
    Withdraw,
    /// From the home: the node does not count as having arrived. If every node has, the only answer is [`Self::Merge`].
    Withdrawn,
    /// The difference of a page from its twin.
    Diff(Page, F),
}

/// The modes of a region, by its treatment of pages that several nodes write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// One writer at a time.
    OneWriter,
    /// Several writers at once, merged at the barrier.
    ManyWriters,
}

/// An access of a worker that is not allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// The worker reads.
    Read,
    /// The worker writes.
    Write,
}

/// The layout of pages: their homes, and the nodes that have them at first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// The number of nodes, 1 to 64.
    pub nodes: Node,
    /// The origin, where `main` runs: it has every page at first except those of `areas`, and merges pages that several nodes
    /// wrote.
    pub origin: Node,
    /// The number of successive pages with the same home, after which the next node is home. 0: the origin is the home of all
    /// pages.
    pub stretch: u64,
    /// Stretches that are dealt out to the nodes, in order: each node has its part at first.
    pub areas: [Area; 2],
    /// Pages, first and behind the last, that the origin alone has again after each barrier, if it kept a copy: those that it
    /// alone works with between regions, such as its stack.
    pub reclaim: (Page, Page),
    /// Whether races are looked for: in a region of many writers nobody writes without a twin, and nobody writes pages that it
    /// has at first, except those of `reclaim`, without having asked.
    pub watched: bool,
}

/// A stretch of pages that is dealt out to the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Area {
    /// The area's first page.
    pub first: Page,
    /// The number of pages of each node. 0: there is no such stretch.
    pub each: u64,
}

impl Layout {
    /// A layout in which the origin has all pages at first.
    #[must_use]
    pub const fn new(nodes: Node, origin: Node, stretch: u64) -> Self {
        let none = Area { first: 0, each: 0 };
        Self { nodes, origin, stretch, areas: [none; 2], reclaim: (0, 0), watched: false }
    }

    /// The home of `page`.
    #[must_use]
    pub fn home(&self, page: Page) -> Node {
        match page.checked_div(self.stretch) {
            // Less than the number of nodes.
            Some(stretch) => (stretch % u64::from(self.nodes)) as Node,
            None => self.origin,
        }
    }

    /// The node that has `page` at first.
    #[must_use]
    pub fn first_owner(&self, page: Page) -> Node {
        let owner = |area: &Area| {
            let part = page.checked_sub(area.first)?.checked_div(area.each)?;
            (part < u64::from(self.nodes)).then_some(part as Node)
        };
        self.areas.iter().find_map(owner).unwrap_or(self.origin)
    }

    /// All nodes that are home of any page.
    fn homes(&self) -> Nodes {
        if self.stretch == 0 { Nodes::one(self.origin) } else { (0..self.nodes).collect() }
    }
}

/// This node's copy of a page.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Copy<D, F> {
    state: State,
    /// The number of diffs that are still to come, once the orders have told how many there are.
    diffs: u32,
    /// Messages that wait, each with its sender.
    deferred: VecDeque<(Node, Message<D, F>)>,
}

/// The state of a node at a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Barrier {
    /// The node is at no barrier.
    Away,
    /// The node's workers are at the barrier; requests of its own are still under way.
    Settling,
    /// The node waits for these homes.
    Waiting(Nodes),
    /// The node waits for these homes, and has told the only one of them that a worker needs a page first.
    Withdrawing(Nodes),
    /// The node's workers are at the barrier, but it does not count as having arrived, so that one of them can get a page.
    Out,
}

/// A node's agent. Messages to other nodes collect in `outbox`, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Agent<D, F> {
    me: Node,
    layout: Layout,
    /// The copies of pages that are not in their first state.
    copies: BTreeMap<Page, Copy<D, F>>,
    /// The entries of pages whose home is here and that are not in their first state.
    entries: BTreeMap<Page, Entry>,
    /// The pages that this node wrote and that the next barrier must hear of.
    written: BTreeSet<Page>,
    /// The number of this node's requests that are not served yet.
    asked: u32,
    /// The number of pages that wait for diffs.
    merging: u32,
    /// The nodes at the barrier, each with the pages it wrote whose home is here.
    came: BTreeMap<Node, Vec<Page>>,
    barrier: Barrier,
    outbox: Vec<(Node, Message<D, F>)>,
    /// Messages of this node to itself. Empty between calls.
    own: VecDeque<Message<D, F>>,
}

impl<D: Clone + Eq + Hash + std::fmt::Debug, F: Clone + Eq + Hash + std::fmt::Debug> Agent<D, F> {
    /// The agent of node `me`.
    #[must_use]
    pub fn new(me: Node, layout: Layout) -> Self {
        Self {
            me,
            layout,
            copies: BTreeMap::new(),
            entries: BTreeMap::new(),
            written: BTreeSet::new(),
            asked: 0,
            merging: 0,
            came: BTreeMap::new(),
            barrier: Barrier::Away,
            outbox: Vec::new(),
            own: VecDeque::new(),
        }
    }

    /// The agent's node.
    #[must_use]
    pub fn me(&self) -> Node {
        self.me
    }

    /// The layout of pages.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The state of this node's copy of `page`.
    #[must_use]
    pub fn state(&self, page: Page) -> State {
        self.copies.get(&page).map_or_else(|| self.first_state(page), |copy| copy.state)
    }

    fn first_state(&self, page: Page) -> State {
        let reclaimed = self.layout.reclaim.0..self.layout.reclaim.1;
        match self.me == self.layout.first_owner(page) {
            true if self.layout.watched && !reclaimed.contains(&page) => State::Shared,
            true => State::Exclusive,
            false => State::Nothing,
        }
    }

    /// Takes the messages to be sent, in order.
    pub fn take_outbox(&mut self) -> Vec<(Node, Message<D, F>)> {
        std::mem::take(&mut self.outbox)
    }

    /// Whether the node is past the barrier that it last arrived at.
    #[must_use]
    pub fn released(&self) -> bool {
        self.barrier == Barrier::Away
    }

    /// Handles a fault of a worker in a region of `mode`. The worker waits until [`Memory::resume`] and tries again.
    pub fn fault<M: Memory<Data = D, Diff = F>>(
        &mut self,
        page: Page,
        fault: Fault,
        mode: Mode,
        memory: &mut M,
    ) -> Result<(), Impossible> {
        let event = match (fault, mode) {
            (Fault::Read, _) => Event::ReadFault,
            (Fault::Write, Mode::OneWriter) => Event::WriteFault,
            (Fault::Write, Mode::ManyWriters) if self.me == self.layout.origin && !self.layout.watched => {
                Event::OpenFault
            }
            (Fault::Write, Mode::ManyWriters) => Event::TwinFault,
        };
        self.step(page, event, None, memory)?;
        self.deliver_to_self(memory)
    }

    /// Whether no request of this node is under way.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.asked == 0
    }

    /// Takes back the arrival at a barrier, for a worker that faults while the others of its node are at the barrier, as a
    /// handler of signals does, or a thread that is in no team. Returns whether the node does not count as having arrived, so
    /// that [`Agent::fault`] may be called; if not now, then it does so later, or the barrier ends. A worker that was served
    /// makes the node [arrive](Agent::arrive) again.
    ///
    /// The withdrawal works only where all pages have one home: of several homes, some might have planned and others not.
    pub fn withdraw<M: Memory<Data = D, Diff = F>>(&mut self, memory: &mut M) -> Result<bool, Impossible> {
        match self.barrier {
            Barrier::Away | Barrier::Out => {}
            Barrier::Settling => self.barrier = Barrier::Out,
            Barrier::Waiting(homes) if homes.count() == 1 && homes == self.layout.homes() => {
                self.barrier = Barrier::Withdrawing(homes);
                homes.iter().for_each(|home| self.send(home, Message::Withdraw));
                self.deliver_to_self(memory)?;
            }
            Barrier::Waiting(_) | Barrier::Withdrawing(_) => {}
        }
        Ok(matches!(self.barrier, Barrier::Away | Barrier::Out))
    }

    /// Whether the node does not count as having arrived at the barrier at which its workers are.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.barrier == Barrier::Out
    }

    /// Notes that all workers of this node are at the barrier, which is over once [`Agent::released`] says so.
    pub fn arrive<M: Memory<Data = D, Diff = F>>(&mut self, memory: &mut M) -> Result<(), Impossible> {
        self.barrier = Barrier::Settling;
        self.settle();
        self.deliver_to_self(memory)
    }

    /// Begins a phase of many writers in which races are looked for: every writer faults first. `first` are pages that are in
    /// their first state and may be written.
    pub fn watch<M: Memory<Data = D, Diff = F>>(
        &mut self,
        first: impl IntoIterator<Item = Page>,
        memory: &mut M,
    ) -> Result<(), Impossible> {
        let mut pages: Vec<Page> = first.into_iter().filter(|page| !self.copies.contains_key(page)).collect();
        pages.extend(self.copies.keys());
        for page in pages {
            if self.state(page) == State::Exclusive {
                self.step(page, Event::Watch, None, memory)?;
            }
        }
        Ok(())
    }

    /// Ends such a phase: the origin gets the pages back that it works with between regions.
    pub fn unwatch<M: Memory<Data = D, Diff = F>>(&mut self, memory: &mut M) -> Result<(), Impossible> {
        let (from, to) = self.layout.reclaim;
        let watched = |(page, copy): (&Page, &Copy<D, F>)| (copy.state == State::Shared).then_some(*page);
        let pages: Vec<Page> = self.copies.range(from..to).filter_map(watched).collect();
        for page in pages {
            let alone = |entry: &Entry| entry.is_owned_by(self.me);
            let first = self.layout.first_owner(page) == self.me && self.layout.home(page) == self.me;
            if self.entries.get(&page).map_or(first, alone) {
                self.step(page, Event::Unwatch, None, memory)?;
            }
        }
        Ok(())
    }

    /// Handles a message from node `from`.
    pub fn receive<M: Memory<Data = D, Diff = F>>(
        &mut self,
        from: Node,
        message: Message<D, F>,
        memory: &mut M,
    ) -> Result<(), Impossible> {
        self.take(from, message, memory)?;
        self.deliver_to_self(memory)
    }

    /// Queues a message for node `to`, which may be this one.
    fn send(&mut self, to: Node, message: Message<D, F>) {
        if to == self.me {
            self.own.push_back(message);
        } else {
            self.outbox.push((to, message));
        }
    }

    /// Handles the messages of this node to itself, and those that they cause.
    fn deliver_to_self<M: Memory<Data = D, Diff = F>>(&mut self, memory: &mut M) -> Result<(), Impossible> {
        while let Some(message) = self.own.pop_front() {
            self.take(self.me, message, memory)?;
        }
        Ok(())
    }

    fn take<M: Memory<Data = D, Diff = F>>(
        &mut self,
        from: Node,
        message: Message<D, F>,
        memory: &mut M,
    ) -> Result<(), Impossible> {
        let (me, mut orders) = (self.me, Vec::new());
        let (page, event) = match message {
            Message::Ask(page, want) => {
                self.entry(page).ask(me, from, want, &mut orders)?;
                self.send_orders(page, &orders);
                return Ok(());
            }
            Message::Installed(page) | Message::InstalledAlone(page) => {
                let alone = matches!(message, Message::InstalledAlone(_));
                self.entry(page).installed(me, from, alone, &mut orders)?;
                self.send_orders(page, &orders);
                return Ok(());
            }
            Message::Dropped(page) => {
                self.entry(page).dropped(me, from, &mut orders)?;
                self.send_orders(page, &orders);
                return Ok(());
            }
            Message::Written(pages) => return self.gather(from, pages),
            Message::Merge(orders) => return self.merge(from, &orders, memory),
            Message::Withdraw => {
                if self.came.remove(&from).is_some() {
                    self.send(from, Message::Withdrawn);
                }
                return Ok(());
            }
            Message::Withdrawn => {
                let Barrier::Withdrawing(_) = self.barrier else {
                    return Err(Impossible { state: "Away", event: "Withdrawn" });
                };
                self.barrier = Barrier::Out;
                return Ok(());
            }
            Message::Invalidate(page) => (page, Event::Invalidate),
            Message::Forward(page, _, Want::Read) => {
                // Once only: nodes that take a page from each other before their workers could use it would do so for ever.
                let first = !self.copies.contains_key(&page) && self.first_state(page) == State::Exclusive;
                let untouched = first && !self.layout.watched && memory.seize_untouched(page);
                (page, if untouched { Event::ForwardUntouched } else { Event::ForwardRead })
            }
            Message::Forward(page, _, Want::Write) => (page, Event::ForwardWrite),
            Message::Grant(page) => (page, Event::Grant),
            Message::Data(page, Want::Read, _) => (page, Event::SharedData),
            Message::Data(page, Want::Write, _) => (page, Event::ExclusiveData),
            Message::Diff(page, _) => {
                let last = self.copies.get(&page).is_some_and(|copy| copy.diffs == 1);
                (page, if last { Event::LastDiff } else { Event::Diff })
            }
        };
        self.step(page, event, Some((from, message)), memory)
    }

    fn entry(&mut self, page: Page) -> &mut Entry {
        let owner = self.layout.first_owner(page);
        self.entries.entry(page).or_insert_with(|| Entry::owned(owner))
    }

    fn send_orders(&mut self, page: Page, orders: &[Order]) {
        for order in orders {
            match *order {
                Order::Invalidate { to } => self.send(to, Message::Invalidate(page)),
                Order::Forward { from, to, want } => self.send(from, Message::Forward(page, to, want)),
                Order::Grant { to } => self.send(to, Message::Grant(page)),
            }
        }
    }

    /// Steps through the table of copies and carries out its actions; `cause` is the message that brought the event.
    fn step<M: Memory<Data = D, Diff = F>>(
        &mut self,
        page: Page,
        event: Event,
        mut cause: Option<(Node, Message<D, F>)>,
        memory: &mut M,
    ) -> Result<(), Impossible> {
        let (next, actions) = copy::step(self.state(page), event)?;
        let first = self.first_state(page);
        let home = self.layout.home(page);
        let copy = self.copies.entry(page).or_insert_with(|| Copy {
            state: first,
            diffs: 0,
            deferred: VecDeque::new(),
        });
        if copy.state == State::Merging && next != State::Merging {
            self.merging -= 1;
        } else if next == State::Merging && copy.state != State::Merging {
            self.merging += 1;
        }
        if copy.state != next {
            if next.written_among_many() {
                self.written.insert(page);
            } else if copy.state.written_among_many() {
                self.written.remove(&page);
            }
        }
        copy.state = next;
        let to = match &cause {
            Some((_, Message::Forward(_, to, _))) => *to,
            _ => home,
        };
        for action in actions {
            match action {
                Action::AskRead | Action::AskWrite => {
                    self.asked += 1;
                    let want = if *action == Action::AskRead { Want::Read } else { Want::Write };
                    self.send(home, Message::Ask(page, want));
                }
                Action::InstallShared | Action::InstallExclusive => {
                    if let Some((from, Message::Data(_, want, data))) = &cause {
                        memory.install(page, *from, data, *want == Want::Write);
                    }
                }
                Action::AllowWrite => memory.protect(page, true),
                Action::DenyWrite => memory.protect(page, false),
                Action::Drop => memory.remove(page),
                Action::MakeTwin => memory.make_twin(page),
                Action::DropTwin => memory.drop_twin(page),
                Action::SendShared => {
                    let data = memory.lend(page, to);
                    self.send(to, Message::Data(page, Want::Read, data));
                }
                Action::SendTwin => {
                    let data = memory.read_twin(page);
                    self.send(to, Message::Data(page, Want::Read, data));
                }
                Action::SendExclusive | Action::SendUntouched => {
                    let data = memory.take(page);
                    self.send(to, Message::Data(page, Want::Write, data));
                }
                Action::SendDiff => {
                    if let Some((_, Message::Forward(_, to, _))) = &cause {
                        let diff = memory.diff(page);
                        self.send(*to, Message::Diff(page, diff));
                    }
                }
                Action::ApplyDiff => {
                    if let Some((from, Message::Diff(_, diff))) = &cause {
                        memory.apply(page, *from, diff);
                    }
                    if let Some(copy) = self.copies.get_mut(&page) {
                        copy.diffs -= 1;
                    }
                }
                Action::AckInvalidate => self.send(home, Message::Dropped(page)),
                Action::AckInstalled | Action::AckAlone => {
                    self.asked -= 1;
                    let alone = *action == Action::AckAlone;
                    let served = if alone { Message::InstalledAlone(page) } else { Message::Installed(page) };
                    self.send(home, served);
                    self.settle();
                }
                Action::Defer => {
                    // The last action that needs the message.
                    if let (Some(copy), Some(cause)) = (self.copies.get_mut(&page), cause.take()) {
                        copy.deferred.push_back(cause);
                    }
                }
                Action::Replay => {
                    let deferred = self.copies.get_mut(&page).map(|copy| std::mem::take(&mut copy.deferred));
                    for (from, message) in deferred.into_iter().flatten() {
                        self.take(from, message, memory)?;
                    }
                    self.settle_merges();
                }
                Action::Resume => memory.resume(page),
            }
        }
        Ok(())
    }

    /// Tells every home which pages were written, once no request of this node is under way.
    fn settle(&mut self) {
        if self.barrier != Barrier::Settling || self.asked > 0 {
            return;
        }
        let mut lists = vec![Vec::new(); usize::from(self.layout.nodes)];
        for &page in &self.written {
            lists[usize::from(self.layout.home(page))].push(page);
        }
        let homes = self.layout.homes();
        self.barrier = Barrier::Waiting(homes);
        for (home, pages) in (0..self.layout.nodes).zip(lists).filter(|(home, _)| homes.has(*home)) {
            self.send(home, Message::Written(pages));
        }
    }

    /// Notes that a node is at the barrier; when all are, each gets its orders.
    fn gather(&mut self, from: Node, pages: Vec<Page>) -> Result<(), Impossible> {
        let stray = pages.iter().any(|page| self.layout.home(*page) != self.me);
        if stray || self.came.insert(from, pages).is_some() {
            return Err(Impossible { state: "Gathering", event: "Written" });
        }
        if self.came.len() < usize::from(self.layout.nodes) {
            return Ok(());
        }
        let came = std::mem::take(&mut self.came);
        let written = merge::writers(came.iter().map(|(node, pages)| (*node, pages.as_slice())));
        let mut orders = vec![Orders::default(); usize::from(self.layout.nodes)];
        let (origin, (from, to)) = (self.layout.origin, self.layout.reclaim);
        for (page, entry) in self.entries.range_mut(from..to) {
            let reclaimed = entry.is_shared_by(origin) && !written.contains_key(page);
            if reclaimed {
                merge::plan(*page, entry, Nodes::one(origin), origin, &mut orders)?;
            }
        }
        for (page, writers) in written {
            merge::plan(page, self.entry(page), writers, origin, &mut orders)?;
        }
        for (node, orders) in (0..self.layout.nodes).zip(orders) {
            self.send(node, Message::Merge(orders));
        }
        Ok(())
    }

    fn merge<M: Memory<Data = D, Diff = F>>(
        &mut self,
        from: Node,
        orders: &Orders,
        memory: &mut M,
    ) -> Result<(), Impossible> {
        let (Barrier::Waiting(homes) | Barrier::Withdrawing(homes)) = self.barrier else {
            return Err(Impossible { state: "Away", event: "Merge" });
        };
        if !homes.has(from) {
            return Err(Impossible { state: "Waiting", event: "Merge" });
        }
        for &page in &orders.drop {
            self.step(page, Event::OrderDrop, None, memory)?;
        }
        for &page in &orders.keep {
            self.step(page, Event::OrderKeep, None, memory)?;
        }
        for &(page, to) in &orders.send {
            // The destination of the diff is kept like that of a forward.
            let cause = Some((from, Message::Forward(page, to, Want::Write)));
            self.step(page, Event::OrderSend, cause, memory)?;
        }
        for &(page, diffs) in &orders.merge {
            if let Some(copy) = self.copies.get_mut(&page) {
                copy.diffs = diffs;
            }
            self.step(page, Event::OrderMerge, None, memory)?;
        }
        self.barrier = Barrier::Waiting(homes.without(from));
        self.settle_merges();
        Ok(())
    }

    /// Ends the barrier when every home has answered and every diff has come.
    fn settle_merges(&mut self) {
        if self.merging == 0 && self.barrier == Barrier::Waiting(Nodes::NONE) {
            self.barrier = Barrier::Away;
        }
    }
}
