//! Clients of a loop that come over links of any transport: each has a thread that receives, hands what came to the loop, and
//! sends what the loop answers.
//!
//! For the services of other nodes; processes of the node come over channels, which the loop waits for itself. The loop
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

/// How long a client may take to make room for an answer; it keeps only its own thread waiting.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(5));
/// How often its thread sees whether the loop still serves it.
const LOOK: Duration = Duration::from_millis(500);

/// What the thread of a link hands to the loop.
pub(crate) enum FromLink {
    /// The client said this.
    Said(ClientId, Said),
    /// It is gone.
    Gone(ClientId),
}

/// A message, and who waits for what comes of it.
pub(crate) struct Said {
    message: Message,
    done: SyncSender<Done>,
}

/// What came of a message.
enum Done {
    Nothing,
    Answer(Message),
    Farewell(Message),
}

/// The loop's end of a client that comes over a link. Dropped, the link is closed, within half a second.
pub(crate) struct LinkClient {
    pub(crate) id: ClientId,
    session: Session,
    _used: Arc<()>,
}

impl LinkClient {
    /// Serves the client at the other end of `link`, whose thread tells the loop by `tell`.
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
            // An error: nobody wants to know any more.
            let _ = tell(FromLink::Gone(id));
        })?;
        Ok(LinkClient { id, session: Session::at_once(id), _used: used })
    }

    /// Does what the client said, with `service`. False if it is not to be served any more.
    pub(crate) fn serve<D: Dispatch>(&mut self, said: Said, mut service: D) -> bool {
        let step = self.session.handle(&said.message, &mut service);
        let mut answer = || std::mem::take(&mut self.session.answer);
        let (done, goes_on) = match step {
            Ok(Step::Nothing) => (Done::Nothing, true),
            Ok(Step::Answer) => (Done::Answer(answer()), true),
            Ok(Step::Farewell(_)) => (Done::Farewell(answer()), false),
            // Dropping the sender tells the thread.
            Err(_) => return false,
        };
        // The thread waits for it, and there is room for one.
        said.done.try_send(done).is_ok() && goes_on
    }
}

/// Until the client is gone, or the loop serves it no more.
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
