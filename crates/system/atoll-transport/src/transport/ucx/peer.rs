//! One other node: its endpoint, the operations under way to it, and the order of its messages.
//!
//! `mod.rs` has one of these for each other node; `hub.rs` notes how operations that start here end.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null;
use std::time::{Duration, Instant};

use super::context::{UcxError, Worker, check};
use super::hub::{HubPointer, Watched, What, failed, start};
use super::order::Order;
use super::sys::{self, Handle, Started, started};
use super::wire::{Class, Header};
use crate::clock::coarse;
use crate::transport::LostReason;

/// The number of all messages between nodes; the header tells more.
pub(super) const AM_ID: u32 = 0;

/// The most bytes of a message that is sent without being copied, if UCX can take it at once.
const AT_ONCE: usize = 8 << 10;

/// The bytes of room behind bytes that UCX reads without knowing their length.
const SLACK: usize = 64 << 10;

/// Another node.
pub(super) struct Peer {
    pub(super) node: u32,
    pub(super) run: [u8; 16],
    /// The endpoint; `None` once it was closed.
    endpoint: Option<Handle>,
    /// The error handler's argument, kept where the handler finds it.
    watched: *mut Watched,
    hub: HubPointer,
    next_number: u64,
    /// The number of operations that have not ended, and of messages among them.
    pub(super) under_way: usize,
    pub(super) sends: usize,
    /// The tokens of puts, gets and flushes that have not ended.
    pub(super) tokens: HashMap<u64, u64>,
    next_id: u64,
    /// The bytes of messages sent since none was under way, which bound what the receiver has to hold.
    pub(super) queued: usize,
    pub(super) order: Order,
    pub(super) outgoing_tag: [u8; 16],
    pub(super) incoming_tag: [u8; 16],
    /// The times when something was last sent to it, and last came from it, by the coarse clock.
    pub(super) spoke: Duration,
    pub(super) heard: Duration,
    /// Whether its messages are held until the next `progress`.
    pub(super) paused: bool,
    pub(super) lost: Option<LostReason>,
    /// The time until which its loss is not reported, because of operations under way to it.
    pub(super) patience: Option<Instant>,
    /// Whether its loss was reported.
    pub(super) told: bool,
    /// Whether it has everything that this node sent before its bye.
    pub(super) bye_seen: bool,
}

// SAFETY: endpoint and hub are used with the worker only, by one thread at a time.
unsafe impl Send for Peer {}

impl Peer {
    /// Connects to the worker at `address`.
    pub(super) fn connect(
        worker: &mut Worker,
        hub: HubPointer,
        node: u32,
        run: [u8; 16],
        address: &[u8],
        most_held: usize,
    ) -> Result<Peer, UcxError> {
        let watched = Box::into_raw(Box::new(Watched { hub, node }));
        let address = padded(address);
        let none = sys::SockAddr { address: null(), length: 0 };
        let params = sys::EpParams {
            field_mask: sys::EP_REMOTE_ADDRESS | sys::EP_ERR_HANDLING_MODE | sys::EP_ERR_HANDLER,
            address: address.as_ptr(),
            err_mode: sys::ERR_HANDLING_PEER,
            err_handler: sys::ErrHandler { cb: Some(failed), arg: watched.cast() },
            user_data: std::ptr::null_mut(),
            flags: 0,
            sockaddr: sys::SockAddr { ..none },
            conn_request: std::ptr::null_mut(),
            name: null(),
            local_sockaddr: none,
        };
        let mut endpoint = std::ptr::null_mut();
        // SAFETY: a worker that lives; an address with slack behind it; the handler's argument stays until the worker ends.
        let status =
            unsafe { (worker.ucx.call.ep_create)(worker.worker, &raw const params, &raw mut endpoint) };
        if let Err(why) = check(worker.ucx, "ucp_ep_create", status) {
            // SAFETY: made above; UCX does not know it.
            drop(unsafe { Box::from_raw(watched) });
            return Err(why);
        }
        Ok(Peer {
            node,
            run,
            endpoint: Some(endpoint),
            watched,
            hub,
            next_number: 0,
            under_way: 0,
            sends: 0,
            tokens: HashMap::new(),
            next_id: 0,
            queued: 0,
            order: Order::new(most_held),
            outgoing_tag: [0; 16],
            incoming_tag: [0; 16],
            spoke: coarse(),
            heard: coarse(),
            paused: false,
            lost: None,
            patience: None,
            told: false,
            bye_seen: false,
        })
    }

    /// The endpoint, as long as the peer is not lost.
    pub(super) fn endpoint(&self) -> Option<Handle> {
        self.endpoint.filter(|_| self.lost.is_none())
    }

