//! What single stores promise beyond the suite: the file and its disk, compression, memory with a file behind it.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use atoll_memory::far::pressure::Left;
use atoll_memory::far::{Access, AnyFar, FarConfig, FarError, FarOp, FarStore, Transfer};

use crate::pages::Near;
use crate::{FILE, attached, child, config, expect, make, put, succeeded};

/// The store's file, by a descriptor through the page cache.
fn reopened(store: &AnyFar) -> std::fs::File {
    let AnyFar::File(inner) = store else { panic!("not a file store") };
    let name = format!("/proc/self/fd/{}", inner.as_fd().as_raw_fd());
    std::fs::File::options().read(true).write(true).open(name).unwrap()
}

#[test]
fn a_damaged_byte_in_the_file_is_found() {
    for page_size in [4 << 10, 64 << 10, 2 << 20] {
        let store = make(FILE, &config(page_size));
        let mut lane = attached(&store, 0);
        let near = Near::new(4, page_size);
        let all: Vec<_> = (0..4).map(|i| near.transfer(i as u64, i)).collect();
        (0..4).for_each(|i| near.fill(i, 3, i as u64));
        store.store(&mut lane, &all).unwrap();
        let at = 2 * page_size as u64 + 1234;
        let mut byte = [0];
        let file = reopened(&store);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        file.sync_all().unwrap();
        assert_eq!(store.load(&mut lane, &all), Err(FarError::Damaged { page: 2 }));
        assert_eq!(store.load(&mut lane, &all[..2]), Ok(()));
        assert_eq!(store.load(&mut lane, &all[3..]), Ok(()));
        // A store heals it.
        near.fill(2, 3, 99);
        store.store(&mut lane, &all[2..3]).unwrap();
        store.load(&mut lane, &all).unwrap();
        assert!(near.is(2, 3, 99));
    }
}

/// Forbids io_uring to this process as a container does: the call fails with EPERM.
fn forbid_rings() {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let setup = libc::SYS_io_uring_setup as u32;
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, setup),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is valid during the call and concerns this process alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn without_io_uring_the_file_serves_all_the_same() {
    for page_size in [4 << 10, 64 << 10, 2 << 20] {
        let store = make(FILE, &config(page_size));
        let near = Near::new(12, page_size);
        let pid = child(|| {
            forbid_rings();
            let mut lane = attached(&store, 0);
            assert!(!lane.has_ring());
            let all: [Transfer; 12] = std::array::from_fn(|i| near.transfer((i + i / 4) as u64, i));
            (0..12).for_each(|i| near.fill(i, 3, i as u64));
            store.store(&mut lane, &all).unwrap();
            (0..12).for_each(|i| near.fill(i, 0, 0));
            store.load(&mut lane, &all).unwrap();
            (0..12).all(|i| near.is(i, 3, i as u64))
        });
        assert!(succeeded(pid), "{page_size}");
    }
}

#[test]
fn unchanged_pages_are_not_written_again() {
    let store = make(FILE, &config(4096));
    let mut lane = attached(&store, 0);
    let near = Near::new(8, 4096);
    let all: Vec<_> = (0..8).map(|i| near.transfer(i as u64, i)).collect();
    (0..8).for_each(|i| near.fill(i, 3, i as u64));
    store.store(&mut lane, &all).unwrap();
    store.load(&mut lane, &all).unwrap();
    near.fill(3, 3, 33);
    store.store(&mut lane, &all).unwrap();
    let usage = store.usage();
    assert_eq!((usage.writes_avoided, usage.bytes_stored), (7, 9 * 4096));
    near.fill(3, 0, 0);
    store.load(&mut lane, &all).unwrap();
    assert!(near.is(3, 3, 33) && near.is(4, 3, 4));
}

