//! The page of the book: every number in it is of a run.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use nic_model::Machine;

use super::mechanisms::{self, Mechanism};
use super::model::{self, Point};
use super::{BETWEEN, Target, WITHIN, between, curve_of, named, points, within};
use crate::bench::{Curve, Name, draw_curves, show_size};
use crate::cmd::failed;
use crate::error::CmdError;

/// Writes `calibration.md` and a plot for each machine into `folder`.
pub(super) fn write(folder: &Path, machines: &[String]) -> Result<(), CmdError> {
    let mut text = String::from(INTRODUCTION);
    for name in machines {
        let curve = curve_of(name)?;
        let machine = named(name)?;
        section(&mut text, folder, &machine, &curve)?;
    }
    let machine = named(machines.first().map_or("xt4", String::as_str))?;
    turned_off(&mut text, &machine)?;
    let file = folder.join("calibration.md");
    fs::write(&file, text).map_err(failed(&format!("write {}", file.display())))
}

const INTRODUCTION: &str = "<!-- Written by cargo xtask calibration. -->

# Calibration

The SeaStar model beside published measurements of the machines it stands for. Every model value is of a run
in virtual time, so it is the same everywhere. The published values, with what is certain about them and what
is not, are in `portolan/src/bench/published.json`; the parameters, with their sources, in
`nic-model/machines/`.

Published one-way times are MPI's. `portolan bench pingpong` therefore lets an MPI library compute before each
put (`mpi_send`) and after each event (`mpi_receive`): two constants for a machine, the same at every size. No
parameter depends on the size of a message. `cargo xtask calibration --fit` repeats the search for the fitted
parameters, `cargo xtask calibration` writes this page.

What the tables below count as fitted is what the search moved. It is not all that was chosen with these
curves in view:

* Before the search, eight assumed costs of the xt4 were lowered by hand, because the fit of the 0-byte time
  otherwise left nothing for MPI: `tx_message` and `rx_message` (400 to 300 ns), `match_fixed` (200 to 100),
  `header_build` (150 to 100), `event_post` (100 to 50), `command_write` and `ht_write_latency` (125 to 100),
  `ht_read_latency` (275 to 250). No source has them; redstorm inherits them.
* The points of the fit were changed once: with 2304 bytes among them, 3072 bytes was out of bound, and took
  its place. Within a node `memcpy_rate` was set by hand after the search, when 1 MiB was out of bound.
* Interrupts and MPI cannot be told apart by these curves: 0.22 us of MPI is less than one would expect, and
  the interrupts carry the rest.

";

fn section(
    text: &mut String,
    folder: &Path,
    machine: &Machine,
    curve: &Curve,
) -> Result<(), CmdError> {
    let far = between(curve);
    let near = within(curve);
    let far_values = model::run(machine, &points(&far))?;
    let near_values = model::run(machine, &points(&near))?;
    let plot = format!("calibration-{}.svg", machine.name);
    let lines = [
        ("model".to_owned(), series(&far, &far_values)),
        (curve.label.clone(), series(&far, &published(&far))),
        ("model, same node".to_owned(), series(&near, &near_values)),
        (
            "the same, same node".to_owned(),
            series(&near, &published(&near)),
        ),
    ];
    draw_curves(&lines, &folder.join(&plot)).map_err(CmdError::Failed)?;

    let _ = writeln!(text, "## {}\n\n{}.\n", machine.name, machine.description);
    let kind = if curve.is_formula() {
        "formula"
    } else {
        "points"
    };
    let _ = writeln!(
        text,
        "Published {kind}: {}. Standing: {}.\n\n![{} model and measurement]({plot})\n",
        curve.source, curve.status, machine.name
    );
    parameters(text, machine, &far, &near);
    let _ = writeln!(text, "### Between neighbours, half a round trip\n");
    table(text, &far, &far_values);
    let _ = writeln!(text, "### Between two processes of a node\n");
    table(text, &near, &near_values);
    if let Some(rate) = curve.messages_per_s {
        let names = [Point::Of(Name::PutRate, 8), Point::Of(Name::MessageRate, 8)];
        let rates = model::run(machine, &names)?;
        let _ = writeln!(
            text,
            "### Message rate\n\n| | per second | error |\n|---|--:|--:|\n| measured (MPI) | {rate:.0} | |\n\
             | model, puts of 8 B with acks (`put-rate`) | {:.0} | {:+.1} % |\n\
             | model, messages of 8 B that MPI takes one by one (`message-rate`) | {:.0} | {:+.1} % |\n\n\
             Nothing was fitted on the rate. What was counted is not said where it is published. Acks double the \
             interrupts; a sender without them is much faster in the model than that figure, so that the first \
             row does not confirm the second.\n",
            rates[0],
            100.0 * (rates[0] / rate - 1.0),
            rates[1],
            100.0 * (rates[1] / rate - 1.0),
        );
    }
    Ok(())
}

