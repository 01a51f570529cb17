//! A plugin for QEMU's user mode that tells `atoll trace` which pages each guest thread touches.
//!
//! QEMU calls it at every block of code and every access. New accesses leave through a pipe ([`atoll_trace_wire`]). Marks come
//! from code inside the guest (`atoll-trace-hooks`), by a system call that no kernel has. Arguments: `pipe=DESCRIPTOR`,
//! `filter=SLOTS` (0: none).

mod access;
mod api;
mod maps;
mod threads;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use api::{Block, Id, Info, MemInfo};
use atoll_trace_wire::{MARK_CALL, Stream};
use threads::Thread;

pub(crate) const PAGE_SHIFT: u32 = 12;

/// The version of the interface that this plugin uses.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU looks for this name")]
pub static qemu_plugin_version: c_int = api::VERSION;

static PIPE: AtomicI32 = AtomicI32::new(-1);
static FILTER: AtomicU32 = AtomicU32::new(0);

/// The function that QEMU calls when it loads the plugin. Returns 0 if the plugin can work.
///
/// # Safety
/// QEMU must pass a valid `info`, and `count` C strings behind `arguments`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    if unsafe { (*info).system_emulation } {
        eprintln!("atoll: the plugin traces programs, not machines: use qemu-x86_64");
        return 1;
    }
    for index in 0..count as usize {
        // SAFETY: as the caller says.
        let argument = unsafe { CStr::from_ptr(*arguments.add(index)) }.to_string_lossy();
        match argument.split_once('=').map(|(name, value)| (name, value.parse::<u32>())) {
            Some(("pipe", Ok(pipe))) => PIPE.store(pipe as i32, Ordering::Relaxed),
            Some(("filter", Ok(slots))) => FILTER.store(slots, Ordering::Relaxed),
            _ => {
                eprintln!("atoll: the plugin knows no argument `{argument}`: it takes pipe=N and filter=N");
                return 1;
            }
        }
    }
    let pipe = PIPE.load(Ordering::Relaxed);
    // Programs that the guest executes afterwards are not traced, and must not hold the pipe open.
    // SAFETY: no pointers.
    if pipe < 0 || unsafe { libc::fcntl(pipe, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        eprintln!("atoll: the plugin has no pipe: it is loaded by `atoll trace`");
        return 1;
    }
    // SAFETY: the functions have the types that QEMU calls them by.
    unsafe {
        api::qemu_plugin_register_vcpu_init_cb(id, thread_begins);
        api::qemu_plugin_register_vcpu_exit_cb(id, thread_ends);
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        api::qemu_plugin_register_vcpu_syscall_cb(id, call);
        api::qemu_plugin_register_vcpu_syscall_ret_cb(id, called);
        api::qemu_plugin_register_atexit_cb(id, end, std::ptr::null_mut());
    }
    0
}

extern "C" fn thread_begins(_: Id, thread: c_uint) {
    let (pipe, filter) = (PIPE.load(Ordering::Relaxed), FILTER.load(Ordering::Relaxed));
    threads::enter(thread, || Stream::new(thread, pipe, filter));
}

extern "C" fn thread_ends(_: Id, thread: c_uint) {
    // SAFETY: called by the thread.
    if let Some(thread) = unsafe { threads::get(thread) } {
        thread.stream.flush();
    }
}

/// Registers callbacks that count the block's instructions and report all of its accesses.
extern "C" fn translated(_: Id, block: *mut Block) {
    // SAFETY: the block is QEMU's, the indices are below its count, and the functions have the types it calls.
    unsafe {
        let count = api::qemu_plugin_tb_n_insns(block);
        let data = std::ptr::without_provenance_mut(count);
        api::qemu_plugin_register_vcpu_tb_exec_cb(block, executed, api::NO_REGISTERS, data);
        for index in 0..count {
            let instruction = api::qemu_plugin_tb_get_insn(block, index);
            api::qemu_plugin_register_vcpu_mem_cb(
                instruction,
                accessed,
                api::NO_REGISTERS,
                api::READS_AND_WRITES,
                std::ptr::null_mut(),
            );
        }
    }
}

extern "C" fn executed(thread: c_uint, instructions: *mut c_void) {
    // SAFETY: called by the thread.
    if let Some(thread) = unsafe { threads::get(thread) } {
        thread.stream.execute(instructions.addr() as u64);
    }
}

/// Handles an access. Most accesses are to a page just seen and end here, without any call on that path.
extern "C" fn accessed(number: c_uint, info: MemInfo, address: u64, _: *mut c_void) {
    // SAFETY: called by the thread.
    let Some(thread) = (unsafe { threads::get(number) }) else { return };
    let access = access::known(info);
    if access.is_plain(address) {
        if !thread.stream.is_known(address >> PAGE_SHIFT, access.writes()) {
            thread.stream.tell(address >> PAGE_SHIFT, access.writes());
        }
    } else {
        accessed_oddly(thread, info, address);
    }
}

/// Handles an access of a kind not met before, or to two pages.
#[cold]
#[inline(never)]
fn accessed_oddly(thread: &mut Thread, info: MemInfo, address: u64) {
    let access = access::learn(info);
    thread.stream.access(address >> PAGE_SHIFT, access.writes());
    if !access.is_plain(address) {
        thread.stream.access((address >> PAGE_SHIFT) + 1, access.writes());
    }
}

#[allow(clippy::too_many_arguments, reason = "QEMU's type")]
extern "C" fn call(
    _: Id,
    thread: c_uint,
    number: i64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
) {
    // SAFETY: called by the thread.
    let Some(thread) = (unsafe { threads::get(thread) }) else { return };
    if number == MARK_CALL {
        thread.stream.mark(a, b);
    } else if maps::is_one(number) {
        thread.arguments = [a, b, c, d];
    }
}

extern "C" fn called(_: Id, thread: c_uint, number: i64, result: i64) {
    // SAFETY: called by the thread.
    if let Some(thread) = unsafe { threads::get(thread) }
        && maps::is_one(number)
    {
        let arguments = thread.arguments;
        maps::returned(&mut thread.stream, number, &arguments, result);
    }
}

extern "C" fn end(_: Id, _: *mut c_void) {
    // SAFETY: QEMU has stopped calling back for any thread.
    unsafe { threads::each(|thread| thread.stream.flush()) };
}
