//! Finds the parts of an engine, and checks whether it can run the program.
//!
//! `launch` starts the command made here.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_trace_wire::{ENVIRONMENT_FILTER, ENVIRONMENT_MODE, ENVIRONMENT_PIPE, ENVIRONMENT_PRELOAD};

use crate::cli::EngineArg;
use crate::run::check::elf::{self, Kind};
use crate::run::check::libraries::head;
use crate::run::check::path::{self, PathError};
use crate::run::launch::preload;
use crate::run::library;

const QEMU: &str = "qemu-x86_64";
const PLUGIN: &str = "libatoll_qemu_plugin.so";
const HOOKS: &str = "libatoll_hooks.so";

/// The reason why there is no engine for a program.
#[derive(thiserror::Error, Debug)]
pub(crate) enum EngineError {
    /// The program's name leads to no program.
    #[error("{0}")]
    Path(#[from] PathError),
    /// The program is no ELF executable of x86-64.
    #[error("{0} cannot be traced: it is {1}")]
    Program(String, &'static str),
    /// The program could not be read.
    #[error("{0} cannot be looked at: {1}")]
    Unreadable(String, std::io::Error),
    /// There is no QEMU.
    #[error(
        "{QEMU} is not installed, which sees the accesses of unmodified programs: apt-get install qemu-user"
    )]
    NoQemu,
    /// QEMU has another plugin interface.
    #[error(
        "{path} is version {found}, and atoll's plugin works with 6.0 to 8.2: put such a version first in PATH"
    )]
    QemuVersion {
        /// The file.
        path: String,
        /// The version that it reports.
        found: String,
    },
    /// One of atoll's own libraries is missing.
    #[error("{0} is neither in {1} nor in {2}: build it (cargo build --workspace) or install atoll again")]
    Absent(&'static str, String, String),
    /// A library's path cannot be passed on.
    #[error(
        "the path {0} has a space, comma or colon in it, which a preloaded library's cannot have: move it"
    )]
    Separator(String),
}

/// The parameters of an engine.
pub(crate) struct Order<'a> {
    /// The program and its arguments, its name first.
    pub(crate) words: &'a [OsString],
    /// The descriptor of the pipe, as the program inherits it.
    pub(crate) pipe: i32,
    /// The number of places of the filter; 0: none.
    pub(crate) filter: u32,
}

/// The program and its engine, found and checked.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The program's file.
    pub(crate) program: PathBuf,
    /// Engine and plugin, for QEMU.
    qemu: Option<(PathBuf, PathBuf)>,
    hooks: PathBuf,
}

impl Engine {
    /// Finds the engine for a program.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub(crate) fn find(engine: EngineArg, name: &OsStr) -> Result<Self, EngineError> {
        let search = std::env::var_os("PATH");
        let program = path::find(name, search.as_deref())?;
        check(&program)?;
        let executable = std::env::current_exe().unwrap_or_default();
        let hooks = own(HOOKS, &executable)?;
        if library::cannot_be_preloaded(&hooks) {
            return Err(EngineError::Separator(hooks.display().to_string()));
        }
        let qemu = match engine {
            EngineArg::Qemu => {
                let qemu =
                    path::find(OsStr::new(QEMU), search.as_deref()).map_err(|_| EngineError::NoQemu)?;
                check_version(&qemu)?;
                let plugin = own(PLUGIN, &executable)?;
                // QEMU splits its arguments at commas.
                if let Some(path) = [&plugin, &hooks].into_iter().find(|path| has_comma(path.as_os_str())) {
                    return Err(EngineError::Separator(path.display().to_string()));
                }
                if let Some(own) = std::env::var_os("LD_PRELOAD").filter(|own| has_comma(own)) {
                    return Err(EngineError::Separator(own.display().to_string()));
                }
                Some((qemu, plugin))
            }
            EngineArg::Tsan => None,
        };
        Ok(Self { program, qemu, hooks })
    }

    /// The command that runs the program under the engine.
    pub(crate) fn command(&self, order: &Order<'_>) -> Command {
        let own = std::env::var_os("LD_PRELOAD").filter(|own| !own.is_empty());
        let mode = if self.qemu.is_some() { "mark" } else { "record" };
        let preload = preload(&self.hooks, own.as_deref());
        let mut variables: Vec<(&str, OsString)> = vec![
            (ENVIRONMENT_MODE, mode.into()),
            (ENVIRONMENT_PIPE, order.pipe.to_string().into()),
            (ENVIRONMENT_FILTER, order.filter.to_string().into()),
        ];
        if let Some(own) = own {
            variables.push((ENVIRONMENT_PRELOAD, own));
        }
        let Some((qemu, plugin)) = &self.qemu else {
            let mut command = Command::new(&self.program);
            std::os::unix::process::CommandExt::arg0(&mut command, &order.words[0]);
            command.args(&order.words[1..]).envs(variables).env("LD_PRELOAD", preload);
            return command;
        };
        // The hooks are for the program: QEMU itself runs without them.
        let mut command = Command::new(qemu);
        command.args(["-cpu", "max"]);
        command.arg("-plugin").arg(joined(&[
            plugin.as_os_str(),
            OsStr::new(&format!(",pipe={},filter={}", order.pipe, order.filter)),
        ]));
        command.envs(variables).env_remove("LD_PRELOAD");
        command.arg("-E").arg(joined(&[OsStr::new("LD_PRELOAD="), &preload]));
        command.arg("-0").arg(&order.words[0]).arg(&self.program).args(&order.words[1..]);
        command
    }
}

fn has_comma(text: &OsStr) -> bool {
    text.as_bytes().contains(&b',')
}

fn joined(parts: &[&OsStr]) -> OsString {
    OsString::from_vec(parts.iter().flat_map(|part| part.as_bytes()).copied().collect())
}

fn own(name: &'static str, executable: &Path) -> Result<PathBuf, EngineError> {
    let [beside, installed] = library::places(executable);
    library::beside_or_installed(name, executable).ok_or_else(|| {
        EngineError::Absent(name, beside.display().to_string(), installed.display().to_string())
    })
}

fn check(program: &Path) -> Result<(), EngineError> {
    let shown = program.display().to_string();
    let head = head(program).map_err(|e| EngineError::Unreadable(shown.clone(), e))?;
    let what = match elf::kind(&head) {
        Kind::Native => return Ok(()),
        Kind::Script(_) => "a script: trace the program that it starts",
        Kind::Bits32 => "a 32-bit program: build it with -m64",
        Kind::Foreign => "a program for another architecture than x86-64",
        Kind::Other => "no program",
    };
    Err(EngineError::Program(shown, what))
}

/// Checks QEMU's version. Its plugin interface is at version 1 from 6.0 on, and 9.0 takes no plugin older than version 2.
fn check_version(qemu: &Path) -> Result<(), EngineError> {
    let said = Command::new(qemu).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    let version =
        said.split_ascii_whitespace().skip_while(|word| *word != "version").nth(1).unwrap_or("unknown");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| (6..=8).contains(&major)) {
        return Ok(());
    }
    Err(EngineError::QemuVersion { path: qemu.display().to_string(), found: version.to_owned() })
}
