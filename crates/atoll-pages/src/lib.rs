//! Page replacement policies and prefetch plans: pure code, no clock, no thread, no system call.
//!
//! Driven by `atoll-memory` with real faults and by the simulator with traces.
