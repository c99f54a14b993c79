//! Results of a grid for other programs: a flat array of JSON objects, and CSV with the same columns.
//!
//! An object has a column for each parameter, by its name, and those of a line of `bench --json`. What the result came from
//! is the columns `portolan` and `command`, so that no column holds an object.

use std::io::{self, Write};

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::bench::{Origin, Record};

/// A result of a point of the grid.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Names of the parameters with their values: times in microseconds, others in the unit of machine files.
    pub(crate) parameters: Vec<(String, f64)>,
    pub(crate) record: Record,
}

/// Columns of CSV behind those of parameters, in order.
const COLUMNS: [&str; 29] = [
    "bench",
    "conduit",
    "pinning",
    "bytes",
    "depth",
    "in_flight",
    "threads",
    "working_set",
    "unit",
    "min",
    "q1",
    "median",
    "q3",
    "p99",
    "max",
    "iters",
    "hits",
    "bound",
    "bound_by",
    "fabric",
    "mode",
    "machine",
    "set",
    "map",
    "ranks",
    "clock",
    "software_us",
    "portolan",
    "command",
];

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Record { origin, .. } = &self.record;
        let record = Record {
            origin: None,
            ..self.record.clone()
        };
        let record = serde_json::to_value(record).map_err(serde::ser::Error::custom)?;
        let mut map = to.serialize_map(None)?;
        for (name, value) in &self.parameters {
            match value.fract() == 0.0 {
                true => map.serialize_entry(name, &(*value as u64))?,
                false => map.serialize_entry(name, value)?,
            }
        }
        for column in COLUMNS {
            if let Some(value) = record.get(column) {
                map.serialize_entry(column, value)?;
            }
        }
        if let Some(origin) = origin {
            map.serialize_entry("portolan", &origin.portolan)?;
            map.serialize_entry("command", &origin.command)?;
        }
        map.end()
    }
}

/// Writes an array of JSON, a row a line.
pub(crate) fn write_json(rows: &[Row], mut to: impl Write) -> io::Result<()> {
    to.write_all(b"[")?;
    for (at, row) in rows.iter().enumerate() {
        to.write_all(if at == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut to, row)?;
    }
    to.write_all(b"\n]\n")?;
    to.flush()
}

/// Writes CSV: a line of names, and a line for each row. Columns that no row has are left out.
pub(crate) fn write_csv(rows: &[Row], mut to: impl Write) -> io::Result<()> {
    let values: Vec<Value> = rows
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<_, _>>()?;
    let parameters = rows.first().into_iter().flat_map(|r| &r.parameters);
    let parameters = parameters.map(|(name, _)| name.as_str());
    let used = |column: &&str| values.iter().any(|v| v.get(*column).is_some());
    let columns: Vec<&str> = parameters.chain(COLUMNS.into_iter().filter(used)).collect();
    let named = columns.iter().map(|column| field(column));
    writeln!(to, "{}", named.collect::<Vec<_>>().join(","))?;
    for value in &values {
        let cells = columns.iter().map(|column| match value.get(*column) {
            Some(Value::String(text)) => field(text),
            Some(number) => number.to_string(),
            None => String::new(),
        });
        writeln!(to, "{}", cells.collect::<Vec<_>>().join(","))?;
    }
    to.flush()
}

/// A field of CSV, in quotation marks where it needs them (RFC 4180).
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

/// What [`write_json`] wrote, without the columns of parameters: they stand in `set` too.
pub(crate) fn read(text: &[u8]) -> serde_json::Result<Vec<Record>> {
    #[derive(Deserialize)]
    struct Flat {
        #[serde(flatten)]
        record: Record,
        portolan: Option<String>,
        command: Option<String>,
    }
    let rows: Vec<Flat> = serde_json::from_slice(text)?;
    let record = |row: Flat| {
        let origin = row.portolan.zip(row.command);
        let origin = origin.map(|(portolan, command)| Origin {
            portolan,
            command,
            host: None,
        });
        Record {
            origin,
            ..row.record
        }
    };
    Ok(rows.into_iter().map(record).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row with everything that a record may have.
    fn full() -> Row {
        let text = r#"{"bench":"random-put","fabric":"seastar","mode":"generic","ranks":2,"bytes":8,"iters":9,
            "clock":"virtual","unit":"us","min":1.5,"median":2.5,"p99":9,"max":9,"q1":2,"q3":3,"depth":1,"in_flight":2,
            "threads":3,"machine":"xt4","set":"a.b=1, c.d=2","map":"random:7","software_us":0.22,"conduit":"portals","working_set":4096,
            "pinning":"whole","hits":0.5,"bound":1,"bound_by":"the link",
            "origin":{"portolan":"0.1","command":"portolan sweep \"x\""}}"#;
        Row {
            parameters: vec![("a.b".into(), 1.0), ("c.d".into(), 0.25)],
            record: serde_json::from_str(text).unwrap(),
        }
    }

    #[test]
    fn an_object_is_flat_and_has_all_of_a_record() {
        let row = serde_json::to_value(full()).unwrap();
        let row = row.as_object().unwrap();
        assert!(row.values().all(|v| v.is_number() || v.is_string()));
        assert_eq!((&row["a.b"], &row["c.d"]), (&1.into(), &0.25.into()));
        assert_eq!(row["command"], "portolan sweep \"x\"");
        let record = serde_json::to_value(full().record).unwrap();
        for key in record.as_object().unwrap().keys() {
            assert!(key == "origin" || COLUMNS.contains(&key.as_str()), "{key}");
            assert!(key == "origin" || row[key] == record[key], "{key}");
        }
        assert_eq!(row.len(), COLUMNS.len() + 2);
    }

    #[test]
    fn json_is_an_array_that_is_read_back() {
        let mut text = Vec::new();
        write_json(&[full(), full()], &mut text).unwrap();
        let rows: Vec<serde_json::Map<String, Value>> = serde_json::from_slice(&text).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(read(&text).unwrap(), [full().record, full().record]);
        let mut none = Vec::new();
        write_json(&[], &mut none).unwrap();
        assert_eq!(read(&none).unwrap(), []);
    }

    #[test]
    fn csv_has_a_line_of_names_and_quotes_what_has_commas() {
        let mut plain = full();
        plain.record.set = None;
        plain.record.depth = None;
        let mut text = Vec::new();
        write_csv(&[full(), plain], &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("a.b,c.d,bench,conduit,pinning,bytes,depth,"));
        assert!(lines[1].starts_with("1,0.25,random-put,portals,whole,8,1,2,3,4096,us,1.5,2.0,"));
        assert!(lines[1].contains(
            ",\"a.b=1, c.d=2\",random:7,2,virtual,0.22,0.1,\"portolan sweep \"\"x\"\"\""
        ));
        assert!(lines[2].starts_with("1,0.25,random-put,portals,whole,8,,2,"));
        let mut few = full();
        few.record.hits = None;
        let mut text = Vec::new();
        write_csv(&[few], &mut text).unwrap();
        assert!(!String::from_utf8(text).unwrap().contains("hits"));
    }
}
