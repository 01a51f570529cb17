//! Finds libraries where the dynamic linker would find them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::elf::{Elf, Kind, kind};
use crate::arch::{CACHE_FLAGS, DIRECTORIES};

const CACHE: &str = "/etc/ld.so.cache";
const CACHE_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";

/// The search paths of the environment and the machine.
pub(crate) struct Libraries {
    environment: Vec<PathBuf>,
    cache: HashMap<String, PathBuf>,
}

impl Libraries {
    /// Makes the search paths from this LD_LIBRARY_PATH and this machine's cache.
    pub(crate) fn new(environment: Option<&OsStr>) -> Libraries {
        let environment = environment.map(|v| std::env::split_paths(v).collect()).unwrap_or_default();
        let cache = std::fs::read(CACHE).ok().and_then(|bytes| parse_cache(&bytes)).unwrap_or_default();
        Libraries { environment, cache }
    }

    /// Returns the file of `name` when `elf` at `path` needs it; `None` where the linker would not find it either.
    pub(crate) fn find(&self, name: &str, elf: &Elf, path: &Path) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(PathBuf::from(name)).filter(|p| is_native(p));
        }
        let origin = path.parent().unwrap_or(Path::new("."));
        let origin = std::fs::canonicalize(origin).unwrap_or_else(|_| origin.to_owned());
        let origin = origin.to_string_lossy();
        let own = elf
            .run_path
            .iter()
            .map(|dir| PathBuf::from(dir.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin)));
        let near = self.environment.iter().cloned().chain(own).map(|dir| dir.join(name));
        let known = self.cache.get(name).cloned();
        let usual = DIRECTORIES.iter().map(|dir| Path::new(dir).join(name));
        near.chain(known).chain(usual).find(|p| is_native(p))
    }
}

/// Returns the first bytes of a file.
pub(crate) fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    std::fs::File::open(path)?.take(256).read_to_end(&mut head)?;
    Ok(head)
}

fn is_native(path: &Path) -> bool {
    path.is_file() && head(path).is_ok_and(|head| kind(&head) == Kind::Native)
}

/// Returns names and paths of this processor's libraries in the linker's cache; the first entry of a name counts.
fn parse_cache(bytes: &[u8]) -> Option<HashMap<String, PathBuf>> {
    // A cache in the old format may stand in front.
    let start = bytes.windows(CACHE_MAGIC.len()).position(|w| w == CACHE_MAGIC)?;
    let bytes = &bytes[start..];
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let text = |at: usize| {
        let rest = bytes.get(at..)?;
        let end = rest.iter().position(|&b| b == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    };
    let count = word(20)? as usize;
    let mut found = HashMap::new();
    for entry in 0..count {
        let at = 48 + entry * 24;
        if word(at)? != CACHE_FLAGS {
            continue;
        }
        if let (Some(name), Some(path)) = (text(word(at + 4)? as usize), text(word(at + 8)? as usize)) {
            found.entry(name.to_owned()).or_insert_with(|| PathBuf::from(path));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_cache_is_no_panic() {
        let bytes = std::fs::read(CACHE).unwrap_or_default();
        for n in (0..bytes.len().min(4096)).step_by(7) {
            let _ = parse_cache(&bytes[..n]);
        }
        if !bytes.is_empty() {
            assert!(parse_cache(&bytes).unwrap().contains_key("libc.so.6"));
        }
    }
}
