//! A kernel that fails on order: system calls of the pager and of the far stores are refused, cut short or followed by another
//! event, as a test says.
//!
//! A seccomp filter turns these calls into SIGSYS, whose handler makes the call itself or does as ordered. So the code under test is
//! the code that ships, to the last instruction: it makes its calls, and the kernel's answers differ. Calls that the handler makes
//! carry a mark in an argument that the kernel does not read, by which the filter lets them pass.
//!
//! Forked workers inherit filter and handler, and share the orders.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use atoll_memory::arch;

/// The mark of calls that pass: a sixth argument that no call of the filter's has, but `splice`.
const PASS: usize = 0x6174_6f6c;
/// The same for `splice`, whose sixth argument is its flags: to never wait, and that more comes, which a pipe ignores.
const SPLICE_PASS: usize = (libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE) as usize;

/// A kind of system call that can be ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// `UFFDIO_COPY`
    Copy = 1,
    /// `UFFDIO_ZEROPAGE`
    Zero,
    /// `UFFDIO_CONTINUE`
    Continue,
    /// `UFFDIO_WRITEPROTECT` that forbids writes.
    Protect,
    /// `UFFDIO_WRITEPROTECT` that allows writes.
    Allow,
    /// `fallocate`: a hole is punched.
    Punch,
    /// `pread`: pages are read from the arena's file.
    Read,
    /// `pwrite`: pages are put back into the arena's file.
    Write,
    /// `pread` of far memory's file.
    ReadOne,
    /// `pwrite` of far memory's file.
    WriteOne,
    /// `preadv`: far memory's file reads several pages.
    ReadMany,
    /// `pwritev`: far memory's file writes several pages.
    WriteMany,
    /// `splice`: references to pages go to a pipe.
    Splice,
    /// `madvise`: a worker drops mappings of its own.
    Drop,
    /// `pipe2`: an executor makes the pipe that holds pages.
    Pipe,
}

/// What becomes of an ordered call.
#[derive(Clone, Copy)]
pub(crate) enum Act {
    /// It fails, and nothing is done.
    Fail(c_int),
    /// So many bytes are done, and then it fails.
    Part(usize, c_int),
    /// So many bytes are done, and it says so.
    Short(usize),
    /// It is made as it is, after this.
    After(fn()),
    /// The process is gone before it is made.
    Die,
}

const ORDERS: usize = 8;

/// One order; free when its kind of call is 0.
#[derive(Default)]
struct Order {
    call: AtomicU32,
    /// Calls of the kind that pass first.
    skip: AtomicI64,
    act: AtomicU32,
    bytes: AtomicUsize,
    number: AtomicUsize,
}

/// All orders, in shared memory.
#[derive(Default)]
pub(crate) struct Plan {
    orders: [Order; ORDERS],
    /// One in so many calls is disturbed by chance; 0: none.
    one_in: AtomicU64,
    /// Whether chance refuses calls for good, too, and not only in ways that callers must make good.
    is_harsh: AtomicU32,
    random: AtomicU64,
    /// Calls that were disturbed.
    disturbed: AtomicU64,
}

/// The arena's files.
static ARENA: [AtomicI32; 8] = [const { AtomicI32::new(-1) }; 8];
static PLAN: AtomicPtr<Plan> = AtomicPtr::new(std::ptr::null_mut());

fn plan() -> &'static Plan {
    // SAFETY: set by `install`, which leaks it.
    unsafe { &*PLAN.load(Ordering::Acquire) }
}

/// The `nth` call of this kind from now on (1: the next) does as `act` says.
pub(crate) fn order(call: Call, nth: i64, act: Act) {
    let free = plan()
        .orders
        .iter()
        .find(|order| order.call.load(Ordering::Acquire) == 0)
        .expect("room for an order");
    let (kind, bytes, number) = match act {
        Act::Fail(errno) => (0, 0, errno as usize),
        Act::Part(bytes, errno) => (1, bytes, errno as usize),
        Act::Short(bytes) => (2, bytes, 0),
        Act::After(work) => (3, 0, work as usize),
        Act::Die => (4, 0, 0),
    };
    free.act.store(kind, Ordering::Relaxed);
    free.bytes.store(bytes, Ordering::Relaxed);
    free.number.store(number, Ordering::Relaxed);
    free.skip.store(nth - 1, Ordering::Relaxed);
    free.call.store(call as u32, Ordering::Release);
}

/// Orders that no call has met yet.
pub(crate) fn left() -> usize {
    plan().orders.iter().filter(|order| order.call.load(Ordering::Acquire) != 0).count()
}

