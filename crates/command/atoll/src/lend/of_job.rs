//! Lenders that are the other processes of a job: under `mpirun` or `srun`, `atoll run --hosts-far job` runs the program in the job's first
//! process, and one process on each other host lends to it until it ends. `for_run` has the lender.
//!
//! The processes find each other by the exchange of the job's starter, as nodes do (`run/job.rs`).

use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;

use atoll_lend::{Card, Secret};
use atoll_memory::control::EXIT_SETUP;
use atoll_memory::signals::SignalsBlocked;
use atoll_transport::start::{Start, StartError};

use super::for_run::{self, ForRun, MOST_BYTES, TIMEOUT};
use super::{Ends, Error};
use crate::cli::RunArgs;
use crate::run::nodes;

/// What `--hosts-far` names for the hosts of the job's other processes.
const JOB: &str = "job";

/// The reason why a job has no lender for its run.
#[derive(thiserror::Error, Debug)]
pub(crate) enum JobError {
    #[error(
        "--hosts-far job needs the processes of a job, and this one was started alone: \
         start it by `mpirun -n 3 --map-by node atoll run --hosts-far job …`, or name hosts"
    )]
    Alone,
    #[error("all {0} processes of this job are on one host, and --hosts-far job borrows of others")]
    OneHost(u32),
    #[error("this process cannot find the others of its job: {0}")]
    Start(#[from] StartError),
    #[error("no lender of this job can be asked: {0}")]
    Os(#[from] std::io::Error),
}

/// Whether the job's other processes are to lend.
pub(crate) fn is_of_job(args: &RunArgs) -> bool {
    matches!(args.hosts_far.as_slice(), [host] if host == JOB)
}

/// In each process of the job but the first: lends to the run, unless this is the first's host or another process here lends. `None` in
/// the first process.
pub(crate) fn lend(args: &RunArgs) -> Option<ExitCode> {
    if !is_of_job(args) || nodes::own_number() == 0 {
        return None;
    }
    Some(match lend_now() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll: a lender of --hosts-far: {error}");
            ExitCode::from(EXIT_SETUP as u8)
        }
    })
}

fn lend_now() -> Result<(), Error> {
    let signals = Ends::block().map_err(Error::Signals)?;
    let mut start = Start::detect(Some(TIMEOUT))?;
    let here = start.node();
    if lenders(&start).any(|node| node == here.0) {
        return for_run::lend_to_job(start, MOST_BYTES, None, &signals);
    }
    start.exchange(&[], Some(TIMEOUT))?;
    Ok(start.finish()?)
}

/// The numbers of the processes that lend: the first one on each host but the run's.
fn lenders(start: &Start) -> impl Iterator<Item = u32> {
    first_elsewhere((0..start.nodes()).filter_map(|node| start.machine(atoll_channel::Node(node))))
}

/// The first position of each machine but the first one.
fn first_elsewhere(machines: impl Iterator<Item = u32>) -> impl Iterator<Item = u32> {
    // Machines are numbered in the order of their first nodes.
    let mut known = 1;
    (0..).zip(machines).filter_map(move |(node, machine)| {
        let is_new = machine >= known;
        known = known.max(machine + 1);
        is_new.then_some(node)
    })
}

impl ForRun {
    /// Finds the lenders of the job in whose first process this is.
    ///
    /// # Errors
    /// See [`JobError`].
    pub(crate) fn of_job() -> Result<ForRun, JobError> {
        if !Start::is_expected() {
            return Err(JobError::Alone);
        }
        let (tell, told) = channel();
        thread::Builder::new().name("job".into()).spawn(move || {
            // This mask is for the thread and for threads of libraries that it loads: signals are for the launcher's thread.
            let _blocked = SignalsBlocked::new();
            let _ = tell.send(find());
        })?;
        told.recv().map_err(|_| std::io::Error::other("its thread has ended"))?
    }
}

fn find() -> Result<ForRun, JobError> {
    let mut start = Start::detect(Some(TIMEOUT))?;
    let count = start.nodes();
    if count == 1 {
        return Err(JobError::Alone);
    }
    let has_lenders = lenders(&start).next().is_some();
    // The others exchange, too, whether they lend or not.
    let given = start.exchange(&[], Some(TIMEOUT))?;
    let key = Secret::of(*start.secret().bytes()).key();
    start.finish()?;
    if !has_lenders {
        return Err(JobError::OneHost(count));
    }
    let cards = given.iter().filter_map(|bytes| serde_json::from_slice::<Card>(bytes).ok()).collect();
    Ok(ForRun { cards, key, child: None })
}

#[cfg(test)]
mod tests {
    use super::first_elsewhere;

    #[test]
    fn one_process_of_each_other_host_lends() {
        let lenders = |machines: &[u32]| first_elsewhere(machines.iter().copied()).collect::<Vec<_>>();
        assert_eq!(lenders(&[0, 0, 1, 1, 0, 2]), [2, 5]);
        assert_eq!(lenders(&[0, 1, 2]), [1, 2]);
        assert!(lenders(&[0, 0]).is_empty() && lenders(&[]).is_empty());
    }
}
