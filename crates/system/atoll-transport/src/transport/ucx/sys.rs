//! The part of UCX's interface that atoll uses, loaded at run time: functions, structs with field masks, constants.
//!
//! `context.rs` wraps it safely. Nothing here links against UCX or needs its headers; `layout.rs` compares the structs with the
//! headers where these are installed. Names are UCX's without their prefix.
//!
//! Source: `ucp/api/ucp.h` and `ucs/type/status.h` of UCX 1.13, whose interface is stable from 1.10 on: a struct's mask tells
//! which of its fields are set, so later versions can read ours.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `ucs_status_t`: 0 is done, 1 is under way, negative is an error.
pub(super) type Status = i8;
pub(super) const OK: Status = 0;
pub(super) const INPROGRESS: Status = 1;
pub(super) const ERR_INVALID_PARAM: Status = -5;
pub(super) const ERR_BUSY: Status = -15;

/// `UCS_ERR_LAST`: a returned pointer from this value up is a status.
const ERR_LAST: isize = -100;

/// `ucp_context_h` and the like: pointers to structures that only UCX knows.
pub(super) type Handle = *mut c_void;

/// The result of a function that may end at once, fail, or go on (`ucs_status_ptr_t`).
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Started {
    /// The call is done or has failed, and its callback will not be called.
    Ended(Status),
    /// The callback will be called.
    UnderWay(Handle),
}

/// Interprets such a result.
pub(super) fn started(pointer: Handle) -> Started {
    let value = pointer.addr().cast_signed();
    match value {
        0 => Started::Ended(OK),
        ERR_LAST..0 => Started::Ended(value as Status),
        _ => Started::UnderWay(pointer),
    }
}

/// `ucp_params_t`.
#[repr(C)]
pub(super) struct Params {
    pub(super) field_mask: u64,
    pub(super) features: u64,
    pub(super) request_size: usize,
    pub(super) request_init: *const c_void,
    pub(super) request_cleanup: *const c_void,
    pub(super) tag_sender_mask: u64,
    pub(super) mt_workers_shared: c_int,
    pub(super) estimated_num_eps: usize,
    pub(super) estimated_num_ppn: usize,
    pub(super) name: *const c_char,
}
pub(super) const PARAM_FEATURES: u64 = 1 << 0;
pub(super) const PARAM_ESTIMATED_NUM_EPS: u64 = 1 << 6;
pub(super) const FEATURE_RMA: u64 = 1 << 1;
pub(super) const FEATURE_WAKEUP: u64 = 1 << 4;
pub(super) const FEATURE_AM: u64 = 1 << 6;

/// `ucp_worker_params_t`.
#[repr(C)]
pub(super) struct WorkerParams {
    pub(super) field_mask: u64,
    pub(super) thread_mode: c_int,
    pub(super) cpu_mask: [u64; 16],
    pub(super) events: c_uint,
    pub(super) user_data: *mut c_void,
    pub(super) event_fd: c_int,
    pub(super) flags: u64,
    pub(super) name: *const c_char,
    pub(super) am_alignment: usize,
    pub(super) client_id: u64,
}
pub(super) const WORKER_THREAD_MODE: u64 = 1 << 0;
/// The worker is used by any thread, one at a time.
pub(super) const THREAD_MODE_SERIALIZED: c_int = 1;

/// `ucp_err_handler_t`.
#[repr(C)]
pub(super) struct ErrHandler {
    pub(super) cb: Option<unsafe extern "C" fn(arg: *mut c_void, ep: Handle, status: Status)>,
    pub(super) arg: *mut c_void,
}

/// `ucs_sock_addr_t`.
#[repr(C)]
pub(super) struct SockAddr {
    pub(super) address: *const c_void,
    pub(super) length: u32,
}

