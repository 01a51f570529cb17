//! Mishaps with the other process and with files, for the engines that reach these.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use atoll_channel::Peer;
use atoll_channel::bulk::{
    Access, CopyError, Engine, FileIo, Helper, Memcpy, Memory, MemoryError, ProcessVm, Started, Transfer,
    Uring, Writers,
};

use crate::forked::Child;
use crate::suite::pattern;

/// The tests of this file.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_killed_process_is_an_error", a_killed_process_is_an_error),
    ("a_process_killed_under_a_transfer", a_process_killed_under_a_transfer),
    ("memory_the_process_unmapped", memory_the_process_unmapped),
    ("memory_the_process_may_not_write", memory_the_process_may_not_write),
    ("a_process_of_somebody_else", a_process_of_somebody_else),
    ("a_file_that_ends_early", a_file_that_ends_early),
    ("a_full_disk", a_full_disk),
    ("a_file_that_may_not_grow", a_file_that_may_not_grow),
    ("a_file_open_for_reading_only", a_file_open_for_reading_only),
    ("a_file_open_for_appending", a_file_open_for_appending),
    ("a_ring_that_is_refused", a_ring_that_is_refused),
    ("a_ring_that_is_refused_later", a_ring_that_is_refused_later),
    ("a_forked_child_drops_its_copy_of_a_ring", a_forked_child_drops_its_copy_of_a_ring),
    ("a_forked_child_drops_its_copy_of_a_helper", a_forked_child_drops_its_copy_of_a_helper),
];

const PAGE: u64 = 4096;

fn copy(engine: &mut dyn Engine, to: &Memory, from: &Memory, bytes: u64) -> Result<(), CopyError> {
    engine.copy(&Transfer::new(to, 0, from, 0, bytes)?)
}

/// The engines for files that can be used here.
fn file_engines() -> Vec<Box<dyn Engine>> {
    let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(FileIo)];
    if let Ok(ring) = Uring::new() {
        engines.push(Box::new(ring));
    }
    engines
}

/// A child with `pages` pages at an address, to which it did `first`.
fn with_pages(pages: u64, first: impl FnOnce(*mut libc::c_void)) -> (Child, Memory) {
    let bytes = pages * PAGE;
    let memory = Memory::new(bytes).unwrap();
    let base = memory.mapped_at().unwrap();
    memory.write(0, &pattern(1, bytes as usize)).unwrap();
    let child = Child::idle(|| first(base.as_ptr().cast()));
    let address = base.as_ptr().addr() as u64;
    let there = Memory::of_process(&child.peer(), address, bytes, Access::READ_WRITE).unwrap();
    (child, there)
}

fn a_killed_process_is_an_error() {
    let (child, there) = with_pages(4, |_| {});
    let here = Memory::new(4 * PAGE).unwrap();
    copy(&mut ProcessVm, &here, &there, 4 * PAGE).unwrap();
    let mut got = vec![0; 4 * PAGE as usize];
    here.read(0, &mut got).unwrap();
    assert!(got == pattern(1, got.len()));
    let peer = child.peer();
    child.kill();
    while !peer.died() {
        std::thread::yield_now();
    }
    // Before and after the child was waited for.
    assert_eq!(copy(&mut ProcessVm, &here, &there, 8), Err(CopyError::Died));
    assert_eq!(copy(&mut ProcessVm, &there, &here, 8), Err(CopyError::Died));
    assert!(!child.ended_well());
    assert_eq!(copy(&mut ProcessVm, &here, &there, 8), Err(CopyError::Died));
    assert_eq!(copy(&mut ProcessVm, &there, &here, 8), Err(CopyError::Died));
    assert!(Memory::of_process(&peer, 0, 8, Access::READ).is_err());
}

