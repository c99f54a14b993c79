//! What the environment says: trace and statistics files, help for debugging, the largest segment.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::programs::{Build, FABRICS, SEQ, compile, compiler, launch, places, text};

/// Runs a program with variables and files of its own; what it said, and the files' texts by rank.
fn traced(
    program: &Path,
    fabric: &str,
    name: &str,
    vars: &[(&str, &str)],
) -> (String, Vec<String>) {
    let stem = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{fabric}"));
    let pattern = format!("{}.%", stem.display());
    let files: Vec<PathBuf> = (0..2)
        .map(|r| format!("{}.{r}", stem.display()).into())
        .collect();
    for file in &files {
        let _ = std::fs::remove_file(file);
    }
    let output = Command::new(&places().launcher)
        .args([
            "run",
            "-n",
            "2",
            "--timeout",
            "120",
            "--fabric",
            fabric,
            "--",
        ])
        .arg(program)
        .envs(vars.iter().map(|(k, v)| (*k, v.replace("FILE", &pattern))))
        .output()
        .unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let read = |f: &PathBuf| std::fs::read_to_string(f).unwrap_or_default();
    (said, files.iter().map(read).collect())
}

#[test]
fn trace_and_statistics_of_a_program() {
    if !compiler("cc") {
        return;
    }
    let debug = Build {
        flags: &["-std=gnu99", "-DGASNET_DEBUG"],
        ..SEQ
    };
    let program = compile("gasnet_calls", debug);
    for fabric in FABRICS {
        let (said, files) = traced(
            &program,
            fabric,
            "calls-trace",
            &[("GASNET_TRACEFILE", "FILE")],
        );
        assert!(said.contains("GASNet reporting enabled"), "{said}");
        for (rank, file) in files.iter().enumerate() {
            for words in [
                format!("{rank}> gasnet_nodes(): 2"),
                format!("I am thread {rank} of 2"),
                "gasnet_calls.c:".to_owned(),
                "(P) PUT: sz =".to_owned(),
                "(G) GET_NB_BULK: sz =".to_owned(),
                "(A) AMREQUEST_MEDIUM: dest=".to_owned(),
                "(A) AMREPLY_SHORT_HANDLER: src=".to_owned(),
                "(B) BARRIER_WAIT: waittime =".to_owned(),
                "(S) WAIT_SYNCNB: waittime =".to_owned(),
                "(W) COLL_BROADCAST: sz =".to_owned(),
                "(L) HSL_LOCK: waittime =".to_owned(),
                "GASNet Statistical Summary:".to_owned(),
                "Total puts:".to_owned(),
                "(C) # credits of rank".to_owned(),
            ] {
                assert!(file.contains(&words), "{fabric} {rank}: no {words}");
            }
            assert!(file.lines().all(|l| l.starts_with(&rank.to_string())));
        }
    }
    // A mask, one rank, and statistics alone.
    let vars = [
        ("GASNET_TRACEFILE", "FILE"),
        ("GASNET_TRACEMASK", "B"),
        ("GASNET_STATSMASK", "G"),
        ("GASNET_TRACENODES", "1"),
    ];
    let (_, files) = traced(&program, "shm", "calls-mask", &vars);
    assert!(files[0].is_empty() && files[1].contains("(B) BARRIER_WAIT"));
    assert!(!files[1].contains("(P)") && !files[1].contains("gasnet_calls.c"));
    assert!(files[1].contains("  GET_BULK:") && !files[1].contains("  PUT_BULK:"));
    let (_, files) = traced(
        &program,
        "shm",
        "calls-stats",
        &[("GASNET_STATSFILE", "FILE")],
    );
    assert!(
        files
            .iter()
            .all(|f| f.contains("PUT_NBI_BULK:") && !f.contains("s> "))
    );
    // What the program says itself.
    let program = compile("gasnet_tools_calls", SEQ);
    let (_, files) = traced(
        &program,
        "shm",
        "tools-trace",
        &[("GASNET_TRACEFILE", "FILE")],
    );
    for words in [
        "gasnet_tools_calls.c:4711] (H) a message of the program: 1",
        "(H) a message that is forced",
        "0> statistics of the program: 42",
        "(I) Setting GASNET_TRACEMASK to: GP",
    ] {
        assert!(files[0].contains(words), "no {words}");
    }
    assert!(!files[0].contains("masked"));
}

