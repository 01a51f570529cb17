//! Reads a machine's description. Errors name the file, the line and what is expected there.
//!
//! This is the other side of the structures in [`describe`](super). It checks every number.

use std::ops::Range;

use atoll_pages::PageSize;

use super::{Machine, Node, Sourced, Tlb};

/// The reason why a text is no machine's description.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
pub enum MachineError {
    /// Something in the text is wrong.
    #[error("{file}:{line}: {what}")]
    Wrong {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The error at that line.
        what: String,
    },
    /// No shipped machine has this name.
    #[error("no machine is called `{name}`: use one of {known}, or the path of a TOML file")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names of the shipped machines.
        known: String,
    },
}

impl Machine {
    /// Reads a description; `file` is its name in messages.
    ///
    /// # Errors
    /// The text is not TOML, lacks something, or has a number that is out of range or without a source.
    pub fn read(file: &str, text: &str) -> Result<Self, MachineError> {
        let wrong = |span: Option<Range<usize>>, what: String| {
            let before = text.get(..span.map_or(0, |span| span.start)).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            MachineError::Wrong { file: file.to_owned(), line, what }
        };
        let machine: Self =
            toml::from_str(text).map_err(|error| wrong(error.span(), error.message().to_owned()))?;
        machine.check().map_err(|(span, what)| wrong(span, what))?;
        Ok(machine)
    }

    fn check(&self) -> Result<(), Fault> {
        if !self.nodes.iter().any(|node| node.name == *self.runs_on.get_ref()) {
            let what =
                format!("runs_on names no node: there is no [[node]] called `{}`", self.runs_on.get_ref());
            return Err((Some(self.runs_on.span()), what));
        }
        self.nodes.iter().try_for_each(Node::check)?;
        if let Some(link) = &self.link {
            link.latency_ns.at_least(0.0)?;
            link.gb_per_s.above(0.0)?;
        }
        Ok(())
    }
}

/// The place of an error, and its text.
type Fault = (Option<Range<usize>>, String);

impl<T> Sourced<T> {
    fn wrong(&self, what: &str) -> Fault {
        (Some(self.value.span()), what.to_owned())
    }

    fn sourced(&self) -> Result<(), Fault> {
        if self.source.get_ref().trim().is_empty() {
            return Err((
                Some(self.source.span()),
                "a number has a source: a paper and table, `measured …`, or `calibrated on …`".to_owned(),
            ));
        }
        Ok(())
    }
}

impl Sourced<f64> {
    fn at_least(&self, least: f64) -> Result<(), Fault> {
        if !self.is_finite() || **self < least || **self > 1e12 {
            return Err(self.wrong(&format!("must be a number from {least} to 1e12")));
        }
        self.sourced()
    }

    fn above(&self, bound: f64) -> Result<(), Fault> {
        if **self <= bound {
            return Err(self.wrong(&format!("must be above {bound}")));
        }
        self.at_least(bound)
    }
}

impl Sourced<u32> {
    fn within(&self, range: std::ops::RangeInclusive<u32>) -> Result<(), Fault> {
        if !range.contains(self) {
            return Err(self.wrong(&format!("must be from {} to {}", range.start(), range.end())));
        }
        self.sourced()
    }
}

impl Node {
    fn check(&self) -> Result<(), Fault> {
        self.cores.count.within(1..=65_536)?;
        self.cores.threads_per_core.within(1..=64)?;
        self.cores.clock_mhz.above(0.0)?;
        self.cores.cycles_per_instruction.above(0.0)?;
        self.tlbs.iter().try_for_each(Tlb::check)?;
        let (f, i) = (&self.fault, &self.invalidation);
        for number in [
            &self.walk.cycles_4k,
            &self.walk.cycles_2m,
            &f.entry_ns,
            &f.minor_ns,
            &f.major_ns,
            &f.policy_lock_ns,
            &f.lock_waiter_ns,
            &i.send_ns,
            &i.per_target_ns,
            &i.per_sender,
            &i.receive_ns,
            &i.page_ns,
            &self.far.latency_ns,
        ]
        .into_iter()
        .chain(&self.walk.cycles_64k)
        .chain(&self.far.setup_ns)
        {
            number.at_least(0.0)?;
        }
        if let Some(rounds) = &i.rounds {
            rounds.within(1..=64)?;
        }
        self.scan.period_ms.above(0.0)?;
        self.scan.accessed_bit.sourced()?;
        if let Some(all) = &self.scan.by_all_cores {
            all.sourced()?;
        }
        self.far.gb_per_s.above(0.0)?;
        self.far.channels.within(1..=1024)?;
        self.far.duplex.sourced()?;
        if self.has(PageSize::K64) && self.walk.cycles_64k.is_none() {
            let what = "a machine with 64K entries in a TLB has walk.cycles_64k";
            return Err(self.walk.cycles_4k.wrong(what));
        }
        Ok(())
    }
}

impl Tlb {
    fn check(&self) -> Result<(), Fault> {
        self.entries.within(1..=1 << 20)?;
        self.ways.within(1..=*self.entries)?;
        self.hit_cycles.at_least(0.0)?;
        if !self.entries.is_multiple_of(*self.ways) || !(*self.entries / *self.ways).is_power_of_two() {
            return Err(self.ways.wrong("entries divided by ways must be a power of two"));
        }
        let names = self.pages.get_ref();
        if names.is_empty() || names.iter().any(|name| name.parse::<PageSize>().is_err()) {
            return Err((Some(self.pages.span()), "pages lists 4K, 64K or 2M".to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::shipped;

    fn knc() -> &'static str {
        shipped::SHIPPED.iter().find(|(name, _)| *name == "knc-5110p").unwrap().1
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let line_of = |text: &str, at: &str| text[..text.find(at).unwrap()].matches('\n').count() + 1;
        let wrong = |from: &str, to: &str, says: &str| {
            assert!(knc().contains(from), "{from}");
            let text = knc().replacen(from, to, 1);
            let error = Machine::read("m.toml", &text).unwrap_err().to_string();
            let place = format!("m.toml:{}: ", line_of(knc(), from));
            assert!(error.starts_with(&place) && error.contains(says), "{error}, expected {place}{says}");
        };
        wrong("clock_mhz = { value = 1053", "clock_mhz = { value = -1", "must be above 0");
        wrong("clock_mhz = { value = 1053", "clock_mhz = { value = \"fast\"", "expected");
        wrong("runs_on = \"knc\"", "runs_on = \"host\"", "there is no [[node]] called `host`");
        wrong("pages = [\"4K\"]", "pages = [\"8K\"]", "pages lists 4K, 64K or 2M");
        wrong("clock_mhz = { value = 1053", "clock_ghz = { value = 1053", "unknown field `clock_ghz`");
        let text = "name = \"x\"\nabout =\n";
        assert!(Machine::read("m.toml", text).unwrap_err().to_string().starts_with("m.toml:2: "));
    }

    #[test]
    fn a_number_without_a_source_is_refused() {
        let text = "value = 1\nsource = \" \"";
        let number: Sourced<u32> = toml::from_str(text).unwrap();
        assert!(number.within(0..=3).unwrap_err().1.contains("a number has a source"));
    }
}
