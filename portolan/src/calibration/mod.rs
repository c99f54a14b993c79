//! The SeaStar model against published measurements: the comparison, the search for what no source
//! gives, and the page of the book.
//!
//! ```text
//!   published.json ──▶ targets ─┬─▶ model (runs, virtual time) ──▶ errors ──▶ page, plots
//!                               └─▶ joint (fit) ──▶ joint.json ──▶ page, machine files
//! ```
//!
//! All numbers are of virtual time: the same on every machine.

mod accelerated;
mod checks;
mod fit;
mod joint;
mod mechanisms;
mod model;
mod page;
mod sections;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use nic_model::Machine;

use crate::bench::{Curve, Name, show_size};
use crate::cmd::{failed, output, say};
use crate::error::CmdError;
use joint::Joint;
use model::Point;

/// Options of `portolan calibration`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Machines, each with a published curve
    #[arg(long, value_delimiter = ',', default_values = ["xt4", "redstorm"], value_name = "NAME")]
    machine: Vec<String>,
    /// Search for the fitted parameters of all machines together, and write what is found into FILE
    #[arg(long, value_name = "FILE")]
    fit: Option<PathBuf>,
    /// Write the last fit, which is part of this program, into the machine files of DIR
    #[arg(long, value_name = "DIR", conflicts_with = "fit")]
    apply: Option<PathBuf>,
    /// Write the page of the book and its plots into DIR
    #[arg(long, value_name = "DIR")]
    page: Option<PathBuf>,
}

/// A published value that the model is to give.
#[derive(Debug, Clone, Copy)]
struct Target {
    point: Point,
    /// µs.
    value: f64,
    /// Largest error, as a part of `value`.
    bound: f64,
    /// The fit has seen it.
    fitted_on: bool,
}

impl Target {
    /// The error of `value`, as a part of what is published.
    fn error(&self, value: f64) -> f64 {
        value / self.value - 1.0
    }
}

/// Up to here the bound is 5 %, beyond it 10 %.
const NEAR: u64 = 16 * 1024;

/// Sizes that the fit sees, between processes of a node.
const FIT_ON_SAME_NODE: [u64; 5] = [0, 8, 8192, 163_840, 1 << 20];

fn curve_of(machine: &str) -> Result<Curve, CmdError> {
    let found = Curve::all().into_iter().find(|c| c.machine == machine);
    found.ok_or_else(|| CmdError::Usage(format!("no curve is published for {machine}")))
}

/// What a curve asks of the model between nodes.
fn between(curve: &Curve) -> Vec<Target> {
    let target = |bytes: u64| {
        Some(Target {
            point: Point::OneWay(bytes),
            value: curve.one_way(bytes)?,
            bound: if bytes <= NEAR { 0.05 } else { 0.1 },
            fitted_on: Curve::is_fitted_on(bytes),
        })
    };
    curve
        .compared_sizes()
        .into_iter()
        .filter_map(target)
        .collect()
}

/// What a curve asks of the model within a node.
fn within(curve: &Curve) -> Vec<Target> {
    let target = |bytes: u64| {
        Some(Target {
            point: Point::SameNode(bytes),
            value: curve.same_node(bytes)?,
            bound: 0.1,
            fitted_on: !curve.is_formula() && FIT_ON_SAME_NODE.contains(&bytes),
        })
    };
    let sizes = curve.same_node_sizes();
    sizes.into_iter().filter_map(target).collect()
}

/// The published message rate, if there is one.
fn rate(curve: &Curve) -> Vec<Target> {
    let target = |value: f64| Target {
        point: Point::Of(Name::MessageRate, 0),
        value,
        bound: 0.1,
        fitted_on: true,
    };
    curve.messages_per_s.into_iter().map(target).collect()
}

/// Compares, fits and writes as asked.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    if let Some(file) = &options.fit {
        let joint = joint::search()?;
        joint.write(file)?;
        say(&joint.shown())?;
        return Ok(0);
    }
    if let Some(folder) = &options.apply {
        return apply(folder);
    }
    if let Some(path) = &options.page {
        output::folder(path)?;
    }
    let mut status = 0;
    for name in &options.machine {
        let curve = curve_of(name)?;
        let (between, within, rate) = (between(&curve), within(&curve), rate(&curve));
        let machine = named(name)?;
        for targets in [&between, &within, &rate] {
            let values = model::run(&machine, &points(targets))?;
            for (target, value) in targets.iter().zip(&values) {
                let error = target.error(*value);
                let out = error.abs() > target.bound;
                let unit = match target.point {
                    Point::Of(name, _) => name.unit().word(),
                    _ => "us",
                };
                say(&format!(
                    "{name} {:<14} {:>10.3} {unit}  model {value:>10.3}  {:>6.1} %{}{}",
                    words(target.point),
                    target.value,
                    100.0 * error,
                    if target.fitted_on { "  fitted on" } else { "" },
                    if out { "  OUT OF BOUND" } else { "" },
                ))?;
                if out && !matches!(target.point, Point::SameNode(_)) {
                    status = 1;
                }
            }
        }
    }
    if let Some(folder) = &options.page {
        page::write(folder, &options.machine)?;
    }
    Ok(status)
}

fn named(name: &str) -> Result<Machine, CmdError> {
    Machine::named(name).map_err(|error| CmdError::Usage(error.to_string()))
}

