//! Measurements on the SeaStar model: result lines, tables, plots, and that virtual time repeats itself.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn portolan(line: &str) -> Output {
    portolan_in(&[], line)
}

fn portolan_in(variables: &[(&str, &str)], line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    for name in [
        "PORTOLAN_FABRIC",
        "PORTOLAN_DEVICE",
        "PORTOLAN_MACHINE",
        "PORTOLAN_MACHINE_SET",
        "PORTOLAN_MAP",
        "PORTOLAN_QUIET",
        "PORTOLAN_LOG",
    ] {
        command.env_remove(name);
    }
    command
        .args(line.split_whitespace())
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn success(line: &str) -> String {
    success_in(&[], line)
}

fn success_in(variables: &[(&str, &str)], line: &str) -> String {
    let output = portolan_in(variables, line);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const SHORT: &str = "bench pingpong put-latency get-latency put-bandwidth get-bandwidth put-bidirectional put-rate \
                     am-short am-medium am-long am-rate barrier match-depth \
                     tag-pingpong tag-posted --fabric seastar --sizes 8,1K --iters 3 --json -";

/// Both sides have more to send than buffers and credits: whoever waits for a buffer takes what arrives.
#[test]
fn long_puts_of_the_baseline_end() {
    let line = "bench segment-put-bandwidth --conduit portals,mpi --fabric seastar --sizes 1M --iters 1 --json -";
    let results = lines(&success(line));
    let medians: Vec<_> = results
        .iter()
        .map(|r| r["median"].as_f64().unwrap())
        .collect();
    // Its payload is copied twice.
    assert!(medians.len() == 2 && medians[1] < medians[0], "{medians:?}");
}

#[test]
fn every_measurement_gives_a_line_of_the_contract() {
    let results = lines(&success(SHORT));
    assert_eq!(results.len(), 12 * 2 + 3);
    for result in &results {
        let keys: Vec<_> =
            "bench fabric mode ranks bytes iters clock unit min median p99 max q1 q3"
                .split(' ')
                .collect();
        assert!(keys.iter().all(|k| result.get(*k).is_some()), "{result}");
        let number = |key: &str| result[key].as_f64().unwrap();
        assert_eq!(
            (&result["fabric"], &result["clock"]),
            (&"seastar".into(), &"virtual".into())
        );
        assert_eq!((number("ranks"), number("iters")), (2.0, 3.0), "{result}");
        assert!(
            0.0 < number("min") && number("min") <= number("median"),
            "{result}"
        );
        assert!(
            number("median") <= number("p99") && number("p99") <= number("max"),
            "{result}"
        );
        let quartiles = [number("min"), number("q1"), number("median"), number("q3")];
        assert!(
            quartiles.is_sorted() && number("q3") <= number("p99"),
            "{result}"
        );
    }
    let of = |bench: &str, bytes: u64| {
        let found = results
            .iter()
            .find(|r| r["bench"] == bench && r["bytes"] == bytes);
        found.unwrap()["median"].as_f64().unwrap()
    };
    // Longer messages take longer and use the wire better; an ack comes after what it acknowledges.
    assert!(of("pingpong", 1024) > of("pingpong", 8));
    assert!(of("put-bandwidth", 1024) > of("put-bandwidth", 8));
    assert!(of("put-latency", 8) > of("pingpong", 8));
    // A request and its reply are two messages; the one that is timed here carries no bytes.
    assert!(
        of("am-short", 0) > 2.0 * of("pingpong", 8) - 1.0
            && of("am-long", 1024) > of("am-short", 0)
    );
    assert!(of("am-rate", 0) > 1e6 / of("am-short", 0));
}

#[test]
fn the_model_gives_the_same_figures_every_time() {
    assert_eq!(success(SHORT), success(SHORT));
}

#[test]
fn tables_files_and_plots_come_from_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let (json, plots) = (folder.path().join("r.jsonl"), folder.path().join("plots"));
    let text = success(&format!(
        "bench pingpong put-bandwidth --fabric seastar --sizes 8,1K --iters 2 -n 3 --json {} --plot {}",
        json.display(),
        plots.display()
    ));
    assert!(
        text.contains("pingpong on seastar (generic, xt4), 3 ranks, virtual time, us"),
        "{text}"
    );
    assert!(
        text.contains("6.170"),
        "the published value at 8 bytes is missing: {text}"
    );
    assert_eq!(lines(&fs::read_to_string(json).unwrap()).len(), 4);
    for name in ["pingpong", "put-bandwidth"] {
        let svg = fs::read_to_string(plots.join(format!("{name}.svg"))).unwrap();
        assert!(
            svg.contains("<svg") && svg.contains("seastar (generic), modelled"),
            "{name}"
        );
        assert!(svg.contains("XT4-class"), "{name}");
    }
}

#[test]
fn bad_usage_is_2() {
    for (line, said) in [
        ("bench", "not provided:\n  <NAME>..."),
        ("bench teleport", "'teleport' for '<NAME>...'"),
        ("bench pingpong -n 1", "1 is not in 2..=4096"),
        ("bench pingpong --sizes 2G", "\"2G\" is more than 1G"),
        (
            "bench match-depth --sizes 1M",
            "match-depth goes up to 100000, not 1M",
        ),
        ("bench pingpong --iters 0", "0 is not in 1..=1000000"),
        (
            "bench pingpong --timeout abc",
            "a number of seconds is expected",
        ),
    ] {
        let output = portolan(line);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
        assert!(errors.contains(said), "{line}: {errors}");
        assert_eq!(output.stdout, b"", "{line}");
    }
}

#[test]
fn an_unknown_machine_is_named_before_ranks_start() {
    let output = portolan("bench pingpong --machine nosuch --sizes 8");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("nosuch"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

/// A parameter that is set is one of the machine file, wherever the choice comes from, and the result says so.
#[test]
fn a_parameter_that_is_set_is_that_of_the_machine_and_results_say_so() {
    const LINE: &str = "bench pingpong --fabric seastar --sizes 8 --iters 3 --json -";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slow.toml");
    let text = "name = \"slow\"\ndescription = \"a slow one\"\nbase = \"xt4\"\n[host]\n\
                interrupt_entry = { value = 2000000, unit = \"ps\", status = \"ours\", source = \"-\" }\n\
                trap = { value = 200000, unit = \"ps\", status = \"ours\", source = \"-\" }\n";
    std::fs::write(&file, text).unwrap();
    let of_file = lines(&success(&format!("{LINE} --machine {}", file.display())));
    let options = "--set host.interrupt_entry=2.0 --set host.trap=200ns";
    let mut of_options = lines(&success(&format!("{LINE} {options}")));
    let variable = [(
        "PORTOLAN_MACHINE_SET",
        "host.interrupt_entry=2.0,host.trap=200ns",
    )];
    let mut of_variable = lines(&success_in(&variable, LINE));
    let usual = lines(&success(LINE));
    for result in of_options.iter_mut().chain(&mut of_variable) {
        let command = result["origin"]["command"].take();
        assert!(command.as_str().unwrap().starts_with("portolan bench"));
    }
    assert_eq!(of_options, of_variable);
    assert_eq!(of_options[0]["median"], of_file[0]["median"]);
    assert!(of_options[0]["median"].as_f64() > usual[0]["median"].as_f64());
    assert_eq!(of_options[0]["machine"], "xt4");
    let said = "host.interrupt_entry=2.0, host.trap=200ns";
    assert_eq!(of_options[0]["set"], said);
    assert_eq!(usual[0].get("set"), None);
    let table = success(&format!("bench pingpong --sizes 8 --iters 3 {options}"));
    assert!(table.contains(&format!("xt4 with {said}")), "{table}");
}

/// Jobs that run at once, so that their ranks come to each meeting in another order each time.
#[test]
fn tagged_messages_take_the_same_virtual_time_in_every_run() {
    let folder = tempfile::tempdir().unwrap();
    let timeline = &|run: usize| {
        let file = folder.path().join(run.to_string());
        let variable = [("PORTOLAN_TRACE", file.to_str().unwrap())];
        success_in(
            &variable,
            "bench tag-posted --fabric seastar --sizes 0 --iters 1",
        );
        std::fs::read_to_string(file).unwrap()
    };
    let all: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..16)
            .map(|run| scope.spawn(move || timeline(run)))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert!(all[0].contains("eq wait"), "{}", all[0]);
    for (run, timeline) in all.iter().enumerate() {
        assert!(*timeline == all[0], "run {run} has another timeline");
    }
}

#[test]
fn a_map_puts_a_pair_further_apart_and_each_hop_costs_what_the_machine_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let line = "bench pingpong --fabric seastar --topology 8x1x1 --sizes 8 --iters 3 --json -";
    let median = |map: &str| -> f64 {
        let results = lines(&success(&format!("{line} {map}")));
        results[0]["median"].as_f64().unwrap()
    };
    let near = median("");
    assert_eq!(median("--map linear"), near);
    let far = median(&format!("--map {}", file("far", "0\n4 0 0\n")));
    // Three more routers and wires, of 50 ns and 5 ns.
    assert!((far - near - 3.0 * 0.055).abs() < 1e-9, "{near} {far}");
    let drawn = lines(&success(&format!("{line} --map random:7")));
    assert_eq!(drawn[0]["map"], "random:7");
    assert_eq!(lines(&success(line))[0].get("map"), None);
    let table = line.replace("--json -", "--map blocked:2");
    let table = success(&table);
    assert!(table.contains("(generic, xt4, map blocked:2)"), "{table}");
    let near = median("--mode accelerated");
    let offloaded = median(&format!(
        "--mode accelerated --map {}",
        file("far", "0\n4 0 0\n")
    ));
    assert!(
        (offloaded - near - 3.0 * 0.055).abs() < 1e-9,
        "{near} {offloaded}"
    );
    let by_variable = [("PORTOLAN_MAP", file("opposite", "5\n1\n"))];
    let by_variable = by_variable
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let results = lines(&success_in(&by_variable, line));
    assert_eq!(results[0]["median"], far);
    let place = "is not one of the 8 of the grid 8x1x1";
    for (map, said) in [
        (
            file("short", "3\n"),
            "there are places for 1 ranks, and the job has 2",
        ),
        (file("outside", "0\n8\n"), place),
        (
            file("twice", "2\n2\n"),
            "line 2: place 2 of rank 1 is that of rank 0",
        ),
        ("random:".to_owned(), "the seed is a whole number"),
    ] {
        let output = portolan(&format!("{line} --map {map}"));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said), "{errors}");
    }
}

