//! Parallel regions: opened by a leader, executed by a team, closed by the leader again.
//!
//! `crew` finds the members; `barrier::join` ends their part. The combined constructs of `loops` and `sections` fill the team's
//! first work share between `open` and `launch`.

use super::barrier;
use super::crew;
use super::env;
use super::hooks;
use super::loops::{self, Deal, Plan};
use super::places;
use super::spread::decide::Spreading;
use super::spread::region::{Order, Writers};
use super::spread::{decide, region as spread_region, stacks, travel};
use super::task::Group;
use super::taskgroup;
use super::team::{Body, Function, Span, Team, Thread, me};
use super::workshare;
use atoll_libgomp::with_caller;
use atoll_memory::futex;
use atoll_memory::region_counts::Key;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of threads for a region that asks for `asked` (0: it does not say), and how many of them its contention group
/// counts besides the leader: none where there is no limit.
fn resolve(thread: &Thread, asked: u32) -> (u32, u32) {
    let icv = thread.icv();
    let team = thread.team();
    if thread.alone {
        say_alone();
        return (1, 0);
    }
    if asked == 1 || team.nesting.active_level.get() >= icv.max_active_levels {
        return (1, 0);
    }
    let mut threads = if asked == 0 { icv.threads } else { asked };
    if icv.dynamic {
        threads = threads.min(env::cpus());
    }
    threads = threads.max(1);
    if icv.thread_limit == u32::MAX {
        return (threads, 0);
    }
    let counted = team.contention().reserve(threads - 1, icv.thread_limit);
    (counted + 1, counted)
}

/// Says that a region has one thread because its data lies on a stack that only its own process sees.
#[cold]
fn say_alone() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        super::say(
            "a thread that libc itself made (for a timer, say) begins a parallel region: such regions have one thread; \
             with --page-tables shared they have all",
        );
    }
}

/// The key of a region, which tells it apart from others: its function, where it is called from, and its loop.
pub(crate) fn key(outlined: usize, call_site: usize, plan: Option<&Plan>) -> Key {
    let extent = plan.map_or(0, |plan| {
        let deal = match plan.deal {
            Deal::Blocks => 0,
            Deal::Turns => 1,
            Deal::Dynamic | Deal::Stealing => 2,
            Deal::Guided | Deal::GuidedEven => 3,
        };
        1 + (u64::from(64 - plan.count.leading_zeros()) << 2 | deal)
    });
    Key { function: outlined as u64, call_site: call_site as u64, extent }
}

/// Spreads a region of `wanted` threads over the nodes, where there are several. Returns the whole of which the origin's part
/// is one, and the number of threads in that part.
fn span(thread: &Thread, wanted: u32, key: Key) -> (Span, u32) {
    match atoll_nodes::several() {
        Some((atoll_nodes::ORIGIN, nodes)) if thread.first && !thread.team().is_within() => {
            // What was loaded since may keep variables by thread, which decides, too.
            hooks::before_region();
            match decide::begin(key, wanted, nodes) {
                Some(spreading) => {
                    let threads = spreading.division.threads(atoll_nodes::ORIGIN);
                    let iterations = spreading.division.iterations(atoll_nodes::ORIGIN);
                    (Span::part(threads, iterations, spreading.first_come, spreading.tasks), threads.count)
                }
                None => (Span { measured: true, ..Span::default() }, wanted),
            }
        }
        _ => (Span::default(), wanted),
    }
}

/// Opens a region of the calling thread: a team with its members claimed, not yet at work.
pub(crate) fn open(thread: &Thread, key: Key, asked: u32, flags: u32) -> &'static Team {
    let (threads, counted) = resolve(thread, asked);
    let (span, wanted) = span(thread, threads, key);
    let team = open_part(thread, wanted, flags, span);
    count(team, counted);
    team.region.extent.set(key.extent);
    team
}

/// Opens a region on the calling thread's node alone, for what cannot be spread.
pub(crate) fn open_here(thread: &Thread, asked: u32, flags: u32) -> &'static Team {
    let (threads, counted) = resolve(thread, asked);
    let team = open_part(thread, threads, flags, Span::default());
    count(team, counted);
    team.region.extent.set(0);
    team
}

