//! Places: sets of CPUs that threads are bound to, where OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY asks.
//!
//! `parallel` and `crew` bind members through this file; `affinity` answers the program's queries.

use super::env;
use super::icv::{BIND_CLOSE, BIND_FALSE, BIND_PRIMARY, BIND_SPREAD, BIND_TRUE};
use super::team::{Team, Thread};
use atoll_memory::futex::Lock;
use std::mem::{MaybeUninit, size_of};
use std::sync::atomic::{AtomicU32, Ordering};

static PLACES: Lock<Vec<Vec<usize>>> = Lock::new(Vec::new());
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The CPUs the calling thread may use.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the set is zeroed, which is an empty set, and as large as said.
    let set = unsafe {
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr());
        set.assume_init()
    };
    // SAFETY: the indices are within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Binds the calling thread to these CPUs.
fn bind_to(cpus: &[usize]) {
    let set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: zeroed is an empty set.
    let mut set = unsafe { set.assume_init() };
    for cpu in cpus {
        // SAFETY: the indices were found in, or checked against, such a set.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: the set is as large as said. Failure leaves the thread where it may run, which is right, too.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
}

/// Reads the places, now that the binding policy is known; returns the policy in force.
pub(crate) fn init(bind: u8) -> u8 {
    let allowed = allowed_cpus();
    let named = env::variable("OMP_PLACES").and_then(|text| {
        let places = parse(&text, &allowed);
        if places.is_none() {
            super::say(&format!("Invalid value for environment variable OMP_PLACES: {text}"));
        }
        places
    });
    let asked = env::variable("OMP_PROC_BIND").is_some();
    if asked && bind == BIND_FALSE {
        return bind;
    }
    let affinity = env::variable("GOMP_CPU_AFFINITY").and_then(|text| parse_affinity(&text));
    let (places, bind) = match (named, affinity) {
        (Some(places), _) => (places, if bind == BIND_FALSE { BIND_TRUE } else { bind }),
        (None, Some(places)) if !asked => (places, BIND_TRUE),
        _ if asked => (allowed.iter().map(|cpu| vec![*cpu]).collect(), bind),
        _ => return bind,
    };
    let places = keep_allowed(places, &allowed);
    if places.is_empty() {
        return BIND_FALSE;
    }
    COUNT.store(places.len() as u32, Ordering::Relaxed);
    *PLACES.lock() = places;
    bind
}

fn keep_allowed(places: Vec<Vec<usize>>, allowed: &[usize]) -> Vec<Vec<usize>> {
    let keep = |place: Vec<usize>| place.into_iter().filter(|cpu| allowed.contains(cpu)).collect::<Vec<_>>();
    places.into_iter().map(keep).filter(|place| !place.is_empty()).collect()
}

/// The number of places; 0 where nobody asked for any.
pub(crate) fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// The CPUs of a place.
pub(crate) fn cpus_of(place: i32) -> Vec<usize> {
    usize::try_from(place).ok().and_then(|place| PLACES.lock().get(place).cloned()).unwrap_or_default()
}

/// The place, below `count`, of member `id` among `size` members whose leader is at place `leader`.
fn place_for(bind: u8, leader: u32, id: u32, size: u32, count: u32) -> u32 {
    let offset = match bind {
        BIND_PRIMARY => 0,
        BIND_SPREAD if size <= count => (u64::from(id) * u64::from(count) / u64::from(size)) as u32,
        // With more members than places, neighbours share a place.
        _ if size > count => (u64::from(id) * u64::from(count) / u64::from(size)) as u32,
        BIND_CLOSE | BIND_TRUE => id,
        _ => id,
    };
    (leader + offset) % count
}

/// Binds a member at the start of its part of a region.
#[inline]
pub(crate) fn bind_member(thread: &Thread, team: &Team, id: u32) {
    if count() != 0 {
        bind_member_slowly(thread, team, id);
    }
}

#[cold]
fn bind_member_slowly(thread: &Thread, team: &Team, id: u32) {
    let bind = team.region.bind.get();
    if bind == BIND_FALSE {
        return;
    }
    let leader = team.region.leader_place.get().max(0) as u32;
    move_to(thread, place_for(bind, leader, id, team.size.get(), count()) as i32);
}

fn move_to(thread: &Thread, place: i32) {
    if place >= 0 && thread.place.replace(place) != place {
        bind_to(&cpus_of(place));
    }
}

/// Binds the leader to its earlier place again, after a region.
#[inline]
pub(crate) fn bind_back(thread: &Thread, team: &Team) {
    if count() != 0 {
        move_to(thread, team.region.leader_place.get());
    }
}

/// Parses OMP_PLACES: an abstract name, which a number may follow, or a list of places.
fn parse(text: &str, allowed: &[usize]) -> Option<Vec<Vec<usize>>> {
    let text = text.trim().to_ascii_lowercase();
    if text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        let (name, number) = match text.split_once('(') {
            Some((name, rest)) => {
                (name.trim(), Some(rest.trim_end().strip_suffix(')')?.trim().parse::<usize>().ok()?))
            }
            None => (text.as_str(), None),
        };
        let mut places = match name {
            "threads" => allowed.iter().map(|cpu| vec![*cpu]).collect(),
            "cores" => group_by(allowed, "topology/core_cpus_list", "topology/thread_siblings_list"),
            "sockets" => group_by(allowed, "topology/package_cpus_list", "topology/core_siblings_list"),
            "ll_caches" => group_by(allowed, "cache/index3/shared_cpu_list", "cache/index2/shared_cpu_list"),
            "numa_domains" => group_by(allowed, "node0/cpulist", "topology/package_cpus_list"),
            _ => return None,
        };
        places.truncate(number.filter(|number| *number > 0).unwrap_or(usize::MAX));
        return Some(places);
    }
    parse_list(&text)
}

