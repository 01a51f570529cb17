//! Changes kernel settings for the measurement and puts them back afterwards; counts huge pages in use.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;

pub(crate) const HUGE_PAGE: u64 = 2 << 20;

/// A file under /proc/sys that holds another value until this value is dropped.
pub(crate) struct Setting {
    path: PathBuf,
    /// The earlier value, where another was written.
    before: Option<String>,
}

impl Setting {
    /// Writes the result of `value` for the number that is there.
    pub(crate) fn change(path: &str, value: impl Fn(u64) -> u64) -> Result<Setting, Error> {
        let path = Path::new(path);
        let before = fs::read_to_string(path).map_err(|e| Error::at("read", path, e))?;
        let before = before.trim().to_owned();
        let wanted = value(before.parse().unwrap_or(0)).to_string();
        if wanted == before {
            return Ok(Setting { path: path.to_owned(), before: None });
        }
        fs::write(path, wanted).map_err(|e| Error::at("write", path, e))?;
        Ok(Setting { path: path.to_owned(), before: Some(before) })
    }

    /// Allows this number of huge pages to be made when they are asked for.
    pub(crate) fn huge_pages(pages: u64) -> Result<Setting, Error> {
        Self::change("/proc/sys/vm/nr_overcommit_hugepages", |before| before.max(pages))
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        if let Err(error) = fs::write(&self.path, before) {
            eprintln!("out-of-core: {} could not be set back to {before}: {error}", self.path.display());
        }
    }
}

/// Returns the bytes of huge pages that are used or reserved on the whole machine.
pub(crate) fn huge_bytes() -> u64 {
    huge_of(&fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

fn huge_of(meminfo: &str) -> u64 {
    let value = |name: &str| -> u64 {
        let found = meminfo.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        found.unwrap_or(0)
    };
    value("HugePages_Total:").saturating_sub(value("HugePages_Free:")) * HUGE_PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_huge_pages_are_those_not_free() {
        let text =
            "MemTotal: 100 kB\nHugePages_Total:      14\nHugePages_Free:        4\nHugePages_Rsvd:  0\n";
        assert_eq!(huge_of(text), 10 * HUGE_PAGE);
        assert_eq!(huge_of(""), 0);
    }

    #[test]
    fn a_setting_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("setting");
        fs::write(&path, "60\n").unwrap();
        let setting = Setting::change(path.to_str().unwrap(), |before| before + 40).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "100");
        drop(setting);
        assert_eq!(fs::read_to_string(&path).unwrap(), "60");
    }
}