#[test]
fn a_parameter_that_does_not_exist_is_answered_with_those_like_it() {
    for (line, said) in [
        (
            "bench pingpong --set host.interupt_entry=2",
            "\"host.interupt_entry\" is not a parameter; is it host.interrupt_entry?",
        ),
        (
            "run -n 2 --set host.trap=75000 -- true",
            "host.trap = 75000 us, want 0 us to 100 us",
        ),
    ] {
        let output = portolan(line);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{errors}");
        assert!(errors.contains(said), "{errors}");
    }
}

#[test]
fn files_that_cannot_be_written_or_read_are_a_failure_before_anything_is_measured() {
    for (line, said) in [
        (
            "bench pingpong --sizes 8 --iters 1 --json /nonexistent/r.jsonl",
            "cannot create /nonexistent/r.jsonl: No such file or directory (os error 2); make /nonexistent first",
        ),
        (
            "bench pingpong --sizes 8 --iters 1 --json /",
            "cannot create /: Is a directory",
        ),
        (
            "bench pingpong --sizes 8 --iters 1 --plot /proc/no",
            "cannot make the folder /proc/no: ",
        ),
        (
            "bench pingpong --sizes 8 --iters 1 --plot /tmp --beside /nonexistent/r.jsonl",
            "cannot read /nonexistent/r.jsonl: No such file",
        ),
        (
            "demo --sizes 8 --out /proc/no",
            "cannot make the folder /proc/no: ",
        ),
    ] {
        let output = portolan(line);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(said), "{line}: {errors}");
        assert_eq!(output.stdout, b"", "{line}");
    }
}

