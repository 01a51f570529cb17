//! Keys of thread-specific data, common to all workers.
//!
//! libc's table of keys belongs to a process. Once there are several, each key that is made or deleted is written to a log in shared memory, and
//! each worker repeats what it lacks when it enters its next region, and before it sets a value: libc gives the same numbers in the same
//! order. `replay` does the same for mappings. With several nodes the origin makes all keys. It tells the other nodes of them before each region;
//! inside one they ask it (`atoll_nodes::calls`).

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use atoll_memory::control::MAX_WORKERS;
use atoll_memory::spin::Spin;
use atoll_memory::sys;
use atoll_nodes::{ORIGIN, calls, on_origin};
use serde::{Deserialize, Serialize};

use super::replay;
use crate::omp::spread::wire;
use crate::state::{self, SignalsBlocked};

/// A key was made, or deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    key: u32,
    /// The address of the function for values of threads that end, or 0.
    destructor: u64,
    is_made: bool,
}

/// Changes of the origin from number `first` on, for another node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct News {
    first: u64,
    changes: Vec<Change>,
}

/// The changes so far; those that other nodes have not been told are behind `told`.
struct Log {
    changes: Vec<Change>,
    told: usize,
}

static LOG: Spin<Log> = Spin::new(Log { changes: Vec::new(), told: 0 });
/// Whether this node is not the origin, and works on the program's regions: it can ask the origin.
static ASKS: AtomicBool = AtomicBool::new(false);
/// The number of changes, to be read without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The number of changes that each page table has. Written under the lock.
static DONE: [AtomicUsize; MAX_WORKERS] = [const { AtomicUsize::new(0) }; MAX_WORKERS];

/// Whether there is another process, or will be on another node, that must repeat changes.
fn needed() -> bool {
    replay::needed() || atoll_nodes::active()
}

fn make(key: &mut u32, destructor: usize) -> c_int {
    let call = real!("pthread_key_create", unsafe extern "C" fn(*mut u32, usize) -> c_int);
    // SAFETY: the key is a variable of the caller's, and the function the program's.
    unsafe { call(key, destructor) }
}

fn delete(key: u32) -> c_int {
    let call = real!("pthread_key_delete", unsafe extern "C" fn(u32) -> c_int);
    // SAFETY: a number; libc checks it.
    unsafe { call(key) }
}

/// Repeats what this page table lacks.
fn repeat(log: &Log) {
    let done = &DONE[state::table()];
    let begin = done.load(Ordering::Relaxed);
    for change in log.changes.get(begin..).unwrap_or_default() {
        let mut key = change.key;
        let status = if change.is_made { make(&mut key, change.destructor as usize) } else { delete(key) };
        // Deleting what is not there is no harm.
        if change.is_made && (status != 0 || key != change.key) {
            static SAID: AtomicBool = AtomicBool::new(false);
            if !SAID.swap(true, Ordering::Relaxed) {
                sys::complain(
                    "atoll: a key of thread-specific data that one worker made could not be made in another\n",
                );
            }
        }
    }
    done.store(log.changes.len(), Ordering::Relaxed);
}

/// Makes a change in this process, in turn with those of others, and logs it.
fn change(call: impl FnOnce() -> (c_int, Change)) -> c_int {
    if !needed() {
        return call().0;
    }
    let _blocked = SignalsBlocked::new();
    let mut log = LOG.lock();
    repeat(&log);
    let (status, change) = call();
    if status == 0 {
        log.changes.push(change);
        DONE[state::table()].store(log.changes.len(), Ordering::Relaxed);
        // Release: pairs with the Acquire in `catch_up`.
        COUNT.store(log.changes.len(), Ordering::Release);
    }
    status
}

/// Repeats the changes of other workers that this one lacks. Costs two loads if there are none.
#[inline]
pub(super) fn catch_up() {
    // Acquire: pairs with the Release of who logged a change.
    let count = COUNT.load(Ordering::Acquire);
    if DONE[state::table()].load(Ordering::Relaxed) < count {
        let _blocked = SignalsBlocked::new();
        repeat(&LOG.lock());
    }
}

/// The new process of page table `table` has the keys of its maker, of page table `maker`.
pub(super) fn inherit(table: usize, maker: usize) {
    DONE[table].store(DONE[maker].load(Ordering::Relaxed), Ordering::Relaxed);
}

/// A process that the program forked has all keys of the worker that forked it, and nobody makes others for it.
pub(super) fn in_forked() {
    COUNT.store(0, Ordering::Relaxed);
}

/// The changes since the last call, for the other nodes, if there are any. Called on the origin by its agent.
pub(crate) fn new_changes() -> Option<News> {
    let _blocked = SignalsBlocked::new();
    let mut log = LOG.lock();
    let first = log.told;
    log.told = log.changes.len();
    let changes = log.changes.get(first..).filter(|changes| !changes.is_empty())?.to_vec();
    Some(News { first: first as u64, changes })
}

