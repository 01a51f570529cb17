//! Binds the calls that one of atoll's libraries makes to the libraries it was linked against.
//!
//! The dynamic linker gives a program's function named `read` to every library that calls `read`, including atoll's (DESIGN,
//! trap 25). A library that is loaded into programs contains [`bind_own_calls!`] once. Before any other code of the library
//! runs, each of its references to a function by name is looked up again in the library itself and in those that it needs, and
//! nowhere else.
//!
//! Rules: nothing here calls a function outside this crate, not even `memcpy`, since every such call could reach the program's.
//! The crate is compiled without calls that the compiler adds (`no_builtins`); nothing here panics or allocates.

#![no_std]
#![no_builtins]

mod arch;
mod elf;
mod object;

use core::ffi::{c_char, c_int};

use object::{Chain, Object, Symbol, Target};

/// Makes the library that contains it bind its calls before any other code of the library runs.
#[macro_export]
macro_rules! bind_own_calls {
    () => {
        // The linker puts numbered constructors before all others; numbers up to 100 are reserved for the implementation.
        #[used]
        #[unsafe(link_section = ".init_array.00000")]
        static BIND_OWN_CALLS: $crate::Constructor = $crate::constructor;
    };
}

/// A function that the dynamic linker calls with the program's arguments and environment.
pub type Constructor = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char);

/// Binds the calls of the library that this is linked into.
///
/// # Safety
/// Called by the dynamic linker, with the process's environment as the kernel laid it out, before a second thread exists.
pub unsafe extern "C" fn constructor(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: the caller's promise.
    let Some(chain) = (unsafe { Chain::of_process(environment) }) else { return };
    let Some(own) = chain.object_with_dynamic(arch::own_dynamic()) else { return };
    rebind(&chain, &own);
    // The unwinder comes with this library and calls libc.
    for needed in own.needed() {
        if let Some(unwinder) = chain.find(needed).filter(|_| elf::starts_with(needed, b"libgcc_s.")) {
            rebind(&chain, &unwinder);
        }
    }
}

/// Looks up every function that `own` refers to by name, in `own` itself and in the libraries that it needs.
fn rebind(chain: &Chain, own: &Object) {
    let relro = own.read_only_after_relocation();
    if !relro.is_none_or(|range| elf::protect(range, true)) {
        return;
    }
    for relocation in own.relocations() {
        let function = match own.target(relocation) {
            Target::Own(function) => Some(function),
            Target::Other(symbol) => look_up(chain, own, &symbol),
            Target::None => None,
        };
        if let Some(function) = function {
            // SAFETY: a relocated word of the library, writable until it is protected again below.
            unsafe { own.address(relocation.offset).cast::<usize>().write_volatile(function) };
        }
    }
    if let Some(range) = relro {
        elf::protect(range, false);
    }
}

/// The address of the function that `symbol` names in one of the libraries that `own` needs; `None` if it is data (which the
/// program may rightly own, by copy relocation) or is in none of them.
fn look_up(chain: &Chain, own: &Object, symbol: &Symbol) -> Option<usize> {
    own.needed().find_map(|needed| chain.find(needed)?.function(symbol))
}
