//! The loop of a service: waits for its clients and for what other threads hand to it, and does one after the other.
//!
//! The loops of `names/` and `spawn/` say what is done; `inlet.rs` is where the others hand it in.

use crate::host::inlet::{Handed, Outlet};
use crate::service::ClientId;

/// What a loop does with what it is handed and asked.
pub(crate) trait Serving: Sized {
    /// What other threads hand to it.
    type Event;

    /// Its end of the inlet, with its clients.
    fn outlet(&mut self) -> &mut Outlet<Self::Event>;

    /// Does what another thread handed over.
    fn event(&mut self, event: Self::Event);

    /// Does what a client asks, or forgets one that is gone.
    fn serve(&mut self, client: ClientId);

    /// Tells those that have something to fetch since the last time.
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
