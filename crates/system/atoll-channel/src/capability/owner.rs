//! A node's memory behind its table: lets others reach the memory, copies for them, and takes back what can be taken back.
//!
//! Stands on `table.rs`; a service passes it the requests of other processes together with their origin. `import.rs` is the
//! other side.
//!
//! Source: the barrelfish paper, section 6.6.3 (the driver that serialises base and size and translates them), and
//! 6.9.3 (memory is registered by presenting a capability; later requests are checked against that).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;

use crate::capability::description::{Description, Export, FileId, MOST_KEY, Place};
use crate::capability::given::Given;
use crate::capability::handle::{Handle, Holder, Secret, Span};
use crate::capability::memory::{Direct, Memory};
use crate::capability::refused::Refused;
use crate::capability::rights::Rights;
use crate::capability::shared::Shared;
use crate::capability::table::{Checked, Limits, Revoked, Table, View};
use crate::capability::transport::{Register, Registration};
use atoll_transport::random;

const DIRECT: Rights = Rights::READ.union(Rights::WRITE);

/// The means by which a holder reaches memory.
#[derive(Clone, Copy)]
pub enum Means<'a> {
    /// A mapping: for processes of this machine, and capabilities to all of a [`Memory::Shared`].
    Mapping,
    /// Copies by the system: for processes of this machine that are allowed to trace the owner.
    Process,
    /// Accesses over a transport.
    Transport(&'a dyn Register),
}

