//! The capabilities to one node's memory: which holder was given which bytes with which rights, and by whom.
//!
//! Pure: no system call, no clock, no channel. `owner.rs` puts memory behind it; a service passes it the requests of other
//! processes together with their origin. Whatever is asked in whatever order, with handles kept, guessed or altered, no holder
//! can do to a byte what it was not given; `model.rs` tests this on many examples.
//!
//! Source: the barrelfish paper, section 3.2 (capabilities, split and reduced) and 6.6 (between address spaces; there
//! neither revocation nor parts of what was sent as a whole, which section 6.6.3 names as limits). The derivation tree
//! is that of the Barrelfish and seL4 kernels.

use std::sync::Arc;

use crate::capability::given::Given;
use crate::capability::handle::{Handle, Holder, Secret, Span};
use crate::capability::refused::Refused;
use crate::capability::rights::Rights;
use crate::capability::tree::{Entry, Found, Tree};
use atoll_transport::Node;

/// The greatest number of entries in a table. An entry takes about 150 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The capabilities that one holder may have made. They count for their maker, not for their holder: nobody can use up
    /// another's number by granting to it, nor get around its own by granting to invented holders.
    pub each: u32,
    /// The capabilities of all makers together.
    pub all: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { each: 1 << 16, all: 1 << 20 }
    }
}

/// The memory and bytes that a check allows.
#[derive(Debug)]
pub struct Checked<'a, M> {
    /// The memory.
    pub memory: &'a Arc<M>,
    /// The bytes, counted from the memory's start.
    pub span: Span,
}

/// A capability as its holder may see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct View {
    /// The length in bytes.
    pub length: u64,
    /// The capability's rights.
    pub rights: Rights,
}

/// A capability that has been removed.
#[derive(Debug)]
pub struct Revoked<M> {
    /// The capability's handle: things that were made with it should be dropped.
    pub handle: Handle,
    /// The capability's holder.
    pub holder: Holder,
    /// The capability's memory, which lives while somebody keeps this reference.
    pub memory: Arc<M>,
    /// The capability's bytes in the memory.
    pub span: Span,
    /// The capability's rights.
    pub rights: Rights,
    /// The accesses that forgetting the capability does not take back.
    pub given: Given,
}

/// A node's capabilities, to memory of type `M`.
///
/// A parameter `by` is the holder that makes the request, as the channel proves it.
pub struct Table<M> {
    node: Node,
    limits: Limits,
    secret: Secret,
    tree: Tree<M>,
}

impl<M> Table<M> {
    /// An empty table of the node `node`. `secret` must be random, and used by no other table.
    pub fn new(node: Node, limits: Limits, secret: Secret) -> Table<M> {
        Table { node, limits, secret, tree: Tree::new() }
    }

    /// The node whose memory it is.
    pub fn node(&self) -> Node {
        self.node
    }

    /// Makes the first capability to a memory of `length` bytes, for `holder`. Only the memory's owner calls this: no service
    /// offers it.
    pub fn create(
        &mut self,
        holder: Holder,
        memory: M,
        length: u64,
        rights: Rights,
    ) -> Result<Handle, Refused> {
        let span = Span { offset: 0, length };
        if length == 0 {
            return Err(Refused::Range { asked: span, length });
        }
        self.room(holder, 1)?;
        let memory = Arc::new(memory);
        let given = Given::empty();
        Ok(self.insert(None, Entry { memory, span, rights, holder, maker: holder, given }))
    }

    /// Makes a capability to a part of the memory of `handle`, with some of its rights, for the same holder.
    pub fn derive(
        &mut self,
        by: Holder,
        handle: Handle,
        part: Span,
        rights: Rights,
    ) -> Result<Handle, Refused> {
        self.child(by, handle, by, part, rights, Rights::empty())
    }

