//! Ranks of MPI programs: settings that keep their libraries from bypassing the runtime, and the number of ranks on this host.
//!
//! `launch` calls it. Each rank is a run of its own. Copies by `process_vm_readv` and `process_vm_writev` work between ranks,
//! as the runtime serves them (`atoll-openmp/src/wrap/other_processes.rs`). Kernel modules that map another process's memory
//! are not served.

use std::path::Path;
use std::process::Command;

/// Variables that the starters of MPI programs set: Open MPI's, MPICH's and Intel's, PMIx's, MVAPICH's.
const RANKS: [&str; 5] =
    ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK"];

/// Variables with the number of ranks on this host, by the same starters and by Slurm.
const LOCAL_RANKS: [&str; 4] =
    ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"];

/// The setting that switches off UCX's hooks of mmap and its family. UCX writes them over the functions' first instructions,
/// which the runtime forbids.
const HOOKS: (&str, &str) = ("UCX_MEM_MMAP_HOOK_MODE", "none");

/// Settings that keep libraries from XPMEM and KNEM: those of Open MPI before version 5 and since, of MPICH, and of UCX.
const NO_MODULES: [(&str, &str); 4] = [
    ("OMPI_MCA_btl_vader_single_copy_mechanism", "cma"),
    ("OMPI_MCA_smsc", "^xpmem,knem"),
    ("MPIR_CVAR_CH4_XPMEM_ENABLE", "0"),
    ("UCX_TLS", "^xpmem,knem"),
];

/// Whether this process was started as a rank of an MPI program.
fn is_rank() -> bool {
    RANKS.iter().any(|name| std::env::var_os(name).is_some())
}

/// Returns the number of ranks on this host, this one included; 1 if nothing says so.
pub(crate) fn ranks_here() -> u64 {
    let number = |name: &&str| std::env::var(name).ok()?.parse().ok();
    LOCAL_RANKS.iter().find_map(number).unwrap_or(1).max(1)
}

/// Adds the settings to the environment of `command`; what the user has set stays. `mpi` says that the program is linked with
/// MPI.
pub(super) fn set(command: &mut Command, mpi: bool) {
    if !mpi && !is_rank() {
        return;
    }
    let modules = ["/dev/xpmem", "/dev/knem"].iter().any(|device| Path::new(device).exists());
    let settings = std::iter::once(HOOKS).chain(NO_MODULES.into_iter().filter(|_| modules));
    for (name, value) in settings.filter(|(name, _)| std::env::var_os(name).is_none()) {
        command.env(name, value);
    }
}