/// From now on one in `one_in` calls is disturbed; 0: none any more. `is_harsh`: some are refused for good.
pub(crate) fn disturb(seed: u64, one_in: u64, is_harsh: bool) {
    let plan = plan();
    plan.random.store(seed | 1, Ordering::Relaxed);
    plan.is_harsh.store(is_harsh.into(), Ordering::Relaxed);
    plan.one_in.store(one_in, Ordering::Release);
}

/// Calls that chance disturbed so far.
pub(crate) fn disturbed() -> u64 {
    plan().disturbed.load(Ordering::Relaxed)
}

/// Whether a descriptor is one of the arena's files.
fn is_arena(fd: usize) -> bool {
    ARENA.iter().any(|file| file.load(Ordering::Relaxed) as usize == fd)
}

/// The kind of a call, by its number and arguments.
fn kind(number: i64, a: [usize; 6]) -> Option<Call> {
    Some(match number {
        libc::SYS_ioctl => match a[1] {
            0xc028_aa03 => Call::Copy,
            0xc020_aa04 => Call::Zero,
            0xc020_aa07 => Call::Continue,
            // SAFETY: the structure that this request takes; its third word is the mode.
            0xc018_aa06 if unsafe { (a[2] as *const u64).add(2).read() } & 1 != 0 => Call::Protect,
            0xc018_aa06 => Call::Allow,
            _ => return None,
        },
        libc::SYS_fallocate => Call::Punch,
        libc::SYS_pread64 if is_arena(a[0]) => Call::Read,
        libc::SYS_pwrite64 if is_arena(a[0]) => Call::Write,
        libc::SYS_pread64 => Call::ReadOne,
        libc::SYS_pwrite64 => Call::WriteOne,
        libc::SYS_preadv => Call::ReadMany,
        libc::SYS_pwritev => Call::WriteMany,
        libc::SYS_splice => Call::Splice,
        libc::SYS_madvise | libc::SYS_process_madvise => Call::Drop,
        libc::SYS_pipe2 => Call::Pipe,
        _ => return None,
    })
}

/// Makes a system call that passes the filter. Returns what the kernel does.
pub(crate) fn pass(number: i64, mut a: [usize; 6]) -> isize {
    a[5] = if number == libc::SYS_splice { SPLICE_PASS } else { PASS };
    // SAFETY: a call that this program makes anyway.
    unsafe { arch::syscall(number, a) }
}

/// Makes the first `bytes` of a call. Of those of userfaultfd the argument says how many were done, and `errno` is returned.
fn part(call: Call, number: i64, mut a: [usize; 6], bytes: usize, errno: c_int) -> isize {
    let (len_at, done_at) = match call {
        Call::Copy => (2, 4),
        Call::Zero | Call::Continue => (1, 3),
        Call::Protect | Call::Allow | Call::Punch | Call::Drop | Call::Pipe => {
            return -errno as isize;
        }
        Call::Read | Call::Write | Call::ReadOne | Call::WriteOne | Call::Splice => {
            let len = if call == Call::Splice { 4 } else { 2 };
            a[len] = a[len].min(bytes);
            return pass(number, a);
        }
        Call::ReadMany | Call::WriteMany => {
            // So many whole buffers; one at least.
            a[2] = (bytes / 4096).clamp(1, a[2]);
            return pass(number, a);
        }
    };
    let argument = a[2] as *mut i64;
    // SAFETY: the structures that these requests take, of which the words are known.
    unsafe {
        let len = argument.add(len_at).read();
        let bytes = (bytes as i64).min(len);
        if bytes > 0 {
            argument.add(len_at).write(bytes);
            let made = pass(number, a);
            argument.add(len_at).write(len);
            if made < 0 {
                return made;
            }
        }
        argument.add(done_at).write(bytes);
    }
    -errno as isize
}

/// Does a call that somebody ordered or that chance disturbs; `None`: it is made as it is.
fn obey(call: Call, number: i64, a: [usize; 6]) -> Option<isize> {
    let plan = plan();
    let mut met = None;
    // Each order counts all calls of its kind.
    for order in plan.orders.iter().filter(|order| order.call.load(Ordering::Acquire) == call as u32) {
        if order.skip.fetch_sub(1, Ordering::AcqRel) <= 0 && met.is_none() {
            met = Some(order);
        }
    }
    if let Some(order) = met {
        let (act, bytes) = (order.act.load(Ordering::Relaxed), order.bytes.load(Ordering::Relaxed));
        let given = order.number.load(Ordering::Relaxed);
        order.call.store(0, Ordering::Release);
        return match act {
            0 => Some(-(given as isize)),
            1 => Some(part(call, number, a, bytes, given as c_int)),
            2 => Some(part(call, number, a, bytes, libc::EAGAIN)),
            3 => {
                // SAFETY: `order` stored a function.
                unsafe { std::mem::transmute::<usize, fn()>(given)() };
                None
            }
            // SAFETY: ends this process.
            _ => unsafe { libc::_exit(99) },
        };
    }
    let one_in = plan.one_in.load(Ordering::Acquire);
    if one_in == 0 || !next(plan).is_multiple_of(one_in) {
        return None;
    }
    plan.disturbed.fetch_add(1, Ordering::Relaxed);
    by_chance(call, number, a, next(plan), plan.is_harsh.load(Ordering::Relaxed) != 0)
}

