//! What is typed at a terminal: help, the words of MPI users, tagged output, bound ranks, and first mistakes.

use std::os::unix::fs::PermissionsExt as _;
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

#[test]
fn first_mistakes_are_answered_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("data"), "no program").unwrap();
    std::fs::write(at("script"), "#!/no/such/interpreter\n").unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(at("script"), mode).unwrap();
    let (data, script) = (at("data"), at("script"));
    for (words, status, said) in [
        (&["rum"][..], 2, "similar subcommand exists: 'run'"),
        (&["run", "-n", "2"], 2, "<PROGRAM>..."),
        (
            &["run", "prog", "-np", "2"],
            2,
            "options of portolan go before it",
        ),
        (&["run", "-n", "0", "true"], 2, "0 is not in 1..=4096"),
        (
            &["run", "-n", "two", "true"],
            2,
            "a whole number is expected",
        ),
        (&["run", "-n", "2", "nosuch"], 2, "give its path, such as"),
        (
            &["run", "-n", "2", "./nosuch"],
            2,
            "its path may be misspelt",
        ),
        (&["run", "-n", "2", &data], 2, "chmod +x"),
        (
            &["run", "-n", "2", &script],
            1,
            "an interpreter that is not there",
        ),
        (&["run", "-n", "2", "/tmp"], 2, "name the program in it"),
        (
            &["run", "-n", "2", "--hostfile", "/no/file", "true"],
            2,
            "cannot read /no/file",
        ),
        (&["bench", "pingpon"], 2, "is it pingpong?"),
        (&["bench", "nosuch"], 2, "`portolan bench list` shows all"),
        (&["summary", "/no/such"], 1, "cannot read /no/such"),
    ] {
        let output = run(words);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {errors}");
        assert!(errors.contains(said), "{words:?}: {errors}");
        assert_eq!(text(&output.stdout), "", "{words:?}");
    }
    // The usage that is shown is of the command that was typed.
    let errors = text(&run(&["run", "-n", "2", "nosuch"]).stderr);
    assert!(errors.contains("Usage: portolan run"), "{errors}");
}
