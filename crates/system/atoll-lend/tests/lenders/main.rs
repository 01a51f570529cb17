//! Lenders, their borrowers, and peers that mean harm, over sockets of this machine.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod behind_memory;
mod directory;
mod hostile;
mod liars;
mod loss;
mod moving;
mod orders;
mod packed;
mod pages;
mod raw;
