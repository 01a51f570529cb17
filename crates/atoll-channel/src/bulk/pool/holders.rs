//! Who holds which buffer of a pool, as one process knows it: pure bookkeeping, in which a peer cannot lie.
//!
//! `owner.rs` and `link.rs` keep it under a lock. Between a process and each of its peers, a buffer is on one
//! side at a time, and only a message from the side that has it moves it. So the buffers of a pool with
//! several hops form paths from its owner, and each process knows the next hop of each.

use std::collections::VecDeque;

use crate::bulk::pool::error::ProtocolError;

/// A link of this process, by number; never used again.
pub(crate) type LinkId = u64;

/// Where a buffer is, from here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    /// In the owner's store.
    Free,
    /// A `Buffer` of this process.
    Here,
    /// Behind a link.
    Behind(LinkId),
    /// Dropped here; its owner is to be told.
    Returning,
    /// On the owner's side.
    Home,
    /// It was behind a link that is gone, and may be used there still.
    Stranded,
}

pub(crate) struct Holders {
    of: Vec<Holder>,
    /// The owner's store; none in another process.
    free: Option<Vec<u32>>,
    returning: VecDeque<u32>,
    home: Option<LinkId>,
}

impl Holders {
    /// All buffers with their owner, which this process is or is not.
    pub(crate) fn new(count: u32, owner: bool) -> Holders {
        let first = if owner { Holder::Free } else { Holder::Home };
        Holders {
            of: vec![first; count as usize],
            // Taken from the end.
            free: owner.then(|| (0..count).rev().collect()),
            returning: VecDeque::new(),
            home: None,
        }
    }

    /// This process made the pool.
    pub(crate) fn is_owner(&self) -> bool {
        self.free.is_some()
    }

    /// The link to the owner.
    pub(crate) fn home(&self) -> Option<LinkId> {
        self.home
    }

    /// Sets the link to the owner, once: what was dropped here and not told when it broke is not the new one's.
    pub(crate) fn set_home(&mut self, home: LinkId) {
        self.home = Some(home);
    }

    /// A buffer of the owner's store, which is here from now on.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let number = self.free.as_mut()?.pop()?;
        self.put(number, Holder::Here);
        Some(number)
    }

    /// How many are in the owner's store.
    pub(crate) fn free(&self) -> usize {
        self.free.as_ref().map_or(0, Vec::len)
    }

    /// One that is here goes over a link.
    pub(crate) fn send(&mut self, number: u32, link: LinkId) {
        let there = if self.home == Some(link) { Holder::Home } else { Holder::Behind(link) };
        self.put(number, there);
    }

    /// One that was to go over a link did not.
    pub(crate) fn unsent(&mut self, number: u32) {
        self.put(number, Holder::Here);
    }

    /// A peer sends one, which is here from now on.
    pub(crate) fn arrive(&mut self, number: u32, link: LinkId) -> Result<(), ProtocolError> {
        self.check(number, link)?;
        self.put(number, Holder::Here);
        Ok(())
    }

    /// A peer gives some back, all or none of which are accepted.
    pub(crate) fn given_back(&mut self, numbers: &[u32], link: LinkId) -> Result<(), ProtocolError> {
        for (i, &number) in numbers.iter().enumerate() {
            // The owner has nobody to give them back to.
            if self.home == Some(link) || numbers[..i].contains(&number) {
                return Err(ProtocolError::NotTheirs(number));
            }
            self.check(number, link)?;
        }
        numbers.iter().for_each(|number| self.drop_here(*number));
        Ok(())
    }

    /// The buffer is where this peer could send it from.
    fn check(&self, number: u32, link: LinkId) -> Result<(), ProtocolError> {
        let count = self.of.len() as u32;
        let there = if self.home == Some(link) { Holder::Home } else { Holder::Behind(link) };
        match self.of.get(number as usize) {
            None => Err(ProtocolError::NoSuchBuffer { number, count }),
            Some(holder) if *holder == there => Ok(()),
            Some(_) => Err(ProtocolError::NotTheirs(number)),
        }
    }

    /// Nobody here, or behind here, uses it any more.
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

    /// Some that the owner is to be told of, at most so many; it is told of them now.
    pub(crate) fn tell(&mut self, most: usize) -> Vec<u32> {
        let told: Vec<u32> = self.returning.drain(..most.min(self.returning.len())).collect();
        told.iter().for_each(|number| self.put(*number, Holder::Home));
        told
    }

    /// The owner could not be told of them.
    pub(crate) fn untold(&mut self, numbers: &[u32]) {
        for &number in numbers.iter().rev() {
            self.returning.push_front(number);
            self.put(number, Holder::Returning);
        }
    }

    /// A link is gone: what was behind it, which is nobody's until `rescue`.
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

    /// What was stranded is in use nowhere any more.
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
        /// From a process, to the next one further from the owner or nearer to it.
        Send(usize, bool, u32),
        Drop(usize, u32),
        Tell(usize, usize),
        /// What a process likes to send, whether it has it or not: as a buffer, or given back.
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

    /// In each process link 0 leads nearer to the owner, link 1 further away.
    struct World {
        holders: Vec<Holders>,
        /// The buffers that each has.
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
                        // Who was lied to may doubt the truth; nobody else is harmed.
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
                // At most the middle one lies.
                match step {
                    Step::Forge(process, ..) if !lies || process != 1 => continue,
                    step => world.step(step),
                }
                for number in 0..COUNT {
                    let honest = |process: &usize| !world.liars[*process];
                    let has = |process: usize| world.here[process].iter().filter(|n| **n == number).count();
                    // A liar can hand what it was given to two sides; but nobody has what the owner has.
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
                // Everything dropped and told, all buffers are back.
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
