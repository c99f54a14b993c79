//! `--faults` and `--fault-seed`: what is chosen goes wrong, and what cannot be meant is refused before
//! any rank starts.

use std::fs;
use std::process::{Command, Output, Stdio};

use tempfile::TempPath;

fn portolan(line: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PORTOLAN_") {
            command.env_remove(name);
        }
    }
    command
        .envs(variables.iter().copied())
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file of this test's own, removed at the end.
struct File(TempPath);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("portolan-{name}-");
        let mut builder = tempfile::Builder::new();
        let file = builder.prefix(&name).suffix(".toml").tempfile().unwrap();
        fs::write(file.path(), text).unwrap();
        Self(file.into_temp_path())
    }

    fn name(&self) -> String {
        self.0.display().to_string()
    }
}

#[test]
fn nonsense_is_2_with_line_and_reason_before_any_rank_starts() {
    let node = File::new("node", "seed = 1\n\n[[dead_node]]\nnode = 2\nat_ns = 5\n");
    let rate = File::new("rate", "[rates]\nlost_packets = -1\n");
    let key = File::new(
        "key",
        "\n[[dead_link]]\nnode = 0\nwire = \"x+\"\nat_ns = 5\n",
    );
    let missing = format!("{}.none", node.name());
    for (options, variables, words) in [
        (
            format!("--faults {}", node.name()),
            vec![],
            "line 3: node 2 is not one of the 2 nodes",
        ),
        (
            String::new(),
            vec![("PORTOLAN_SEASTAR_FAULTS", rate.0.to_str().unwrap())],
            "line 2",
        ),
        (format!("--faults {}", key.name()), vec![], "line 4"),
        (format!("--faults {missing}"), vec![], "No such file"),
        ("--fault-seed 7".to_owned(), vec![], "nothing goes wrong"),
        (
            "--fault-seed 7:lost_packets=2000000000".to_owned(),
            vec![],
            "want 0 to 1000000000",
        ),
        (
            "--fabric shm --fault-seed 7:lost_packets=2".to_owned(),
            vec![],
            "--fabric seastar",
        ),
    ] {
        for command in [
            "run -n 2 OPTIONS -- portolan probe",
            "trace -n 2 OPTIONS -- portolan probe",
            "bench pingpong OPTIONS --sizes 8 --iters 1",
        ] {
            if command.starts_with("trace") && options.contains("shm") {
                continue;
            }
            let output = portolan(&command.replace("OPTIONS", &options), &variables);
            let said = errors(&output);
            assert_eq!(output.status.code(), Some(2), "{command} {options}: {said}");
            assert!(said.contains(words), "{command} {options}: {said}");
        }
    }
    // A third node is there with three ranks.
    let line = format!("run -n 3 --faults {} -- portolan probe", node.name());
    let output = portolan(&line, &[]);
    assert!(output.status.success(), "{}", errors(&output));
}

/// Microseconds of a put and its ack.
fn latency(options: &str, variables: &[(&str, &str)]) -> f64 {
    let line = format!("bench put-latency --sizes 4K --iters 5 --json - {options}");
    let output = portolan(&line, variables);
    assert!(output.status.success(), "{}", errors(&output));
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    record["median"].as_f64().unwrap()
}

#[test]
fn what_is_chosen_goes_wrong() {
    let slow = File::new(
        "slow",
        "[[slow_dma]]\nnode = 1\nfrom_ns = 0\nuntil_ns = 1_000_000_000\npercent = 10\n",
    );
    for mode in ["generic", "accelerated"] {
        let mode = format!("--mode {mode}");
        let sound = latency(&mode, &[]);
        let slowed = latency(&format!("{mode} --faults {}", slow.name()), &[]);
        assert!(slowed > 1.5 * sound, "{mode}: {sound} {slowed}");
        let variable = [("PORTOLAN_SEASTAR_FAULTS", slow.0.to_str().unwrap())];
        assert!((latency(&mode, &variable) - slowed).abs() < 1e-9);
        let seed = ["7", "8"].map(|seed| {
            let wrong = format!("{mode} --fault-seed {seed}:link_bit_errors=200_000_000");
            let median = latency(&wrong, &[]);
            assert!((latency(&wrong, &[]) - median).abs() < 1e-9, "{wrong}");
            median
        });
        assert!(
            seed.iter().all(|median| *median > sound),
            "{seed:?} {sound}"
        );
    }
}

#[test]
fn a_node_that_fails_ends_the_job_with_an_error() {
    let dead = File::new("dead", "[[dead_node]]\nnode = 1\nat_ns = 60_000\n");
    for mode in ["generic", "accelerated"] {
        let line = format!(
            "bench put-latency --sizes 4K --iters 100 --mode {mode} --faults {}",
            dead.name()
        );
        let output = portolan(&line, &[]);
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        assert!(errors(&output).contains("fail"), "{}", errors(&output));
    }
}

#[test]
fn a_timeline_shows_retries_lost_packets_and_what_the_firmware_matches() {
    let (out, results) = (File::new("timeline", ""), File::new("results", ""));
    let line = format!(
        "trace -n 2 --mode accelerated --fault-seed 7:link_bit_errors=200_000_000,lost_packets=30_000_000 \
         --out {} -- portolan bench-rank pingpong --sizes 8 --iters 20 --out {}",
        out.name(),
        results.name()
    );
    let output = portolan(&line, &[]);
    assert!(output.status.success(), "{}", errors(&output));
    let timeline: serde_json::Value = serde_json::from_slice(&fs::read(&out.0).unwrap()).unwrap();
    let events = timeline["traceEvents"].as_array().unwrap();
    let named = |name: &str| {
        events
            .iter()
            .filter(|e| e["name"] == name)
            .collect::<Vec<_>>()
    };
    assert!(
        named("retry")
            .iter()
            .all(|e| e["args"]["times"].as_u64() > Some(0))
    );
    assert!(named("retry").len() > 5 && !named("fault: packet lost").is_empty());
    // Row 3 of a node is its firmware; nobody else matches in this mode.
    assert!(named("match").len() >= 40);
    assert!(
        named("match")
            .iter()
            .all(|e| e["tid"].as_u64().map(|t| t % 100) == Some(3))
    );
    assert!(named("put").len() >= 40, "calls of accelerated ranks");
}
