//! Which kind of file one is, and what is in it.

use std::fs;
use std::io;
use std::path::Path;

use clap::ValueEnum as _;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::links::{self, Links, LinksError};
use super::trace::{Timeline, TimelineError};
use super::{Source, What};
use crate::bench::{Name, Record};
use crate::sweep;

/// Why a file cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ReadError {
    /// The system did not give it.
    #[error("cannot read {file}")]
    Read {
        file: String,
        #[source]
        source: io::Error,
    },
    /// It has nothing in it.
    #[error(
        "{file} is empty; write results with `portolan bench --json FILE`, a timeline with `portolan trace`"
    )]
    Empty { file: String },
    /// It is something else.
    #[error(
        "{file} is neither a timeline of `portolan trace` nor results of `portolan bench --json`: line {line} is no result ({reason})"
    )]
    Neither {
        file: String,
        line: usize,
        reason: String,
    },
    /// The program that wrote it was ended.
    #[error(
        "{file} is a timeline that is not whole ({reason}); the run that wrote it was ended before its end"
    )]
    Cut { file: String, reason: String },
    /// It is a trace, of another program or of another version.
    #[error("{file} is a trace that cannot be shown: {reason}")]
    Timeline {
        file: String,
        #[source]
        reason: TimelineError,
    },
    /// It begins with the loads of a link, and goes on with something else.
    #[error("{file} has loads of links that cannot be shown: {reason}")]
    Links {
        file: String,
        #[source]
        reason: LinksError,
    },
}

/// How a timeline begins.
const BEGIN: &[u8] = b"{\"displayTimeUnit\":";

/// What every trace has.
#[derive(Deserialize)]
struct AnyTrace {
    #[serde(rename = "traceEvents")]
    _events: IgnoredAny,
}

/// Reads a timeline, loads of links, or results.
///
/// # Errors
/// [`ReadError`] says what the file is not.
pub(crate) fn read(path: &Path) -> Result<Source, ReadError> {
    let file = path.display().to_string();
    let text = fs::read(path).map_err(|source| ReadError::Read {
        file: file.clone(),
        source,
    })?;
    let name = path.file_name().unwrap_or(path.as_os_str());
    let what = of(&file, &text)?;
    Ok(Source {
        name: name.to_string_lossy().into_owned(),
        what,
    })
}

fn of(file: &str, text: &[u8]) -> Result<What, ReadError> {
    let file = file.to_owned();
    if text.trim_ascii().is_empty() {
        return Err(ReadError::Empty { file });
    }
    // An array of one object has the form of a structure of one field, too.
    let is_array = text.trim_ascii_start().starts_with(b"[");
    match serde_json::from_slice::<AnyTrace>(text) {
        Ok(_) if !is_array => {
            let timeline = Timeline::parse(text);
            let timeline = timeline.map_err(|reason| ReadError::Timeline { file, reason })?;
            Ok(What::Timeline(timeline))
        }
        Err(error) if text.starts_with(BEGIN) => {
            let reason = error.to_string();
            Err(ReadError::Cut { file, reason })
        }
        _ if links::are_links(text) => {
            let links = Links::parse(text);
            let links = links.map_err(|reason| ReadError::Links { file, reason })?;
            Ok(What::Links(links))
        }
        _ => results(file, text).map(What::Results),
    }
}