    /// Makes a capability as `derive` does, for the holder `to`, which needs the right to grant. The handle is of use to `to`,
    /// and to the granting holder for taking it back.
    pub fn grant(
        &mut self,
        by: Holder,
        handle: Handle,
        to: Holder,
        part: Span,
        rights: Rights,
    ) -> Result<Handle, Refused> {
        self.child(by, handle, to, part, rights, Rights::GRANT)
    }

    /// Makes two capabilities from one: to the bytes before `at`, and to the others. Neither may be empty. The one that was
    /// split stays, and takes both back when it is revoked.
    pub fn split(&mut self, by: Holder, handle: Handle, at: u64) -> Result<(Handle, Handle), Refused> {
        let entry = self.held(by, handle)?;
        let (length, rights) = (entry.span.length, entry.rights);
        if at == 0 || at >= length {
            return Err(Refused::Range { asked: Span { offset: at, length: 0 }, length });
        }
        self.room(by, 2)?;
        let before = self.derive(by, handle, Span { offset: 0, length: at }, rights)?;
        let behind = self.derive(by, handle, Span { offset: at, length: length - at }, rights)?;
        Ok((before, behind))
    }

    /// Takes back all capabilities derived from one, whatever their holders, children before their parents; the capability
    /// itself stays.
    pub fn revoke(&mut self, by: Holder, handle: Handle) -> Result<Vec<Revoked<M>>, Refused> {
        self.held(by, handle)?;
        Ok(self.cut(handle.slot, false))
    }

    /// Takes back a capability and all derived from it. Its holder may do so, and the holder of the one it was directly derived
    /// from.
    pub fn delete(&mut self, by: Holder, handle: Handle) -> Result<Vec<Revoked<M>>, Refused> {
        let holds = self.entry(handle)?.holder == by;
        if !holds && self.tree.parent(handle.slot).is_none_or(|parent| parent.holder != by) {
            return Err(Refused::NotHolder);
        }
        Ok(self.cut(handle.slot, true))
    }

    /// Takes back all capabilities of a holder that is gone for ever, and all derived from them.
    pub fn drop_holder(&mut self, holder: Holder) -> Vec<Revoked<M>> {
        let mut gone = Vec::new();
        while let Some(slot) = self.tree.any_of(holder) {
            gone.append(&mut self.cut(slot, true));
        }
        gone
    }

