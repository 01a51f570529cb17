//! The loop of the global level at every node but 0: passes its clients' requests on to node 0, over one link.
//!
//! The loop has a thread of its own, so that a node 0 that is slow or gone delays only global requests. `level.rs` is the other
//! end of the link. A link that fails is not used again, since node 0 has then forgotten what came over it.
//!
//! Source: the barrelfish paper, section 6.8.2 and figure 6.3 (a co-processor's request goes through the host's driver).

use std::collections::HashMap;
use std::time::Duration;

use crate::host::{AnyLink, Bell, Heard, Outlet, Serving, listen};
use crate::names::entry::{Entry, News, Owner, WaiterId, WatchId};
use crate::names::interface::{
    BELL_GLOBAL, GlobalLost, Names, NamesService, NodeNamesClient, Reached, Remote,
};
use crate::names::limits::MOST_VALUE;
use crate::names::name::Name;
use crate::names::pattern::Pattern;
use crate::names::registry::{LimitError, NoSuchWaiter, Page, RegisterError, UnregisterError, Wait};
use crate::service::{CallError, ClientId};
use atoll_transport::Channel;
use atoll_transport::LinkError;

/// The longest time that node 0 may take for an answer before it is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// An event that other threads hand to the loop.
pub(super) enum ToForward {
    /// A process of this node.
    Process(Owner, Box<Channel>, Bell),
    /// Links to node 0: for calls, and for the bell.
    Uplink(AnyLink, AnyLink),
    /// The bell of the link with this number rang.
    Rang(u64),
    /// The link with this number is broken.
    Lost(u64, LinkError),
}

/// The link to node 0.
struct Uplink {
    calls: NodeNamesClient<AnyLink>,
    number: u64,
    /// Keeps the link's bell listened for.
    _heard: Heard,
}

/// The clients' side of the link to node 0.
pub(super) struct Forward {
    outlet: Outlet<ToForward>,
    who: HashMap<ClientId, Process>,
    bells: HashMap<Remote, Bell>,
    up: Up,
}

/// A process of this node.
struct Process {
    owner: Owner,
    /// The number of the link over which it made its first request: only node 0 behind that link knows of it.
    link: Option<u64>,
}

/// The state of the link to node 0.
struct Up {
    link: Option<Uplink>,
    /// The number of links so far.
    count: u64,
    /// The reason why there is none.
    why: String,
    /// Whether it was lost just now, and waiting clients have not been told.
    lost: bool,
}

impl Up {
    /// Sends a call to node 0.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut NodeNamesClient<AnyLink>) -> Result<T, CallError>,
    ) -> Reached<T> {
        let Some(link) = &mut self.link else { return Err(GlobalLost { why: self.why.clone() }) };
        call(&mut link.calls).map_err(|e| {
            let why = e.to_string();
            // An error of one request does not concern the link.
            if matches!(&e, CallError::Link { why, .. } if !matches!(why, LinkError::TooLong { .. })) {
                self.lose(why.clone());
            }
            GlobalLost { why }
        })
    }

    fn lose(&mut self, why: String) {
        self.link = None;
        self.why = why;
        self.lost = true;
    }
}

impl Forward {
    pub(super) fn new(outlet: Outlet<ToForward>) -> Forward {
        let why = "this node was not linked to node 0".to_owned();
        let up = Up { link: None, count: 0, why, lost: false };
        Forward { outlet, who: HashMap::new(), bells: HashMap::new(), up }
    }

    fn add(&mut self, owner: Owner, channel: Box<Channel>, bell: Bell) {
        // An error means that it is gone again, or cannot be watched; dropping its channel tells it.
        if let Ok(client) = self.outlet.clients.add(*channel) {
            self.who.insert(client, Process { owner, link: None });
            self.bells.insert(remote(owner), bell);
        }
    }

    fn link(&mut self, calls: AnyLink, bell: AnyLink) {
        if self.up.link.is_some() {
            self.up.lose("this node was linked to node 0 anew".to_owned());
        }
        self.up.count += 1;
        let number = self.up.count;
        let linked =
            NodeNamesClient::bind(calls, Some(PATIENCE)).map_err(|e| e.to_string()).and_then(|calls| {
                let inlet = self.outlet.inlet.clone();
                let heard = listen("atoll global bell", bell, move |heard| {
                    inlet.send(match heard {
                        Ok(()) => ToForward::Rang(number),
                        Err(why) => ToForward::Lost(number, why),
                    })
                });
                let heard = heard.map_err(|e| format!("a thread for its bell: {e}"))?;
                Ok(Uplink { calls, number, _heard: heard })
            });
        match linked {
            Ok(link) => self.up.link = Some(link),
            Err(why) => self.up.lose(why),
        }
    }

