//! The plan of `atoll repro cmcp`: programs, classes, core counts, near limits.
//!
//! Figures' legends and axes are the paper's (`papers/cmcp.txt`, sections 5.2 to 5.7) as far as time allows.

use atoll_machine::{PageMode, Replacement, Tables};
use atoll_pages::PageSize;

use super::capture::Run;
pub(super) use super::store::Point;

/// The number of cores of figures 8 to 10 and of the claims.
pub(super) const TOP: u32 = 56;

/// The plan of all simulations.
#[derive(Debug)]
pub(super) struct Plan {
    /// The programs of figures 6 to 9 and table 1.
    pub(super) runs: Vec<Run<'static>>,
    /// The programs of figure 10, in the same order.
    pub(super) large: Vec<Run<'static>>,
    /// The core counts of figures 6 and 7 and of table 1.
    pub(super) cores: Vec<u32>,
    /// The near limits of figure 8, in percent.
    pub(super) near: Vec<f64>,
    /// The ratios of figure 9.
    pub(super) ratios: Vec<f64>,
    /// The near limits of figure 10, in percent.
    pub(super) near_by_page: Vec<f64>,
}

/// The programs, and the regions of an iteration with that in front which begins it.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("bt", &["x_solve", "y_solve", "z_solve", "cfd_add", "cfd_compute_rhs"]),
    ("lu", &["relax", "cfd_add", "compute_rhs"]),
    ("cg", &["conjugate_gradient", "power_step"]),
    ("stencil", &["linearise_pressure", "fill_halo", "diffuse", "diagnose", "carry", "advance", "saturate"]),
];

/// Returns the plan; `quick` is for `--quick`.
pub(super) fn plan(quick: bool) -> Plan {
    // Iterations are alike, so one is traced, and replayed until near memory has settled.
    let all = |classes: [&'static str; 4]| {
        let run = |(&(program, regions), class): (&(_, _), _)| {
            // The paper's CG is NPB 3's. Making its matrix touches more memory than its iterations. An iteration multiplies by
            // the matrix in each of its 25 steps, and once more; all of that touches the same memory in the same order.
            // SCALE holds a whole model, not only the dynamics of its steps.
            let (options, parts): (&[&str], _) = match program {
                "cg" => (&["--triples", "--steps", "1"], (2, 26)),
                "stencil" => (&["--whole-model"], (1, 1)),
                _ => (&[], (1, 1)),
            };
            Run { program, class, iterations: 1, options, regions, filter: 32, parts }
        };
        PROGRAMS.iter().zip(classes).map(run).collect::<Vec<_>>()
    };
    if quick {
        // The paper's classes, but for SCALE, whose classes all have columns enough for 56 workers, and for the sizes of pages.
        let runs = all(["B", "B", "B", "A"]);
        return Plan {
            large: all(["A"; 4]),
            runs,
            cores: vec![8, 24, TOP],
            near: vec![100.0, 90.0, 75.0, 60.0, 50.0, 40.0, 30.0],
            ratios: vec![0.0, 0.25, 0.5, 0.75, 1.0],
            near_by_page: vec![100.0, 90.0, 75.0, 60.0, 45.0],
        };
    }
    let tens = |from: u32| (from..=10).rev().map(|n| f64::from(n) * 10.0).collect::<Vec<_>>();
    Plan {
        runs: all(["B"; 4]),
        large: all(["C"; 4]),
        cores: (1..=7).map(|n| n * 8).collect(),
        near: tens(2),
        ratios: (0..=10).map(|n| f64::from(n) / 10.0).collect(),
        near_by_page: tens(3),
    }
}

/// The lines of figure 7, as its legend names them, with table 1's names where that has them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Line {
    /// Regular page tables, everything near.
    NoMovement,
    /// Regular page tables, FIFO.
    RegularFifo,
    /// Private page tables, FIFO.
    Fifo,
    /// Private page tables, LRU.
    Lru,
    /// Private page tables, CMCP with its best p.
    Cmcp,
}

impl Line {
    pub(super) const ALL: [Self; 5] =
        [Self::NoMovement, Self::RegularFifo, Self::Fifo, Self::Lru, Self::Cmcp];

    /// Returns the legend's words.
    pub(super) fn legend(self) -> &'static str {
        match self {
            Self::NoMovement => "no data movement",
            Self::RegularFifo => "regular PT + FIFO",
            Self::Fifo => "PSPT + FIFO",
            Self::Lru => "PSPT + LRU",
            Self::Cmcp => "PSPT + CMCP",
        }
    }

    /// Returns the point of this line for a program whose limit is `near` percent and whose best ratio is `p`.
    pub(super) fn point(self, cores: u32, near: f64, p: f64) -> Point {
        let policy = match self {
            Self::NoMovement => Replacement::None,
            Self::RegularFifo | Self::Fifo => named("fifo"),
            Self::Lru => named(LRU),
            Self::Cmcp => cmcp(p),
        };
        let regular = matches!(self, Self::NoMovement | Self::RegularFifo);
        let tables = if regular { Tables::Shared } else { Tables::Private };
        let near = if self == Self::NoMovement { None } else { Some(near) };
        Point { cores, near, page: PageMode::One(PageSize::K4), tables, policy }
    }
}

/// The paper's LRU, with the number of frames that its scan passes over every 10 ms, which the paper does not say. It is fitted on bt
/// at 56 cores, where LRU has 2.23 times FIFO's invalidations (table 1).
const LRU: &str = "lru:scan=4800";

/// Returns CMCP with the ratio `p`.
pub(super) fn cmcp(p: f64) -> Replacement {
    named(&format!("cmcp:p={p}"))
}

/// Returns a policy by its name; all names are in this file.
fn named(text: &str) -> Replacement {
    text.parse().unwrap_or(Replacement::None)
}

/// Returns a point of figure 8: FIFO, 4K, private page tables, 56 cores.
pub(super) fn by_near(near: Option<f64>) -> Point {
    by_page(PageSize::K4, near)
}

/// Returns a point of figure 10.
pub(super) fn by_page(size: PageSize, near: Option<f64>) -> Point {
    let policy = if near.is_some() { named("fifo") } else { Replacement::None };
    Point { cores: TOP, near, page: PageMode::One(size), tables: Tables::Private, policy }
}

/// The sizes of pages that are tried with half of the memory; 2M pages are slower by far.
pub(super) const HALF_SIZES: [PageSize; 2] = [PageSize::K4, PageSize::K64];

/// Returns the points of section 7: half of the memory, with FIFO and CMCP.
pub(super) fn halves(p: f64) -> Vec<Point> {
    let each = |policy| HALF_SIZES.map(|size| Point { policy, ..by_page(size, Some(50.0)) });
    [named("fifo"), cmcp(p)].into_iter().flat_map(each).collect()
}

/// Returns a point of figure 9.
pub(super) fn by_ratio(near: f64, p: f64) -> Point {
    Line::Cmcp.point(TOP, near, p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_of_the_plan_is_one() {
        for line in Line::ALL {
            let point = line.point(8, 50.0, 0.25);
            assert_eq!(point.policy == Replacement::None, line == Line::NoMovement, "{line:?}");
        }
        assert_eq!(Line::Cmcp.point(8, 50.0, 0.25).policy.to_string(), "cmcp:p=0.25");
        for quick in [false, true] {
            let plan = plan(quick);
            assert_eq!(plan.runs.len(), plan.large.len());
            assert!(plan.cores.contains(&TOP) && plan.cores.contains(&24) && plan.cores.contains(&8));
        }
    }
}
