//! Contexts of threads (`getcontext`, `setcontext`, `swapcontext`), from which coroutines are made: they may lie in paged memory.
//!
//! libc has the kernel read and write the signal masks in them. These calls return more than once, or never, so that nothing can be held
//! near meanwhile: a context's pages are brought near just before libc's function is called.

use super::paged;
use crate::arch;

const BYTES: usize = size_of::<libc::ucontext_t>();

extern "C" fn bring_one(context: usize) {
    drop(paged::hold(context, BYTES, true));
}

extern "C" fn bring_both(from: usize, to: usize) {
    bring_one(from);
    bring_one(to);
}

macro_rules! contexts {
    ($($name:ident $real:ident $bring:ident;)*) => {$(
        /// The address of libc's function.
        extern "C" fn $real() -> usize {
            real!(stringify!($name), unsafe extern "C" fn()) as usize
        }

        /// The function of this name in libc, which is jumped to.
        ///
        /// # Safety
        /// The same as for libc's function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C" fn $name() {
            arch::call_then_jump!($bring, $real)
        }
    )*};
}

contexts! {
    getcontext real_getcontext bring_one;
    setcontext real_setcontext bring_one;
    swapcontext real_swapcontext bring_both;
}
