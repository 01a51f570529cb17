//! The constructor's second half on each of several nodes: all memory that the program's workers share is paged, so that it can
//! be kept coherent. Every node but the origin serves from here on and never returns.
//!
//! Called by `constructor`; the agent that it starts is `atoll_nodes::agent`, which calls the program through `program`.

use std::ffi::c_char;
use std::sync::atomic::{AtomicPtr, Ordering};

use atoll_memory::control::{Control, EXIT_SETUP};
use atoll_memory::pager::Pager;
use atoll_memory::sys;
use atoll_memory::uffd::Uffd;

use super::constructor::{share_tls, use_signal_stack};
use super::main_stack::{self, Stack};
use super::program::OpenMp;
use super::share::{self, PinnedFile};
use super::{late, objects, process, signal, stray};
use crate::omp::spread::{region, tls};
use crate::{heap, state, workers, wrap};
use atoll_nodes::meeting::meet;
use atoll_nodes::{ORIGIN, agent};

/// Refuses settings with which there cannot be several nodes.
fn check(control: &Control, pager: &Pager) -> Result<(), String> {
    if control.settings.shared_tables() {
        return Err("several nodes need workers with page tables of their own".into());
    }
    if pager.page_bytes() > 4096 {
        if control.settings.node != ORIGIN {
            // The origin says it.
            // SAFETY: ends the process before main.
            unsafe { libc::_exit(EXIT_SETUP) };
        }
        return Err("on several nodes pages are 4K: variables lie at the edges of larger ones that cannot be kept coherent; \
                    leave --page out"
            .into());
    }
    if control.settings.fault_thread() {
        return Err("on several nodes workers handle their faults themselves".into());
    }
    Ok(())
}

/// Prepares this node; returns on the origin only, where `main` follows.
pub(super) fn set_up(
    control: &'static Control,
    pager: &'static Pager,
    mut file: PinnedFile,
    objects: &[objects::Object],
    in_stack: usize,
    faults: Uffd,
) -> Result<(), String> {
    let kernel = |what: &'static str| move |e: sys::Errno| format!("cannot share {what}: {e}");
    let (node, nodes) = (control.settings.node, control.settings.nodes);
    check(control, pager)?;
    state::manage(pager);
    // Called while the program's variables are still this process's own.
    wrap::init();
    heap::small::read_options();
    let mut contents = Vec::new();
    for object in objects.iter().filter(|o| !o.is_private()) {
        share::share_object(object, pager, &mut file, &mut contents)
            .map_err(kernel("the program's globals"))?;
    }
    let globals = paged_globals(objects, pager);
    tls::find(objects);
    share_tls(&mut file).map_err(kernel("the main thread's storage"))?;
    let main_stack = super::constructor::main_stack(in_stack).map_err(kernel("the main stack"))?;
    if !heap::overflow::page_all() {
        return Err("mimalloc does not take its part of the arena".into());
    }
    let bounds = (main_stack.bottom, main_stack.top);
    let meeting = meet(control.settings.meeting(), (node, nodes), pager.page_bytes(), bounds)?;
    meeting.origin().into_iter().for_each(wrap::process::adopt);
    let program = Box::new(OpenMp::new(nodes));
    use_signal_stack()?;
    signal::install(pager);
    stray::install();
    wrap::elsewhere::allow();
    let begin = Node { control, pager, faults, main_stack, globals };
    if node == ORIGIN {
        main_stack::move_here(pager, main_stack).map_err(kernel("the main stack"))?;
        state::become_worker(0, 0);
        begin.attach()?;
        if let Err(e) = pager.check_near() {
            atoll_memory::ending::end(e);
        }
        wrap::elsewhere::begin();
        late::begin(file, objects);
        let layout = begin.layout();
        agent::start(meeting, program, move || Ok(layout))?;
        state::set_serves_faults();
        main_stack::settle(main_stack);
        share::restore(contents);
        control.start_ticks.store(sys::ticks(), Ordering::Relaxed);
        return Ok(());
    }
    share::forget(contents);
    wrap::elsewhere::without_input();
    if let Some(origin) = wrap::process::origin() {
        wrap::elsewhere::prepare(origin);
    }
    agent::start(meeting, program, move || begin.serve())?;
    // This thread's stack lies where the origin's does: it is never used again.
    let _blocked = state::set_all_blocked();
    main_stack::sleep_for_ever()
}

