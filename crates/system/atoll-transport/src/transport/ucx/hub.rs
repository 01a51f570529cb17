//! The notes of UCX's callbacks: messages, ended operations, failed endpoints.
//!
//! Callbacks run inside calls into UCX, on the calling thread, and only take notes; `mod.rs` handles the notes afterwards. None
//! unwinds into UCX: a panic in an `extern "C"` function ends the process.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Worker;
use super::library::Library;
use super::sys::{self, Handle, Started, Status, started};
use super::wire::{HEADER, Header};
use crate::transport::Buffer;

/// A message as it arrived.
pub(super) struct Arrived {
    pub(super) header: Header,
    pub(super) data: Data,
}

/// The bytes of a message.
pub(super) enum Data {
    Here(Vec<u8>),
    /// The bytes are to be fetched (rendezvous): UCX's descriptor, which is fetched or released, and their number.
    There(Handle, usize),
    /// The message had more bytes than allowed, and was dropped.
    TooLong,
}

/// The notes of all callbacks.
pub(super) struct Hub {
    pub(super) arrived: Vec<Arrived>,
    pub(super) finished: Vec<(Box<Op>, Status)>,
    pub(super) failed: Vec<(u32, Status)>,
    /// Vectors that can be used again.
    pub(super) spare: Vec<Vec<u8>>,
    longest: usize,
    /// The node whose messages these are.
    node: u32,
}

/// The most vectors that are kept, and the most bytes of one.
const SPARE: usize = 64;
const SPARE_BYTES: usize = 64 << 10;

