//! Reductions over tasks: each thread's copies of the variables, made when the thread first asks for one, and combined when the
//! group's tasks are complete.
//!
//! A task group has its own copies. In a reduction of a region or a work-sharing construct each thread has a group, and all
//! groups share the copies.

use super::super::alloc;
use super::super::task::Group;
use super::super::taskgroup;
use super::super::team::{Thread, me};
use super::super::workshare;
use super::kinds::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The compiler's description of one variable, in the older form and in the newer one below.
#[repr(C)]
struct OlderInput {
    shared: usize,
    size: usize,
    init: Option<extern "C" fn(usize)>,
    fini: Option<extern "C" fn(usize)>,
    combine: Option<extern "C" fn(usize, usize)>,
    flags: u32,
}

#[repr(C)]
struct Input {
    shared: usize,
    original: usize,
    size: usize,
    init: Option<extern "C" fn(usize, usize)>,
    fini: Option<extern "C" fn(usize)>,
    combine: Option<extern "C" fn(usize, usize)>,
    flags: u32,
}

/// How a copy is initialised.
#[derive(Clone, Copy)]
enum Init {
    Zero,
    Alone(extern "C" fn(usize)),
    From(extern "C" fn(usize, usize), usize),
}

/// One reduction variable.
#[derive(Clone, Copy)]
struct Item {
    /// The address of the variable, which receives the result and by which tasks name it.
    shared: usize,
    size: usize,
    init: Init,
    fini: Option<extern "C" fn(usize)>,
    combine: Option<extern "C" fn(usize, usize)>,
}

impl From<&OlderInput> for Item {
    fn from(input: &OlderInput) -> Item {
        let &OlderInput { shared, size, fini, combine, .. } = input;
        Item { shared, size, init: input.init.map_or(Init::Zero, Init::Alone), fini, combine }
    }
}

impl From<&Input> for Item {
    fn from(input: &Input) -> Item {
        let &Input { shared, size, fini, combine, .. } = input;
        let from = if input.original == 0 { shared } else { input.original };
        let init = input.init.map_or(Init::Zero, |init| Init::From(init, from));
        Item { shared, size, init, fini, combine }
    }
}

/// The copies of one variable, one for each thread.
struct Copies {
    base: usize,
    stride: usize,
    made: Box<[AtomicBool]>,
}

/// The data that all threads of a reduction share.
struct Common {
    copies: Vec<Copies>,
    /// The number of groups that have these copies, and how many of those are over.
    sharers: u32,
    over: AtomicU32,
}

/// A group's reductions.
pub(crate) struct Reductions {
    items: Vec<Item>,
    common: *const Common,
}

impl Common {
    fn new(items: &[Item], threads: u32, sharers: u32) -> *const Common {
        let copies = items
            .iter()
            .map(|item| {
                // No two threads' copies share a cache line.
                let stride = item.size.next_multiple_of(64).max(64);
                let base = alloc::plain(64, stride * threads as usize, true) as usize;
                if base == 0 {
                    super::super::fatal("there is no memory for a reduction's copies");
                }
                Copies { base, stride, made: (0..threads).map(|_| AtomicBool::new(false)).collect() }
            })
            .collect();
        Box::into_raw(Box::new(Common { copies, sharers, over: AtomicU32::new(0) }))
    }
}

impl Reductions {
    fn common(&self) -> &Common {
        // SAFETY: the data lives until the last group that has it is over.
        unsafe { &*self.common }
    }

    /// The copy of thread `id` of a variable, given by the variable's address or that of any thread's copy.
    fn find(&self, id: usize, address: usize) -> Option<usize> {
        for (item, copies) in self.items.iter().zip(&self.common().copies) {
            let all = copies.base..copies.base + copies.stride * copies.made.len();
            if address != item.shared && !all.contains(&address) {
                continue;
            }
            let copy = copies.base + copies.stride * id;
            // Only thread `id` makes its copy; the combining thread learns of it by the group's end.
            if !copies.made[id].swap(true, Ordering::Relaxed) {
                match item.init {
                    Init::Zero => {}
                    Init::Alone(init) => init(copy),
                    Init::From(init, original) => init(copy, original),
                }
            }
            return Some(copy);
        }
        None
    }

    /// Combines all copies with the variables.
    fn combine(&self) {
        for (item, copies) in self.items.iter().zip(&self.common().copies) {
            for (id, made) in copies.made.iter().enumerate() {
                if !made.load(Ordering::Relaxed) {
                    continue;
                }
                let copy = copies.base + copies.stride * id;
                if let Some(combine) = item.combine {
                    combine(item.shared, copy);
                }
                if let Some(fini) = item.fini {
                    fini(copy);
                }
            }
        }
    }
}

