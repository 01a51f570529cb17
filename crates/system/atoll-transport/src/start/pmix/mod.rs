//! Start-up where a job's starter speaks PMIx: `mpirun` of Open MPI, `prterun`, `srun --mpi=pmix`.
//!
//! The parent module calls it. An exchange is a value put under a new key, and a fence that collects all values. PMIx keeps the
//! values until the job ends, so exchanges are meant for the few bytes of the start.
//!
//! Source: the PMIx standard 4.1, chapters 3, 5 and 6.

mod error;
mod library;
mod sys;

use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};

use self::library::Library;
use self::sys::{Proc, RANK_WILDCARD};
use super::LONGEST;
use super::error::StartError;
use crate::clock::Deadline;

pub use self::error::PmixError;

/// The variable that says that a starter with PMIx started this process, and names the job.
const NAMESPACE: &str = "PMIX_NAMESPACE";
const RANK: &str = "PMIX_RANK";

/// Variables of other starters, each with the starter to use instead.
const OTHERS: [(&str, &str); 2] =
    [("SLURM_STEP_NUM_TASKS", "srun --mpi=pmix"), ("PMI_SIZE", "mpirun of Open MPI, or prterun")];

/// The number of the next key. Keys are never used twice in a process: the second value could not be told from the first.
static ROUND: AtomicU32 = AtomicU32::new(0);

/// Whether the environment names a job of a starter with PMIx, or of a starter that cannot be asked.
pub(super) fn is_expected() -> bool {
    [NAMESPACE]
        .into_iter()
        .chain(OTHERS.map(|(variable, _)| variable))
        .any(|name| std::env::var_os(name).is_some())
}

/// This process's place in a job.
pub(super) struct Pmix {
    library: &'static Library,
    this: Proc,
    nodes: u32,
    finished: bool,
}

impl Pmix {
    /// Joins the job that the environment names; `None` if it names none.
    pub(super) fn join() -> Result<Option<Pmix>, StartError> {
        let text = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let (Some(namespace), Some(rank)) = (text(NAMESPACE), text(RANK)) else { return no_other(text) };
        let library = Library::load()?;
        let this = library.init()?;
        // From here on, finished in any case.
        let mut pmix = Pmix { library, this, nodes: 0, finished: false };
        // To PMIx a process without a server is a job of its own: each of the job's processes would be alone.
        if this.name() != namespace.as_bytes() || this.rank.to_string() != rank {
            let namespace = String::from_utf8_lossy(&this.name()).into_owned();
            return Err(PmixError::Other { namespace, rank: this.rank }.into());
        }
        pmix.nodes = library.job_size(&pmix.rank(RANK_WILDCARD))?;
        if this.rank >= pmix.nodes {
            return Err(PmixError::Value.into());
        }
        Ok(Some(pmix))
    }

    pub(super) fn node(&self) -> u32 {
        self.this.rank
    }

    pub(super) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Gives `mine`, and waits for the bytes that all nodes gave.
    pub(super) fn exchange(
        &mut self,
        mine: &[u8],
        deadline: &mut Deadline,
    ) -> Result<Vec<Vec<u8>>, StartError> {
        let round = ROUND.fetch_add(1, Ordering::Relaxed);
        let key = CString::new(format!("atoll.start.{round}")).map_err(|_| PmixError::Value)?;
        // Never empty, since not all versions carry empty values.
        self.library.put(&key, &[&[0], mine].concat())?;
        self.library.fence(&self.rank(RANK_WILDCARD), deadline)?;
        let given = |node| {
            let mut bytes = self.library.bytes(&self.rank(node), &key, LONGEST + 1)?;
            if bytes.is_empty() { Err(PmixError::Value) } else { Ok(bytes.split_off(1)) }
        };
        Ok((0..self.nodes).map(given).collect::<Result<_, _>>()?)
    }

    /// Leaves the job; a process that ends without this is taken for one that failed.
    pub(super) fn finish(mut self) -> Result<(), StartError> {
        self.finished = true;
        Ok(self.library.finalize()?)
    }

    /// The process with number `rank` in this job.
    fn rank(&self, rank: u32) -> Proc {
        Proc { rank, ..self.this }
    }
}

impl Drop for Pmix {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody is left to be told of an error.
            let _ = self.library.finalize();
        }
    }
}

/// Refuses to be alone if another starter started several processes, each of which would be alone.
fn no_other(text: impl Fn(&'static str) -> Option<String>) -> Result<Option<Pmix>, StartError> {
    for (variable, instead) in OTHERS {
        if let Some(count) = text(variable)
            && count.parse::<u32>().is_ok_and(|count| count > 1)
        {
            return Err(StartError::NotPmix { variable, count, instead });
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_processes_that_cannot_talk_are_not_each_alone() {
        let with = |name, value: &str| {
            let value = value.to_owned();
            no_other(move |asked| (asked == name).then(|| value.clone()))
        };
        assert!(matches!(with("SLURM_STEP_NUM_TASKS", "1"), Ok(None)));
        assert!(matches!(with("PMI_SIZE", "many"), Ok(None)));
        let error = with("SLURM_STEP_NUM_TASKS", "4").err().unwrap().to_string();
        assert!(error.contains("SLURM_STEP_NUM_TASKS=4") && error.contains("srun --mpi=pmix"), "{error}");
    }
}
