//! `portolan trace`: that files are what their formats say, and the same in every run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn portolan(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PORTOLAN_") {
            command.env_remove(name);
        }
    }
    command
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn success(line: &str) -> String {
    let output = portolan(line);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A folder of this test's own, removed at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.path().join(name)).unwrap()
    }
}

/// A program that sends short and long messages to and fro.
fn program(folder: &Folder) -> String {
    format!(
        "portolan bench-rank pingpong get-latency --sizes 8,4096 --iters 2 --out {}",
        folder.file("results")
    )
}

/// Fields that an event of a phase must have in Chrome's trace event format, as this project uses it: none
/// may miss, and no other may be there.
fn fields(phase: &str, name: &str) -> &'static [&'static str] {
    match (phase, name) {
        ("M", _) => &["args", "name", "ph", "pid", "tid"],
        ("X", _) => &["args", "dur", "name", "ph", "pid", "tid", "ts"],
        ("i", _) => &["args", "name", "ph", "pid", "s", "tid", "ts"],
        ("s", _) => &["cat", "id", "name", "ph", "pid", "tid", "ts"],
        ("f", _) => &["bp", "cat", "id", "name", "ph", "pid", "tid", "ts"],
        _ => panic!("phase {phase}"),
    }
}

/// Events of a timeline, checked for everything that a viewer relies on.
fn timeline(text: &[u8]) -> Vec<Value> {
    let mut file: Value = serde_json::from_slice(text).unwrap();
    let keys: Vec<&String> = file.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["displayTimeUnit", "otherData", "traceEvents"]);
    assert_eq!(file["displayTimeUnit"], "ns");
    let Value::Array(events) = file["traceEvents"].take() else {
        panic!("traceEvents is no array")
    };
    let (mut processes, mut threads) = (BTreeMap::new(), BTreeMap::new());
    for event in &events {
        let text = |key: &str| {
            event[key]
                .as_str()
                .unwrap_or_else(|| panic!("{key} of {event}"))
        };
        let whole = |key: &str| {
            event[key]
                .as_u64()
                .unwrap_or_else(|| panic!("{key} of {event}"))
        };
        let (phase, name) = (text("ph"), text("name"));
        let keys: Vec<&str> = event
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, fields(phase, name), "{event}");
        assert!(!name.is_empty(), "{event}");
        let (pid, tid) = (whole("pid"), whole("tid"));
        assert!(pid >= 1 && tid >= 1, "{event}");
        for key in ["ts", "dur"].iter().filter(|key| keys.contains(key)) {
            let number = event[key].as_f64().unwrap_or(-1.0);
            assert!(number.is_finite() && number >= 0.0, "{event}");
        }
        match phase {
            "M" => {
                let known = match name {
                    "process_name" => processes.insert(pid, text_of(&event["args"]["name"])),
                    "thread_name" => threads
                        .insert(tid, (pid, text_of(&event["args"]["name"])))
                        .map(|(_, name)| name),
                    "process_sort_index" | "thread_sort_index" => {
                        assert!(event["args"]["sort_index"].is_u64(), "{event}");
                        None
                    }
                    other => panic!("metadata {other}"),
                };
                assert_eq!(known, None, "named twice: {event}");
            }
            "X" => assert!(event["args"].is_object(), "{event}"),
            "i" => assert!(event["args"].is_object() && text("s") == "t", "{event}"),
            "s" => assert!(text("cat") == "message", "{event}"),
            _ => assert!(text("cat") == "message" && text("bp") == "e", "{event}"),
        }
        // Exact in a double, which is what a viewer reads numbers into.
        if keys.contains(&"id") {
            assert!(whole("id") < 1 << 53, "{event}");
        }
        if phase != "M" {
            assert!(
                processes.contains_key(&pid),
                "no name of its process yet: {event}"
            );
            let thread = threads.get(&tid).map(|(pid, _)| *pid);
            assert_eq!(thread, Some(pid), "no name of its thread yet: {event}");
        }
    }
    nested(&events);
    arrows(&events);
    events
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Process and thread.
type Thread = (u64, u64);

fn thread(event: &Value) -> Thread {
    let whole = |key: &str| event[key].as_u64().unwrap();
    (whole("pid"), whole("tid"))
}

