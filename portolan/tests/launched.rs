//! Several processes of one command that a launcher has started: those of `portolan bench` are one job, and rank 0 speaks for it.

use std::path::Path;
use std::process::{Command, Output};

/// What `portolan run -n 2 -- portolan …` does in a folder.
fn launched_in(folder: &Path, words: &str) -> Output {
    let portolan = env!("CARGO_BIN_EXE_portolan");
    let mut command = Command::new(portolan);
    command.args(["run", "-n", "2", "--", portolan]);
    command.args(words.split_whitespace());
    command.env("PORTOLAN_QUIET", "1").current_dir(folder);
    command.output().unwrap()
}

fn launched(words: &str) -> Output {
    launched_in(Path::new("."), &format!("bench {words}"))
}

/// What the ranks said. The launcher tells which rank ended the job, and why, in a line of its own.
fn of_ranks(output: &Output) -> Vec<String> {
    let errors = text(&output.stderr);
    let lines = errors
        .lines()
        .filter(|line| !line.starts_with("portolan run"));
    lines.map(str::to_owned).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_ranks_of_a_launcher_measure_together_and_one_reports() {
    for (words, said) in [
        (
            "pingpong am-short --sizes 8 --iters 20 --json -",
            "\"ranks\":2",
        ),
        (
            "tag-pingpong --fabric seastar --sizes 8 --iters 2 --json -",
            "\"machine\":\"xt4\"",
        ),
    ] {
        let output = launched(words);
        let (out, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{words}: {errors}");
        let names = words.split("--").next().unwrap().split_whitespace();
        assert_eq!(out.lines().count(), names.count(), "{words}: {out}");
        assert!(
            out.lines().all(|line| line.contains(said)),
            "{words}: {out}"
        );
        assert_eq!(errors, "", "{words}");
    }
}

#[test]
fn what_is_wrong_is_said_once_and_ends_every_rank() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("none").join("results");
    let bad_file = format!("pingpong --sizes 8 --json {}", nowhere.display());
    for (words, status, said) in [
        ("pingpong -n 3", 2, "started 2 ranks, and -n asks for 3"),
        ("pingpong --turns 2", 2, "--turns is for jobs"),
        ("pingpong am-threads", 2, "need a job each"),
        (
            "random-put --pinning firehose --sizes 1M",
            2,
            "the environment of all ranks must say GASNET_",
        ),
        ("am-short --sizes 1 --conduit mpi", 2, "has no am-short"),
        (bad_file.as_str(), 1, "none"),
    ] {
        let output = launched(words);
        let own = of_ranks(&output);
        assert_eq!(output.status.code(), Some(status), "{words}: {own:?}");
        assert!(
            matches!(&own[..], [line] if line.contains(said)),
            "{words}: {own:?}"
        );
        assert_eq!(text(&output.stdout), "", "{words}");
    }
}

/// They would measure beside each other, and write the same files.
#[test]
fn what_starts_ranks_of_its_own_is_refused_once_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (words, command) in [
        ("demo", "portolan demo"),
        ("report", "portolan report"),
        ("trace -n 2 life", "portolan trace"),
        (
            "sweep --set host.trap=0.1,0.2 --csv a -- bench pingpong",
            "portolan sweep",
        ),
    ] {
        let output = launched_in(folder.path(), words);
        let own = of_ranks(&output);
        assert_eq!(output.status.code(), Some(2), "{words}: {own:?}");
        let said =
            format!("the launcher has started 2 of {command}, which starts ranks of its own");
        assert!(
            matches!(&own[..], [line] if line.contains(&said)),
            "{words}: {own:?}"
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
