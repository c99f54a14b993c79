//! The joint fit: numbers that machines share, searched for on the points of all of them at once.
//!
//! What belongs to the chip or to the kernel's interrupts is one number for the machines that have that chip and that
//! kernel. What an MPI library takes is a number of each machine. A residual is the error of a point in units of its
//! bound.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use nic_model::{Machine, Os};
use serde::{Deserialize, Serialize};

use super::fit::{self, Range};
use super::model::{self, Point};
use super::{Target, between, curve_of, named, points, rate, within};
use crate::bench::Software;
use crate::cmd::failed;
use crate::error::CmdError;

/// A number of the fit. It goes to all of `keys` in equal parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    /// Parameters, as `host.trap`.
    pub(super) keys: &'static [&'static str],
    /// Whose it is.
    whose: Owner,
    least: u64,
    most: u64,
    /// Values are multiples of this, in the unit of the parameter.
    step: u64,
}

/// Which machines have a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// All with a light kernel: its interrupts, or its processor.
    Kernel,
    /// All, at the clock of their processors.
    Processor,
    /// All with a SeaStar.
    Chip,
    /// All with a SeaStar 2.1.
    NewChip,
    /// One machine.
    Software(&'static str),
}

const fn time(keys: &'static [&'static str], whose: Owner, most: u64) -> Number {
    Number {
        keys,
        whose,
        least: 0,
        most,
        step: 10_000,
    }
}

const fn rate_of(keys: &'static [&'static str], whose: Owner, least: u64, most: u64) -> Number {
    Number {
        keys,
        whose,
        least,
        most,
        step: 5,
    }
}

const MPI: &[&str] = &["host.mpi_send", "host.mpi_receive"];

/// The numbers. A receive engine does not deposit faster than HyperTransport carries payload, 2.8 GB/s (recalled), and
/// a transmit engine does not send faster than its link, 2.37 GB/s (derived of S5).
pub(super) const NUMBERS: [Number; 11] = [
    time(&["host.interrupt_entry"], Owner::Kernel, 5_000_000),
    time(&["host.interrupt_exit"], Owner::Kernel, 5_000_000),
    time(&["host.event_handle"], Owner::Kernel, 3_000_000),
    time(&["host.memcpy_fixed"], Owner::Kernel, 500_000),
    rate_of(&["chip.tx_rate"], Owner::NewChip, 1_100, 2_370),
    rate_of(&["chip.rx_rate"], Owner::Chip, 1_100, 2_800),
    time(&["host.local_handoff"], Owner::Processor, 5_000_000),
    time(&["host.local_map"], Owner::Processor, 5_000_000),
    rate_of(&["host.memcpy_rate"], Owner::Chip, 500, 10_000),
    time(MPI, Owner::Software("xt4"), 3_000_000),
    time(MPI, Owner::Software("redstorm"), 3_000_000),
];

/// The machines whose points are fitted together.
pub(super) const MACHINES: [&str; 3] = ["xt4", "redstorm", "xt3"];

/// Interrupt entry and exit together, recalled of 2005, ps.
const INTERRUPT_LEAST: f64 = 2e6;

impl Number {
    /// What number `value` is on `machine`; none where that does not have it.
    fn on(&self, machine: &Machine, value: f64) -> Option<f64> {
        let old = machine.name.starts_with("xt3") || machine.name == "redstorm-2005";
        let scale = match self.whose {
            Owner::Kernel if machine.os == Os::Linux => {
                // Interrupts of another kernel; a copy is the processor's.
                (!self.keys[0].contains("interrupt")).then_some(1.0)
            }
            Owner::NewChip => (!old).then_some(1.0),
            // 2.4 GHz and 2.6 GHz, both recalled.
            Owner::Processor if machine.name == "redstorm" => Some(2.6 / 2.4),
            Owner::Software(name) => (machine.name == name).then_some(1.0),
            Owner::Kernel | Owner::Processor | Owner::Chip => Some(1.0),
        };
        scale.map(|scale| value * scale)
    }

    fn set(&self, machine: &Machine, value: f64) -> Result<Machine, CmdError> {
        let Some(value) = self.on(machine, value) else {
            return Ok(machine.clone());
        };
        let each = (value / self.keys.len() as f64).round() as u64;
        let set = |machine: Machine, key: &&str| machine.with(key, each);
        let machine = self.keys.iter().try_fold(machine.clone(), set);
        machine.map_err(|error| CmdError::Failed(error.to_string()))
    }

    /// What `machine` has.
    pub(super) fn of(&self, machine: &Machine) -> f64 {
        let sum: u64 = self.keys.iter().filter_map(|k| machine.value(k)).sum();
        sum as f64
    }

    fn start(&self) -> Result<f64, CmdError> {
        let machine = match self.whose {
            Owner::Software(name) => named(name)?,
            _ => named("xt4")?,
        };
        Ok(self.of(&machine))
    }

    fn range(&self) -> Range {
        Range {
            least: self.least as f64,
            most: self.most as f64,
            probe: self.step as f64 * 6.0,
        }
    }

