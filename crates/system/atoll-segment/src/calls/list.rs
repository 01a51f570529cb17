//! The one list of system calls: name, number for i386, number for x86-64, and how it is served.
//!
//! Tables, names and tests are made from it. `tests.rs` beside it has a test for every entry, or does not compile.

use super::Serve::{self, Absent, By, Pass, Refuse, To};
use super::pass::Kind::{Buffer, Fd, Fixed, Maybe, Path, Signed, Value};
use super::{files, memory, opening, process, signals, threads, time};

/// An entry of the list.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    /// The call's number for 32-bit programs, if they have it.
    pub(crate) i386: Option<u32>,
    /// The call's number for 64-bit programs, if they have it.
    pub(crate) x86_64: Option<u32>,
    pub(crate) serve: Serve,
}

macro_rules! number {
    (_) => {
        None
    };
    ($n:literal) => {
        Some($n)
    };
}

/// Passes the list to the macro `$with`.
macro_rules! for_each_call {
    ($with:ident) => {
        $with! {
            // Files.
            read 3 0 => Pass(libc::SYS_read, &[Fd, Buffer(2), Value]);
            write 4 1 => Pass(libc::SYS_write, &[Fd, Buffer(2), Value]);
            open 5 2 => By(opening::open);
            openat 295 257 => By(opening::openat);
            creat 8 85 => By(opening::creat);
            close 6 3 => Pass(libc::SYS_close, &[Fd]);
            lseek 19 8 => Pass(libc::SYS_lseek, &[Fd, Signed, Value]);
            _llseek 140 _ => By(files::llseek);
            pread64 180 17 => By(files::pread);
            pwrite64 181 18 => By(files::pwrite);
            readv 145 19 => By(files::readv);
            writev 146 20 => By(files::writev);
            stat _ 4 => Pass(libc::SYS_stat, &[Path, Fixed(144)]);
            fstat _ 5 => Pass(libc::SYS_fstat, &[Fd, Fixed(144)]);
            lstat _ 6 => Pass(libc::SYS_lstat, &[Path, Fixed(144)]);
            newfstatat _ 262 => Pass(libc::SYS_newfstatat, &[Fd, Path, Fixed(144), Value]);
            stat64 195 _ => By(files::stat64);
            lstat64 196 _ => By(files::lstat64);
            fstat64 197 _ => By(files::fstat64);
            fstatat64 300 _ => By(files::fstatat64);
            statx 383 332 => Pass(libc::SYS_statx, &[Fd, Path, Value, Value, Fixed(256)]);
            access 33 21 => Pass(libc::SYS_access, &[Path, Value]);
            faccessat 307 269 => Pass(libc::SYS_faccessat, &[Fd, Path, Value]);
            faccessat2 439 439 => Pass(libc::SYS_faccessat2, &[Fd, Path, Value, Value]);
            link 9 86 => Pass(libc::SYS_link, &[Path, Path]);
            symlink 83 88 => Pass(libc::SYS_symlink, &[Path, Path]);
            unlink 10 87 => Pass(libc::SYS_unlink, &[Path]);
            unlinkat 301 263 => Pass(libc::SYS_unlinkat, &[Fd, Path, Value]);
            rename 38 82 => Pass(libc::SYS_rename, &[Path, Path]);
            renameat 302 264 => Pass(libc::SYS_renameat, &[Fd, Path, Fd, Path]);
            renameat2 353 316 => Pass(libc::SYS_renameat2, &[Fd, Path, Fd, Path, Value]);
            mkdir 39 83 => Pass(libc::SYS_mkdir, &[Path, Value]);
            mkdirat 296 258 => Pass(libc::SYS_mkdirat, &[Fd, Path, Value]);
            rmdir 40 84 => Pass(libc::SYS_rmdir, &[Path]);
            chmod 15 90 => Pass(libc::SYS_chmod, &[Path, Value]);
            fchmod 94 91 => Pass(libc::SYS_fchmod, &[Fd, Value]);
            umask 60 95 => Pass(libc::SYS_umask, &[Value]);
            chdir 12 80 => Pass(libc::SYS_chdir, &[Path]);
            getcwd 183 79 => Pass(libc::SYS_getcwd, &[Buffer(1), Value]);
            readlink 85 89 => By(files::readlink);
            readlinkat 305 267 => By(files::readlinkat);
            getdents64 220 217 => Pass(libc::SYS_getdents64, &[Fd, Buffer(2), Value]);
            truncate 92 76 => Pass(libc::SYS_truncate, &[Path, Signed]);
            ftruncate 93 77 => Pass(libc::SYS_ftruncate, &[Fd, Signed]);
            truncate64 193 _ => By(files::truncate64);
            ftruncate64 194 _ => By(files::ftruncate64);
            fsync 118 74 => Pass(libc::SYS_fsync, &[Fd]);
            fdatasync 148 75 => Pass(libc::SYS_fdatasync, &[Fd]);
            dup 41 32 => Pass(libc::SYS_dup, &[Fd]);
            dup2 63 33 => Pass(libc::SYS_dup2, &[Fd, Fd]);
            dup3 330 292 => Pass(libc::SYS_dup3, &[Fd, Fd, Value]);
            pipe 42 22 => Pass(libc::SYS_pipe, &[Fixed(8)]);
            pipe2 331 293 => Pass(libc::SYS_pipe2, &[Fixed(8), Value]);
            fcntl 55 72 => By(files::fcntl);
            fcntl64 221 _ => By(files::fcntl);
            ioctl 54 16 => By(files::ioctl);
            poll 168 7 => By(files::poll);
            // Time.
            time 13 201 => By(time::time);
            gettimeofday 78 96 => By(time::gettimeofday);
            clock_gettime 265 228 => By(time::clock_gettime);
            clock_gettime64 403 _ => Pass(libc::SYS_clock_gettime, &[Value, Fixed(16)]);
            clock_getres 266 229 => By(time::clock_getres);
            clock_getres_time64 406 _ => Pass(libc::SYS_clock_getres, &[Value, Maybe(16)]);
            nanosleep 162 35 => By(time::nanosleep);
            clock_nanosleep 267 230 => By(time::clock_nanosleep);
            clock_nanosleep_time64 407 _ => Pass(libc::SYS_clock_nanosleep, &[Value, Value, Fixed(16), Maybe(16)]);
            times 43 100 => By(time::times);
            alarm 27 37 => Pass(libc::SYS_alarm, &[Value]);
            setitimer 104 38 => By(time::setitimer);
            // Memory.
            brk 45 12 => By(memory::brk);
            old_mmap 90 _ => By(memory::old_mmap);
            mmap _ 9 => By(memory::mmap);
            mmap2 192 _ => By(memory::mmap2);
            munmap 91 11 => By(memory::munmap);
            mremap 163 25 => By(memory::mremap);
            mprotect 125 10 => By(memory::mprotect);
            madvise 219 28 => By(memory::madvise);
            msync 144 26 => Absent;
            mlock 150 149 => By(memory::mlock);
            munlock 151 150 => By(memory::mlock);
            // The process.
            getpid 20 39 => Pass(libc::SYS_getpid, &[]);
            getppid 64 110 => Pass(libc::SYS_getppid, &[]);
            gettid 224 186 => Pass(libc::SYS_gettid, &[]);
            getpgrp 65 111 => Pass(libc::SYS_getpgrp, &[]);
            getuid 199 102 => Pass(libc::SYS_getuid, &[]);
            getgid 200 104 => Pass(libc::SYS_getgid, &[]);
            geteuid 201 107 => Pass(libc::SYS_geteuid, &[]);
            getegid 202 108 => Pass(libc::SYS_getegid, &[]);
            getuid16 24 _ => By(process::getuid16);
            getgid16 47 _ => By(process::getgid16);
            geteuid16 49 _ => By(process::geteuid16);
            getegid16 50 _ => By(process::getegid16);
            uname 122 63 => By(process::uname);
            sysinfo 116 99 => By(process::sysinfo);
            getrlimit 76 97 => By(process::getrlimit);
            ugetrlimit 191 _ => By(process::getrlimit);
            prlimit64 340 302 => By(process::prlimit64);
            getrusage 77 98 => By(process::getrusage);
            getrandom 355 318 => Pass(libc::SYS_getrandom, &[Buffer(1), Value, Value]);
            getcpu 318 309 => Pass(libc::SYS_getcpu, &[Maybe(4), Maybe(4)]);
            prctl 172 157 => By(process::prctl);
            sched_yield 158 24 => Pass(libc::SYS_sched_yield, &[]);
            sched_getaffinity 242 204 => By(process::sched_getaffinity);
            sched_setaffinity 241 203 => By(process::sched_setaffinity);
            // Threads.
            set_thread_area 243 _ => To(threads::set_thread_area);
            arch_prctl 384 158 => To(threads::arch_prctl);
            set_tid_address 258 218 => By(threads::set_tid_address);
            set_robust_list 311 273 => Absent;
            rseq 386 334 => Absent;
            futex 240 202 => By(threads::futex);
            futex_time64 422 _ => By(threads::futex_time64);
            clone 120 56 => To(threads::clone);
            clone3 435 435 => Absent;
            exit 1 60 => To(threads::exit);
            exit_group 252 231 => To(threads::exit_group);
            // Signals.
            rt_sigaction 174 13 => By(signals::rt_sigaction);
            rt_sigprocmask 175 14 => By(signals::rt_sigprocmask);
            rt_sigsuspend 179 130 => By(signals::rt_sigsuspend);
            rt_sigreturn 173 15 => To(signals::rt_sigreturn);
            sigreturn 119 _ => To(signals::sigreturn);
            sigaltstack 186 131 => By(signals::sigaltstack);
            pause 29 34 => By(signals::pause);
            kill 37 62 => To(signals::kill);
            tkill 238 200 => To(signals::tkill);
            tgkill 270 234 => To(signals::tgkill);
            // Calls that would need a second address space.
            fork 2 57 => Refuse;
            vfork 190 58 => Refuse;
            execve 11 59 => Refuse;
            execveat 358 322 => Refuse;
        }
    };
}

macro_rules! calls {
    ($($name:ident $i386:tt $x86_64:tt => $serve:expr;)*) => {
        /// All calls that are known.
        pub(crate) const CALLS: &[Call] = &[
            $(Call {
                name: stringify!($name),
                i386: number!($i386),
                x86_64: number!($x86_64),
                serve: $serve,
            }),*
        ];
    };
}

for_each_call!(calls);

/// Calls that another thread than the core's own may serve: they do not concern the core and seldom wait.
pub(crate) const QUICK: &[&str] = &[
    "read",
    "write",
    "readv",
    "writev",
    "open",
    "openat",
    "close",
    "lseek",
    "_llseek",
    "pread64",
    "pwrite64",
    "fstat",
    "fstat64",
    "newfstatat",
    "fstatat64",
    "statx",
    "access",
    "readlink",
    "readlinkat",
    "fcntl",
    "fcntl64",
    "ioctl",
    "time",
    "gettimeofday",
    "clock_gettime",
    "clock_gettime64",
    "brk",
    "mmap",
    "mmap2",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "getpid",
    "getppid",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "uname",
    "getrandom",
    "getrusage",
];

#[cfg(test)]
pub(crate) use for_each_call;
