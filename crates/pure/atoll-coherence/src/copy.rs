//! A node's copy of a page: its states, the events, and the node's actions.
//!
//! `directory.rs` is the other side, at the page's home. The driver of this table keeps each page's data, and makes faulting
//! workers wait until [`Action::Resume`].
//!
//! The table relies on messages from one node to another arriving once and in order, which the channels and the transports
//! guarantee.
//!
//! Source: the Popcorn paper, sections 2 (single writer) and 3.1, 4.1 (many writers).

use crate::table::{self, Impossible, Row, names, rows};

names! {
    /// The states of a node's copy.
    State {
        /// No copy.
        Nothing,
        /// No copy; a copy to read was asked for.
        Reading,
        /// No copy; a copy to write was asked for.
        Writing,
        /// A copy that may be read; others may have one.
        Shared,
        /// A copy that may be read; permission to write was asked for.
        Upgrading,
        /// The only copy, which may be written.
        Exclusive,
        /// A copy that is written beside its twin, the page as it was before: others may write theirs.
        Twinned,
        /// The origin's copy, written without a twin, because others' diffs are sent to the origin. (The paper's default owner
        /// is the origin.)
        Open,
        /// A copy that was written here and waits for others' diffs.
        Merging,
    }
}

names! {
    /// The events of a copy.
    Event {
        /// A worker here reads and has no permission.
        ReadFault,
        /// A worker here writes and has no permission.
        WriteFault,
        /// A worker writes in a region of many writers, at another node than the origin.
        TwinFault,
        /// A worker writes in a region of many writers, at the origin.
        OpenFault,
        /// The page came, to be read.
        SharedData,
        /// The page came, to be written, though only to read it may have been asked for; no other node has it.
        ExclusiveData,
        /// Permission came to write the copy that is here.
        Grant,
        /// The home orders: drop the copy.
        Invalidate,
        /// The home orders: send a copy to a node that reads, and keep one to read.
        ForwardRead,
        /// The home orders: send a copy to a node that reads. No worker here has used the page, and it was taken from them.
        ForwardUntouched,
        /// The home orders: send the copy to a node that writes, and drop it.
        ForwardWrite,
        /// The barrier orders: drop the copy, since others wrote the page.
        OrderDrop,
        /// The barrier orders: keep the copy alone, since only this node wrote it or is to have it between regions.
        OrderKeep,
        /// The barrier orders: send the diff to the named node.
        OrderSend,
        /// The barrier orders: wait for others' diffs.
        OrderMerge,
        /// A diff came, and more are to come.
        Diff,
        /// The last diff came.
        LastDiff,
        /// Races are looked for from now on, so writers must be noticed.
        Watch,
        /// Races are no longer looked for, and no other node has a copy.
        Unwatch,
    }
}

names! {
    /// The actions of a node.
    Action {
        /// Ask the home for a copy to read.
        AskRead,
        /// Ask the home for a copy to write, or for permission to write the one that is here.
        AskWrite,
        /// Put the data that came in place, to be read.
        InstallShared,
        /// Put the data that came in place, to be written.
        InstallExclusive,
        /// Allow writes to the copy that is here.
        AllowWrite,
        /// Allow only reads; writers fault from now on.
        DenyWrite,
        /// Take the page from the workers.
        Drop,
        /// Keep the page's content as a twin.
        MakeTwin,
        /// Drop the twin, if there is one.
        DropTwin,
        /// Send the data, to be read.
        SendShared,
        /// Send the data as it was when the twin was made, to be read.
        SendTwin,
        /// Take the page from the workers, and send the data, to be written.
        SendExclusive,
        /// Send the page that is all zeros, to be written.
        SendUntouched,
        /// Send the difference from the twin.
        SendDiff,
        /// Write the diff that came into the page.
        ApplyDiff,
        /// Tell the home that the copy is gone.
        AckInvalidate,
        /// Tell the home that the request is served.
        AckInstalled,
        /// Tell the home that the request to read is served, and that no other node has a copy.
        AckAlone,
        /// Handle this event again when the last diff has come.
        Defer,
        /// Handle the deferred events.
        Replay,
        /// Let the workers go on that wait for the page; those without permission fault again.
        Resume,
    }
}