/// The slices of each thread by start, longer ones first.
fn slices(events: &[Value]) -> BTreeMap<Thread, Vec<(u64, u64)>> {
    let mut slices: BTreeMap<Thread, Vec<(u64, u64)>> = BTreeMap::new();
    for event in events.iter().filter(|e| e["ph"] == "X") {
        let (from, length) = (ns(event, "ts"), ns(event, "dur"));
        let of = slices.entry(thread(event)).or_default();
        of.push((from, from + length));
    }
    for of in slices.values_mut() {
        of.sort_unstable_by_key(|(from, to)| (*from, std::cmp::Reverse(*to)));
    }
    slices
}

/// Slices of a thread lie within one another or beside one another: a viewer draws no others.
fn nested(events: &[Value]) {
    for (thread, slices) in slices(events) {
        let mut open: Vec<u64> = Vec::new();
        for (from, to) in slices {
            while open.last().is_some_and(|end| *end <= from) {
                open.pop();
            }
            let fits = open.last().is_none_or(|end| to <= *end);
            assert!(
                fits,
                "thread {thread:?}: {from}..{to} ends after what it began in"
            );
            open.push(to);
        }
    }
}

/// Each arrow begins and ends in a slice of its thread, and ends after it began. One that does not end
/// is of a message that was lost.
fn arrows(events: &[Value]) {
    let slices = slices(events);
    let mut begun: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let of = |phase: &'static str| events.iter().filter(move |e| e["ph"] == phase);
    for (phase, event) in of("s").map(|e| ("s", e)).chain(of("f").map(|e| ("f", e))) {
        let (at, id) = (ns(event, "ts"), event["id"].as_u64().unwrap());
        let row = &slices[&thread(event)];
        let inside = row.iter().any(|(from, to)| (*from..=*to).contains(&at));
        assert!(inside, "an arrow's end outside of all slices: {event}");
        let starts = begun.entry(id).or_default();
        if phase == "s" {
            starts.push(at);
        } else {
            let before = starts.iter().rposition(|start| *start <= at);
            let start = before.unwrap_or_else(|| panic!("an arrow from nowhere: {event}"));
            starts.remove(start);
        }
    }
}

/// Nanoseconds of a time of the timeline, which has whole ones: viewers cannot round them otherwise.
fn ns(event: &Value, key: &str) -> u64 {
    let ns = event[key].as_f64().unwrap() * 1e3;
    assert!((ns - ns.round()).abs() < 1e-6, "{event}");
    ns.round() as u64
}

/// Names of threads with their nodes, and the slices of each; those of a thread do not overlap.
type Rows = (BTreeMap<u64, (u64, String)>, BTreeMap<u64, Vec<(u64, u64)>>);

fn rows(events: &[Value]) -> Rows {
    let mut threads = BTreeMap::new();
    for event in events.iter().filter(|e| e["name"] == "thread_name") {
        let name = event["args"]["name"].as_str().unwrap();
        let node = event["pid"].as_u64().unwrap();
        threads.insert(event["tid"].as_u64().unwrap(), (node, name.to_owned()));
    }
    let mut slices: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for event in events.iter().filter(|e| e["ph"] == "X") {
        let (from, length) = (ns(event, "ts"), ns(event, "dur"));
        let tid = event["tid"].as_u64().unwrap();
        slices.entry(tid).or_default().push((from, from + length));
    }
    for (tid, slices) in &mut slices {
        slices.sort_unstable();
        let (_, name) = &threads[tid];
        for pair in slices.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{name}: {pair:?}");
        }
    }
    (threads, slices)
}

