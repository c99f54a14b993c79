//! `portolan bench` as the ranks of a launcher: they are one job, and rank 0 speaks for it.

use std::process::{Command, Output};

/// What `portolan run -n 2 -- portolan bench …` does.
fn launched(words: &str) -> Output {
    let portolan = env!("CARGO_BIN_EXE_portolan");
    let mut command = Command::new(portolan);
    command.args(["run", "-n", "2", "--", portolan, "bench"]);
    command.args(words.split_whitespace());
    command.env("PORTOLAN_QUIET", "1");
    command.output().unwrap()
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
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words}: {errors}");
        // The launcher tells which rank ended the job, and why, in a line of its own.
        let own: Vec<&str> = errors
            .lines()
            .filter(|line| !line.starts_with("portolan run"))
            .collect();
        assert!(
            matches!(own[..], [line] if line.contains(said)),
            "{words}: {errors}"
        );
        assert_eq!(text(&output.stdout), "", "{words}");
    }
}
