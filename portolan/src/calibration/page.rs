//! The page of the book: every number in it is of a run.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use nic_model::Machine;

use super::joint::Joint;
use super::mechanisms::{self, Mechanism};
use super::model::{self, Point};
use super::{Target, accelerated, between, checks, curve_of, named, points, sections, within};
use crate::bench::{Curve, Name, draw_curves, show_size};
use crate::cmd::failed;
use crate::error::CmdError;

/// Writes `calibration.md` and a plot for each machine into `folder`.
pub(super) fn write(folder: &Path, machines: &[String]) -> Result<(), CmdError> {
    let joint = Joint::last();
    let beside = (!joint.is_applied()?).then_some(&joint);
    let mut text = String::from(INTRODUCTION);
    text.push_str(&sections::numbers(&joint, beside.is_some())?);
    for name in machines {
        let curve = curve_of(name)?;
        let machine = named(name)?;
        section(&mut text, folder, (&machine, beside), &curve)?;
    }
    let beside = beside.map(|joint| |name: &str| joint.machine(name));
    let beside = beside.as_ref().map(|b| b as &checks::Machines<'_>);
    let _ = writeln!(text, "{CHECKS}\n{}", checks::table(&named, beside)?);
    sections::origins(&mut text)?;
    let machine = named(machines.first().map_or("xt4", String::as_str))?;
    turned_off(&mut text, &machine)?;
    let file = folder.join("calibration.md");
    fs::write(&file, text).map_err(failed(&format!("write {}", file.display())))?;
    accelerated_page(folder, &machine)
}

/// Replaces the table of the page on accelerated mode, where `folder` has that page.
fn accelerated_page(folder: &Path, machine: &Machine) -> Result<(), CmdError> {
    const BEGIN: &str = "<!-- Written by cargo xtask calibration. -->\n";
    const END: &str = "<!-- /Written -->";
    let file = folder.join("mechanisms").join("accelerated.md");
    if !file.exists() {
        return Ok(());
    }
    let shown = file.display().to_string();
    let page = fs::read_to_string(&file).map_err(failed(&format!("read {shown}")))?;
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) =
        parts.ok_or_else(|| CmdError::Failed(format!("{shown} has no place for the table")))?;
    let table = accelerated::table(machine)?;
    let page = format!("{before}{BEGIN}{table}{END}{after}");
    fs::write(&file, page).map_err(failed(&format!("write {shown}")))
}

const INTRODUCTION: &str = "<!-- Written by cargo xtask calibration. -->

# Calibration

The SeaStar model beside published measurements of the machines it stands for. Every model value is of a run
in virtual time, so it is the same everywhere. The published values, with what is certain about them and what
is not, are in `portolan/src/bench/published.json`; the parameters, with their sources, in
`nic-model/machines/`.

Published one-way times are MPI's. `portolan bench pingpong --fabric seastar` therefore lets an MPI library compute before each
put (`mpi_send`) and after each event (`mpi_receive`): two constants for a machine, the same at every size. No
parameter depends on the size of a message. `cargo xtask calibration --fit` repeats the search for the fitted
parameters, `cargo xtask calibration` writes this page.

The machine files have numbers of earlier searches, one for each machine, in which one SeaStar 2.1 has interrupts of
1.41 and 1.46 us on the xt4 and of 2.00 and 0.51 us on the redstorm. The joint fit has one number for both. What the tables
count as fitted on is what a search saw: the same points in both. It is not all that was chosen with these curves in view:

* Before the search, eight assumed costs of the xt4 were lowered by hand, because the fit of the 0-byte time
  otherwise left nothing for MPI: `tx_message` and `rx_message` (400 to 300 ns), `match_fixed` (200 to 100),
  `header_build` (150 to 100), `event_post` (100 to 50), `command_write` and `ht_write_latency` (125 to 100),
  `ht_read_latency` (275 to 250). No source has them; redstorm inherits them.
* The points of the fit were changed once: with 2304 bytes among them, 3072 bytes was out of bound, and took
  its place. Within a node `memcpy_rate` was set by hand after the search, when 1 MiB was out of bound.
* Interrupts and MPI cannot be told apart by these curves: 0.22 us of MPI is less than one would expect, and
  the interrupts carry the rest. The put of the xt3, which has no MPI in it, tells them apart in the joint fit.
* What an interrupt costs and what the kernel does for each message it finds cannot be told apart either; the
  message rate does that for the xt4, and all other machines have its `event_handle`.