#[test]
fn what_memory_has_no_room_for_goes_to_the_file_and_comes_back() {
    for page_size in [4 << 10, 64 << 10] {
        let store = make("auto", &config(page_size));
        let mut lane = attached(&store, 0);
        let near = Near::new(1, page_size);
        let pages = 3 * (1 << 20) / page_size as u64;
        for round in 0..3 {
            // Pages that shrink and pages that do not change places from one round to the next.
            for page in 0..pages {
                put(&store, &mut lane, &near, page, page + round, page + 1000 * round).unwrap();
            }
            for page in 0..pages {
                expect(&store, &mut lane, &near, page, page + round, page + 1000 * round);
            }
            let usage = store.usage();
            assert_eq!(usage.pages_held, pages);
            assert!(usage.bytes_after <= usage.bytes_before, "{usage:?}");
        }
        store.discard(0, pages);
        assert_eq!((store.usage().pages_held, store.usage().bytes_after), (0, 0));
    }
}

/// Where far memory counts as near, a page that lies in memory as it is would take the place of the page that it made room for.
#[test]
fn memory_that_counts_as_near_holds_what_shrinks() {
    for page_size in [4 << 10, 64 << 10] {
        let pages = (4 << 20) / page_size as u64;
        let config = FarConfig { counts_as_near: true, memory_bytes: 16 << 20, ..config(page_size) };
        // Equal words and random ones.
        for (kind, most) in [(1, 1 << 20), (3, 1 << 20)] {
            let store = make("auto", &config);
            let mut lane = attached(&store, 0);
            let near = Near::new(1, page_size);
            for page in 0..pages {
                put(&store, &mut lane, &near, page, kind, page).unwrap();
            }
            let memory = store.memory_bytes();
            assert!(memory <= most, "kind {kind}: {memory} of {} bytes", pages * page_size as u64);
            for page in 0..pages {
                expect(&store, &mut lane, &near, page, kind, page);
            }
        }
    }
}

/// A page that came back kept its copy in compressed memory, which was taken off near memory: one page had the place of two.
#[test]
fn memory_that_counts_as_near_held_copies_of_near_pages() {
    for page_size in [4 << 10, 64 << 10] {
        let pages = (4 << 20) / page_size as u64;
        for (name, counts_as_near) in [("auto", true), ("lz4", true), ("zstd", true), ("lz4", false)] {
            let config = FarConfig { counts_as_near, memory_bytes: 16 << 20, ..config(page_size) };
            let store = make(name, &config);
            let mut lane = attached(&store, 0);
            let near = Near::new(1, page_size);
            // Words that differ and shrink.
            for page in 0..pages {
                put(&store, &mut lane, &near, page, 2, page).unwrap();
            }
            let before = store.usage().bytes_after;
            for page in 0..pages {
                expect(&store, &mut lane, &near, page, 2, page);
                let holds = store.let_go(page);
                assert_eq!(holds, !counts_as_near, "{name}");
            }
            let expected = if counts_as_near { 0 } else { before };
            assert_eq!(store.usage().bytes_after, expected, "{name}");
        }
    }
}

/// What compressed memory held and nobody used again stayed there for ever, where the budget had become smaller.
#[test]
fn pages_go_behind_memory_that_counts_as_near_and_come_back() {
    let config = FarConfig { counts_as_near: true, memory_bytes: 16 << 20, ..config(4096) };
    let store = make("auto", &config);
    let mut lane = attached(&store, 0);
    let near = Near::new(4, 4096);
    for page in 0..256 {
        put(&store, &mut lane, &near, page, 2, page).unwrap();
    }
    assert!(store.memory_bytes() > 0 && store.next_to_move().is_none(), "within the budget");
    let pages: Vec<Transfer> = (0..4).map(|i| near.transfer(i as u64 * 64, i)).collect();
    store.move_pages(&mut lane, &pages);
    for page in 0..256 {
        expect(&store, &mut lane, &near, page, 2, page);
        // Compressed memory has room for it when it leaves again.
        assert!(!store.let_go(page), "page {page} came from the file or from memory");
    }
    assert_eq!(store.usage().pages_held, 0);
}