#[test]
fn the_timeline_is_chromes_format_and_shows_every_part() {
    let folder = Folder::new();
    let out = folder.file("t.json");
    success(&format!("trace -n 2 --out {out} -- {}", program(&folder)));
    let events = timeline(&folder.read("t.json"));
    let (threads, slices) = rows(&events);
    assert_eq!(threads.len(), 2 * 13, "{threads:?}");
    for part in [
        "rank",
        "host",
        "firmware",
        "tx",
        "headers",
        "rx",
        "port node",
    ] {
        for node in [1, 2] {
            let (tid, _) = threads
                .iter()
                .find(|(_, (n, name))| *n == node && name.starts_with(part))
                .unwrap();
            assert!(slices.contains_key(tid), "nothing on {part} of {node}");
        }
    }
    let named = |name: &str| events.iter().filter(|e| e["name"] == name).count();
    for name in [
        "put",
        "eq wait",
        "transmit",
        "receive",
        "poll",
        "header",
        "match",
        "doorbell",
        "interrupt",
        "handle HEADER",
        "post RX_DONE",
        "deposit",
        "0 to 1",
    ] {
        assert!(named(name) > 0, "no {name}");
    }
    let ends = |phase: &str| events.iter().filter(|e| e["ph"] == phase).count();
    assert!(ends("s") > 10);
    assert_eq!(ends("s"), ends("f"), "every message arrives");
}

/// Two ranks on a node, messages of many lengths both ways, both modes: no two slices of a row overlap in any of it.
#[test]
fn rows_hold_no_two_slices_at_one_time_whatever_is_run() {
    let folder = Folder::new();
    let (out, results) = (folder.file("t.json"), folder.file("results"));
    for (options, measured) in [
        ("-n 4 --ranks-per-node 2", "put-bandwidth am-medium barrier"),
        ("-n 3 --mode accelerated", "get-latency put-rate"),
        ("-n 2", "am-threads"),
    ] {
        let sizes = if measured == "am-threads" {
            "3"
        } else {
            "1,777"
        };
        success(&format!(
            "trace {options} --out {out} -- portolan bench-rank {measured} --sizes {sizes} --iters 1 --out {results}"
        ));
        let events = timeline(&folder.read("t.json"));
        assert!(events.len() > 1000, "{options}: {} events", events.len());
        rows(&events);
    }
}

#[test]
fn two_runs_leave_the_same_bytes() {
    let folder = Folder::new();
    for run in ["a", "b"] {
        let [out, pcap, svg, links] =
            ["json", "pcap", "svg", "links"].map(|e| folder.file(&format!("{run}.{e}")));
        success(&format!(
            "trace -n 3 --out {out} --pcap {pcap} --svg {svg} --link-series {links} -- {}",
            program(&folder)
        ));
    }
    for kind in ["json", "pcap", "svg", "links"] {
        let [a, b] = ["a", "b"].map(|run| folder.read(&format!("{run}.{kind}")));
        assert!(a.len() > 1000, "{kind} has {} bytes", a.len());
        assert!(a == b, "{kind} differs");
    }
}

#[test]
fn the_capture_is_pcap_with_the_layout_of_the_book() {
    let folder = Folder::new();
    let pcap = folder.file("p.pcap");
    let out = success(&format!(
        "trace -n 2 --pcap {pcap} --links --counters -- {}",
        program(&folder)
    ));
    let bytes = folder.read("p.pcap");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(
        (word(0), word(4), word(20)),
        (0xA1B2_3C4D, 0x0004_0002, 147)
    );
    let (mut at, mut frames, mut last, mut payload) = (24, 0u64, 0, 0u64);
    while at < bytes.len() {
        let length = word(at + 8) as usize;
        assert_eq!(word(at + 12) as usize, length);
        let frame = &bytes[at + 16..at + 16 + length];
        assert_eq!(frame[0], 1);
        let time = u64::from_be_bytes(frame[4..12].try_into().unwrap());
        let ns = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        assert_eq!(ns, time / 1000);
        assert!(time >= last, "in the order of time");
        let flit = u64::from_be_bytes(frame[12..20].try_into().unwrap());
        let node = u16::from_be_bytes([frame[2], frame[3]]);
        assert_eq!(
            flit & 0x7FFF,
            u64::from(node),
            "came out at its destination"
        );
        assert!((20..=84).contains(&length));
        payload += length as u64 - 20;
        (at, frames, last) = (at + 16 + length, frames + 1, time);
    }
    assert_eq!(at, bytes.len());
    // Two gets and two ping-pongs of 4 KiB at the least.
    assert!(
        frames > 200 && payload > 16_384,
        "{frames} frames, {payload} bytes"
    );
    assert!(out.contains("links and node ports"), "{out}");
    assert!(out.contains("rx message"), "{out}");
    let ports: u64 = out
        .lines()
        .filter(|l| l.split_whitespace().nth(1) == Some("node") && !l.starts_with("register"))
        .filter_map(|l| l.split_whitespace().nth(2)?.parse::<u64>().ok())
        .sum();
    assert_eq!(ports, frames, "{out}");
}

