//! A node's memory behind its table: lets others reach it, copies for them, and takes back what can be taken back.
//!
//! Stands on `table.rs`; a service hands it the requests of other processes, with who they came from. `import.rs` is
//! the other side.
//!
//! Source: the barrelfish paper, section 6.6.3 (the driver that serialises base and size and translates them), and
//! 6.9.3 (memory is registered by presenting a capability; later requests are checked against that).

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use crate::capability::description::{Description, Export, FileId, MOST_KEY, Place};
use crate::capability::given::Given;
use crate::capability::handle::{Handle, Holder, Secret, Span};
use crate::capability::memory::{Direct, Memory};
use crate::capability::refused::Refused;
use crate::capability::rights::Rights;
use crate::capability::table::{Checked, Limits, Revoked, Table, View};
use crate::capability::transport::{Register, Registration};

const DIRECT: Rights = Rights::READ.union(Rights::WRITE);

/// How a holder is to reach memory.
#[derive(Clone, Copy)]
pub enum Way<'a> {
    /// Map it: for processes of this machine, and capabilities to all of a [`Memory::Shared`].
    Mapping,
    /// Have the system copy it: for processes of this machine that are allowed to trace the owner.
    Process,
    /// Over a transport.
    Transport(&'a dyn Register),
}

/// Why memory is not made accessible. Have the owner copy, with the rights for that.
#[derive(thiserror::Error, Debug)]
pub enum ExportError {
    /// The table refuses.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// The memory was not made for mapping.
    #[error("this memory cannot be mapped by others: it was not made as shared memory")]
    Private,
    /// A file is mapped as a whole.
    #[error("the capability is to {0} of a larger memory, and a mapping would give all of it")]
    Part(Span),
    /// A mapping of it gives more than the capability.
    #[error("who maps this memory has the rights {would}, and the capability gives only {gives}")]
    More {
        /// The rights of who maps it.
        would: Rights,
        /// The capability's.
        gives: Rights,
    },
    /// The transport's key is longer than what is sent.
    #[error("the key of the transport {0} has {1} bytes, and may have {MOST_KEY}")]
    Key(&'static str, usize),
    /// The system or the transport refuses.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// What is registered for a capability; ended in this order.
struct Registered {
    name: &'static str,
    registration: Registration,
}

/// A node's table with its memory.
///
/// Wherever a holder `by` is asked for: it is who asks, as the channel proves it.
pub struct Owner {
    this: Holder,
    table: Table<Memory>,
    registered: HashMap<Handle, Vec<Registered>>,
    mapped: HashMap<Handle, Arc<Memory>>,
}

impl Owner {
    /// Without any memory; `this` is the process that this is.
    pub fn new(this: Holder, limits: Limits) -> io::Result<Owner> {
        let mut secret = [0; 16];
        let mut got = 0;
        while got < secret.len() {
            got += rustix::rand::getrandom(&mut secret[got..], rustix::rand::GetRandomFlags::empty())?;
        }
        let table = Table::new(this.node, limits, Secret(secret));
        Ok(Owner { this, table, registered: HashMap::new(), mapped: HashMap::new() })
    }

    /// This process.
    pub fn this(&self) -> Holder {
        self.this
    }

    /// The table, for looking.
    pub fn table(&self) -> &Table<Memory> {
        &self.table
    }

    /// Takes memory in, and makes the first capability to it, with all rights, held by this process.
    pub fn add(&mut self, memory: Memory) -> Result<Handle, Refused> {
        let length = memory.length() as u64;
        self.table.create(self.this, memory, length, Rights::all())
    }

    /// As [`Table::derive`].
    pub fn derive(
        &mut self,
        by: Holder,
        handle: Handle,
        part: Span,
        rights: Rights,
    ) -> Result<Handle, Refused> {
        self.table.derive(by, handle, part, rights)
    }

    /// As [`Table::grant`].
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

    /// As [`Table::split`].
    pub fn split(&mut self, by: Holder, handle: Handle, at: u64) -> Result<(Handle, Handle), Refused> {
        self.table.split(by, handle, at)
    }

    /// As [`Table::view`].
    pub fn view(&self, by: Holder, handle: Handle) -> Result<View, Refused> {
        self.table.view(by, handle)
    }

    /// As [`Table::revoke`]; what transports let others reach ends before it returns. For mappings see
    /// [`Owner::renew`].
    pub fn revoke(&mut self, by: Holder, handle: Handle) -> Result<Vec<Revoked<Memory>>, Refused> {
        self.table.revoke(by, handle).map(|gone| self.end(gone))
    }

    /// As [`Table::delete`], otherwise as `revoke`.
    pub fn delete(&mut self, by: Holder, handle: Handle) -> Result<Vec<Revoked<Memory>>, Refused> {
        self.table.delete(by, handle).map(|gone| self.end(gone))
    }

    /// As [`Table::drop_holder`], otherwise as `revoke`.
    pub fn drop_holder(&mut self, holder: Holder) -> Vec<Revoked<Memory>> {
        let gone = self.table.drop_holder(holder);
        self.end(gone)
    }

    /// Bytes that `by` may do with what `rights` say, for this process to do it on his behalf: the translation of
    /// a handle that comes home. They stay mapped until this is dropped, even if the capability is revoked.
    pub fn local(&self, by: Holder, handle: Handle, part: Span, rights: Rights) -> Result<Direct, Refused> {
        let Checked { memory, span } = self.table.check(by, handle, part, rights)?;
        // Copying takes the rights to copy, and is done by reading and writing.
        let mut direct = rights & DIRECT;
        direct.set(Rights::READ, rights.intersects(Rights::READ | Rights::COPY_FROM));
        direct.set(Rights::WRITE, rights.intersects(Rights::WRITE | Rights::COPY_TO));
        let length = memory.length() as u64;
        Direct::of(memory, span, direct).ok_or(Refused::Range { asked: span, length })
    }

    /// Copies bytes from `offset` on for `by`, who needs the right to have them copied. A revoked capability is refused at once.
    pub fn copy_from(&self, by: Holder, handle: Handle, offset: u64, into: &mut [u8]) -> Result<(), Refused> {
        let part = Span { offset, length: into.len() as u64 };
        let bytes = self.local(by, handle, part, Rights::COPY_FROM)?;
        bytes.read_at(0, into).map_err(|_| Refused::Range { asked: part, length: bytes.length() as u64 })
    }

    /// Copies `from` to `offset` for `by`, who needs the right to have it copied there.
    pub fn copy_to(&self, by: Holder, handle: Handle, offset: u64, from: &[u8]) -> Result<(), Refused> {
        let part = Span { offset, length: from.len() as u64 };
        let bytes = self.local(by, handle, part, Rights::COPY_TO)?;
        bytes.write_at(0, from).map_err(|_| Refused::Range { asked: part, length: bytes.length() as u64 })
    }

    /// Makes what `handle` names accessible to its holder, as far as it has the rights to read or write. What to send
    /// is returned; see the module for what revoking it will be worth.
    pub fn export(&mut self, by: Holder, handle: Handle, way: Way<'_>) -> Result<Export, ExportError> {
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
        let (export, given) = match way {
            Way::Mapping => {
                let rights = mappable(&memory, span, gives)?;
                let Memory::Shared(shared) = &*memory else { return Err(ExportError::Private) };
                let file = shared.file();
                let id = FileId::of(&*file).map_err(|e| ExportError::Os("fstat", e))?;
                self.mapped.insert(handle, memory.clone());
                (export(rights, Place::File(id), Some(file)), Given::MAPPING)
            }
            Way::Process => {
                let address = memory.base().as_ptr().addr() as u64 + span.offset;
                (export(rights, Place::Process { address }, None), Given::ADDRESS)
            }
            Way::Transport(transport) => {
                let place = self.register(handle, &memory, span, rights, transport)?;
                (export(rights, place, None), Given::TRANSPORT)
            }
        };
        self.table.note_given(by, handle, given)?;
        Ok(export)
    }

    /// Takes memory from everybody who mapped it, after some of them lost the right to: its bytes move to a new
    /// file, and mappings of the old one show zeros from now on. Its address in this process stays. Returns who had a
    /// file of it and may still: they must be told to import it again, by an export anew.
    ///
    /// Nobody may write the memory meanwhile, or what he writes may be lost. Takes the time of copying it.
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
        let all = self.registered.entry(handle).or_default();
        // Once for each transport: asking again and again costs the asker's time only.
        if !all.iter().any(|registered| registered.name == name) {
            let length = memory.length() as u64;
            let bytes = Direct::of(memory, span, rights).ok_or(Refused::Range { asked: span, length })?;
            let registration =
                transport.register(bytes, rights).map_err(|e| ExportError::Os("registering memory", e))?;
            if registration.key.len() > MOST_KEY {
                return Err(ExportError::Key(name, registration.key.len()));
            }
            all.push(Registered { name, registration });
        }
        let found = all.iter().find(|registered| registered.name == name);
        let Some(Registered { registration, .. }) = found else { return Err(Refused::Revoked.into()) };
        Ok(Place::Remote { base: registration.base, key: registration.key.clone() })
    }

    /// Ends what was registered for capabilities that are gone.
    fn end(&mut self, gone: Vec<Revoked<Memory>>) -> Vec<Revoked<Memory>> {
        for one in &gone {
            self.registered.remove(&one.handle);
            self.mapped.remove(&one.handle);
        }
        gone
    }
}

/// The rights of a mapping that gives no more than a capability with the rights `gives`.
fn mappable(memory: &Memory, span: Span, gives: Rights) -> Result<Rights, ExportError> {
    let Memory::Shared(shared) = memory else { return Err(ExportError::Private) };
    if span != (Span { offset: 0, length: shared.length() as u64 }) {
        return Err(ExportError::Part(span));
    }
    let would = shared.sharing().rights();
    if gives.contains(would) { Ok(would) } else { Err(ExportError::More { would, gives }) }
}
