//! What programs give that is wrong: a code, or an end of the job that says the rank and the call; on every rank, and
//! nothing is left.

use crate::programs::{Build, FABRICS, SEQ, compile, compiler, launch, line_of, run_on, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Status of `gasnet_bad` after `gasnet_exit(3)`.
const NO_MEMORY: i32 = 3;
/// What a process may map, KiB: less than the segment it asks for, more than it needs to start.
const MAY_MAP: &str = "8000000";

fn program() -> PathBuf {
    let b = Build {
        flags: &["-std=gnu99", "-DGASNET_DEBUG"],
        ..SEQ
    };
    compile("gasnet_bad", b)
}

/// Processes of the job with this word in its environment: launcher, ranks, the model.
fn processes(word: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let has = |process: &PathBuf| {
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|v| v == word.as_bytes())
    };
    all.map(|entry| entry.path()).filter(has).collect()
}

/// A process that stays until its input ends is found, so that finding none says something.
#[test]
fn processes_are_found_by_a_word_of_their_environment() {
    let word = format!("PORTOLAN_TEST_JOB={}-stays", std::process::id());
    let (name, value) = word.split_once('=').unwrap();
    let mut stays = Command::new("cat");
    stays.env(name, value).stdin(Stdio::piped());
    let mut stays = stays.spawn().unwrap();
    let begun = Instant::now();
    // The kernel shows the environment of a process only when its program has been loaded.
    while processes(&word).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it is not found");
        std::thread::yield_now();
    }
    drop(stays.stdin.take());
    assert!(stays.wait().unwrap().success());
    assert!(processes(&word).is_empty());
}

#[test]
fn calls_that_are_refused_say_node_call_and_place() {
    if !compiler("cc") {
        return;
    }
    let program = program();
    // The line of the program; the node that makes it; what is said of it.
    let lines = [
        (
            "gasnet_getMaxLocalSegmentSize() + ",
            1,
            "gasnet_attach returns an error code: the segment is larger",
        ),
        (
            "GASNET_PAGESIZE / 2",
            0,
            "gasnet_attach returns an error code: the segment is not a multiple",
        ),
        (
            "(low, 1",
            0,
            "gasnet_attach returns an error code: handler index 127 is not 0 or 128 to 255",
        ),
        (
            "(two, 2",
            1,
            "gasnet_attach returns an error code: handler index 200 is used twice",
        ),
        (
            "RequestShort(1, ASK, 17)",
            0,
            "gasnet_AMRequestShort returns an error code: the number of arguments",
        ),
        (
            "RequestShort(1, 64",
            0,
            "gasnet_AMRequestShort returns an error code: the handler index is not 128 to 255",
        ),
        (
            "ReplyShort0(token, 2)",
            1,
            "gasnet_AMReplyShort returns an error code: the handler index is not 128 to 255",
        ),
        (
            "RequestMedium0(1, PAYLOAD, source, SIZE_MAX",
            0,
            "gasnet_AMRequestMedium returns an error code: nbytes too large",
        ),
        (
            "ReplyMedium0(token, PAYLOAD, source, SIZE_MAX",
            1,
            "gasnet_AMReplyMedium returns an error code: nbytes too large",
        ),
        (
            "RequestMedium0(1, PAYLOAD, much",
            0,
            "gasnet_AMRequestMedium returns an error code: nbytes too large: 1985",
        ),
        (
            "RequestLong0(1, PAYLOAD, much",
            0,
            "gasnet_AMRequestLong returns an error code: nbytes too large",
        ),
        (
            "RequestLongAsync0(1, PAYLOAD, much",
            0,
            "gasnet_AMRequestLongAsync returns an error code: nbytes too",
        ),
        (
            "2, end - 1",
            0,
            "gasnet_AMRequestLong returns an error code: destination address out of segment",
        ),
        (
            "2, start - 1",
            0,
            "gasnet_AMRequestLong returns an error code: destination address out of segment",
        ),
        (
            "1, end)",
            0,
            "gasnet_AMRequestLongAsync returns an error code: destination address out of",
        ),
        (
            "ReplyShort0(source",
            0,
            "gasnet_AMReplyShort returns an error code: bad token",
        ),
        (
            "ReplyShort(token, TELL, 17)",
            1,
            "gasnet_AMReplyShort returns an error code: the number of arguments",
        ),
        (
            "ReplyMedium0(token, PAYLOAD, much",
            1,
            "gasnet_AMReplyMedium returns an error code: nbytes too large",
        ),
        (
            "ReplyLong0(token, PAYLOAD, much",
            1,
            "gasnet_AMReplyLong returns an error code: nbytes too large",
        ),
        (
            "ReplyLong0(token, PAYLOAD, source",
            1,
            "gasnet_AMReplyLong returns an error code: destination address",
        ),
        (
            "RequestShort0(0, ASK)",
            1,
            "gasnet_AMRequestShort returns an error code: handlers may not send",
        ),
        (
            "ReplyMedium0(token, PAYLOAD, source, 1",
            1,
            "gasnet_AMReplyMedium returns an error code: this request has",
        ),
        (
            "ReplyShort0(kept",
            0,
            "gasnet_AMReplyShort returns an error code: bad token",
        ),
        (
            "ReplyLong0(kept",
            0,
            "gasnet_AMReplyLong returns an error code: bad token",
        ),
    ];
    for fabric in FABRICS {
        let said = text(&run_on(fabric, 2, &program, &["refused"]));
        assert!(said.starts_with("exit status: 0"), "{fabric}: {said}");
        for node in 0..2 {
            let line = format!("node {node}: all right");
            assert!(said.contains(&line), "{fabric}: {said}");
        }
        for (words, node, why) in lines {
            let start = format!("GASNet node {node}/2: {why}");
            let end = format!("gasnet_bad.c:{}", line_of("gasnet_bad.c", words));
            let found = said
                .lines()
                .any(|l| l.starts_with(&start) && l.ends_with(&end));
            assert!(found, "{fabric}: no {start} … {end} in {said}");
        }
    }
}

