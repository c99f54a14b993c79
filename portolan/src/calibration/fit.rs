//! The least sum of squares by the method of Levenberg and Marquardt, and how well it determines each number.
//!
//! Derivatives are differences of two runs. Nothing here knows the model.

use crate::error::CmdError;

/// A number that is searched for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) least: f64,
    pub(super) most: f64,
    /// What is tried beside a value to see what it does.
    pub(super) probe: f64,
}

/// Residuals at a place. With `only` the place differs from the last one without by that number alone.
pub(super) type Residuals<'a> = dyn FnMut(&[f64], Option<usize>) -> Result<Vec<f64>, CmdError> + 'a;

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) at: Vec<f64>,
    pub(super) objective: f64,
    /// How each other number moves with number `i` along its profile, and how far `i` moves until the objective has
    /// doubled, on the model made linear: the ends are `at ± profile[i]`.
    pub(super) profiles: Vec<Vec<f64>>,
}

/// Steps that the search takes at most.
const STEPS: usize = 12;
/// A step that gains less than this part of the objective is the last.
const ENOUGH: f64 = 0.002;

fn sum(residuals: &[f64]) -> f64 {
    residuals.iter().map(|r| r * r).sum()
}

fn clamped(at: &[f64], by: &[f64], ranges: &[Range]) -> Vec<f64> {
    let all = at.iter().zip(by).zip(ranges);
    all.map(|((v, d), r)| (v + d).clamp(r.least, r.most))
        .collect()
}

/// Searches from `start` on.
pub(super) fn search(
    start: Vec<f64>,
    ranges: &[Range],
    residuals: &mut Residuals<'_>,
) -> Result<Found, CmdError> {
    let mut at = start;
    let mut errors = residuals(&at, None)?;
    let mut damping = 0.01;
    for _ in 0..STEPS {
        let slopes = slopes(&at, &errors, ranges, residuals)?;
        let (before, tried) = (sum(&errors), damping);
        while damping < 1e6 {
            let step = step(&slopes, &errors, damping);
            let place = clamped(&at, &step, ranges);
            let there = residuals(&place, None)?;
            if sum(&there) < sum(&errors) {
                (at, errors) = (place, there);
                damping = (damping / 10.0).max(1e-4);
                break;
            }
            damping *= 10.0;
        }
        tracing::info!(objective = sum(&errors), "step");
        if sum(&errors) > before * (1.0 - ENOUGH) && tried <= 0.01 {
            break;
        }
        damping = damping.min(1.0);
    }
    // Where a step last was refused, the residuals were of another place.
    errors = residuals(&at, None)?;
    let slopes = slopes(&at, &errors, ranges, residuals)?;
    let objective = sum(&errors);
    let profiles = profiles(&slopes, objective);
    Ok(Found {
        at,
        objective,
        profiles,
    })
}

/// What each number does to each residual: a row for each number.
fn slopes(
    at: &[f64],
    errors: &[f64],
    ranges: &[Range],
    residuals: &mut Residuals<'_>,
) -> Result<Vec<Vec<f64>>, CmdError> {
    residuals(at, None)?;
    let mut rows = Vec::new();
    for (i, range) in ranges.iter().enumerate() {
        // Inwards at the upper end.
        let probe = match at[i] + range.probe > range.most {
            true => -range.probe,
            false => range.probe,
        };
        let mut place = at.to_vec();
        place[i] += probe;
        let there = residuals(&place, Some(i))?;
        let pairs = there.iter().zip(errors);
        rows.push(pairs.map(|(there, here)| (there - here) / probe).collect());
    }
    Ok(rows)
}

/// The matrix of the normal equations: the products of the slopes.
fn normal(slopes: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let row = |a: &Vec<f64>| slopes.iter().map(|b| product(a, b)).collect();
    slopes.iter().map(row).collect()
}

/// The step that Levenberg and Marquardt take.
fn step(slopes: &[Vec<f64>], errors: &[f64], damping: f64) -> Vec<f64> {
    let mut matrix = normal(slopes);
    for (i, row) in matrix.iter_mut().enumerate() {
        row[i] *= 1.0 + damping;
    }
    let inverse = inverse(matrix);
    let downhill: Vec<f64> = slopes
        .iter()
        .map(|row| -row.iter().zip(errors).map(|(s, e)| s * e).sum::<f64>())
        .collect();
    let along = |row: &Vec<f64>| row.iter().zip(&downhill).map(|(a, b)| a * b).sum();
    inverse.iter().map(along).collect()
}

