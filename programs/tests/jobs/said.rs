//! What programs say: of their arguments, of variables without effect, of a full disk.

use super::*;

/// All ranks say the same at the same time: a datagram socket keeps each write apart.
#[test]
fn what_is_wrong_with_the_arguments_is_said_in_one_write() {
    for name in [HEAT3D, GUPS, LIFE] {
        let (said, write) = UnixDatagram::pair().unwrap();
        let mut command = clean(program(name, &["--no-such-option"]));
        let status = command.stderr(OwnedFd::from(write)).status().unwrap();
        assert_eq!(status.code(), Some(2), "{name}");
        let mut buffer = [0; 4096];
        let len = said.recv(&mut buffer).unwrap();
        let words = String::from_utf8_lossy(&buffer[..len]);
        assert!(
            words.starts_with("error: unexpected argument '--no-such-option'"),
            "{words}"
        );
        assert!(words.ends_with("try '--help'.\n"), "{words}");
    }
}

#[test]
fn a_grid_that_is_not_there_is_answered_with_how_to_make_one() {
    for (words, said) in [
        (&[][..], "heat3d --generate 32 32 32 7 INPUT"),
        (
            &["--serial", "/no/grid"],
            "/no/grid: No such file or directory; `heat3d --generate 32 32 32 7 /no/grid` makes a grid",
        ),
    ] {
        let output = clean(program(HEAT3D, words)).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(said), "{words:?}: {errors}");
    }
}

#[test]
fn variables_without_effect_are_said_once() {
    let updates = ["--log2-table", "8", "--updates", "64"];
    let mut job = clean(job_over("shm", 3, GUPS, &updates));
    for (name, value) in [
        ("PORTOLAN_FABRIK", "verbs"),
        ("GASNET_FIREHOSE_M", "400"),
        ("GASNET_PORTAL_FLOW_CONTROL", "1"),
        ("GASNET_GM_ANYTHING", "1"),
        ("GASNET_PORTAL_MSG_LIMIT", "0"),
    ] {
        job.env(name, value);
    }
    let said = |job: &mut Command| {
        let output = job.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        errors
    };
    let errors = said(&mut job);
    for line in [
        "PORTOLAN_FABRIK is no variable of Portolan; is it PORTOLAN_FABRIC?",
        "GASNET_FIREHOSE_M has no effect in this job: this fabric pins no memory",
        "GASNET_PORTAL_FLOW_CONTROL has no effect in this job: the other ranks share memory",
        "GASNET_GM_ANYTHING has no effect: it is of another conduit",
        "GASNET_PORTAL_MSG_LIMIT=0 counts as 12",
    ] {
        assert_eq!(errors.matches(line).count(), 1, "{line}: {errors}");
    }
    let errors = said(job.env("GASNET_QUIET", "1"));
    assert!(!errors.contains("WARNING"), "{errors}");
    let output = job.env("PORTOLAN_SPIN", "soon").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = "PORTOLAN_SPIN is \"soon\": a number of microseconds is expected";
    assert!(
        !output.status.success() && errors.contains(line),
        "{errors}"
    );
}

/// What ends a program with status 1 and says why.
fn refuses_the_disk(mut command: Command, line: &str) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{command:?}: {errors}");
    assert!(errors.contains(line), "{command:?}: {errors}");
    assert!(!errors.contains("panicked"), "{command:?}: {errors}");
}

fn full() -> fs::File {
    fs::File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn a_full_disk_is_said_and_ends_with_status_1() {
    let no_space = "No space left on device";
    let words = ["--generate", "8", "8", "8", "1", "/dev/full"];
    refuses_the_disk(clean(program(HEAT3D, &words)), no_space);
    let life = ["--rows", "8", "--columns", "8", "--generations", "2"];
    let serial = [&life[..], &["--serial"]].concat();
    let mut printed = clean(program(LIFE, &serial));
    printed.stdout(full());
    refuses_the_disk(printed, "life: cannot write standard output: No space");
    let updates = ["--log2-table", "8", "--updates", "64"];
    let mut printed = clean(job_over("shm", 2, GUPS, &updates));
    printed.stdout(full());
    refuses_the_disk(printed, "gups: cannot write standard output: No space");
    for (variable, what) in [
        (
            "GASNET_TRACEFILE",
            "the tracing and statistical output is not whole",
        ),
        ("GASNET_STATSFILE", "the statistical output is not whole"),
    ] {
        for fabric in ["shm", "seastar"] {
            let mut traced = clean(job_over(fabric, 2, GUPS, &updates));
            traced.env(variable, "/dev/full");
            refuses_the_disk(traced, what);
        }
    }
    let mut counted = clean(job_over("shm", 2, GUPS, &updates));
    counted.env("GASNET_PORTAL_CREDIT_STATS", "1");
    counted.env("GASNET_TMPDIR", "/proc/1/no-such-folder");
    refuses_the_disk(counted, "cannot write the credit statistics");
}