#[test]
fn what_cannot_go_on_ends_the_job_and_says_rank_and_call() {
    if !compiler("cc") {
        return;
    }
    let program = program();
    let unknown = "active message from node 0 to handler 204, which is not registered here";
    let at_one = format!("rank 1 of 2: polling: {unknown}");
    let at_zero = format!("rank 0 of 2: polling: {unknown}");
    let reply = at_zero.replace("from node 0", "from node 1");
    let tables = "of 2: attach: node ";
    let cases = [
        ("fewer handlers", tables),
        ("other handlers", tables),
        ("short", &at_one),
        ("medium", &at_one),
        ("long", &at_one),
        ("reply", &reply),
        ("own", &at_zero),
    ];
    for fabric in FABRICS {
        for (how, words) in cases {
            let job = format!("{}-{fabric}-{how}", std::process::id());
            let word = format!("PORTOLAN_TEST_JOB={job}");
            let mut run = launch(fabric, 2, &program, &[how]);
            run.env("PORTOLAN_TEST_JOB", &job);
            let output = run.output().unwrap();
            let said = text(&output);
            assert_eq!(output.status.code(), Some(1), "{how} on {fabric}: {said}");
            assert!(said.contains(words), "{how} on {fabric}: {said}");
            assert!(!said.contains("all right"), "{how} on {fabric}: {said}");
            let ended = Instant::now();
            while !processes(&word).is_empty() {
                let late = ended.elapsed() > Duration::from_secs(10);
                assert!(!late, "{how} on {fabric}: processes are left");
                std::thread::yield_now();
            }
        }
    }
}

/// A job that asks for a larger segment than its processes may map.
fn without_memory(fabric: &str, program: &Path) -> Output {
    let job = launch(fabric, 2, program, &["memory"]);
    Command::new("sh")
        .args(["-c", "ulimit -v $0 && exec \"$@\"", MAY_MAP])
        .arg(job.get_program())
        .args(job.get_args())
        .env("GASNET_MAX_SEGSIZE", "1T")
        .output()
        .unwrap()
}

#[test]
fn a_segment_that_cannot_be_had_is_an_error_of_attach() {
    if !compiler("cc") {
        return;
    }
    let program = program();
    for fabric in FABRICS {
        let output = without_memory(fabric, &program);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(NO_MEMORY), "{fabric}: {said}");
        let line =
            "gasnet_attach returns an error code: cannot map a segment of 1099511627776 bytes";
        for node in 0..2 {
            let line = format!("GASNet node {node}/2: {line}");
            assert!(said.contains(&line), "{fabric}: {said}");
        }
    }
    // As a program that is not built for debugging has it.
    let program = compile("gasnet_bad", SEQ);
    let said = text(&without_memory("shm", &program));
    assert!(
        said.contains("GASNet node 1/2: gasnet_attach: cannot map"),
        "{said}"
    );
}

#[test]
fn a_poll_within_a_poll_ends_the_job_by_name() {
    if !compiler("cc") {
        return;
    }
    for model in ["seq", "par"] {
        let build = Build {
            model,
            compiled_for: model,
            ..SEQ
        };
        let program = compile("gasnet_signalled", build);
        for fabric in FABRICS {
            let output = launch(fabric, 2, &program, &[]).output().unwrap();
            let said = text(&output);
            assert_eq!(output.status.code(), Some(1), "{fabric}: {said}");
            let line = "rank 0 of 2: a call of GASNet within another one";
            assert!(said.contains(line), "{fabric}: {said}");
            assert!(!said.contains("panicked"), "{fabric}: {said}");
        }
    }
}

/// As C++ it throws, as C it ends its thread. What nobody in the stack would catch is C++'s to say.
#[test]
fn a_function_of_the_program_that_does_not_return_ends_the_job_by_name() {
    for (by, flags) in [("cc", &["-pthread"][..]), ("c++", &["-x", "c++"])] {
        if !compiler(by) {
            continue;
        }
        let build = Build {
            compiler: by,
            flags,
            ..SEQ
        };
        let program = compile("gasnet_throws", build);
        for (how, subject) in [
            ("handler", "a handler"),
            ("hook", "gasnet_client_attach_hook"),
            ("collective", "a function of a collective"),
            ("statistics", "a function of GASNETT_STATS_INIT"),
        ] {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("throws-{by}-%"));
            let output = launch("shm", 2, &program, &[how])
                .env("GASNET_STATSFILE", file)
                .output()
                .unwrap();
            let said = text(&output);
            assert_eq!(output.status.code(), Some(134), "{by} {how}: {said}");
            let line = format!("*** FATAL ERROR: GASNet node 1/2: {subject} has not returned");
            let uncaught = by == "c++" && said.contains("terminate called");
            assert!(said.contains(&line) || uncaught, "{by} {how}: {said}");
            assert!(!said.contains("panicked"), "{by} {how}: {said}");
        }
    }
}