    /// The multiple of the step next to `value`, for each of the keys.
    fn rounded(&self, value: f64) -> f64 {
        let step = (self.step as usize * self.keys.len()) as f64;
        (value / step).round() * step
    }

    pub(super) fn words(&self) -> String {
        let keys: Vec<String> = self.keys.iter().map(|k| format!("`{k}`")).collect();
        keys.join(" + ")
    }

    /// Whose it is, for the page.
    pub(super) fn owner(&self) -> String {
        match self.whose {
            Owner::Kernel => "the light kernel".to_owned(),
            Owner::Processor => "the kernel, by the clock".to_owned(),
            Owner::Chip if self.keys[0].starts_with("host") => "the processor".to_owned(),
            Owner::Chip => "SeaStar".to_owned(),
            Owner::NewChip => "SeaStar 2.1".to_owned(),
            Owner::Software(name) => format!("the MPI of the {name}"),
        }
    }

    /// A value with its unit.
    pub(super) fn shown(&self, value: f64) -> String {
        match self.keys[0].ends_with("rate") {
            true => format!("{value:.0} MB/s"),
            false => format!("{:.0} ns", value / 1e3),
        }
    }
}

/// What the fit has found, as its file has it: numbers in the order of [`NUMBERS`], ps and MB/s.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Joint {
    pub(super) values: Vec<f64>,
    /// From where to where each number may move along its profile until the objective has doubled.
    pub(super) intervals: Vec<(f64, f64)>,
    /// The objective at the ends of the intervals, in units of that of the fit.
    pub(super) ends: Vec<(f64, f64)>,
    /// Sum of the squares of the residuals.
    pub(super) objective: f64,
    pub(super) points: usize,
}

impl Joint {
    /// The last fit.
    pub(super) fn last() -> Self {
        serde_json::from_str(include_str!("joint.json"))
            .expect("the file is part of this program and read by its tests")
    }

    /// A built-in machine with the numbers of the fit.
    pub(super) fn machine(&self, name: &str) -> Result<Machine, CmdError> {
        with(&named(name)?, &self.values)
    }

