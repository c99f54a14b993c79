//! Which invented parameters of a machine a result of the model hangs on.
//!
//! An invented parameter may be wrong by a factor of two. Results that it moves by more than a tenth are worth no more
//! than it is.

use std::fmt::Write as _;

use nic_model::{Machine, ParameterInfo, Provenance};
use portals_shim::nal::seastar::Mode;
use serde::{Deserialize, Serialize};

use super::record::Record;
use super::sizes;

/// A result that moves by more than this part of itself is said to hang on the parameter.
const MOVES: f64 = 0.1;

/// What a parameter does to a result, as a part of the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moved {
    /// The parameter, as `host.trap`.
    pub(crate) parameter: String,
    /// With half of its value; none where the machine has no sense with that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) halved: Option<f64>,
    /// With twice its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) doubled: Option<f64>,
}

/// An invented parameter with its other values, in the words of `--set`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trial {
    pub(crate) parameter: String,
    pub(crate) halved: Option<String>,
    pub(crate) doubled: Option<String>,
}

impl Trial {
    /// Whether `word` names the parameter or its section.
    pub(crate) fn is_of(&self, word: &str) -> bool {
        let section = self.parameter.split_once('.').map(|(section, _)| section);
        self.parameter == word || section == Some(word)
    }
}

/// The invented parameters of `machine` that have a part in `mode`, but for those in `chosen`.
pub(crate) fn trials(machine: &Machine, mode: Mode, chosen: &[&str]) -> Vec<Trial> {
    let counts = |p: &&ParameterInfo| {
        p.provenance() == Provenance::Invented
            && p.value > 0
            && p.unit != "bits"
            && (p.section != "accelerated" || mode == Mode::Accelerated)
    };
    let trial = |p: &ParameterInfo| {
        let parameter = format!("{}.{}", p.section, p.key);
        let setting = |value: u64| {
            let unit = if p.unit == "ps" { "ps" } else { "" };
            let sensible = value != p.value && machine.with(&parameter, value).is_ok();
            sensible.then(|| format!("{parameter}={value}{unit}"))
        };
        Trial {
            halved: setting(p.value / 2),
            doubled: setting(p.value.saturating_mul(2)),
            parameter,
        }
    };
    let trials = machine.parameters.iter().filter(counts).map(trial);
    trials
        .filter(|t| !chosen.contains(&t.parameter.as_str()))
        .filter(|t| t.halved.is_some() || t.doubled.is_some())
        .collect()
}

/// The same result in `others`.
fn again<'a>(record: &Record, others: &'a [Record]) -> Option<&'a Record> {
    others.iter().find(|other| {
        other.bench == record.bench
            && other.point() == record.point()
            && other.conduit == record.conduit
            && other.pinning == record.pinning
    })
}

/// Adds to each of `records` what `parameter` does to it, from the results with its other values.
pub(crate) fn note(
    records: &mut [Record],
    parameter: &str,
    halved: Option<&[Record]>,
    doubled: Option<&[Record]>,
) {
    for record in records {
        let change = |others: Option<&[Record]>| {
            let other = again(record, others?)?;
            Some(other.median / record.median - 1.0)
        };
        let (halved, doubled) = (change(halved), change(doubled));
        let moves = |change: Option<f64>| change.is_some_and(|c| c.abs() > MOVES);
        let moved = record.moved_by.get_or_insert_default();
        if moves(halved) || moves(doubled) {
            moved.push(Moved {
                parameter: parameter.to_owned(),
                halved,
                doubled,
            });
        }
    }
}

/// What stands below a table of results that were measured with other values of the invented parameters.
pub(super) fn lines(records: &[&Record]) -> String {
    let looked = records.iter().any(|r| r.moved_by.is_some());
    if !looked {
        return String::new();
    }
    let percent = |change: Option<f64>| {
        change.map_or_else(|| "-".to_owned(), |c| format!("{:+.0} %", 100.0 * c))
    };
    let mut text = String::new();
    for record in records {
        for moved in record.moved_by.iter().flatten() {
            let _ = writeln!(
                text,
                "  {:>6}  {:<28} halved {:>7}  doubled {:>7}",
                sizes::show(record.point()),
                moved.parameter,
                percent(moved.halved),
                percent(moved.doubled)
            );
        }
    }
    match text.is_empty() {
        true => "no invented parameter moves these results by more than 10 %\n".to_owned(),
        false => format!("invented parameters that move a result by more than 10 %:\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_invented_and_has_a_part_is_tried() {
        let machine = Machine::named("xt4").unwrap();
        let names = |mode, chosen: &[&str]| -> Vec<String> {
            let all = trials(&machine, mode, chosen);
            all.into_iter().map(|t| t.parameter).collect()
        };
        let has = |names: &[String], name: &str| names.iter().any(|n| n == name);
        let generic = names(Mode::Generic, &[]);
        assert!(has(&generic, "protocol.beyond_slots") && has(&generic, "host.match_fixed"));
        // Of a publication, recalled, fitted, and of the other mode.
        for other in [
            "network.router_hop",
            "host.trap",
            "host.interrupt_entry",
            "accelerated.nic_match",
        ] {
            assert!(!has(&generic, other), "{other}");
        }
        assert!(has(&names(Mode::Accelerated, &[]), "accelerated.nic_match"));
        assert!(!has(
            &names(Mode::Generic, &["host.match_fixed"]),
            "host.match_fixed"
        ));
    }

    #[test]
    fn values_that_the_machine_refuses_are_not_tried() {
        let machine = Machine::named("xt4").unwrap().with("chip.tx_burst", 64);
        let all = trials(&machine.unwrap(), Mode::Generic, &[]);
        let burst = all.iter().find(|t| t.parameter == "chip.tx_burst").unwrap();
        assert_eq!(burst.halved, None);
        assert_eq!(burst.doubled.as_deref(), Some("chip.tx_burst=128"));
        let map = all.iter().find(|t| t.parameter == "host.api_call").unwrap();
        assert_eq!(map.halved.as_deref(), Some("host.api_call=50000ps"));
    }
}
