//! A team over a pager: the test's own thread is worker 0, and forked processes with page tables of their own are the others.
//!
//! Workers touch the arena's memory for real: an access that their page table lacks raises SIGBUS, whose handler calls the pager, as
//! the runtime's does. What the pager refuses is kept for the test to look at.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use atoll_memory::control::{Control, Settings};
use atoll_memory::far::FarStore;
use atoll_memory::layout::ARENA;
use atoll_memory::pager::fault::Fault;
use atoll_memory::pager::{FaultError, Pager};
use atoll_memory::sys;
use atoll_memory::uffd::{Delivery, Uffd};
use atoll_memory::{arch, arena};

use crate::orders;

static PAGER: AtomicPtr<Pager> = AtomicPtr::new(std::ptr::null_mut());
/// The number of this process's worker: of its page table and its executor.
/// Worker 0's descriptor.
static UFFD: AtomicI32 = AtomicI32::new(-1);
static ME: AtomicUsize = AtomicUsize::new(0);
/// Faults that the pager refused and that came again, in this process.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// Refusals in a row, after which a test gives up.
const PATIENCE: u64 = 200;

/// What a forked worker is to do, in shared memory.
#[derive(Default)]
struct Desk {
    /// A [`Task`] as a number; 0: nothing.
    task: AtomicU32,
    address: AtomicUsize,
    value: AtomicU64,
    process: AtomicI32,
}

impl Desk {
    /// Says what is to be done, or that it is done, and wakes who waits for that.
    fn set(&self, task: u32) {
        // Release: pairs with the Acquire of `task` in `await_end` and in `serve`.
        self.task.store(task, Ordering::Release);
        // SAFETY: a shared futex in memory that stays.
        unsafe { libc::syscall(libc::SYS_futex, self.task.as_ptr(), libc::FUTEX_WAKE, 1) };
    }

    /// Sleeps while `task` stands there, 20 ms at most, as the other side may die.
    fn wait_while(&self, task: u32) {
        let most = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        // SAFETY: as above; the time is valid during the call.
        unsafe {
            libc::syscall(libc::SYS_futex, self.task.as_ptr(), libc::FUTEX_WAIT, task, &raw const most)
        };
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Read = 1,
    Write,
    Drop,
    Hammer,
    End,
}

/// A pager, and those who use it.
pub(crate) struct Team {
    pub(crate) pager: &'static Pager,
    pub(crate) page: usize,
    desks: Vec<&'static Desk>,
}

fn pager() -> &'static Pager {
    // SAFETY: set before any fault, and leaked.
    unsafe { &*PAGER.load(Ordering::Acquire) }
}

/// Resolves one fault of this process's worker.
pub(crate) fn fault(address: usize, write: bool, protection: bool) -> Result<(), FaultError> {
    let me = ME.load(Ordering::Relaxed);
    // SAFETY: this worker's own executor, which only its thread uses.
    let x = unsafe { pager().executor(me) };
    pager().fault(x, Fault { address, write, protection, table: me })
}

unsafe extern "C" fn on_sigbus(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's signal frame.
    let (address, access) = unsafe {
        let frame = context.cast::<libc::ucontext_t>();
        ((*info).si_addr() as usize, arch::access(&*frame))
    };
    match fault(address, access.write, access.protection) {
        Ok(()) => REFUSED.store(0, Ordering::Relaxed),
        // The access is made again, and the orders may be at an end by then.
        Err(error) if REFUSED.fetch_add(1, Ordering::Relaxed) > PATIENCE => {
            eprintln!("the pager refuses {address:#x} for ever: {error:?}");
            // SAFETY: ends this process.
            unsafe { libc::_exit(98) }
        }
        Err(_) => {}
    }
}

/// Maps the page at `address`, which is near, for worker 0, as another thread of its process may do.
pub(crate) fn map_first(address: usize, page: usize) {
    // The request's structure: start, length, mode (wake nobody), how much was done.
    let mut argument = [address as u64, page as u64, 1, 0];
    let uffd = UFFD.load(Ordering::Relaxed) as usize;
    let done = orders::pass(libc::SYS_ioctl, [uffd, 0xc020_aa07, argument.as_mut_ptr() as usize, 0, 0, 0]);
    assert_eq!(done, 0);
}

/// The first word that worker `worker` of four uses of the page at `address`, and the `n`th of its words.
pub(crate) fn word_of(worker: usize, n: usize) -> usize {
    (n * 4 + worker) * 8
}

