//! A test that the structs of `sys.rs` are laid out as in UCX's headers, where a C compiler and the headers are installed.

use std::io::Write as _;
use std::mem::{offset_of, size_of};
use std::process::{Command, Stdio};

use super::sys::*;

/// C expressions, each with the value that it must have.
fn expected() -> Vec<(String, usize)> {
    let mut list = Vec::new();
    macro_rules! layout {
        ($ours:ident = $theirs:literal: $($field:ident $(as $name:literal)?),*) => {
            list.push((format!("sizeof({})", $theirs), size_of::<$ours>()));
            $(
                #[allow(unused_mut, unused_assignments, reason = "where the name is given")]
                let mut name = stringify!($field);
                $(name = $name;)?
                list.push((format!("offsetof({}, {name})", $theirs), offset_of!($ours, $field)));
            )*
        };
    }
    layout!(Params = "ucp_params_t": field_mask, features, request_size, request_init, request_cleanup,
        tag_sender_mask, mt_workers_shared, estimated_num_eps, estimated_num_ppn, name);
    layout!(WorkerParams = "ucp_worker_params_t": field_mask, thread_mode, cpu_mask, events, user_data, event_fd,
        flags, name, am_alignment, client_id);
    layout!(EpParams = "ucp_ep_params_t": field_mask, address, err_mode, err_handler, user_data, flags, sockaddr,
        conn_request, name, local_sockaddr);
    layout!(ErrHandler = "ucp_err_handler_t": cb, arg);
    layout!(SockAddr = "ucs_sock_addr_t": address as "addr", length as "addrlen");
    layout!(MemMapParams = "ucp_mem_map_params_t": field_mask, address, length, flags, prot, memory_type);
    layout!(RequestParam = "ucp_request_param_t": op_attr_mask, flags, request, callback as "cb", datatype, user_data,
        reply_buffer, memory_type, recv_info, memh);
    layout!(AmHandlerParam = "ucp_am_handler_param_t": field_mask, id, flags, cb, arg);
    layout!(AmRecvParam = "ucp_am_recv_param_t": recv_attr, reply_ep);
    let mut constant = |name: &str, value: u64| list.push((name.to_owned(), value as usize));
    constant("UCP_PARAM_FIELD_FEATURES", PARAM_FEATURES);
    constant("UCP_PARAM_FIELD_ESTIMATED_NUM_EPS", PARAM_ESTIMATED_NUM_EPS);
    constant("UCP_FEATURE_RMA", FEATURE_RMA);
    constant("UCP_FEATURE_WAKEUP", FEATURE_WAKEUP);
    constant("UCP_FEATURE_AM", FEATURE_AM);
    constant("UCP_WORKER_PARAM_FIELD_THREAD_MODE", WORKER_THREAD_MODE);
    constant("UCS_THREAD_MODE_SERIALIZED", THREAD_MODE_SERIALIZED as u64);
    constant("UCP_EP_PARAM_FIELD_REMOTE_ADDRESS", EP_REMOTE_ADDRESS);
    constant("UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE", EP_ERR_HANDLING_MODE);
    constant("UCP_EP_PARAM_FIELD_ERR_HANDLER", EP_ERR_HANDLER);
    constant("UCP_ERR_HANDLING_MODE_PEER", ERR_HANDLING_PEER as u64);
    constant("UCP_EP_CLOSE_FLAG_FORCE", EP_CLOSE_FORCE.into());
    constant("UCP_MEM_MAP_PARAM_FIELD_ADDRESS", MEM_MAP_ADDRESS);
    constant("UCP_MEM_MAP_PARAM_FIELD_LENGTH", MEM_MAP_LENGTH);
    constant("UCP_OP_ATTR_FIELD_CALLBACK", OP_CALLBACK.into());
    constant("UCP_OP_ATTR_FIELD_USER_DATA", OP_USER_DATA.into());
    constant("UCP_OP_ATTR_FIELD_FLAGS", OP_FLAGS.into());
    constant("UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL", OP_FORCE_IMMEDIATE.into());
    constant("UCP_AM_HANDLER_PARAM_FIELD_ID", AM_HANDLER_ID);
    constant("UCP_AM_HANDLER_PARAM_FIELD_FLAGS", AM_HANDLER_FLAGS);
    constant("UCP_AM_HANDLER_PARAM_FIELD_CB", AM_HANDLER_CB);
    constant("UCP_AM_HANDLER_PARAM_FIELD_ARG", AM_HANDLER_ARG);
    constant("UCP_AM_FLAG_WHOLE_MSG", AM_WHOLE_MESSAGE.into());
    constant("UCP_AM_SEND_FLAG_EAGER", AM_SEND_EAGER.into());
    constant("UCP_AM_RECV_ATTR_FLAG_RNDV", AM_RECV_RENDEZVOUS);
    constant("UCS_INPROGRESS", INPROGRESS as u64);
    constant("-UCS_ERR_INVALID_PARAM", -i64::from(ERR_INVALID_PARAM) as u64);
    constant("-UCS_ERR_BUSY", -i64::from(ERR_BUSY) as u64);
    constant("sizeof(ucs_status_t)", size_of::<Status>() as u64);
    constant("sizeof(void*)", size_of::<Handle>() as u64);
    list
}

#[test]
fn structs_are_laid_out_as_in_the_headers() {
    let mut program = String::from("#include <stddef.h>\n#include <ucp/api/ucp.h>\n");
    for (what, value) in expected() {
        program += &format!("_Static_assert({what} == {value}, \"{what} is not {value}\");\n");
    }
    let compile = |program: &str| {
        let mut compiler = Command::new("cc")
            .args(["-xc", "-std=gnu11", "-fsyntax-only", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        compiler.stdin.take()?.write_all(program.as_bytes()).ok()?;
        compiler.wait_with_output().ok()
    };
    match compile("#include <ucp/api/ucp.h>\n") {
        None => atoll_skips::skip!("there is no C compiler: apt-get install gcc"),
        Some(output) if !output.status.success() => {
            atoll_skips::skip!("UCX's headers are not there: apt-get install libucx-dev");
        }
        Some(_) => {}
    }
    let output = compile(&program).expect("it compiled before");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_a_call_returns_is_told_apart() {
    assert_eq!(started(std::ptr::null_mut()), Started::Ended(OK));
    let status = |status: isize| std::ptr::without_provenance_mut(status.cast_unsigned());
    assert_eq!(started(status(-2)), Started::Ended(-2));
    assert_eq!(started(status(-100)), Started::Ended(-100));
    assert_eq!(started(status(4096)), Started::UnderWay(status(4096)));
}