#[test]
fn a_measurement_that_fails_leaves_no_file_and_an_old_one_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    fs::write(&old, "results of yesterday\n").unwrap();
    for file in [&old, &new] {
        let file = file.display();
        let output = portolan(&format!("bench pingpong --machine nosuch --json {file}"));
        assert_eq!(output.status.code(), Some(3));
    }
    assert_eq!(fs::read_to_string(old).unwrap(), "results of yesterday\n");
    assert!(!new.exists());
}

#[test]
fn the_list_names_every_measurement_and_measures_nothing() {
    let list = success("bench list");
    assert_eq!(list.lines().count(), 27);
    for name in ["pingpong", "am-threads", "random-put"] {
        assert!(
            list.lines().any(|l| l.starts_with(&format!("{name} "))),
            "{list}"
        );
    }
    for (line, said) in [
        ("bench all list", "all and list stand alone"),
        (
            "bench all --sizes 8",
            "all measures each at sizes of its own",
        ),
    ] {
        let output = portolan(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.contains(said) && errors.contains("Usage: portolan bench"),
            "{errors}"
        );
    }
}

#[test]
fn the_demo_prints_tables_and_names_the_folder_of_its_plots() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let text = success(&format!("demo --sizes 8,1K --out {}", out.display()));
    for words in [
        "pingpong on seastar",
        "am-long on seastar",
        "modelled, not measured",
        "6.170",
        "inferred",
    ] {
        assert!(text.contains(words), "{words} is missing: {text}");
    }
    assert!(
        text.ends_with(&format!(
            "6 plots, results.jsonl and report.html are in {}\n",
            out.display()
        )),
        "{text}"
    );
    assert_eq!(
        lines(&fs::read_to_string(out.join("results.jsonl")).unwrap()).len(),
        12
    );
    assert_eq!(fs::read_to_string(out.join(".gitignore")).unwrap(), "*\n");
    assert!(
        fs::read_to_string(out.join("pingpong.svg"))
            .unwrap()
            .contains("XT4-class")
    );
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("A put, step by step") && page.contains("am-long"));
    // A folder that was there keeps what is in it.
    success(&format!("demo --sizes 8 --out {}", folder.path().display()));
    assert!(!folder.path().join(".gitignore").exists());
}