impl Team {
    /// A team of `workers` under `near` bytes of near memory, with pages of `1 << shift` bytes; the kernel fails on order from now on.
    /// `None` where the kernel lets nobody have a userfaultfd.
    pub(crate) fn new(
        workers: usize,
        shift: u32,
        near: u64,
        policy: &str,
        far: &str,
        far_bytes: u64,
    ) -> Option<Team> {
        let uffd = Uffd::open(Delivery::Signal).ok()?;
        let mut settings = Settings::new(policy, far);
        (settings.near_bytes, settings.page_shift, settings.far_bytes) = (near, shift, far_bytes);
        settings.workers = workers as u32;
        let (_, control) = Control::create(settings).unwrap();
        let pager = arena::create(control).unwrap();
        UFFD.store(uffd.0, Ordering::Relaxed);
        PAGER.store(std::ptr::from_ref(pager).cast_mut(), Ordering::Release);
        // SAFETY: a handler for a signal that nobody else uses here.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()), 0);
        }
        orders::install(&pager.files().numbers());
        control.workers.store(workers as u32, Ordering::Relaxed);
        pager.attach_table(0, uffd).unwrap();
        // SAFETY: once for this number.
        unsafe { pager.make_executor(0, 0, true, 0) }.unwrap();
        let mut team = Team { pager, page: 1 << shift, desks: Vec::new() };
        for worker in 1..workers {
            team.fork(worker);
        }
        Some(team)
    }

    fn fork(&mut self, worker: usize) {
        let desk: &'static Desk = Box::leak(Box::default());
        self.desks.push(desk);
        let flags = (libc::CLONE_FILES | libc::SIGCHLD) as usize;
        // SAFETY: as fork, with descriptors shared; the child runs `serve` and leaves.
        let process = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if process == 0 {
            ME.store(worker, Ordering::Relaxed);
            // SAFETY: nothing; the test's death is this process's.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let attached =
                Uffd::open(Delivery::Signal).and_then(|uffd| self.pager.attach_table(worker, uffd));
            // SAFETY: once for this number.
            let made = unsafe { self.pager.make_executor(worker, worker, true, worker) };
            if attached.is_ok() && made.is_ok() {
                serve(desk, worker, self.page);
            }
            // SAFETY: leaves without the test's destructors.
            unsafe { libc::_exit(97) }
        }
        assert!(process > 0, "clone: {}", std::io::Error::last_os_error());
        desk.process.store(process as i32, Ordering::Relaxed);
    }

    /// Has a worker do something, and waits for it; `None` if it died.
    fn ask(&self, worker: usize, task: Task, address: usize, value: u64) -> Option<u64> {
        self.begin(worker, task, address, value);
        self.await_end(worker)
    }

    fn begin(&self, worker: usize, task: Task, address: usize, value: u64) {
        let desk = self.desks[worker - 1];
        desk.address.store(address, Ordering::Relaxed);
        desk.value.store(value, Ordering::Relaxed);
        desk.set(task as u32);
    }

    /// Waits for what a forked worker began; `None` if it died.
    pub(crate) fn await_end(&self, worker: usize) -> Option<u64> {
        let desk = self.desks[worker - 1];
        let process = desk.process.load(Ordering::Relaxed);
        loop {
            let task = desk.task.load(Ordering::Acquire);
            if task == 0 {
                break;
            }
            // SAFETY: no status is wanted.
            if unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::WNOHANG) } != 0 {
                return None;
            }
            desk.wait_while(task);
        }
        Some(desk.value.load(Ordering::Relaxed))
    }

    /// Worker `worker`, a forked one, begins to write a word, and nobody waits for it.
    pub(crate) fn begin_to_write(&self, worker: usize, address: usize, value: u64) {
        self.begin(worker, Task::Write, address, value);
    }

    /// Worker `worker` reads the word at `address`.
    pub(crate) fn read(&self, worker: usize, address: usize) -> Option<u64> {
        match worker {
            // SAFETY: the arena's memory.
            0 => Some(unsafe { (address as *const u64).read_volatile() }),
            _ => self.ask(worker, Task::Read, address, 0),
        }
    }

    /// Worker `worker` writes the word at `address`; `None` if it died of it.
    pub(crate) fn write(&self, worker: usize, address: usize, value: u64) -> Option<()> {
        match worker {
            0 => {
                // SAFETY: as above.
                unsafe { (address as *mut u64).write_volatile(value) };
                Some(())
            }
            _ => self.ask(worker, Task::Write, address, value).map(drop),
        }
    }

    /// Worker `worker` drops mappings as the policy's scans asked for.
    pub(crate) fn drop_mappings(&self, worker: usize, tail: &mut u32) {
        match worker {
            0 => self.pager.drop_mappings(0, tail, &self.pager.control().figures[0]),
            _ => drop(self.ask(worker, Task::Drop, 0, 0)),
        }
    }

    /// All workers write and check words of their own in `pages` pages at once, `rounds` times; how many found what they had written.
    pub(crate) fn hammer(&self, pages: usize, rounds: u64) -> usize {
        for worker in 1..=self.desks.len() {
            self.begin(worker, Task::Hammer, pages, rounds);
        }
        let own = usize::from(hammer(0, self.page, pages, rounds));
        own + (1..=self.desks.len()).filter(|&worker| self.await_end(worker) == Some(1)).count()
    }

    /// The address of page `page`.
    pub(crate) fn at(&self, page: usize) -> usize {
        ARENA + page * self.page
    }

    /// Bytes that the arena's files hold, but for pages that are far and stayed where they lie: all that is near of the program's.
    pub(crate) fn near_bytes(&self) -> u64 {
        let mut files = self.pager.files().numbers();
        files.dedup();
        let held: u64 = files.iter().map(|&file| sys::file_bytes(file)).sum();
        held - (self.in_place() * self.page) as u64
    }

    /// How many of the first pages, which are all that tests use, are far and stayed where they lie.
    pub(crate) fn in_place(&self) -> usize {
        (0..1024).filter(|&page| self.pager.far().is_in_place(page)).count()
    }

    /// Reads the kernel's page at `address` from the arena's file, past all page tables; `None` if it is not there.
    pub(crate) fn in_file(&self, address: usize, to: &mut [u8]) -> Option<()> {
        let offset = (address - ARENA) as u64;
        let file = self.pager.files().file(offset);
        // SAFETY: values only; nobody reads these files by their position.
        let data = unsafe { libc::lseek(file, offset as i64, libc::SEEK_DATA) };
        let a = [file as usize, to.as_mut_ptr() as usize, to.len(), offset as usize, 0, 0];
        (data == offset as i64 && orders::pass(libc::SYS_pread64, a) == to.len() as isize).then_some(())
    }

    /// Whether the page, or its first part, is in the arena's file.
    pub(crate) fn is_near(&self, page: usize) -> bool {
        self.in_file(self.at(page), &mut [0; 4096]).is_some()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for (desk, worker) in self.desks.iter().zip(1..) {
            self.begin(worker, Task::End, 0, 0);
            let process = desk.process.load(Ordering::Relaxed);
            // SAFETY: a child of ours; no status is wanted.
            unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) };
        }
    }
}

