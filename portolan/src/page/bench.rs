//! Results as curves.

use std::borrow::Cow;

use nic_model::{Machine, Provenance};
use serde::Serialize;

use super::Fact;
use crate::bench::{Axis, Curve, Frame, Name, Record};

/// A file of results.
#[derive(Debug, Serialize)]
pub(super) struct Bench {
    file: String,
    about: Vec<Fact>,
    notes: Vec<String>,
    charts: Vec<Chart>,
}

/// One measurement.
#[derive(Debug, Serialize)]
struct Chart {
    title: &'static str,
    about: String,
    x: Cow<'static, str>,
    y: &'static str,
    unit: &'static str,
    spread: &'static str,
    series: Vec<Series>,
    residuals: Vec<Residuals>,
}

/// A line of a chart.
#[derive(Debug, Serialize)]
struct Series {
    label: String,
    /// `result`, `points` or `fit`.
    kind: &'static str,
    /// How far it is to be trusted.
    standing: &'static str,
    /// Place, value, first and third quartile.
    points: Vec<(u64, f64, Option<f64>, Option<f64>)>,
}

/// A line of the model less what is published.
#[derive(Debug, Serialize)]
struct Residuals {
    label: String,
    /// Number of the line in the chart.
    of: usize,
    /// Size, per cent, whether the model was fitted on the value.
    points: Vec<(u64, f64, bool)>,
}

/// What the results of one run share.
#[derive(Debug, PartialEq)]
struct Run {
    line: String,
    machine: Option<String>,
    simulated: bool,
}

impl Run {
    fn of(record: &Record) -> Self {
        let machine = record.machine.as_ref();
        let on = machine.map_or_else(String::new, |m| format!(", {m}"));
        Self {
            line: format!("{}{on}, {} ranks", record.line(), record.ranks),
            machine: machine.cloned(),
            simulated: record.clock == "virtual",
        }
    }
}

/// Each value once, in the order of the first.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

impl Bench {
    /// The curves of `records`, beside what is published of the machines that they are of.
    pub(super) fn of(file: &str, records: &[Record]) -> Self {
        let machines = distinct(records.iter().filter_map(|r| r.machine.clone()));
        let mut curves = Curve::all();
        curves.retain(|c| machines.contains(&c.machine));
        let charts = Name::ALL.into_iter();
        let charts = charts.filter_map(|name| Chart::of(name, records, &curves));
        Self {
            file: file.to_owned(),
            about: about(records, &machines),
            notes: notes(records, &machines, &curves),
            charts: charts.collect(),
        }
    }
}

/// Where the results come from.
fn about(records: &[Record], machines: &[String]) -> Vec<Fact> {
    let origins = distinct(records.iter().map(|r| r.origin.clone()));
    let unknown = || "not recorded in the file".to_owned();
    let mut facts = Vec::new();
    for origin in origins {
        match origin {
            Some(origin) => {
                facts.push(("command", origin.command));
                facts.push(("version", origin.portolan));
                facts.extend(origin.host.map(|host| ("measured on", host)));
            }
            None => facts.extend([("command", unknown()), ("version", unknown())]),
        }
    }
    facts.extend(machines.iter().map(|name| {
        let about = Machine::named(name).map_or_else(|_| name.clone(), |m| m.description);
        ("machine", format!("{about} (simulated)"))
    }));
    facts
}

/// What is simulated, fitted and assumed of what is shown.
fn notes(records: &[Record], machines: &[String], curves: &[Curve]) -> Vec<String> {
    let mut notes = Vec::new();
    if records.iter().any(|r| r.clock == "virtual") {
        notes.push(
            "Times of the model are simulated, in virtual time. Nothing of them is measured."
                .to_owned(),
        );
    }
    for name in machines {
        let Ok(machine) = Machine::named(name) else {
            continue;
        };
        let count = |of: Provenance| {
            let all = machine.parameters.iter();
            all.filter(|p| p.provenance() == of).count()
        };
        notes.push(format!(
            "Of the {} parameters of {name}, {} are measured on the machine, {} are of published models or derived, {} are recalled, {} are \
             fitted here and {} are assumed here.",
            machine.parameters.len(),
            count(Provenance::Measured),
            count(Provenance::Derived),
            count(Provenance::Recalled),
            count(Provenance::Fitted),
            count(Provenance::Invented),
        ));
    }
    let software = records.iter().filter_map(|r| r.software_us);
    if let Some(us) = software.reduce(f64::max) {
        notes.push(format!(
            "Results of pingpong and of others that are compared with MPI contain {us:.2} µs of a library above Portals, which is fitted."
        ));
    }
    for curve in curves {
        notes.push(format!(
            "{}: {}. Standing: {}.",
            curve.label, curve.source, curve.status
        ));
    }
    notes
}