#[test]
fn info_says_of_each_fabric_whether_and_why() {
    let found = lines(&success("info --json"));
    let fabric = |name: &str| found.iter().find(|l| l["fabric"] == name).unwrap();
    assert_eq!(fabric("seastar")["usable"], true);
    let taken = &found[0];
    assert_eq!(
        (&taken["kind"], &taken["asked"]),
        (&"choice".into(), &"auto".into())
    );
    assert_eq!(taken["one_machine"], "shm");
    let verbs = fabric("verbs");
    assert_eq!(
        taken["between_machines"] == "verbs",
        verbs["usable"] == true
    );
    assert!(verbs["usable"] == true || verbs["reason"].as_str().is_some_and(|r| !r.is_empty()));
    assert!(found.iter().any(|l| l["kind"] == "guest"));
    assert!(
        success("info")
            .lines()
            .any(|l| l.starts_with("seastar") && l.ends_with(" usable"))
    );
}

/// Each length of each operation has one protocol on a fabric that can be used, and one that cannot says why.
#[test]
fn info_prints_which_protocol_carries_what() {
    let found = lines(&success("info --protocols --json"));
    let mut fabrics = Vec::new();
    for line in &found {
        fabrics.push(line["fabric"].as_str().unwrap());
        if line["kind"] == "fabric" {
            assert!(!line["reason"].as_str().unwrap().is_empty(), "{line}");
            continue;
        }
        let rows = line["rows"].as_array().unwrap();
        let mut next = Some(0);
        let mut last = None;
        for row in rows {
            let of = (row["operation"].as_str(), row["reached"].as_str());
            if last.replace(of) != Some(of) {
                assert!(next.is_none() || next == Some(0), "{line}");
                next = Some(0);
            }
            assert_eq!(row["from"].as_u64(), next, "{row} in {line}");
            next = row["to"].as_u64().map(|to| to + 1);
            assert!(!row["why"].as_str().unwrap().is_empty(), "{row}");
        }
        assert!(!rows.is_empty() && next.is_none(), "{line}");
    }
    fabrics.dedup();
    assert!(fabrics.starts_with(&["seastar", "verbs"]) && fabrics.ends_with(&["shm"]));
    let short = found.iter().find(|l| l["fabric"] == "shm").unwrap();
    let put = |r: &&Value| r["operation"] == "put" && r["reached"] == "matched";
    let put = short["rows"].as_array().unwrap().iter().find(put).unwrap();
    assert_eq!((&put["name"], &put["to"]), (&"short".into(), &216.into()));
    let text = success("info --protocols");
    let rows = text
        .lines()
        .filter(|l| l.trim_start().starts_with("put  matched"));
    assert!(rows.count() >= 5, "{text}");
}