/// Has this node's workers repeat what the origin did, as far as this node has not heard of it. Called on another node.
pub(crate) fn news_came(news: &News) {
    let _blocked = SignalsBlocked::new();
    let mut log = LOG.lock();
    let known = (log.changes.len() as u64).saturating_sub(news.first) as usize;
    log.changes.extend_from_slice(news.changes.get(known..).unwrap_or_default());
    // Release: pairs with the Acquire in `catch_up`.
    COUNT.store(log.changes.len(), Ordering::Release);
}

/// On a node that is not the origin: it enters a region. Called by its agent.
pub(crate) fn enter_region() {
    if !on_origin() {
        ASKS.store(true, Ordering::Relaxed);
    }
}

fn asks() -> bool {
    ASKS.load(Ordering::Relaxed)
}

/// What another node asks for: the first word of its call. The second is the destructor, or the key, and the third how many changes it has.
const MAKE: u64 = 1 << 32;
const DELETE: u64 = MAKE + 1;
const TELL: u64 = MAKE + 2;

/// Asks the origin, and hears what is new there. The status, and the key that was made.
fn ask(what: u64, of: u64) -> (c_int, u32) {
    let reply = calls::call(ORIGIN, [what, of, COUNT.load(Ordering::Acquire) as u64, 0], &[]);
    if let Some(news) = wire::decode::<News>(&reply.bytes) {
        news_came(&news);
    }
    catch_up();
    (reply.result as c_int, (reply.result >> 32) as u32)
}

/// Carries out another node's call, if it is about keys.
pub(super) fn carry_out([what, of, has, _]: [u64; 4]) -> Option<calls::Reply> {
    let mut key = 0;
    let status = match what {
        // SAFETY: a variable, and the function of the program, which lies at the same address on all nodes.
        MAKE => unsafe { pthread_key_create(&raw mut key, of as usize) },
        // SAFETY: a number; libc checks it.
        DELETE => unsafe { pthread_key_delete(of as u32) },
        TELL => 0,
        _ => return None,
    };
    let news = {
        let _blocked = SignalsBlocked::new();
        let log = LOG.lock();
        News { first: has, changes: log.changes.get(has as usize..).unwrap_or_default().to_vec() }
    };
    let result = i64::from(key) << 32 | i64::from(status);
    Some(calls::Reply { result, errno: 0, bytes: wire::encode(&news) })
}

/// `pthread_key_create`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_key_create(key: *mut u32, destructor: usize) -> c_int {
    // The program's variable may be far, and is written without the lock.
    let mut made = 0;
    let status = if asks() {
        let (status, key) = ask(MAKE, destructor as u64);
        made = key;
        status
    } else {
        change(|| {
            let status = make(&mut made, destructor);
            (status, Change { key: made, destructor: destructor as u64, is_made: true })
        })
    };
    if status == 0 {
        // SAFETY: the caller's variable.
        unsafe { key.write(made) };
    }
    status
}

/// `pthread_key_delete`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_key_delete(key: u32) -> c_int {
    if asks() {
        return ask(DELETE, key.into()).0;
    }
    change(|| (delete(key), Change { key, destructor: 0, is_made: false }))
}

/// `pthread_setspecific`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pthread_setspecific(key: u32, value: *const c_void) -> c_int {
    catch_up();
    let call = real!("pthread_setspecific", unsafe extern "C" fn(u32, *const c_void) -> c_int);
    // SAFETY: the caller's value.
    let status = unsafe { call(key, value) };
    if status != libc::EINVAL || !asks() {
        return status;
    }
    // The key may have been made on another node in this region.
    ask(TELL, 0);
    // SAFETY: as above.
    unsafe { call(key, value) }
}

/// The results of C11's functions.
const SUCCESS: c_int = 0;
const ERROR: c_int = 2;

fn c11(status: c_int) -> c_int {
    if status == 0 { SUCCESS } else { ERROR }
}

/// `tss_create`: a key as POSIX has them.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tss_create(key: *mut u32, destructor: usize) -> c_int {
    // SAFETY: the caller's variable and function.
    c11(unsafe { pthread_key_create(key, destructor) })
}

/// `tss_delete`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tss_delete(key: u32) {
    // SAFETY: the caller's key.
    unsafe { pthread_key_delete(key) };
}

/// `tss_set`.
///
/// # Safety
/// The same as for libc's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn tss_set(key: u32, value: *const c_void) -> c_int {
    // SAFETY: the caller's value.
    c11(unsafe { pthread_setspecific(key, value) })
}
