//! Tests of memory that the system copies between two processes, and of files that it hands out by their number.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::ptr::NonNull;
use std::time::Duration;

use atoll_channel::Peer;
use atoll_channel::capability::{
    Access, AccessError, Description, Handle, ImportError, Limits, Means, Memory, Owner, Place, Private,
    Rights, Shared, Sharing, Span, With,
};

use crate::child::SECONDS;
use crate::forked::Child;
use crate::{LENGTH, OWNER, PEER, byte, fill, is_right, owner, read, whole};

/// An owner in a child, of `LENGTH` bytes of its heap, that exports the bytes from 1,000 to 9,000 with both rights, and calls
/// `then` when it receives a byte.
fn private_owner(then: impl FnOnce(&Owner, Handle)) -> (Child, Peer, UnixStream, Description) {
    let (here, there) = UnixStream::pair().unwrap();
    let child = Child::run(|| {
        let mut bytes = vec![0u8; LENGTH as usize];
        let mut owner = Owner::new(OWNER, Limits::default()).unwrap();
        let base = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: the block is there until the process ends, and used through the owner only.
        let private = unsafe { Private::new(base, bytes.len()) };
        let root = owner.add(Memory::Private(private)).unwrap();
        fill(&owner, root);
        let part = Span { offset: 1000, length: 8000 };
        let handle = owner.grant(OWNER, root, PEER, part, Rights::READ | Rights::WRITE).unwrap();
        assert!(owner.export(PEER, handle, Means::Mapping).is_err());
        owner.export(PEER, handle, Means::Process).unwrap().send(&there, SECONDS).unwrap();
        std::io::Read::read_exact(&mut &there, &mut [0]).unwrap();
        then(&owner, root);
    });
    drop(there);
    let peer = Peer::process(child.pid as u32).unwrap();
    let (description, file) = Description::receive(&here, SECONDS).unwrap();
    assert!(file.is_none());
    (child, peer, here, description)
}

/// Imports with the system's permission; if that is missing, marks the test as skipped.
fn import(description: &Description, owner: &Peer) -> Option<Access> {
    match description.import(With { owner: Some(owner), ..With::default() }) {
        Ok(access) => Some(access),
        Err(e @ ImportError::NotAllowed) => {
            atoll_skips::whole(format_args!("{e}"));
            None
        }
        Err(e) => panic!("{e}"),
    }
}

pub(crate) fn memory_of_a_process_is_read_and_written() {
    let (child, peer, stream, description) = private_owner(|owner, root| {
        let mut written = [0; 2];
        owner.copy_from(OWNER, root, 8999, &mut written).unwrap();
        assert_eq!(written, [b'x', byte(9000)]);
    });
    let Some(access) = import(&description, &peer) else { return };
    assert!(matches!(access, Access::Process(_)) && access.direct().is_none());
    let mut bytes = vec![0; LENGTH as usize];
    access.read_at(0, &mut bytes[1000..9000]).unwrap();
    assert!(bytes[1000..9000].iter().enumerate().all(|(at, found)| *found == byte(at as u64 + 1000)));
    access.write_at(7999, b"x").unwrap();
    let mut last = [0];
    access.read_at(7999, &mut last).unwrap();
    assert_eq!(&last, b"x");
    assert!(matches!(access.read_at(7999, &mut [0; 2]), Err(AccessError::Range { .. })));
    assert!(matches!(access.write_at(u64::MAX, b"x"), Err(AccessError::Range { .. })));

    let less = Description { rights: Rights::READ, ..description.clone() };
    let reader = import(&less, &peer).unwrap();
    let refused = reader.write_at(0, b"x");
    assert!(matches!(refused, Err(AccessError::Rights { missing: Rights::WRITE })));

    let at =
        |address, length| Description { place: Place::Process { address }, length, ..description.clone() };
    for (address, length) in [(u64::MAX, 1), (1, u64::MAX), (i64::MAX as u64, 1)] {
        let refused = at(address, length).import(With { owner: Some(&peer), ..With::default() });
        assert!(matches!(refused, Err(ImportError::Address { .. })));
    }
    let nowhere = import(&at(4096, 10), &peer).unwrap();
    assert!(matches!(nowhere.read_at(0, &mut [0]), Err(AccessError::Unmapped)));
    assert!(matches!(description.import(With::default()), Err(ImportError::NoProcess)));
    std::io::Write::write_all(&mut &stream, b"!").unwrap();
    assert!(child.ended_well());
}

pub(crate) fn a_killed_owner_is_an_error() {
    let (child, peer, _stream, description) = private_owner(|_, _| {});
    let Some(access) = import(&description, &peer) else { return };
    access.read_at(0, &mut [0; 10]).unwrap();
    child.kill();
    drop(child);
    assert!(matches!(access.read_at(0, &mut [0; 10]), Err(AccessError::OwnerGone)));
    assert!(matches!(access.write_at(0, &[0; 10]), Err(AccessError::OwnerGone)));
    let late = description.import(With { owner: Some(&peer), ..With::default() });
    assert!(matches!(late, Err(ImportError::OwnerGone)));
}

pub(crate) fn a_new_program_in_the_owner_is_not_touched() {
    let (child, peer, stream, description) = private_owner(|_, _| {
        panic!("{}", std::process::Command::new("sleep").arg("50").exec());
    });
    let Some(access) = import(&description, &peer) else { return };
    access.read_at(0, &mut [0; 10]).unwrap();
    let program = format!("/proc/{}/comm", child.pid);
    std::io::Write::write_all(&mut &stream, b"!").unwrap();
    while std::fs::read_to_string(&program).unwrap().trim() != "sleep" {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!peer.died());
    assert!(matches!(access.read_at(0, &mut [0; 10]), Err(AccessError::OwnerGone)));
    assert!(matches!(access.write_at(0, &[0; 10]), Err(AccessError::OwnerGone)));
}

pub(crate) fn a_file_is_fetched_by_its_number() {
    let (here, there) = UnixStream::pair().unwrap();
    let child = Child::run(|| {
        let (mut owner, root) = owner(Sharing::Read);
        let handle = owner.grant(OWNER, root, PEER, whole(), Rights::READ).unwrap();
        let export = owner.export(PEER, handle, Means::Mapping).unwrap();
        let number = export.file().unwrap().as_raw_fd();
        export.send(&there, SECONDS).unwrap();
        drop(export);
        std::io::Read::read_exact(&mut &there, &mut [0]).unwrap();
        // All of it is gone, and another file gets its number.
        owner.delete(OWNER, root).unwrap();
        let other = Shared::new(LENGTH as usize, Sharing::Read).unwrap();
        std::io::Write::write_all(&mut &there, &number.to_le_bytes()).unwrap();
        std::io::Read::read_exact(&mut &there, &mut [0]).unwrap();
        drop(other);
    });
    let peer = Peer::process(child.pid as u32).unwrap();
    let (description, _file) = Description::receive(&here, SECONDS).unwrap();
    let Some(access) = import(&description, &peer) else { return };
    assert!(matches!(access, Access::Mapping(_)) && is_right(&read(&access)));
    std::io::Write::write_all(&mut &here, b"!").unwrap();
    std::io::Read::read_exact(&mut &here, &mut [0; 4]).unwrap();
    let other = description.import(With { owner: Some(&peer), ..With::default() });
    assert!(matches!(other, Err(ImportError::OtherFile)));
    std::io::Write::write_all(&mut &here, b"!").unwrap();
    assert!(child.ended_well());
}
