//! A node's copy of a page: its state, what can happen to it, and what the node then does.
//!
//! `directory.rs` is the other side, at the page's home. Who drives this table keeps each page's data, and waits with
//! faulting workers until [`Action::Resume`].
//!
//! What it relies on: messages from one node to another arrive once and in order. The channels and the transports see
//! to that.
//!
//! Source: the Popcorn paper, sections 2 (single writer) and 3.1, 4.1 (many writers).

use crate::table::{self, Impossible, Row, names, rows};

names! {
    /// What a node has of a page.
    State {
        /// No copy.
        Nothing,
        /// No copy; one to read was asked for.
        Reading,
        /// No copy; one to write was asked for.
        Writing,
        /// A copy that may be read; others may have one.
        Shared,
        /// A copy that may be read; leave to write was asked for.
        Upgrading,
        /// The only copy, which may be written.
        Exclusive,
        /// A copy written beside its twin, the page as it was before: others may write theirs.
        Twinned,
        /// The default owner's: written without a twin, as others' diffs come here and not the other way round.
        Open,
        /// Written here, and waiting for others' diffs.
        Merging,
    }
}

names! {
    /// What happens to a copy.
    Event {
        /// A worker here reads, and may not.
        ReadFault,
        /// A worker here writes, and may not.
        WriteFault,
        /// A worker writes in a region of many writers; this node is not the default owner.
        TwinFault,
        /// The same at the default owner.
        OpenFault,
        /// The page came, to be read.
        SharedData,
        /// The page came, to be written; nobody else has it.
        ExclusiveData,
        /// Leave to write the copy that is here came.
        Grant,
        /// The home says: drop it.
        Invalidate,
        /// The home says: send a copy to a node that reads, and keep one to read.
        ForwardRead,
        /// The home says: send it to a node that writes, and drop it.
        ForwardWrite,
        /// The barrier says: others wrote it, drop it.
        OrderDrop,
        /// The barrier says: only this node has it now, as only it wrote it or is to have it between regions.
        OrderKeep,
        /// The barrier says: send what you wrote to whom it names.
        OrderSend,
        /// The barrier says: others' diffs come here.
        OrderMerge,
        /// A diff came, and more are to come.
        Diff,
        /// The last diff came.
        LastDiff,
        /// Races are looked for: who writes is to be seen from now on.
        Watch,
        /// Not any more, and nobody else has a copy.
        Unwatch,
    }
}

names! {
    /// What is to be done.
    Action {
        /// Ask the home for a copy to read.
        AskRead,
        /// Ask the home for a copy to write, or for leave to write the one that is here.
        AskWrite,
        /// Put the data that came in place, to be read.
        InstallShared,
        /// Put the data that came in place, to be written.
        InstallExclusive,
        /// Let the copy that is here be written.
        AllowWrite,
        /// Let it be read only; who writes from now on faults.
        DenyWrite,
        /// Take it from the workers.
        Drop,
        /// Keep the page as it is as a twin.
        MakeTwin,
        /// Forget the twin, if there is one.
        DropTwin,
        /// Send the data, to be read.
        SendShared,
        /// Send the data as it was when the twin was made, to be read.
        SendTwin,
        /// Take it from the workers, and send the data, to be written.
        SendExclusive,
        /// Send what differs from the twin.
        SendDiff,
        /// Write the diff that came into the page.
        ApplyDiff,
        /// Tell the home that the copy is gone.
        AckInvalidate,
        /// Tell the home that the request is served.
        AckInstalled,
        /// Do this event again when the last diff has come.
        Defer,
        /// Do what was deferred.
        Replay,
        /// Let the workers that wait for the page go on; those that may not yet, fault again.
        Resume,
    }
}

/// What happens to a copy, whole.
pub static TABLE: &[Row<State, Event, Action>] = rows![
    // A fault asks once; whoever faults meanwhile waits for the same answer.
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

    // Answers. The home serves nobody else before it is told that the request is served.
    Reading + SharedData => Shared [InstallShared, AckInstalled, Resume];
    Writing + ExclusiveData => Exclusive [InstallExclusive, AckInstalled, Resume];
    Upgrading + Grant => Exclusive [AllowWrite, AckInstalled, Resume];

    // What others' requests do to this copy. One that overtakes this node's own request makes an upgrade a fetch: the
    // home goes by its directory and not by what the node believed when it asked.
    Shared + Invalidate => Nothing [Drop, AckInvalidate];
    Upgrading + Invalidate => Writing [Drop, AckInvalidate];
    Shared + ForwardRead => Shared [SendShared];
    Upgrading + ForwardRead => Upgrading [SendShared];
    Exclusive + ForwardRead => Shared [DenyWrite, SendShared];
    Shared + ForwardWrite => Nothing [SendExclusive];
    Upgrading + ForwardWrite => Writing [SendExclusive];
    Exclusive + ForwardWrite => Nothing [SendExclusive];

    // Among many writers others may still come to read. What is being written here they may not look at before the barrier, or the
    // program has a race. Nor may it be in their copies: a byte that is put back leaves no diff, and who merges would keep what it
    // was between. The default owner's may, as it merges itself.
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

    // A diff's sender may have had its orders first.
    Twinned + Diff => Twinned [Defer];
    Twinned + LastDiff => Twinned [Defer];
    Open + Diff => Open [Defer];
    Open + LastDiff => Open [Defer];
    Merging + Diff => Merging [ApplyDiff];
    Merging + LastDiff => Exclusive [ApplyDiff, DropTwin, Replay];
    // Whoever asks now had its orders before this node has all it needs.
    Merging + ForwardRead => Merging [Defer];
    Merging + ForwardWrite => Merging [Defer];

    // A node that looks for races makes a twin before it writes what it has alone, too. The home still takes it for the owner.
    Exclusive + Watch => Shared [DenyWrite];
    Shared + Unwatch => Exclusive [AllowWrite];
];

/// What comes next and what is to be done.
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
    /// May a worker of the node read?
    #[must_use]
    pub fn readable(self) -> bool {
        matches!(self, Self::Shared | Self::Upgrading | Self::Exclusive | Self::Twinned | Self::Open)
    }

    /// May a worker of the node write?
    #[must_use]
    pub fn writable(self) -> bool {
        matches!(self, Self::Exclusive | Self::Twinned | Self::Open)
    }

    /// Was it written since the region began, so that the barrier must hear of it? One that is exclusive need not: there is
    /// no other copy.
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
            // A region is of many writers for all or for none.
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
