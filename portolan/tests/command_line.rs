//! What is typed at a terminal: help, the words of MPI users, tagged output, bound ranks, and first mistakes.

use std::process::{Command, Output, Stdio};

const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(PORTOLAN);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PORTOLAN_") {
            command.env_remove(name);
        }
    }
    command.args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    command(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_follows_the_width_of_the_terminal() {
    for (columns, most) in [("60", 60), ("80", 80)] {
        for words in [&["run", "-h"][..], &["run", "--help"], &["bench", "--help"]] {
            let output = command(words).env("COLUMNS", columns).output().unwrap();
            let help = text(&output.stdout);
            let widest = help.lines().map(|line| line.chars().count()).max();
            // Some words are longer than a narrow line.
            assert!(
                widest > Some(most - 15) && widest <= Some(80),
                "{columns}: {help}"
            );
            assert!(most == 60 || help.contains("Job:"), "{help}");
        }
    }
}

#[test]
fn mpi_users_count_ranks_by_np_and_programs_keep_theirs() {
    let output = run(&["run", "-np", "2", "--", "printf", "%s ", "-np", "5"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "-np 5 -np 5 ");
}
