//! A timeline of the model, in few words: rows, and what is in them by number.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Fact;

/// Events that a page shows at most: a browser has to hold them.
const MOST: usize = 300_000;
/// Around the call that a page shows first, nanoseconds.
const BEFORE: u64 = 500;
const AFTER: u64 = 14_000;

/// Why a trace cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TimelineError {
    /// It is of another program.
    #[error("it is not of `portolan trace`, which says in otherData.portolan what wrote it")]
    Foreign,
    /// An event lacks something.
    #[error("not the form of a timeline")]
    Form(#[from] serde_json::Error),
    /// A time is none.
    #[error("event {0} has a time that is none")]
    Time(usize),
}

/// A timeline as `portolan trace` writes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Timeline {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
    #[serde(rename = "otherData", default)]
    other: Other,
}

#[derive(Debug, Default, Deserialize)]
struct Other {
    portolan: Option<String>,
    #[serde(default)]
    program: String,
    #[serde(default)]
    machine: String,
    topology: Option<[u16; 3]>,
    wraps: Option<[bool; 3]>,
}

#[derive(Debug, Deserialize)]
struct Event {
    ph: String,
    #[serde(default)]
    name: String,
    pid: u64,
    tid: u64,
    /// Microseconds.
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    id: u64,
    #[serde(default)]
    args: Map<String, Value>,
}

/// A timeline as the page's script reads it; times are nanoseconds.
#[derive(Debug, Serialize)]
pub(super) struct Trace {
    file: String,
    about: Vec<Fact>,
    notes: Vec<String>,
    topology: [u16; 3],
    wraps: [bool; 3],
    nodes: Vec<Node>,
    rows: Vec<Row>,
    names: Vec<String>,
    /// Row, start, length, name, arguments.
    slices: Vec<(usize, u64, u64, usize, String)>,
    /// Row, time, name, arguments.
    instants: Vec<(usize, u64, usize, String)>,
    /// Row and time of both ends.
    flows: Vec<(usize, u64, usize, u64)>,
    end: u64,
    /// What is shown first, where that is not everything.
    first: Option<(u64, u64)>,
}

#[derive(Debug, Serialize)]
struct Node {
    pid: u64,
    name: String,
    at: Option<[u16; 3]>,
}

#[derive(Debug, Serialize)]
struct Row {
    pid: u64,
    name: String,
    #[serde(skip)]
    tid: u64,
    #[serde(skip)]
    sort: u64,
}

impl Timeline {
    /// Reads a timeline.
    ///
    /// # Errors
    /// [`TimelineError`] for what is another program's, and for what is none.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, TimelineError> {
        let timeline: Self = serde_json::from_slice(text)?;
        if timeline.other.portolan.is_none() {
            return Err(TimelineError::Foreign);
        }
        let times = timeline.events.iter().map(|e| [e.ts, e.dur]);
        let bad = times.enumerate().find(|(_, times)| {
            // Doubles count nanoseconds exactly up to here, a hundred days.
            times.iter().any(|us| !(0.0..9e12).contains(us))
        });
        match bad {
            Some((at, _)) => Err(TimelineError::Time(at)),
            None => Ok(timeline),
        }
    }

    /// What the page shows of it.
    pub(super) fn shown(&self, file: &str) -> Trace {
        let nodes = self.nodes();
        let rows = self.rows();
        let of: BTreeMap<(u64, u64), usize> =
            rows.iter().map(|r| (r.pid, r.tid)).zip(0..).collect();
        let mut trace = Trace {
            file: file.to_owned(),
            about: self.about(),
            notes: Vec::new(),
            topology: self.other.topology.unwrap_or([1; 3]),
            wraps: self.other.wraps.unwrap_or([false; 3]),
            nodes,
            rows,
            names: Vec::new(),
            slices: Vec::new(),
            instants: Vec::new(),
            flows: Vec::new(),
            end: 0,
            first: None,
        };
        trace.fill(&self.events, &of);
        trace
    }

    fn about(&self) -> Vec<Fact> {
        let known = |text: &str| match text {
            "" => "not recorded in the file".to_owned(),
            text => text.to_owned(),
        };
        let machine = nic_model::Machine::named(&self.other.machine);
        let machine = machine.map_or_else(|_| known(&self.other.machine), |m| m.description);
        vec![
            ("program", known(&self.other.program)),
            ("machine", format!("{machine} (simulated)")),
            (
                "version",
                known(self.other.portolan.as_deref().unwrap_or("")),
            ),
        ]
    }

    fn meta(&self, name: &str) -> impl Iterator<Item = &Event> {
        self.events
            .iter()
            .filter(move |e| e.ph == "M" && e.name == name)
    }

    fn nodes(&self) -> Vec<Node> {
        let named = self.meta("process_name").map(|event| {
            let name = text(&event.args, "name");
            let at = place(&name);
            let pid = event.pid;
            Node { pid, name, at }
        });
        named.collect()
    }

    fn rows(&self) -> Vec<Row> {
        let sorts = self.meta("thread_sort_index").map(|event| {
            let sort = event.args.get("sort_index").and_then(Value::as_u64);
            ((event.pid, event.tid), sort.unwrap_or(0))
        });
        let sorts: BTreeMap<_, _> = sorts.collect();
        let named = self.meta("thread_name").map(|event| Row {
            pid: event.pid,
            name: text(&event.args, "name"),
            tid: event.tid,
            sort: sorts.get(&(event.pid, event.tid)).copied().unwrap_or(0),
        });
        let mut rows: Vec<Row> = named.collect();
        rows.sort_by_key(|row| (row.pid, row.sort, row.tid));
        rows
    }
}

