//! The holders of a pool's buffers, as one process knows them: pure bookkeeping in which a peer cannot lie.
//!
//! `owner.rs` and `link.rs` keep it under a lock. Between a process and each of its peers, a buffer is on one side at a time,
//! and only a message from that side moves it. So the buffers of a pool with several hops form paths from its owner, and each
//! process knows the next hop of each.

use std::collections::VecDeque;

use crate::bulk::pool::error::ProtocolError;

/// The number of a link of this process, which is never used again.
pub(crate) type LinkId = u64;

/// The place of a buffer, seen from this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    /// The buffer is in the owner's store.
    Free,
    /// The buffer is a `Buffer` of this process.
    Here,
    /// The buffer is behind a link.
    Behind(LinkId),
    /// The buffer was dropped here, and its owner has yet to be told.
    Returning,
    /// The buffer is on the owner's side.
    Home,
    /// The buffer was behind a link that is gone, and may still be used there.
    Stranded,
}

pub(crate) struct Holders {
    of: Vec<Holder>,
    /// The owner's store of free buffers; `None` in another process.
    free: Option<Vec<u32>>,
    returning: VecDeque<u32>,
    home: Option<LinkId>,
}

impl Holders {
    /// All buffers are with their owner; `owner` tells whether that is this process.
    pub(crate) fn new(count: u32, owner: bool) -> Holders {
        let first = if owner { Holder::Free } else { Holder::Home };
        Holders {
            of: vec![first; count as usize],
            // Buffers are taken from the end, so the lowest number goes first.
            free: owner.then(|| (0..count).rev().collect()),
            returning: VecDeque::new(),
            home: None,
        }
    }

    /// Whether this process made the pool.
    pub(crate) fn is_owner(&self) -> bool {
        self.free.is_some()
    }

    /// The link to the owner.
    pub(crate) fn home(&self) -> Option<LinkId> {
        self.home
    }

    /// Sets the link to the owner, once: buffers that were dropped here and not reported when it broke do not concern a new
    /// one.
    pub(crate) fn set_home(&mut self, home: LinkId) {
        self.home = Some(home);
    }