/// Disturbs a call in a way that the kernel may, too.
fn by_chance(call: Call, number: i64, a: [usize; 6], chance: u64, is_harsh: bool) -> Option<isize> {
    let bytes = (chance >> 8) as usize % 16 * 4096;
    let refusal = match call {
        Call::Copy | Call::Zero | Call::Continue | Call::Drop | Call::Protect => libc::ENOMEM,
        Call::Splice => libc::EAGAIN,
        Call::WriteMany | Call::WriteOne => libc::ENOSPC,
        Call::ReadOne | Call::ReadMany | Call::Read => libc::EIO,
        // Where even this is refused a page is lost, and the run ends.
        Call::Write => libc::EINTR,
        Call::Pipe => libc::EMFILE,
        Call::Allow => return Some(-libc::EAGAIN as isize),
        // Holes in memory files are never refused.
        Call::Punch => libc::EINTR,
    };
    if is_harsh && chance & 1 != 0 {
        return Some(-refusal as isize);
    }
    match call {
        Call::Copy | Call::Zero | Call::Continue => Some(part(call, number, a, bytes, libc::EAGAIN)),
        Call::Protect | Call::Drop | Call::Allow => Some(-libc::EAGAIN as isize),
        Call::Pipe => None,
        Call::Punch => Some(-libc::EINTR as isize),
        Call::Read | Call::Write | Call::ReadOne | Call::WriteOne | Call::Splice if bytes == 0 => {
            Some(-libc::EINTR as isize)
        }
        _ => Some(part(call, number, a, bytes, libc::EAGAIN)),
    }
}

/// The next number of a row by chance (xorshift).
fn next(plan: &Plan) -> u64 {
    let mut x = plan.random.load(Ordering::Relaxed);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    plan.random.store(x, Ordering::Relaxed);
    x >> 16
}

unsafe extern "C" fn on_sigsys(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's signal frame.
    let frame = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let (number, a) = arch::call(frame);
    let ordered = kind(number, a).and_then(|call| obey(call, number, a));
    arch::set_result(frame, ordered.unwrap_or_else(|| pass(number, a)));
}

/// From now on this thread, and the processes that it forks, make these calls as ordered. io_uring is refused, so that the far store in
/// a file makes plain calls.
pub(crate) fn install(arena: &[i32]) {
    ARENA.iter().zip(arena).for_each(|(to, file)| to.store(*file, Ordering::Relaxed));
    PLAN.store(Box::leak(Box::<Plan>::default()), Ordering::Release);
    // SAFETY: a handler for a signal that nobody else uses here.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigsys as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        assert_eq!(libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()), 0);
    }
    let filter = filter();
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the filter's instructions are valid during the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let refused = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(refused, 0, "seccomp: {}", std::io::Error::last_os_error());
    }
}

/// The filter: calls of these numbers without a mark raise the signal.
fn filter() -> Vec<libc::sock_filter> {
    let traps = [
        libc::SYS_ioctl,
        libc::SYS_fallocate,
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_preadv,
        libc::SYS_pwritev,
        libc::SYS_splice,
        libc::SYS_madvise,
        libc::SYS_process_madvise,
        libc::SYS_pipe2,
    ];
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // The call's number is the first word; the sixth argument's lower half lies at 16 + 5 × 8.
    let mut steps = vec![step(load, 0, 0, 0)];
    steps.push(step(equal, 0, 1, libc::SYS_io_uring_setup as u32));
    steps.push(step(end, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32));
    for (place, call) in traps.iter().enumerate() {
        // To the look at the mark, behind the last of these and the leave to pass.
        steps.push(step(equal, (traps.len() - place) as u8, 0, *call as u32));
    }
    steps.push(step(end, 0, 0, libc::SECCOMP_RET_ALLOW));
    steps.push(step(load, 0, 0, 16 + 5 * 8));
    steps.push(step(equal, 2, 0, PASS as u32));
    steps.push(step(equal, 1, 0, SPLICE_PASS as u32));
    steps.push(step(end, 0, 0, libc::SECCOMP_RET_TRAP));
    steps.push(step(end, 0, 0, libc::SECCOMP_RET_ALLOW));
    steps
}
