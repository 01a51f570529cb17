//! Makes memory that an owner described accessible in this process.
//!
//! The other side of `owner.rs`. The owner is not believed: at worst the memory is not what the description says, and reading
//! it gives arbitrary bytes; no address of this process is ever taken from it.
//!
//! Source: the barrelfish paper, section 6.6.3 (a capability becomes its local equivalent when it arrives).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

use crate::Peer;
use crate::capability::access::{Access, Remote};
use crate::capability::description::{Description, FileId, MOST_KEY, Place};
use crate::capability::in_process::InProcess;
use crate::capability::memory::Direct;
use crate::capability::pages::Pages;
use crate::capability::rights::Rights;
use crate::capability::transport::Reach;
use atoll_transport::memory_file::{FileError, PAGE, sealed_size};

/// The reasons why memory cannot be reached from here.
#[derive(thiserror::Error, Debug)]
pub enum ImportError {
    /// The description has other rights than those to read or to write.
    #[error("the owner describes memory with the rights {0}, by which it cannot be reached")]
    Rights(Rights),
    /// The description came without the file, and the owner's process is not known.
    #[error("the owner's process is not known, and neither did a file come along")]
    NoProcess,
    /// The owner's process has ended.
    #[error("the owner of the memory is gone")]
    OwnerGone,
    /// The system does not let this process access the other one's memory.
    #[error(
        "the system does not let this process reach the owner's memory: have the owner copy, or see kernel.yama.ptrace_scope"
    )]
    NotAllowed,
    /// The file is another one.
    #[error("the file is not the one that the owner describes")]
    OtherFile,
    /// The file's size is not sealed, so its owner could truncate it while it is mapped.
    #[error("the file is not memory of atoll's: its size is not sealed, or it is not ordinary memory")]
    NotMemory,
    /// The file is shorter than the memory in it.
    #[error("the file has {bytes} bytes, and the owner describes {length}")]
    Short {
        /// The file's size in bytes.
        bytes: u64,
        /// The size in the description.
        length: u64,
    },
    /// No process can have such addresses.
    #[error("no process has {length} bytes at {address:#x}")]
    Address {
        /// The address.
        address: u64,
        /// The length in bytes.
        length: u64,
    },
    /// The memory is at another node, and no transport was given.
    #[error("the memory is at another node, and no transport leads there")]
    NoTransport,
    /// The key is longer than any.
    #[error("the key has {0} bytes, and may have {MOST_KEY}")]
    Key(usize),
    /// The system or the transport refuses a call; the text names it.
    #[error("{0}: {1}")]
    Os(&'static str, #[source] io::Error),
}

/// What this process has of the owner besides the description.
#[derive(Default)]
pub struct With<'a> {
    /// The file that came along. Without it, the file is fetched from the owner, which needs a debugger's permission.
    pub file: Option<OwnedFd>,
    /// The owner's process, if it is on this machine.
    pub owner: Option<&'a Peer>,
    /// The transport that the key is for.
    pub transport: Option<&'a dyn Reach>,
}

impl Description {
    /// Makes the memory accessible here, until the result is dropped.
    pub fn import(&self, with: With<'_>) -> Result<Access, ImportError> {
        let (length, rights) = (self.length, self.rights);
        if rights.is_empty() || !(Rights::READ | Rights::WRITE).contains(rights) {
            return Err(ImportError::Rights(rights));
        }
        match &self.place {
            Place::File(id) => {
                let file = match (with.file, with.owner) {
                    (Some(file), _) => file,
                    (None, Some(owner)) => fetch(owner, *id)?,
                    (None, None) => return Err(ImportError::NoProcess),
                };
                map(file.as_fd(), *id, length, rights).map(Access::Mapping)
            }
            Place::Process { address } => {
                let owner = with.owner.ok_or(ImportError::NoProcess)?;
                InProcess::new(owner, *address, length, rights).map(Access::Process)
            }
            Place::Remote { base, key } => {
                if key.len() > MOST_KEY {
                    return Err(ImportError::Key(key.len()));
                }
                let transport = with.transport.ok_or(ImportError::NoTransport)?;
                let (owner, base) = (self.handle.node, *base);
                let memory = transport
                    .reach(owner, base, length, key)
                    .map_err(|e| ImportError::Os("reaching memory of another node", e))?;
                Ok(Access::Remote(Remote { owner, base, length, rights, memory }))
            }
        }
    }
}

impl FileId {
    pub(super) fn of(file: impl AsFd) -> io::Result<FileId> {
        let file = file.as_fd();
        let about = rustix::fs::fstat(file)?;
        Ok(FileId { number: file.as_raw_fd(), device: about.st_dev, inode: about.st_ino })
    }
}

