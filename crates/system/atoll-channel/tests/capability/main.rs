//! Tests of memory capabilities between real processes: mapped, copied by the system, copied by the owner, refused, revoked,
//! and with an owner that is killed.
//!
//! The program forks, so it cannot use the test harness with its threads: `cargo test -p atoll-channel --test capability [--
//! NAME]`. A test that takes longer than a minute is ended by SIGALRM.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../processes/child.rs"]
mod child;
#[path = "../../../atoll-transport/tests/shared/forked.rs"]
mod forked;
#[path = "../../../atoll-transport/tests/shared/one_by_one.rs"]
mod one_by_one;
mod served;
mod system;

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use atoll_channel::Node;
use atoll_channel::capability::{
    Access, AccessError, Description, ExportError, Given, Handle, Holder, ImportError, Limits, Means, Memory,
    Owner, Refused, Rights, Shared, Sharing, Span, With,
};

use crate::child::SECONDS;
use crate::forked::Child;
use crate::one_by_one::OneByOne;

/// The process with the memory.
const OWNER: Holder = Holder { node: Node(0), process: 0 };
/// The process at the other end.
const PEER: Holder = Holder { node: Node(0), process: 1 };

const LENGTH: u64 = 10_000;

fn main() {
    let tests: &[(&str, fn())] = &[
        ("a_reader_maps_memory_and_cannot_write_it", a_reader_maps_memory_and_cannot_write_it),
        ("a_writer_and_the_owner_see_each_other", a_writer_and_the_owner_see_each_other),
        ("what_a_mapping_cannot_hold_is_refused", what_a_mapping_cannot_hold_is_refused),
        ("a_mapping_outlives_its_killed_owner", a_mapping_outlives_its_killed_owner),
        ("renewed_memory_is_taken_from_who_was_revoked", renewed_memory_is_taken_from_who_was_revoked),
        ("nonsense_over_the_socket_is_an_error", nonsense_over_the_socket_is_an_error),
        ("the_owner_copies_and_refuses", served::the_owner_copies_and_refuses),
        ("a_killed_holder_leaves_nothing", served::a_killed_holder_leaves_nothing),
        ("memory_of_a_process_is_read_and_written", system::memory_of_a_process_is_read_and_written),
        ("a_killed_owner_is_an_error", system::a_killed_owner_is_an_error),
        ("a_new_program_in_the_owner_is_not_touched", system::a_new_program_in_the_owner_is_not_touched),
        ("a_file_is_fetched_by_its_number", system::a_file_is_fetched_by_its_number),
    ];
    let one_by_one = OneByOne::new(60);
    for (name, test) in tests {
        one_by_one.run(name, test);
    }
}

/// The byte at `at` of every memory in these tests.
fn byte(at: u64) -> u8 {
    (at * 31 + 7) as u8
}

/// An owner of one memory of `LENGTH` bytes, and the first capability to it.
fn owner(sharing: Sharing) -> (Owner, Handle) {
    let mut owner = Owner::new(OWNER, Limits::default()).unwrap();
    let memory = Memory::Shared(Shared::new(LENGTH as usize, sharing).unwrap());
    let root = owner.add(memory).unwrap();
    fill(&owner, root);
    (owner, root)
}

fn fill(owner: &Owner, root: Handle) {
    let bytes: Vec<u8> = (0..LENGTH).map(byte).collect();
    owner.copy_to(OWNER, root, 0, &bytes).unwrap();
}

fn whole() -> Span {
    Span { offset: 0, length: LENGTH }
}

/// Reads all bytes.
fn read(access: &Access) -> Vec<u8> {
    let mut bytes = vec![0; access.length() as usize];
    access.read_at(0, &mut bytes).unwrap();
    bytes
}

fn is_right(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, found)| *found == byte(at as u64))
}

/// Receives a description and imports it with the file that comes along.
fn import(stream: &UnixStream) -> Access {
    let (description, file) = Description::receive(stream, SECONDS).unwrap();
    description.import(With { file, ..With::default() }).unwrap()
}