fn results(file: String, text: &[u8]) -> Result<Vec<Record>, ReadError> {
    let checked = |record: Record| -> Result<Record, String> {
        if Name::from_str(&record.bench, false).is_err() {
            return Err(format!("there is no measurement {:?}", record.bench));
        }
        let numbers = [record.min, record.median, record.max];
        if numbers.iter().any(|n| *n < 0.0) {
            return Err("a figure is less than 0".to_owned());
        }
        Ok(record)
    };
    if text.trim_ascii_start().starts_with(b"[") {
        let rows = sweep::read_rows(text).map_err(|error| (error.line(), error.to_string()));
        let records = rows.and_then(|rows| match rows.as_slice() {
            [] => Err((1, "the array is empty".to_owned())),
            // A row stands on a line, behind that of the bracket.
            _ => (2..)
                .zip(rows)
                .map(|(at, r)| checked(r).map_err(|e| (at, e)))
                .collect(),
        });
        return records.map_err(|(line, reason)| ReadError::Neither { file, line, reason });
    }
    let result = |line: &[u8]| -> Result<Record, String> {
        let record = serde_json::from_slice(line).map_err(|e| e.to_string())?;
        checked(record)
    };
    let lines = text.split(|b| *b == b'\n').enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    let mut records = Vec::new();
    for (at, line) in lines {
        match result(line) {
            Ok(record) => records.push(record),
            Err(reason) => {
                let line = at + 1;
                return Err(ReadError::Neither { file, line, reason });
            }
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let error = of("x", text.as_bytes()).unwrap_err();
        portals_shim::with_causes(&error)
    }

    #[test]
    fn what_a_file_is_not_is_said() {
        for (text, said) in [
            ("", "x is empty; write results with"),
            (" \n\n", "x is empty"),
            (
                "hello",
                "x is neither a timeline of `portolan trace` nor results of `portolan bench --json`: line 1",
            ),
            ("\u{7f}ELF\0\0", "neither a timeline"),
            ("[]", "neither a timeline"),
            ("{\"a\":1}", "missing field `bench`"),
            (
                "{\"displayTimeUnit\":\"ns\",\"otherData\":{},\"traceEvents\":[\n",
                "a timeline that is not whole (EOF",
            ),
            ("{\"traceEvents\":[]}", "not of `portolan trace`"),
            ("{\"traceEvents\":7}", "cannot be shown"),
            (
                "[\n{\"machine\":\"m\",\"link\":\"l\",\"node\":0,\"from_us\":0,\"width_us\":1,\"busy_us\":2}\n]\n",
                "x has loads of links that cannot be shown: object 1 has a bin that is none",
            ),
        ] {
            let words = refused(text);
            assert!(words.contains(said), "{text:?}: {words}");
        }
    }

    #[test]
    fn rows_of_a_sweep_are_results() {
        let row = |bench: &str| {
            format!(
                "{{\"host.trap\":0.5,\"bench\":\"{bench}\",\"fabric\":\"seastar\",\"mode\":\"generic\",\"ranks\":2,\"bytes\":8,\
                 \"iters\":1,\"clock\":\"virtual\",\"unit\":\"us\",\"min\":1,\"median\":1,\"p99\":1,\"max\":1,\
                 \"portolan\":\"0.1\",\"command\":\"portolan sweep\"}}"
            )
        };
        let text = format!("[\n{},\n{}\n]\n", row("pingpong"), row("put-rate"));
        let Ok(What::Results(records)) = of("x", text.as_bytes()) else {
            panic!("{text}")
        };
        assert_eq!(records[1].bench, "put-rate");
        let command = records[0].origin.as_ref().map(|o| o.command.as_str());
        assert_eq!(command, Some("portolan sweep"));
        let one = format!("[\n{}\n]\n", row("pingpong"));
        let one = of("x", one.as_bytes()).unwrap();
        assert!(matches!(one, What::Results(r) if r.len() == 1));
        let words = refused(&format!(
            "[\n{},\n{}\n]\n",
            row("pingpong"),
            row("teleport")
        ));
        assert!(words.contains("line 3 is no result"), "{words}");
        let words = refused("[]");
        assert!(words.contains("the array is empty"), "{words}");
    }

    #[test]
    fn a_line_that_is_no_result_is_counted_from_1() {
        let line = |bench: &str, median: f64| {
            format!(
                "{{\"bench\":\"{bench}\",\"fabric\":\"shm\",\"mode\":\"memory\",\"ranks\":2,\"bytes\":8,\"iters\":1,\
                 \"clock\":\"wall\",\"unit\":\"us\",\"min\":1,\"median\":{median},\"p99\":1,\"max\":1}}\n"
            )
        };
        let good = line("pingpong", 1.0);
        assert!(matches!(of("x", good.as_bytes()), Ok(What::Results(r)) if r.len() == 1));
        let words = refused(&format!("{good}\n{}", line("teleport", 1.0)));
        assert!(
            words.contains("line 3 is no result (there is no measurement \"teleport\")"),
            "{words}"
        );
        let words = refused(&line("pingpong", -1.0));
        assert!(
            words.contains("line 1 is no result (a figure is less than 0)"),
            "{words}"
        );
    }
}
