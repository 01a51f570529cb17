//! Tables of state and event, each row of which gives the next state and the actions.
//!
//! `copy.rs` and `directory.rs` are such tables. A pair without a row cannot happen; if it does, a peer broke the protocol.

use std::fmt::{Debug, Write};

/// A row: in `state`, upon `event`, do `actions` in this order and go to `next`.
#[derive(Debug, Clone, Copy)]
pub struct Row<S: 'static, E: 'static, A: 'static> {
    /// The state before.
    pub state: S,
    /// The event.
    pub event: E,
    /// The state after.
    pub next: S,
    /// The actions, in this order.
    pub actions: &'static [A],
}

/// The error for a pair without a row: a message was invented, lost or sent twice.
#[derive(thiserror::Error, Debug, Clone, Copy, PartialEq, Eq)]
#[error("the protocol has no {event} in state {state}: a node broke it, or a message was lost or sent twice")]
pub struct Impossible {
    /// The state's name.
    pub state: &'static str,
    /// The event's name.
    pub event: &'static str,
}

/// The row of `state` and `event`.
pub(crate) fn find<S: PartialEq, E: PartialEq, A>(
    table: &'static [Row<S, E, A>],
    state: &S,
    event: &E,
) -> Option<&'static Row<S, E, A>> {
    table.iter().find(|row| row.state == *state && row.event == *event)
}

/// The table as documents print it.
pub(crate) fn markdown<S: Debug, E: Debug, A: Debug>(table: &[Row<S, E, A>]) -> String {
    let mut text = String::from("| state | event | next | actions |\n| --- | --- | --- | --- |\n");
    for row in table {
        let actions: Vec<String> = row.actions.iter().map(|action| format!("{action:?}")).collect();
        let actions = if actions.is_empty() { "-".to_owned() } else { actions.join(", ") };
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {:?} | {:?} | {:?} | {actions} |", row.state, row.event, row.next);
    }
    text
}

/// `rows![State Event, Event => Next: Action, Action; …]`: a row for each of the events.
macro_rules! rows {
    ($($state:ident + $event:ident => $next:ident [$($action:ident),*];)*) => {
        &[$($crate::table::Row {
            state: State::$state,
            event: Event::$event,
            next: State::$next,
            actions: &[$(Action::$action),*],
        }),*]
    };
}
pub(crate) use rows;

/// Defines an enum of names, with a function that returns the name of each.
macro_rules! names {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name as the tables print it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }
        }
    };
}
pub(crate) use names;