fn published(targets: &[Target]) -> Vec<f64> {
    targets.iter().map(|t| t.value).collect()
}

fn series(targets: &[Target], values: &[f64]) -> Vec<(u64, f64)> {
    let bytes = |point: Point| match point {
        Point::OneWay(bytes) | Point::SameNode(bytes) | Point::Of(_, bytes) => bytes,
    };
    let pairs = targets.iter().zip(values);
    pairs.map(|(t, v)| (bytes(t.point), *v)).collect()
}

/// What was fitted, on how many points.
fn parameters(text: &mut String, machine: &Machine, far: &[Target], near: &[Target]) {
    let seen = |of: &[Target]| of.iter().filter(|t| t.fitted_on).count();
    let inside = seen(near) > 0;
    let fitted = BETWEEN.len() + if inside { WITHIN.len() } else { 0 };
    let _ = writeln!(
        text,
        "Fitted: {fitted} numbers, {} on {} of {} points between nodes{}.\n\n| number | value |\n|---|--:|",
        BETWEEN.len(),
        seen(far),
        far.len(),
        if inside {
            format!(
                ", {} on {} of {} points within a node",
                WITHIN.len(),
                seen(near),
                near.len()
            )
        } else {
            "; within a node nothing".to_owned()
        }
    );
    let all = BETWEEN.iter().chain(WITHIN.iter().filter(|_| inside));
    for number in all {
        let keys: Vec<String> = number.keys.iter().map(|k| format!("`{k}`")).collect();
        let unit = machine.parameters.iter().find(|p| {
            number.keys.first().and_then(|k| k.split_once('.')) == Some((p.section, p.key))
        });
        let value = number.of(machine);
        let shown = match unit.map(|p| p.unit) {
            Some("ps") => format!("{} ns", value as f64 / 1e3),
            Some(unit) => format!("{value} {unit}"),
            None => value.to_string(),
        };
        let _ = writeln!(text, "| {} | {shown} |", keys.join(" + "));
    }
    text.push('\n');
}

fn table(text: &mut String, targets: &[Target], values: &[f64]) {
    text.push_str("| bytes | published, µs | model, µs | error | |\n|--:|--:|--:|--:|---|\n");
    let mut largest = [(0.0, "0".to_owned()), (0.0, "0".to_owned())];
    for (target, value) in targets.iter().zip(values) {
        let (Point::OneWay(bytes) | Point::SameNode(bytes) | Point::Of(_, bytes)) = target.point;
        let error = 100.0 * target.error(*value);
        let _ = writeln!(
            text,
            "| {} | {:.2} | {value:.2} | {error:+.1} % | {} |",
            show_size(bytes),
            target.value,
            if target.fitted_on { "fitted on" } else { "" }
        );
        let most = &mut largest[usize::from(target.fitted_on)];
        if error.abs() > f64::abs(most.0) {
            *most = (error, show_size(bytes));
        }
    }
    let [(other, at), (seen, seen_at)] = largest;
    let _ = write!(
        text,
        "\nLargest error on points that the fit did not see: {other:+.1} % at {at} B"
    );
    if seen != 0.0 {
        let _ = write!(text, "; on points that it saw: {seen:+.1} % at {seen_at} B");
    }
    text.push_str(".\n\n");
}

/// What each mechanism does.
fn turned_off(text: &mut String, machine: &Machine) -> Result<(), CmdError> {
    let _ = writeln!(
        text,
        "## Mechanisms turned off\n\nEach feature of the curves comes out of a mechanism. The same runs on the \
         {}, with one mechanism turned off by a parameter:\n",
        machine.name
    );
    for mechanism in &mechanisms::ALL {
        let Mechanism {
            title,
            about,
            off,
            points,
        } = mechanism;
        let words: Vec<String> = off.iter().map(|(k, v)| format!("`{k}` = {v}")).collect();
        let _ = writeln!(
            text,
            "### {title}\n\n{about}\n\n| | model | {} |\n|---|--:|--:|",
            words.join(", ")
        );
        for (point, (with, without)) in points.iter().zip(mechanism.effect(machine)?) {
            let _ = match point {
                Point::Of(name, at) => {
                    writeln!(
                        text,
                        "| {name}, {} | {with:.0} /s | {without:.0} /s |",
                        show_size(*at)
                    )
                }
                Point::OneWay(bytes) | Point::SameNode(bytes) => writeln!(
                    text,
                    "| one way, {} B | {with:.2} µs | {without:.2} µs |",
                    show_size(*bytes)
                ),
            };
        }
        text.push('\n');
    }
    Ok(())
}
