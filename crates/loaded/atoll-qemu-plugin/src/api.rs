//! QEMU's plugin interface, version 1, as far as it is used here.
//!
//! The declarations were written by hand from the interface's description, as Debian's qemu-user does not come with the header.
//! The callers are in the crate's root.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The interface's version that these declarations are of.
pub(crate) const VERSION: c_int = 1;

/// A plugin as QEMU knows it.
pub(crate) type Id = u64;
/// QEMU's description of one access.
pub(crate) type MemInfo = u32;

/// A block of guest code being translated.
#[repr(C)]
pub(crate) struct Block {
    opaque: [u8; 0],
}

/// An instruction of a block.
#[repr(C)]
pub(crate) struct Instruction {
    opaque: [u8; 0],
}

/// QEMU's description of itself.
#[repr(C)]
pub struct Info {
    /// The guest's architecture.
    target_name: *const c_char,
    /// The oldest interface version that QEMU takes, and its own.
    versions: [c_int; 2],
    /// Whether QEMU emulates a whole machine, not one program.
    pub(crate) system_emulation: bool,
    /// The number of the machine's CPUs.
    cpus: [c_int; 2],
}

/// Callbacks read no registers.
pub(crate) const NO_REGISTERS: c_int = 0;
/// The flag for reads and writes alike: in QEMU 7.2 callbacks for only one of them miss some.
pub(crate) const READS_AND_WRITES: c_int = 3;

pub(crate) type OnThread = extern "C" fn(Id, c_uint);
pub(crate) type OnTranslation = extern "C" fn(Id, *mut Block);
pub(crate) type OnBlock = extern "C" fn(c_uint, *mut c_void);
pub(crate) type OnAccess = extern "C" fn(c_uint, MemInfo, u64, *mut c_void);
pub(crate) type OnCall = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub(crate) type OnReturn = extern "C" fn(Id, c_uint, i64, i64);
pub(crate) type OnEnd = extern "C" fn(Id, *mut c_void);

unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_init_cb(id: Id, call: OnThread);
    pub(crate) fn qemu_plugin_register_vcpu_exit_cb(id: Id, call: OnThread);
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, call: OnTranslation);
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        call: OnBlock,
        flags: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        call: OnAccess,
        flags: c_int,
        kinds: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_syscall_cb(id: Id, call: OnCall);
    pub(crate) fn qemu_plugin_register_vcpu_syscall_ret_cb(id: Id, call: OnReturn);
    pub(crate) fn qemu_plugin_register_atexit_cb(id: Id, call: OnEnd, data: *mut c_void);
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub(crate) fn qemu_plugin_mem_size_shift(info: MemInfo) -> c_uint;
    pub(crate) fn qemu_plugin_mem_is_store(info: MemInfo) -> bool;
}
