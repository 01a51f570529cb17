//! UCX's context and worker, as values that create and destroy them.
//!
//! `peer.rs` and `mod.rs` stand on it; `library.rs` loads the functions that it calls.

use std::ffi::{CString, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{null, null_mut};

use super::library::{Library, LoadError, library};
use super::settings::{Settings, chosen, devices};
use super::sys;

/// The reasons why this node could not join over UCX.
#[derive(thiserror::Error, Debug)]
pub enum UcxError {
    /// The library cannot be used.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The devices are not named one by one.
    #[error(
        "UCX is to use the network devices {0:?}: name each that it may listen on, such as eth0 or mlx5_0:1"
    )]
    Devices(String),
    /// A setting is out of its range.
    #[error("{0}")]
    Setting(String),
    /// UCX refuses a call.
    #[error("UCX: {what}: {why}")]
    Call {
        /// The function's name.
        what: &'static str,
        /// The reason, in UCX's words.
        why: String,
    },
    /// The addresses of the nodes could not be exchanged.
    #[error("the nodes' addresses could not be exchanged: {0}")]
    Exchange(Box<dyn std::error::Error + Send + Sync>),
    /// Another node's address is not usable.
    #[error("the address of node {node} is not usable: {why}")]
    Address {
        /// The node.
        node: u32,
        /// The reason.
        why: String,
    },
    /// The system refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// A context with its worker.
pub(super) struct Worker {
    pub(super) ucx: &'static Library,
    pub(super) context: sys::Handle,
    pub(super) worker: sys::Handle,
    pub(super) event: i32,
}

// SAFETY: the worker is made for use by any thread, one at a time; what changes it takes `&mut`.
unsafe impl Send for Worker {}

impl Worker {
    pub(super) fn new(settings: &Settings, nodes: u32) -> Result<Worker, UcxError> {
        let ucx = library()?;
        let config = Config::new(ucx, settings)?;
        let params = sys::Params {
            field_mask: sys::PARAM_FEATURES | sys::PARAM_ESTIMATED_NUM_EPS,
            features: sys::FEATURE_AM | sys::FEATURE_RMA | sys::FEATURE_WAKEUP,
            request_size: 0,
            request_init: null(),
            request_cleanup: null(),
            tag_sender_mask: 0,
            mt_workers_shared: 0,
            estimated_num_eps: nodes as usize,
            estimated_num_ppn: 0,
            name: null(),
        };
        let mut context = null_mut();
        let (major, minor) = sys::API;
        // SAFETY: all pointers are valid for the call; fields that the mask leaves out are not read.
        let status = unsafe {
            (ucx.call.init_version)(major, minor, &raw const params, config.handle, &raw mut context)
        };
        check(ucx, "ucp_init", status)?;
        let mut this = Worker { ucx, context, worker: null_mut(), event: -1 };
        let params = sys::WorkerParams {
            field_mask: sys::WORKER_THREAD_MODE,
            thread_mode: sys::THREAD_MODE_SERIALIZED,
            cpu_mask: [0; 16],
            events: 0,
            user_data: null_mut(),
            event_fd: 0,
            flags: 0,
            name: null(),
            am_alignment: 0,
            client_id: 0,
        };
        // SAFETY: a context that lives, and pointers valid for the call.
        let status = unsafe { (ucx.call.worker_create)(context, &raw const params, &raw mut this.worker) };
        check(ucx, "ucp_worker_create", status)?;
        // SAFETY: a worker that lives; a number to write to.
        let status = unsafe { (ucx.call.worker_get_efd)(this.worker, &raw mut this.event) };
        check(ucx, "ucp_worker_get_efd", status)?;
        Ok(this)
    }

    /// Makes `callback` receive the messages with the number `id`; it gets `arg`.
    ///
    /// # Safety
    ///
    /// `arg` must be what `callback` needs, for as long as the worker lives.
    pub(super) unsafe fn receive(
        &mut self,
        id: u32,
        callback: sys::AmCallback,
        arg: *mut c_void,
    ) -> Result<(), UcxError> {
        let param = sys::AmHandlerParam {
            field_mask: sys::AM_HANDLER_ID | sys::AM_HANDLER_FLAGS | sys::AM_HANDLER_CB | sys::AM_HANDLER_ARG,
            id,
            flags: sys::AM_WHOLE_MESSAGE,
            cb: Some(callback),
            arg,
        };
        // SAFETY: a worker that lives; the rest is the caller's promise.
        let status = unsafe { (self.ucx.call.worker_set_am_recv_handler)(self.worker, &raw const param) };
        check(self.ucx, "ucp_worker_set_am_recv_handler", status)
    }