fn a_process_killed_under_a_transfer() {
    const PAGES: u64 = 4096;
    let here = Memory::new(PAGES * PAGE).unwrap();
    let mut died = 0;
    for round in 0..20u64 {
        let (child, there) = with_pages(PAGES, |_| {});
        let pid = child.pid;
        let killer = Child::run(move || {
            std::thread::sleep(Duration::from_micros(round * 400));
            // SAFETY: no pointers; a process that its parent has not waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        });
        for _ in 0..1000 {
            let (to, from) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
            match copy(&mut ProcessVm, to, from, PAGES * PAGE) {
                Ok(()) => {}
                Err(CopyError::Died) => {
                    died += 1;
                    break;
                }
                Err(e) => panic!("{e}"),
            }
        }
        assert!(killer.ended_well());
    }
    assert_eq!(died, 20);
}

fn memory_the_process_unmapped() {
    let (_child, there) = with_pages(4, |base| {
        // SAFETY: the child's own copy of the mapping; nothing there is used after.
        assert_eq!(unsafe { libc::munmap(base.byte_add(2 * PAGE as usize), PAGE as usize) }, 0);
    });
    let here = Memory::new(4 * PAGE).unwrap();
    assert_eq!(copy(&mut ProcessVm, &here, &there, 4 * PAGE), Err(CopyError::NotMapped));
    assert_eq!(copy(&mut ProcessVm, &there, &here, 4 * PAGE), Err(CopyError::NotMapped));
    copy(&mut ProcessVm, &here, &there, 2 * PAGE).unwrap();
    let behind = Transfer::new(&here, 0, &there, 3 * PAGE, PAGE).unwrap();
    ProcessVm.copy(&behind).unwrap();
    let hole = Transfer::new(&here, 0, &there, 2 * PAGE, 1).unwrap();
    assert_eq!(ProcessVm.copy(&hole), Err(CopyError::NotMapped));
}

fn memory_the_process_may_not_write() {
    let (_child, there) = with_pages(2, |base| {
        // SAFETY: the child's own copy of the mapping; nothing there is used after.
        assert_eq!(unsafe { libc::mprotect(base, 2 * PAGE as usize, libc::PROT_READ) }, 0);
    });
    let here = Memory::new(2 * PAGE).unwrap();
    copy(&mut ProcessVm, &here, &there, 2 * PAGE).unwrap();
    assert_eq!(copy(&mut ProcessVm, &there, &here, 2 * PAGE), Err(CopyError::NotMapped));
}

fn a_process_of_somebody_else() {
    // SAFETY: no pointers.
    if unsafe { libc::geteuid() } != 0 {
        atoll_skips::skip!("only root can become somebody else");
    }
    let memory = Memory::new(PAGE).unwrap();
    let address = memory.mapped_at().unwrap().as_ptr().addr() as u64;
    let parent = Peer::this().unwrap();
    let child = Child::run(|| {
        let there = Memory::of_process(&parent, address, PAGE, Access::READ_WRITE).unwrap();
        let here = Memory::new(PAGE).unwrap();
        copy(&mut ProcessVm, &here, &there, PAGE).unwrap();
        // SAFETY: no pointers; the child has one thread.
        assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
        assert_eq!(copy(&mut ProcessVm, &here, &there, PAGE), Err(CopyError::Denied));
        assert_eq!(copy(&mut ProcessVm, &there, &here, PAGE), Err(CopyError::Denied));
    });
    assert!(child.ended_well());
}

fn a_file_that_ends_early() {
    for mut engine in file_engines() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&pattern(2, 100_000), 0).unwrap();
        let memory = Memory::of_file(file, 0, 200_000, Access::READ).unwrap();
        let here = Memory::new(200_000).unwrap();
        assert_eq!(copy(&mut *engine, &here, &memory, 100_001), Err(CopyError::EndOfFile));
        copy(&mut *engine, &here, &memory, 100_000).unwrap();
        let mut got = vec![0; 100_000];
        here.read(0, &mut got).unwrap();
        assert!(got == pattern(2, 100_000));
    }
}

fn a_full_disk() {
    for mut engine in file_engines() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let full = Memory::of_file(full, 0, 1 << 20, Access::WRITE).unwrap();
        let here = Memory::new(1 << 20).unwrap();
        assert_eq!(copy(&mut *engine, &full, &here, 1 << 20), Err(CopyError::NoSpace));
    }
    // A small file system of our own, which becomes full in the middle of a transfer.
    let at = tempfile::tempdir().unwrap();
    let child = Child::run(|| {
        // SAFETY: no pointers; a child with one thread.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            atoll_skips::skip_part!("mounting a small file system needs root");
            return;
        }
        let target = std::ffi::CString::new(at.path().to_str().unwrap()).unwrap();
        // SAFETY: strings that end in 0.
        let mounted = unsafe {
            libc::mount(
                std::ptr::null(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            );
            libc::mount(c"none".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, c"size=256k".as_ptr().cast())
        };
        if mounted != 0 {
            atoll_skips::skip_part!("mounting a small file system is not permitted");
            return;
        }
        for mut engine in file_engines() {
            let file = File::create(at.path().join(engine.name())).unwrap();
            let memory = Memory::of_file(file.try_clone().unwrap(), 0, 1 << 20, Access::WRITE).unwrap();
            let here = Memory::new(1 << 20).unwrap();
            assert_eq!(copy(&mut *engine, &memory, &here, 1 << 20), Err(CopyError::NoSpace));
            file.set_len(0).unwrap();
            copy(&mut *engine, &memory, &here, 64 << 10).unwrap();
            file.set_len(0).unwrap();
        }
    });
    assert!(child.ended_well());
}

