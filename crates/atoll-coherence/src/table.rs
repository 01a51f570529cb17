//! Tables of state and event: one row says what comes next and what is done.
//!
//! `copy.rs` and `directory.rs` are such tables. Whatever has no row cannot happen; if it does, a peer broke the protocol.

use std::fmt::{Debug, Write};

/// A row: in `state`, upon `event`, do `actions` in this order and go to `next`.
#[derive(Debug, Clone, Copy)]
pub struct Row<S: 'static, E: 'static, A: 'static> {
    /// Before.
    pub state: S,
    /// What happened.
    pub event: E,
    /// After.
    pub next: S,
    /// What is to be done, in this order.
    pub actions: &'static [A],
}

/// What no row allows: a message was invented, lost or sent twice.
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

/// An enum of names, with a function from each to its own.
macro_rules! names {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// As the tables print it.
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