    /// Checks whether `by` has `rights` on `part` of the memory of `handle`; returns the bytes. Takes constant time.
    pub fn check(
        &self,
        by: Holder,
        handle: Handle,
        part: Span,
        rights: Rights,
    ) -> Result<Checked<'_, M>, Refused> {
        let entry = self.held(by, handle)?;
        allows(entry.rights, rights)?;
        let length = entry.span.length;
        let span = entry.span.part(part).ok_or(Refused::Range { asked: part, length })?;
        Ok(Checked { memory: &entry.memory, span })
    }

    /// The length and rights of a capability.
    pub fn view(&self, by: Holder, handle: Handle) -> Result<View, Refused> {
        let entry = self.held(by, handle)?;
        Ok(View { length: entry.span.length, rights: entry.rights })
    }

    /// Notes that the memory was made accessible by means that revocation alone does not end.
    pub fn note_given(&mut self, by: Holder, handle: Handle, given: Given) -> Result<(), Refused> {
        self.held(by, handle)?;
        if let Some(entry) = self.tree.entry_mut(handle.slot) {
            entry.given |= given;
        }
        Ok(())
    }

    /// The holder of the capability that a handle names, if there is one.
    pub fn holder(&self, handle: Handle) -> Option<Holder> {
        self.entry(handle).ok().map(|entry| entry.holder)
    }

    /// The number of capabilities.
    pub fn len(&self) -> u32 {
        self.tree.used()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of capabilities that `holder` holds.
    pub fn held_by(&self, holder: Holder) -> u32 {
        self.tree.held(holder)
    }

    /// The number of capabilities, of all holders, that `holder` made.
    pub fn made_by(&self, holder: Holder) -> u32 {
        self.tree.made(holder)
    }

    fn child(
        &mut self,
        by: Holder,
        handle: Handle,
        holder: Holder,
        part: Span,
        rights: Rights,
        besides: Rights,
    ) -> Result<Handle, Refused> {
        let entry = self.held(by, handle)?;
        allows(entry.rights, rights | besides)?;
        let length = entry.span.length;
        let span = entry.span.part(part).filter(|span| span.length > 0);
        let span = span.ok_or(Refused::Range { asked: part, length })?;
        let memory = entry.memory.clone();
        self.room(by, 1)?;
        let given = Given::empty();
        Ok(self.insert(Some(handle.slot), Entry { memory, span, rights, holder, maker: by, given }))
    }

    /// Checks that there is room for `more` capabilities made by `by`.
    fn room(&self, by: Holder, more: u32) -> Result<(), Refused> {
        if self.limits.each.saturating_sub(self.tree.made(by)) < more {
            return Err(Refused::TooMany { most: self.limits.each });
        }
        if self.tree.room(self.limits.all) < more {
            return Err(Refused::Full { most: self.limits.all });
        }
        Ok(())
    }

    fn insert(&mut self, parent: Option<u32>, entry: Entry<M>) -> Handle {
        let (slot, generation) = self.tree.insert(parent, entry);
        self.secret.handle(self.node, slot, generation)
    }

    fn cut(&mut self, slot: u32, and_root: bool) -> Vec<Revoked<M>> {
        let mut gone = Vec::new();
        let (node, secret) = (self.node, &self.secret);
        self.tree.cut(slot, and_root, |slot, generation, entry| {
            let Entry { memory, span, rights, holder, given, maker: _ } = entry;
            let handle = secret.handle(node, slot, generation);
            gone.push(Revoked { handle, holder, memory, span, rights, given });
        });
        gone
    }

    /// The capability of a handle, whatever its holder.
    fn entry(&self, handle: Handle) -> Result<&Entry<M>, Refused> {
        if handle.node != self.node {
            return Err(Refused::OtherNode { theirs: handle.node, ours: self.node });
        }
        if self.secret.handle(self.node, handle.slot, handle.generation) != handle {
            return Err(Refused::Forged);
        }
        match self.tree.find(handle.slot, handle.generation) {
            Found::Entry(entry) => Ok(entry),
            Found::Gone => Err(Refused::Revoked),
            Found::Never => Err(Refused::Forged),
        }
    }

    /// The capability of a handle, held by `by`.
    fn held(&self, by: Holder, handle: Handle) -> Result<&Entry<M>, Refused> {
        let entry = self.entry(handle)?;
        if entry.holder == by { Ok(entry) } else { Err(Refused::NotHolder) }
    }

    #[cfg(test)]
    pub(super) fn assert_sound(&self) {
        self.tree.assert_sound();
    }
}

