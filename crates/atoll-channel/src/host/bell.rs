//! Bells: how a client learns that there is something to fetch, over a channel beside that of its calls.
//!
//! The services of `names/` and `spawn/` have one for each client. A bell that finds its ring full may be dropped: one
//! that was not heard yet says the same.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use crate::host::any_link::AnyLink;
use crate::host::inlet::LoopEnded;
use atoll_transport::{Link, LinkError};
use atoll_transport::{Message, Sender, Settings};

/// First message of a bell: the node's number, little-endian.
pub(crate) const BELL_HELLO: u16 = 0;

/// How long setting up channels with a visitor or another node may take.
pub(crate) const SET_UP: Option<Duration> = Some(Duration::from_secs(5));

/// How often the thread that listens for a bell sees whether it is still to.
const LOOK: Duration = Duration::from_millis(500);

/// The settings of a bell's channel, from either end.
pub(crate) fn bell_settings() -> Settings {
    Settings { longest: 56, ..Settings::default() }
}

/// Where to ring. Copies are the same bell.
#[derive(Clone)]
pub(crate) struct Bell(Arc<Mutex<Rope>>);

/// What a bell rings over.
enum Rope {
    Channel(Sender),
    Link(AnyLink),
}

impl Bell {
    /// Rings over `sender`.
    pub(crate) fn new(sender: Sender) -> Bell {
        Bell(Arc::new(Mutex::new(Rope::Channel(sender))))
    }

    /// Rings over a link of any transport, which must not wait where it is told not to.
    pub(crate) fn over(link: AnyLink) -> Bell {
        Bell(Arc::new(Mutex::new(Rope::Link(link))))
    }

    /// Rings, saying what about.
    pub(crate) fn ring(&self, kind: u16) {
        let mut rope = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Full: what it has not heard yet makes it fetch as well. Gone: its calls' channel tells.
        let _ = match &mut *rope {
            Rope::Channel(sender) => sender.try_send(kind, &[]).is_ok(),
            Rope::Link(link) => link.send(kind, &[], Some(Duration::ZERO)).is_ok(),
        };
    }
}

/// A bell of another node that is listened for. Dropped, it is not any more, within half a second.
pub(crate) struct Heard {
    _used: Arc<()>,
}

/// Listens for `bell` in a thread of its own: `heard` is told when it rings, and at last why it never will again.
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