    /// Whether the machine files have these numbers.
    pub(super) fn is_applied(&self) -> Result<bool, CmdError> {
        for name in MACHINES {
            let (own, joint) = (named(name)?, self.machine(name)?);
            let mut pairs = own.parameters.iter().zip(&joint.parameters);
            if pairs.any(|(a, b)| a.value != b.value) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn with(machine: &Machine, values: &[f64]) -> Result<Machine, CmdError> {
    let mut pairs = NUMBERS.iter().zip(values);
    pairs.try_fold(machine.clone(), |machine, (number, value)| {
        number.set(&machine, *value)
    })
}

/// A machine with the points that the fit sees of it.
struct Part {
    machine: Machine,
    mpi: bool,
    seen: Vec<Target>,
    all: Vec<Point>,
}

fn parts() -> Result<Vec<Part>, CmdError> {
    let part = |name: &str| {
        let machine = named(name)?;
        let mpi = name != "xt3";
        // The put of 2005 is of Portals alone, and recalled; what the xt3's MPI takes is derived of it.
        let all = match mpi {
            true => {
                let curve = curve_of(name)?;
                [between(&curve), within(&curve), rate(&curve)].concat()
            }
            false => vec![Target {
                point: Point::OneWay(1),
                value: 5.39,
                bound: 0.1,
                fitted_on: true,
            }],
        };
        let seen = all.iter().copied().filter(|t| t.fitted_on).collect();
        let all = points(&all);
        Ok(Part {
            machine,
            mpi,
            seen,
            all,
        })
    };
    MACHINES.into_iter().map(part).collect()
}

impl Part {
    fn run(&self, machine: &Machine, points: &[Point]) -> Result<Vec<f64>, CmdError> {
        match self.mpi {
            true => model::run(machine, points),
            false => {
                let mode = portals_shim::nal::seastar::Mode::Generic;
                model::run_in(machine, mode, Software::default(), points)
            }
        }
    }

    fn residuals(&self, values: &[f64]) -> Result<Vec<f64>, CmdError> {
        let found = self.run(&with(&self.machine, values)?, &points(&self.seen))?;
        let pairs = self.seen.iter().zip(&found);
        Ok(pairs.map(|(t, v)| t.error(*v) / t.bound).collect())
    }
}

fn hundredths(value: f64) -> f64 {
    (100.0 * value).round() / 100.0
}

/// Searches, and refuses numbers that a machine does not allow.
pub(super) fn search() -> Result<Joint, CmdError> {
    let parts = parts()?;
    let ranges: Vec<Range> = NUMBERS.iter().map(Number::range).collect();
    let start: Vec<f64> = NUMBERS
        .iter()
        .map(Number::start)
        .collect::<Result<_, _>>()?;
    let mut last: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut residuals = |at: &[f64], only: Option<usize>| {
        let mut all = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            let moved = only.is_none_or(|n| NUMBERS[n].on(&part.machine, 0.0).is_some());
            let found = match last.get(&i).filter(|_| !moved) {
                Some(kept) => kept.clone(),
                None => part.residuals(at)?,
            };
            if only.is_none() {
                last.insert(i, found.clone());
            }
            all.extend(found);
        }
        Ok(all)
    };
    let found = fit::search(start, &ranges, &mut residuals)?;
    let values: Vec<f64> = NUMBERS
        .iter()
        .zip(&found.at)
        .map(|(n, v)| n.rounded(*v))
        .collect();
    let objective: f64 = residuals(&values, None)?.iter().map(|r| r * r).sum();
    let mut joint = Joint {
        objective: hundredths(objective),
        points: parts.iter().map(|p| p.seen.len()).sum(),
        intervals: Vec::new(),
        ends: Vec::new(),
        values,
    };
    for (i, profile) in found.profiles.iter().enumerate() {
        let mut end = |sign: f64| {
            let along = |t: f64| -> Vec<f64> {
                let moved = found.at.iter().zip(profile).zip(&ranges);
                moved
                    .map(|((v, d), r)| (v + sign * t * d).clamp(r.least, r.most))
                    .collect()
            };
            let (t, objective) = fit::doubled(found.objective, |t| {
                let there = residuals(&along(t), None)?;
                Ok(there.iter().map(|r| r * r).sum())
            })?;
            let ratio = objective / found.objective;
            Ok::<_, CmdError>((along(t)[i].round(), hundredths(ratio)))
        };
        let ((least, low), (most, high)) = (end(-1.0)?, end(1.0)?);
        joint.intervals.push((least, most));
        joint.ends.push((low, high));
    }
    joint.check(&parts)?;
    Ok(joint)
}

impl Joint {
    /// Refuses numbers that break a bound of a machine, at any published point, or what is recalled of interrupts.
    fn check(&self, parts: &[Part]) -> Result<(), CmdError> {
        for part in parts {
            part.run(&with(&part.machine, &self.values)?, &part.all)?;
        }
        let interrupt: f64 = self.values.iter().take(2).sum();
        if interrupt < INTERRUPT_LEAST {
            return Err(CmdError::Failed(format!(
                "the fit is refused: interrupt_entry and interrupt_exit are {:.2} us together, and at least 2 us are recalled",
                interrupt / 1e6
            )));
        }
        Ok(())
    }

    /// The numbers, in words.
    pub(super) fn shown(&self) -> String {
        let mut text = format!(
            "objective {:.1} on {} points\n",
            self.objective, self.points
        );
        for ((number, value), (least, most)) in
            NUMBERS.iter().zip(&self.values).zip(&self.intervals)
        {
            let [value, least, most] = [*value, *least, *most].map(|v| number.shown(v));
            text += &format!(
                "{} ({}): {value}, {least} to {most}\n",
                number.words(),
                number.owner()
            );
        }
        text
    }

    /// Writes the fit into its file.
    pub(super) fn write(&self, file: &Path) -> Result<(), CmdError> {
        let shown = file.display().to_string();
        let text =
            serde_json::to_string_pretty(self).map_err(|e| CmdError::Failed(e.to_string()))?;
        fs::write(file, text + "\n").map_err(failed(&format!("write {shown}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_share_what_is_of_the_chip_or_of_the_kernel() {
        let joint = Joint::last();
        let [xt4, redstorm, xt3] = MACHINES.map(|name| joint.machine(name).unwrap());
        for key in [
            "host.interrupt_entry",
            "host.interrupt_exit",
            "host.event_handle",
            "chip.rx_rate",
        ] {
            assert!(
                xt4.value(key) == redstorm.value(key) && xt4.value(key) == xt3.value(key),
                "{key}"
            );
        }
        assert_eq!(xt4.value("chip.tx_rate"), redstorm.value("chip.tx_rate"));
        assert_eq!(
            xt3.value("chip.tx_rate"),
            named("xt3").unwrap().value("chip.tx_rate")
        );
        let clocks =
            redstorm.host.local_handoff.as_ps() as f64 / xt4.host.local_handoff.as_ps() as f64;
        assert!((clocks - 2.6 / 2.4).abs() < 0.001, "{clocks}");
        let linux = joint.machine("xt4-linux").unwrap();
        let own = named("xt4-linux").unwrap();
        assert_eq!(linux.host.interrupt_entry, own.host.interrupt_entry);
    }

    #[test]
    fn interrupts_that_are_too_cheap_are_refused() {
        let mut joint = Joint::last();
        joint.values[0] = 1e6;
        joint.values[1] = 0.5e6;
        let refused = joint.check(&[]).unwrap_err().to_string();
        assert!(refused.contains("1.50 us together"), "{refused}");
    }

    #[test]
    fn the_numbers_of_the_last_fit_keep_the_bounds_of_the_machines() {
        let joint = Joint::last();
        assert_eq!(joint.values.len(), NUMBERS.len());
        joint.check(&parts().unwrap()).unwrap();
        for (number, value) in NUMBERS.iter().zip(&joint.values) {
            assert!(
                (number.least as f64..=number.most as f64).contains(value),
                "{number:?} {value}"
            );
        }
    }
}