impl Trace {
    /// Takes the events of rows that have a name.
    fn fill(&mut self, events: &[Event], rows: &BTreeMap<(u64, u64), usize>) {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut begun: BTreeMap<u64, Vec<(usize, u64)>> = BTreeMap::new();
        let all = events.iter().filter(|e| e.ph != "M").count();
        for event in events.iter().filter(|e| e.ph != "M").take(MOST) {
            let Some(&row) = rows.get(&(event.pid, event.tid)) else {
                continue;
            };
            let at = nanoseconds(event.ts);
            let next = numbers.len();
            let name = *numbers.entry(&event.name).or_insert(next);
            if name == self.names.len() {
                self.names.push(event.name.clone());
            }
            match event.ph.as_str() {
                "X" => {
                    let length = nanoseconds(event.dur);
                    self.end = self.end.max(at + length);
                    self.slices
                        .push((row, at, length, name, words(&event.args)));
                }
                "i" => {
                    self.end = self.end.max(at);
                    self.instants.push((row, at, name, words(&event.args)));
                }
                "s" => begun.entry(event.id).or_default().push((row, at)),
                "f" => {
                    let start = begun.get_mut(&event.id).and_then(Vec::pop);
                    self.flows
                        .extend(start.map(|(from, start)| (from, start, row, at)));
                }
                _ => {}
            }
        }
        self.slices.sort_by_key(|slice| (slice.1, slice.0));
        self.instants.sort_by_key(|instant| (instant.1, instant.0));
        if all > MOST {
            self.notes.push(format!(
                "The page shows the first {MOST} of {all} events. A shorter run, or `portolan trace --no-packets`, has fewer."
            ));
        }
        self.first = self
            .call()
            .map(|at| (at.saturating_sub(BEFORE), at + AFTER));
        self.first = self.first.filter(|(_, to)| *to < self.end);
    }

    /// The start of the first put or get of a rank that has the window to itself; of the first at all where none has.
    fn call(&self) -> Option<u64> {
        let is_call = |&&(row, .., name, _): &&(usize, u64, u64, usize, String)| {
            let of_rank = self
                .rows
                .get(row)
                .is_some_and(|r| r.name.starts_with("rank "));
            let name = self.names.get(name).map(String::as_str);
            of_rank && matches!(name, Some("put" | "get"))
        };
        let starts: Vec<u64> = self.slices.iter().filter(is_call).map(|s| s.1).collect();
        let alone = (0..starts.len()).find(|&at| {
            let after = starts.get(at + 1);
            let free = after.is_none_or(|next| starts[at] + AFTER / 2 < *next);
            free && (at == 0 || starts[at - 1] + AFTER / 2 < starts[at])
        });
        starts.get(alone.unwrap_or(0)).copied()
    }
}

