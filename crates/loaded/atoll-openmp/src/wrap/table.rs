//! The calls whose strings and structures only have to be lent to libc or the kernel.
//!
//! Each function but `mincore` has one line, in the notation of [`wrap!`](super::real): `v` a value, `fd` a descriptor, `s` a string, `t` a
//! string that is written, `r(n)` and `w(n)` memory that is read and written.

use std::ffi::c_int;

use atoll_memory::sys::Errno;

use super::lend::{self, Argument as _};
use crate::heap::mapping;

/// The size of `struct stat`, which is that of its 64-bit form, too.
const STAT: usize = size_of::<libc::stat>();
const STATFS: usize = size_of::<libc::statfs>();
const TIME: usize = size_of::<libc::timespec>();
const ADDRESS: usize = 128;
const SET: usize = size_of::<libc::fd_set>();
/// The most that `semctl` writes: the values of all semaphores of a set, as many as Linux allows.
const SEMAPHORES: usize = 2 * 32_000;
const MQ_ATTRIBUTES: usize = 64;
const FLOCK: usize = size_of::<libc::flock>();

/// Bytes that the second argument of `prctl` points to.
fn pointed_to_by(option: usize) -> usize {
    match (option & 0xffff_ffff) as c_int {
        libc::PR_SET_NAME | libc::PR_GET_NAME => 16,
        libc::PR_GET_PDEATHSIG | libc::PR_GET_CHILD_SUBREAPER | libc::PR_GET_TSC => 4,
        _ => 0,
    }
}