#[test]
fn info_says_what_the_environment_comes_to() {
    for (name, value, line) in [
        ("PORTOLAN_FABRIC", "auto", "taken    shm on one machine"),
        ("PORTOLAN_FABRIC", "roce", "taken    verbs on one machine"),
        (
            "PORTOLAN_MACHINE",
            "xt3",
            "taken    seastar on one machine, nothing",
        ),
        (
            "PORTOLAN_FABRIC",
            "myrinet",
            "taken    unknown fabric \"myrinet\"",
        ),
    ] {
        let text = success_in(&[(name, value)], "info");
        assert!(text.starts_with(line), "{name}={value}: {text}");
    }
}

/// Without a fabric two ranks of one machine share its memory, which one line says.
#[test]
fn a_measurement_takes_memory_and_says_so_once() {
    let line = "bench pingpong --sizes 8 --iters 1";
    let of = |variables: &[(&str, &str)]| {
        let output = portolan_in(variables, line);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        (String::from_utf8(output.stdout).unwrap(), errors)
    };
    let (text, errors) = of(&[]);
    assert!(text.contains("pingpong on shm"), "{text}");
    let said = "portolan: fabric shm: all 2 ranks are on one machine\n";
    assert_eq!(errors, said);
    assert_eq!(of(&[("PORTOLAN_QUIET", "1")]).1, "");
    assert_eq!(of(&[("PORTOLAN_QUIET", "0")]).1, said);

    let (text, errors) = of(&[("PORTOLAN_MACHINE", "xt3")]);
    assert!(
        text.contains("pingpong on seastar (generic, xt3)"),
        "{text}"
    );
    let said = "portolan: fabric seastar (a simulation): only the model has --machine (PORTOLAN_MACHINE)\n";
    assert_eq!(errors, said);

    // Who names a fabric is not told what was taken.
    let (text, errors) = of(&[("PORTOLAN_FABRIC", "shm")]);
    assert!(
        text.contains("pingpong on shm") && errors.is_empty(),
        "{errors}"
    );
}

/// One rank of a job prints the table, if it is asked to.
#[test]
fn a_job_prints_its_protocols_once_if_asked() {
    for (value, times) in [("1", 1), ("0", 0), ("", 0)] {
        for fabric in ["shm", "seastar"] {
            let line = format!("bench pingpong --fabric {fabric} --sizes 8 --iters 1 --json -");
            let output = portolan_in(&[("PORTOLAN_PROTO_INFO", value)], &line);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{said}");
            let heads = said
                .lines()
                .filter(|l| l.starts_with(&format!("{fabric}: ")));
            assert_eq!(heads.count(), times, "{fabric} {value:?}: {said}");
        }
    }
}

#[test]
fn info_says_what_the_library_finds_of_the_machine() {
    let found = lines(&success_in(
        &[("PMIX_NAMESPACE", "job.7"), ("PORTOLAN_FABRIK", "shm")],
        "info --json",
    ));
    let host = found.iter().find(|l| l["kind"] == "host").unwrap();
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    assert_eq!(host["kernel"], read("/proc/sys/kernel/osrelease").trim());
    for probe in ["pidfd", "copies"] {
        let works = host[probe]["works"].as_bool().unwrap();
        assert_eq!(works, host[probe]["reason"].is_null(), "{host}");
    }
    let pid = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let namespaces = host["namespaces"].as_array().unwrap();
    let own = namespaces.iter().find(|n| n["namespace"] == "pid").unwrap();
    let id = own["id"].as_str().unwrap();
    assert_eq!(pid.to_string_lossy(), format!("pid:[{id}]"));
    assert_eq!(host["dumpable"], true);
    let processors = host["processors"].as_array().unwrap().len();
    assert!(processors > 0 && host["at_once"].as_u64().unwrap() as usize <= processors);
    assert!(host["memory"]["machine"].as_u64().unwrap() > 0);
    assert!(host["descriptors"].is_object());
    let launchers = host["launchers"].as_array().unwrap();
    assert!(
        launchers
            .iter()
            .any(|l| l["launcher"] == "PMIx" && l["found"] == "PMIX_NAMESPACE=job.7")
    );
    let unknown = host["variables"][0].as_str().unwrap();
    assert!(unknown.starts_with("PORTOLAN_FABRIK"), "{unknown}");
    // What stands under a fabric is that fabric's.
    let kinds: Vec<_> = found.iter().map(|l| l["kind"].as_str().unwrap()).collect();
    let at = |name: &str| found.iter().position(|l| l["fabric"] == name).unwrap();
    let (verbs, shm) = (at("verbs"), at("shm"));
    for (at, kind) in kinds.iter().enumerate() {
        if ["library", "device", "port", "gid"].contains(kind) {
            assert!(verbs < at && at < shm, "{kinds:?}");
        }
    }
}

