//! The timeline: JSON of Chrome's trace event format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;

use super::{Output, Record, Scene, Sink, What, command_name, quoted};
use crate::time::SimTime;
use crate::topology::{NodeId, Port};

/// Rows of a node, in the order they are shown; those of its ranks stand above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    Host = 2,
    Firmware = 3,
    Tx = 4,
    /// Headers that arrive: while one does, the receive engine may work on an earlier message.
    Headers = 5,
    Rx = 6,
    /// The first of the links and the node port.
    Links = 7,
    /// The first of the node's ranks.
    Ranks = 20,
}

/// Ranks of a node that have a row; a node has 64 at most.
const RANK_ROWS: u32 = 80;

/// Rows that a row has at most with its further ones; what overlaps beyond that stays in the last.
const MOST_LANES: usize = 100;

/// A row and the further rows for what overlaps in it.
#[derive(Debug)]
struct Lanes {
    name: String,
    sort: usize,
    /// Until when each is in use, nanoseconds.
    used: Vec<u64>,
}

/// Writes JSON of Chrome's trace event format, which Perfetto and Chrome's viewer open: an object with a list of events.
///
/// A node is a process, its parts are threads: the calls of its ranks, the host's processor, the
/// embedded processor, both engines, arriving headers, six links and the node port. A message's transmit and its header
/// at the target are joined by an arrow (a flow).
///
/// Viewers count whole nanoseconds, and draw what overlaps by less as if it were nested. Times are therefore rounded down to
/// nanoseconds, starts as well as ends, in microseconds with three decimals: what does not overlap in the world does not in the file. A
/// slice that overlaps an earlier one of its row goes to a further row, such as `host (2)`.
///
/// The list ends with [`Sink::finish`]; before it stand `displayTimeUnit`, and in `otherData` the program, the machine, the
/// shape of the network and the version of this crate.
#[derive(Debug)]
pub struct Timeline<W> {
    out: Output<W>,
    packets: bool,
    /// Ranks by node, in the order of their first calls.
    ranks: BTreeMap<u16, Vec<u32>>,
    /// Rows by node and number.
    rows: BTreeMap<(u16, u32), Lanes>,
    /// Until when each link and node port is in use, seven for each node.
    used: Vec<SimTime>,
    line: String,
    first: bool,
}

impl<W: Write> Timeline<W> {
    /// Writes to `to`, which should be buffered, of the program `title`; with `packets` every packet on every link too.
    pub fn new(to: W, scene: &Scene, title: &str, packets: bool) -> Self {
        let mut timeline = Self {
            out: Output::new(to),
            packets,
            ranks: BTreeMap::new(),
            rows: BTreeMap::new(),
            used: vec![SimTime::ZERO; 7 * scene.topology.nodes()],
            line: String::new(),
            first: true,
        };
        timeline.head(scene, title);
        for n in 0..scene.topology.nodes() {
            let node = NodeId(n as u16);
            let [x, y, z] = scene.topology.coordinates(node);
            let name = format!("node {n} ({x},{y},{z})");
            timeline.meta(ids(node, 0, 0), "process_name", &name);
            timeline.sort(ids(node, 0, 0), "process_sort_index", n);
            let named = [
                (Row::Host, "host"),
                (Row::Firmware, "firmware"),
                (Row::Tx, "tx"),
                (Row::Headers, "headers"),
                (Row::Rx, "rx"),
            ];
            let rows = named.map(|(row, name)| (row as u32, name.to_owned()));
            let links = (0..7).map(Port::from_index).filter(|_| packets);
            let links = links.map(|port| {
                let kind = if port == Port::Node { "port" } else { "link" };
                let name = format!("{kind} {}", port.name());
                (Row::Links as u32 + port as u32, name)
            });
            for (row, name) in rows.into_iter().chain(links) {
                timeline.row(node, row, name, (RANK_ROWS + row) as usize);
            }
        }
        timeline
    }