fn a_reader_maps_memory_and_cannot_write_it() {
    let (mut owner, root) = owner(Sharing::Read);
    let (here, there) = UnixStream::pair().unwrap();
    let child = Child::run(|| {
        let (description, file) = Description::receive(&there, SECONDS).unwrap();
        let file = file.unwrap();
        let again = file.try_clone().unwrap();
        let access = description.import(With { file: Some(file), ..With::default() }).unwrap();
        assert!(matches!(access, Access::Mapping(_)));
        assert_eq!((access.length(), access.rights()), (LENGTH, Rights::READ));
        assert!(is_right(&read(&access)));
        let outside = access.read_at(LENGTH - 1, &mut [0; 2]);
        assert!(matches!(outside, Err(AccessError::Range { length: LENGTH, .. })));
        assert!(matches!(access.read_at(u64::MAX, &mut [0; 2]), Err(AccessError::Range { .. })));
        let refused = access.write_at(0, b"x");
        assert!(matches!(refused, Err(AccessError::Rights { missing: Rights::WRITE })));
        let direct = access.direct().unwrap();
        assert!(direct.as_mut_ptr().is_none());

        // A process that ignores the rights fails, too.
        let page = direct.as_ptr().cast_mut().cast();
        let write = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a page of our own, of which no reference exists.
        assert_eq!(unsafe { libc::mprotect(page, 4096, write) }, -1);
        for path in [None, Some(format!("/proc/self/fd/{}", again.as_raw_fd()))] {
            let file = match path {
                None => again.try_clone().unwrap().into(),
                Some(path) => std::fs::File::options().read(true).write(true).open(path).unwrap(),
            };
            // SAFETY: a new mapping.
            let mapped = unsafe {
                libc::mmap(std::ptr::null_mut(), 4096, write, libc::MAP_SHARED, file.as_raw_fd(), 0)
            };
            assert_eq!(mapped, libc::MAP_FAILED);
            assert!(std::os::unix::fs::FileExt::write_at(&file, b"x", 0).is_err());
            assert!(file.set_len(0).is_err());
        }
    });
    let rights = Rights::READ | Rights::COPY_FROM;
    let handle = owner.grant(OWNER, root, PEER, whole(), rights).unwrap();
    owner.export(PEER, handle, Means::Mapping).unwrap().send(&here, SECONDS).unwrap();
    assert!(child.ended_well());
    // The memory is unchanged.
    let mut bytes = vec![0; LENGTH as usize];
    owner.copy_from(OWNER, root, 0, &mut bytes).unwrap();
    assert!(is_right(&bytes));
}

fn a_writer_and_the_owner_see_each_other() {
    let (mut owner, root) = owner(Sharing::ReadWrite);
    let (here, there) = UnixStream::pair().unwrap();
    let child = Child::run(|| {
        let access = import(&there);
        assert!(is_right(&read(&access)));
        access.write_at(LENGTH - 5, b"hello").unwrap();
        // Tells that it is there.
        std::io::Write::write_all(&mut &there, b"!").unwrap();
        let mut word = [0; 5];
        while &word != b"world" {
            access.read_at(0, &mut word).unwrap();
            std::thread::yield_now();
        }
    });
    let rights = Rights::READ | Rights::WRITE;
    let handle = owner.grant(OWNER, root, PEER, whole(), rights).unwrap();
    owner.export(PEER, handle, Means::Mapping).unwrap().send(&here, SECONDS).unwrap();
    std::io::Read::read_exact(&mut &here, &mut [0]).unwrap();
    let mut word = [0; 5];
    owner.copy_from(OWNER, root, LENGTH - 5, &mut word).unwrap();
    assert_eq!(&word, b"hello");
    owner.copy_to(OWNER, root, 0, b"world").unwrap();
    assert!(child.ended_well());
}

fn what_a_mapping_cannot_hold_is_refused() {
    let (mut owner, root) = owner(Sharing::ReadWrite);
    let mut export = |part, rights| {
        let handle = owner.grant(OWNER, root, PEER, part, rights).unwrap();
        owner.export(PEER, handle, Means::Mapping).err().unwrap()
    };
    let both = Rights::READ | Rights::WRITE;
    // The file gives all of the memory, with both rights.
    assert!(matches!(export(whole(), Rights::READ), ExportError::More { would, .. } if would == both));
    assert!(matches!(export(whole(), Rights::WRITE), ExportError::More { .. }));
    let part = Span { offset: 0, length: LENGTH - 1 };
    assert!(matches!(export(part, both), ExportError::Part(span) if span == part));
    let copies = Rights::COPY_FROM | Rights::COPY_TO;
    let refused = export(whole(), copies);
    assert!(matches!(refused, ExportError::Refused(Refused::Rights { missing }) if missing == both));
    let handle = owner.grant(OWNER, root, PEER, whole(), both).unwrap();
    let refused = owner.export(OWNER, handle, Means::Mapping).err();
    assert!(matches!(refused, Some(ExportError::Refused(Refused::NotHolder))));
    // Nothing was given out.
    assert!(owner.revoke(OWNER, root).unwrap().iter().all(|one| one.given == Given::empty()));
}

fn a_mapping_outlives_its_killed_owner() {
    let (here, there) = UnixStream::pair().unwrap();
    let child = Child::run(|| {
        let (mut owner, root) = owner(Sharing::Read);
        let handle = owner.grant(OWNER, root, PEER, whole(), Rights::READ).unwrap();
        owner.export(PEER, handle, Means::Mapping).unwrap().send(&there, SECONDS).unwrap();
        std::thread::sleep(Duration::from_secs(50));
    });
    drop(there);
    let access = import(&here);
    child.kill();
    drop(child);
    assert!(is_right(&read(&access)));
    let gone = Description::receive(&here, SECONDS).unwrap_err();
    assert!(matches!(gone, atoll_channel::capability::HandOverError::Closed));
}

