//! The search for the few parameters that no source gives: the simplex method of Nelder and Mead on
//! the model itself.

use nic_model::Machine;

use super::model::{self, Point};
use super::{Target, worst};
use crate::error::CmdError;

/// A number that is fitted: it goes to all of `keys`, divided by their number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fitted {
    /// Parameters, as `host.trap`.
    pub(super) keys: &'static [&'static str],
    /// A parameter that is less by what these are more, so that their sum stays.
    pub(super) from: Option<&'static str>,
    /// Smallest step that is kept, in the parameter's unit.
    pub(super) step: u64,
    /// Greatest sensible sum.
    pub(super) most: u64,
}

impl Fitted {
    /// What `machine` has.
    pub(super) fn of(&self, machine: &Machine) -> u64 {
        self.keys.iter().filter_map(|k| machine.value(k)).sum()
    }

    /// The machine with the number set to `sum`.
    pub(super) fn set(&self, machine: &Machine, sum: f64) -> Result<Machine, CmdError> {
        let count = self.keys.len() as f64;
        let most = self.most as f64;
        let each = (sum.clamp(self.step as f64, most) / count / self.step as f64).round();
        let each = each as u64 * self.step;
        let set = |machine: Machine, key: &&str| machine.with(key, each);
        let sum = |machine: &Machine| machine.value(self.from?).map(|v| v + self.of(machine));
        let before = sum(machine);
        let machine = self.keys.iter().try_fold(machine.clone(), set);
        let machine = machine.and_then(|machine| match (self.from, before) {
            (Some(from), Some(before)) => {
                machine.with(from, before.saturating_sub(self.of(&machine)))
            }
            _ => Ok(machine),
        });
        machine.map_err(|error| CmdError::Failed(error.to_string()))
    }
}

/// Most runs of the model for one search.
const RUNS: usize = 120;

/// The machine with `fitted` so that the model comes as near to `targets` as it can.
pub(super) fn search(
    machine: &Machine,
    fitted: &[Fitted],
    targets: &[Target],
) -> Result<Machine, CmdError> {
    let points: Vec<Point> = targets.iter().map(|t| t.point).collect();
    let build = |at: &[f64]| {
        let mut pairs = fitted.iter().zip(at);
        pairs.try_fold(machine.clone(), |machine, (f, v)| f.set(&machine, *v))
    };
    // Near to the largest error, and smooth: the sum of sixth powers, 5 % being one.
    let cost = |at: &[f64]| -> Result<f64, CmdError> {
        let values = model::run(&build(at)?, &points)?;
        let errors = targets.iter().zip(&values).map(|(t, v)| 20.0 * t.error(*v));
        Ok(errors.map(|e| e.powi(6)).sum())
    };
    let start: Vec<f64> = fitted
        .iter()
        .map(|f| f.of(machine).max(f.step) as f64)
        .collect();
    let best = simplex(start, RUNS, cost)?;
    let machine = build(&best)?;
    let values = model::run(&machine, &points)?;
    tracing::info!(worst = worst(targets, &values), "fitted");
    Ok(machine)
}

/// The best of `runs` evaluations of `cost` from `start` on.
fn simplex(
    start: Vec<f64>,
    runs: usize,
    mut cost: impl FnMut(&[f64]) -> Result<f64, CmdError>,
) -> Result<Vec<f64>, CmdError> {
    let n = start.len();
    let mut corners = vec![(cost(&start)?, start.clone())];
    for i in 0..n {
        let mut at = start.clone();
        at[i] *= 1.06;
        corners.push((cost(&at)?, at));
    }
    let mut used = n + 1;
    while used < runs {
        corners.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (best, worst) = (corners[0].0, corners[n].clone());
        let centre: Vec<f64> = (0..n)
            .map(|i| corners[..n].iter().map(|c| c.1[i]).sum::<f64>() / n as f64)
            .collect();
        let towards = |by: f64| -> Vec<f64> {
            let pairs = centre.iter().zip(&worst.1);
            pairs.map(|(c, w)| (c + by * (c - w)).max(0.0)).collect()
        };
        let mut attempt = |by: f64| -> Result<(f64, Vec<f64>), CmdError> {
            let at = towards(by);
            used += 1;
            Ok((cost(&at)?, at))
        };
        let mut next = attempt(1.0)?;
        if next.0 < best {
            let further = attempt(2.0)?;
            if further.0 < next.0 {
                next = further;
            }
        } else if next.0 >= corners[n - 1].0 {
            next = attempt(if next.0 < worst.0 { 0.5 } else { -0.5 })?;
        }
        if next.0 < worst.0 {
            corners[n] = next;
            continue;
        }
        let keep = corners[0].1.clone();
        for corner in &mut corners[1..] {
            for (v, k) in corner.1.iter_mut().zip(&keep) {
                *v = (*v + k) / 2.0;
            }
            corner.0 = cost(&corner.1)?;
            used += 1;
        }
    }
    corners.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(corners.swap_remove(0).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_the_bottom_of_a_bowl() {
        let bowl = |at: &[f64]| Ok((at[0] - 3.0).powi(2) + 10.0 * (at[1] - 5.0).powi(2));
        let found = simplex(vec![1.0, 1.0], 200, bowl).unwrap();
        assert!((found[0] - 3.0).abs() < 0.01 && (found[1] - 5.0).abs() < 0.01);
    }
}