/// For each number how it and the others move until the objective has doubled.
fn profiles(slopes: &[Vec<f64>], objective: f64) -> Vec<Vec<f64>> {
    let inverse = inverse(normal(slopes));
    let of = |(i, row): (usize, &Vec<f64>)| {
        let scale = (objective / row[i]).sqrt();
        row.iter().map(|v| v * scale).collect()
    };
    inverse.iter().enumerate().map(of).collect()
}

/// The inverse by Gauss and Jordan. A number that nothing hangs on gets a row of zeros but for a great one of its own.
fn inverse(mut matrix: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let n = matrix.len();
    for (i, row) in matrix.iter_mut().enumerate() {
        row[i] = row[i].max(1e-30);
        row.extend((0..n).map(|j| f64::from(u8::from(i == j))));
    }
    for i in 0..n {
        let pivot = matrix[i][i];
        matrix[i].iter_mut().for_each(|v| *v /= pivot);
        let row = matrix[i].clone();
        for (j, other) in matrix.iter_mut().enumerate() {
            let factor = other[i];
            if j != i && factor != 0.0 {
                other
                    .iter_mut()
                    .zip(&row)
                    .for_each(|(v, r)| *v -= factor * r);
            }
        }
    }
    matrix.into_iter().map(|row| row[n..].to_vec()).collect()
}

/// Halvings of the way to a profile's end.
const HALVINGS: u32 = 6;

/// How far along a profile, in units of what the linear model says, the objective itself is at most doubled, and what it
/// is there. Twice the linear way is the end.
pub(super) fn doubled(
    least: f64,
    mut objective: impl FnMut(f64) -> Result<f64, CmdError>,
) -> Result<(f64, f64), CmdError> {
    let (mut inside, mut outside) = ((0.0, least), 2.0);
    for _ in 0..HALVINGS {
        let middle = (inside.0 + outside) / 2.0;
        let there = objective(middle)?;
        match there <= 2.0 * least {
            true => inside = (middle, there),
            false => outside = middle,
        }
    }
    Ok(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range {
        least: 0.0,
        most: 100.0,
        probe: 0.01,
    };

    /// A sum that is well known, a difference that is not, and a point that neither can meet.
    fn residuals(at: &[f64], _: Option<usize>) -> Result<Vec<f64>, CmdError> {
        let (x, y) = (at[0], at[1]);
        Ok(vec![x + y - 8.0, 0.1 * (x - y + 2.0), 1.0 + 0.0 * x])
    }

    #[test]
    fn the_search_finds_the_least_squares_and_how_far_they_determine() {
        let found = search(vec![1.0, 1.0], &[RANGE; 2], &mut residuals).unwrap();
        assert!((found.at[0] - 3.0).abs() < 0.01 && (found.at[1] - 5.0).abs() < 0.01);
        assert!((found.objective - 1.0).abs() < 0.01);
        // The objective doubles where the first two residuals give 1: with x + y kept, at a difference of 10.
        let end = &found.profiles[0];
        assert!((4.9..5.2).contains(&end[0]) && end[1] < -4.8, "{end:?}");
        let there: Vec<f64> = found.at.iter().zip(end).map(|(v, d)| v + d).collect();
        let doubled = sum(&residuals(&there, None).unwrap()) / found.objective;
        assert!((doubled - 2.0).abs() < 0.05, "{doubled}");
    }

    #[test]
    fn a_step_that_goes_too_far_is_shortened() {
        let range = Range {
            least: -100.0,
            ..RANGE
        };
        // Without damping the steps from here on grow.
        let mut arc = |at: &[f64], _: Option<usize>| Ok(vec![at[0].atan(), 0.1]);
        let found = search(vec![2.0], &[range], &mut arc).unwrap();
        assert!(found.at[0].abs() < 0.05, "{:?}", found.at);
    }

    #[test]
    fn a_profile_ends_where_the_objective_has_doubled() {
        let (t, there) = doubled(3.0, |t| Ok(3.0 + 3.0 * t * t)).unwrap();
        assert!((0.95..=1.0).contains(&t) && there <= 6.0, "{t} {there}");
        let (t, _) = doubled(3.0, |t| Ok(if t > 0.3 { 100.0 } else { 3.0 })).unwrap();
        assert!((0.25..=0.3).contains(&t), "{t}");
    }

    #[test]
    fn a_number_stays_in_its_range() {
        let range = Range { most: 4.0, ..RANGE };
        let found = search(vec![1.0, 1.0], &[RANGE, range], &mut residuals).unwrap();
        assert!(found.at[1] <= 4.0 && found.at[0] < 5.0, "{:?}", found.at);
    }
}
