//! Channels to forked processes.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use atoll_channel::{Channel, Settings};

use crate::forked::Child;

pub(crate) const SECONDS: Option<Duration> = Some(Duration::from_secs(20));

/// A child with the other end of a channel made over a socket, and this end.
pub(crate) fn with_child(settings: Settings, work: impl FnOnce(Channel)) -> (Child, Channel) {
    let (here, there) = UnixStream::pair().unwrap();
    let child = Child::run(|| {
        work(Channel::connect(&there, settings.mirrored(), None, SECONDS).unwrap());
    });
    drop(there);
    (child, Channel::connect(&here, settings, None, SECONDS).unwrap())
}