    /// The address by which other nodes reach this worker.
    pub(super) fn address(&self) -> Result<Vec<u8>, UcxError> {
        let (mut address, mut length) = (null_mut(), 0);
        // SAFETY: a worker that lives; a pointer and a length to write to.
        let status =
            unsafe { (self.ucx.call.worker_get_address)(self.worker, &raw mut address, &raw mut length) };
        check(self.ucx, "ucp_worker_get_address", status)?;
        // SAFETY: UCX wrote them; the bytes belong to UCX until they are released below.
        let bytes = unsafe { std::slice::from_raw_parts(address, length) }.to_vec();
        // SAFETY: as above, once.
        unsafe { (self.ucx.call.worker_release_address)(self.worker, address) };
        Ok(bytes)
    }

    /// Lets UCX work; returns true if it did something.
    pub(super) fn progress(&mut self) -> bool {
        // SAFETY: a worker that lives, used by one thread at a time. Callbacks are those of `hub.rs`.
        unsafe { (self.ucx.call.worker_progress)(self.worker) != 0 }
    }

    /// Makes the event's descriptor report from now on when there is something to do; returns false if there is something
    /// already.
    pub(super) fn arm(&mut self) -> Result<bool, String> {
        // SAFETY: a worker that lives.
        match unsafe { (self.ucx.call.worker_arm)(self.worker) } {
            sys::OK => Ok(true),
            sys::ERR_BUSY => Ok(false),
            status => Err(self.ucx.say(status)),
        }
    }

    /// The descriptor that is readable when there is something to do.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the worker's own, which closes it when it ends.
        unsafe { BorrowedFd::borrow_raw(self.event) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: made by `new`, ended once. Endpoints, keys and memory have been ended before by their owners.
        unsafe {
            if !self.worker.is_null() {
                (self.ucx.call.worker_destroy)(self.worker);
            }
            (self.ucx.call.cleanup)(self.context);
        }
    }
}

/// Returns an error of the call `what`, if `status` is one.
pub(super) fn check(ucx: &Library, what: &'static str, status: sys::Status) -> Result<(), UcxError> {
    if status == sys::OK { Ok(()) } else { Err(UcxError::Call { what, why: ucx.say(status) }) }
}

/// UCX's settings.
struct Config {
    ucx: &'static Library,
    handle: sys::Handle,
}

impl Config {
    fn new(ucx: &'static Library, settings: &Settings) -> Result<Config, UcxError> {
        let environment = |name: &str| std::env::var(format!("UCX_{name}")).ok();
        let devices = devices(settings.devices.as_deref(), environment("NET_DEVICES").as_deref())
            .map_err(UcxError::Devices)?;
        let mut handle = null_mut();
        // SAFETY: null for prefix and file stands for UCX's own; a handle to write to.
        let status = unsafe { (ucx.call.config_read)(null(), null(), &raw mut handle) };
        check(ucx, "ucp_config_read", status)?;
        let config = Config { ucx, handle };
        config.set("NET_DEVICES", &devices)?;
        if let Some(transports) = &settings.transports {
            config.set("TLS", transports)?;
        }
        let transports = settings.transports.clone().or_else(|| environment("TLS"));
        let transports = transports.as_deref().unwrap_or("all");
        let set = |name: &str| environment(name).is_some();
        for (name, value) in chosen(ucx.version.1, transports, &devices, set) {
            // A setting that this version of UCX does not have is not needed there.
            let _ = config.set(&name, value);
        }
        Ok(config)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), UcxError> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| UcxError::Setting(format!("UCX_{name} cannot hold a zero byte")))
        };
        let (name_text, value_text) = (text(name)?, text(value)?);
        // SAFETY: a configuration that lives, and two strings.
        let status =
            unsafe { (self.ucx.call.config_modify)(self.handle, name_text.as_ptr(), value_text.as_ptr()) };
        if status == sys::OK {
            return Ok(());
        }
        let why = self.ucx.say(status);
        Err(UcxError::Setting(format!("UCX_{name} cannot be {value:?}: {why}")))
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: made by `new`, released once.
        unsafe { (self.ucx.call.config_release)(self.handle) };
    }
}
