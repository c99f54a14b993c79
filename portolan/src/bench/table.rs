//! Results as tables for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::name::{Axis, Name};
use super::published::Curve;
use super::record::Record;
use super::sensitivity;
use super::sizes;
use super::which::Which;

/// The results of one measurement, a table for each conduit or way to pin, with published values beside them where there are any.
pub(crate) fn table(name: Name, records: &[Record], curves: &[Curve]) -> String {
    let kind = |r: &Record| (r.conduit.clone(), r.pinning.clone());
    let mut kinds = Vec::new();
    let own = || records.iter().filter(|r| r.bench == name.word());
    for record in own() {
        if !kinds.contains(&kind(record)) {
            kinds.push(kind(record));
        }
    }
    let tables = kinds.into_iter().map(|k| {
        let rows: Vec<_> = own().filter(|r| kind(r) == k).collect();
        one(name, &rows, curves)
    });
    tables.collect()
}

/// The results of one measurement over a grid of parameters, whose values stand first; `headings` has their names and units.
pub(crate) fn swept(
    name: Name,
    headings: &[(String, &str)],
    rows: &[(Vec<String>, &Record)],
) -> String {
    let own: Vec<&(Vec<String>, &Record)> = rows
        .iter()
        .filter(|(_, record)| record.bench == name.word())
        .collect();
    let records: Vec<&Record> = own.iter().map(|(_, record)| *record).collect();
    let columns = Columns::of(name, &records);
    let of_conduit = |r: &Record| r.conduit.clone().or_else(|| r.pinning.clone());
    let kinds = records
        .iter()
        .any(|r| of_conduit(r) != of_conduit(records[0]));
    let mut header: Vec<String> = headings
        .iter()
        .map(|(name, unit)| format!("{name}\n{unit}").trim_end().to_owned())
        .collect();
    header.extend(kinds.then(|| "of".to_owned()));
    header.extend(columns.header());
    let mut table = empty(header);
    for (values, record) in &own {
        let mut row = values.clone();
        row.extend(kinds.then(|| of_conduit(record).unwrap_or_default()));
        row.extend(columns.row(record));
        table.add_row(row);
    }
    let bare = records.first().map(|first| Record {
        set: None,
        pinning: first.pinning.clone().filter(|_| !kinds),
        conduit: first.conduit.clone().filter(|_| !kinds),
        ..(*first).clone()
    });
    finished(name, bare.as_ref(), table)
}

/// The columns that a measurement has of its own.
struct Columns {
    name: Name,
    hits: bool,
    bounds: bool,
}

impl Columns {
    fn of(name: Name, rows: &[&Record]) -> Self {
        Self {
            name,
            hits: rows.iter().any(|r| r.hits.is_some()),
            // Of other measurements it stands in the lines of JSON.
            bounds: name == Name::MessageRate && rows.iter().any(|r| r.bound.is_some()),
        }
    }

    fn header(&self) -> Vec<String> {
        let axis = match self.name.axis() {
            Axis::Bytes | Axis::Nothing => "bytes",
            Axis::Entries => "entries",
            Axis::Operations => "in flight",
            Axis::Threads => "threads",
            Axis::WorkingSet => "working set",
        };
        let mut header = vec![axis, "min", "median", "p99", "max", "iters"];
        header.extend(self.hits.then_some("hits"));
        header.extend(self.bounds.then_some(["bound", "by"]).into_iter().flatten());
        header.into_iter().map(String::from).collect()
    }

    fn row(&self, record: &Record) -> Vec<String> {
        let mut row = vec![sizes::show(record.point())];
        row.extend([record.min, record.median, record.p99, record.max].map(number));
        row.push(record.iters.to_string());
        if self.hits {
            let percent = record.hits.map(|h| format!("{:.1} %", 100.0 * h));
            row.push(percent.unwrap_or_default());
        }
        if self.bounds {
            row.push(record.bound.map_or_else(String::new, number));
            row.push(record.bound_by.clone().unwrap_or_default());
        }
        row
    }
}

fn empty(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header(header);
    table
}

