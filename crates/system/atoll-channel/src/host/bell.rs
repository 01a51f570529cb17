//! Bells, by which a client learns that there is something to fetch, over a channel beside that of its calls.
//!
//! The services of `names/` and `spawn/` have one for each client. A ring of a bell may be dropped if the channel is full: one
//! that was not heard yet says the same.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use crate::host::any_link::AnyLink;
use crate::host::inlet::LoopEnded;
use atoll_transport::{Link, LinkError};
use atoll_transport::{Message, Sender, Settings};

/// The kind of a bell's first message, which holds the node's number, little-endian.
pub(crate) const BELL_HELLO: u16 = 0;

/// The longest time for setting up channels with a visitor or another node.
pub(crate) const SET_UP: Option<Duration> = Some(Duration::from_secs(5));

/// The time after which a thread that listens for a bell checks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(500);

/// The settings of a bell's channel, from either end.
pub(crate) fn bell_settings() -> Settings {
    Settings { longest: 56, ..Settings::default() }
}

/// The service's end of a bell. Copies are the same bell.
#[derive(Clone)]
pub(crate) struct Bell(Arc<Mutex<Rope>>);

/// The channel or link over which a bell rings.
enum Rope {
    Channel(Sender),
    Link(AnyLink),
}

impl Bell {
    /// A bell that rings over `sender`.
    pub(crate) fn new(sender: Sender) -> Bell {
        Bell(Arc::new(Mutex::new(Rope::Channel(sender))))
    }

    /// A bell over a link of any type, which must not wait where it is told not to.
    pub(crate) fn over(link: AnyLink) -> Bell {
        Bell(Arc::new(Mutex::new(Rope::Link(link))))
    }

    /// Rings; `kind` tells what there is to fetch.
    pub(crate) fn ring(&self, kind: u16) {
        let mut rope = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // If it is full, the unheard rings make the client fetch as well. If it is gone, the channel of its calls tells.
        let _ = match &mut *rope {
            Rope::Channel(sender) => sender.try_send(kind, &[]).is_ok(),
            Rope::Link(link) => link.send(kind, &[], Some(Duration::ZERO)).is_ok(),
        };
    }
}

/// A bell of another node that is being listened for. Dropping it ends that within half a second.
pub(crate) struct Heard {
    _used: Arc<()>,
}

/// Listens for `bell` in a thread of its own: calls `heard` when it rings, and at last with the reason why it never will again.
pub(crate) fn listen(
    name: &str,
    mut bell: AnyLink,
    heard: impl Fn(Result<(), LinkError>) -> Result<(), LoopEnded> + Send + 'static,
) -> std::io::Result<Heard> {
    let used = Arc::new(());
    let weak = Arc::downgrade(&used);
    Builder::new().name(name.into()).spawn(move || {
        let mut message = Message::default();
        while weak.strong_count() > 0 {
            let rang = bell.recv(&mut message, Some(LOOK));
            if rang == Err(LinkError::TimedOut) {
                continue;
            }
            let over = rang.is_err();
            if heard(rang).is_err() || over {
                return;
            }
        }
    })?;
    Ok(Heard { _used: used })
}
