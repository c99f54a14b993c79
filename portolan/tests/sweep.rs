//! `portolan sweep`: a grid of machine parameters as a table, CSV, JSON and a plot, and what is refused before it begins.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::{Map, Value};

fn portolan(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    for name in [
        "PORTOLAN_FABRIC",
        "PORTOLAN_MACHINE",
        "PORTOLAN_MACHINE_SET",
        "PORTOLAN_QUIET",
        "PORTOLAN_LOG",
    ] {
        command.env_remove(name);
    }
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command.output().unwrap()
}

fn success(line: &str) -> String {
    let output = portolan(line);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_grid_is_measured_in_order_and_each_point_is_what_bench_gives() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (csv, json, plot) = (file("r.csv"), file("r.json"), file("r.svg"));
    let text = success(&format!(
        "sweep --set host.interrupt_entry=1.0,3us --set protocol.inline_data=0,12 --csv {} --json {} --plot {} \
         -- bench pingpong --sizes 8 --iters 3",
        csv.display(),
        json.display(),
        plot.display()
    ));
    let rows: Vec<Map<String, Value>> =
        serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let of = |row: &Map<String, Value>| {
        let number = |key: &str| row[key].as_f64().unwrap();
        (
            number("host.interrupt_entry"),
            number("protocol.inline_data"),
        )
    };
    let points: Vec<_> = rows.iter().map(of).collect();
    assert_eq!(points, [(1.0, 0.0), (1.0, 12.0), (3.0, 0.0), (3.0, 12.0)]);
    for row in &rows {
        assert!(
            row.values().all(|v| v.is_number() || v.is_string()),
            "{row:?}"
        );
        let (entry, inline) = of(row);
        let alone = success(&format!(
            "bench pingpong --sizes 8 --iters 3 --json - --set host.interrupt_entry={entry} --set protocol.inline_data={inline}"
        ));
        let alone: Value = serde_json::from_str(&alone).unwrap();
        for key in ["median", "min", "max", "machine", "mode", "ranks", "bound"] {
            assert_eq!(row.get(key), alone.get(key), "{entry} {inline} {key}");
        }
    }
    let medians: Vec<f64> = rows.iter().map(|r| r["median"].as_f64().unwrap()).collect();
    assert!(
        medians[1] < medians[0] && medians[0] < medians[2],
        "{medians:?}"
    );
    let csv = fs::read_to_string(csv).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines[0].starts_with("host.interrupt_entry,protocol.inline_data,bench,"),
        "{csv}"
    );
    assert!(
        lines.len() == 5 && lines[3].starts_with("3,0,pingpong,8,us,"),
        "{csv}"
    );
    assert!(
        text.starts_with("pingpong on seastar (generic, xt4), 2 ranks, virtual time, us"),
        "{text}"
    );
    let cells = |row: usize| {
        let line = text.lines().filter(|l| l.starts_with('│')).nth(row + 2);
        let cells = line.unwrap().trim_matches('│').split('┆');
        cells.map(|c| c.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(cells(2)[..3], ["3", "0", "8"], "{text}");
    assert_eq!(cells(2)[4], format!("{:.2}", medians[2]), "{text}");
    let svg = fs::read_to_string(plot).unwrap();
    assert!(
        svg.contains("protocol.inline_data=12), modelled")
            && svg.contains("host.interrupt_entry, µs")
    );
    let page = file("page.html");
    success(&format!("view {} -o {}", json.display(), page.display()));
    assert!(
        fs::read_to_string(page)
            .unwrap()
            .contains("portolan sweep --set")
    );
}

#[test]
fn either_form_goes_to_standard_output() {
    let bench = "-- bench put-latency barrier --sizes 8 --iters 1";
    let json = success(&format!("sweep --set host.trap=0.2 --json - {bench}"));
    let rows: Vec<Map<String, Value>> = serde_json::from_str(&json).unwrap();
    let names: Vec<_> = rows.iter().map(|r| r["bench"].as_str().unwrap()).collect();
    assert_eq!(names, ["put-latency", "barrier"]);
    let csv = success(&format!("sweep --set host.trap=0.2 --csv - {bench}"));
    assert_eq!(csv.lines().count(), 3);
    let tables = success(&format!("sweep --set host.trap=0.2 {bench}"));
    assert_eq!(tables.matches("host.trap").count(), 2, "{tables}");
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.csv");
    let hundred: Vec<String> = (0..32).map(|i| i.to_string()).collect();
    let many = format!(
        "--set host.trap={0} --set host.api_call={0} -- bench pingpong",
        hundred.join(",")
    );
    for (line, said) in [
        (
            "--set host.trap=1,2 bench pingpong",
            "-- stands before bench and its words",
        ),
        ("--set host.trap=1,2", "<bench NAME>"),
        (
            "--set host.trap=1,2 -- gups",
            "\"gups\" stands after the --; bench and its words",
        ),
        ("--set host.trap= -- bench pingpong", "a value is missing"),
        (
            "--set host.trap=1,,2 -- bench pingpong",
            "a value is missing",
        ),
        ("--set host.trapp=1 -- bench pingpong", "is it host.trap?"),
        (
            "--set host.trap=1,soon -- bench pingpong",
            "\"host.trap=soon\": a number of microseconds",
        ),
        (
            &many,
            "the grid has 1024 points, and 1000 at most are measured",
        ),
        (
            "--set host.trap=1 -- bench pingpong --fabric shm",
            "parameters of --fabric seastar; here the fabric is shm",
        ),
        (
            "--set host.trap=1 -- bench pingpong --set host.trap=2",
            "host.trap has a list of values, and one value",
        ),
        (
            "--set host.trap=1 -- bench pingpong --json x",
            "--json stands among the words of bench",
        ),
        ("--set host.trap=1 -- bench list", "list measures nothing"),
        (
            "--set host.trap=1 -- bench am-medium --sizes 1M",
            "am-medium goes up to",
        ),
        (
            "--set host.trap=1 --plot p -- bench pingpong barrier",
            "--plot draws one measurement, and bench has 2",
        ),
        (
            "--set host.trap=1 --json - -- bench pingpong",
            "both want standard output",
        ),
    ] {
        let csv = match line.contains("--json -") {
            true => "-".to_owned(),
            false => file.display().to_string(),
        };
        let output = portolan(&format!("sweep --csv {csv} {line}"));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
        assert!(errors.contains(said), "{line}: {errors}");
        assert!(output.stdout.is_empty() && !file.exists(), "{line}");
    }
    let output = portolan("sweep --set host.trap=1 --csv /nonexistent/r.csv -- bench pingpong");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("make /nonexistent first"), "{errors}");
}

#[test]
fn a_point_that_fails_is_named_and_no_file_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.csv");
    let output = portolan(&format!(
        "sweep --set protocol.inline_data=12,0 --csv {} -- bench pingpong --sizes 8 --iters 1 --timeout 0.000001",
        file.display()
    ));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(124), "{errors}");
    let said = "portolan sweep: point 1 of 2: protocol.inline_data=12: ended with status 124; no result is printed";
    assert!(errors.contains(said), "{errors}");
    assert!(output.stdout.is_empty() && !file.exists());
}