* Within a node no search saw a point of the redstorm. Its `local_handoff` and `local_map` are the xt4's at 2.6/2.4 of the
  clock: its processors had 2.4 GHz since 2006, most XT4's dual cores 2.6 (both recalled; which the xt4 of these
  figures had is not said). Without that its short messages within a node are up to 10.1 % too fast.

";

/// What the table of single figures is.
const CHECKS: &str = "## Single figures

No parameter is fitted on these, but where the standing says so; the joint fit sees the first. A value holds within a tenth; the error of a range is \
that of its nearest end. Of two ranks a node that send to other nodes no figure was found; between two ranks of a node \
the tables above have 42 points of the xt4, of which the search saw 5.
";

/// What the published rate counts, and what of it is fitted.
const RATE_NOTE: &str = "The rate stands in a comment of the machine file, with neither size nor direction. The \
publisher's own benchmark of this name (`msgrate_bench.c` in the same folder of that project) has one rank send \
another 200 messages of 0 bytes with MPI_Send and counts, at the receiver, from the first message received to the \
last. `message-rate` counts the same, but its first message comes alone. Behind a first message of a flood, \
interrupts may keep the program until the other 199 are in its queue: at 24 to 512 bytes the program would then time \
the reading of a queue, 3.6 million messages in a second. With two ranks the publisher's three tests come to that; \
with more, which of them was meant, and how many ranks a node had, is not said. The publisher's simulator gave \
154,548 to 226,162 with the same times of single messages: they do not determine the rate. Here neither: a single \
message costs `interrupt_entry` and `event_handle` together, and a stream of them the latter. The rate divides the sum.

`host.event_handle` of the machine file was fitted with an earlier instrument, whose first message did not come alone and \
which gave 1 % more. The joint fit uses this one. The table divides the same sum in \
other ways, 0 B:

| `host.event_handle`, ns | `host.interrupt_entry`, ns | per second | error |
|--:|--:|--:|--:|";

/// Values of `event_handle` beside which the rate is shown, ps.
const DIVISIONS: [u64; 5] = [300_000, 500_000, 700_000, 900_000, 1_100_000];

/// The machine with another `event_handle` and as much less, or more, of `interrupt_entry`.
fn divide(machine: &Machine, handle: u64) -> Result<Machine, CmdError> {
    let sum = (machine.host.event_handle + machine.host.interrupt_entry).as_ps();
    let machine = machine.with("host.event_handle", handle);
    let entry = sum.saturating_sub(handle);
    machine
        .and_then(|machine| machine.with("host.interrupt_entry", entry))
        .map_err(|error| CmdError::Failed(error.to_string()))
}

/// The message rate, 0 B, where the sum of the fitted parameters is divided otherwise.
fn divided(text: &mut String, machine: &Machine, rate: f64) -> Result<(), CmdError> {
    for at in DIVISIONS {
        let machine = divide(machine, at)?;
        let found = model::run(&machine, &[Point::Of(Name::MessageRate, 0)])?;
        let (handle, entry) = (machine.host.event_handle, machine.host.interrupt_entry);
        for value in found {
            let _ = writeln!(
                text,
                "| {} | {} | {value:.0} | {:+.1} % |",
                handle.as_ns(),
                entry.as_ns(),
                100.0 * (value / rate - 1.0)
            );
        }
    }
    text.push('\n');
    Ok(())
}