/// The table below a line that says what `first` and the others share.
fn finished(name: Name, first: Option<&Record>, mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let head = first.map_or_else(String::new, head);
    format!("{name}{head}\n{table}\n")
}

/// The results of one conduit, if it is of one.
fn one(name: Name, rows: &[&Record], curves: &[Curve]) -> String {
    let beside: Vec<&Curve> = curves
        .iter()
        .filter(|c| rows.iter().any(|r| c.value(name, r.bytes).is_some()))
        .collect();
    // Over several lines, so that the table stays as narrow as its numbers allow.
    let narrow = |label: String| {
        label
            .replace("; ", "\n")
            .replace(", ", ",\n")
            .replace(" (", "\n(")
    };
    let columns = Columns::of(name, rows);
    let mut header = columns.header();
    header.extend(beside.iter().map(|c| narrow(c.label_for(name))));
    let mut table = empty(header);
    for record in rows {
        let mut row = columns.row(record);
        row.extend(
            beside
                .iter()
                .map(|c| c.value(name, record.bytes).map_or(String::new(), number)),
        );
        table.add_row(row);
    }
    finished(name, rows.first().copied(), table) + &sensitivity::lines(rows)
}

/// What the results of a table share.
fn head(r: &Record) -> String {
    let set = r.set.as_ref().map(|set| format!(" with {set}"));
    let set = set.unwrap_or_default();
    let map = r.map.as_ref().map(|map| format!(", map {map}"));
    let map = map.unwrap_or_default();
    let machine = r.machine.as_ref().map(|m| format!(", {m}{set}{map}"));
    let software = r
        .software_us
        .map(|us| format!(", {us:.2} us of software above Portals"));
    let conduit = r.conduit.as_ref().filter(|c| *c != Which::Portals.word());
    let conduit = conduit.map(|which| format!(" of the {which} conduit"));
    let pinning = r.pinning.as_ref().map(|p| format!(", memory pinned: {p},"));
    format!(
        "{}{} on {} ({}{}), {} ranks, {} time, {}{}",
        conduit.unwrap_or_default(),
        pinning.unwrap_or_default(),
        r.fabric,
        r.mode,
        machine.unwrap_or_default(),
        r.ranks,
        r.clock,
        r.unit,
        software.unwrap_or_default()
    )
}

/// Four significant digits or so, never an exponent.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_stand_beside_the_same_size() {
        let record = |bytes| Record {
            bench: "pingpong".into(),
            fabric: "seastar".into(),
            mode: "generic".into(),
            ranks: 2,
            bytes,
            iters: 10,
            clock: "virtual".into(),
            unit: "us".into(),
            min: 5.0,
            median: 5.25,
            p99: 5.5,
            max: 1234.5,
            q1: None,
            q3: None,
            depth: None,
            in_flight: None,
            threads: None,
            machine: None,
            set: None,
            map: None,
            software_us: None,
            conduit: None,
            working_set: None,
            pinning: None,
            hits: None,
            bound: None,
            bound_by: None,
            moved_by: None,
            origin: None,
        };
        let text = table(Name::Pingpong, &[record(8), record(16)], &Curve::all());
        let row = |start: &str| {
            text.lines()
                .find(|l| l.trim_start_matches(['│', ' ']).starts_with(start))
                .unwrap()
        };
        assert!(
            row("8 ").contains("6.170") && row("8 ").contains("5.740"),
            "{text}"
        );
        assert!(
            !row("16 ").contains("6.170") && row("16 ").contains("1234"),
            "{text}"
        );
        assert!(
            text.starts_with("pingpong on seastar (generic), 2 ranks, virtual time, us\n"),
            "{text}"
        );
        let bare = table(Name::Pingpong, &[record(8)], &[]);
        assert!(!bare.contains("6.170"));
        assert!(!bare.contains("bound"));
        let rate = Record {
            bench: "message-rate".into(),
            bound: Some(405_679.5),
            bound_by: Some("the receiver's processor".into()),
            ..record(64)
        };
        let bounded = table(Name::MessageRate, &[rate], &[]);
        for word in [" bound ", " 405680 ", "the receiver's processor"] {
            assert!(bounded.contains(word), "{bounded}");
        }
    }
}
