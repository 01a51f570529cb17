//! `atoll segment`: runs programs on segmentation cores (`cores.rs`), which only x86-64 machines have.

#[cfg(target_arch = "x86_64")]
mod cores;

#[cfg(target_arch = "x86_64")]
pub(crate) use cores::segment;

/// Says that this machine has no such cores.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn segment(_: &crate::cli::Segment) -> std::process::ExitCode {
    eprintln!("atoll: segmentation cores need an x86-64 machine");
    std::process::ExitCode::from(atoll_memory::control::EXIT_SETUP as u8)
}
