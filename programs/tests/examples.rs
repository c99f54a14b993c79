//! The examples at the end of each command's help run as they stand there.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Programs stand beside `portolan`, where the examples look for them.
const GUPS: &str = env!("CARGO_BIN_EXE_gups");

/// What runs until it is ended.
const ENDLESS: [&str; 2] = ["simulate", "seastar-device"];
/// What needs QEMU, and is run where guests are tested.
const ELSEWHERE: &str = "guest";

fn portolan(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(Path::new(GUPS).with_file_name("portolan"));
    for (name, _) in std::env::vars_os() {
        let name_of = name.to_string_lossy();
        if name_of.starts_with("PORTOLAN_") || name_of.starts_with("GASNET_") {
            command.env_remove(&name);
        }
    }
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command
}

fn help(folder: &Path, words: &[&str]) -> String {
    let output = portolan(folder, words)
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The examples of a command's help, word by word.
fn examples(help: &str) -> Vec<Vec<String>> {
    let (_, examples) = help.split_once("\nExamples:\n").unwrap();
    let words = |line: &str| line.split_whitespace().skip(1).map(str::to_owned).collect();
    examples.lines().map(words).collect()
}

#[test]
fn the_examples_of_each_commands_help_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // What `summary` adds up.
    let traced = portolan(folder, &["run", "-n", "2", "gups", "--updates", "10"])
        .env("GASNET_TRACEFILE", "trace.%")
        .output()
        .unwrap();
    assert!(traced.status.success());
    let all = help(folder, &["-h"]);
    let names = all.lines().filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let names = names.filter_map(|line| line.split_whitespace().next());
    let names: Vec<&str> = names
        .filter(|n| !["help", "portolan"].contains(n))
        .collect();
    assert!(names.len() >= 12, "{names:?}");
    for name in names.into_iter().filter(|n| *n != ELSEWHERE) {
        for words in examples(&help(folder, &[name, "-h"])) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut command = portolan(folder, &words);
            if ENDLESS.contains(&name) {
                let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
                let mut line = String::new();
                let mut reader = BufReader::new(child.stdout.take().unwrap());
                reader.read_line(&mut line).unwrap();
                child.kill().unwrap();
                child.wait().unwrap();
                assert!(!line.is_empty(), "{words:?}");
                continue;
            }
            let output = command.output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{words:?}: {errors}");
            assert!(
                !output.stdout.is_empty() || (name == "man" && folder.join("man1").exists()),
                "{words:?}"
            );
        }
    }
}
