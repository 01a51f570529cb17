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

/// The reasons why a later program is not managed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Refused {
    /// The limit is what the machine can give, all of which the first program may take.
    #[error("the first program may take all that the machine can give")]
    NoLimit,
    /// Far memory is lenders', whose sessions are the first program's.
    #[error("the lenders of a run serve one program")]
    Lenders,
    /// There is no shared memory for the control block.
    #[error("there is no shared memory for a control block ({0})")]
    Kernel(sys::Errno),
}

/// Makes a control block for process `me`, with the settings of the run's `first` program.
///
/// # Errors
/// See [`Refused`].
pub(super) fn make(first: &Control, me: i32) -> Result<&'static Control, Refused> {
    let settings = settings(&first.settings, limits::available_bytes())?;
    let (fd, control) = sys::with_descriptors(|| Control::create(settings)).map_err(Refused::Kernel)?;
    // The mapping stays. Nobody looks for the block of a program without a launcher.
    sys::close(fd);
    control.program.store(me, Ordering::Release);
    Ok(control)
}

/// Returns the settings of a later program, where `available` bytes of the machine's memory are there, if that is known.
fn settings(first: &Settings, available: Option<u64>) -> Result<Settings, Refused> {
    if !first.has_asked_limit() {
        return Err(Refused::NoLimit);
    }
    if matches!(first.far().parse(), Ok(FarSpec::Hosts)) {
        return Err(Refused::Lenders);
    }
    // SAFETY: numbers and atomic numbers, which nothing is dropped of; others change none of them but the kind of page tables, to a kind that
    // a later program has, too.
    let mut settings = unsafe { std::ptr::read(first) };
    settings.has_no_launcher = 1;
    settings.launcher_words = 0;
    settings.count_regions = 0;
    settings.lenders = LendersSettings::NONE;
    if let Some(available) = available {
        let spare = limits::spare_bytes(available, first.near_bytes, 1);
        settings.far_memory_bytes = settings.far_memory_bytes.min(spare);
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_program_has_the_limit_of_the_first_and_leaves_memory_to_others() {
        let mut first = Settings::new("adaptive", "auto");
        assert_eq!(settings(&first, None).err(), Some(Refused::NoLimit));
        first.near_bytes = 1 << 30;
        first.launcher_words = 5;
        let later = settings(&first, Some(8 << 30)).unwrap();
        assert_eq!((later.near_bytes, later.far_memory_bytes), (1 << 30, 6 << 30));
        assert_eq!((later.has_no_launcher, later.launcher_words, later.policy()), (1, 0, "adaptive"));
        first.near_automatic = 1;
        assert_eq!(settings(&first, None).err(), Some(Refused::NoLimit));
        let mut lent = Settings::new("adaptive", "hosts");
        lent.near_bytes = 1 << 30;
        assert_eq!(settings(&lent, None).err(), Some(Refused::Lenders));
    }
}