fn allows(has: Rights, asked: Rights) -> Result<(), Refused> {
    let missing = asked - has;
    if missing.is_empty() { Ok(()) } else { Err(Refused::Rights { missing }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Node = Node(1);
    const OWNER: Holder = Holder { node: NODE, process: 0 };
    const A: Holder = Holder { node: Node(2), process: 0 };
    const B: Holder = Holder { node: Node(3), process: 7 };
    const ALL: Rights = Rights::all();

    fn table(limits: Limits) -> Table<&'static str> {
        Table::new(NODE, limits, Secret(*b"sixteen of bytes"))
    }

    fn span(offset: u64, length: u64) -> Span {
        Span { offset, length }
    }

    #[test]
    fn each_reason_to_refuse_is_told() {
        let mut t = table(Limits::default());
        let root = t.create(OWNER, "memory", 100, ALL).unwrap();
        let some = Rights::READ | Rights::COPY_FROM;
        let handle = t.grant(OWNER, root, A, span(10, 20), some).unwrap();

        let checked = t.check(A, handle, span(5, 15), Rights::READ).unwrap();
        assert_eq!((*checked.memory.as_ref(), checked.span), ("memory", span(15, 15)));
        assert_eq!(t.view(A, handle), Ok(View { length: 20, rights: some }));

        let refused = |by, handle, part, rights| t.check(by, handle, part, rights).unwrap_err();
        let whole = span(0, 20);
        let other = Handle { node: Node(2), ..handle };
        let of_other = Refused::OtherNode { theirs: Node(2), ours: NODE };
        assert_eq!(refused(A, other, whole, Rights::READ), of_other);
        for bit in 0..64 {
            let forged = Handle { check: handle.check ^ 1 << bit, ..handle };
            assert_eq!(refused(A, forged, whole, Rights::READ), Refused::Forged);
        }
        for (slot, generation) in [(0, 0), (2, 0), (1, 1), (u32::MAX, 0), (1, u32::MAX)] {
            let guessed = Handle { slot, generation, ..handle };
            assert_eq!(refused(A, guessed, whole, Rights::READ), Refused::Forged);
        }
        assert_eq!(refused(B, handle, whole, Rights::READ), Refused::NotHolder);
        assert_eq!(refused(OWNER, handle, whole, Rights::READ), Refused::NotHolder);
        let missing = Refused::Rights { missing: Rights::WRITE };
        assert_eq!(refused(A, handle, whole, Rights::READ | Rights::WRITE), missing);
        for part in [span(0, 21), span(20, 1), span(21, 0), span(u64::MAX, 2), span(2, u64::MAX)] {
            let range = Refused::Range { asked: part, length: 20 };
            assert_eq!(refused(A, handle, part, Rights::READ), range);
        }
        let missing = Refused::Rights { missing: Rights::GRANT };
        assert_eq!(t.grant(A, handle, B, whole, some), Err(missing));
        let missing = Refused::Rights { missing: Rights::COPY_TO };
        assert_eq!(t.derive(A, handle, whole, Rights::COPY_TO), Err(missing));

        assert_eq!(t.delete(B, handle).unwrap_err(), Refused::NotHolder);
        assert_eq!(t.delete(OWNER, handle).unwrap().len(), 1);
        assert_eq!(t.check(A, handle, whole, Rights::READ).unwrap_err(), Refused::Revoked);
        // The capability's place now belongs to another capability.
        let new = t.grant(OWNER, root, A, span(0, 1), some).unwrap();
        assert_eq!((new.slot, new.generation), (handle.slot, 1));
        assert_eq!(t.check(A, handle, whole, Rights::READ).unwrap_err(), Refused::Revoked);
        t.assert_sound();
    }

    #[test]
    fn empty_capabilities_are_not_made() {
        let mut t = table(Limits::default());
        assert_eq!(t.create(OWNER, "m", 0, ALL), Err(Refused::Range { asked: span(0, 0), length: 0 }));
        let root = t.create(OWNER, "m", u64::MAX, ALL).unwrap();
        let range = |asked| Err(Refused::Range { asked, length: u64::MAX });
        assert_eq!(t.derive(OWNER, root, span(5, 0), ALL), range(span(5, 0)));
        assert_eq!(t.split(OWNER, root, 0), Err(Refused::Range { asked: span(0, 0), length: u64::MAX }));
        assert!(t.split(OWNER, root, u64::MAX).is_err());
        let (before, behind) = t.split(OWNER, root, u64::MAX - 1).unwrap();
        assert_eq!(t.view(OWNER, before).map(|view| view.length), Ok(u64::MAX - 1));
        assert_eq!(t.check(OWNER, behind, span(0, 1), ALL).unwrap().span, span(u64::MAX - 1, 1));
        assert_eq!(t.check(OWNER, behind, span(1, 0), ALL).unwrap().span, span(u64::MAX, 0));
        assert!(t.check(OWNER, behind, span(1, 1), ALL).is_err());
    }

    #[test]
    fn a_long_chain_is_revoked_without_recursion() {
        let mut t = table(Limits { each: 1 << 20, all: 1 << 20 });
        let root = t.create(OWNER, "m", 10, ALL).unwrap();
        let mut last = root;
        for _ in 1..1 << 19 {
            last = t.derive(OWNER, last, span(0, 10), ALL).unwrap();
        }
        let gone = t.revoke(OWNER, root).unwrap();
        assert_eq!((gone.len(), gone[0].handle), ((1 << 19) - 1, last));
        assert_eq!(t.len(), 1);
    }

    #[test]
    fn a_hostile_holder_uses_up_its_own_number_only() {
        let mut t = table(Limits { each: 10, all: 25 });
        let root = t.create(OWNER, "m", 10, ALL).unwrap();
        let of_a = t.grant(OWNER, root, A, span(0, 10), ALL).unwrap();
        let of_b = t.grant(OWNER, root, B, span(0, 10), ALL).unwrap();
        // The holder grants to itself, to its victim, and to holders that do not exist.
        for number in 0..10u64 {
            let to = [A, B, Holder { node: Node(9), process: number }][number as usize % 3];
            t.grant(A, of_a, to, span(0, 1), ALL).unwrap();
        }
        assert_eq!(t.grant(A, of_a, B, span(0, 1), ALL), Err(Refused::TooMany { most: 10 }));
        assert_eq!(t.derive(A, of_a, span(0, 1), ALL), Err(Refused::TooMany { most: 10 }));
        assert_eq!((t.held_by(B), t.made_by(B)), (4, 0));
        for _ in 0..4 {
            t.split(B, of_b, 5).unwrap();
        }
        t.derive(B, of_b, span(0, 1), ALL).unwrap();
        // One of its number is left: two at once are one too many, and none is made.
        assert_eq!(t.split(B, of_b, 5), Err(Refused::TooMany { most: 10 }));
        assert_eq!(t.made_by(B), 9);
        for _ in 0..3 {
            t.derive(OWNER, root, span(0, 1), ALL).unwrap();
        }
        assert_eq!(t.derive(OWNER, root, span(0, 1), ALL), Err(Refused::Full { most: 25 }));
        t.assert_sound();
        assert_eq!(t.drop_holder(A).len(), 11);
        assert_eq!((t.made_by(A), t.held_by(A)), (0, 0));
        t.assert_sound();
    }

    #[test]
    fn a_worn_out_place_is_never_used_again() {
        let mut t = table(Limits { each: 10, all: 2 });
        let root = t.create(OWNER, "m", 10, ALL).unwrap();
        let first = t.derive(OWNER, root, span(0, 1), ALL).unwrap();
        t.delete(OWNER, first).unwrap();
        t.tree.wear_out(first.slot);
        let last = t.derive(OWNER, root, span(0, 1), ALL).unwrap();
        assert_eq!((last.slot, last.generation), (first.slot, u32::MAX - 1));
        t.delete(OWNER, last).unwrap();
        assert_eq!(t.view(OWNER, last), Err(Refused::Revoked));
        assert_eq!(t.derive(OWNER, root, span(0, 1), ALL), Err(Refused::Full { most: 2 }));
        t.assert_sound();
    }

    #[test]
    fn memory_lives_as_long_as_a_capability_to_it() {
        let mut t = Table::new(NODE, Limits::default(), Secret([1; 16]));
        let memory = Arc::new(());
        let root = t.create(OWNER, memory.clone(), 10, ALL).unwrap();
        let part = t.grant(OWNER, root, A, span(0, 5), ALL).unwrap();
        t.note_given(A, part, Given::MAPPING).unwrap();
        assert_eq!(t.note_given(OWNER, part, Given::ADDRESS), Err(Refused::NotHolder));
        let gone = t.delete(OWNER, root).unwrap();
        assert_eq!(Arc::strong_count(&memory), 2);
        let told: Vec<_> = gone.iter().map(|one| (one.handle, one.holder, one.given)).collect();
        assert_eq!(told, [(part, A, Given::MAPPING), (root, OWNER, Given::empty())]);
        drop(gone);
        assert_eq!(Arc::strong_count(&memory), 1);
        assert!(t.is_empty());
    }
}
