//! Makes Linux swap of its own: a compressed memory disk (zram) or a file, which is on only while a run needs it.
//!
//! Devices that were there before are not touched. The new device comes first by its priority, and is removed at the end.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::Error;

const PAGE: u64 = 4096;
const FLAG_PREFER: i32 = 0x8000;
const HIGHEST_PRIORITY: i32 = 32767;

/// A device to swap to, which is removed when dropped.
pub(crate) struct Swap {
    path: PathBuf,
    kind: Kind,
    bytes: u64,
    /// The device's name in the table: `zram (lz4)`, `file`.
    pub(crate) name: String,
}

enum Kind {
    /// The number of the zram device.
    Zram(u32),
    File,
}

/// A device to which the kernel swaps until this value is dropped.
pub(crate) struct On<'a>(&'a Swap);

impl Swap {
    /// Makes a zram device of `bytes` with `algorithm` that nothing else uses.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub(crate) fn zram(bytes: u64, algorithm: &str) -> Result<Swap, Error> {
        let add = Path::new("/sys/class/zram-control/hot_add");
        if !add.exists() {
            let tried =
                Command::new("modprobe").arg("zram").stdout(Stdio::null()).stderr(Stdio::null()).status();
            if !add.exists() {
                let tried = tried.map_or_else(|e| e.to_string(), |s| s.to_string());
                return Err(Error::said(format!("this kernel has no zram (modprobe zram: {tried})")));
            }
        }
        let number = fs::read_to_string(add).map_err(|e| Error::at("make a zram device by", add, e))?;
        let number = number
            .trim()
            .parse()
            .map_err(|e| Error::said(format!("the new zram device has no number: {e}")))?;
        let path = PathBuf::from(format!("/dev/zram{number}"));
        let swap = Swap { path, kind: Kind::Zram(number), bytes, name: format!("zram ({algorithm})") };
        let settings = [("comp_algorithm", algorithm.to_owned()), ("disksize", bytes.to_string())];
        for (setting, value) in settings {
            let file = PathBuf::from(format!("/sys/block/zram{number}/{setting}"));
            fs::write(&file, &value).map_err(|e| Error::at(&format!("write {value} to"), &file, e))?;
        }
        for _ in 0..100 {
            if swap.path.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let device = OpenOptions::new().write(true).open(&swap.path);
        let device = device.map_err(|e| Error::at("open", &swap.path, e))?;
        swap.finish(device)
    }

    /// Makes a swap file of `bytes` in `dir`.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub(crate) fn file(dir: &Path, bytes: u64) -> Result<Swap, Error> {
        let path = dir.join(format!("atoll-bench-{}.swap", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let mut file = file.map_err(|e| Error::at("make the swap file", &path, e))?;
        let swap = Swap { path, kind: Kind::File, bytes, name: "file".to_owned() };
        // The file is written out whole, as a swap file may have no holes.
        let zeros = vec![0; 1 << 20];
        let mut left = bytes;
        while left > 0 {
            crate::signals::check()?;
            let n = left.min(zeros.len() as u64);
            file.write_all(&zeros[..n as usize])
                .map_err(|e| Error::at("fill the swap file", &swap.path, e))?;
            left -= n;
        }
        swap.finish(file)
    }

    /// Writes the header and tries whether the kernel takes it.
    fn finish(self, mut file: File) -> Result<Swap, Error> {
        let written = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&header(self.bytes)));
        written
            .and_then(|()| file.sync_all())
            .map_err(|e| Error::at("write the header of", &self.path, e))?;
        drop(file);
        self.on()?;
        Ok(self)
    }

    fn c_path(&self) -> CString {
        // The path was made here and holds no NUL.
        CString::new(self.path.as_os_str().as_bytes()).unwrap_or_default()
    }

    /// Switches the device on.
    pub(crate) fn on(&self) -> Result<On<'_>, Error> {
        // SAFETY: the path is a C string.
        if unsafe { libc::swapon(self.c_path().as_ptr(), FLAG_PREFER | HIGHEST_PRIORITY) } != 0 {
            return Err(Error::at("swap to", &self.path, std::io::Error::last_os_error()));
        }
        Ok(On(self))
    }
}

/// Returns the first page of a swap device of `bytes`, as mkswap writes it: version 1, no bad pages.
fn header(bytes: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    let last = u32::try_from(bytes / PAGE - 1).unwrap_or(u32::MAX);
    page[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
    page[1028..1032].copy_from_slice(&last.to_le_bytes());
    page[PAGE as usize - 10..].copy_from_slice(b"SWAPSPACE2");
    page
}

impl Drop for On<'_> {
    fn drop(&mut self) {
        // SAFETY: the path is a C string. It can be refused for a moment while a killed program is still there.
        let off = || unsafe { libc::swapoff(self.0.c_path().as_ptr()) } == 0;
        for _ in 0..50 {
            if off() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!(
            "out-of-core: swapoff {} failed: {}",
            self.0.path.display(),
            std::io::Error::last_os_error()
        );
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let undone = match self.kind {
            Kind::Zram(number) => fs::write(format!("/sys/block/zram{number}/reset"), "1")
                .and_then(|()| fs::write("/sys/class/zram-control/hot_remove", number.to_string())),
            Kind::File => fs::remove_file(&self.path),
        };
        if let Err(error) = undone {
            eprintln!("out-of-core: {} could not be removed: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_as_mkswap_writes_it() {
        let page = header(64 << 20);
        assert_eq!(page.len(), 4096);
        assert_eq!(&page[4086..], b"SWAPSPACE2");
        assert_eq!(page[1024..1032], [1, 0, 0, 0, 0xff, 0x3f, 0, 0]);
        assert_eq!(page[1032..1036], [0; 4]);
    }
}
