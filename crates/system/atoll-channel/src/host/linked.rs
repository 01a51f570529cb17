//! Clients of a loop that come over links of any type: each has a thread that receives, hands messages to the loop, and sends
//! the loop's answers.
//!
//! Used for the services of other nodes; processes of the node come over channels, for which the loop itself waits. The loop
//! alone decides (`Session`), so both kinds of clients meet the same service. Its answers are given at once.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::Builder;
use std::time::Duration;

use crate::host::any_link::AnyLink;
use crate::host::inlet::LoopEnded;
use crate::service::{ClientId, Dispatch, Session, Step, send_answer};
use atoll_transport::Message;
use atoll_transport::{Link, LinkError};

/// The longest time that a client may take to make room for an answer; it blocks only its own thread.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(5));
/// The time after which its thread checks whether the loop still serves it.
const LOOK: Duration = Duration::from_millis(500);

/// An event that the thread of a link hands to the loop.
pub(crate) enum FromLink {
    /// The client sent this.
    Said(ClientId, Said),
    /// The client is gone.
    Gone(ClientId),
}

/// A message, and the channel on which its thread waits for the result.
pub(crate) struct Said {
    message: Message,
    done: SyncSender<Done>,
}

/// The result of a message.
enum Done {
    Nothing,
    Answer(Message),
    Farewell(Message),
}

/// The loop's end of a client that comes over a link. Dropping it closes the link within half a second.
pub(crate) struct LinkClient {
    pub(crate) id: ClientId,
    session: Session,
    _used: Arc<()>,
}

impl LinkClient {
    /// Serves the client at the other end of `link`, whose thread reports to the loop by `tell`.
    pub(crate) fn start(
        name: &str,
        link: AnyLink,
        tell: impl Fn(FromLink) -> Result<(), LoopEnded> + Send + 'static,
    ) -> std::io::Result<LinkClient> {
        let (id, used) = (ClientId::new(), Arc::new(()));
        let weak = Arc::downgrade(&used);
        Builder::new().name(name.into()).spawn(move || {
            let said = |said| tell(FromLink::Said(id, said));
            receive(link, &weak, said);
            // An error means that nobody wants to know any more.
            let _ = tell(FromLink::Gone(id));
        })?;
        Ok(LinkClient { id, session: Session::at_once(id), _used: used })
    }

    /// Serves the client's message with `service`. Returns false if the client is not to be served any more.
    pub(crate) fn serve<D: Dispatch>(&mut self, said: Said, mut service: D) -> bool {
        let step = self.session.handle(&said.message, &mut service);
        let mut answer = || std::mem::take(&mut self.session.answer);
        let (done, goes_on) = match step {
            Ok(Step::Nothing) => (Done::Nothing, true),
            Ok(Step::Answer) => (Done::Answer(answer()), true),
            Ok(Step::Farewell(_)) => (Done::Farewell(answer()), false),
            // The thread notices that the sender is dropped.
            Err(_) => return false,
        };
        // The thread waits for it, and there is room for one.
        said.done.try_send(done).is_ok() && goes_on
    }
}

/// Receives until the client is gone, or the loop no longer serves it.
fn receive(mut link: AnyLink, used: &Weak<()>, tell: impl Fn(Said) -> Result<(), LoopEnded>) {
    let mut message = Message::default();
    while used.strong_count() > 0 {
        match link.recv(&mut message, Some(LOOK)) {
            Ok(()) => {}
            Err(LinkError::TimedOut) => continue,
            Err(_) => return,
        }
        let (done, came) = sync_channel(1);
        if tell(Said { message: std::mem::take(&mut message), done }).is_err() {
            return;
        }
        let (mut answer, last) = match came.recv() {
            Ok(Done::Nothing) => continue,
            Ok(Done::Answer(answer)) => (answer, false),
            Ok(Done::Farewell(answer)) => (answer, true),
            Err(_) => return,
        };
        let sent = send_answer(&mut answer, |kind, bytes| link.send(kind, bytes, PATIENCE));
        if last || sent.is_err() {
            return;
        }
    }
}