#[test]
fn a_picture_is_drawn_of_all_or_of_a_part() {
    let folder = Folder::new();
    let [all, part] = ["all.svg", "part.svg"].map(|name| folder.file(name));
    let program = program(&folder);
    success(&format!("trace -n 2 --svg {all} -- {program}"));
    success(&format!(
        "trace -n 2 --svg {part} --window 20..60.5 -- {program}"
    ));
    let text = |name| String::from_utf8(folder.read(name)).unwrap();
    let (all, part) = (text("all.svg"), text("part.svg"));
    for picture in [&all, &part] {
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("node 1"));
    }
    assert!(!all.contains("<line x1") || !all.contains("marker-end"));
    assert!(part.contains(">40</text>"), "an axis in microseconds");
}

/// Sums over the bins of each link, by its name: packets, bytes, picoseconds in use.
fn sums(series: &[u8], width: f64) -> BTreeMap<String, [u64; 3]> {
    let rows: Vec<Value> = serde_json::from_slice(series).unwrap();
    let mut sums: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for row in &rows {
        let keys: Vec<&str> = row
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let columns = [
            "busy", "busy_us", "bytes", "from_us", "link", "machine", "node", "packets", "port",
            "width_us", "x", "y", "z",
        ];
        assert_eq!(keys, columns, "{row}");
        assert_eq!(row["machine"], "xt4");
        assert_eq!(row["width_us"].as_f64(), Some(width));
        let [x, y, z] = ["x", "y", "z"].map(|axis| row[axis].as_u64().unwrap());
        let name = format!("({x},{y},{z}) {}", text_of(&row["port"]));
        assert_eq!(text_of(&row["link"]), name);
        let share = row["busy"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&share), "{row}");
        let sum = sums.entry(name).or_default();
        sum[0] += row["packets"].as_u64().unwrap();
        sum[1] += row["bytes"].as_u64().unwrap();
        sum[2] += (row["busy_us"].as_f64().unwrap() * 1e6).round() as u64;
    }
    sums
}

#[test]
fn loads_of_links_over_time_sum_up_to_the_table_of_links() {
    let folder = Folder::new();
    let [series, environment] = ["series", "environment"].map(|name| folder.file(name));
    let table = success(&format!(
        "trace -n 8 --link-series {series} --bin 2.5 --links -- {}",
        program(&folder)
    ));
    let mut found = sums(&folder.read("series"), 2.5);
    let lines = table.lines().map(|line| line.split_whitespace().collect());
    for cells in lines.filter(|cells: &Vec<&str>| cells.len() == 9 && cells[0] != "link") {
        let cell = |at: usize| cells[at].replace('.', "").parse::<u64>().unwrap();
        let sum = found.remove(&format!("{} {}", cells[0], cells[1]));
        // The table has whole nanoseconds.
        let sum = sum.map(|[packets, bytes, busy]| [packets, bytes, busy / 1_000]);
        assert_eq!(sum, Some([cell(2), cell(3), cell(4)]), "{cells:?}");
    }
    assert!(found.is_empty(), "not in the table: {found:?}");
    // The same of a run without the command.
    success(&format!(
        "run -n 8 --fabric seastar --env PORTOLAN_TRACE_LINK_SERIES={environment} -- {}",
        program(&folder)
    ));
    assert_eq!(
        sums(&folder.read("environment"), 1.0),
        sums(&folder.read("series"), 2.5)
    );
}

#[test]
fn the_environment_traces_any_run() {
    let folder = Folder::new();
    let out = folder.file("t.json");
    success(&format!(
        "run -n 2 --fabric seastar --env PORTOLAN_TRACE={out} --env PORTOLAN_TRACE_PACKETS=0 -- {}",
        program(&folder)
    ));
    let events = timeline(&folder.read("t.json"));
    assert!(events.iter().any(|e| e["name"] == "put"));
    assert!(!events.iter().any(|e| e["name"] == "0 to 1"), "no packets");
}

