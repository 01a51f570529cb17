//! `OMP_ALLOCATOR`: the allocator that programs use where they name none.
//!
//! `env` reads it once; `alloc` makes the allocator. The variable names a predefined allocator, or a memory space with traits
//! behind a colon (OpenMP 5.1, section 6.22).

use super::alloc::{self, Trait};

const ALLOCATORS: [&str; 8] = [
    "omp_default_mem_alloc",
    "omp_large_cap_mem_alloc",
    "omp_const_mem_alloc",
    "omp_high_bw_mem_alloc",
    "omp_low_lat_mem_alloc",
    "omp_cgroup_mem_alloc",
    "omp_pteam_mem_alloc",
    "omp_thread_mem_alloc",
];

const SPACES: [&str; 5] = [
    "omp_default_mem_space",
    "omp_large_cap_mem_space",
    "omp_const_mem_space",
    "omp_high_bw_mem_space",
    "omp_low_lat_mem_space",
];

/// The traits, the first of which has number 1, and their named values.
const TRAITS: [(&str, &[(&str, usize)]); 8] = [
    ("sync_hint", &[("contended", 3), ("uncontended", 4), ("serialized", 5), ("private", 6)]),
    ("alignment", &[]),
    ("access", &[("all", 7), ("cgroup", 8), ("pteam", 9), ("thread", 10)]),
    ("pool_size", &[]),
    ("fallback", &[("default_mem_fb", 11), ("null_fb", 12), ("abort_fb", 13), ("allocator_fb", 14)]),
    ("fb_data", &[]),
    ("pinned", &[("false", 0), ("true", 1)]),
    ("partition", &[("environment", 15), ("nearest", 16), ("blocked", 17), ("interleaved", 18)]),
];

/// An allocator as the environment describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Described {
    /// The handle of a predefined allocator.
    Predefined(usize),
    /// The number of a memory space, and traits as number and value.
    Made(usize, Vec<(i32, usize)>),
}

fn position(list: &[&str], name: &str) -> Option<usize> {
    list.iter().position(|known| known.eq_ignore_ascii_case(name))
}

/// Parses the variable's value; `None` if it is not valid.
pub(super) fn parse(value: &str) -> Option<Described> {
    let value = value.trim();
    if let Some(at) = position(&ALLOCATORS, value) {
        return Some(Described::Predefined(at + 1));
    }
    let (space, traits) =
        value.split_once(':').map_or((value, None), |(space, traits)| (space, Some(traits)));
    let space = position(&SPACES, space.trim())?;
    let traits = traits.map_or(Some(Vec::new()), |list| list.split(',').map(one_trait).collect())?;
    Some(Described::Made(space, traits))
}

fn one_trait(text: &str) -> Option<(i32, usize)> {
    let (name, value) = text.split_once('=').map(|(name, value)| (name.trim(), value.trim()))?;
    let at = TRAITS.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))?;
    let named = TRAITS[at].1;
    let number = if named.is_empty() {
        match position(&ALLOCATORS, value) {
            Some(allocator) if TRAITS[at].0 == "fb_data" => allocator + 1,
            _ => value.parse().ok()?,
        }
    } else {
        named.iter().find(|(known, _)| known.eq_ignore_ascii_case(value))?.1
    };
    Some((at as i32 + 1, number))
}

/// Makes the allocator described; returns its handle, 0 where its traits contradict each other.
pub(super) fn make(described: &Described) -> usize {
    match described {
        Described::Predefined(handle) => *handle,
        Described::Made(space, traits) => {
            let traits: Vec<Trait> = traits.iter().map(|(key, value)| Trait::new(*key, *value)).collect();
            alloc::omp_init_allocator(*space, traits.len() as i32, traits.as_ptr())
        }
    }
}

/// A handle as `OMP_DISPLAY_ENV` shows it.
pub(super) fn name(handle: usize) -> String {
    let predefined = handle.checked_sub(1).and_then(|at| ALLOCATORS.get(at));
    predefined.map_or_else(|| alloc::describe(handle), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_and_spaces_with_traits_are_read() {
        assert_eq!(parse("omp_thread_mem_alloc"), Some(Described::Predefined(8)));
        assert_eq!(parse("omp_large_cap_mem_space"), Some(Described::Made(1, vec![])));
        let traits = parse("omp_default_mem_space : alignment=512, pinned=false,fallback=null_fb");
        assert_eq!(traits, Some(Described::Made(0, vec![(2, 512), (7, 0), (5, 12)])));
        assert_eq!(parse("omp_default_mem_space:alignment"), None);
        assert_eq!(parse("omp_fast_mem_alloc"), None);
    }
}
