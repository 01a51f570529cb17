//! The program as its node's agent sees it: what the runtime does for the node (`atoll_nodes::Program`).
//!
//! `nodes` gives it to the agent. What regions need is `omp::spread`'s, what concerns libc `wrap`'s.
//!
//! Rules: as for the agent.

use atoll_nodes::calls::CarryOut;
use atoll_nodes::files::Mapped;
use atoll_nodes::program::{End, Program, Tell, Who};
use atoll_nodes::region::Region;
use atoll_nodes::{ORIGIN, on_origin};
use std::time::Duration;

use super::forward;
use crate::omp::spread::served::Served;
use crate::omp::spread::travel::{self, Travel};
use crate::omp::spread::wire::{self, Message};
use crate::omp::spread::{measure, region, tls};
use crate::wrap::{self, keys, process, raise, replay};
use crate::{heap, state};

/// See the module.
pub(super) struct OpenMp {
    served: Served,
    travel: Travel,
}

impl OpenMp {
    /// On one of `nodes` nodes.
    pub(super) fn new(nodes: u32) -> OpenMp {
        OpenMp { served: Served::new(nodes), travel: Travel::default() }
    }
}

impl Program for OpenMp {
    fn begin_region(&mut self, tell: Tell<'_>) -> Region {
        let (threads, _) = region::order().part(ORIGIN);
        self.served.begin_region(threads.of);
        let variables = tls::take();
        if !variables.is_empty() {
            tell(wire::encode(&Message::Variables(variables)));
        }
        let actions = replay::new_actions();
        if !actions.is_empty() {
            tell(wire::encode(&Message::Actions(actions)));
        }
        if let Some(news) = keys::new_changes() {
            tell(wire::encode(&Message::Keys(news)));
        }
        region::describe()
    }

    fn enter_region(&mut self, region: &Region) -> bool {
        keys::enter_region();
        wire::decode(&region.order).map(region::enter).is_some()
    }

    fn end_region(&mut self, tell: Tell<'_>) {
        let variables = tls::changed();
        if !variables.is_empty() {
            tell(wire::encode(&Message::Variables(variables)));
        }
        tell(wire::encode(&Message::Part(measure::told())));
    }

    fn hear(&mut self, from: u32, message: &[u8]) -> bool {
        match wire::decode(message) {
            Some(Message::Tasks(said)) => return self.travel.heard(from, said),
            // All else is between the origin and another node.
            _ if from != ORIGIN && !on_origin() => return false,
            Some(Message::Variables(news)) => return tls::put(&news),
            Some(Message::Actions(actions)) if from == ORIGIN => replay::actions_came(&actions),
            Some(Message::Keys(news)) if from == ORIGIN => keys::news_came(&news),
            Some(Message::Part(told)) if on_origin() => measure::heard(from, told),
            Some(Message::Counted(regions)) if on_origin() => {
                state::control().into_iter().for_each(|control| measure::add(control, from, &regions));
            }
            _ => return false,
        }
        true
    }

    fn speak(&mut self) -> Option<(u32, Vec<u8>)> {
        let (to, said) = self.travel.speak(atoll_nodes::several()?)?;
        Some((to, wire::encode(&Message::Tasks(said))))
    }

    fn has_work(&self) -> bool {
        travel::has_work()
    }

    fn serve(&mut self, what: u8, words: [u64; 3], who: Who) -> Option<[u64; 2]> {
        self.served.serve(what, words, who)
    }

    fn serve_late(&mut self) -> Option<(Who, [u64; 2])> {
        self.served.late()
    }

    fn next_time(&self) -> Option<Duration> {
        self.served.next_time()
    }

    fn crowded(&mut self, code: u64) {
        region::crowded(code);
    }

    fn free(&mut self, block: usize) {
        heap::foreign::give_back(block);
    }

    fn map_file(&mut self, map: &Mapped, fd: i32) {
        replay::file_came(map, fd);
    }

    fn unmap_file(&mut self, at: usize, len: usize) {
        replay::file_went(at, len);
    }

    fn raise(&mut self, signal: i32, raised: bool) {
        raise::came(signal, raised);
    }

    fn take_signal(&mut self) -> Option<i32> {
        forward::take().map(|(signal, _)| signal)
    }

    fn report(&mut self, tell: Tell<'_>) {
        if let Some(control) = state::control() {
            tell(wire::encode(&Message::Counted(measure::counted(control))));
        }
    }

    fn carry_out(&self) -> CarryOut {
        wrap::carry_out
    }

    fn exit(&mut self, status: i32) {
        process::exit_for_node(status);
    }

    fn end(&mut self, how: End) -> ! {
        match how {
            End::ByNode(status) => wrap::end_by_node(status),
            End::OfNode => wrap::end_node(),
        }
    }
}
