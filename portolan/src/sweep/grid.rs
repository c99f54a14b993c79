//! The grid: every combination of the values of some parameters.

use std::str::FromStr;

use nic_model::{Machine, MachineError};

/// The most points of a grid: each takes a job of its own.
pub(crate) const POINTS_MAX: usize = 1000;

/// A parameter and its values in the words of the command line: `host.trap=0.1,0.2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wished {
    name: String,
    values: Vec<String>,
}

impl FromStr for Wished {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "NAME=VALUE,VALUE,.. is expected, such as host.trap=0.1,0.2";
        let (name, list) = text.split_once('=').ok_or(wanted)?;
        let values: Vec<String> = list.split(',').map(|v| v.trim().to_owned()).collect();
        if name.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(format!("a value is missing; {wanted}"));
        }
        let name = name.trim().to_owned();
        Ok(Self { name, values })
    }
}

/// Why a grid cannot be meant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum GridError {
    /// The machine refuses a parameter or a value.
    #[error("--set {setting}: {reason}")]
    Refused {
        setting: String,
        reason: MachineError,
    },
    /// A parameter stands in several lists.
    #[error("--set {0} stands twice; one list has all its values")]
    ParameterTwice(String),
    /// A list has a value several times.
    #[error("--set {name} has the value {first} twice, as {first} and {second}")]
    ValueTwice {
        name: String,
        first: String,
        second: String,
    },
    /// Too many jobs.
    #[error("the grid has {points} points, and {POINTS_MAX} at most are measured: {factors}")]
    TooMany { points: u128, factors: String },
}

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq)]
struct Value {
    /// As it was typed.
    text: String,
    /// In the unit of the parameter here.
    number: f64,
}

/// A parameter with its values.
#[derive(Debug, Clone)]
struct Axis {
    name: String,
    unit: &'static str,
    values: Vec<Value>,
}

/// Parameters, each with its values; the last one varies fastest.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    axes: Vec<Axis>,
}

/// A combination of values, in the order of the grid's parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    values: Vec<Value>,
}

impl Point {
    /// The values as numbers in the units of [`Grid::headings`].
    pub(crate) fn numbers(&self) -> impl Iterator<Item = f64> {
        self.values.iter().map(|value| value.number)
    }
}

impl Grid {
    /// The grid of these lists on `machine`.
    ///
    /// # Errors
    /// [`GridError`]: a parameter or value that the machine does not have, or one twice, or too many points.
    pub(crate) fn of(wished: &[Wished], machine: &Machine) -> Result<Self, GridError> {
        let points = wished.iter().map(|w| w.values.len() as u128);
        let points = points.fold(1, u128::saturating_mul);
        if points > POINTS_MAX as u128 {
            let factors: Vec<_> = wished
                .iter()
                .map(|w| format!("{} of {}", w.values.len(), w.name))
                .collect();
            let factors = factors.join(", ");
            return Err(GridError::TooMany { points, factors });
        }
        let mut grid = Self { axes: Vec::new() };
        for one in wished {
            if grid.has(&one.name) {
                return Err(GridError::ParameterTwice(one.name.clone()));
            }
            grid.axes.push(Axis::of(one, machine)?);
        }
        for point in grid.points() {
            grid.on(&point, machine)?;
        }
        Ok(grid)
    }

    /// Whether a parameter is one of the grid's.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.axes.iter().any(|axis| axis.name == name)
    }

    /// Names of the parameters.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.axes.iter().map(|axis| axis.name.as_str())
    }

    /// Names of the parameters with their units, for headings.
    pub(crate) fn headings(&self) -> Vec<(String, &'static str)> {
        let of = |axis: &Axis| (axis.name.clone(), axis.unit);
        self.axes.iter().map(of).collect()
    }

    /// The first parameter that has several values, or the first.
    pub(crate) fn varied(&self) -> Option<usize> {
        let several = |axis: &Axis| axis.values.len() > 1;
        let first = self.axes.iter().position(several);
        first.or((!self.axes.is_empty()).then_some(0))
    }

    /// All points, in order.
    pub(crate) fn points(&self) -> Vec<Point> {
        let none = vec![Point { values: Vec::new() }];
        self.axes.iter().fold(none, |points, axis| {
            let with = |point: &Point| {
                let values = axis.values.iter().map(|value| {
                    let mut values = point.values.clone();
                    values.push(value.clone());
                    Point { values }
                });
                values.collect::<Vec<_>>()
            };
            points.iter().flat_map(with).collect()
        })
    }

    /// A point as settings of a machine: `SECTION.KEY=VALUE` each.
    pub(crate) fn settings(&self, point: &Point) -> Vec<String> {
        let pairs = self.axes.iter().zip(&point.values);
        pairs
            .map(|(axis, value)| format!("{}={}", axis.name, value.text))
            .collect()
    }

    /// The machine of a point.
    fn on(&self, point: &Point, machine: &Machine) -> Result<Machine, GridError> {
        let settings = self.settings(point);
        let set = |machine: Machine, setting: &String| machine.with_setting(setting);
        let made = settings.iter().try_fold(machine.clone(), set);
        made.map_err(|reason| GridError::Refused {
            setting: settings.join(" --set "),
            reason,
        })
    }
}

