//! Starts the program: settings, environment, and the signals on their way to it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use atoll_memory::control::{
    self, Consistency, Control, EXIT_SETUP, Faults, Handle, MAX_WORKERS, PageTables, Settings,
};
use atoll_memory::far::FarSpec;
use atoll_memory::limits;
use atoll_memory::pager::guards_are_possible;
use atoll_pages::{PolicySpec, Size};

use super::applied::{self, NotApplied};
use super::automatic::{self, Automatic};
use super::borrow::{BorrowError, Borrowed};
use super::check::path::{self, PathError};
use super::check::program::{self, CheckError, Checked, Uses};
use super::clock::Clock;
use super::first;
use super::interrupts;
use super::library::{self, LibraryError};
use super::mpi;
use super::near::{self, NearError};
use super::nodes::{Nodes, NodesError};
use super::signals::Signals;
use super::spare;
use super::translation::{self, TranslationError};
use super::watch::{self, Ending, WatchError, Watched};
use crate::cli::{CheckArg, ConsistencyArg, OnOff, PageTablesChoice, RunArgs};
use crate::{cgroup, defaults, machine};

/// The reason why no program was started.
#[derive(thiserror::Error, Debug)]
pub(crate) enum LaunchError {
    /// The program's name leads to no program.
    #[error("{0}")]
    Path(#[from] PathError),
    /// It is a program that atoll cannot run.
    #[error("{0}")]
    Check(#[from] CheckError),
    /// The program cannot be managed, and has to be.
    #[error("{0}")]
    NotApplied(#[from] NotApplied),
    /// The runtime is not there.
    #[error("{0}")]
    Library(#[from] LibraryError),
    /// `--cmcp-p` is no ratio, or the policy is not CMCP.
    #[error("--cmcp-p {0}: {1}")]
    CmcpP(String, String),
    /// `--near` has a share that means nothing here.
    #[error("{0}")]
    Near(#[from] NearError),
    /// Flags about pages and about a segment contradict each other.
    #[error("{0}")]
    Translation(#[from] TranslationError),
    /// `--check races` was given with one node.
    #[error("--check races compares what nodes write: give --nodes 2 or more, best as many as --workers")]
    CheckAlone,
    /// OMP_NUM_THREADS asks for more than a core map holds.
    #[error("OMP_NUM_THREADS={0} is more than the {MAX_WORKERS} workers a team may have: use --workers")]
    TooManyWorkers(u32),
    /// The kernel's pages have another size than those that atoll manages.
    #[error("this kernel has pages of {0}, and atoll manages pages of 4K: boot a kernel with those")]
    Pages(Size),
    /// The shell's limits are too small.
    #[error("{0}")]
    Limited(#[from] limits::Limited),
    /// There is no shared memory for the control block.
    #[error("no shared memory for the control block ({0}): `atoll doctor` says what is missing")]
    Control(atoll_memory::sys::Errno),
    /// The kernel refused to execute the program.
    #[error("{path} cannot be executed: {error}")]
    Exec {
        /// The file.
        path: String,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// `--record` names a file that cannot be written.
    #[error("the record {0} cannot be written: {1}")]
    Record(String, std::io::Error),
    /// There are no lenders.
    #[error("{0}")]
    Borrow(#[from] BorrowError),
    /// The other nodes cannot be started.
    #[error("{0}")]
    Nodes(#[from] NodesError),
    /// The launcher itself could not go on.
    #[error("{0}")]
    Watch(#[from] WatchError),
}

impl LaunchError {
    /// Returns the exit status for this error.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Path(PathError::NotFound(..)) => 127,
            Self::Path(PathError::NotExecutable(..)) | Self::Exec { .. } => 126,
            Self::Check(e) if e.is_not_executable() => 126,
            Self::CmcpP(..) | Self::Near(_) | Self::Translation(_) | Self::CheckAlone => 2,
            _ => EXIT_SETUP as u8,
        }
    }
}

/// A run that is over.
pub(crate) struct Finished {
    /// The file that was executed.
    pub(crate) path: PathBuf,
    /// The result of the check before the start.
    pub(crate) checked: Checked,
    /// The file of the program that was managed.
    pub(crate) program: Option<PathBuf>,
    /// How the program ended.
    pub(crate) ending: Ending,
    /// The control block with the program's figures.
    pub(crate) control: &'static Control,
    /// The time at which it started.
    pub(crate) started: SystemTime,
    /// The time from start to end, in seconds.
    pub(crate) wall_seconds: f64,
    /// The ticks in a second.
    pub(crate) rate: f64,
    /// The kernel's count of TLB shootdowns meanwhile.
    pub(crate) tlb_shootdowns: Option<u64>,
    /// How many processes of this memory group the kernel killed meanwhile for want of memory.
    pub(crate) kills: Option<u64>,
    /// Whether `main` ran here. If not, another node speaks for all.
    pub(crate) is_first: bool,
    /// The file for the record.
    pub(crate) record: Option<File>,
}

/// Returns the policy that the two flags mean together.
fn policy(args: &RunArgs) -> Result<PolicySpec, LaunchError> {
    let Some(p) = &args.cmcp_p else { return Ok(args.policy) };
    if args.policy.name() != "cmcp" {
        let why = format!("the policy is {}, which has no such ratio", args.policy.name());
        return Err(LaunchError::CmcpP(p.clone(), why));
    }
    format!("cmcp:p={p}")
        .parse()
        .map_err(|e: atoll_pages::spec::SpecError| LaunchError::CmcpP(p.clone(), e.to_string()))
}

/// Returns the far store that the flags mean together.
fn far(args: &RunArgs) -> FarSpec {
    if args.hosts_far.is_empty() { args.memory.far.clone() } else { FarSpec::Hosts }
}

/// Returns the team's size: the flag, else the first number of OMP_NUM_THREADS, else the number of CPUs.
pub(crate) fn workers(flag: Option<u32>, environment: Option<&OsStr>, cpus: u32) -> Result<u32, LaunchError> {
    if let Some(workers) = flag {
        return Ok(workers);
    }
    let named = environment
        .and_then(OsStr::to_str)
        .and_then(|text| text.split(',').next()?.trim().parse::<u32>().ok())
        .filter(|&n| n > 0);
    match named {
        Some(n) if n as usize > MAX_WORKERS => Err(LaunchError::TooManyWorkers(n)),
        Some(n) => Ok(n),
        None => Ok(cpus.clamp(1, MAX_WORKERS as u32)),
    }
}

/// How many words of this process's command line come before the program's; 0 where it is none of `atoll run` with a word for each flag.
fn launcher_words(args: &RunArgs) -> u32 {
    let words: Vec<_> = std::env::args_os().collect();
    let is_run = words.get(1).is_some_and(|word| word == "run");
    if is_run { words.len().saturating_sub(args.program.words.len()) as u32 } else { 0 }
}

/// Returns whose page tables the program's workers use.
fn page_tables(args: &RunArgs, nodes: u32) -> PageTables {
    let is_shared = match args.memory.page_tables {
        PageTablesChoice::Private => false,
        PageTablesChoice::Shared => true,
        // Runs on several nodes have private page tables only.
        PageTablesChoice::Auto => {
            nodes == 1
                && !PageTablesChoice::is_private_for(&args.policy)
                && machine::usable_cpus() <= defaults::CPUS_THAT_SHARE
                && guards_are_possible()
        }
    };
    if is_shared { PageTables::Shared } else { PageTables::Private }
}

/// Returns the control block's settings.
fn settings(args: &RunArgs, path: &Path, checked: Checked, nodes: &Nodes) -> Result<Settings, LaunchError> {
    let mut settings = Settings::new(&policy(args)?.to_string(), &far(args).to_string());
    settings.far_bytes = args.memory.far_limit.map_or(u64::MAX, |size| size.0);
    settings.count_regions = u32::from(args.record.is_some());
    settings.page_shift = args.page.shift();
    settings.page_tables = (page_tables(args, nodes.count()) as u32).into();
    settings.faults = Faults::from(args.memory.faults) as u32;
    let (cpus, asked) = nodes.team();
    // A team of fewer threads than nodes could not be spread.
    let cpus = cpus.max(nodes.count());
    settings.workers = workers(args.memory.workers, asked.as_deref(), cpus)?;
    let near = near::limit(
        args,
        path,
        settings.workers,
        nodes.count(),
        checked.openmp != Uses::Alone || applied::applies_to_all(args, checked),
    )?;
    settings.near_bytes = near.bytes;
    settings.near_automatic = u32::from(near.is_automatic);
    settings.far_memory_bytes = if near.is_automatic {
        automatic::far_memory(near.bytes)
    } else {
        spare::memory(near.bytes, nodes.count())
    };
    settings.consistency = match args.consistency {
        ConsistencyArg::Sc => Consistency::Single,
        ConsistencyArg::Mw => Consistency::Many,
        ConsistencyArg::Smart => Consistency::Smart,
    } as u32;
    settings.prefetch = u32::from(args.prefetch == OnOff::On);
    settings.check_races = u32::from(args.check == Some(CheckArg::Races));
    if settings.check_races != 0 && nodes.count() == 1 {
        return Err(LaunchError::CheckAlone);
    }
    settings.home_alone = u32::from(args.home_alone == OnOff::On);
    settings.require = u32::from(args.require);
    settings.launcher_words = launcher_words(args);
    translation::settle(args, nodes.count(), &mut settings)?;
    Ok(settings)
}

/// Returns the program's LD_PRELOAD while the runtime has not yet put its own back.
pub(crate) fn preload(library: &Path, own: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(own) = own.filter(|own| !own.is_empty()) {
        value.push(":");
        value.push(own);
    }
    value
}

/// Moves the descriptor that the program inherits to a high number, so that the program's own first `open` returns the same
/// number as without atoll. `Control::create` left it to be inherited.
pub(crate) fn out_of_the_way(fd: i32) -> i32 {
    for least in [900, 200, 60] {
        // SAFETY: no pointers; the old descriptor is ours and nobody else knows it.
        unsafe {
            let high = libc::fcntl(fd, libc::F_DUPFD, least);
            if high >= 0 {
                libc::close(fd);
                return high;
            }
        }
    }
    fd
}

/// Makes the program that `command` starts have the signal mask that atoll was started with, and die with atoll.
pub(crate) fn bind(command: &mut Command, signals: &Signals) {
    let (mask, launcher) = (signals.before(), std::process::id() as i32);
    // SAFETY: only system calls, between fork and exec; the mask is plain data.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != launcher {
                libc::_exit(EXIT_SETUP);
            }
            libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
            Ok(())
        });
    }
}

/// Runs the program to its end.
///
/// # Errors
/// See [`LaunchError`]; an error after the start leaves nothing behind.
pub(crate) fn launch(args: &RunArgs) -> Result<Finished, LaunchError> {
    launch_with(args, |_| {}, |_| {})
}

/// Does the same as [`launch`], with a profiler's changes of the settings and of the command.
///
/// # Errors
/// See [`LaunchError`].
pub(crate) fn launch_with(
    args: &RunArgs,
    change: impl FnOnce(&mut Settings),
    prepare: impl FnOnce(&mut Command),
) -> Result<Finished, LaunchError> {
    machine::unmanaged_pages().map_or(Ok(()), |size| Err(LaunchError::Pages(size)))?;
    let name = &args.program.words[0];
    let path = path::find(name, std::env::var_os("PATH").as_deref())?;
    let executable = std::env::current_exe().unwrap_or_default();
    let library = library::find(std::env::var_os(library::ENVIRONMENT).as_deref(), &executable)?;
    let (places, preloaded) = (std::env::var_os("LD_LIBRARY_PATH"), std::env::var_os("LD_PRELOAD"));
    let checked = program::check(&path, &library, places.as_deref(), preloaded.as_deref())?;
    applied::before(args, checked)?;
    let mut nodes = Nodes::prepare(args, checked)?;
    let mut settings = settings(args, &path, checked, &nodes)?;
    nodes.describe(&mut settings);
    change(&mut settings);
    let record = args
        .record
        .as_ref()
        .filter(|_| nodes.is_first())
        .map(|path| File::create(path).map_err(|e| LaunchError::Record(path.display().to_string(), e)));
    let record = record.transpose()?;
    limits::check()?;
    let borrowed = Borrowed::prepare(args)?;
    if let Some(borrowed) = &borrowed {
        settings.lenders = borrowed.settings();
    }
    let (fd, control) = Control::create(settings).map_err(LaunchError::Control)?;
    let starter = borrowed.as_ref().and_then(Borrowed::process);
    let lenders = borrowed.map(|borrowed| borrowed.keep(control)).transpose()?;
    let fd = out_of_the_way(fd);

    // A program that is not managed runs once: the other nodes of a job only take part in its beginning and end.
    let idle = !nodes.is_first() && checked.openmp == Uses::Alone;
    let mut command = Command::new(if idle { Path::new("/bin/true") } else { &path });
    command.arg0(name).args(&args.program.words[1..]);
    let handle = Handle { fd, launcher: std::process::id() as i32 };
    command.env(control::ENVIRONMENT, handle.to_string());
    command.env_remove(control::ENVIRONMENT_FIRST);
    command.env("LD_PRELOAD", preload(&library, preloaded.as_deref()));
    if args.check.is_some() {
        // A function that the dynamic linker binds at its first call looks like a word that every node writes.
        command.env("LD_BIND_NOW", "1");
    }
    if let Some(own) = preloaded {
        command.env(control::ENVIRONMENT_PRELOAD, own);
    }
    if args.memory.workers.is_some() || nodes.count() > 1 {
        command.env("OMP_NUM_THREADS", control.settings.workers.to_string());
    }
    if nodes.count() == 1 {
        mpi::set(&mut command, checked.mpi);
    }
    watch::become_subreaper();
    let signals = Signals::take().map_err(WatchError::Signals)?;
    first::follow();
    bind(&mut command, &signals);
    nodes.bind(&mut command);
    prepare(&mut command);
    // What a script starts is known once it runs.
    let starts_another = checked.openmp == Uses::Other;
    if !starts_another {
        nodes.start_others()?;
    }
    let near = Automatic::begin(control);
    let kills_before = cgroup::kills();
    let (shootdowns, started, clock) = (interrupts::tlb_shootdowns(), SystemTime::now(), Clock::start());
    let child =
        command.spawn().map_err(|error| LaunchError::Exec { path: path.display().to_string(), error })?;
    nodes.release();
    applied::look_on(args, checked, control, child.id() as i32);
    let others: Vec<i32> = nodes.launchers().into_iter().chain(starter).collect();
    let begins = |program: i32| {
        if let Err(error) = nodes.start_others_for(program, args) {
            eprintln!("atoll: {}", LaunchError::from(error));
            // SAFETY: no pointers. The process waits for the other nodes, which do not come.
            unsafe { libc::kill(program, libc::SIGKILL) };
        }
        nodes.launchers()
    };
    let watched = watch::watch(child.id() as i32, control, &signals, near, others, begins)?;
    let Watched { ending, program, launchers } = watched;
    let ending = nodes.end(ending, launchers);
    // Release: pairs with the Acquire in `first`.
    control.over.store(1, Ordering::Release);
    drop(lenders);
    let wall_seconds = clock.elapsed().as_secs_f64();
    let kills = kills_before.and_then(|before| cgroup::kills()?.checked_sub(before));
    let tlb_shootdowns = shootdowns.and_then(|before| interrupts::tlb_shootdowns()?.checked_sub(before));
    Ok(Finished {
        path,
        checked,
        program,
        ending,
        control,
        started,
        wall_seconds,
        rate: clock.rate(),
        tlb_shootdowns,
        kills,
        is_first: nodes.is_first(),
        record,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_team_is_as_large_as_the_first_that_says() {
        let size = |flag, text: Option<&str>| workers(flag, text.map(OsStr::new), 3).unwrap();
        assert_eq!(size(Some(5), Some("2")), 5);
        assert_eq!(size(None, Some("2")), 2);
        assert_eq!(size(None, Some(" 4,2")), 4);
        assert_eq!(size(None, Some("many")), 3);
        assert_eq!(size(None, None), 3);
        assert!(matches!(workers(None, Some(OsStr::new("3000")), 1), Err(LaunchError::TooManyWorkers(3000))));
    }
}