impl Hub {
    /// Takes a vector that is not needed any more.
    pub(super) fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE && bytes.capacity() <= SPARE_BYTES {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

/// A pointer by which UCX and the transport find the hub.
#[derive(Clone, Copy)]
pub(super) struct HubPointer(NonNull<Hub>);

impl HubPointer {
    pub(super) fn new(node: u32, longest: usize) -> HubPointer {
        let hub = Hub {
            arrived: Vec::new(),
            finished: Vec::new(),
            failed: Vec::new(),
            spare: Vec::new(),
            longest,
            node,
        };
        HubPointer(NonNull::from(Box::leak(Box::new(hub))))
    }

    /// Runs `work` on the hub.
    ///
    /// # Safety
    ///
    /// `work` must not call UCX, whose callbacks use the hub, too; the hub has not been freed.
    pub(super) unsafe fn with<R>(self, work: impl FnOnce(&mut Hub) -> R) -> R {
        // SAFETY: the hub lives until `free`; one thread at a time uses it, and nobody else during `work`.
        work(unsafe { &mut *self.0.as_ptr() })
    }

    /// # Safety
    ///
    /// Neither UCX nor anybody else uses it any more.
    pub(super) unsafe fn free(self) {
        // SAFETY: made by Box::leak, freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }

    pub(super) fn pointer(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

/// An operation under way, which owns all memory that UCX reads or writes for it.
pub(super) struct Op {
    hub: HubPointer,
    free: unsafe extern "C" fn(Handle),
    pub(super) node: u32,
    pub(super) what: What,
}

/// The kind of the operation.
pub(super) enum What {
    Send {
        header: [u8; HEADER],
        bytes: Vec<u8>,
    },
    /// A put or get; `id` tells it from all others to its peer.
    OneSided {
        id: u64,
        name: &'static str,
        buffer: Buffer,
        remote: Arc<RemoteKey>,
    },
    Flush {
        id: u64,
    },
    Fetch {
        header: Header,
        bytes: Vec<u8>,
    },
    Close {
        force: bool,
    },
}

/// An unpacked key.
pub(super) struct RemoteKey {
    pub(super) ucx: &'static Library,
    pub(super) handle: Handle,
    pub(super) address: u64,
}

// SAFETY: used with its worker only, by one thread at a time.
unsafe impl Send for RemoteKey {}
// SAFETY: as above; nothing changes it.
unsafe impl Sync for RemoteKey {}

impl Drop for RemoteKey {
    fn drop(&mut self) {
        // SAFETY: made by ep_rkey_unpack, destroyed once, while its worker lives.
        unsafe { (self.ucx.call.rkey_destroy)(self.handle) };
    }
}

/// Starts `what`. Its end is noted in the hub's `finished`, at the latest when its endpoint is closed by force.
///
/// # Safety
///
/// `call` must make exactly one call into UCX, with the given parameters and operation, whose memory stays in place until the
/// operation has ended.
pub(super) unsafe fn start(
    worker: &Worker,
    hub: HubPointer,
    node: u32,
    what: What,
    call: impl FnOnce(&mut What, &sys::RequestParam) -> Handle,
) {
    let mut op = Box::new(Op { hub, free: worker.ucx.call.request_free, node, what });
    let callback = match op.what {
        What::Fetch { .. } => received as sys::ReceiveCallback as *const c_void,
        _ => sent as sys::SendCallback as *const c_void,
    };
    let flags = match op.what {
        What::Close { force: true } => sys::EP_CLOSE_FORCE,
        _ => 0,
    };
    let mut param = sys::RequestParam {
        op_attr_mask: sys::OP_CALLBACK | sys::OP_USER_DATA | sys::OP_FLAGS,
        flags,
        callback,
        ..sys::RequestParam::none()
    };
    let what: *mut What = &raw mut op.what;
    let op = Box::into_raw(op);
    param.user_data = op.cast();
    // SAFETY: the operation is at its final place, and nobody else uses it before the call.
    let result = call(unsafe { &mut *what }, &param);
    if let Started::Ended(status) = started(result) {
        // SAFETY: no callback was or will be called, so the operation is still this function's.
        let op = unsafe { Box::from_raw(op) };
        // SAFETY: no call into UCX.
        unsafe { hub.with(|hub| hub.finished.push((op, status))) };
    }
}

/// Notes the end of an operation.
unsafe extern "C" fn sent(request: Handle, status: Status, user_data: *mut c_void) {
    // SAFETY: `start` passed it, for this one call.
    let op = unsafe { Box::from_raw(user_data.cast::<Op>()) };
    let (hub, free) = (op.hub, op.free);
    // SAFETY: no call into UCX.
    unsafe { hub.with(|hub| hub.finished.push((op, status))) };
    // SAFETY: the request that this callback is called for, once.
    unsafe { free(request) };
}

/// Notes the end of a fetch.
unsafe extern "C" fn received(request: Handle, status: Status, length: usize, user_data: *mut c_void) {
    // SAFETY: as in `sent`.
    let op = unsafe { Box::from_raw(user_data.cast::<Op>()) };
    let (hub, free) = (op.hub, op.free);
    let whole = matches!(&op.what, What::Fetch { bytes, .. } if bytes.len() == length);
    let status = if status == sys::OK && !whole { sys::ERR_INVALID_PARAM } else { status };
    // SAFETY: no call into UCX.
    unsafe { hub.with(|hub| hub.finished.push((op, status))) };
    // SAFETY: as in `sent`.
    unsafe { free(request) };
}

/// Notes a message that has come, or the announcement of one.
pub(super) unsafe extern "C" fn arrived(
    arg: *mut c_void,
    header: *const u8,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const sys::AmRecvParam,
) -> Status {
    let Some(hub) = NonNull::new(arg.cast::<Hub>()) else { return sys::OK };
    if header_length != HEADER || header.is_null() {
        return sys::OK;
    }
    // SAFETY: UCX passes that many bytes.
    let header = unsafe { std::slice::from_raw_parts(header, header_length) };
    let Some(header) = Header::decode(header) else { return sys::OK };
    // SAFETY: UCX passes it for the call.
    let rendezvous = unsafe { (*param).recv_attr } & sys::AM_RECV_RENDEZVOUS != 0;
    let note = |hub: &mut Hub| {
        if header.to != hub.node {
            return sys::OK;
        }
        let (data, status) = if length > hub.longest {
            (Data::TooLong, sys::OK)
        } else if rendezvous {
            (Data::There(data, length), sys::INPROGRESS)
        } else {
            let mut bytes = hub.spare.pop().unwrap_or_default();
            if length > 0 {
                // SAFETY: UCX passes that many bytes for the call.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) });
            }
            (Data::Here(bytes), sys::OK)
        };
        hub.arrived.push(Arrived { header, data });
        status
    };
    // SAFETY: no call into UCX; the hub lives as long as the worker.
    unsafe { HubPointer(hub).with(note) }
}

/// The argument of an endpoint's error handler.
pub(super) struct Watched {
    pub(super) hub: HubPointer,
    pub(super) node: u32,
}

/// Notes that an endpoint has failed.
pub(super) unsafe extern "C" fn failed(arg: *mut c_void, _endpoint: Handle, status: Status) {
    // SAFETY: `peer.rs` passed it; it lives as long as the worker.
    let watched = unsafe { &*arg.cast::<Watched>() };
    // SAFETY: no call into UCX.
    unsafe { watched.hub.with(|hub| hub.failed.push((watched.node, status))) };
}