/// `ucp_ep_params_t`.
#[repr(C)]
pub(super) struct EpParams {
    pub(super) field_mask: u64,
    pub(super) address: *const u8,
    pub(super) err_mode: c_int,
    pub(super) err_handler: ErrHandler,
    pub(super) user_data: *mut c_void,
    pub(super) flags: c_uint,
    pub(super) sockaddr: SockAddr,
    pub(super) conn_request: *mut c_void,
    pub(super) name: *const c_char,
    pub(super) local_sockaddr: SockAddr,
}
pub(super) const EP_REMOTE_ADDRESS: u64 = 1 << 0;
pub(super) const EP_ERR_HANDLING_MODE: u64 = 1 << 1;
pub(super) const EP_ERR_HANDLER: u64 = 1 << 2;
pub(super) const ERR_HANDLING_PEER: c_int = 1;
/// The flag of `ep_close_nbx` to close at once; all operations under way end with an error.
pub(super) const EP_CLOSE_FORCE: u32 = 1 << 0;

/// `ucp_mem_map_params_t`.
#[repr(C)]
pub(super) struct MemMapParams {
    pub(super) field_mask: u64,
    pub(super) address: *mut c_void,
    pub(super) length: usize,
    pub(super) flags: c_uint,
    pub(super) prot: c_uint,
    pub(super) memory_type: c_int,
}
pub(super) const MEM_MAP_ADDRESS: u64 = 1 << 0;
pub(super) const MEM_MAP_LENGTH: u64 = 1 << 1;

/// `ucp_request_param_t`. All its unions are pointers.
#[repr(C)]
pub(super) struct RequestParam {
    pub(super) op_attr_mask: u32,
    pub(super) flags: u32,
    pub(super) request: *mut c_void,
    pub(super) callback: *const c_void,
    pub(super) datatype: u64,
    pub(super) user_data: *mut c_void,
    pub(super) reply_buffer: *mut c_void,
    pub(super) memory_type: c_int,
    pub(super) recv_info: *mut c_void,
    pub(super) memh: *mut c_void,
}
pub(super) const OP_CALLBACK: u32 = 1 << 1;
pub(super) const OP_USER_DATA: u32 = 1 << 2;
pub(super) const OP_FLAGS: u32 = 1 << 4;
pub(super) const OP_FORCE_IMMEDIATE: u32 = 1 << 18;

/// `ucp_send_nbx_callback_t`.
pub(super) type SendCallback = unsafe extern "C" fn(request: Handle, status: Status, user_data: *mut c_void);
/// `ucp_am_recv_data_nbx_callback_t`.
pub(super) type ReceiveCallback =
    unsafe extern "C" fn(request: Handle, status: Status, length: usize, user_data: *mut c_void);
/// `ucp_am_recv_callback_t`.
pub(super) type AmCallback = unsafe extern "C" fn(
    arg: *mut c_void,
    header: *const u8,
    header_length: usize,
    data: *mut c_void,
    length: usize,
    param: *const AmRecvParam,
) -> Status;

/// `ucp_am_handler_param_t`.
#[repr(C)]
pub(super) struct AmHandlerParam {
    pub(super) field_mask: u64,
    pub(super) id: c_uint,
    pub(super) flags: u32,
    pub(super) cb: Option<AmCallback>,
    pub(super) arg: *mut c_void,
}
pub(super) const AM_HANDLER_ID: u64 = 1 << 0;
pub(super) const AM_HANDLER_FLAGS: u64 = 1 << 1;
pub(super) const AM_HANDLER_CB: u64 = 1 << 2;
pub(super) const AM_HANDLER_ARG: u64 = 1 << 3;
/// The flag that messages are passed to the handler whole.
pub(super) const AM_WHOLE_MESSAGE: u32 = 1 << 0;
/// The flag that the data goes with the message, without rendezvous.
pub(super) const AM_SEND_EAGER: u32 = 1 << 1;

/// `ucp_am_recv_param_t`.
#[repr(C)]
pub(super) struct AmRecvParam {
    pub(super) recv_attr: u64,
    pub(super) reply_ep: Handle,
}
/// The flag that the data has not come and is to be fetched.
pub(super) const AM_RECV_RENDEZVOUS: u64 = 1 << 17;

/// The version of the interface that this file was written after, for `ucp_init_version`.
pub(super) const API: (c_uint, c_uint) = (1, 10);

