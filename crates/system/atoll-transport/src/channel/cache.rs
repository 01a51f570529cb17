//! A cache of values that a process needs once, however often each is handed to it.
//!
//! `set_file.rs` keeps mappings in it, `peer.rs` processes: with 10,000 channels from one peer there is one of each.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Values by their keys, kept while somebody uses them.
pub(crate) struct Cache<K, T> {
    entries: Mutex<Option<HashMap<K, Weak<T>>>>,
}

impl<K: Eq + Hash, T> Cache<K, T> {
    /// An empty cache.
    pub(crate) const fn new() -> Cache<K, T> {
        Cache { entries: Mutex::new(None) }
    }

    /// The value of `key`; made anew by the closure unless one is in use that is still `valid`.
    pub(crate) fn get<E>(
        &self,
        key: K,
        valid: impl FnOnce(&T) -> bool,
        make: impl FnOnce() -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = entries.get_or_insert_default();
        if let Some(value) = entries.get(&key).and_then(Weak::upgrade)
            && valid(&value)
        {
            return Ok(value);
        }
        let value = make()?;
        // Unused entries are removed now and then, so that the map is never much larger than the number in use.
        if entries.len() == entries.capacity() {
            entries.retain(|_, value| value.strong_count() > 0);
        }
        entries.insert(key, Arc::downgrade(&value));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_while_used_and_anew_after() {
        let cache = Cache::new();
        let get = |key, value| *cache.get(key, |_| true, || Ok::<_, ()>(Arc::new(value))).unwrap();
        let first = cache.get(1, |_| true, || Ok::<_, ()>(Arc::new(10))).unwrap();
        assert_eq!((get(1, 11), get(2, 12)), (10, 12));
        assert_eq!(*cache.get(1, |_| false, || Ok::<_, ()>(Arc::new(13))).unwrap(), 13);
        drop(first);
        assert_eq!(get(1, 14), 14);
        assert_eq!(cache.get(3, |_| true, || Err::<Arc<i32>, _>("no")), Err("no"));
    }
}
