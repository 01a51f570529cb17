//! The control block of a later program without OpenMP: a script starts several programs that need memory, and each is to be managed.
//!
//! Called by `take_over` where the run's control block belongs to another program. `again` does the same for programs with OpenMP, which
//! begin anew under a launcher of their own; a program without OpenMP runs already when it is known to need memory. Each program
//! has the whole limit: left alone, it would have none.

use std::sync::atomic::Ordering;

use atoll_memory::control::{Control, Settings};
use atoll_memory::far::FarSpec;
use atoll_memory::far::hosts::lenders::LendersSettings;
use atoll_memory::{limits, sys};

/// Far memory may take all of the available memory but one part in this number, which is left to others, and but near memory.
const LEFT_PART: u64 = 8;

/// Makes a control block for process `me`, with the settings of the run's `first` program. `None` where the run has no limit that the user
/// asked for, where its far memory is lenders', whose sessions are the first program's, or where the kernel refuses memory.
pub(super) fn make(first: &Control, me: i32) -> Option<&'static Control> {
    let settings = settings(&first.settings, limits::available_bytes())?;
    let (fd, control) = sys::with_descriptors(|| Control::create(settings)).ok()?;
    // The mapping stays. Nobody looks for the block of a program without a launcher.
    sys::close(fd);
    control.program.store(me, Ordering::Release);
    first.later_programs.fetch_add(1, Ordering::Relaxed);
    Some(control)
}

/// Returns the settings of a later program, where `available` bytes of the machine's memory are there, if that is known.
fn settings(first: &Settings, available: Option<u64>) -> Option<Settings> {
    if !first.has_asked_limit() || matches!(first.far().parse(), Ok(FarSpec::Hosts)) {
        return None;
    }
    // SAFETY: numbers and atomic numbers, which nothing is dropped of; others change none of them but the kind of page tables, to a kind that
    // a later program has, too.
    let mut settings = unsafe { std::ptr::read(first) };
    settings.has_no_launcher = 1;
    settings.launcher_words = 0;
    settings.count_regions = 0;
    settings.lenders = LendersSettings::NONE;
    if let Some(available) = available {
        let spare = (available - available / LEFT_PART).saturating_sub(first.near_bytes);
        settings.far_memory_bytes = settings.far_memory_bytes.min(spare);
    }
    Some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_program_has_the_limit_of_the_first_and_leaves_memory_to_others() {
        let mut first = Settings::new("adaptive", "auto");
        assert!(settings(&first, None).is_none());
        first.near_bytes = 1 << 30;
        first.launcher_words = 5;
        let later = settings(&first, Some(8 << 30)).unwrap();
        assert_eq!((later.near_bytes, later.far_memory_bytes), (1 << 30, 6 << 30));
        assert_eq!((later.has_no_launcher, later.launcher_words, later.policy()), (1, 0, "adaptive"));
        first.near_automatic = 1;
        assert!(settings(&first, None).is_none());
        let mut lent = Settings::new("adaptive", "hosts");
        lent.near_bytes = 1 << 30;
        assert!(settings(&lent, None).is_none());
    }
}
