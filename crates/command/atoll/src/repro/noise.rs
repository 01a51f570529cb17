//! Simulates interruptions of many nodes and a barrier each step: how profiling's overhead changes with scale.
//!
//! Every core is interrupted at its own times, as often as reset value and buffer make it. A step lasts until the last core is
//! done. Source: MCHPC'18, section 4.3 (the paper measured; this only follows its arithmetic).

/// The number of cores that work on a node (MCHPC'18, section 4.1).
const CORES: u64 = 64;
/// The number of steps simulated for each point.
const STEPS: u64 = 40;
/// The bytes of a PEBS record on Knights Landing (section 3).
const RECORD_BYTES: f64 = 192.0;
/// The seconds of an interrupt's handler: 20 thousand cycles at 1.4 GHz (section 4.3).
const HANDLER_SECONDS: f64 = 20e3 / 1.4e9;

/// How the work of a step depends on the number of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scaling {
    /// Each node's work stays the same.
    Weak,
    /// The work of all nodes together stays the same.
    Strong,
}

/// The parameters of a simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Noise {
    /// The events a second of a core that the counter counts.
    pub(super) events_a_second: f64,
    /// The reset value.
    pub(super) reset: u64,
    /// The bytes of the buffer.
    pub(super) buffer: u64,
    /// The seconds of a step on 32 nodes.
    pub(super) step_seconds: f64,
    /// How the work scales.
    pub(super) scaling: Scaling,
}

impl Noise {
    /// Returns the seconds between two interrupts of a core.
    pub(super) fn interval(&self) -> f64 {
        let records = (self.buffer as f64 / RECORD_BYTES).max(1.0);
        self.reset as f64 * records / self.events_a_second
    }

    /// Returns the overhead on `nodes` nodes, as a share.
    pub(super) fn overhead(&self, nodes: u64) -> f64 {
        let step = match self.scaling {
            Scaling::Weak => self.step_seconds,
            Scaling::Strong => self.step_seconds * 32.0 / nodes as f64,
        };
        let interval = self.interval();
        let (mut random, mut total) = (0x9e37_79b9_7f4a_7c15u64, 0.0);
        for _ in 0..STEPS {
            // This is the latest of all cores: its number of interrupts is the number that fits behind a phase of its own.
            let mut most = 0.0f64;
            for _ in 0..nodes * CORES {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let phase = (random >> 11) as f64 / (1u64 << 53) as f64;
                most = most.max((step / interval + phase).floor());
            }
            total += most * HANDLER_SECONDS;
        }
        total / (STEPS as f64 * step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_much_longer_than_the_interval_is_the_same_at_every_scale() {
        let noise = Noise {
            events_a_second: 4e6,
            reset: 64,
            buffer: 8192,
            step_seconds: 0.33,
            scaling: Scaling::Weak,
        };
        let (few, many) = (noise.overhead(32), noise.overhead(256));
        assert!((many - few) / few < 0.02, "{few} {many}");
        // A step shorter than the interval still has an interrupt on some core.
        let strong = Noise { scaling: Scaling::Strong, step_seconds: 0.003, ..noise };
        assert!(strong.overhead(256) > 1.2 * strong.overhead(32));
    }
}