/// Less than the machine has is what is said: processors, descriptors, locked memory.
#[test]
fn info_sees_the_limits_that_it_was_started_with() {
    let first = lines(&success("info --json"));
    let first = first.iter().find(|l| l["kind"] == "host").unwrap();
    let processor = first["processors"][0].as_u64().unwrap();
    let script = format!(
        "ulimit -n 100 && ulimit -l 64 && exec taskset -c {processor} {} info --json",
        env!("CARGO_BIN_EXE_portolan")
    );
    let Ok(output) = Command::new("taskset").arg("--version").output() else {
        eprintln!("skipped: no taskset");
        return;
    };
    assert!(output.status.success());
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let found = lines(&String::from_utf8(output.stdout).unwrap());
    let host = found.iter().find(|l| l["kind"] == "host").unwrap();
    assert_eq!(host["processors"], serde_json::json!([processor]));
    assert_eq!(host["at_once"], 1);
    assert_eq!(host["descriptors"]["soft"], 100);
    assert_eq!(host["memory"]["locked"], 65_536);
}

/// A filter of system calls that refuses to tell the limits makes them unknown, and not endless.
#[test]
fn info_says_that_it_does_not_know_limits_that_the_system_does_not_tell() {
    let Some(deny) = deny::Deny::compile() else {
        return;
    };
    let said = |more: &[&str]| {
        let mut filtered = deny.command("EPERM", "prlimit64");
        filtered.args([env!("CARGO_BIN_EXE_portolan"), "info"]);
        let output = filtered.args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = said(&[]);
    let limits = "locked memory not known, addresses left not known";
    assert!(text.contains(limits), "{text}");
    let all = lines(&said(&["--json"]));
    let memory = &all.iter().find(|l| l["kind"] == "host").unwrap()["memory"];
    let unknown = serde_json::json!(["locked", "addresses_left"]);
    assert_eq!(memory["unknown"], unknown);
    assert!(memory.get("locked").is_none());
}

/// Each parameter of Firehose, and what it changes.
#[test]
fn every_parameter_of_firehose_changes_what_it_says() {
    let line = "firehose --fabric seastar --memory 8M --operations 192";
    let said = success_in(&[("GASNET_FIREHOSE_M", "1K")], line);
    assert!(said.contains("modelled"), "{said}");
    let rows: Vec<Vec<&str>> = said
        .lines()
        .filter(|l| l.starts_with("| "))
        .map(|l| l.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let column = |name: &str| rows[0].iter().position(|c| *c == name).unwrap();
    let of = |row: &str, name: &str| -> f64 {
        let found = rows.iter().find(|r| r[0] == row);
        let found = found.unwrap_or_else(|| panic!("no {row}: {said}"));
        let cell = found[column(name)].trim_end_matches(" %");
        cell.parse().unwrap_or_else(|_| panic!("{cell}: {said}"))
    };
    let base = "nothing more";
    for (row, name, more) in [
        ("M=1M", "requests", true),
        ("M=1M", "put 8 B, µs", true),
        ("M=16M", "requests", false),
        ("M=16M", "pinned, MiB", true),
        ("MAXVICTIM_M=512K", "own pins", true),
        ("MAXVICTIM_M=16M", "own pins", false),
        ("MAXREGION_SIZE=4K", "pinned, MiB", false),
        ("USE_FIREHOSE=no", "own pins", false),
        ("RDMA_GETS=no", "copies", true),
        ("RDMA_GETS=no", "get 16 KiB, µs", true),
        ("PACKEDLONG_LIMIT=0", "Long 1500 B, µs", true),
    ] {
        let (found, before) = (of(row, name), of(base, name));
        let changed = if more { found > before } else { found < before };
        assert!(changed, "{row}: {name} {found}, {before} before: {said}");
    }
}

/// Memory that is held costs a put next to nothing, and no message; memory that is not, one exchange of messages. The
/// same each time: time is virtual.
#[test]
fn puts_to_memory_that_is_held_cost_what_puts_into_a_segment_do() {
    let line = "bench random-put --fabric seastar --sizes 1M,32M,256M --iters 4 --json -";
    // Both at one time, as each takes long.
    let (results, again) = std::thread::scope(|scope| {
        let again = scope.spawn(|| lines(&success(line)));
        (lines(&success(line)), again.join().unwrap())
    });
    let found = |pinning: &str, set: u64| {
        let row = results
            .iter()
            .find(|r| r["pinning"] == pinning && r["working_set"] == set);
        let row = row.unwrap_or_else(|| panic!("no {pinning} at {set}: {results:?}"));
        (row["median"].as_f64().unwrap(), row["hits"].as_f64())
    };
    const SMALL: u64 = 1 << 20;
    const LARGE: u64 = 256 << 20;
    let (whole, _) = found("whole", SMALL);
    // A little, and all that may be held.
    for set in [SMALL, 32 << 20] {
        let (held, hits) = found("firehose", set);
        assert_eq!(hits, Some(1.0), "all of it is held");
        assert!(held - whole <= 0.5, "{held} us, {whole} us into a segment");
    }
    let (held, _) = found("firehose", SMALL);
    let (each_time, hits) = found("rendezvous", SMALL);
    assert_eq!(hits, Some(0.0), "no page stays pinned");
    // Whoever may hold one page misses with every put.
    let one_page = [
        ("GASNET_FIREHOSE_M", "4K"),
        ("GASNET_FIREHOSE_MAXVICTIM_M", "16K"),
        ("GASNET_FIREHOSE_MAXREGION_SIZE", "4K"),
    ];
    let line_of_misses =
        "bench random-put --fabric seastar --sizes 1M --iters 4 --pinning firehose --json -";
    let row = &lines(&success_in(&one_page, line_of_misses))[0];
    let miss = row["median"].as_f64().unwrap();
    assert!(row["hits"].as_f64().unwrap() < 0.05, "{row}");
    let request = lines(&success(
        "bench am-medium --fabric seastar --sizes 64 --iters 4 --json -",
    ));
    let request = request[0]["median"].as_f64().unwrap();
    // A request, its answer, and what pinning and unpinning a page takes.
    assert!(
        miss - whole <= 1.5 * request,
        "{miss} us, {whole} us into a segment, {request} us for a request and its answer"
    );
    assert!(
        miss < each_time,
        "a rendezvous says when it is over: {each_time} us, {miss} us for a miss"
    );
    let (some, hits) = found("firehose", LARGE);
    let hits = hits.unwrap();
    assert!(hits > 0.02 && hits < 0.5, "{hits}: an eighth is held");
    assert!(held < some && some < found("rendezvous", LARGE).0);
    assert_eq!(again, results);
}

/// What a message without a slot costs is invented, and the rate beyond the slots hangs on it; the rate below does not.
#[test]
fn sensitivity_names_the_invented_parameters_that_move_a_result() {
    let line = "bench puts-in-flight --fabric seastar -n 2 --sizes 8,512 --iters 1 --json - \
                --sensitivity=protocol.beyond_slots,host.match_entry";
    let results = lines(&success(line));
    let moved = |at: usize| -> Vec<String> {
        let all = results[at]["moved_by"].as_array().unwrap();
        let name = |m: &Value| m["parameter"].as_str().unwrap().to_owned();
        all.iter().map(name).collect()
    };
    let slots = "protocol.beyond_slots".to_owned();
    assert!(!moved(0).contains(&slots), "{:?}", results[0]);
    assert!(moved(1).contains(&slots), "{:?}", results[1]);
    let of_slots = results[1]["moved_by"].as_array().unwrap().iter();
    let mut of_slots = of_slots.filter(|m| m["parameter"] == *slots);
    let of_slots = of_slots.next().unwrap();
    assert!(of_slots["halved"].as_f64() > Some(0.1), "{of_slots}");
    assert!(of_slots["doubled"].as_f64() < Some(-0.1), "{of_slots}");
}

#[test]
fn sensitivity_is_of_the_model() {
    let output = portolan("bench pingpong --fabric shm --sizes 8 --sensitivity");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("--sensitivity is of the parameters of --fabric seastar"),
        "{said}"
    );
}
