//! The loop of a service: waits for its clients and for events from other threads, and handles one after the other.
//!
//! The loops of `names/` and `spawn/` implement the trait; `inlet.rs` is where other threads hand events in.

use crate::host::inlet::{Handed, Outlet};
use crate::service::ClientId;

/// The actions of a loop on its events and calls.
pub(crate) trait Serving: Sized {
    /// The events that other threads hand to it.
    type Event;

    /// The loop's end of the inlet, with its clients.
    fn outlet(&mut self) -> &mut Outlet<Self::Event>;

    /// Handles an event.
    fn event(&mut self, event: Self::Event);

    /// Serves a client's call, or forgets a client that is gone.
    fn serve(&mut self, client: ClientId);

    /// Rings for the clients that have had something to fetch since the last time.
    fn ring(&mut self);

    /// Serves until it is told to stop.
    fn run(mut self) {
        self.outlet().fill();
        while let Some(client) = self.outlet().clients.wait(None) {
            if client == self.outlet().client {
                self.outlet().serve();
                while let Some(handed) = self.outlet().next() {
                    match handed {
                        Handed::This(event) => self.event(event),
                        Handed::Stop => return,
                    }
                }
            } else {
                self.serve(client);
            }
            self.ring();
        }
    }
}