/// The data of this node's set-up.
#[derive(Clone, Copy)]
struct Node {
    control: &'static Control,
    pager: &'static Pager,
    faults: Uffd,
    main_stack: Stack,
    globals: &'static [(usize, usize)],
}

/// Where the program's globals are paged: each stretch's first address and the one behind its last. Lives as long as the process.
fn paged_globals(objects: &[objects::Object], pager: &Pager) -> &'static [(usize, usize)] {
    let page = pager.page_bytes();
    let data = objects.iter().flat_map(|object| &object.data);
    let whole = data.map(|(start, end)| (start.next_multiple_of(page), end & !(page - 1)));
    let paged = whole.filter(|(start, end)| start < end && pager.page_at(*start).is_some());
    paged.collect::<Vec<_>>().leak()
}

impl Node {
    /// Makes this process serve its faults, and tells the launcher of it.
    fn attach(&self) -> Result<(), String> {
        let Node { control, pager, faults, main_stack, globals } = *self;
        if control.settings.node == ORIGIN {
            // SAFETY: this thread's own executor, and nothing faults yet.
            let x = unsafe { state::executor(pager) };
            if let Err(e) = pager.adopt(x, main_stack.used, main_stack.top) {
                atoll_memory::ending::end(e);
            }
        }
        // libc and this library have variables among them, such as `environ`. To read one of these before now put a page of zeros there.
        for (start, end) in globals {
            pager.empty(*start, *end).map_err(|e| format!("cannot empty the program's globals: {e}"))?;
        }
        pager
            .attach_table(0, faults)
            .map_err(|e| format!("cannot register the arena with userfaultfd: {e}"))?;
        control.workers.store(1, Ordering::Relaxed);
        control.figures[0].pid.store(std::process::id() as i32, Ordering::Relaxed);
        process::master_helpers(pager, faults)
    }

    /// The pages that each node has at first, and those that the origin takes back. From here on, faults need the agent if
    /// races are looked for.
    fn layout(&self) -> atoll_coherence::agent::Layout {
        let nodes = self.control.settings.nodes;
        let mut layout = self
            .pager
            .rights()
            .map_or(atoll_coherence::agent::Layout::new(nodes as u8, 0, 0), |rights| rights.layout());
        let page = |at: usize| self.pager.page_at(at).map_or(0, u64::from);
        layout.reclaim = (page(self.main_stack.bottom), page(self.main_stack.top - 1) + 1);
        layout.watched = self.control.settings.check_races != 0;
        if let Some(rights) = self.pager.rights().filter(|_| layout.watched) {
            rights.watch(layout.reclaim.0 as u32..layout.reclaim.1 as u32);
        }
        layout
    }

    /// Runs on another node than the origin, in the agent's thread, once the first thread sleeps.
    fn serve(self) -> Result<atoll_coherence::agent::Layout, String> {
        keep_environment(self.pager);
        main_stack::wait_for_sleep();
        // SAFETY: the first thread sleeps, or is about to without touching its stack again.
        unsafe { main_stack::map_over(self.pager, self.main_stack) }
            .map_err(|e| format!("cannot map the origin's stack: {e}"))?;
        self.attach()?;
        state::set_serves_faults();
        let started = workers::start(1, 0, region::lead, std::ptr::null_mut());
        started.map_err(|e| format!("the node's first worker: {e}"))?;
        self.control.start_ticks.store(sys::ticks(), Ordering::Relaxed);
        Ok(self.layout())
    }
}

unsafe extern "C" {
    #[link_name = "__environ"]
    static ENVIRON: AtomicPtr<*mut c_char>;
}

/// Copies the environment to memory that stays, because its strings lie on the stack that becomes the origin's. If `environ` is
/// a paged variable of the program's, it will be the origin's, too, and is left alone: faults are not served yet, so to read it
/// would put a page of zeros there for good.
fn keep_environment(pager: &Pager) {
    // SAFETY: libc's variable, which nobody changes meanwhile.
    let variable = unsafe { &ENVIRON };
    if pager.page_at(std::ptr::from_ref(variable) as usize).is_some() {
        return;
    }
    let mut at = variable.load(Ordering::Relaxed);
    let mut copy: Vec<*mut c_char> = Vec::new();
    // SAFETY: a list of strings that ends with a null pointer.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            copy.push(std::ffi::CStr::from_ptr(*at).to_owned().into_raw());
            at = at.add(1);
        }
    }
    copy.push(std::ptr::null_mut());
    variable.store(copy.leak().as_mut_ptr(), Ordering::Relaxed);
}