fn section(
    text: &mut String,
    folder: &Path,
    (machine, joint): (&Machine, Option<&Joint>),
    curve: &Curve,
) -> Result<(), CmdError> {
    let joint = joint
        .map(|joint| joint.machine(&machine.name))
        .transpose()?;
    let run = |targets: &[Target]| {
        let points = points(targets);
        let beside = joint.as_ref().map(|joint| model::run(joint, &points));
        Ok::<_, CmdError>((model::run(machine, &points)?, beside.transpose()?))
    };
    let far = between(curve);
    let near = within(curve);
    let (far_values, far_joint) = run(&far)?;
    let (near_values, near_joint) = run(&near)?;
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
        "Published {kind}: {}. Standing: {}.\n\n<!-- picture: cargo xtask calibration, which takes minutes -->\n![{} model and measurement]({plot})\n",
        curve.source, curve.status, machine.name
    );
    fitted_on(text, &far, &near, curve.messages_per_s.is_some());
    let _ = writeln!(text, "### Between neighbours, half a round trip\n");
    table(text, &far, &far_values, far_joint.as_deref());
    let _ = writeln!(text, "### Between two processes of a node\n");
    table(text, &near, &near_values, near_joint.as_deref());
    if let Some(rate) = curve.messages_per_s {
        let counted = [0, 8, 64, 512].map(|bytes| Point::Of(Name::MessageRate, bytes));
        let rates = model::run(machine, &counted)?;
        let _ = writeln!(
            text,
            "### Message rate\n\n| | per second | error | |\n|---|--:|--:|---|\n| measured (MPI) | {rate:.0} | | |"
        );
        for (point, value) in counted.iter().zip(rates) {
            let Point::Of(name, bytes) = point else {
                continue;
            };
            let _ = match bytes {
                0 => writeln!(
                    text,
                    "| model, `{name}`, 0 B | {value:.0} | {:+.1} % | fitted on, with an earlier instrument |",
                    100.0 * (value / rate - 1.0)
                ),
                _ => writeln!(text, "| model, `{name}`, {bytes} B | {value:.0} | | |"),
            };
        }
        if let Some(joint) = &joint {
            for value in model::run(joint, &counted[..1])? {
                let error = 100.0 * (value / rate - 1.0);
                let _ = writeln!(
                    text,
                    "| joint fit, not applied, 0 B | {value:.0} | {error:+.1} % | fitted on |"
                );
            }
        }
        let _ = writeln!(text, "\n{RATE_NOTE}");
        divided(text, machine, rate)?;
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

/// On how many points the fits of this machine were made.
fn fitted_on(text: &mut String, far: &[Target], near: &[Target], with_rate: bool) {
    let seen = |of: &[Target]| of.iter().filter(|t| t.fitted_on).count();
    let inside = match seen(near) {
        0 => "none within a node".to_owned(),
        count => format!("{count} of {} points within a node", near.len()),
    };
    let _ = writeln!(
        text,
        "Fitted on {} of {} points between nodes, {inside}{}.\n",
        seen(far),
        far.len(),
        if with_rate {
            ", and the message rate"
        } else {
            ""
        }
    );
}

/// The table of a curve, with the values of the joint fit beside those of the machine files where they differ.
fn table(text: &mut String, targets: &[Target], values: &[f64], joint: Option<&[f64]>) {
    let (heads, lines) = match joint {
        Some(_) => (" joint fit, µs | error |", "--:|--:|"),
        None => ("", ""),
    };
    let _ = writeln!(
        text,
        "| bytes | published, µs | model, µs | error |{heads} |\n|--:|--:|--:|--:|{lines}---|"
    );
    for (at, (target, value)) in targets.iter().zip(values).enumerate() {
        let (Point::OneWay(bytes) | Point::SameNode(bytes) | Point::Of(_, bytes)) = target.point;
        let beside = joint.and_then(|joint| joint.get(at));
        let beside = beside.map_or_else(String::new, |value| {
            format!(" {value:.2} | {:+.1} % |", 100.0 * target.error(*value))
        });
        let _ = writeln!(
            text,
            "| {} | {:.2} | {value:.2} | {:+.1} % |{beside} {} |",
            show_size(bytes),
            target.value,
            100.0 * target.error(*value),
            if target.fitted_on { "fitted on" } else { "" }
        );
    }
    let _ = writeln!(text, "\n{}", largest("Largest error", targets, values));
    if let Some(joint) = joint {
        let _ = writeln!(text, "{}", largest("With the joint fit", targets, joint));
    }
    text.push('\n');
}

/// The largest and the middle errors, on points that a fit did not see and on those that it saw.
fn largest(words: &str, targets: &[Target], values: &[f64]) -> String {
    let of = |seen: bool| {
        let own = targets
            .iter()
            .zip(values)
            .filter(|(t, _)| t.fitted_on == seen);
        let errors: Vec<(f64, Point)> = own.map(|(t, v)| (100.0 * t.error(*v), t.point)).collect();
        let worst = errors
            .iter()
            .max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
        let (Point::OneWay(bytes) | Point::SameNode(bytes) | Point::Of(_, bytes)) = worst.1;
        let squares: f64 = errors.iter().map(|(e, _)| e * e).sum();
        let mean = (squares / errors.len() as f64).sqrt();
        let at = show_size(bytes);
        Some(format!(
            "{:+.1} % at {at} B, root mean square {mean:.1} %",
            worst.0
        ))
    };
    let mut text = words.to_owned();
    if let Some(other) = of(false) {
        let _ = write!(text, " on points that the fit did not see: {other}");
    }
    if let Some(seen) = of(true) {
        let _ = write!(text, "; on points that it saw: {seen}");
    }
    let out = targets.iter().zip(values);
    let out = out.filter(|(t, v)| t.error(**v).abs() > t.bound).count();
    let _ = write!(text, "; {out} of {} out of bound", targets.len());
    text + "."
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
