//! `libatoll_profile.so`: the library that `atoll profile` loads into a program that runs as it is.
//!
//! It stands in front of the malloc family and `mmap` (`blocks`) and of the regions of libgomp (`regions`) and libomp
//! (`kmp_regions`). It tells the profiler of large blocks and of regions through the journal (`atoll-profile-wire`). Otherwise
//! the program runs as without it. Loaded without `atoll profile` the library does nothing.

mod blocks;
mod kmp_regions;
mod regions;
mod start;

atoll_binding::bind_own_calls!();