    /// Rings for those clients of this node that have something to fetch at node 0.
    fn rang(&mut self, link: u64) {
        if self.up.link.as_ref().is_none_or(|up| up.number != link) {
            return;
        }
        loop {
            // An error means that the link is lost, of which all are told.
            let (roused, more) = self.up.call(NodeNamesClient::roused).unwrap_or_default();
            for of in roused {
                if let Some(bell) = self.bells.get(&of) {
                    bell.ring(BELL_GLOBAL);
                }
            }
            if !more {
                return;
            }
        }
    }
}

impl Serving for Forward {
    type Event = ToForward;

    fn outlet(&mut self) -> &mut Outlet<ToForward> {
        &mut self.outlet
    }

    fn event(&mut self, event: ToForward) {
        match event {
            ToForward::Process(owner, channel, bell) => self.add(owner, channel, bell),
            ToForward::Uplink(calls, bell) => self.link(calls, bell),
            ToForward::Rang(link) => self.rang(link),
            ToForward::Lost(link, why) => {
                if self.up.link.as_ref().is_some_and(|up| up.number == link) {
                    self.up.lose(why.to_string());
                }
            }
        }
    }

    fn serve(&mut self, client: ClientId) {
        let Some(process) = self.who.get_mut(&client) else { return };
        let of = remote(process.owner);
        let mut forwarded = Forwarded { up: &mut self.up, process };
        if self.outlet.clients.serve(client, NamesService(&mut forwarded)).is_err() {
            self.who.remove(&client);
            self.bells.remove(&of);
            // Without a link, node 0 has already noticed.
            let _ = self.up.call(|up| up.gone(of));
        }
    }

    fn ring(&mut self) {
        if std::mem::take(&mut self.up.lost) {
            // Answers will not come; clients are told when they ask.
            self.bells.values().for_each(|bell| bell.ring(BELL_GLOBAL));
        }
    }
}

fn remote(owner: Owner) -> Remote {
    Remote { process: owner.process, connection: owner.connection }
}

/// Node 0's registry, and the process of this node for which it is asked.
struct Forwarded<'a> {
    up: &'a mut Up,
    process: &'a mut Process,
}

impl Forwarded<'_> {
    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut NodeNamesClient<AnyLink>, Remote) -> Result<T, CallError>,
    ) -> Reached<T> {
        if let Some(now) = self.up.link.as_ref().map(|link| link.number)
            && *self.process.link.get_or_insert(now) != now
        {
            let why = "the link was lost, and with it what this process had there: connect anew".to_owned();
            return Err(GlobalLost { why });
        }
        let of = remote(self.process.owner);
        self.up.call(|up| call(up, of))
    }
}

impl Names for Forwarded<'_> {
    fn register(&mut self, name: Name, value: &[u8]) -> Reached<Result<u64, RegisterError>> {
        if value.len() > MOST_VALUE {
            return Ok(Err(RegisterError::LongValue { name, length: value.len() as u64 }));
        }
        self.call(|up, of| up.register(of, name, value))
    }

    fn unregister(&mut self, name: Name) -> Reached<Result<u64, UnregisterError>> {
        self.call(|up, of| up.unregister(of, name))
    }

    fn look_up(&mut self, pattern: Pattern) -> Reached<Option<Entry>> {
        self.call(|up, _| up.look_up(pattern))
    }

    fn look_up_all(&mut self, pattern: Pattern, after: Option<Name>) -> Reached<Page> {
        self.call(|up, _| up.look_up_all(pattern, after))
    }

    fn wait(&mut self, pattern: Pattern) -> Reached<Result<Wait, LimitError>> {
        self.call(|up, of| up.wait(of, pattern))
    }

    fn answer(&mut self, waiter: WaiterId) -> Reached<Result<Option<Entry>, NoSuchWaiter>> {
        self.call(|up, of| up.answer(of, waiter))
    }

    fn cancel(&mut self, waiter: WaiterId) -> Reached<Option<Entry>> {
        self.call(|up, of| up.cancel(of, waiter))
    }

    fn watch(&mut self, pattern: Pattern) -> Reached<Result<(WatchId, u64), LimitError>> {
        self.call(|up, of| up.watch(of, pattern))
    }

    fn unwatch(&mut self, watch: WatchId) -> Reached<bool> {
        self.call(|up, of| up.unwatch(of, watch))
    }

    fn fetch(&mut self) -> Reached<(Vec<News>, bool)> {
        self.call(|up, of| up.fetch(of))
    }
}
