//! Nodes as forked processes, and what each needs before it takes part: a control block, an arena, a pager, a handler of faults, an agent.
//!
//! Each has one worker, its first thread. `program` is what the agent asks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_int, c_void};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

use atoll_memory::control::{Consistency, Control, EXIT_SETUP, Settings};
use atoll_memory::ending::{end, give_up};
use atoll_memory::pager::fault::Fault;
use atoll_memory::pager::{FaultError, Pager};
use atoll_memory::uffd::{Delivery, Uffd};
use atoll_memory::{arch, arena, managed, signals, sys};
use atoll_nodes::meeting::meet;
use atoll_nodes::{agent, heap};
use atoll_transport::transport::mesh;

use crate::program::{Node, Plain};

/// The agent's blocks have a heap of their own, as in the runtime: a worker may step it from anywhere.
struct Blocks;

// SAFETY: blocks come from the agent's heap or from the system's allocator, which `dealloc` tells apart by address.
unsafe impl GlobalAlloc for Blocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        if heap::is_inside() { heap::alloc(layout) } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: it is from there, and by the caller nobody uses it.
        unsafe {
            if heap::contains(block as usize) {
                heap::free(block, layout);
            } else {
                System.dealloc(block, layout);
            }
        }
    }
}

#[global_allocator]
static BLOCKS: Blocks = Blocks;

/// How the nodes of a test are set up.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) nodes: u32,
    /// Bytes of near memory of each; none: no limit.
    pub(crate) near: Option<u64>,
    pub(crate) check_races: bool,
    /// Are messages late, refused and sent twice?
    pub(crate) bad_way: bool,
    /// The node that is killed from outside, and how long after the begin.
    pub(crate) kill: Option<(u32, Duration)>,
}

impl Setup {
    /// So many nodes, with nothing limited.
    pub(crate) fn of(nodes: u32) -> Setup {
        Setup { nodes, near: None, check_races: false, bad_way: false, kill: None }
    }
}

/// What random numbers begin with.
pub(crate) fn seed() -> u64 {
    std::env::var("ATOLL_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// How a node ended: its exit status, or less than 0 the signal.
pub(crate) type Status = i32;

/// Runs `main` on node 0 of so many nodes; returns how each ended. Fails if one has not after `limit`.
pub(crate) fn run(setup: Setup, limit: Duration, main: fn(&Node)) -> Vec<Status> {
    let mut places = mesh(setup.nodes).unwrap();
    let mut children = Vec::new();
    for node in 0..setup.nodes {
        // SAFETY: this process has one thread.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            let sockets = places.swap_remove(node as usize).into_streams();
            // Or nobody would hear of the end of a node whose sockets others keep.
            places.clear();
            let done = std::panic::catch_unwind(|| serve(setup, node, sockets, main));
            // SAFETY: ends this process without its parent's destructors.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) };
        }
        children.push(child);
    }
    drop(places);
    if let Some((node, after)) = setup.kill {
        std::thread::sleep(after);
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(children[node as usize], libc::SIGKILL) };
    }
    wait(children, limit)
}