    /// Sends a message, however full the queue is.
    pub(super) fn send(&mut self, worker: &Worker, from: u32, class: Class, kind: u16, bytes: &[u8]) {
        let Some(endpoint) = self.endpoint() else { return };
        self.spoke = coarse();
        let number = self.next_number;
        self.next_number += 1;
        let tag = self.outgoing_tag;
        let header = Header { class, kind, from, to: self.node, number, tag }.encode();
        if self.sends > 0 {
            self.queued += bytes.len();
        } else if bytes.len() <= AT_ONCE {
            let param = sys::RequestParam {
                op_attr_mask: sys::OP_FLAGS | sys::OP_FORCE_IMMEDIATE,
                flags: sys::AM_SEND_EAGER,
                ..sys::RequestParam::none()
            };
            // SAFETY: an endpoint that was not closed; header and bytes are not used after the call, which either
            // sends at once or does nothing.
            let result = unsafe {
                let (header, length) = (header.as_ptr().cast(), header.len());
                let (data, count) = (bytes.as_ptr().cast(), bytes.len());
                (worker.ucx.call.am_send_nbx)(endpoint, AM_ID, header, length, data, count, &raw const param)
            };
            match started(result) {
                Started::Ended(sys::OK) => return,
                // UCX could not take it at once.
                _ => self.queued = bytes.len(),
            }
        } else {
            self.queued = bytes.len();
        }
        let what = What::Send { header, bytes: bytes.to_vec() };
        self.sends += 1;
        self.start(worker, what, |what, param| {
            let What::Send { header, bytes } = what else { return std::ptr::null_mut() };
            let (header, length) = (header.as_ptr().cast(), header.len());
            let (data, count) = (bytes.as_ptr().cast(), bytes.len());
            // SAFETY: an endpoint that was not closed; header and bytes are the operation's own.
            unsafe { (worker.ucx.call.am_send_nbx)(endpoint, AM_ID, header, length, data, count, param) }
        });
    }

    /// Starts an operation: `call` makes one call into UCX, as `hub::start` demands.
    pub(super) fn start(
        &mut self,
        worker: &Worker,
        what: What,
        call: impl FnOnce(&mut What, &sys::RequestParam) -> Handle,
    ) {
        self.under_way += 1;
        // SAFETY: the callers in this folder pass such calls.
        unsafe { start(worker, self.hub, self.node, what, call) };
    }

    /// Closes the connection: all operations under way soon end with an error. Without `force`, what was sent is written out
    /// before.
    pub(super) fn close(&mut self, worker: &Worker, force: bool) {
        let Some(endpoint) = self.endpoint.take() else { return };
        self.start(worker, What::Close { force }, |_, param| {
            // SAFETY: an endpoint that was not closed before; it is not used again.
            unsafe { (worker.ucx.call.ep_close_nbx)(endpoint, param) }
        });
    }

    /// Unpacks a key of this node.
    pub(super) fn unpack(&self, worker: &Worker, key: &[u8]) -> Result<Handle, String> {
        let Some(endpoint) = self.endpoint() else { return Err("the node is lost".into()) };
        let key = padded(key);
        let mut handle = std::ptr::null_mut();
        // SAFETY: an endpoint that was not closed; a key with slack behind it; a handle to write to.
        let status = unsafe { (worker.ucx.call.ep_rkey_unpack)(endpoint, key.as_ptr(), &raw mut handle) };
        if status == sys::OK { Ok(handle) } else { Err(worker.ucx.say(status)) }
    }

    /// Frees the error handler's argument.
    ///
    /// # Safety
    ///
    /// The worker must have ended.
    pub(super) unsafe fn free(self) {
        // SAFETY: made by `connect`, freed once.
        drop(unsafe { Box::from_raw(self.watched) });
    }

    /// Notes that an operation with `token` is under way.
    pub(super) fn note(&mut self, token: u64) -> u64 {
        self.next_id += 1;
        self.tokens.insert(self.next_id, token);
        self.next_id
    }

    /// Starts a flush.
    pub(super) fn flush(&mut self, worker: &Worker, token: u64) {
        let Some(endpoint) = self.endpoint() else { return };
        let id = self.note(token);
        self.start(worker, What::Flush { id }, |_, param| {
            // SAFETY: an endpoint that was not closed.
            unsafe { (worker.ucx.call.ep_flush_nbx)(endpoint, param) }
        });
    }
}

/// Copies bytes with zeros behind them. UCX reads addresses and keys without being told where they end; the zeros end whatever
/// a damaged one begins, which has at most 64 parts of at most 255 bytes.
fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len() + SLACK, 0);
    padded
}

/// Fetches a message that was announced.
pub(super) fn fetch(
    worker: &Worker,
    peer: &mut Peer,
    header: Header,
    descriptor: *mut c_void,
    bytes: Vec<u8>,
) {
    let handle = worker.worker;
    peer.start(worker, What::Fetch { header, bytes }, |what, param| {
        let What::Fetch { bytes, .. } = what else { return std::ptr::null_mut() };
        let (data, count) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: a descriptor that came with this worker and is used once; the bytes are the operation's own.
        unsafe { (worker.ucx.call.am_recv_data_nbx)(handle, descriptor, data, count, param) }
    });
}