impl Axis {
    fn of(wished: &Wished, machine: &Machine) -> Result<Self, GridError> {
        let Wished { name, values } = wished;
        let mut axis = Self {
            name: name.clone(),
            unit: "",
            values: Vec::new(),
        };
        for text in values {
            let setting = format!("{name}={text}");
            let made = machine.with_setting(&setting);
            let made = made.map_err(|reason| GridError::Refused { setting, reason })?;
            let (number, unit) = shown(&made, name);
            axis.unit = unit;
            axis.add(text, number)?;
        }
        Ok(axis)
    }

    fn add(&mut self, text: &str, number: f64) -> Result<(), GridError> {
        let same = |value: &&Value| value.number == number;
        if let Some(first) = self.values.iter().find(same) {
            return Err(GridError::ValueTwice {
                name: self.name.clone(),
                first: first.text.clone(),
                second: text.to_owned(),
            });
        }
        let text = text.to_owned();
        self.values.push(Value { text, number });
        Ok(())
    }
}

/// A parameter's value with its unit, as results have it: times in microseconds.
fn shown(machine: &Machine, name: &str) -> (f64, &'static str) {
    let value = machine.value(name).unwrap_or_default() as f64;
    let is = |p: &&nic_model::ParameterInfo| name.split_once('.') == Some((p.section, p.key));
    match machine.parameters.iter().find(is).map(|p| p.unit) {
        Some("ps") => (value / 1e6, "us"),
        Some("1") | None => (value, ""),
        Some(unit) => (value, unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(sets: &[&str]) -> Result<Grid, GridError> {
        let wished: Vec<Wished> = sets.iter().map(|s| s.parse().unwrap()).collect();
        Grid::of(&wished, &Machine::named("xt4").unwrap())
    }

    #[test]
    fn the_last_parameter_varies_fastest() {
        let grid = grid(&["host.trap=0.1,200ns", "protocol.inline_data=0,12"]).unwrap();
        let settings: Vec<_> = grid.points().iter().map(|p| grid.settings(p)).collect();
        let of = |trap: &str, inline: u8| {
            let inline = format!("protocol.inline_data={inline}");
            vec![format!("host.trap={trap}"), inline]
        };
        let expected = [of("0.1", 0), of("0.1", 12), of("200ns", 0), of("200ns", 12)];
        assert_eq!(settings, expected);
        let last: Vec<f64> = grid.points()[3].numbers().collect();
        assert_eq!(last, [0.2, 12.0]);
        let headings = grid.headings();
        assert_eq!((headings[0].1, headings[1].1), ("us", "B"));
    }

    #[test]
    fn the_first_parameter_with_several_values_is_the_one_that_varies() {
        let of = |sets: &[&str]| grid(sets).unwrap().varied();
        assert_eq!(of(&["host.trap=0.1", "chip.tx_rate=1000,2000"]), Some(1));
        assert_eq!(of(&["host.trap=0.1,0.2", "chip.tx_rate=1,2"]), Some(0));
        assert_eq!(of(&["host.trap=0.1", "chip.tx_rate=2000"]), Some(0));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_list_without_values_is_refused() {
        for text in [
            "host.trap",
            "host.trap=",
            "=1",
            "host.trap=1,",
            "host.trap=,1",
        ] {
            let error = text.parse::<Wished>().unwrap_err();
            assert!(error.contains("NAME=VALUE,VALUE,.. is expected"), "{error}");
        }
    }

    #[test]
    fn what_a_machine_does_not_have_is_refused_before_anything_runs() {
        let hundred: Vec<String> = (0..32).map(|i| i.to_string()).collect();
        let hundred = hundred.join(",");
        let many = ["trap", "api_call"].map(|key| format!("host.{key}={hundred}"));
        for (sets, said) in [
            (
                &["host.trapp=1,2"][..],
                "--set host.trapp=1: \"host.trapp\" is not a parameter; is it host.trap",
            ),
            (
                &["chip.tx_rate=1000,fast"],
                "--set chip.tx_rate=fast: \"chip.tx_rate=fast\": a whole number of MB/s is expected",
            ),
            (
                &["protocol.inline_data=12,17"],
                "protocol.inline_data = 17 B, want 0 B to 16 B",
            ),
            (
                &["host.trap=1", "chip.tx_rate=1", "host.trap=2"],
                "--set host.trap stands twice",
            ),
            (
                &["host.trap=1,2,1000ns"],
                "--set host.trap has the value 1 twice, as 1 and 1000ns",
            ),
            (
                &many.each_ref().map(String::as_str),
                "the grid has 1024 points, and 1000 at most are measured: 32 of host.trap, 32 of host.api_call",
            ),
        ] {
            let error = grid(sets).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