/// Ends the group's reductions, if it has any; its tasks are complete.
pub(crate) fn finish(group: &Group) {
    let place = group.kmp_reductions.replace(std::ptr::null_mut());
    if place.is_null() {
        return;
    }
    // SAFETY: `give` boxed them, and the group's tasks are complete.
    let reductions = unsafe { Box::from_raw(place) };
    let common = reductions.common();
    // Other side: this addition in the other threads, whose copies are then as their tasks left them.
    if common.over.fetch_add(1, Ordering::AcqRel) + 1 < common.sharers {
        return;
    }
    reductions.combine();
    for copies in &common.copies {
        // SAFETY: the memory is from `alloc::plain`, and nobody uses it any more.
        unsafe { libc::free(copies.base as *mut libc::c_void) };
    }
    // SAFETY: boxed by `Common::new`; this was the last group that has it.
    drop(unsafe { Box::from_raw(reductions.common.cast_mut()) });
}

/// The current group of the calling thread.
fn group(thread: &Thread) -> *const Group {
    thread.task().group.get()
}

fn items<'a, I: 'a>(count: i32, data: *const I) -> Vec<Item>
where
    Item: From<&'a I>,
{
    // SAFETY: the program passes as many descriptions as it says, valid during this call.
    (0..usize::try_from(count).unwrap_or(0)).map(|index| Item::from(unsafe { &*data.add(index) })).collect()
}

/// Sets the reductions of the current group. Teams of one need none: tasks work on the variables themselves.
fn give(thread: &Thread, items: Vec<Item>, common: *const Common) {
    // SAFETY: the current task's group is open.
    if let Some(group) = unsafe { group(thread).as_ref() } {
        group.kmp_reductions.set(Box::into_raw(Box::new(Reductions { items, common })));
    }
}

fn init(items: Vec<Item>) -> *const Group {
    let thread = me();
    let team = thread.team();
    if !team.has_one_worker() {
        let common = Common::new(&items, team.size.get(), 1);
        give(thread, items, common);
    }
    group(thread)
}

/// Begins the reductions of a region, or of a work-sharing construct, which all members call.
fn init_together(items: Vec<Item>) -> *const Group {
    let thread = me();
    if thread.team().spans() {
        atoll_nodes::unsupported("a reduction over the tasks of a region or a work-sharing construct");
    }
    taskgroup::enter(thread, false);
    let team = thread.team();
    let threads = team.size.get();
    if threads > 1 {
        let fill = |share: &workshare::WorkShare| {
            share.reserve(size_of::<usize>());
            // SAFETY: just reserved, and nobody else sees the share yet.
            unsafe { share.memory().cast::<*const Common>().write(Common::new(&items, threads, threads)) };
        };
        let spill = |share: &workshare::WorkShare| {
            // SAFETY: `fill` put the data there, and nobody else has it.
            let common = unsafe { Box::from_raw(share.memory().cast::<*mut Common>().read()) };
            for copies in &common.copies {
                // SAFETY: the memory is from `alloc::plain`.
                unsafe { libc::free(copies.base as *mut libc::c_void) };
            }
        };
        let (share, _) = workshare::meet(thread, team, fill, spill);
        // SAFETY: the member that came first put the data there in `fill`; the share stays while this member is at it.
        let common = unsafe { share.memory().cast::<*const Common>().read() };
        give(thread, items, common);
    }
    group(thread)
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_task_reduction_init(_: i32, count: i32, data: *const OlderInput) -> *const Group {
    init(items(count, data))
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_taskred_init(_: i32, count: i32, data: *const Input) -> *const Group {
    init(items(count, data))
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_task_reduction_modifier_init(
    _: *const Location,
    _: i32,
    _shares_work: i32,
    count: i32,
    data: *const OlderInput,
) -> *const Group {
    init_together(items(count, data))
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_taskred_modifier_init(
    _: *const Location,
    _: i32,
    _shares_work: i32,
    count: i32,
    data: *const Input,
) -> *const Group {
    init_together(items(count, data))
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_task_reduction_modifier_fini(_: *const Location, _: i32, _shares_work: i32) {
    taskgroup::leave(me());
}

/// The calling thread's copy of a variable, in the group that the program names or in one around it.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_task_reduction_get_th_data(_: i32, named: *const Group, address: usize) -> usize {
    let thread = me();
    if thread.team().has_one_worker() {
        return address;
    }
    let mut at = if named.is_null() { group(thread) } else { named };
    // SAFETY: groups are open as long as the tasks in them, and those around them.
    while let Some(group) = unsafe { at.as_ref() } {
        // SAFETY: set by the thread that opened the group, before it made tasks in it.
        let reductions = unsafe { group.kmp_reductions.get().as_ref() };
        if let Some(copy) = reductions.and_then(|all| all.find(thread.id() as usize, address)) {
            return copy;
        }
        at = group.outer;
    }
    super::super::fatal(&format!("there is no task reduction of the variable at {address:#x}"))
}