macro_rules! functions {
    ($($name:ident = $symbol:literal : fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// UCX's functions.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Looks all functions up; the error names the first that is missing.
            ///
            /// # Safety
            ///
            /// `library` must be UCX's, of major version 1, and never be closed.
            pub(super) unsafe fn load(library: &libloading::Library) -> Result<Functions, &'static str> {
                Ok(Functions {
                    $($name: {
                        // SAFETY: the caller's promise; the types are those of UCX's header.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>($symbol)
                        };
                        *symbol.map_err(|_| stringify!($name))?
                    },)*
                })
            }
        }
    };
}

functions! {
    status_string = b"ucs_status_string\0": fn(Status) -> *const c_char;
    config_read = b"ucp_config_read\0": fn(*const c_char, *const c_char, *mut Handle) -> Status;
    config_modify = b"ucp_config_modify\0": fn(Handle, *const c_char, *const c_char) -> Status;
    config_release = b"ucp_config_release\0": fn(Handle);
    init_version = b"ucp_init_version\0":
        fn(c_uint, c_uint, *const Params, Handle, *mut Handle) -> Status;
    cleanup = b"ucp_cleanup\0": fn(Handle);
    worker_create = b"ucp_worker_create\0": fn(Handle, *const WorkerParams, *mut Handle) -> Status;
    worker_destroy = b"ucp_worker_destroy\0": fn(Handle);
    worker_get_address = b"ucp_worker_get_address\0": fn(Handle, *mut *mut u8, *mut usize) -> Status;
    worker_release_address = b"ucp_worker_release_address\0": fn(Handle, *mut u8);
    worker_get_efd = b"ucp_worker_get_efd\0": fn(Handle, *mut c_int) -> Status;
    worker_arm = b"ucp_worker_arm\0": fn(Handle) -> Status;
    worker_progress = b"ucp_worker_progress\0": fn(Handle) -> c_uint;
    worker_set_am_recv_handler = b"ucp_worker_set_am_recv_handler\0":
        fn(Handle, *const AmHandlerParam) -> Status;
    ep_create = b"ucp_ep_create\0": fn(Handle, *const EpParams, *mut Handle) -> Status;
    ep_close_nbx = b"ucp_ep_close_nbx\0": fn(Handle, *const RequestParam) -> Handle;
    ep_flush_nbx = b"ucp_ep_flush_nbx\0": fn(Handle, *const RequestParam) -> Handle;
    am_send_nbx = b"ucp_am_send_nbx\0":
        fn(Handle, c_uint, *const c_void, usize, *const c_void, usize, *const RequestParam) -> Handle;
    am_recv_data_nbx = b"ucp_am_recv_data_nbx\0":
        fn(Handle, *mut c_void, *mut c_void, usize, *const RequestParam) -> Handle;
    am_data_release = b"ucp_am_data_release\0": fn(Handle, *mut c_void);
    mem_map = b"ucp_mem_map\0": fn(Handle, *const MemMapParams, *mut Handle) -> Status;
    mem_unmap = b"ucp_mem_unmap\0": fn(Handle, Handle) -> Status;
    rkey_pack = b"ucp_rkey_pack\0": fn(Handle, Handle, *mut *mut u8, *mut usize) -> Status;
    rkey_buffer_release = b"ucp_rkey_buffer_release\0": fn(*mut u8);
    ep_rkey_unpack = b"ucp_ep_rkey_unpack\0": fn(Handle, *const u8, *mut Handle) -> Status;
    rkey_destroy = b"ucp_rkey_destroy\0": fn(Handle);
    put_nbx = b"ucp_put_nbx\0":
        fn(Handle, *const c_void, usize, u64, Handle, *const RequestParam) -> Handle;
    get_nbx = b"ucp_get_nbx\0": fn(Handle, *mut c_void, usize, u64, Handle, *const RequestParam) -> Handle;
    request_free = b"ucp_request_free\0": fn(Handle);
}

impl RequestParam {
    /// Parameters that set nothing.
    pub(super) fn none() -> RequestParam {
        let none = std::ptr::null_mut();
        RequestParam {
            op_attr_mask: 0,
            flags: 0,
            request: none,
            callback: none,
            datatype: 0,
            user_data: none,
            reply_buffer: none,
            memory_type: 0,
            recv_info: none,
            memh: none,
        }
    }
}