/// The reasons why memory is not made accessible. With the rights for it, a holder can still have the owner copy.
#[derive(thiserror::Error, Debug)]
pub enum ExportError {
    /// The table refuses the request.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// The memory was not made for mapping, or has moved to a disk.
    #[error(
        "this memory cannot be mapped by others: it was not made as shared memory, or has moved to a disk"
    )]
    Private,
    /// The capability is to a part, but a file is mapped as a whole.
    #[error("the capability is to {0} of a larger memory, and a mapping would give all of it")]
    Part(Span),
    /// A mapping gives more rights than the capability.
    #[error("a process that maps this memory has the rights {would}, and the capability gives only {gives}")]
    More {
        /// The rights of every process that maps it.
        would: Rights,
        /// The rights of the capability.
        gives: Rights,
    },
    /// The transport's key is longer than what can be sent.
    #[error("the key of the transport {0} has {1} bytes, and may have {MOST_KEY}")]
    Key(&'static str, usize),
    /// The system or the transport refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// A node's table with its memory.
///
/// A parameter `by` is the holder that makes the request, as the channel proves it.
pub struct Owner {
    this: Holder,
    table: Table<Memory>,
    /// The registrations by which transports, by name, let holders reach memory.
    registered: HashMap<Handle, HashMap<&'static str, Registration>>,
    mapped: HashMap<Handle, Arc<Memory>>,
}

impl Owner {
    /// An owner without any memory; `this` is this process.
    pub fn new(this: Holder, limits: Limits) -> io::Result<Owner> {
        let table = Table::new(this.node, limits, Secret(random::bytes()?));
        Ok(Owner { this, table, registered: HashMap::new(), mapped: HashMap::new() })
    }

    /// This process's holder.
    pub fn this(&self) -> Holder {
        self.this
    }

    /// The table, for reading.
    pub fn table(&self) -> &Table<Memory> {
        &self.table
    }

    /// Adds memory, and makes the first capability to it, with all rights, held by this process.
    pub fn add(&mut self, memory: Memory) -> Result<Handle, Refused> {
        let length = memory.length() as u64;
        self.table.create(self.this, memory, length, Rights::all())
    }

    /// Derives a capability as [`Table::derive`] does.
    pub fn derive(
        &mut self,
        by: Holder,
        handle: Handle,
        part: Span,
        rights: Rights,
    ) -> Result<Handle, Refused> {
        self.table.derive(by, handle, part, rights)
    }

    /// Grants a capability as [`Table::grant`] does.
    pub fn grant(
        &mut self,
        by: Holder,
        handle: Handle,
        to: Holder,
        part: Span,
        rights: Rights,
    ) -> Result<Handle, Refused> {
        self.table.grant(by, handle, to, part, rights)
    }

    /// Splits a capability as [`Table::split`] does.
    pub fn split(&mut self, by: Holder, handle: Handle, at: u64) -> Result<(Handle, Handle), Refused> {
        self.table.split(by, handle, at)
    }

    /// Shows a capability as [`Table::view`] does.
    pub fn view(&self, by: Holder, handle: Handle) -> Result<View, Refused> {
        self.table.view(by, handle)
    }

    /// Revokes as [`Table::revoke`] does; access through transports ends before it returns. For mappings see [`Owner::renew`].
    pub fn revoke(&mut self, by: Holder, handle: Handle) -> Result<Vec<Revoked<Memory>>, Refused> {
        self.table.revoke(by, handle).map(|gone| self.end(gone))
    }

    /// Deletes as [`Table::delete`] does, and ends access as `revoke` does.
    pub fn delete(&mut self, by: Holder, handle: Handle) -> Result<Vec<Revoked<Memory>>, Refused> {
        self.table.delete(by, handle).map(|gone| self.end(gone))
    }

    /// Removes a holder as [`Table::drop_holder`] does, and ends access as `revoke` does.
    pub fn drop_holder(&mut self, holder: Holder) -> Vec<Revoked<Memory>> {
        let gone = self.table.drop_holder(holder);
        self.end(gone)
    }

    /// The bytes on which `by` has `rights`, for this process to use them on behalf of `by`: the translation of a handle that
    /// comes back to its owner. They stay mapped until the result is dropped, even if the capability is revoked.
    pub fn local(&self, by: Holder, handle: Handle, part: Span, rights: Rights) -> Result<Direct, Refused> {
        let Checked { memory, span } = self.table.check(by, handle, part, rights)?;
        // Copying needs the rights to copy, and is done by reading and writing.
        let mut direct = rights & DIRECT;
        direct.set(Rights::READ, rights.intersects(Rights::READ | Rights::COPY_FROM));
        direct.set(Rights::WRITE, rights.intersects(Rights::WRITE | Rights::COPY_TO));
        let length = memory.length() as u64;
        Direct::of(memory, span, direct).ok_or(Refused::Range { asked: span, length })
    }

    /// The memory of a capability that `by` holds. It stays until the result is dropped, even if the capability is revoked.
    pub fn memory(&self, by: Holder, handle: Handle) -> Result<Arc<Memory>, Refused> {
        let View { length, .. } = self.table.view(by, handle)?;
        let whole = Span { offset: 0, length };
        Ok(self.table.check(by, handle, whole, Rights::empty())?.memory.clone())
    }

    /// Copies bytes from `offset` on for `by`, which needs the right to have them copied. A revoked capability is refused at
    /// once.
    pub fn copy_from(&self, by: Holder, handle: Handle, offset: u64, into: &mut [u8]) -> Result<(), Refused> {
        let part = Span { offset, length: into.len() as u64 };
        let bytes = self.local(by, handle, part, Rights::COPY_FROM)?;
        bytes.read_at(0, into).map_err(|_| Refused::Range { asked: part, length: bytes.length() as u64 })
    }

    /// Copies `from` to `offset` for `by`, which needs the right to have it copied there.
    pub fn copy_to(&self, by: Holder, handle: Handle, offset: u64, from: &[u8]) -> Result<(), Refused> {
        let part = Span { offset, length: from.len() as u64 };
        let bytes = self.local(by, handle, part, Rights::COPY_TO)?;
        bytes.write_at(0, from).map_err(|_| Refused::Range { asked: part, length: bytes.length() as u64 })
    }

    /// Makes the memory of `handle` accessible to its holder, as far as that has the rights to read or write. Returns what to
    /// send; the module's documentation says what revoking it will do.
    pub fn export(&mut self, by: Holder, handle: Handle, means: Means<'_>) -> Result<Export, ExportError> {
        let View { length, rights: gives } = self.table.view(by, handle)?;
        let rights = gives & DIRECT;
        if rights.is_empty() {
            return Err(Refused::Rights { missing: DIRECT }.into());
        }
        let whole = Span { offset: 0, length };
        let Checked { memory, span } = self.table.check(by, handle, whole, rights)?;
        let memory = memory.clone();
        let export =
            |rights, place, file| Export { description: Description { handle, length, rights, place }, file };
        let (export, given) = match means {
            Means::Mapping => {
                let Memory::Shared(shared) = &*memory else { return Err(ExportError::Private) };
                let rights = mappable(shared, span, gives)?;
                let file = shared.file().ok_or(ExportError::Private)?;
                let id = FileId::of(&*file).map_err(|e| ExportError::Os("fstat", e))?;
                self.mapped.insert(handle, memory.clone());
                (export(rights, Place::File(id), Some(file)), Given::MAPPING)
            }
            Means::Process => {
                let address = memory.base().as_ptr().addr() as u64 + span.offset;
                (export(rights, Place::Process { address }, None), Given::ADDRESS)
            }
            Means::Transport(transport) => {
                let place = self.register(handle, &memory, span, rights, transport)?;
                (export(rights, place, None), Given::TRANSPORT)
            }
        };
        self.table.note_given(by, handle, given)?;
        Ok(export)
    }

    /// Takes memory from all who mapped it, after some of them lost the right to it: its bytes move to a new file, and mappings
    /// of the old file show zeros from now on. Its address in this process stays. Returns the holders that had a file of it and
    /// are still allowed to: they must be told to import it again by a new export, including those that were sent the old file
    /// and have not looked yet, as it would show them zeros.
    ///
    /// Nobody may write to the memory during the call, or the write may be lost. Takes the time of copying the memory.
    pub fn renew(&mut self, memory: &Memory) -> Result<Vec<(Holder, Handle)>, ExportError> {
        let Memory::Shared(shared) = memory else { return Err(ExportError::Private) };
        shared.renew().map_err(|e| ExportError::Os("a new file for shared memory", e))?;
        let had = self.mapped.iter().filter(|(_, mapped)| std::ptr::eq(&***mapped, memory));
        let had: Vec<Handle> = had.map(|(handle, _)| *handle).collect();
        Ok(had.into_iter().filter_map(|handle| Some((self.table.holder(handle)?, handle))).collect())
    }

    fn register(
        &mut self,
        handle: Handle,
        memory: &Arc<Memory>,
        span: Span,
        rights: Rights,
        transport: &dyn Register,
    ) -> Result<Place, ExportError> {
        let name = transport.name();
        // Registered once with each transport, so that repeated requests cost only the caller's time.
        let registration = match self.registered.entry(handle).or_default().entry(name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let length = memory.length() as u64;
                let bytes = Direct::of(memory, span, rights).ok_or(Refused::Range { asked: span, length })?;
                let registration = transport
                    .register(bytes, rights)
                    .map_err(|e| ExportError::Os("registering memory", e))?;
                if registration.key.len() > MOST_KEY {
                    return Err(ExportError::Key(name, registration.key.len()));
                }
                new.insert(registration)
            }
        };
        Ok(Place::Remote { base: registration.base, key: registration.key.clone() })
    }

    /// Ends the registrations of capabilities that are gone.
    fn end(&mut self, gone: Vec<Revoked<Memory>>) -> Vec<Revoked<Memory>> {
        for one in &gone {
            self.registered.remove(&one.handle);
            self.mapped.remove(&one.handle);
        }
        gone
    }
}