/// The complete table of a copy's events.
pub static TABLE: &[Row<State, Event, Action>] = rows![
    // A fault asks once; workers that fault meanwhile wait for the same answer.
    Nothing + ReadFault => Reading [AskRead];
    Nothing + WriteFault => Writing [AskWrite];
    Nothing + TwinFault => Reading [AskRead];
    Nothing + OpenFault => Reading [AskRead];
    Reading + ReadFault => Reading [];
    Reading + WriteFault => Reading [];
    Reading + TwinFault => Reading [];
    Reading + OpenFault => Reading [];
    Writing + ReadFault => Writing [];
    Writing + WriteFault => Writing [];
    Upgrading + ReadFault => Upgrading [Resume];
    Upgrading + WriteFault => Upgrading [];
    Shared + ReadFault => Shared [Resume];
    Shared + WriteFault => Upgrading [AskWrite];
    Shared + TwinFault => Twinned [MakeTwin, AllowWrite, Resume];
    Shared + OpenFault => Open [AllowWrite, Resume];
    // Another worker of this node was faster.
    Exclusive + ReadFault => Exclusive [Resume];
    Exclusive + WriteFault => Exclusive [Resume];
    Exclusive + TwinFault => Exclusive [Resume];
    Exclusive + OpenFault => Exclusive [Resume];
    Twinned + ReadFault => Twinned [Resume];
    Twinned + TwinFault => Twinned [Resume];
    Open + ReadFault => Open [Resume];
    Open + OpenFault => Open [Resume];

    // Answers. The home serves no other request for the page before it hears that this one is served.
    Reading + SharedData => Shared [InstallShared, AckInstalled, Resume];
    Reading + ExclusiveData => Exclusive [InstallExclusive, AckAlone, Resume];
    Writing + ExclusiveData => Exclusive [InstallExclusive, AckInstalled, Resume];
    Upgrading + Grant => Exclusive [AllowWrite, AckInstalled, Resume];

    // Actions on this copy for others' requests. A request that overtakes this node's own turns an upgrade into a fetch: the
    // home decides by its directory and not by the state that the node assumed when it asked.
    Shared + Invalidate => Nothing [Drop, AckInvalidate];
    Upgrading + Invalidate => Writing [Drop, AckInvalidate];
    Shared + ForwardRead => Shared [SendShared];
    Upgrading + ForwardRead => Upgrading [SendShared];
    Exclusive + ForwardRead => Shared [DenyWrite, SendShared];
    // What nobody has used yet is the first reader's alone: it is most often its writer, too, and there is nothing to send.
    Exclusive + ForwardUntouched => Nothing [SendUntouched];
    Shared + ForwardWrite => Nothing [SendExclusive];
    Upgrading + ForwardWrite => Writing [SendExclusive];
    Exclusive + ForwardWrite => Nothing [SendExclusive];

    // In a region of many writers others may still come to read. They must not see what is being written here before the
    // barrier, or the program has a race. It must not be in their copies either: a byte that is put back leaves no diff, and
    // the merging node would keep the value between. The origin's may be, as it merges itself.
    Twinned + ForwardRead => Twinned [SendTwin];
    Open + ForwardRead => Open [SendShared];

    // The barrier's orders.
    Shared + OrderDrop => Nothing [Drop];
    Shared + OrderKeep => Exclusive [AllowWrite];
    Twinned + OrderKeep => Exclusive [DropTwin];
    Open + OrderKeep => Exclusive [];
    Twinned + OrderSend => Nothing [SendDiff, DropTwin, Drop];
    Twinned + OrderMerge => Merging [Replay];
    Open + OrderMerge => Merging [Replay];

    // The sender of a diff may have had its orders first.
    Twinned + Diff => Twinned [Defer];
    Twinned + LastDiff => Twinned [Defer];
    Open + Diff => Open [Defer];
    Open + LastDiff => Open [Defer];
    Merging + Diff => Merging [ApplyDiff];
    Merging + LastDiff => Exclusive [ApplyDiff, DropTwin, Replay];
    // A node that asks now had its orders before this node has all that it needs.
    Merging + ForwardRead => Merging [Defer];
    Merging + ForwardWrite => Merging [Defer];

    // A node that looks for races makes a twin also before it writes a page that it alone has. The home still takes the node
    // for the owner.
    Exclusive + Watch => Shared [DenyWrite];
    Shared + Unwatch => Exclusive [AllowWrite];
];

/// The next state and the actions for an event; fails if the table has no row for it.
pub fn step(state: State, event: Event) -> Result<(State, &'static [Action]), Impossible> {
    let row = table::find(TABLE, &state, &event);
    let row = row.ok_or(Impossible { state: state.name(), event: event.name() })?;
    Ok((row.next, row.actions))
}

/// The table as `docs/coherence.md` prints it.
#[must_use]
pub fn markdown() -> String {
    table::markdown(TABLE)
}

impl State {
    /// Whether a worker of the node may read the copy.
    #[must_use]
    pub fn readable(self) -> bool {
        matches!(self, Self::Shared | Self::Upgrading | Self::Exclusive | Self::Twinned | Self::Open)
    }

    /// Whether a worker of the node may write the copy.
    #[must_use]
    pub fn writable(self) -> bool {
        matches!(self, Self::Exclusive | Self::Twinned | Self::Open)
    }

    /// Whether the copy was written since the region began, so that the barrier must hear of it. An exclusive copy need not be
    /// reported: there is no other.
    #[must_use]
    pub fn written_among_many(self) -> bool {
        matches!(self, Self::Twinned | Self::Open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_and_an_event_have_one_row_at_most() {
        for &state in State::ALL {
            for &event in Event::ALL {
                let rows = TABLE.iter().filter(|row| row.state == state && row.event == event).count();
                assert!(rows <= 1, "{state:?} + {event:?}");
            }
        }
    }

    #[test]
    fn every_fault_that_can_happen_has_a_row() {
        for &state in State::ALL {
            // Workers wait at the barrier while diffs come.
            let merging = state == State::Merging;
            // A region has many writers for all pages or for none.
            let many = matches!(state, State::Twinned | State::Open);
            assert_eq!(step(state, Event::ReadFault).is_ok(), !merging, "{state:?}");
            assert_eq!(step(state, Event::WriteFault).is_ok(), !merging && !many, "{state:?}");
        }
    }

    #[test]
    fn what_no_row_allows_is_named() {
        let error = step(State::Nothing, Event::Grant).unwrap_err();
        assert_eq!(error, Impossible { state: "Nothing", event: "Grant" });
    }
}