#[test]
fn help_for_debugging() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_ends", SEQ);
    let run = |how: &str, vars: &[(&str, &str)]| {
        let output = Command::new(&places().launcher)
            .args(["run", "-n", "2", "--timeout", "60", "--fabric", "shm", "--"])
            .arg(&program)
            .arg(how)
            .envs(vars.iter().copied())
            .output()
            .unwrap();
        (output.status.code(), text(&output))
    };
    let (code, said) = run("range", &[("GASNET_BACKTRACE", "1")]);
    assert!(code == Some(134) && said.contains("gasnet_put"), "{said}");
    assert!(
        said.lines().filter(|l| l.starts_with("[0] ")).count() > 2,
        "{said}"
    );
    let (_, said) = run("range", &[]);
    assert!(!said.contains("\n[0] "), "{said}");
    let vars = [("GASNET_BACKTRACE", "1"), ("GASNET_BACKTRACE_NODES", "1")];
    assert!(!run("range", &vars).1.contains("\n[0] "));
    let (code, said) = run("crash", &[]);
    assert!(
        code == Some(139) && said.contains("*** Caught a fatal signal: SIGSEGV(11) on node 0/2"),
        "{said}"
    );
    let (_, said) = run("crash", &[("GASNET_NO_CATCH_SIGNAL", "SEGV")]);
    assert!(!said.contains("Caught"), "{said}");
    let (code, said) = run("exit", &[("GASNET_VERBOSEENV", "1")]);
    assert!(
        code == Some(7) && said.contains("ENV parameter: GASNET_FREEZE = NO"),
        "{said}"
    );
}

#[test]
fn frozen_ranks_go_on_when_told_to() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_ends", SEQ);
    let mut job = Command::new(&places().launcher)
        .args(["run", "-n", "2", "--timeout", "60", "--fabric", "shm", "--"])
        .arg(&program)
        .arg("exit")
        .env("GASNET_FREEZE", "1")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut frozen = 0;
    for line in BufReader::new(job.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((_, pid)) = line.split_once("kill -CONT ") else {
            continue;
        };
        let pid = pid.trim_end_matches("`)");
        let sent = Command::new("kill").args(["-CONT", pid]).status().unwrap();
        assert!(sent.success());
        frozen += 1;
    }
    assert_eq!((frozen, job.wait().unwrap().code()), (2, Some(7)));
}

/// `GASNET_MAX_SEGSIZE` counts in whole pages, a segment beyond it is refused, and so is a text that is no size.
#[test]
fn the_largest_segment_can_be_chosen() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_errors", SEQ);
    let run = |size: &str, bytes: &str| {
        let output = launch("shm", 2, &program, &[bytes])
            .env("GASNET_MAX_SEGSIZE", size)
            .env("GASNET_VERBOSEENV", "1")
            .output()
            .unwrap();
        (output.status.success(), text(&output))
    };
    for (size, bytes) in [
        ("64K", "65536"),
        ("1M", "1048576"),
        ("0.5m", "524288"),
        ("0x20000", "131072"),
        ("70000", "69632"),
    ] {
        let (success, said) = run(size, bytes);
        assert!(success, "{size}: {said}");
        assert!(
            said.contains(&format!("GASNET_MAX_SEGSIZE = {size}")),
            "{said}"
        );
    }
    let (success, said) = run("large", "0");
    let refused = "GASNET_MAX_SEGSIZE=\"large\" is not a number";
    assert!(!success && said.contains(refused), "{said}");
}

/// A program may assign to the variable that holds it, though nobody has defined it.
#[test]
fn a_program_says_which_segment_is_the_largest() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_errors", SEQ);
    for fabric in FABRICS {
        let mut run = launch(fabric, 2, &program, &["1048576"]);
        let output = run.env("LARGEST", "1048576").output().unwrap();
        assert!(output.status.success(), "{fabric}: {}", text(&output));
    }
}

/// Nodes of different limits: each has its own, and all the same least one.
#[test]
fn the_largest_segment_of_all_is_the_least() {
    if !compiler("cc") {
        return;
    }
    let program = compile("gasnet_errors", SEQ);
    let own = "GASNET_MAX_SEGSIZE=$(((3 - PMI_RANK) % 3 + 1))M";
    let bytes = "$((((3 - PMI_RANK) % 3 + 1) << 20))";
    let script = format!("{own} exec \"$0\" {bytes} \"$1\"");
    let program = program.to_str().unwrap();
    let run = |fabric, least| {
        let output = launch(fabric, 3, Path::new("sh"), &["-c", &script, program, least]);
        let output = { output }.output().unwrap();
        (output.status.success(), text(&output))
    };
    for fabric in FABRICS {
        let (success, said) = run(fabric, "1048576");
        assert!(success, "{fabric}: {said}");
    }
    assert!(!run("shm", "2097152").0, "the program looks at it");
}

/// What is offered can be had by a process that may not map as much as the machine has, also where each maps the segments of all.
#[test]
fn the_largest_segment_can_be_had_in_a_limited_address_space() {
    if !compiler("cc") {
        return;
    }
    let limited = ["prlimit", "--as=1500000000:1500000000"];
    if Command::new(limited[0]).arg("--version").output().is_err() {
        eprintln!("skipped: no prlimit");
        return;
    }
    let program = compile("gasnet_dumps", SEQ);
    for (fabric, segments) in [("shm", 2), ("seastar", 1)] {
        let mut run = launch(fabric, 2, Path::new(limited[0]), &limited[1..]);
        run.env_remove("PORTOLAN_DUMP_SEGMENTS");
        let output = run.arg(&program).arg("largest").output().unwrap();
        let said = text(&output);
        assert!(output.status.success(), "{fabric}: {said}");
        let line = format!("node 0: {segments} out, 0 in");
        assert!(said.contains(&line), "{fabric}: {said}");
    }
}
