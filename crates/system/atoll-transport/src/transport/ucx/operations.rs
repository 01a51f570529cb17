//! The operations that the transport's user starts: messages, registering memory, puts, gets, flushes; and waiting.
//!
//! `peer.rs` passes them to UCX; `events.rs` reports how they ended.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::context::check;
use super::events::PATIENCE;
use super::hub::{RemoteKey, What};
use super::wire::Class;
use super::{Ended, Ucx, sys};
use crate::Node;
use crate::transport::key::{Key, Kind};
use crate::transport::{
    Buffer, Event, KeyError, LostReason, Memory, Refused, Remote, Tags, Transport, TransportError, Waker,
};

/// The most messages under way to one node, however short.
const MOST_SENDS: usize = 16 << 10;
const PUT: &str = "a put";
const GET: &str = "a get";

impl Transport for Ucx {
    fn node(&self) -> Node {
        self.node
    }

    fn nodes(&self) -> u32 {
        self.peers.len() as u32
    }

    fn longest(&self) -> usize {
        self.settings.longest
    }

    fn send(&mut self, to: Node, kind: u16, bytes: &[u8]) -> Result<(), TransportError> {
        let (from, longest, queue) = (self.node.0, self.settings.longest, self.settings.queue);
        if bytes.len() > longest {
            return Err(TransportError::TooLong { length: bytes.len(), longest });
        }
        let (peer, worker) = self.peer(to)?;
        if peer.sends > 0 && (peer.queued + bytes.len() > queue || peer.sends >= MOST_SENDS) {
            return Err(TransportError::Full(to));
        }
        peer.send(worker, from, Class::Message, kind, bytes);
        Ok(())
    }

    fn register(&mut self, memory: Arc<Memory>) -> Result<Vec<u8>, TransportError> {
        let failed = |why: String| TransportError::Failed { what: "registering memory", why };
        let Some(worker) = &self.worker else { return Err(failed("closed".into())) };
        let ucx = worker.ucx;
        let params = sys::MemMapParams {
            field_mask: sys::MEM_MAP_ADDRESS | sys::MEM_MAP_LENGTH,
            address: memory.base().cast(),
            length: memory.len(),
            flags: 0,
            prot: 0,
            memory_type: 0,
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: a context that lives, and memory that is kept until it was unmapped again.
        let status = unsafe { (ucx.call.mem_map)(worker.context, &raw const params, &raw mut handle) };
        check(ucx, "ucp_mem_map", status).map_err(|e| failed(e.to_string()))?;
        let (bytes, address) = (memory.len() as u64, memory.base().addr() as u64);
        self.registered.push((memory, handle));
        let (mut packed, mut length) = (std::ptr::null_mut(), 0);
        // SAFETY: the memory was mapped above; a pointer and a length to write to.
        let status =
            unsafe { (ucx.call.rkey_pack)(worker.context, handle, &raw mut packed, &raw mut length) };
        check(ucx, "ucp_rkey_pack", status).map_err(|e| failed(e.to_string()))?;
        // SAFETY: UCX wrote that many bytes, which belong to it until they are released below.
        let extra = unsafe { std::slice::from_raw_parts(packed, length) }.to_vec();
        // SAFETY: as above, once.
        unsafe { (ucx.call.rkey_buffer_release)(packed) };
        Ok(Key { kind: Kind::Ucx, owner: self.node, run: self.run, bytes, address, extra }.encode())
    }

    fn attach(&mut self, owner: Node, key: &[u8]) -> Result<Remote, TransportError> {
        let (peer, worker) = self.peer(owner)?;
        let key = Key::decode(key, Kind::Ucx, owner, &peer.run);
        let unpacked = key.and_then(|key| {
            let handle = peer.unpack(worker, &key.extra).map_err(KeyError::Unreachable)?;
            Ok((key.bytes, RemoteKey { ucx: worker.ucx, handle, address: key.address }))
        });
        let (bytes, key) = unpacked.map_err(|why| TransportError::Key { owner, why })?;
        while self.remotes.contains_key(&self.next_remote) {
            self.next_remote = self.next_remote.wrapping_add(1);
        }
        let number = self.next_remote;
        self.next_remote = self.next_remote.wrapping_add(1);
        self.remotes.insert(number, Arc::new(key));
        Ok(Remote { owner, bytes, transport: self.instance, number })
    }

    fn detach(&mut self, remote: Remote) {
        if remote.transport == self.instance {
            self.remotes.remove(&remote.number);
        }
    }

    fn put(&mut self, to: Remote, offset: u64, from: Buffer, token: u64) -> Result<(), Refused> {
        self.one_sided(PUT, to, offset, from, token)
    }

    fn get(&mut self, from: Remote, offset: u64, into: Buffer, token: u64) -> Result<(), Refused> {
        self.one_sided(GET, from, offset, into, token)
    }

    fn flush(&mut self, node: Node, token: u64) -> Result<(), TransportError> {
        let operations = self.settings.operations;
        let (peer, worker) = self.peer(node)?;
        if peer.tokens.len() >= operations {
            return Err(TransportError::Full(node));
        }
        peer.flush(worker, token);
        Ok(())
    }

    fn progress(&mut self, handler: &mut dyn FnMut(Event<'_>)) -> Result<usize, TransportError> {
        Ok(self.step(handler))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), TransportError> {
        let failed = |why: String| TransportError::Failed { what: "waiting", why };
        if self.pending() {
            return Ok(());
        }
        let Some(worker) = self.worker.as_mut() else { return Ok(()) };
        if !worker.arm().map_err(failed)? {
            return Ok(());
        }
        let event = worker.event();
        let input = PollFlags::IN;
        let mut fds = [
            PollFd::new(&event, input),
            PollFd::new(&self.wake, input),
            PollFd::new(self.deaths.event(), input),
        ];
        let losing = (!self.losing.is_empty()).then_some(PATIENCE / 10);
        let beat = self.settings.silence.map(|silence| silence / 8);
        let timeout = timeout.into_iter().chain(losing).chain(beat).min().map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) if !fds[2].revents().is_empty() => self.deaths.hurry(),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(failed(e.to_string())),
        }
        // An empty descriptor is no error here.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        Ok(())
    }