fn nanoseconds(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

fn text(args: &Map<String, Value>, key: &str) -> String {
    let text = args.get(key).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Arguments in the words of a reader.
fn words(args: &Map<String, Value>) -> String {
    let words = args.iter().map(|(key, value)| match value {
        Value::String(text) => format!("{key} {text}"),
        other => format!("{key} {other}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The place of `node 5 (1,0,1)`, with or without blanks.
fn place(name: &str) -> Option<[u16; 3]> {
    let (_, numbers) = name.strip_suffix(')')?.rsplit_once('(')?;
    let numbers: Result<Vec<u16>, _> = numbers.split(',').map(|n| n.trim().parse()).collect();
    numbers.ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"displayTimeUnit":"ns","otherData":{"portolan":"1","program":"p","machine":"xt4","topology":[2,1,1],"wraps":[true,true,true]},"traceEvents":["#;

    fn trace(events: &str) -> Result<Trace, TimelineError> {
        let text = format!("{HEAD}{events}]}}");
        Ok(Timeline::parse(text.as_bytes())?.shown("f"))
    }

    fn named(kind: &str, pid: u64, tid: u64, args: &str) -> String {
        format!(r#"{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{{{args}}}}}"#)
    }

    #[test]
    fn rows_come_in_their_order_and_arrows_find_their_ends() {
        let events = [
            named("process_name", 1, 0, r#""name":"node 0 (0,0,0)""#),
            named("thread_name", 1, 5, r#""name":"tx""#),
            named("thread_sort_index", 1, 5, r#""sort_index":84"#),
            named("thread_name", 1, 9, r#""name":"rank 0""#),
            named("thread_sort_index", 1, 9, r#""sort_index":0"#),
            r#"{"ph":"X","name":"put","pid":1,"tid":9,"ts":1.500,"dur":0.250,"args":{"bytes":8}}"#.to_owned(),
            r#"{"ph":"s","cat":"message","name":"message","id":7,"pid":1,"tid":5,"ts":1.600}"#.to_owned(),
            r#"{"ph":"f","bp":"e","cat":"message","name":"message","id":7,"pid":1,"tid":9,"ts":20.000}"#.to_owned(),
            r#"{"ph":"i","s":"t","name":"late","pid":1,"tid":5,"ts":20.000,"args":{}}"#.to_owned(),
            r#"{"ph":"i","s":"t","name":"of no row","pid":3,"tid":5,"ts":2.000,"args":{}}"#.to_owned(),
        ];
        let trace = trace(&events.join(",")).unwrap();
        let names: Vec<&str> = trace.rows.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["rank 0", "tx"]);
        assert_eq!(trace.nodes[0].at, Some([0, 0, 0]));
        let put = &trace.slices[0];
        assert_eq!(
            (put.0, put.1, put.2, put.4.as_str()),
            (0, 1500, 250, "bytes 8")
        );
        assert_eq!(trace.flows, [(1, 1600, 0, 20_000)]);
        assert_eq!((trace.end, trace.first), (20_000, Some((1000, 15_500))));
        assert_eq!(trace.instants.len(), 1);
    }

    #[test]
    fn a_node_sits_where_its_name_says_with_blanks_or_without() {
        assert_eq!(place("node 5 (1,0,1)"), Some([1, 0, 1]));
        assert_eq!(place("node 5 (1, 0, 1)"), Some([1, 0, 1]));
        assert_eq!(place("node 5 (1,0)"), None);
    }

    #[test]
    fn times_that_are_none_are_refused() {
        for (ts, dur) in [("-1", "0"), ("0", "-3"), ("1e300", "0")] {
            let event = format!(r#"{{"ph":"X","name":"a","pid":1,"tid":2,"ts":{ts},"dur":{dur}}}"#);
            assert!(
                matches!(trace(&event), Err(TimelineError::Time(0))),
                "{ts} {dur}"
            );
        }
        assert!(matches!(trace("7"), Err(TimelineError::Form(_))));
    }
}