/// What a forked worker does until it is told to end.
fn serve(desk: &Desk, me: usize, page: usize) {
    let mut tail = 0;
    loop {
        let task = desk.task.load(Ordering::Acquire);
        let (address, value) = (desk.address.load(Ordering::Relaxed), desk.value.load(Ordering::Relaxed));
        // SAFETY: the arena's memory.
        let answer = unsafe {
            match task {
                t if t == Task::Read as u32 => (address as *const u64).read_volatile(),
                t if t == Task::Write as u32 => {
                    (address as *mut u64).write_volatile(value);
                    0
                }
                t if t == Task::Drop as u32 => {
                    pager().drop_mappings(me, &mut tail, &pager().control().figures[me]);
                    0
                }
                t if t == Task::Hammer as u32 => hammer(me, page, address, value).into(),
                t if t == Task::End as u32 => libc::_exit(0),
                _ => {
                    desk.wait_while(0);
                    continue;
                }
            }
        };
        desk.value.store(answer, Ordering::Relaxed);
        desk.set(0);
    }
}

/// Writes and checks this worker's words in all pages, in an order by chance.
fn hammer(me: usize, page: usize, pages: usize, rounds: u64) -> bool {
    let mut written = vec![0u64; pages];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ (me as u64 + 1) << 20;
    for round in 1..=rounds {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let place = (random >> 20) as usize % pages;
        let at = (ARENA + place * page + word_of(me, place % 50)) as *mut u64;
        // SAFETY: a word of the arena's that only this worker writes.
        unsafe {
            if at.read_volatile() != written[place] {
                eprintln!(
                    "worker {me}, page {place}: {} in the place of {}",
                    at.read_volatile(),
                    written[place]
                );
                return false;
            }
            if random & 7 < 5 {
                at.write_volatile(round);
                written[place] = round;
            }
        }
    }
    true
}