/// Compressed memory held chunks that were nearly empty, as pages came and went, and pages lay in the file for want of the room there.
#[test]
fn memory_between_compressed_pages_is_gathered() {
    for (name, counts_as_near) in [("auto", true), ("lz4", true), ("lz4", false)] {
        let config = FarConfig { counts_as_near, memory_bytes: 64 << 20, ..config(4096) };
        let store = make(name, &config);
        let mut lane = attached(&store, 0);
        let near = Near::new(4, 4096);
        let stays = |page: &u64| page % 8 == 3;
        for page in 0..8192 {
            put(&store, &mut lane, &near, page, 2, page).unwrap();
        }
        let full = store.memory_bytes();
        (0..8192).filter(|page| !stays(page)).for_each(|page| store.discard(page, 1));
        // Some calls find nothing among the pages that they look at.
        for _ in 0..10_000 {
            let pages: Vec<Transfer> =
                (0..4).filter_map(|i| Some(near.transfer(store.next_to_move()?, i))).collect();
            store.move_pages(&mut lane, &pages);
        }
        let memory = store.memory_bytes();
        assert!(memory < full / 2, "{name}: {memory} bytes of {full} for an eighth of the pages");
        for page in (0..8192).filter(stays) {
            expect(&store, &mut lane, &near, page, 2, page);
        }
    }
}

#[test]
fn a_file_that_may_grow_no_further_fails_and_loses_nothing() {
    let store = make(FILE, &config(4096));
    let near = Near::new(16, 4096);
    let pid = child(|| {
        let mut lane = attached(&store, 0);
        let all: [Transfer; 16] = std::array::from_fn(|i| near.transfer(i as u64, i));
        (0..16).for_each(|i| near.fill(i, 3, i as u64));
        let limit = libc::rlimit { rlim_cur: 8 * 4096, rlim_max: 8 * 4096 };
        // SAFETY: settings of this child alone.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
        }
        let error = store.store(&mut lane, &all);
        assert_eq!(error, Err(FarError::Io { errno: libc::EFBIG, op: FarOp::Write }));
        assert_eq!(store.usage().pages_held, 8);
        store.load(&mut lane, &all[..8]).unwrap();
        assert_eq!(store.load(&mut lane, &all[8..9]), Err(FarError::NotStored { page: 8 }));
        (0..16).all(|i| near.is(i, 3, i as u64))
    });
    assert!(succeeded(pid));
}

#[test]
fn a_full_disk_fails_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let near = Near::new(64, 65536);
    let pid = child(|| {
        let target = std::ffi::CString::new(dir.path().to_str().unwrap()).unwrap();
        let (none, private) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
        let size = c"size=2M".as_ptr().cast();
        // SAFETY: strings end in 0; the mount is in a namespace of this child's own and ends with it.
        let mounted = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(none, c"/".as_ptr(), none, private, none.cast()) == 0
                && libc::mount(c"far".as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, size) == 0
        };
        if !mounted {
            atoll_skips::whole(format_args!("mounting a small disk needs root"));
            return true;
        }
        let store = make(&format!("file:{}", dir.path().display()), &config(65536));
        let mut lane = attached(&store, 0);
        let all: [Transfer; 64] = std::array::from_fn(|i| near.transfer(2 * i as u64, i));
        (0..64).for_each(|i| near.fill(i, 3, i as u64));
        let error = store.store(&mut lane, &all);
        assert_eq!(error, Err(FarError::Io { errno: libc::ENOSPC, op: FarOp::Write }));
        let held = store.usage().pages_held;
        assert!((20..=32).contains(&held), "{held} pages");
        let there = all.iter().filter(|t| store.load(&mut lane, std::slice::from_ref(t)).is_ok()).count();
        assert_eq!(there as u64, held);
        // Room returns by a discard.
        store.discard(0, 40);
        store.store(&mut lane, &all[..4]).unwrap();
        store.load(&mut lane, &all[..4]).unwrap();
        (0..64).all(|i| near.is(i, 3, i as u64))
    });
    assert!(succeeded(pid));
}

