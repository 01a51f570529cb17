//! Where UCX's callbacks put what they hear: messages, ended operations, failed endpoints.
//!
//! They run inside calls into UCX, on the thread that makes them, and do nothing but note; `mod.rs` takes the notes afterwards.
//! None unwinds into UCX: a panic in an `extern "C"` function ends the process.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Worker;
use super::library::Library;
use super::sys::{self, Handle, Started, Status, started};
use super::wire::{HEADER, Header};
use crate::transport::Buffer;

/// A message as it came.
pub(super) struct Arrived {
    pub(super) header: Header,
    pub(super) data: Data,
}

/// Its bytes.
pub(super) enum Data {
    Here(Vec<u8>),
    /// To be fetched (rendezvous): UCX's descriptor, to be fetched or given back, and how many.
    There(Handle, usize),
    /// More than a message may have; dropped.
    TooLong,
}

/// The notes.
pub(super) struct Hub {
    pub(super) arrived: Vec<Arrived>,
    pub(super) finished: Vec<(Box<Op>, Status)>,
    pub(super) failed: Vec<(u32, Status)>,
    /// Vectors to use again.
    pub(super) spare: Vec<Vec<u8>>,
    longest: usize,
    /// Of which node's messages this is.
    node: u32,
}

/// Vectors that are kept, and bytes of the largest of them.
const SPARE: usize = 64;
const SPARE_BYTES: usize = 64 << 10;

impl Hub {
    /// A vector is not needed any more.
    pub(super) fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE && bytes.capacity() <= SPARE_BYTES {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

/// The hub, where UCX and the transport both find it.
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

    /// Uses the hub.
    ///
    /// # Safety
    ///
    /// `work` must not call UCX, whose callbacks use the hub too; the hub was not freed.
    pub(super) unsafe fn with<R>(self, work: impl FnOnce(&mut Hub) -> R) -> R {
        // SAFETY: it lives until `free`; used by one thread at a time, and by nobody else during `work`.
        work(unsafe { &mut *self.0.as_ptr() })
    }

    /// # Safety
    ///
    /// UCX may not know it any more, nor anybody use it.
    pub(super) unsafe fn free(self) {
        // SAFETY: made by Box::leak, freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }

    pub(super) fn pointer(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

/// Something under way: it owns all memory that UCX reads or writes for it.
pub(super) struct Op {
    hub: HubPointer,
    free: unsafe extern "C" fn(Handle),
    pub(super) node: u32,
    pub(super) what: What,
}

/// What is under way.
pub(super) enum What {
    Send {
        header: [u8; HEADER],
        bytes: Vec<u8>,
    },
    /// A put or get; `id` tells it from all others of its peer.
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

/// Starts `what`. Its end is in the hub's `finished`, at the latest when its endpoint is closed by force.
///
/// # Safety
///
/// `call` must make one call into UCX with the given parameters and operation, whose memory stays where it is until it has ended, and
/// nothing else.
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
    // SAFETY: the operation is at its final place, and nobody else uses it before the call has been made.
    let result = call(unsafe { &mut *what }, &param);
    if let Started::Ended(status) = started(result) {
        // SAFETY: no callback was or will be called, so the operation is still ours.
        let op = unsafe { Box::from_raw(op) };
        // SAFETY: no call into UCX.
        unsafe { hub.with(|hub| hub.finished.push((op, status))) };
    }
}

/// An operation has ended.
unsafe extern "C" fn sent(request: Handle, status: Status, user_data: *mut c_void) {
    // SAFETY: `start` gave it, for this one call.
    let op = unsafe { Box::from_raw(user_data.cast::<Op>()) };
    let (hub, free) = (op.hub, op.free);
    // SAFETY: no call into UCX.
    unsafe { hub.with(|hub| hub.finished.push((op, status))) };
    // SAFETY: the request that this callback is called for, once.
    unsafe { free(request) };
}

/// A fetch has ended.
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

/// A message has come, or the announcement of one.
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
    // SAFETY: UCX gives that many bytes.
    let header = unsafe { std::slice::from_raw_parts(header, header_length) };
    let Some(header) = Header::decode(header) else { return sys::OK };
    // SAFETY: UCX gives it for the call.
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
                // SAFETY: UCX gives that many bytes for the call.
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

/// What an endpoint's error handler gets.
pub(super) struct Watched {
    pub(super) hub: HubPointer,
    pub(super) node: u32,
}

/// An endpoint has failed.
pub(super) unsafe extern "C" fn failed(arg: *mut c_void, _endpoint: Handle, status: Status) {
    // SAFETY: `endpoint.rs` gave it; it lives as long as the worker.
    let watched = unsafe { &*arg.cast::<Watched>() };
    // SAFETY: no call into UCX.
    unsafe { watched.hub.with(|hub| hub.failed.push((watched.node, status))) };
}