    /// What stands before the events.
    fn head(&mut self, scene: &Scene, title: &str) {
        let [x, y, z] = scene.topology.dims();
        let wraps = scene.topology.wraps();
        let (title, machine) = (quoted(title), quoted(&scene.machine));
        let (flit, version) = (scene.flit.0, env!("CARGO_PKG_VERSION"));
        let head = format!(
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"portolan\":\"{version}\",\"program\":{title},\"machine\":{machine},\
             \"topology\":[{x},{y},{z}],\"wraps\":{wraps:?},\"flit_ps\":{flit},\"clock\":\"virtual\"}},\"traceEvents\":[\n"
        );
        self.out.write(head.as_bytes());
    }

    /// Names a row.
    fn row(&mut self, node: NodeId, row: u32, name: String, sort: usize) {
        let ids = ids(node, row, 0);
        self.meta(ids, "thread_name", &name);
        self.sort(ids, "thread_sort_index", sort);
        let used = vec![0];
        self.rows.insert((node.0, row), Lanes { name, sort, used });
    }

    /// The row for what is from one nanosecond to another, and a further one where that is taken.
    fn lane(&mut self, node: NodeId, row: u32, (from, to): (u64, u64)) -> (u32, u32) {
        let Some(lanes) = self.rows.get_mut(&(node.0, row)) else {
            return ids(node, row, 0);
        };
        let free = lanes.used.iter().position(|used| *used <= from);
        let lane = free.unwrap_or(lanes.used.len()).min(MOST_LANES - 1);
        let ids = ids(node, row, lane as u32);
        match lanes.used.get_mut(lane) {
            Some(used) => *used = (*used).max(to),
            None => {
                lanes.used.push(to);
                let (name, sort) = (format!("{} ({})", lanes.name, lane + 1), lanes.sort);
                self.meta(ids, "thread_name", &name);
                self.sort(ids, "thread_sort_index", sort);
            }
        }
        ids
    }

    fn separator(&mut self) {
        self.line.clear();
        if !std::mem::take(&mut self.first) {
            self.line.push_str(",\n");
        }
    }

    fn meta(&mut self, (pid, tid): (u32, u32), kind: &str, name: &str) {
        self.separator();
        let _ = write!(
            self.line,
            r#"{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{{"name":"{name}"}}}}"#
        );
        self.out.write(self.line.as_bytes());
    }

    fn sort(&mut self, (pid, tid): (u32, u32), kind: &str, index: usize) {
        self.separator();
        let _ = write!(
            self.line,
            r#"{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{{"sort_index":{index}}}}}"#
        );
        self.out.write(self.line.as_bytes());
    }

    /// Something that took from `from` to `to`. Names and arguments are this crate's own words
    /// and numbers: nothing needs escaping.
    fn slice(
        &mut self,
        (node, row): (NodeId, u32),
        name: &str,
        (from, to): (SimTime, SimTime),
        args: std::fmt::Arguments<'_>,
    ) {
        let (from, to) = (from.as_ns(), to.as_ns());
        let (pid, tid) = self.lane(node, row, (from, to));
        self.separator();
        let (ts, dur) = (Micros(from), Micros(to.saturating_sub(from)));
        let _ = write!(
            self.line,
            r#"{{"ph":"X","name":"{name}","pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur},"args":{{{args}}}}}"#
        );
        self.out.write(self.line.as_bytes());
    }

    fn instant(
        &mut self,
        (node, row): (NodeId, u32),
        name: &str,
        at: SimTime,
        args: std::fmt::Arguments<'_>,
    ) {
        self.separator();
        let (pid, tid) = ids(node, row, 0);
        let ts = Micros(at.as_ns());
        let _ = write!(
            self.line,
            r#"{{"ph":"i","s":"t","name":"{name}","pid":{pid},"tid":{tid},"ts":{ts},"args":{{{args}}}}}"#
        );
        self.out.write(self.line.as_bytes());
    }