impl Chart {
    fn of(name: Name, records: &[Record], curves: &[Curve]) -> Option<Self> {
        let own: Vec<&Record> = records.iter().filter(|r| r.bench == name.word()).collect();
        let runs = distinct(own.iter().map(|r| Run::of(r)));
        if runs.is_empty() {
            return None;
        }
        let mut series: Vec<Series> = runs.iter().map(|run| results(run, &own)).collect();
        let mut residuals = Vec::new();
        if name == Name::Pingpong {
            for (of, run) in runs.iter().enumerate() {
                residuals.extend(compared(of, run, &series[of], curves));
            }
        }
        let places: Vec<u64> = series.iter().flat_map(|s| &s.points).map(|p| p.0).collect();
        let (least, most) = (places.iter().min()?, places.iter().max()?);
        for curve in curves.iter().filter(|_| name.axis() == Axis::Bytes) {
            // Beyond the sizes that were run it says nothing of them.
            let points = curve.series(name).into_iter();
            let points = points.filter(|(at, _)| (least..=most).contains(&at));
            let points: Vec<_> = points.map(|(at, v)| (at, v, None, None)).collect();
            if points.is_empty() {
                continue;
            }
            series.push(Series {
                label: curve.label_for(name),
                kind: if curve.is_formula() { "fit" } else { "points" },
                standing: match (name, curve.is_formula()) {
                    (Name::Pingpong, true) => "published fit",
                    (Name::Pingpong, false) => "published",
                    _ => "derived from published",
                },
                points,
            });
        }
        let frame = Frame::of(name);
        let quartiles = own.iter().filter_map(|r| r.q1.zip(r.q3));
        let spread = match quartiles.clone().count() {
            0 => "The file has no quartiles.",
            _ if quartiles.clone().any(|(q1, q3)| q1 < q3) => {
                "Marks: medians; bars: first to third quartile."
            }
            _ => "Marks: medians; first and third quartile are the same.",
        };
        Some(Self {
            title: name.word(),
            about: frame.about,
            x: frame.x,
            y: frame.y,
            unit: frame.unit,
            spread,
            series,
            residuals,
        })
    }
}

/// The results of a run, by place.
fn results(run: &Run, records: &[&Record]) -> Series {
    let own = records.iter().filter(|r| Run::of(r) == *run);
    let mut points: Vec<_> = own.map(|r| (r.point(), r.median, r.q1, r.q3)).collect();
    points.sort_by_key(|p| p.0);
    Series {
        label: run.line.clone(),
        kind: "result",
        standing: if run.simulated {
            "simulated"
        } else {
            "measured"
        },
        points,
    }
}

/// What a run of the model has at the sizes that are published of its machine.
fn compared(of: usize, run: &Run, series: &Series, curves: &[Curve]) -> Option<Residuals> {
    let machine = run.machine.as_ref().filter(|_| run.simulated)?;
    let curve = curves.iter().find(|c| c.machine == *machine)?;
    let at = |&(bytes, value, ..): &(u64, f64, Option<f64>, Option<f64>)| {
        let published = curve.one_way(bytes)?;
        let percent = 100.0 * (value / published - 1.0);
        Some((bytes, percent, Curve::is_fitted_on(bytes)))
    };
    let points: Vec<_> = series.points.iter().filter_map(at).collect();
    (!points.is_empty()).then(|| Residuals {
        label: series.label.clone(),
        of,
        points,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(bench: &str, bytes: u64, median: f64) -> Record {
        let text = format!(
            "{{\"bench\":\"{bench}\",\"fabric\":\"seastar\",\"mode\":\"generic\",\"ranks\":2,\"bytes\":{bytes},\"iters\":9,\
             \"clock\":\"virtual\",\"unit\":\"us\",\"min\":1,\"median\":{median},\"p99\":9,\"max\":9,\"q1\":{},\"q3\":{},\
             \"machine\":\"xt4\",\"software_us\":0.22}}",
            median - 0.5,
            median + 0.5
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn residuals_stand_beside_published_sizes_only() {
        let records =
            [(0, 6.0), (8, 6.17), (16, 6.3), (32, 9.69)].map(|(b, m)| record("pingpong", b, m));
        let bench = Bench::of("f", &records);
        let [chart] = bench.charts.as_slice() else {
            panic!("{bench:?}")
        };
        let [residuals] = chart.residuals.as_slice() else {
            panic!("{chart:?}")
        };
        let sizes: Vec<u64> = residuals.points.iter().map(|p| p.0).collect();
        assert_eq!(sizes, [0, 8, 32], "16 is not published");
        assert!((residuals.points[0].1 - 100.0 * (6.0 / 5.91 - 1.0)).abs() < 1e-9);
        assert!(residuals.points[1].1.abs() < 1e-9);
        assert!(residuals.points[0].2, "the fit has seen 0");
        let standing: Vec<_> = chart.series.iter().map(|s| (s.kind, s.standing)).collect();
        assert_eq!(standing, [("result", "simulated"), ("points", "published")]);
        assert_eq!(chart.series[0].points[1], (8, 6.17, Some(5.67), Some(6.67)));
    }

    #[test]
    fn where_results_come_from_is_said_or_that_it_is_not_known() {
        let mut with = record("barrier", 0, 3.0);
        let facts = |r: &Record| Bench::of("f", std::slice::from_ref(r)).about;
        assert!(facts(&with).contains(&("command", "not recorded in the file".to_owned())));
        with.origin = Some(crate::bench::Origin {
            portolan: "9.9".to_owned(),
            command: "portolan bench barrier".to_owned(),
            host: None,
        });
        let said = facts(&with);
        assert!(said.contains(&("version", "9.9".to_owned())), "{said:?}");
        assert!(
            said.iter()
                .any(|(_, text)| text.contains("Cray XT4") && text.contains("(simulated)"))
        );
        let notes = Bench::of("f", &[with]).notes.join(" ");
        assert!(
            notes.contains("are assumed here") && notes.contains("which is fitted"),
            "{notes}"
        );
    }

    #[test]
    fn what_is_derived_and_what_is_measured_say_so() {
        let derived = Bench::of(
            "f",
            &[
                record("put-latency", 8, 20.0),
                record("put-latency", 64, 30.0),
            ],
        );
        let chart = &derived.charts[0];
        assert_eq!(chart.series[1].standing, "derived from published");
        assert!(chart.residuals.is_empty(), "nothing of it is published");
        let mut wall = record("pingpong", 8, 1.0);
        (wall.clock, wall.machine) = ("wall".into(), None);
        let measured = Bench::of("f", &[wall]);
        assert_eq!(measured.charts[0].series.len(), 1);
        assert_eq!(measured.charts[0].series[0].standing, "measured");
    }
}