/// A page that did not shrink lies in compressed memory as it is, and is packed again once it does shrink.
#[test]
fn pages_that_do_not_shrink_are_shown_directly() {
    for spec in ["lz4", "zstd"] {
        let store = make(spec, &config(65536));
        let mut lane = attached(&store, 0);
        let near = Near::new(2, 65536);
        for (kind, plain) in [(3, true), (3, true), (5, false), (1, false), (3, true)] {
            near.fill(0, kind, 4);
            store.store(&mut lane, &[near.transfer(9, 0)]).unwrap();
            let shown = store.direct(&lane, 9, Access::Load).unwrap();
            assert_eq!(shown.is_some(), plain, "{spec}, kind {kind}");
            if let Some(far) = shown {
                // SAFETY: both hold a page.
                unsafe { std::ptr::copy_nonoverlapping(far, near.at(1), 65536) };
                assert!(near.is(1, kind, 4), "{spec}");
            }
            expect(&store, &mut lane, &near, 9, kind, 4);
        }
    }
}

#[test]
fn plain_memory_is_shown_directly() {
    let store = make("ram", &config(65536));
    let mut lane = attached(&store, 0);
    let near = Near::new(1, 65536);
    assert_eq!(store.direct(&lane, 9, Access::Load), Err(FarError::NotStored { page: 9 }));
    let far = store.direct(&lane, 9, Access::Store).unwrap().unwrap();
    near.fill(0, 3, 4);
    // SAFETY: both hold a page.
    unsafe { std::ptr::copy_nonoverlapping(near.at(0), far, 65536) };
    expect(&store, &mut lane, &near, 9, 3, 4);
    assert_eq!(store.direct(&lane, 9, Access::Load), Ok(Some(far)));
    for spec in ["lz4", "zstd", FILE, "hosts"] {
        assert_eq!(make(spec, &config(65536)).direct(&lane, 9, Access::Load), Ok(None));
    }
}

#[test]
fn wrong_settings_are_refused_in_words() {
    let refused = |spec: &str, config| {
        let error = AnyFar::new(&spec.parse().unwrap(), &config).err().expect("refused");
        error.to_string()
    };
    let odd = FarConfig { page_size: 12288, ..config(4096) };
    assert!(refused("lz4", odd).contains("power of two"));
    assert!(refused("ram", FarConfig { lanes: 0, ..config(4096) }).contains("lane"));
    assert!(refused("hosts", config(4096)).contains("atoll lend SIZE"));
    let text = refused("file:/var/tmp/no/such/place", config(4096));
    assert!(text.contains("No such file") && text.contains("--far file:DIR"), "{text}");
}

/// Pages that stay where they lie count as those that lie plainly in memory, and no other tier has them.
#[test]
fn pages_that_stay_in_place_are_held_once() {
    // A quarter of the memory is for plain pages: 16M.
    let config = FarConfig { memory_bytes: 64 << 20, ..config(64 << 10) };
    let store = make("auto", &config);
    let mut lane = attached(&store, 0);
    let near = Near::new(1, 64 << 10);
    put(&store, &mut lane, &near, 3, 1, 1).unwrap();
    assert!(store.leaves_in_place() && store.leave_in_place(3).unwrap() && store.is_in_place(3));
    assert_eq!((store.usage().pages_held, store.usage().bytes_plain), (1, 64 << 10));
    store.take_from_place(3, 1);
    assert!(!store.is_in_place(3) && store.usage().pages_held == 0);
    assert!((0..256).all(|page| store.leave_in_place(page).unwrap()));
    assert!(!store.leave_in_place(256).unwrap(), "there is no room for another one");
    store.discard(10, 5);
    assert!(!store.is_in_place(12) && store.leave_in_place(256).unwrap());
    assert_eq!(store.usage().pages_held, 252);
    // None is to be packed as long as there is memory.
    assert_eq!(store.next_to_pack(), None);
    let AnyFar::Auto(auto) = &store else { panic!("another store") };
    auto.note_left(Left::Some);
    let packed = store.next_to_pack().unwrap();
    assert!(store.is_in_place(packed) && !store.leave_in_place(900).unwrap());
    assert!(!make("lz4", &config).leaves_in_place());
}
