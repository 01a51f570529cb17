//! Keeps measured costs in the user's cache folder, for the next process on this processor and kernel.
//!
//! `manager.rs` reads and writes it. The file is a convenience only: one that is damaged, of another machine or of another
//! version is ignored and written anew; where there is no folder for it, everything works without.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::bulk::costs::Costs;

/// The format's number, which changes with the file's content or its meaning.
const FORMAT: u32 = 1;
/// The most bytes that are read; a longer file is not ours.
const LONGEST: u64 = 256 << 10;

/// The properties of a machine on which costs depend.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    cpu: String,
    kernel: String,
    version: String,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    format: u32,
    machine: Machine,
    costs: Costs,
}

impl Machine {
    /// This machine.
    pub(crate) fn this() -> Machine {
        let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let mut models = about.lines().filter_map(|line| line.strip_prefix("model name"));
        let cpu = models.next().and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            cpu: format!("{} {}", std::env::consts::ARCH, cpu.trim()),
            kernel: kernel.trim().into(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// The machine's own file name, as several machines may share a home.
    fn file_name(&self) -> String {
        let words = format!("bulk-{}-{}-{}", self.cpu, self.kernel, self.version);
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name: String = words.chars().map(plain).take(200).collect();
        name + ".json"
    }
}

/// The folder in which costs are kept; `None` without a home.
pub(crate) fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("atoll"))
}

/// The costs in the folder for this machine, if the file is whole and plausible.
pub(crate) fn read(folder: &Path, machine: &Machine) -> Option<Costs> {
    let mut text = String::new();
    // Opened without waiting, in case somebody put a pipe in its place.
    let mut options = fs::OpenOptions::new();
    let file =
        options.read(true).custom_flags(libc::O_NONBLOCK).open(folder.join(machine.file_name())).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    let contents: Contents = serde_json::from_str(&text).ok()?;
    let ours = contents.format == FORMAT && contents.machine == *machine && contents.costs.are_sound();
    ours.then_some(contents.costs)
}

/// Writes costs for this machine; the file is whole at any moment, whoever else writes it. If writing fails, the next process
/// measures again.
pub(crate) fn write(folder: &Path, machine: &Machine, costs: &Costs) -> std::io::Result<()> {
    let contents = Contents { format: FORMAT, machine: machine.clone(), costs: costs.clone() };
    let text = serde_json::to_string(&contents)?;
    fs::create_dir_all(folder)?;
    let draft = folder.join(format!(".bulk-{}-{:?}.tmp", std::process::id(), std::thread::current().id()));
    let written = (|| {
        let _ = fs::remove_file(&draft);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&draft, folder.join(machine.file_name()))
    })();
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::costs::Curve;
    use crate::bulk::memory::Kind;

    fn some() -> Costs {
        let mut costs = Costs::default();
        let points = vec![(64, 0.01), (4096, 0.125)];
        costs.set(Curve { engine: "memcpy".into(), to: Kind::Mapping, from: Kind::Mapping, points });
        costs
    }

    #[test]
    fn what_was_written_is_read_here_only() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("not/made/yet");
        let machine = Machine::this();
        assert_eq!(read(&folder, &machine), None);
        write(&folder, &machine, &some()).unwrap();
        assert_eq!(read(&folder, &machine), Some(some()));
        // A file of another kernel under our name.
        let other = Machine { kernel: "9.9".into(), ..machine.clone() };
        write(&folder, &other, &some()).unwrap();
        fs::rename(folder.join(other.file_name()), folder.join(machine.file_name())).unwrap();
        assert_eq!(read(&folder, &machine), None);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_damaged_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, machine) = (folder.path(), Machine::this());
        write(folder, &machine, &some()).unwrap();
        let path = folder.join(machine.file_name());
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(read(folder, &machine), None, "cut at {cut}");
        }
        // Numbers that no measurement yields.
        let text = String::from_utf8(whole).unwrap();
        for wrong in ["-1.0", "0.0", "1e400", "null", "\"fast\""] {
            fs::write(&path, text.replace("0.125", wrong)).unwrap();
            assert_eq!(read(folder, &machine), None, "{wrong}");
        }
        fs::write(&path, text.replace("4096", "7")).unwrap();
        assert_eq!(read(folder, &machine), None);
        // A folder, and then a pipe, in its place.
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(read(folder, &machine), None);
        fs::remove_dir(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .unwrap();
        assert_eq!(read(folder, &machine), None);
        // The folder or pipe is replaced.
        write(folder, &machine, &some()).unwrap();
        assert_eq!(read(folder, &machine), Some(some()));
    }

    #[test]
    fn a_folder_that_cannot_be_is_an_error_and_no_more() {
        assert!(write(Path::new("/proc/no/such"), &Machine::this(), &some()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_not(bytes: Vec<u8>) {
            let folder = tempfile::tempdir().unwrap();
            let machine = Machine::this();
            fs::write(folder.path().join(machine.file_name()), bytes).unwrap();
            proptest::prop_assert_eq!(read(folder.path(), &machine), None);
        }
    }
}
