//! The service's end of one link: checks the client's messages, has calls executed, and answers.
//!
//! The other end is `caller.rs`. `Session` decides and touches no link, so that `serve` here and `clients.rs` share it, and
//! tests can send it anything.

use std::sync::Arc;
use std::time::Duration;

use crate::service::dispatch::{Call, ClientId, Dispatch, Outcome, Refusal};
use crate::service::hello::{BindError, Hello};
use crate::service::later::Outbox;
use crate::service::wire::{ANSWER, HELLO, begin_answer, refuse, request};
use atoll_transport::Message;
use atoll_transport::clock::Deadline;
use atoll_transport::{Link, LinkError};

/// The time between two looks of `serve` for answers that are given later, while some are awaited.
const GLANCE: Duration = Duration::from_millis(10);

/// The reasons why a client is no longer served.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum ServeError {
    /// The client has another interface. It was told this end's.
    #[error("{0}")]
    Bind(#[from] BindError),
    /// The client sends nothing any more, or does not take its answers.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The client sent a message that no client sends.
    #[error("the client broke the link: it sent a message that is not a call")]
    NoCall,
    /// The client made a call without an answer, which could not be executed.
    #[error("the client called method {method}, which has no answer: {why}")]
    Oneway {
        /// The method's number.
        method: u16,
        /// The reason.
        why: Refusal,
    },
}

/// The action after a message was handled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait for the next message.
    Nothing,
    /// Send the session's answer.
    Answer,
    /// Send the answer, and drop the client.
    Farewell(BindError),
}

/// The state of one client in a service.
pub(crate) struct Session {
    client: ClientId,
    alive: Arc<()>,
    outbox: Outbox,
    bound: bool,
    /// The number of the client's last call.
    last: u32,
    /// The message to be sent.
    pub(crate) answer: Message,
}

impl Session {
    /// The session of a client of services that give no answer later.
    pub(crate) fn at_once(client: ClientId) -> Session {
        Session::new(client, Outbox::default())
    }

    pub(crate) fn new(client: ClientId, outbox: Outbox) -> Session {
        Session { client, alive: Arc::new(()), outbox, bound: false, last: 0, answer: Message::default() }
    }

    /// Whether it waits for answers that were not given yet.
    fn pending(&self) -> bool {
        Arc::weak_count(&self.alive) > 0
    }

    /// Handles `message`.
    pub(crate) fn handle<D: Dispatch + ?Sized>(
        &mut self,
        message: &Message,
        service: &mut D,
    ) -> Result<Step, ServeError> {
        if message.kind == HELLO {
            return self.hello(&message.bytes, service);
        }
        if !self.bound {
            return Err(BindError::NotAService("it did not say first which interface it speaks").into());
        }
        if message.kind & ANSWER != 0 {
            return Err(ServeError::NoCall);
        }
        let (number, arguments) = request(&message.bytes).ok_or(ServeError::NoCall)?;
        // Numbers only grow, so a call whose number did not was executed before.
        if number.wrapping_sub(self.last).cast_signed() <= 0 {
            return Ok(Step::Nothing);
        }
        self.last = number;
        let Session { client, alive, outbox, answer, .. } = self;
        answer.kind = message.kind | ANSWER;
        begin_answer(number, &mut answer.bytes);
        let call = Call { method: message.kind, number, client: *client, alive, outbox };
        match service.dispatch(&call, arguments, &mut answer.bytes) {
            Outcome::Answer => Ok(Step::Answer),
            Outcome::Nothing => Ok(Step::Nothing),
            Outcome::Refuse(why) => {
                refuse(why, &mut answer.bytes);
                Ok(Step::Answer)
            }
            Outcome::HangUp(why) => Err(ServeError::Oneway { method: message.kind, why }),
        }
    }

    /// Answers with this end's interface, whatever the client's is, so that the client, too, knows how they differ.
    fn hello<D: Dispatch + ?Sized>(&mut self, bytes: &[u8], service: &D) -> Result<Step, ServeError> {
        let interface = service.interface();
        let agreed = Hello::read(bytes).and_then(|theirs| theirs.agrees(&interface));
        if let Err(why @ BindError::NotAService(_)) = agreed {
            return Err(why.into());
        }
        self.answer.kind = HELLO | ANSWER;
        Hello::new(&interface, self.last).write(&mut self.answer.bytes);
        match agreed {
            Ok(()) => {
                self.bound = true;
                Ok(Step::Answer)
            }
            Err(why) => Ok(Step::Farewell(why)),
        }
    }
}

/// Sends `answer` with `send`; if it is too long, sends that error instead.
pub(crate) fn send_answer(
    answer: &mut Message,
    mut send: impl FnMut(u16, &[u8]) -> Result<(), LinkError>,
) -> Result<(), LinkError> {
    match send(answer.kind, &answer.bytes) {
        Err(LinkError::TooLong { .. }) if answer.kind != HELLO | ANSWER => {
            refuse(Refusal::TooLong, &mut answer.bytes);
            send(answer.kind, &answer.bytes)
        }
        other => other,
    }
}

/// Serves the client at the other end of `link` until it closes. Waits for at most `timeout` (`None`: for ever, or until it
/// dies) for each of its calls, and for it to take each answer.
///
/// A call that the interface does not have is refused, and the link goes on; a client that breaks the rules is an error.
pub fn serve<L: Link, D: Dispatch>(
    mut link: L,
    mut service: D,
    timeout: Option<Duration>,
) -> Result<(), ServeError> {
    let outbox = Outbox::default();
    let mut session = Session::new(ClientId::new(), outbox.clone());
    match serve_until_end(&mut link, &mut service, &mut session, &outbox, timeout) {
        ServeError::Link(LinkError::Closed) => Ok(()),
        why => Err(why),
    }
}

fn serve_until_end<L: Link, D: Dispatch>(
    link: &mut L,
    service: &mut D,
    session: &mut Session,
    outbox: &Outbox,
    timeout: Option<Duration>,
) -> ServeError {
    let mut message = Message::default();
    let mut deadline = Deadline::new(timeout);
    loop {
        for (_, mut answer) in outbox.take() {
            if let Err(why) = send_answer(&mut answer, |kind, bytes| link.send(kind, bytes, timeout)) {
                return why.into();
            }
        }
        // Another thread may give an answer, but cannot end a wait.
        let longest = if session.pending() { GLANCE } else { Duration::MAX };
        let Some(left) = deadline.left(longest) else { return LinkError::TimedOut.into() };
        match link.recv(&mut message, Some(left)) {
            Ok(()) => {}
            Err(LinkError::TimedOut) => continue,
            Err(why) => return why.into(),
        }
        deadline = Deadline::new(timeout);
        let step = match session.handle(&message, service) {
            Ok(Step::Nothing) => continue,
            Ok(step) => step,
            Err(why) => return why,
        };
        let sent = send_answer(&mut session.answer, |kind, bytes| link.send(kind, bytes, timeout));
        match (step, sent) {
            (Step::Farewell(why), _) => return why.into(),
            (_, Ok(())) => {}
            (_, Err(why)) => return why.into(),
        }
    }
}