/// The children's ends.
fn wait(children: Vec<c_int>, limit: Duration) -> Vec<Status> {
    let until = Instant::now() + limit;
    let mut ends: Vec<Option<Status>> = vec![None; children.len()];
    while ends.contains(&None) && Instant::now() < until {
        for (child, end) in children.iter().zip(&mut ends).filter(|(_, end)| end.is_none()) {
            let mut status = 0;
            // SAFETY: status is valid for writes; our own child, not waited for yet.
            if unsafe { libc::waitpid(*child, &raw mut status, libc::WNOHANG) } == *child {
                let exited = libc::WIFEXITED(status);
                *end = Some(if exited { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) });
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for (child, _) in children.iter().zip(&ends).filter(|(_, end)| end.is_none()) {
        // SAFETY: our own children, not waited for yet.
        unsafe {
            libc::kill(*child, libc::SIGKILL);
            libc::waitpid(*child, std::ptr::null_mut(), 0);
        }
    }
    assert!(!ends.contains(&None), "nodes hang: {ends:?}");
    ends.into_iter().flatten().collect()
}

/// One node, from its begin to its end.
fn serve(setup: Setup, node: u32, sockets: Vec<Option<OwnedFd>>, main: fn(&Node)) {
    // SAFETY: no pointers. The node ends with who started it.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if setup.bad_way {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var("ATOLL_TEST_FAULTS", (u64::from(node) + seed()).to_string()) };
    }
    let control = control(setup, node);
    let pager = pager(control);
    let number = |socket: Option<OwnedFd>| socket.map_or("-".to_owned(), |fd| fd.into_raw_fd().to_string());
    let sockets: Vec<String> = sockets.into_iter().map(number).collect();
    let meeting = meet(&sockets.join(","), (node, setup.nodes), pager.page_bytes(), (0, 0));
    let meeting = meeting.unwrap_or_else(|why| give_up(EXIT_SETUP, &why));
    let rights = pager.rights().unwrap();
    let mut layout = rights.layout();
    layout.watched = setup.check_races;
    if setup.check_races {
        rights.watch(0..0);
    }
    agent::start(meeting, Box::new(Plain::new()), move || Ok(layout)).unwrap();
    let node = Node::new(node, setup.nodes, control);
    if node.me == atoll_nodes::ORIGIN {
        main(&node);
        node.end();
    } else {
        node.serve();
    }
}

/// What the launcher would have written.
fn control(setup: Setup, node: u32) -> &'static Control {
    let mut settings = Settings::new("cmcp", "ram");
    (settings.node, settings.nodes) = (node, setup.nodes);
    settings.near_bytes = setup.near.unwrap_or(u64::MAX);
    settings.consistency = Consistency::Many as u32;
    settings.check_races = setup.check_races.into();
    Control::create(settings).unwrap().1
}

/// The arena and its pager, whose faults this thread handles itself.
fn pager(control: &'static Control) -> &'static Pager {
    const BYTES: usize = 256 << 20;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, for the agent's blocks.
    let blocks = unsafe { sys::mmap(0, BYTES, protection, flags | libc::MAP_NORESERVE, -1, 0) }.unwrap();
    heap::lie_in(blocks..blocks + BYTES);
    let faults = Uffd::open(Delivery::Signal).unwrap();
    let pager = arena::create(control).unwrap();
    managed::manage(pager);
    managed::become_worker(0, 0);
    handle_faults();
    pager.attach_table(0, faults).unwrap();
    pager
}

fn handle_faults() {
    const BYTES: usize = 256 << 10;
    let stack =
        libc::stack_t { ss_sp: vec![0u8; BYTES].leak().as_mut_ptr().cast(), ss_flags: 0, ss_size: BYTES };
    // SAFETY: the stack stays for ever; sigaction is plain data, and the handler one that takes three arguments.
    unsafe {
        assert_eq!(libc::sigaltstack(&raw const stack, std::ptr::null_mut()), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigfillset(&raw mut action.sa_mask);
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()), 0);
    }
}

unsafe extern "C" fn on_fault(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's signal frame.
    let (address, access, blocked) = unsafe {
        let frame = context.cast::<libc::ucontext_t>();
        // The set's first word is the kernel's.
        let blocked = (&raw const (*frame).uc_sigmask).cast::<u64>().read();
        ((*info).si_addr() as usize, arch::access(&*frame), blocked)
    };
    let Some(pager) = managed::pager() else { return };
    let arch::Access { write, protection } = access;
    let fault = Fault { address, write, protection, table: managed::table() };
    signals::enter_handler(blocked);
    // SAFETY: this thread's own executor, which nothing else uses now.
    let handled = pager.fault(unsafe { managed::executor(pager) }, fault);
    signals::leave_handler();
    match handled {
        Ok(()) | Err(FaultError::Interrupted) => {}
        Err(e) => end(e),
    }
}
