//! Makes calls with any arguments, in any order: none of them panics, hangs or touches what lies around the segment.

use proptest::prelude::*;

use super::*;
use crate::memory::Memory;

/// The number of bytes on either side of the segment, which must stay as they are.
const AROUND: usize = 64 << 10;
const SEGMENT: usize = 256 << 10;
const MARK: u8 = 0xa5;

/// Calls that end nothing, wait for nobody and change nothing of this process.
const HARMLESS: &[&str] = &[
    "brk",
    "mmap",
    "old_mmap",
    "mmap2",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "mlock",
    "munlock",
    "set_thread_area",
    "arch_prctl",
    "set_tid_address",
    "set_robust_list",
    "clone",
    "clone3",
    "fork",
    "execve",
    "rt_sigprocmask",
    "sigaltstack",
    "rt_sigreturn",
    "stat",
    "lstat",
    "newfstatat",
    "stat64",
    "lstat64",
    "fstat64",
    "fstatat64",
    "fstat",
    "statx",
    "readlink",
    "readlinkat",
    "_llseek",
    "pread64",
    "getcwd",
    "getdents64",
    "access",
    "ioctl",
    "times",
    "time",
    "gettimeofday",
    "clock_gettime",
    "clock_gettime64",
    "clock_getres",
    "clock_getres_time64",
    "uname",
    "sysinfo",
    "getrlimit",
    "ugetrlimit",
    "prlimit64",
    "getrusage",
    "getrandom",
    "getcpu",
    "sched_getaffinity",
    "exit",
    "exit_group",
];

fn argument() -> impl Strategy<Value = u64> {
    let near = |at: u64| (0_u64..64).prop_map(move |n| at.wrapping_add(n).wrapping_sub(32));
    prop_oneof![
        any::<u64>(),
        0_u64..64,
        0_u64..SEGMENT as u64,
        (0_u64..64).prop_map(|page| page * 4096),
        near(LOW),
        near(SEGMENT as u64),
        near(1 << 32),
        near(0),
        near(1 << 63),
    ]
}

proptest! {
    #[test]
    fn any_arguments_are_served(
        narrow: bool,
        calls in prop::collection::vec((0..HARMLESS.len(), prop::array::uniform6(argument())), 1..24),
        content in prop::collection::vec(argument(), 64),
    ) {
        let memory = Memory::private(None, SEGMENT + 2 * AROUND).unwrap();
        // SAFETY: all of the mapping, which nothing else uses.
        let all = unsafe { std::slice::from_raw_parts_mut(memory.base(), SEGMENT + 2 * AROUND) };
        let first = AROUND + LOW as usize;
        all[..first].fill(MARK);
        all[AROUND + SEGMENT..].fill(MARK);
        for (place, n) in all[first..first + 512].chunks_exact_mut(8).zip(&content) {
            place.copy_from_slice(&n.to_le_bytes());
        }
        let width = if narrow { Width::Bits32 } else { Width::Bits64 };
        let d = Delegate::new(About {
            width,
            window: memory.window(AROUND as i64, LOW, SEGMENT as u64),
            discard: memory.discard(),
            threads: true,
            program: "/the/program".into(),
            space: Space::new(0x8000, SEGMENT as u64 - 0x4000),
        });
        let mut c = Caller::default();
        for (name, a) in calls {
            let call = CALLS.iter().find(|call| call.name == HARMLESS[name]).unwrap();
            let Some(number) = (if narrow { call.i386 } else { call.x86_64 }) else { continue };
            let a = if narrow { a.map(|n| n & 0xffff_ffff) } else { a };
            let _ = d.serve(&mut c, number, a);
        }
        d.core_ended(&c);
        // SAFETY: as above; the calls are over.
        let all = unsafe { std::slice::from_raw_parts(memory.base(), SEGMENT + 2 * AROUND) };
        prop_assert!(all[..first].iter().all(|&byte| byte == MARK), "below the segment");
        prop_assert!(all[AROUND + SEGMENT..].iter().all(|&byte| byte == MARK), "beyond the limit");
    }
}