    /// The row of a rank's calls, above the parts of its node.
    fn rank_row(&mut self, node: NodeId, rank: u32) -> u32 {
        let ranks = self.ranks.entry(node.0).or_default();
        let known = ranks.iter().position(|&r| r == rank);
        let at = known.unwrap_or(ranks.len());
        let at = at.min(RANK_ROWS as usize - 1);
        let row = Row::Ranks as u32 + at as u32;
        if known.is_none() {
            ranks.push(rank);
            self.row(node, row, format!("rank {rank}"), at);
        }
        row
    }

    /// One end of the arrow of a message.
    fn flow(
        &mut self,
        (node, row): (NodeId, u32),
        end: bool,
        at: SimTime,
        (from, to, sequence): (u16, u16, u16),
    ) {
        self.separator();
        let (pid, tid) = ids(node, row, 0);
        let ts = Micros(at.as_ns());
        let id = u64::from(from) << 32 | u64::from(to) << 16 | u64::from(sequence);
        let phase = if end { r#""f","bp":"e""# } else { r#""s""# };
        let _ = write!(
            self.line,
            r#"{{"ph":{phase},"cat":"message","name":"message","id":{id},"pid":{pid},"tid":{tid},"ts":{ts}}}"#
        );
        self.out.write(self.line.as_bytes());
    }
}

/// Process and thread of a row and its further rows; neither may be 0, and threads are numbered across processes.
fn ids(node: NodeId, row: u32, lane: u32) -> (u32, u32) {
    let pid = u32::from(node.0) + 1;
    (pid, pid * 100 + row + lane * 10_000_000)
}

/// Nanoseconds, shown as microseconds.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

impl<W: Write + Send> Sink for Timeline<W> {
    fn record(&mut self, record: &Record<'_>) {
        let (node, time) = (record.node, record.time);
        let at = |row: Row| (node, row as u32);
        match record.what {
            What::Call { rank, name, from } => {
                let row = self.rank_row(node, rank);
                self.slice((node, row), name, (from, time), format_args!(""));
            }
            What::Trap { name, from } => {
                self.slice(at(Row::Host), name, (from, time), format_args!(""));
            }
            What::Handler { event, from } if event.is_empty() => {
                self.slice(at(Row::Host), "interrupt", (from, time), format_args!(""));
            }
            What::Handler { event, from } => {
                let name = format!("handle {:?}", event.kind());
                let index = event.index();
                self.slice(
                    at(Row::Host),
                    &name,
                    (from, time),
                    format_args!(r#""index":{index}"#),
                );
            }
            What::Match {
                by,
                source,
                bits,
                searched,
                outcome,
            } => {
                let row = if by == "host" {
                    Row::Host
                } else {
                    Row::Firmware
                };
                self.instant(
                    at(row),
                    "match",
                    time,
                    format_args!(
                        r#""source":{source},"bits":"{bits:#018x}","searched":{searched},"outcome":"{outcome}""#
                    ),
                );
            }
            What::Doorbell { mailbox, index } => self.instant(
                at(Row::Firmware),
                "doorbell",
                time,
                format_args!(r#""mailbox":{mailbox},"index":{index}"#),
            ),
            What::Command {
                mailbox,
                op,
                refused,
            } => {
                let name = match refused {
                    None => command_name(op),
                    Some(_) => "refused",
                };
                let reason = refused.unwrap_or(0);
                self.instant(
                    at(Row::Firmware),
                    name,
                    time,
                    format_args!(r#""mailbox":{mailbox},"op":{op},"reason":{reason}"#),
                );
            }
            What::Work { name, from } => {
                self.slice(at(Row::Firmware), name, (from, time), format_args!(""));
            }
            What::Event { word, interrupt } => {
                let name = format!("post {:?}", word.kind());
                let index = word.index();
                self.instant(
                    at(Row::Firmware),
                    &name,
                    time,
                    format_args!(r#""index":{index},"interrupt":{interrupt}"#),
                );
            }
            What::TxStart {
                destination,
                sequence,
                ..
            } => self.flow(at(Row::Tx), false, time, (node.0, destination.0, sequence)),
            What::TxEnd {
                from,
                destination,
                sequence,
                bytes,
                ok,
            } => {
                let name = format!("to {}", destination.0);
                self.slice(
                    at(Row::Tx),
                    &name,
                    (from, time),
                    format_args!(r#""bytes":{bytes},"sequence":{sequence},"ok":{ok}"#),
                );
            }
            What::Header {
                source,
                sequence,
                bytes,
                payload,
            } => {
                // A slice, because an arrow needs one to end at.
                let end = SimTime(time.0 + 1_000);
                let name = format!("header from {}", source.0);
                self.slice(
                    at(Row::Headers),
                    &name,
                    (time, end),
                    format_args!(r#""bytes":{bytes},"payload":{payload},"sequence":{sequence}"#),
                );
                self.flow(at(Row::Headers), true, time, (source.0, node.0, sequence));
            }
            What::RxStart { .. } => {}
            What::RxEnd {
                from,
                deposited,
                discarded,
                ok,
            } => self.slice(
                at(Row::Rx),
                "deposit",
                (from, time),
                format_args!(r#""deposited":{deposited},"discarded":{discarded},"ok":{ok}"#),
            ),
            What::Hop { .. } if !self.packets => {}
            What::Hop {
                port,
                from,
                header,
                flits,
                busy,
            } => {
                let name = format!("{} to {}", header.source(), header.destination());
                let sequence = header.sequence();
                // The flits follow the head one by one; those of the next packet come after.
                let Some(used) = self.used.get_mut(7 * node.index() + port as usize) else {
                    return;
                };
                let from = from.max(*used);
                *used = from + busy;
                let slice = (from, *used);
                self.slice(
                    (node, Row::Links as u32 + port as u32),
                    &name,
                    slice,
                    format_args!(r#""flits":{flits},"sequence":{sequence}"#),
                );
            }
            What::Lost { header } => {
                let (from, to) = (header.source(), header.destination());
                let sequence = header.sequence();
                self.instant(
                    at(Row::Rx),
                    "fault: packet lost",
                    time,
                    format_args!(r#""from":{from},"to":{to},"sequence":{sequence}"#),
                );
            }
            What::Retry { .. } if !self.packets => {}
            What::Retry {
                port,
                header,
                times,
            } => {
                let (from, to) = (header.source(), header.destination());
                let sequence = header.sequence();
                self.instant(
                    (node, Row::Links as u32 + port as u32),
                    "retry",
                    time,
                    format_args!(
                        r#""from":{from},"to":{to},"sequence":{sequence},"times":{times}"#
                    ),
                );
            }
            What::Working(_) | What::Packet { .. } | What::HostWrite { .. } => {}
            What::Interrupt => {
                self.instant(at(Row::Host), "interrupt", time, format_args!(""));
            }
            What::Fault { name } => {
                let fault = format!("fault: {name}");
                self.instant(at(Row::Rx), &fault, time, format_args!(""));
            }
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        self.out.write(b"\n]}\n");
        self.out.finish().map_err(|e| format!("timeline: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Machine;
    use crate::topology::Topology;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A file that can be looked at; fails after `left` bytes.
    #[derive(Clone)]
    struct File(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for File {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut text = self.0.lock().unwrap();
            if text.len() + bytes.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            text.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn calls(room: usize) -> (String, Result<(), String>) {
        calls_of(room, &[(2, 1), (3, 1), (2, 1), (0, 0)])
    }

    /// A call of each rank on its node, all at one time.
    fn calls_of(room: usize, calls: &[(u32, u16)]) -> (String, Result<(), String>) {
        let file = File(Arc::default(), room);
        let machine = Machine::named("xt4").unwrap();
        let topology = Topology::torus([2, 1, 1]).unwrap();
        let scene = Scene::new(&machine, &topology);
        let mut timeline = Timeline::new(file.clone(), &scene, "a \"b\"\\\n", true);
        for &(rank, node) in calls {
            let what = What::Call {
                rank,
                name: "put",
                from: SimTime(1_000_000),
            };
            timeline.record(&Record {
                time: SimTime(3_500_001),
                node: NodeId(node),
                what,
            });
        }
        let done = timeline.finish();
        let text = String::from_utf8(file.0.lock().unwrap().clone()).unwrap();
        (text, done)
    }

    #[test]
    fn ranks_that_share_a_node_have_rows_of_their_own() {
        let (text, done) = calls(usize::MAX);
        assert_eq!(done, Ok(()));
        for (rank, pid, tid) in [(2, 2, 220), (3, 2, 221), (0, 1, 120)] {
            let name = format!(
                r#""name":"thread_name","pid":{pid},"tid":{tid},"args":{{"name":"rank {rank}"}}"#
            );
            assert_eq!(text.matches(&name).count(), 1, "{text}");
        }
        let slice = |tid: u32| {
            format!(
                r#"{{"ph":"X","name":"put","pid":2,"tid":{tid},"ts":1.000,"dur":2.500,"args":{{}}}}"#
            )
        };
        assert_eq!(text.matches(&slice(220)).count(), 1, "{text}");
        // Calls of one rank at one time: a row of its own for the second.
        assert_eq!(text.matches(&slice(10_000_220)).count(), 1, "{text}");
        let second = r#""name":"thread_name","pid":2,"tid":10000220,"args":{"name":"rank 2 (2)"}"#;
        assert_eq!(text.matches(second).count(), 1, "{text}");
    }

    /// Viewers keep a row's number in 32 bits with a sign.
    #[test]
    fn a_row_has_at_most_a_hundred_with_its_further_ones() {
        let (text, done) = calls_of(usize::MAX, &[(2, 1); 500]);
        assert_eq!(done, Ok(()));
        let row = |number: u32| {
            text.matches(&format!(r#""name":"put","pid":2,"tid":{number},"#))
                .count()
        };
        assert_eq!((row(220), row(980_000_220)), (1, 1));
        assert_eq!(row(990_000_220), 401, "the last has the rest");
    }

    #[test]
    fn the_file_is_an_object_that_says_what_was_run_on_what() {
        let (text, _) = calls(usize::MAX);
        let head = concat!(
            r#"{"displayTimeUnit":"ns","otherData":{"portolan":""#,
            env!("CARGO_PKG_VERSION"),
            r#"","program":"a \"b\"\\\u000a","machine":"xt4","topology":[2,1,1],"wraps":[true, true, true],"#
        );
        assert!(text.starts_with(head), "{text}");
        assert!(text.ends_with("\n]}\n"), "{text}");
    }

    /// What ends within the nanosecond in which the next begins is not drawn over it.
    #[test]
    fn slices_that_touch_within_a_nanosecond_stay_in_their_row() {
        let file = File(Arc::default(), usize::MAX);
        let machine = Machine::named("xt4").unwrap();
        let topology = Topology::torus([1, 1, 1]).unwrap();
        let mut timeline = Timeline::new(file.clone(), &Scene::new(&machine, &topology), "", false);
        for (from, to) in [(900, 1_700), (1_700, 2_600), (2_700, 2_900)] {
            let what = What::Work {
                name: "poll",
                from: SimTime(from),
            };
            timeline.record(&Record {
                time: SimTime(to),
                node: NodeId(0),
                what,
            });
        }
        timeline.finish().unwrap();
        let text = String::from_utf8(file.0.lock().unwrap().clone()).unwrap();
        for times in [
            r#""ts":0.000,"dur":0.001"#,
            r#""ts":0.001,"dur":0.001"#,
            r#""ts":0.002,"dur":0.000"#,
        ] {
            let slice = format!(r#""tid":103,{times}"#);
            assert_eq!(text.matches(&slice).count(), 1, "{slice}: {text}");
        }
        assert!(!text.contains("(2)"), "{text}");
    }

    #[test]
    fn a_full_disk_is_said_once_at_the_end() {
        let (text, done) = calls(1000);
        assert!(text.len() <= 1000);
        assert!(done.unwrap_err().starts_with("timeline: "));
    }
}
