//! Sections of the page that are of no machine alone: the joint fit, and parameters by where they come from.

use std::fmt::Write as _;

use nic_model::{ParameterInfo, Provenance};

use super::joint::{self, Joint, NUMBERS};
use super::model::{self, Point};
use super::named;
use crate::bench::Name;
use crate::error::CmdError;

/// What the joint fit is.
const JOINT: &str = "One search over the xt4, the redstorm and the xt3. What belongs to the chip or to the kernel's \
interrupts is one number for the machines that share it; what an MPI library takes is a number of each machine. \
`local_handoff` and `local_map` go by the clock, as recalled: 2.6 GHz for the xt4, 2.4 GHz for the redstorm. Of the xt3 \
the search sees the put of 1 byte below, 5.39 µs (recalled), which has no MPI in it.

A residual is the error of a point in units of its bound: 5 % up to 16 KiB between nodes, else 10 %. The objective is \
the sum of their squares, and the method is that of Levenberg and Marquardt. The search refuses numbers with which a \
machine breaks a bound of its own, or with which entry and exit of an interrupt are less than 2 µs together (recalled).

The interval of a number says how far it may move until the objective of the model has doubled. The others move along \
as best makes up for it on the model made linear at its optimum (the profile), each within its limits. The objective at \
both ends stands beside it, in units of that of the fit. It is far below 2 where the next step of the search for the \
end was above 2. The last columns have what the machine files say.";

/// Why the machine files do not have the numbers.
const NOT_APPLIED: &str = "The machine files do not have these numbers. The two curves of a SeaStar 2.1 differ by 15.6 % at \
1 MiB, and one transmit rate gives neither: long messages of the xt4 become too fast and those of the redstorm too slow. \
With dearer entries and cheaper exits of interrupts the xt4 also leaves its bound at some sizes between 4 and 14 KiB. Better are the \
put of the xt3, the message rate, and short messages within a node. The tables have both.";

/// What the list of parameters by origin is.
const ORIGINS: &str = "## Parameters by origin

Measured is on the machine, derived of a published model or of another parameter, recalled from a publication and not \
verified, fitted on the points above. Invented is the rest: no source has the figure. The xt4 has all parameters, the \
others those that they do not take from it. `portolan bench --sensitivity` names the invented ones that move a result.

`protocol.beyond_slots` is invented, and a conclusion hangs on it: whether a program that floods few nodes gains by \
keeping fewer than 256 messages in flight. At the 4 µs of the machine file it does; at nothing it loses a little. The \
model therefore says nothing of congested senders beyond the slots. The rate of `puts-in-flight`:";

/// What the joint fit has found.
pub(super) fn numbers(joint: &Joint, beside: bool) -> Result<String, CmdError> {
    let present = joint::MACHINES.map(|name| (name, named(name)));
    let mut text = format!(
        "## The joint fit{}\n\n{JOINT}\n\n",
        if beside { ", not applied" } else { "" }
    );
    if beside {
        let _ = writeln!(text, "{NOT_APPLIED}\n");
    }
    let _ = writeln!(
        text,
        "Objective {:.1} on {} points.\n\n\
         | number | whose | value | interval | objective at its ends | {} |\n|---|---|--:|--:|--:|{}",
        joint.objective,
        joint.points,
        joint::MACHINES.join(" | "),
        "--:|".repeat(joint::MACHINES.len())
    );
    let rows = NUMBERS
        .iter()
        .zip(&joint.values)
        .zip(joint.intervals.iter().zip(&joint.ends));
    for ((number, value), ((least, most), (low, high))) in rows {
        let _ = write!(
            text,
            "| {} | {} | {} | {} to {} | {low:.1}, {high:.1} |",
            number.words(),
            number.owner(),
            number.shown(*value),
            number.shown(*least),
            number.shown(*most)
        );
        for (_, machine) in &present {
            let machine = machine
                .as_ref()
                .map_err(|e| CmdError::Failed(e.to_string()))?;
            let _ = write!(text, " {} |", number.shown(number.of(machine)));
        }
        text.push('\n');
    }
    text.push('\n');
    Ok(text)
}

/// The rate of many puts in flight with other values of what a message without a slot costs.
fn beyond_slots(text: &mut String) -> Result<(), CmdError> {
    let depths = [64, 256, 512];
    text.push_str("| `protocol.beyond_slots` | 64 in flight | 256 | 512 |\n|--:|--:|--:|--:|\n");
    for micros in [0, 2, 4, 8] {
        let machine = named("xt4")?.with("protocol.beyond_slots", micros * 1_000_000);
        let machine = machine.map_err(|error| CmdError::Failed(error.to_string()))?;
        let rates = model::run(
            &machine,
            &depths.map(|at| Point::Of(Name::PutsInFlight, at)),
        )?;
        let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.0} /s")).collect();
        let _ = writeln!(text, "| {micros} µs | {} |", rates.join(" | "));
    }
    text.push('\n');
    Ok(())
}

/// The parameters by where they come from.
pub(super) fn origins(text: &mut String) -> Result<(), CmdError> {
    let _ = writeln!(text, "{ORIGINS}\n");
    beyond_slots(text)?;
    let _ = writeln!(
        text,
        "| machine | origin | number | parameters |\n|---|---|--:|---|"
    );
    for name in joint::MACHINES {
        let machine = named(name)?;
        let own = |p: &&ParameterInfo| p.line > 0;
        for origin in Provenance::ALL {
            let all: Vec<String> = machine
                .parameters
                .iter()
                .filter(own)
                .filter(|p| p.provenance() == origin)
                .map(|p| format!("`{}.{}`", p.section, p.key))
                .collect();
            if !all.is_empty() {
                let _ = writeln!(
                    text,
                    "| {name} | {origin} | {} | {} |",
                    all.len(),
                    all.join(", ")
                );
            }
        }
    }
    text.push('\n');
    Ok(())
}
