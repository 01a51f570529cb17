//! `libatoll_profile.so`: what `atoll profile` has inside a program that runs as it is.
//!
//! It stands in front of the malloc family and `mmap` (`blocks`) and of the regions of libgomp (`regions`) and libomp (`kmp_regions`), and tells the profiler of
//! large blocks and of regions through the journal (`atoll-profile-wire`). Everything else goes on as without it. Loaded without
//! `atoll profile` it does nothing.

mod blocks;
mod kmp_regions;
mod regions;
mod start;

atoll_binding::bind_own_calls!();
