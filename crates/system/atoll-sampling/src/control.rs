//! Holds an overhead: computes the next period from what sampling has cost so far.
//!
//! Pure; the recorder feeds it. The paper asks for such a control ("the reset value should be adjusted dynamically based on the
//! application", MCHPC'18, section 4.3).

/// The least processor time of the program, in seconds, over which an overhead that was too high or too low is made up for.
const HORIZON: f64 = 0.5;
/// The greatest factor by which the period changes at once.
const STEP: f64 = 2.0;
/// The least factor by which the period is changed.
const LEAST: f64 = 1.05;
/// The share of the permitted overhead that is aimed at: the last harvest and the record's end add to it.
const AIM: f64 = 0.93;

/// The cost of sampling and the program's processor time, up to the last step.
#[derive(Debug, Clone, Copy)]
pub struct Control {
    target: f64,
    spent: f64,
    used: f64,
}

impl Control {
    /// Makes a control that keeps the overhead below `most`, a share of the program's processor time.
    pub fn new(most: f64) -> Self {
        Self { target: AIM * most, spent: 0.0, used: 0.0 }
    }

    /// Returns the factor for the period, given the seconds that sampling and harvesting `spent` and that the program `used`
    /// since the start, sampling included. `None` means that the period is right, or that too little is known to change it.
    pub fn step(&mut self, spent: f64, used: f64) -> Option<f64> {
        let (more, time) = (spent - self.spent, used - self.used);
        if time < 0.05 {
            return None;
        }
        (self.spent, self.used) = (spent, used);
        // The overhead is computed as the record reports it: a share of what the program would have used alone.
        let horizon = HORIZON.max(used / 2.0);
        let wanted = self.target * (used + horizon) / (1.0 + self.target) - spent;
        let rate = (wanted / horizon).max(self.target / 20.0);
        let factor = (more / time / rate).clamp(1.0 / STEP, STEP);
        (!(1.0 / LEAST..=LEAST).contains(&factor)).then_some(factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a program whose samples cost `cost` seconds a piece, beside `fixed` a second; returns the overhead after 20 s.
    fn run(cost: f64, fixed: f64, mut period: f64, target: f64) -> f64 {
        let mut control = Control::new(target);
        let (mut spent, mut used) = (0.0, 0.0);
        for _ in 0..100 {
            used += 0.2;
            spent += 0.2 * (cost / period + fixed);
            if let Some(factor) = control.step(spent, used) {
                period *= factor;
            }
        }
        spent / (used - spent)
    }

    #[test]
    fn the_overhead_is_held_wherever_it_begins() {
        for (cost, fixed, period) in
            [(1e-5, 0.0, 1e-3), (1e-5, 0.002, 1e-1), (1e-5, 0.0, 1e-4), (5e-5, 0.004, 1e-3)]
        {
            for target in [0.01, 0.05] {
                let held = run(cost, fixed, period, target);
                assert!((held / target - 1.0).abs() < 0.15, "{cost} {fixed} {period} {target}: {held}");
            }
        }
    }

    #[test]
    fn nothing_is_told_by_nothing() {
        let mut control = Control::new(0.01);
        assert_eq!(control.step(0.0, 0.01), None);
        assert_eq!(control.step(0.0, 0.2), Some(1.0 / STEP));
    }
}