/// The rights of a mapping that gives no more than a capability with the rights `gives`.
fn mappable(shared: &Shared, span: Span, gives: Rights) -> Result<Rights, ExportError> {
    if span != (Span { offset: 0, length: shared.length() as u64 }) {
        return Err(ExportError::Part(span));
    }
    let would = shared.sharing().rights();
    if gives.contains(would) { Ok(would) } else { Err(ExportError::More { would, gives }) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::bulk::Manager;
    use crate::capability::access::{Access, AccessError};
    use crate::capability::import::{ImportError, With};
    use crate::capability::shared::Sharing;
    use crate::capability::transport::{Reach, RemoteMemory};
    use atoll_transport::Node;

    const THIS: Holder = Holder { node: Node(1), process: 0 };
    const PEER: Holder = Holder { node: Node(2), process: 0 };

    /// A transport inside one process: memory is registered by number, and the key is the number.
    #[derive(Clone, Default)]
    struct Within {
        registered: Arc<Mutex<HashMap<u64, Arc<Direct>>>>,
        key: usize,
    }

    struct Guard(Within, u64);

    impl Within {
        fn all(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Direct>>> {
            self.registered.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.all().remove(&self.1);
        }
    }

    impl Register for Within {
        fn name(&self) -> &'static str {
            "within"
        }

        fn register(&self, memory: Direct, rights: Rights) -> io::Result<Registration> {
            assert_eq!(memory.rights(), rights);
            let number = self.all().keys().max().map_or(1, |last| last + 1);
            self.all().insert(number, Arc::new(memory));
            let mut key = number.to_le_bytes().to_vec();
            key.resize(key.len().max(self.key), 0);
            Ok(Registration { base: 0, key, guard: Box::new(Guard(self.clone(), number)) })
        }
    }

    impl Reach for Within {
        fn reach(&self, _: Node, _: u64, length: u64, key: &[u8]) -> io::Result<Box<dyn RemoteMemory>> {
            let number = u64::from_le_bytes(*key.first_chunk().ok_or(io::ErrorKind::InvalidData)?);
            let bytes = self.all().get(&number).map(|bytes| bytes.length() as u64);
            if bytes.is_none_or(|bytes| bytes < length) {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok(Box::new(Guard(self.clone(), number)))
        }
    }

    impl Guard {
        fn bytes(&self) -> io::Result<Arc<Direct>> {
            self.0.all().get(&self.1).cloned().ok_or_else(|| io::ErrorKind::ConnectionReset.into())
        }
    }

    impl RemoteMemory for Guard {
        fn get(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            self.bytes()?.read_at(offset, into).map_err(io::Error::other)
        }

        fn put(&self, offset: u64, from: &[u8]) -> io::Result<()> {
            self.bytes()?.write_at(offset, from).map_err(io::Error::other)
        }
    }

    fn span(offset: u64, length: u64) -> Span {
        Span { offset, length }
    }

    fn owner() -> (Owner, Handle) {
        let mut owner = Owner::new(THIS, Limits::default()).unwrap();
        let root = owner.add(Memory::Shared(Shared::new(100, Sharing::ReadWrite).unwrap())).unwrap();
        owner.copy_to(THIS, root, 0, &std::array::from_fn::<u8, 100, _>(|at| at as u8)).unwrap();
        (owner, root)
    }

    #[test]
    fn what_a_transport_reaches_ends_when_it_is_revoked() {
        let (mut owner, root) = owner();
        let within = Within::default();
        let means = Means::Transport(&within);
        let rights = Rights::READ | Rights::GRANT;
        let handle = owner.grant(THIS, root, PEER, span(10, 20), rights).unwrap();
        let sent = owner.export(PEER, handle, means).unwrap().description;
        // A second export gives the same registration.
        assert_eq!(owner.export(PEER, handle, means).unwrap().description, sent);
        assert_eq!(within.all().len(), 1);
        let with = || With { transport: Some(&within), ..With::default() };
        let access = sent.import(with()).unwrap();
        let mut bytes = [0; 3];
        access.read_at(17, &mut bytes).unwrap();
        assert_eq!(bytes, [27, 28, 29]);
        assert!(matches!(access.read_at(18, &mut bytes), Err(AccessError::Range { .. })));
        let refused = access.write_at(0, &bytes);
        assert!(matches!(refused, Err(AccessError::Rights { missing: Rights::WRITE })));
        let Access::Remote(remote) = &access else { panic!("reached in another way") };
        assert_eq!((remote.owner(), remote.base()), (Node(1), 0));
        assert!(matches!(sent.import(With::default()), Err(ImportError::NoTransport)));

        let gone = owner.revoke(THIS, root).unwrap();
        assert_eq!((gone.len(), gone[0].given), (1, Given::TRANSPORT));
        assert!(within.all().is_empty() && owner.registered.is_empty());
        assert!(matches!(access.read_at(0, &mut bytes), Err(AccessError::Os(..))));
        assert!(matches!(sent.import(with()), Err(ImportError::Os(..))));
        assert!(owner.export(PEER, handle, means).is_err());
    }

    #[test]
    fn a_key_that_would_not_be_taken_is_not_sent() {
        let (mut owner, root) = owner();
        let within = Within { key: MOST_KEY + 1, ..Within::default() };
        let refused = owner.export(THIS, root, Means::Transport(&within));
        assert!(matches!(refused, Err(ExportError::Key("within", 4097))));
        assert!(within.all().is_empty());
        let within = Within { key: MOST_KEY, ..Within::default() };
        assert!(owner.export(THIS, root, Means::Transport(&within)).is_ok());
        owner.delete(THIS, root).unwrap();
        assert!(within.all().is_empty());
    }

    #[test]
    fn a_handle_that_comes_home_is_an_address() {
        let (mut owner, root) = owner();
        let handle = owner.grant(THIS, root, PEER, span(10, 20), Rights::COPY_FROM).unwrap();
        let bytes = owner.local(PEER, handle, span(5, 5), Rights::COPY_FROM).unwrap();
        assert_eq!((bytes.length(), bytes.rights()), (5, Rights::READ));
        let missing = Rights::READ | Rights::WRITE;
        let refused = owner.local(PEER, handle, span(0, 5), missing).err();
        assert_eq!(refused, Some(Refused::Rights { missing }));
        assert_eq!(owner.local(THIS, handle, span(0, 5), missing).err(), Some(Refused::NotHolder));
        // Memory given for a copy that began stays mapped, though nobody has a right on it any more.
        owner.delete(THIS, root).unwrap();
        assert!(owner.table().is_empty());
        let mut read = [0; 5];
        bytes.read_at(0, &mut read).unwrap();
        assert_eq!(read, [15, 16, 17, 18, 19]);
    }

    #[test]
    fn memory_that_moves_to_a_file_keeps_its_address_and_bytes_and_is_mapped_by_nobody_anew() {
        let (mut owner, root) = owner();
        let memory = owner.memory(THIS, root).unwrap();
        let handle = owner.grant(THIS, root, PEER, span(0, 100), Rights::all()).unwrap();
        let bytes = owner.local(PEER, handle, span(10, 5), Rights::READ | Rights::WRITE).unwrap();
        let file = tempfile::tempfile().unwrap();
        let base = memory.base();
        memory.move_to_file(file.try_clone().unwrap().into(), &mut Manager::new()).unwrap();
        assert_eq!(memory.base(), base);
        let mut read = [0; 5];
        bytes.read_at(0, &mut read).unwrap();
        assert_eq!(read, [10, 11, 12, 13, 14]);
        bytes.write_at(0, b"hello").unwrap();
        let mut there = [0; 100];
        file.read_exact_at(&mut there, 0).unwrap();
        assert_eq!((there[9], &there[10..15], there[99]), (9, &b"hello"[..], 99));
        assert!(matches!(owner.export(PEER, handle, Means::Mapping), Err(ExportError::Private)));
        // It can move again, and the file that it leaves stays as it is.
        memory.move_to_file(tempfile::tempfile().unwrap().into(), &mut Manager::new()).unwrap();
        bytes.write_at(0, b"again").unwrap();
        file.read_exact_at(&mut there, 0).unwrap();
        assert_eq!(&there[10..15], b"hello");
        let read_only = std::fs::File::open("/dev/null").unwrap();
        assert!(memory.move_to_file(read_only.into(), &mut Manager::new()).is_err());
        bytes.read_at(0, &mut read).unwrap();
        assert_eq!(&read, b"again");
    }

    #[test]
    fn memory_goes_with_the_last_right_on_it() {
        let (mut owner, root) = owner();
        let handle = owner.grant(THIS, root, PEER, span(0, 100), Rights::all()).unwrap();
        owner.export(PEER, handle, Means::Mapping).unwrap();
        owner.export(PEER, handle, Means::Process).unwrap();
        assert_eq!(owner.drop_holder(PEER)[0].given, Given::MAPPING | Given::ADDRESS);
        assert!(owner.mapped.is_empty());
        let gone = owner.delete(THIS, root).unwrap();
        assert_eq!(Arc::strong_count(&gone[0].memory), 1);
        // Even then it can be taken from those who have it.
        assert_eq!(owner.renew(&gone[0].memory).unwrap(), []);
    }
}