/// Records how many threads the team's contention group counts for it; those that could not be had are given back.
fn count(team: &Team, counted: u32) {
    let there = counted.min(team.threads() - 1);
    team.contention().give_back(counted - there);
    team.nesting.counted.set(there);
    if team.spans() {
        team.contention().set_spread(true);
    }
}

fn open_part(thread: &Thread, wanted: u32, flags: u32, span: Span) -> &'static Team {
    let team = Team::obtain(thread, wanted as usize);
    let found = if wanted > 1 { crew::muster(thread, team, wanted - 1) } else { 0 };
    if found > 0 {
        futex::busier(found);
    }
    let outside = thread.state.get();
    // SAFETY: every thread has a team.
    let parent = unsafe { &*outside.team };
    let level = parent.nesting.level.get() + 1;
    let mut icv = thread.icv();
    // The lists of OMP_NUM_THREADS and OMP_PROC_BIND have one entry for each level.
    if let Some(threads) = env::threads_at(level) {
        icv.threads = threads;
    }
    let bind = if flags & 7 != 0 && icv.bind != 0 { (flags & 7) as u8 } else { icv.bind };
    if let Some(bind) = env::bind_at(level) {
        icv.bind = bind;
    }
    team.nesting.put_within(parent, outside.id, found > 0 || span.threads > 1);
    team.span.set(span);
    team.region.bind.set(bind);
    team.region.leader_place.set(thread.place.get());
    team.outside.set(Some(outside));
    if span.threads != 0 && found + 1 < wanted {
        super::fatal("this node has fewer workers than the other nodes were told");
    }
    team.settle(found + 1, icv);
    team
}

/// Sends the members to work and makes the leader a member. The leader's own part of the region is still to be called.
pub(crate) fn launch(thread: &Thread, team: &'static Team, body: Body, call_site: usize) {
    hooks::before_region();
    team.region.body.set(Some(body));
    team.region.call_site.set(call_site);
    if team.span.get().measured && atoll_nodes::on_origin() {
        let spreading = decide::spreading();
        spread_region::begin_part(team.size.get(), spreading.is_some_and(|spreading| spreading.cpu));
        if let Some(spreading) = spreading {
            let Spreading { many, phases, calming, .. } = spreading;
            let writers = Writers { many, phases, calming };
            spread_region::begin(order(thread, team, body, spreading), writers);
        }
    }
    travel::begin_part(team);
    // SAFETY: the crew is the leader's to use.
    for (worker, id) in unsafe { &*team.crew.get() }.iter().zip(1..team.size.get()) {
        // SAFETY: workers are never freed.
        unsafe { &**worker }.send(team, id);
    }
    thread.state.set(team.state_of(0));
    places::bind_member(thread, team, 0);
    hooks::region_enter(team.key());
}

/// The order for the other nodes, with all that they must know about a region that begins.
fn order(thread: &Thread, team: &Team, body: Body, spreading: Spreading) -> Order {
    let key = team.key();
    // SAFETY: the first share is this team's, and nobody else uses it yet.
    let plan = unsafe { &*team.sharing.first.get() }.plan.get();
    Order {
        function: key.function,
        entry: body.function as usize as u64,
        data: body.data as u64,
        call_site: key.call_site,
        extent: key.extent,
        division: Some(spreading.division),
        cpu: spreading.cpu,
        first_come: spreading.first_come,
        tasks: spreading.tasks,
        standard: crate::wrap::elsewhere::replaced(),
        plan: Some(plan.to_words()),
        icv: thread.icv(),
        teams: team.nesting.teams.get(),
    }
}

