//! The choice of the engine that makes a transfer: the one that is predicted to take least time.
//!
//! Stands on `costs.rs`; `manager.rs` asks. For mappings the answer is computed in advance for each power of two of sizes, so
//! that a small copy only looks it up.
//!
//! Source: the barrelfish paper, sections 5.4.6 (from which size an engine is worth it) and 6.9.2 (the
//! manager finds the best driver for two addresses).

use std::fmt;

use crate::bulk::costs::{Costs, Curve};
use crate::bulk::engine::Engine;
use crate::bulk::memcpy::Memcpy;
use crate::bulk::memory::{Kind, Memory};

/// The greatest part of the time of libc's memcpy that another loop may take to be chosen; smaller gains are within the noise
/// of measuring.
const WORTH_IT: f64 = 0.95;

/// The bytes below which libc's memcpy is never far from the fastest while both buffers are in a cache, so a disturbed
/// measurement does no harm.
const PLAIN_BELOW: u64 = 16 << 20;

/// The reason why a transfer goes by an engine.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// The engine's name.
    pub engine: &'static str,
    /// The predicted time; `None` if the engine was never measured between such memories.
    pub microseconds: Option<f64>,
    /// The number of pieces into which the transfer is cut.
    pub pieces: u64,
    /// The other engines that could make the transfer, with their predictions in microseconds.
    pub others: Vec<(&'static str, Option<f64>)>,
}

fn time(microseconds: Option<f64>) -> String {
    microseconds.map_or_else(|| "never measured".into(), |us| format!("{us:.3} us"))
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.engine, time(self.microseconds))?;
        if self.pieces > 1 {
            write!(f, " in {} pieces", self.pieces)?;
        }
        for (i, (name, microseconds)) in self.others.iter().enumerate() {
            let before = if i == 0 { "; instead of " } else { ", " };
            write!(f, "{before}{name}: {}", time(*microseconds))?;
        }
        Ok(())
    }
}

/// The loop for mappings, for every size.
pub(crate) struct Loops {
    /// The loops by the number of bits in the size.
    of_bits: [Memcpy; 65],
}

impl Loops {
    /// The loops that are fastest by these costs.
    pub(crate) fn new(costs: &Costs) -> Loops {
        let predict = |engine: &Memcpy, bytes| {
            costs.curve(engine.name(), Kind::Mapping, Kind::Mapping).and_then(|curve| curve.predict(bytes))
        };
        let best = |bits: usize| {
            // The middle of the sizes with this number of bits.
            let bytes = 3u64.checked_shl((bits as u32).saturating_sub(2)).unwrap_or(u64::MAX);
            let plain = predict(&Memcpy::PLAIN, bytes).filter(|_| bytes >= PLAIN_BELOW);
            let Some(plain) = plain else { return Memcpy::PLAIN };
            let mut best = (Memcpy::PLAIN, plain * WORTH_IT);
            for engine in Memcpy::all() {
                match predict(engine, bytes) {
                    Some(time) if time < best.1 => best = (*engine, time),
                    _ => {}
                }
            }
            best.0
        };
        Loops { of_bits: std::array::from_fn(best) }
    }

    /// The loop for `bytes` bytes.
    #[inline]
    pub(crate) fn of(&self, bytes: u64) -> &Memcpy {
        &self.of_bits[(u64::BITS - bytes.leading_zeros()) as usize]
    }
}

/// The costs, found without comparing names.
pub(crate) struct Choices {
    pub(crate) loops: Loops,
    /// The curves by engine, and for each engine by the kinds of destination and source.
    curves: Vec<[Option<Curve>; KINDS * KINDS]>,
}

const KINDS: usize = Kind::ALL.len();

fn place(to: Kind, from: Kind) -> usize {
    to as usize * KINDS + from as usize
}

impl Choices {
    /// The curves of these engines in `costs`.
    pub(crate) fn new(engines: &[Box<dyn Engine>], costs: &Costs) -> Choices {
        let of_engine = |engine: &dyn Engine| {
            let mut curves = std::array::from_fn(|_| None);
            for (to, from) in Kind::ALL.into_iter().flat_map(|to| Kind::ALL.map(|from| (to, from))) {
                curves[place(to, from)] = costs.curve(engine.name(), to, from).cloned();
            }
            curves
        };
        let curves = engines.iter().map(|engine| of_engine(&**engine)).collect();
        Choices { loops: Loops::new(costs), curves }
    }

    /// The time that an engine, given by its index, is predicted to take.
    pub(crate) fn predict(&self, engine: usize, to: &Memory, from: &Memory, bytes: u64) -> Option<f64> {
        self.curves.get(engine)?[place(to.kind(), from.kind())].as_ref()?.predict(bytes)
    }

    /// The index of the engine that is predicted to be fastest. Engines that were never measured between such memories come
    /// after all others, in their order.
    pub(crate) fn fastest(
        &self,
        engines: &[Box<dyn Engine>],
        to: &Memory,
        from: &Memory,
        bytes: u64,
    ) -> Option<usize> {
        let reaching = (0..engines.len()).filter(|i| engines[*i].reaches(to, from));
        let timed = reaching.map(|i| (i, self.predict(i, to, from, bytes).unwrap_or(f64::INFINITY)));
        // Of equals the first is taken.
        timed.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(i, _)| i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_loop_is_taken_where_it_is_faster_by_more_than_measuring_varies() {
        let mut costs = Costs::default();
        assert_eq!(Loops::new(&costs).of(1 << 30).name(), "memcpy");
        for (engine, points) in [
            ("memcpy", [(1 << 10, 9.0), (3 << 19, 100.0), (1 << 24, 2000.0)]),
            ("stream", [(1 << 10, 1.0), (3 << 19, 98.0), (1 << 24, 1000.0)]),
        ] {
            let (to, from, points) = (Kind::Mapping, Kind::Mapping, points.to_vec());
            costs.set(Curve { engine: engine.into(), to, from, points });
        }
        let loops = Loops::new(&costs);
        for (bytes, name) in [
            (0, "memcpy"),
            (1 << 10, "memcpy"),
            (1 << 20, "memcpy"),
            (1 << 24, "stream"),
            (u64::MAX, "stream"),
        ] {
            assert_eq!(loops.of(bytes).name(), name, "{bytes}");
        }
    }

    #[test]
    fn a_choice_says_why() {
        let choice = Choice {
            engine: "io_uring",
            microseconds: Some(410.25),
            pieces: 4,
            others: vec![("pread", Some(520.0)), ("other", None)],
        };
        let text = "io_uring: 410.250 us in 4 pieces; instead of pread: 520.000 us, other: never measured";
        assert_eq!(choice.to_string(), text);
    }
}