    fn waker(&self) -> Waker {
        let wake = self.wake.clone();
        Waker::new(move || {
            // An error means that it is full of wakes already.
            let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
        })
    }

    fn cut(&mut self, node: Node) {
        self.lose(node.0, LostReason::Cut);
    }

    fn tag(&mut self, node: Node, tags: Tags) {
        if let Ok((peer, _)) = self.peer(node) {
            peer.outgoing_tag = tags.outgoing.unwrap_or(peer.outgoing_tag);
            peer.incoming_tag = tags.incoming.unwrap_or(peer.incoming_tag);
        }
    }
}

impl Ucx {
    /// The memory behind `remote`, if it has these bytes and another operation may be started.
    fn reach(&self, remote: Remote, offset: u64, length: usize) -> Result<Arc<RemoteKey>, TransportError> {
        let key = self.remotes.get(&remote.number).filter(|_| remote.transport == self.instance);
        let key = key.ok_or(TransportError::NotAttached(remote.owner))?;
        remote.check(offset, length)?;
        Ok(key.clone())
    }

    fn one_sided(
        &mut self,
        name: &'static str,
        remote: Remote,
        offset: u64,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), Refused> {
        let operations = self.settings.operations;
        let key = match self.reach(remote, offset, buffer.len()) {
            Ok(key) => key,
            Err(why) => return Err(Refused { why, buffer }),
        };
        let (peer, worker) = match self.peer(remote.owner) {
            Ok(found) => found,
            Err(why) => return Err(Refused { why, buffer }),
        };
        if peer.tokens.len() >= operations {
            return Err(Refused { why: TransportError::Full(remote.owner), buffer });
        }
        let Some(endpoint) = peer.endpoint() else {
            return Err(Refused { why: TransportError::Lost(remote.owner), buffer });
        };
        if buffer.is_empty() {
            self.ended.push_back(Ended { token, buffer: Some(buffer), result: Ok(()) });
            return Ok(());
        }
        let put = name == PUT;
        let id = peer.note(token);
        peer.start(worker, What::OneSided { id, name, buffer, remote: key }, |what, param| {
            let What::OneSided { buffer, remote, .. } = what else { return std::ptr::null_mut() };
            let (base, length) = (buffer.base().cast(), buffer.len());
            let (address, rkey) = (remote.address + offset, remote.handle);
            // SAFETY: an endpoint that was not closed and a key unpacked for it; the buffer is the operation's own,
            // and the remote range was checked against the key's.
            unsafe {
                if put {
                    (worker.ucx.call.put_nbx)(endpoint, base, length, address, rkey, param)
                } else {
                    (worker.ucx.call.get_nbx)(endpoint, base, length, address, rkey, param)
                }
            }
        });
        Ok(())
    }
}
