//! The formats of the files a run leaves, and their readers.
//!
//! Written by `atoll run`, read by the reporting commands.