wrap! {
    // Files by name, of which `soft_dirty` has the calls without a folder. libc ignores a mode that the caller did not pass, too.
    __open_2(path: s, flags: v);
    __open64_2(path: s, flags: v);
    openat(dir: v, path: s, flags: v, mode: v);
    openat64(dir: v, path: s, flags: v, mode: v);
    __openat_2(dir: v, path: s, flags: v);
    __openat64_2(dir: v, path: s, flags: v);
    creat(path: s, mode: v);
    creat64(path: s, mode: v);
    stat(path: s, to: w(STAT));
    stat64(path: s, to: w(STAT));
    lstat(path: s, to: w(STAT));
    lstat64(path: s, to: w(STAT));
    fstat(fd: fd, to: w(STAT));
    fstat64(fd: fd, to: w(STAT));
    fstatat(dir: v, path: s, to: w(STAT), flags: v);
    fstatat64(dir: v, path: s, to: w(STAT), flags: v);
    __xstat(version: v, path: s, to: w(STAT));
    __xstat64(version: v, path: s, to: w(STAT));
    __lxstat(version: v, path: s, to: w(STAT));
    __lxstat64(version: v, path: s, to: w(STAT));
    lseek(fd: fd, offset: v, whence: v);
    lseek64(fd: fd, offset: v, whence: v);
    fsync(fd: fd);
    fdatasync(fd: fd);
    ftruncate(fd: fd, length: v);
    ftruncate64(fd: fd, length: v);
    __fxstat(version: v, fd: fd, to: w(STAT));
    __fxstat64(version: v, fd: fd, to: w(STAT));
    __fxstatat(version: v, dir: v, path: s, to: w(STAT), flags: v);
    __fxstatat64(version: v, dir: v, path: s, to: w(STAT), flags: v);
    statx(dir: v, path: s, flags: v, mask: v, to: w(size_of::<libc::statx>()));
    access(path: s, mode: v);
    eaccess(path: s, mode: v);
    euidaccess(path: s, mode: v);
    faccessat(dir: v, path: s, mode: v, flags: v);
    unlink(path: s);
    unlinkat(dir: v, path: s, flags: v);
    remove(path: s);
    rename(from: s, to: s);
    renameat(dir: v, from: s, to_dir: v, to: s);
    renameat2(dir: v, from: s, to_dir: v, to: s, flags: v);
    mkdir(path: s, mode: v);
    mkdirat(dir: v, path: s, mode: v);
    rmdir(path: s);
    chdir(path: s);
    chroot(path: s);
    mknod(path: s, mode: v, dev: v);
    mkfifo(path: s, mode: v);
    mkfifoat(dir: v, path: s, mode: v);
    opendir(path: s);
    readlink(path: s, to: w(len), len: v);
    __readlink_chk(path: s, to: w(len), len: v, size: v);
    readlinkat(dir: v, path: s, to: w(len), len: v);
    __getcwd_chk(to: w(len), len: v, size: v);
    symlink(target: s, path: s);
    symlinkat(target: s, dir: v, path: s);
    link(from: s, to: s);
    linkat(dir: v, from: s, to_dir: v, to: s, flags: v);
    truncate(path: s, len: v);
    truncate64(path: s, len: v);
    chmod(path: s, mode: v);
    fchmodat(dir: v, path: s, mode: v, flags: v);
    chown(path: s, user: v, group: v);
    lchown(path: s, user: v, group: v);
    fchownat(dir: v, path: s, user: v, group: v, flags: v);
    utimensat(dir: v, path: s, times: r(2 * TIME), flags: v);
    futimens(fd: v, times: r(2 * TIME));
    utimes(path: s, times: r(2 * TIME));
    lutimes(path: s, times: r(2 * TIME));
    utime(path: s, times: r(TIME));
    statfs(path: s, to: w(STATFS));
    statfs64(path: s, to: w(STATFS));
    fstatfs(fd: v, to: w(STATFS));
    fstatfs64(fd: v, to: w(STATFS));
    statvfs(path: s, to: w(STATFS));
    statvfs64(path: s, to: w(STATFS));
    mkstemp(path: t);
    mkstemp64(path: t);
    mkostemp(path: t, flags: v);
    mkostemp64(path: t, flags: v);
    mkstemps(path: t, suffix: v);
    mkstemps64(path: t, suffix: v);
    mkdtemp(path: t);
    pathconf(path: s, name: v);
    setxattr(path: s, name: s, value: r(len), len: v, flags: v);
    getxattr(path: s, name: s, value: w(len), len: v);
    lsetxattr(path: s, name: s, value: r(len), len: v, flags: v);
    fsetxattr(fd: v, name: s, value: r(len), len: v, flags: v);
    lgetxattr(path: s, name: s, value: w(len), len: v);
    fgetxattr(fd: v, name: s, value: w(len), len: v);
    listxattr(path: s, list: w(len), len: v);
    llistxattr(path: s, list: w(len), len: v);
    flistxattr(fd: v, list: w(len), len: v);
    removexattr(path: s, name: s);
    lremovexattr(path: s, name: s);
    fremovexattr(fd: v, name: s);
    ttyname_r(fd: v, to: w(len), len: v);
    inotify_add_watch(fd: v, path: s, mask: v);
    // Descriptors. What `fcntl` and `ioctl` point to has the size that the request tells, or is small.
    fcntl(fd: v, command: v, argument: w(FLOCK));
    fcntl64(fd: v, command: v, argument: w(FLOCK));
    ioctl(fd: v, request: v, argument: w(((request >> 16) & 0x3fff).max(64)));
    pipe(to: w(8));
    pipe2(to: w(8), flags: v);
    copy_file_range(from: v, from_at: w(8), to: v, to_at: w(8), len: v, flags: v);
    sendfile(to: v, from: v, at: w(8), len: v);
    sendfile64(to: v, from: v, at: w(8), len: v);
    splice(from: v, from_at: w(8), to: v, to_at: w(8), len: v, flags: v);
    getdents64(fd: v, to: w(len), len: v);
    // Sockets.
    socketpair(domain: v, kind: v, protocol: v, to: w(8));
    bind(fd: v, address: r(ADDRESS), len: v);
    connect(fd: v, address: r(ADDRESS), len: v);
    accept(fd: v, address: w(ADDRESS), len: w(4));
    accept4(fd: v, address: w(ADDRESS), len: w(4), flags: v);
    getsockname(fd: v, address: w(ADDRESS), len: w(4));
    getpeername(fd: v, address: w(ADDRESS), len: w(4));
    getsockopt(fd: v, level: v, name: v, value: w(ADDRESS), len: w(4));
    setsockopt(fd: v, level: v, name: v, value: r(len & 0xffff_ffff), len: v);
    // Messages and semaphores of System V and POSIX. Only some commands of `semctl` have a pointer.
    msgsnd(id: v, message: r(size_of::<usize>() + len), len: v, flags: v);
    msgrcv(id: v, message: w(size_of::<usize>() + len), len: v, kind: v, flags: v);
    msgctl(id: v, command: v, to: w(size_of::<libc::msqid_ds>()));
    shmctl(id: v, command: v, to: w(size_of::<libc::shmid_ds>()));
    semop(id: v, operations: r(6 * n), n: v);
    semtimedop(id: v, operations: r(6 * n), n: v, timeout: r(TIME));
    semctl(id: v, number: v, command: v, argument: w(SEMAPHORES));
    mq_open(name: s, flags: v, mode: v, attributes: r(MQ_ATTRIBUTES));
    mq_unlink(name: s);
    mq_getattr(queue: v, to: w(MQ_ATTRIBUTES));
    mq_setattr(queue: v, attributes: r(MQ_ATTRIBUTES), to: w(MQ_ATTRIBUTES));
    mq_notify(queue: v, event: r(64));
    mq_send(queue: v, message: r(len), len: v, priority: v);
    mq_timedsend(queue: v, message: r(len), len: v, priority: v, timeout: r(TIME));
    mq_receive(queue: v, message: w(len), len: v, priority: w(4));
    mq_timedreceive(queue: v, message: w(len), len: v, priority: w(4), timeout: r(TIME));
    // Waiting. (Calls with a signal mask are in `signals`.)
    select(n: v, reads: w(SET), writes: w(SET), others: w(SET), timeout: w(TIME));
    poll(fds: w(8 * n), n: v, timeout: v);
    __poll_chk(fds: w(8 * n), n: v, timeout: v, size: v);
    epoll_wait(fd: v, events: w(12 * (n & 0x7fff_ffff)), n: v, timeout: v);
    epoll_ctl(fd: v, operation: v, target: v, event: r(12));
    nanosleep(time: r(TIME), left: w(TIME));
    clock_nanosleep(clock: v, flags: v, time: r(TIME), left: w(TIME));
    wait(status: w(4));
    waitpid(pid: v, status: w(4), options: v);
    wait3(status: w(4), options: v, usage: w(144));
    wait4(pid: v, status: w(4), options: v, usage: w(144));
    waitid(kind: v, id: v, info: w(128), options: v);
    // Questions to the kernel.
    clock_gettime(clock: v, to: w(TIME));
    clock_getres(clock: v, to: w(TIME));
    clock_settime(clock: v, time: r(TIME));
    gettimeofday(to: w(TIME), zone: w(8));
    getrusage(who: v, to: w(144));
    uname(to: w(size_of::<libc::utsname>()));
    sysinfo(to: w(size_of::<libc::sysinfo>()));
    times(to: w(32));
    getitimer(which: v, to: w(32));
    setitimer(which: v, time: r(32), to: w(32));
    timer_create(clock: v, event: r(64), to: w(8));
    timer_settime(timer: v, flags: v, time: r(32), to: w(32));
    timer_gettime(timer: v, to: w(32));
    timerfd_settime(fd: v, flags: v, time: r(32), to: w(32));
    timerfd_gettime(fd: v, to: w(32));
    eventfd_read(fd: v, to: w(8));
    sched_getaffinity(pid: v, len: v, to: w(len));
    sched_setaffinity(pid: v, len: v, mask: r(len));
    pthread_getaffinity_np(thread: v, len: v, to: w(len));
    pthread_setaffinity_np(thread: v, len: v, mask: r(len));
    pthread_setname_np(thread: v, name: s);
    pthread_getname_np(thread: v, to: w(len), len: v);
    sched_getparam(pid: v, to: w(4));
    sched_setparam(pid: v, from: r(4));
    sched_setscheduler(pid: v, policy: v, from: r(4));
    sched_rr_get_interval(pid: v, to: w(TIME));
    getresuid(real: w(4), effective: w(4), saved: w(4));
    getresgid(real: w(4), effective: w(4), saved: w(4));
    adjtimex(time: w(size_of::<libc::timex>()));
    memfd_create(name: s, flags: v);
    signalfd(fd: v, mask: r(8), flags: v);
    prctl(option: v, first: w(pointed_to_by(option)), second: v, third: v, fourth: v);
    sigwaitinfo(set: r(8), info: w(128));
    sigtimedwait(set: r(8), info: w(128), timeout: r(TIME));
    getentropy(to: w(len), len: v);
    getgroups(n: v, to: w(4 * (n & 0xffff)));
    sigpending(to: w(8));
}

/// `mincore`. The kernel does not know what the program has unmapped of atoll's memory.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mincore(start: usize, len: usize, to: usize) -> c_int {
    let call = real!("mincore", unsafe extern "C" fn(usize, usize, usize) -> c_int);
    if mapping::is_unmapped(start, len) {
        return mapping::status(Err(Errno(libc::ENOMEM)));
    }
    let to = lend::memory(to, len.div_ceil(4096), true);
    // SAFETY: the caller's arguments, and a vector of the size that the kernel fills.
    unsafe { call(start, len, to.at()) }
}
