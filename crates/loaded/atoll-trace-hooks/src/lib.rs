//! `libatoll_hooks.so`: the library that `atoll trace` loads into the program.
//!
//! It stands in front of libgomp's regions and barriers (`regions`, `barriers`) and libomp's (`kmp`) and makes a mark at each.
//! Under QEMU a mark is a system call that the plugin (`atoll-qemu-plugin`) sees. In a program recompiled with `gcc
//! -fsanitize=thread` and linked against this library, the compiler's calls at each access end in `accesses` and `atomics`, and
//! `record` writes everything to the collector. Loaded without `atoll trace` the library does nothing.

mod accesses;
mod atomics;
mod barriers;
mod kmp;
mod mark;
mod modules;
mod record;
mod regions;
mod start;

atoll_binding::bind_own_calls!();