/// Fetches the owner's file by its number there.
fn fetch(owner: &Peer, id: FileId) -> Result<OwnedFd, ImportError> {
    pidfd_getfd(owner.descriptor(), id.number, PidfdGetfdFlags::empty()).map_err(|e| match e {
        Errno::PERM | Errno::ACCESS => ImportError::NotAllowed,
        Errno::SRCH => ImportError::OwnerGone,
        // The owner has no such descriptor, or not any more.
        Errno::BADF => ImportError::OtherFile,
        e => ImportError::Os("pidfd_getfd", e.into()),
    })
}

/// Maps a file that an owner handed over.
fn map(file: BorrowedFd<'_>, id: FileId, length: u64, rights: Rights) -> Result<Direct, ImportError> {
    let found = FileId::of(file).map_err(|e| ImportError::Os("fstat", e))?;
    if (found.device, found.inode) != (id.device, id.inode) {
        return Err(ImportError::OtherFile);
    }
    let bytes = sealed_size(file, SealFlags::SHRINK | SealFlags::GROW).map_err(|e| match e {
        FileError::NotSealed | FileError::NotMemory => ImportError::NotMemory,
        FileError::Os(what, why) => ImportError::Os(what, why),
    })?;
    let short = ImportError::Short { bytes, length };
    let whole = usize::try_from(length).ok().and_then(|length| length.checked_next_multiple_of(PAGE));
    let whole = whole.filter(|whole| *whole > 0 && *whole as u64 <= bytes).ok_or(short)?;
    let pages = Pages::map(file, whole, rights.contains(Rights::WRITE)).map_err(|e| match e.kind() {
        io::ErrorKind::PermissionDenied => ImportError::NotAllowed,
        _ => ImportError::Os("mmap", e),
    })?;
    Ok(Direct::mapped(pages, length as usize, rights))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;
    use crate::capability::handle::Handle;
    use crate::capability::shared::{Shared, Sharing};
    use atoll_transport::Node;

    fn describe(file: &OwnedFd, length: u64, rights: Rights) -> Description {
        let handle = Handle { node: Node(0), slot: 0, generation: 0, check: 0 };
        Description { handle, length, rights, place: Place::File(FileId::of(file).unwrap()) }
    }

    fn import(file: &OwnedFd, description: &Description) -> Result<Access, ImportError> {
        description.import(With { file: Some(file.try_clone().unwrap()), ..With::default() })
    }

    #[test]
    fn files_that_could_end_this_process_are_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("atoll-test", flags).unwrap();
        ftruncate(&file, 8192).unwrap();
        let whole = describe(&file, 8192, Rights::READ);
        assert!(matches!(import(&file, &whole), Err(ImportError::NotMemory)));
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        assert!(matches!(import(&file, &whole), Err(ImportError::NotMemory)));
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(import(&file, &whole).is_ok());
        for length in [0, 8193, u64::MAX, u64::MAX - 4095, i64::MAX as u64] {
            let other = describe(&file, length, Rights::READ);
            let refused = import(&file, &other);
            assert!(matches!(refused, Err(ImportError::Short { bytes: 8192, .. })), "{length}");
        }
        for rights in [Rights::empty(), Rights::COPY_FROM, Rights::READ | Rights::GRANT] {
            let refused = import(&file, &describe(&file, 8192, rights));
            assert!(matches!(refused, Err(ImportError::Rights(had)) if had == rights));
        }
        // A file on a disk, or a device, has no seals.
        let disk = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let refused = import(&disk, &describe(&disk, 10, Rights::READ));
        assert!(matches!(refused, Err(ImportError::NotMemory)));
        let other = memfd_create("atoll-test", flags).unwrap();
        assert!(matches!(import(&other, &whole), Err(ImportError::OtherFile)));
    }

    #[test]
    fn an_owner_that_lies_about_rights_gets_an_error() {
        let shared = Shared::new(10, Sharing::Read).unwrap();
        let both = describe(&shared.file().unwrap(), 10, Rights::READ | Rights::WRITE);
        assert!(matches!(import(&shared.file().unwrap(), &both), Err(ImportError::NotAllowed)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_description_or_an_error(bytes: Vec<u8>, file: bool) {
            let shared = Shared::new(10, Sharing::ReadWrite).unwrap();
            if let Ok(description) = postcard::from_bytes::<Description>(&bytes) {
                let file = file.then(|| shared.file().unwrap().try_clone().unwrap());
                let _ = description.import(With { file, ..With::default() });
            }
        }
    }
}