#[test]
fn what_cannot_be_traced_is_said() {
    let folder = Folder::new();
    let output = portolan("trace -n 2 --fabric verbs -- portolan probe");
    assert_eq!(output.status.code(), Some(2));
    let out = folder.0.path().join("no/such/folder/t.json");
    let output = portolan(&format!(
        "trace -n 2 --out {} -- portolan probe",
        out.display()
    ));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("cannot create"), "{errors}");
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_program_without_the_fabric_leaves_nothing_and_that_is_said() {
    let folder = Folder::new();
    let out = folder.file("t.json");
    let output = portolan(&format!("trace -n 2 --out {out} -- portolan probe"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("did not use the fabric"), "{errors}");
}

#[test]
fn a_full_disk_is_said_and_ends_with_status_1() {
    let folder = Folder::new();
    let program = program(&folder);
    for option in ["--out", "--pcap", "--svg", "--link-series"] {
        let output = portolan(&format!("trace -n 2 {option} /dev/full -- {program}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{option}: {errors}");
        assert!(errors.contains("the trace is not whole"), "{errors}");
        assert!(errors.contains("No space left on device"), "{errors}");
        assert!(!errors.contains("is empty"), "{errors}");
    }
}

/// Nothing has a name in a folder that other users may write to: neither one that they could guess nor any other.
#[test]
fn tables_and_results_are_handed_over_without_a_file_of_a_name() {
    let folder = Folder::new();
    let program = program(&folder);
    for (line, word) in [
        (
            format!("trace -n 2 --links --counters -- {program}"),
            "busy us",
        ),
        ("bench pingpong --sizes 8 --iters 1".to_owned(), "pingpong"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
        let output = command
            .args(line.split_whitespace())
            .env("TMPDIR", "/no-such-folder")
            .env_remove("PORTOLAN_FABRIC")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {errors}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(word), "{line}: {text}");
    }
}

#[test]
fn nodes_are_where_the_map_puts_them_and_a_slow_link_is_busy_for_longer() {
    let folder = Folder::new();
    let (places, faults) = (folder.file("places"), folder.file("slow.toml"));
    fs::write(&places, "0\n4\n").unwrap();
    let link = "[[slow_link]]\nlink = \"(0,0,0) x+\"\npercent = 10\n";
    fs::write(&faults, link).unwrap();
    let traced = |options: &str| {
        let line = format!(
            "trace -n 2 --topology 8x1x1 {options} --links --out {} -- {}",
            folder.file("t"),
            program(&folder)
        );
        let links = success(&line);
        let text = String::from_utf8(folder.read("t")).unwrap();
        (text, links)
    };
    let (near, sound) = traced("");
    assert!(near.contains("\"node 1 (1,0,0)\""));
    let (far, _) = traced(&format!("--map {places}"));
    assert!(far.contains("\"node 0 (0,0,0)\"") && far.contains("\"node 1 (4,0,0)\""));
    // Bytes and time in use of the link from rank 0 to rank 1.
    let of = |links: &str| {
        let cells = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut rows = links.lines().map(cells);
        let row = rows.find(|c| c.len() > 5 && c[0] == "(0,0,0)" && c[1] == "x+");
        let row = row.unwrap();
        let micros = row[4].replace('.', "");
        (
            row[3].parse::<u64>().unwrap(),
            micros.parse::<u64>().unwrap(),
        )
    };
    let (_, slow) = traced(&format!("--faults {faults}"));
    let ((sound_bytes, sound_ns), (slow_bytes, slow_ns)) = (of(&sound), of(&slow));
    // A flit has 8 bytes and takes 3 ns, 30 on the slow link.
    assert_eq!(sound_ns, sound_bytes / 8 * 3);
    assert_eq!(slow_ns, slow_bytes / 8 * 30);
    let output = portolan(&format!("simulate --places 3 --map {places}"));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("places for 2 ranks, and the job has 3"),
        "{errors}"
    );
}