fn a_file_that_may_not_grow() {
    let child = Child::run(|| {
        // SAFETY: the limit is valid for the call; the signal's default would end the child.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: 100_000, rlim_max: 100_000 };
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
        }
        for mut engine in file_engines() {
            let memory = Memory::of_file(tempfile::tempfile().unwrap(), 0, 200_000, Access::WRITE).unwrap();
            let here = Memory::new(200_000).unwrap();
            copy(&mut *engine, &memory, &here, 100_000).unwrap();
            assert_eq!(copy(&mut *engine, &memory, &here, 100_001), Err(CopyError::TooLarge));
        }
    });
    assert!(child.ended_well());
    // Sealed memory, used as a file.
    let (_, file) = Memory::shared(PAGE, Writers::Maker).unwrap();
    let here = Memory::new(2 * PAGE).unwrap();
    for mut engine in file_engines() {
        let file = file.as_fd().try_clone_to_owned().unwrap();
        let memory = Memory::of_file(file, 0, 2 * PAGE, Access::WRITE).unwrap();
        assert_eq!(copy(&mut *engine, &memory, &here, 2 * PAGE), Err(CopyError::TooLarge));
    }
}

fn a_file_open_for_reading_only() {
    for mut engine in file_engines() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(named.path()).unwrap();
        let memory = Memory::of_file(file, 0, PAGE, Access::READ_WRITE).unwrap();
        let here = Memory::new(PAGE).unwrap();
        let refused = copy(&mut *engine, &memory, &here, PAGE);
        assert!(matches!(refused, Err(CopyError::NotAllowed { end: "destination", .. })), "{refused:?}");
    }
}

fn a_file_open_for_appending() {
    let named = tempfile::NamedTempFile::new().unwrap();
    let open = || OpenOptions::new().append(true).read(true).open(named.path()).unwrap();
    // Copies would go to the file's end, whatever their offset.
    let refused = Memory::of_file(open(), 0, PAGE, Access::READ_WRITE);
    assert!(matches!(refused, Err(MemoryError::Appending)));
    assert!(Memory::of_file(open(), 0, PAGE, Access::READ).is_ok());
}

/// Forbids this process a system call, which then fails with EPERM.
pub(crate) fn forbid(call: libc::c_long) {
    let code = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let program = [
        code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        code(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
        code(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program is valid for the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
    }
}

fn a_ring_that_is_refused() {
    let child = Child::run(|| {
        forbid(libc::SYS_io_uring_setup);
        assert!(Uring::new().is_err());
    });
    assert!(child.ended_well());
    let child = Child::run(|| {
        forbid(libc::SYS_io_uring_enter);
        assert!(Uring::new().is_err());
    });
    assert!(child.ended_well());
}

fn a_ring_that_is_refused_later() {
    let child = Child::run(|| {
        let Ok(mut ring) = Uring::new() else { return };
        let file = tempfile::tempfile().unwrap();
        let memory = Memory::of_file(file, 0, 10 * PAGE, Access::READ_WRITE).unwrap();
        let here = Memory::new(10 * PAGE).unwrap();
        here.write(0, &pattern(3, 10 * PAGE as usize)).unwrap();
        copy(&mut ring, &memory, &here, 10 * PAGE).unwrap();
        let back = Memory::new(10 * PAGE).unwrap();
        let mut finished = Vec::new();
        for page in 0..10 {
            let transfer = Transfer::new(&back, page * PAGE, &memory, page * PAGE, PAGE).unwrap();
            assert_eq!(ring.start(&transfer, page), Ok(Started::Pending));
            if page == 4 {
                // The kernel gets half of them; the others it never gets.
                ring.progress(&mut finished, Duration::ZERO);
                forbid(libc::SYS_io_uring_enter);
            }
        }
        while finished.len() < 10 {
            ring.progress(&mut finished, Duration::from_secs(1));
        }
        assert!(finished.iter().all(|(_, outcome)| outcome.is_ok()));
        copy(&mut ring, &back, &memory, 10 * PAGE).unwrap();
        let mut got = vec![0; 10 * PAGE as usize];
        back.read(0, &mut got).unwrap();
        assert!(got == pattern(3, got.len()));
    });
    assert!(child.ended_well());
}

fn a_forked_child_drops_its_copy_of_a_ring() {
    let Ok(mut ring) = Uring::new() else { return };
    let memory = Memory::of_file(tempfile::tempfile().unwrap(), 0, 100 * PAGE, Access::READ_WRITE).unwrap();
    let here = Memory::new(100 * PAGE).unwrap();
    let transfer = Transfer::new(&memory, 0, &here, 0, 100 * PAGE).unwrap();
    assert_eq!(ring.start(&transfer, 1), Ok(Started::Pending));
    let mut ring = Some(ring);
    let child = Child::run(|| drop(ring.take()));
    assert!(child.ended_well());
    let mut finished = Vec::new();
    let mut ring = ring.take().unwrap();
    while finished.is_empty() {
        ring.progress(&mut finished, Duration::MAX);
    }
    assert_eq!(finished, [(1, Ok(()))]);
}

fn a_forked_child_drops_its_copy_of_a_helper() {
    let mut helper = Some(Helper::new(Memcpy::PLAIN).unwrap());
    let child = Child::run(|| drop(helper.take()));
    assert!(child.ended_well());
    let (to, from) = (Memory::new(PAGE).unwrap(), Memory::new(PAGE).unwrap());
    copy(&mut helper.take().unwrap(), &to, &from, PAGE).unwrap();
}