    /// Takes a buffer from the owner's store; it is here from now on.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let number = self.free.as_mut()?.pop()?;
        self.put(number, Holder::Here);
        Some(number)
    }

    /// The number of buffers in the owner's store.
    pub(crate) fn free(&self) -> usize {
        self.free.as_ref().map_or(0, Vec::len)
    }

    /// Notes that a buffer that is here goes over a link.
    pub(crate) fn send(&mut self, number: u32, link: LinkId) {
        let there = if self.home == Some(link) { Holder::Home } else { Holder::Behind(link) };
        self.put(number, there);
    }

    /// Notes that a buffer could not be sent over a link.
    pub(crate) fn unsent(&mut self, number: u32) {
        self.put(number, Holder::Here);
    }

    /// Notes that a peer sent a buffer, which is here from now on.
    pub(crate) fn arrive(&mut self, number: u32, link: LinkId) -> Result<(), ProtocolError> {
        self.check(number, link)?;
        self.put(number, Holder::Here);
        Ok(())
    }

    /// Notes that a peer gives some buffers back; either all are accepted or none.
    pub(crate) fn given_back(&mut self, numbers: &[u32], link: LinkId) -> Result<(), ProtocolError> {
        for (i, &number) in numbers.iter().enumerate() {
            // The owner has nobody to give buffers back to.
            if self.home == Some(link) || numbers[..i].contains(&number) {
                return Err(ProtocolError::NotTheirs(number));
            }
            self.check(number, link)?;
        }
        numbers.iter().for_each(|number| self.drop_here(*number));
        Ok(())
    }

    /// Checks that the buffer is where this peer could send it from.
    fn check(&self, number: u32, link: LinkId) -> Result<(), ProtocolError> {
        let count = self.of.len() as u32;
        let there = if self.home == Some(link) { Holder::Home } else { Holder::Behind(link) };
        match self.of.get(number as usize) {
            None => Err(ProtocolError::NoSuchBuffer { number, count }),
            Some(holder) if *holder == there => Ok(()),
            Some(_) => Err(ProtocolError::NotTheirs(number)),
        }
    }

    /// Notes that nobody here, or behind here, uses the buffer any more.
    pub(crate) fn drop_here(&mut self, number: u32) {
        match &mut self.free {
            Some(free) => {
                free.push(number);
                self.put(number, Holder::Free);
            }
            None => {
                self.returning.push_back(number);
                self.put(number, Holder::Returning);
            }
        }
    }

    /// Takes up to `most` buffers of which the owner is to be told; they count as reported.
    pub(crate) fn tell(&mut self, most: usize) -> Vec<u32> {
        let told: Vec<u32> = self.returning.drain(..most.min(self.returning.len())).collect();
        told.iter().for_each(|number| self.put(*number, Holder::Home));
        told
    }

    /// Notes that the owner could not be told of these buffers.
    pub(crate) fn untold(&mut self, numbers: &[u32]) {
        for &number in numbers.iter().rev() {
            self.returning.push_front(number);
            self.put(number, Holder::Returning);
        }
    }

    /// Strands the buffers behind a link that is gone, which nobody has until `rescue`; returns them.
    pub(crate) fn strand(&mut self, link: LinkId) -> Vec<u32> {
        let mut stranded = Vec::new();
        for (holder, number) in self.of.iter_mut().zip(0..) {
            if *holder == Holder::Behind(link) {
                *holder = Holder::Stranded;
                stranded.push(number);
            }
        }
        stranded
    }

    /// Takes back a stranded buffer that is used nowhere any more.
    pub(crate) fn rescue(&mut self, number: u32) {
        if self.of.get(number as usize) == Some(&Holder::Stranded) {
            self.drop_here(number);
        }
    }

    fn put(&mut self, number: u32, holder: Holder) {
        if let Some(place) = self.of.get_mut(number as usize) {
            *place = holder;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COUNT: u32 = 5;
    /// The owner, a process behind it, and one behind that.
    const PROCESSES: usize = 3;

    #[derive(Clone, Debug)]
    enum Step {
        Take,
        /// A process sends to the next one further from the owner, or nearer to it.
        Send(usize, bool, u32),
        Drop(usize, u32),
        Tell(usize, usize),
        /// A process sends a buffer that it may not have: as a buffer, or given back.
        Forge(usize, bool, u32, bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (process, number) = (0..PROCESSES, 0..COUNT + 1);
        prop_oneof![
            Just(Step::Take),
            (process.clone(), any::<bool>(), number.clone()).prop_map(|(p, out, n)| Step::Send(p, out, n)),
            (process.clone(), number.clone()).prop_map(|(p, n)| Step::Drop(p, n)),
            (process.clone(), 0..3usize).prop_map(|(p, n)| Step::Tell(p, n)),
            (process, any::<bool>(), number, any::<bool>())
                .prop_map(|(p, out, n, back)| Step::Forge(p, out, n, back)),
        ]
    }

    /// The processes. In each, link 0 leads nearer to the owner, link 1 further away.
    struct World {
        holders: Vec<Holders>,
        /// The buffers that each process has.
        here: Vec<Vec<u32>>,
        liars: Vec<bool>,
    }

    impl World {
        fn new() -> World {
            let mut holders: Vec<_> = (0..PROCESSES).map(|p| Holders::new(COUNT, p == 0)).collect();
            holders[1..].iter_mut().for_each(|holders| holders.set_home(0));
            World { holders, here: vec![Vec::new(); PROCESSES], liars: vec![false; PROCESSES] }
        }

        /// The process at the other end of a link, and the link's number there.
        fn other(process: usize, out: bool) -> Option<(usize, LinkId)> {
            if out {
                (process + 1 < PROCESSES).then_some((process + 1, 0))
            } else {
                process.checked_sub(1).map(|other| (other, 1))
            }
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Take => self.here[0].extend(self.holders[0].take()),
                Step::Send(process, out, number) => {
                    let Some((other, link)) = World::other(process, out) else { return };
                    let Some(at) = self.here[process].iter().position(|n| *n == number) else { return };
                    self.here[process].remove(at);
                    self.holders[process].send(number, u64::from(out));
                    match self.holders[other].arrive(number, link) {
                        Ok(()) => self.here[other].push(number),
                        // A process that was lied to may refuse an honest message; nobody else is harmed.
                        Err(_) => assert!(self.liars.contains(&true)),
                    }
                }
                Step::Drop(process, number) => {
                    if let Some(at) = self.here[process].iter().position(|n| *n == number) {
                        self.here[process].remove(at);
                        self.holders[process].drop_here(number);
                    }
                }
                Step::Tell(process, most) => {
                    let told = self.holders[process].tell(most);
                    let Some((other, link)) = World::other(process, false) else {
                        assert!(told.is_empty());
                        return;
                    };
                    if self.holders[other].given_back(&told, link).is_err() {
                        assert!(self.liars.contains(&true));
                    }
                }
                Step::Forge(process, out, number, back) => {
                    let Some((other, link)) = World::other(process, out) else { return };
                    self.liars[process] = true;
                    if back {
                        let _ = self.holders[other].given_back(&[number], link);
                    } else if self.holders[other].arrive(number, link).is_ok() {
                        self.here[other].push(number);
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_two_honest_processes_hold_a_buffer(steps in prop::collection::vec(step(), 0..200), lies: bool) {
            let mut world = World::new();
            for step in steps {
                // Only the middle process may lie.
                match step {
                    Step::Forge(process, ..) if !lies || process != 1 => continue,
                    step => world.step(step),
                }
                for number in 0..COUNT {
                    let honest = |process: &usize| !world.liars[*process];
                    let has = |process: usize| world.here[process].iter().filter(|n| **n == number).count();
                    // A liar can hand a buffer that it was given to two sides, but nobody has a buffer that the owner has.
                    if lies {
                        let free = world.holders[0].free.iter().flatten().filter(|n| **n == number).count();
                        prop_assert!(has(0) + free <= 1);
                        prop_assert!(has(2) <= 1);
                    } else {
                        prop_assert!((0..PROCESSES).filter(honest).map(has).sum::<usize>() <= 1);
                    }
                }
            }
            if !lies {
                // When everything is dropped and reported, all buffers are back.
                for process in (0..PROCESSES).rev() {
                    for number in world.here[process].clone() {
                        world.step(Step::Drop(process, number));
                    }
                    world.step(Step::Tell(process, usize::MAX));
                }
                prop_assert_eq!(world.holders[0].free(), COUNT as usize);
            }
        }
    }

    #[test]
    fn what_was_behind_a_lost_link_comes_back_once() {
        let mut holders = Holders::new(3, true);
        let (one, other) = (holders.take().unwrap(), holders.take().unwrap());
        holders.send(one, 7);
        holders.send(other, 8);
        assert_eq!(holders.strand(7), [one]);
        assert_eq!(holders.arrive(one, 7), Err(ProtocolError::NotTheirs(one)));
        assert_eq!(holders.free(), 1);
        holders.rescue(one);
        holders.rescue(one);
        holders.rescue(other);
        assert_eq!(holders.free(), 2);
    }
}