/// Groups the allowed CPUs by the content of a file in each CPU's sysfs directory.
fn group_by(allowed: &[usize], file: &str, other: &str) -> Vec<Vec<usize>> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for cpu in allowed {
        let at = |file: &str| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{file}"));
        let key = at(file).or_else(|_| at(other)).unwrap_or_else(|_| cpu.to_string());
        match groups.iter_mut().find(|(name, _)| *name == key) {
            Some((_, group)) => group.push(*cpu),
            None => groups.push((key, vec![*cpu])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Parses a list of places, `{0,1},{2:2},…`, each of which `:number[:stride]` may follow.
fn parse_list(text: &str) -> Option<Vec<Vec<usize>>> {
    let mut places: Vec<Vec<usize>> = Vec::new();
    let mut rest = text.trim();
    loop {
        let exclude = rest.starts_with('!');
        rest = rest.trim_start_matches('!').trim_start();
        let place = if let Some(inner) = rest.strip_prefix('{') {
            let (inner, after) = inner.split_once('}')?;
            rest = after.trim_start();
            parse_cpus(inner)?
        } else {
            let end = rest.find([',', ':']).unwrap_or(rest.len());
            let cpu = rest[..end].trim().parse::<usize>().ok()?;
            rest = rest[end..].trim_start();
            vec![cpu]
        };
        let mut number = 1;
        let mut stride = i64::try_from(place.len()).ok()?;
        if let Some(after) = rest.strip_prefix(':') {
            let end = after.find(',').unwrap_or(after.len());
            let mut parts = after[..end].split(':');
            number = parts.next()?.trim().parse::<usize>().ok().filter(|number| *number > 0)?;
            if let Some(text) = parts.next() {
                stride = text.trim().parse::<i64>().ok()?;
            }
            rest = after[end..].trim_start();
        }
        for index in 0..number.min(libc::CPU_SETSIZE as usize) {
            let shift = stride.checked_mul(index as i64)?;
            let moved = place
                .iter()
                .filter_map(|cpu| usize::try_from(*cpu as i64 + shift).ok())
                .filter(|cpu| *cpu < libc::CPU_SETSIZE as usize)
                .collect::<Vec<_>>();
            if exclude {
                places.retain(|other| *other != moved);
            } else {
                places.push(moved);
            }
        }
        if rest.is_empty() {
            return Some(places);
        }
        rest = rest.strip_prefix(',')?.trim_start();
    }
}

/// Parses the CPUs in braces: numbers, `first:number[:stride]`, and `!` before those to leave out.
fn parse_cpus(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for entry in text.split(',') {
        let entry = entry.trim();
        let exclude = entry.starts_with('!');
        let mut parts = entry.trim_start_matches('!').split(':');
        let first = parts.next()?.trim().parse::<i64>().ok()?;
        let number = parts.next().map_or(Some(1), |text| text.trim().parse::<i64>().ok())?;
        let stride = parts.next().map_or(Some(1), |text| text.trim().parse::<i64>().ok())?;
        for index in 0..number.min(i64::from(libc::CPU_SETSIZE)) {
            let cpu = usize::try_from(first + index * stride).ok()?;
            if exclude {
                cpus.retain(|other| *other != cpu);
            } else if !cpus.contains(&cpu) && cpu < libc::CPU_SETSIZE as usize {
                cpus.push(cpu);
            }
        }
    }
    Some(cpus)
}

/// Parses GOMP_CPU_AFFINITY: CPUs or ranges `first-last[:stride]`, separated by blanks or commas.
fn parse_affinity(text: &str) -> Option<Vec<Vec<usize>>> {
    let mut places = Vec::new();
    for entry in text.split([' ', ',', '\t']).filter(|entry| !entry.is_empty()) {
        let (range, stride) = entry.split_once(':').unwrap_or((entry, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        let stride = stride.parse::<usize>().ok().filter(|stride| *stride > 0)?;
        places
            .extend((first..=last.min(libc::CPU_SETSIZE as usize - 1)).step_by(stride).map(|cpu| vec![cpu]));
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_affinity, place_for};

    #[test]
    fn lists_of_places() {
        let places = |text| parse(text, &[0, 1, 2, 3]);
        assert_eq!(places("{0,1},{2:2}"), Some(vec![vec![0, 1], vec![2, 3]]));
        assert_eq!(places("{0:2}:2"), Some(vec![vec![0, 1], vec![2, 3]]));
        assert_eq!(places("{0}:3:2,!{2}"), Some(vec![vec![0], vec![4]]));
        assert_eq!(places("threads(2)"), Some(vec![vec![0], vec![1]]));
        assert_eq!(places("3,1"), Some(vec![vec![3], vec![1]]));
        assert_eq!(places("{0"), None);
        assert_eq!(parse_affinity("0 3-5:2"), Some(vec![vec![0], vec![3], vec![5]]));
    }

    #[test]
    fn members_are_placed() {
        assert_eq!((0..4).map(|id| place_for(4, 0, id, 4, 8)).collect::<Vec<_>>(), [0, 2, 4, 6]);
        assert_eq!((0..4).map(|id| place_for(3, 6, id, 4, 8)).collect::<Vec<_>>(), [6, 7, 0, 1]);
        assert_eq!((0..4).map(|id| place_for(3, 0, id, 4, 2)).collect::<Vec<_>>(), [0, 0, 1, 1]);
    }
}
