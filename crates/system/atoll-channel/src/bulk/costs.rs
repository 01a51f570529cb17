//! The times that engines take on this machine: a curve of times by size for each engine and each pair of kinds of memory.
//!
//! `measure.rs` measures them, `cost_file.rs` keeps them from one run to the next, `manager.rs` chooses by them.

use serde::{Deserialize, Serialize};

use crate::bulk::memory::Kind;

/// The most curves that are accepted from a file, and the most points of a curve.
const MOST: usize = 200;

/// The times that one engine takes from one kind of memory to another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// The engine's name.
    pub engine: String,
    /// The destination's kind.
    pub to: Kind,
    /// The source's kind.
    pub from: Kind,
    /// Sizes in bytes and the microseconds that they take; sorted by size, each size once.
    pub points: Vec<(u64, f64)>,
}

impl Curve {
    /// The microseconds that `bytes` will take. Between two points the time lies on the line through both; below the first it
    /// is that point's, which is the time of starting; above the last it grows at that point's speed. `None` without points.
    pub fn predict(&self, bytes: u64) -> Option<f64> {
        let behind = self.points.partition_point(|point| point.0 < bytes);
        let last = *self.points.last()?;
        let Some(&(size, time)) = self.points.get(behind) else {
            return Some(last.1 * bytes as f64 / last.0 as f64);
        };
        let Some(&(size_before, time_before)) = behind.checked_sub(1).and_then(|i| self.points.get(i)) else {
            return Some(time);
        };
        let part = (bytes - size_before) as f64 / (size - size_before) as f64;
        Some(time_before + part * (time - time_before))
    }

    /// Whether a measurement could have yielded the curve.
    fn is_sound(&self) -> bool {
        let times = self.points.iter().all(|(bytes, time)| *bytes > 0 && *time > 0.0 && *time < 1e9);
        times
            && (1..=MOST).contains(&self.points.len())
            && self.points.is_sorted_by(|one, next| one.0 < next.0)
    }
}

/// All curves that are known on this machine.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Costs {
    curves: Vec<Curve>,
    /// The engines that were measured, even if they then failed everywhere.
    tried: Vec<String>,
}

impl Costs {
    /// The curve of an engine between two kinds of memory.
    pub fn curve(&self, engine: &str, to: Kind, from: Kind) -> Option<&Curve> {
        self.curves.iter().find(|curve| curve.engine == engine && curve.to == to && curve.from == from)
    }

    /// Adds a curve in place of one of the same engine and kinds; one that no measurement could have yielded is left out.
    pub fn set(&mut self, curve: Curve) {
        if !curve.is_sound() {
            return;
        }
        self.curves.retain(|old| (&old.engine, old.to, old.from) != (&curve.engine, curve.to, curve.from));
        self.curves.push(curve);
    }

    /// Whether an engine was measured, with or without success.
    pub(crate) fn tried(&self, engine: &str) -> bool {
        self.tried.iter().any(|tried| tried == engine)
    }

    /// Notes that an engine was measured.
    pub(crate) fn note(&mut self, engine: &str) {
        if !self.tried(engine) {
            self.tried.push(engine.into());
        }
    }

    /// All curves.
    pub fn curves(&self) -> &[Curve] {
        &self.curves
    }

    /// Whether measurements could have yielded the curves; used for those read from a file.
    pub(crate) fn are_sound(&self) -> bool {
        self.curves.len() <= MOST && self.tried.len() <= MOST && self.curves.iter().all(Curve::is_sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> Curve {
        Curve { engine: "one".into(), to: Kind::Mapping, from: Kind::File, points: points.to_vec() }
    }

    #[test]
    fn times_between_and_beyond_points() {
        let curve = curve(&[(64, 1.0), (1000, 2.0), (2000, 6.0)]);
        for (bytes, time) in [(0, 1.0), (64, 1.0), (1000, 2.0), (1500, 4.0), (2000, 6.0), (20_000, 60.0)] {
            assert!((curve.predict(bytes).unwrap() - time).abs() < 1e-9, "{bytes}");
        }
        assert_eq!(self::curve(&[]).predict(1), None);
    }

    #[test]
    fn a_curve_nobody_measured_is_left_out() {
        let mut costs = Costs::default();
        let wrong: [&[(u64, f64)]; 5] =
            [&[], &[(0, 1.0)], &[(5, f64::NAN)], &[(5, -1.0)], &[(5, 1.0), (5, 2.0)]];
        for points in wrong {
            costs.set(curve(points));
        }
        assert!(costs.curves().is_empty());
        costs.set(curve(&[(5, 1.0)]));
        costs.set(curve(&[(5, 2.0)]));
        assert_eq!(costs.curves(), [curve(&[(5, 2.0)])]);
    }
}