fn renewed_memory_is_taken_from_who_was_revoked() {
    const OTHER: Holder = Holder { node: Node(0), process: 2 };
    let (mut owner, root) = owner(Sharing::Read);
    let (here, there) = UnixStream::pair().unwrap();
    // The holder keeps the memory that it has, and is sent a second file when the first capability was revoked.
    let hostile = Child::run(|| {
        let access = import(&there);
        assert!(is_right(&read(&access)));
        std::io::Write::write_all(&mut &there, b"!").unwrap();
        std::io::Read::read_exact(&mut &there, &mut [0]).unwrap();
        assert!(read(&access).iter().all(|byte| *byte == 0));
    });
    let (to_other, other_end) = UnixStream::pair().unwrap();
    let faithful = Child::run(|| {
        let first = import(&other_end);
        assert!(is_right(&read(&first)));
        std::io::Write::write_all(&mut &other_end, b"!").unwrap();
        let second = import(&other_end);
        assert!(read(&first).iter().all(|byte| *byte == 0));
        assert!(is_right(&read(&second)));
    });
    let handle = owner.grant(OWNER, root, PEER, whole(), Rights::READ).unwrap();
    owner.export(PEER, handle, Means::Mapping).unwrap().send(&here, SECONDS).unwrap();
    let others = owner.grant(OWNER, root, OTHER, whole(), Rights::READ).unwrap();
    owner.export(OTHER, others, Means::Mapping).unwrap().send(&to_other, SECONDS).unwrap();
    for stream in [&here, &to_other] {
        std::io::Read::read_exact(&mut &*stream, &mut [0]).unwrap();
    }

    let gone = owner.delete(OWNER, handle).unwrap();
    assert_eq!((gone.len(), gone[0].holder, gone[0].given), (1, PEER, Given::MAPPING));
    assert!(matches!(
        owner.export(PEER, handle, Means::Mapping),
        Err(ExportError::Refused(Refused::Revoked))
    ));
    let tell = owner.renew(&gone[0].memory).unwrap();
    assert_eq!(tell, [(OTHER, others)]);
    std::io::Write::write_all(&mut &here, b"!").unwrap();
    owner.export(OTHER, others, Means::Mapping).unwrap().send(&to_other, SECONDS).unwrap();
    assert!(hostile.ended_well() && faithful.ended_well());
}

fn nonsense_over_the_socket_is_an_error() {
    let (mut owner, root) = owner(Sharing::Read);
    let good = owner.export(OWNER, root, Means::Mapping).unwrap();
    let body = postcard::to_allocvec(&good.description).unwrap();
    let send = |bytes: &[u8]| {
        let (here, there) = UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut &here, bytes).unwrap();
        drop(here);
        Description::receive(&there, SECONDS)
    };
    let framed = |body: &[u8]| [&(body.len() as u32).to_le_bytes(), body].concat();
    let (description, file) = send(&framed(&body)).unwrap();
    assert!(description == good.description && file.is_none());
    assert!(matches!(description.import(With::default()), Err(ImportError::NoProcess)));
    for bytes in
        [&[0xff; 100][..], &[255, 255, 255, 255], &framed(&body)[..20], &framed(&[]), &framed(&[0; 60]), &[]]
    {
        assert!(send(bytes).is_err(), "{bytes:?}");
    }
    let mut longer = body.clone();
    longer.push(0);
    assert!(send(&framed(&longer)).is_err());
    let (here, _there) = UnixStream::pair().unwrap();
    let late = Description::receive(&here, Some(Duration::from_millis(10)));
    assert!(matches!(late, Err(atoll_channel::capability::HandOverError::TimedOut)));
    // Any altered byte makes another description, or none; importing it fails or maps the file that came.
    for at in 0..body.len() {
        for bit in 0..8 {
            let mut altered = body.clone();
            altered[at] ^= 1 << bit;
            let Ok((description, _)) = send(&framed(&altered)) else { continue };
            let file = good.file().unwrap().try_clone_to_owned().unwrap();
            if let Ok(access) = description.import(With { file: Some(file), ..With::default() }) {
                assert!(access.length() <= LENGTH.next_multiple_of(4096));
                let _ = access.read_at(0, &mut [0]);
            }
        }
    }
    // A file that is not the one described.
    let wrong = |file: std::fs::File| {
        let file = Some(file.into());
        good.description.import(With { file, ..With::default() }).err().unwrap()
    };
    assert!(matches!(wrong(std::fs::File::open("/dev/null").unwrap()), ImportError::OtherFile));
}