fn points(targets: &[Target]) -> Vec<Point> {
    targets.iter().map(|t| t.point).collect()
}

fn words(point: Point) -> String {
    match point {
        Point::OneWay(bytes) => format!("{} B", show_size(bytes)),
        Point::SameNode(bytes) => format!("{} B, node", show_size(bytes)),
        Point::Of(name, at) => format!("{name} {}", show_size(at)),
    }
}

/// Writes the last fit into the machine files of `folder`.
fn apply(folder: &Path) -> Result<u8, CmdError> {
    let joint = Joint::last();
    for name in joint::MACHINES {
        let file = folder.join(format!("{name}.toml"));
        write_machine(&file, &joint.machine(name)?)?;
        say(&file.display().to_string())?;
    }
    Ok(0)
}

/// Puts the values of `new` into the lines of a machine file; what has no line there is of the machine below it.
fn write_machine(file: &Path, new: &Machine) -> Result<(), CmdError> {
    let shown = file.display().to_string();
    let text = fs::read_to_string(file).map_err(failed(&format!("read {shown}")))?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for parameter in new.parameters.iter().filter(|p| p.line == 0) {
        let start = format!("{} = {{ value = ", parameter.key);
        let line = lines.iter_mut().find(|l| l.starts_with(&start));
        if let Some((line, rest)) = line.and_then(|l| {
            l.clone()
                .split_once(',')
                .map(|(_, rest)| (l, rest.to_owned()))
        }) {
            *line = format!("{start}{},{rest}", parameter.value);
        }
    }
    let text = lines.join("\n") + "\n";
    fs::write(file, text).map_err(failed(&format!("write {shown}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds hold at every published size up to 16 KiB and at some beyond, on every machine
    /// that has a curve. Virtual time: a failure is a change of the model, not of the weather.
    #[test]
    fn the_model_keeps_its_bounds() {
        for curve in Curve::all() {
            let machine = named(&curve.machine).unwrap();
            let mut targets = between(&curve);
            targets.retain(|t| match t.point {
                Point::OneWay(bytes) => bytes <= 131_073 || bytes == 1 << 20,
                _ => false,
            });
            assert!(targets.len() > 20);
            let values = model::run(&machine, &points(&targets)).unwrap();
            for (target, value) in targets.iter().zip(&values) {
                let promised = match target.point {
                    Point::OneWay(bytes) if bytes > 16 << 10 => 0.1,
                    _ => 0.05,
                };
                assert!(
                    target.error(*value).abs() <= promised,
                    "{}: {} is {value} and not {}",
                    curve.machine,
                    words(target.point),
                    target.value
                );
            }
        }
    }

    fn within_a_tenth(targets: &[Target], values: &[f64]) -> bool {
        let mut both = targets.iter().zip(values);
        both.all(|(target, value)| target.error(*value).abs() <= 0.1)
    }

    #[test]
    fn the_model_keeps_its_bounds_within_a_node() {
        let curve = curve_of("xt4").unwrap();
        let targets = within(&curve);
        let values = model::run(&named("xt4").unwrap(), &points(&targets)).unwrap();
        assert!(within_a_tenth(&targets, &values), "{values:?}");
    }

    #[test]
    fn the_model_keeps_its_bounds_within_a_node_it_was_not_fitted_on() {
        let curve = curve_of("redstorm").unwrap();
        let targets = within(&curve);
        assert!(targets.iter().all(|t| !t.fitted_on));
        let values = model::run(&named("redstorm").unwrap(), &points(&targets)).unwrap();
        assert!(within_a_tenth(&targets, &values), "{values:?}");
    }

    #[test]
    fn the_model_keeps_the_message_rate() {
        let curve = curve_of("xt4").unwrap();
        let targets = rate(&curve);
        assert_eq!(targets.len(), 1);
        let values = model::run(&named("xt4").unwrap(), &points(&targets)).unwrap();
        assert!(within_a_tenth(&targets, &values), "{values:?}");
    }

    #[test]
    fn applied_numbers_are_those_that_the_machine_file_then_has() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("xt4.toml");
        let before = include_str!("../../../nic-model/machines/xt4.toml");
        fs::write(&file, before).unwrap();
        let joint = Joint::last().machine("xt4").unwrap();
        write_machine(&file, &joint).unwrap();
        let after = fs::read_to_string(&file).unwrap();
        let read = Machine::from_toml(&after).unwrap();
        for (has, wants) in read.parameters.iter().zip(&joint.parameters) {
            assert_eq!(has.value, wants.value, "{}.{}", has.section, has.key);
        }
        // Sources and everything else stay.
        let text = |text: &str| -> Vec<String> {
            let rest = |line: &str| {
                line.split_once("unit")
                    .map_or(line, |(_, rest)| rest)
                    .to_owned()
            };
            text.lines().map(rest).collect()
        };
        assert_eq!(text(&after), text(before));
    }

    #[test]
    fn linux_is_slower_by_more_than_a_fifth() {
        let sizes = [Point::OneWay(0), Point::OneWay(8), Point::OneWay(1 << 20)];
        let light = model::run(&named("xt3").unwrap(), &sizes).unwrap();
        let heavy = model::run(&named("xt3-linux").unwrap(), &sizes).unwrap();
        for (light, heavy) in light.iter().zip(&heavy) {
            assert!(
                *heavy > 1.2 * light && *heavy < 1.6 * light,
                "{light} {heavy}"
            );
        }
    }
}