/// Executes this node's part of a region, on another node than the origin.
pub(crate) fn take_part_of_region(order: Order) {
    let Some((node, _)) = atoll_nodes::several() else { return };
    let thread = me();
    thread.set_icv(|icv| *icv = order.icv);
    let (threads, iterations) = order.part(node);
    let team =
        open_part(thread, threads.count, 0, Span::part(threads, iterations, order.first_come, order.tasks));
    team.region.extent.set(order.extent);
    team.nesting.teams.set(order.teams);
    team.contention().set_spread(true);
    spread_region::begin_part(team.size.get(), order.cpu);
    // SAFETY: nobody works in the team yet.
    let first = unsafe { &*team.sharing.first.get() };
    loops::lay_out(team, first, order.plan.map_or(Plan::empty(), Plan::from_words));
    // SAFETY: the origin runs the same program at the same addresses, which was compared when the nodes met.
    let function = unsafe { std::mem::transmute::<usize, Function>(order.entry as usize) };
    let body = Body { function, data: order.data as *mut u8, outlined: order.function as usize };
    launch(thread, team, body, order.call_site as usize);
    stacks::call(thread, team, body.function, body.data);
    close(thread);
    spread_region::end_part(order.key());
}

/// Calls the leader's own part of a region.
pub(crate) fn call(team: &Team, body: Body) {
    let Body { function, data, .. } = body;
    if team.spans() { atoll_nodes::stack::call_below(function, data) } else { function(data) }
}

/// Ends the region that the thread leads: waits for all members and restores the leader's state outside the region.
pub(crate) fn close(thread: &Thread) {
    let team = thread.team();
    let Some(outside) = team.outside.take() else { return };
    barrier::join(thread, team);
    if team.span.get().measured && atoll_nodes::on_origin() {
        decide::ended();
    }
    let followers = team.size.get() - 1;
    if followers > 0 {
        // SAFETY: the crew is the leader's to use.
        for worker in unsafe { &*team.crew.get() } {
            // SAFETY: workers are never freed.
            unsafe { &**worker }.dismiss();
        }
        futex::calmer(followers);
    }
    if team.spans() {
        team.contention().set_spread(false);
    }
    team.contention().give_back(team.nesting.counted.take());
    workshare::close(team);
    team.cancelled.store(false, Ordering::Relaxed);
    // The leader maps what members mapped in the region.
    crate::wrap::replay::catch_up();
    thread.state.set(outside);
    places::bind_back(thread, team);
    team.put_back(thread);
}

/// Executes a whole region.
pub(crate) fn region(body: Body, asked: u32, flags: u32, call_site: usize) {
    let thread = me();
    let team = open(thread, key(body.outlined, call_site, None), asked, flags);
    launch(thread, team, body, call_site);
    call(team, body);
    close(thread);
}

extern "C" fn parallel(function: Function, data: *mut u8, asked: u32, flags: u32, call_site: usize) {
    region(Body::plain(function, data), asked, flags, call_site);
}

extern "C" fn parallel_reductions(
    function: Function,
    data: *mut u8,
    asked: u32,
    flags: u32,
    call_site: usize,
) -> u32 {
    let thread = me();
    let team = open_here(thread, asked, flags);
    // SAFETY: the region's data begins with the array of its reductions.
    let reductions = unsafe { *data.cast::<*mut usize>() };
    let group = Group::open(ptr::null(), false);
    taskgroup::register(reductions, ptr::null_mut(), ptr::null(), team.size.get() as usize);
    // SAFETY: the group was just opened.
    unsafe { &*group }.reductions.set(reductions);
    team.region.group.set(group);
    launch(thread, team, Body::plain(function, data), call_site);
    function(data);
    let size = team.size.get();
    close(thread);
    // SAFETY: the region's tasks are complete.
    unsafe { Group::close(group) };
    size
}

with_caller! {
    /// `void GOMP_parallel(fn, data, num_threads, flags)`: passes its return address on.
    GOMP_parallel to parallel as argument 4;
    /// `unsigned GOMP_parallel_reductions(fn, data, num_threads, flags)`: passes its return address on.
    GOMP_parallel_reductions to parallel_reductions as argument 4;
}

/// Opens a region in the older form, in which the program calls the leader's part itself.
#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_start(function: Function, data: *mut u8, asked: u32) {
    let thread = me();
    let team = open(thread, key(function as usize, 0, None), asked, 0);
    launch(thread, team, Body::plain(function, data), 0);
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_end() {
    close(me());
}
