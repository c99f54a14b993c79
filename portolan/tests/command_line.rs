//! What is typed at a terminal: help, the words of MPI users, tagged output, bound ranks, and first mistakes.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

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

/// A job of `sh` with this script on each rank.
fn shell(options: &[&str], script: &str) -> Output {
    let words = [&["run"], options, &["--", "sh", "-c", script]].concat();
    run(&words)
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
fn each_line_of_a_tagged_job_has_its_rank_and_its_stream() {
    let script = "echo out; echo err >&2; printf 'no end'";
    let output = shell(&["-n", "3", "--tag-output"], script);
    assert_eq!(output.status.code(), Some(0));
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let ranks = 0..3;
    let expected = ranks.flat_map(|r| [format!("[{r}] no end"), format!("[{r}] out")]);
    assert_eq!(lines(&out), expected.collect::<Vec<_>>());
    let (tagged, own): (Vec<_>, Vec<_>) = lines(&err).into_iter().partition(|l| l.starts_with('['));
    assert_eq!(tagged, ["[0] err", "[1] err", "[2] err"]);
    assert!(
        own.iter().all(|l| l.starts_with("portolan run: ")),
        "{own:?}"
    );
}

/// Without a `/dev`, a rank other than the first has nothing to read all the same.
#[test]
fn a_job_runs_where_there_is_no_null_device() {
    let script = "mount -t tmpfs none /dev && exec \"$@\"";
    let mut made = Command::new("unshare");
    made.args(["--mount", "sh", "-c", script, "sh"]);
    let tried = made.arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        println!("skipped: no mount namespaces here");
        return;
    }
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh", PORTOLAN])
        .args(["run", "-n", "2", "--", "cat"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn why_a_fabric_cannot_be_used_is_said_once() {
    let output = Command::new("prlimit")
        .args(["--fsize=0:0", PORTOLAN, "run", "-n", "2", "--fabric", "shm"])
        .args(["--", "true"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(said.matches("cannot be used here").count(), 1, "{said}");
}

#[test]
fn tagged_lines_are_whole_however_ranks_write_them() {
    let script = "i=0; while [ $i -lt 300 ]; do printf aaaa; printf 'bbbb\\n'; i=$((i+1)); done";
    let output = shell(&["-n", "4", "--tag-output"], script);
    let out = text(&output.stdout);
    assert_eq!(out.lines().count(), 1200);
    for rank in 0..4 {
        let line = format!("[{rank}] aaaabbbb");
        assert_eq!(out.lines().filter(|l| **l == line).count(), 300, "{rank}");
    }
}

#[test]
fn what_a_tagged_job_wrote_before_it_failed_comes_out() {
    let script = "echo before; exec portolan probe --fault exit3@1";
    let folder = std::path::Path::new(PORTOLAN).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(folder.to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let words = ["run", "-n", "2", "--tag-output", "--", "sh", "-c", script];
    let output = command(&words).env("PATH", path.unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    for rank in 0..2 {
        assert!(out.contains(&format!("[{rank}] before\n")), "{out}");
    }
}

#[test]
fn a_tagged_job_ends_when_nobody_reads_its_lines() {
    let words = [
        "run",
        "-n",
        "2",
        "--tag-output",
        "--timeout",
        "30",
        "--",
        "yes",
    ];
    let mut child = command(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    assert!(line.ends_with("] y\n"), "{line}");
    drop(reader);
    // As without tags: the ranks are ended by SIGPIPE, or see that nobody reads.
    let status = child.wait().unwrap();
    assert!(!status.success() && status.code() != Some(124), "{status}");
}

#[test]
fn a_tagged_job_waits_for_who_reads_late_and_loses_nothing() {
    // More than a pipe holds with tags, and less without: the rank ends before anybody reads.
    let script = "seq 1 12000; echo done >&2";
    let mut child = command(&["run", "-n", "1", "--tag-output", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    errors.read_line(&mut line).unwrap();
    assert_eq!(line, "[0] done\n");
    let launcher = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
    let mut fds = [PollFd::new(&launcher, PollFlags::IN)];
    let while_unread = Timespec {
        tv_sec: 0,
        tv_nsec: 500_000_000,
    };
    assert_eq!(poll(&mut fds, Some(&while_unread)), Ok(0), "it has ended");
    let out = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    assert_eq!(out.lines().count(), 12_000);
    assert!(out.ends_with("[0] 11999\n[0] 12000\n"));
    assert!(child.wait().unwrap().success());
}

/// The processors that each rank of a job may run on.
fn processors(options: &[&str]) -> Vec<String> {
    let output = shell(options, "grep Cpus_allowed_list /proc/self/status");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bound_ranks_have_cores_of_their_own() {
    let cores = host::processors::cores().len();
    let ranks = cores.min(4).to_string();
    let bound = processors(&["-n", &ranks, "--bind", "core"]);
    let distinct: BTreeSet<&String> = bound.iter().collect();
    assert_eq!(distinct.len(), bound.len(), "{bound:?}");
    assert_eq!(bound.len().to_string(), ranks);
    let free = processors(&["-n", "2", "--bind", "none"]);
    assert_eq!(free[0], free[1]);
    if cores > 1 {
        assert!(!bound.contains(&free[0]), "{bound:?} and {free:?}");
    }
    let many = (cores + 1).to_string();
    let output = shell(&["-n", &many, "--bind", "core"], "echo started");
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    let words = format!("--bind core needs a core for each of {many} ranks");
    assert!(
        said.contains(&words) && said.contains("fewer ranks"),
        "{said}"
    );
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn tags_and_cores_are_refused_by_name_where_ranks_are_elsewhere() {
    for option in [&["--tag-output"][..], &["--bind", "core"]] {
        let words = [&["run", "-n", "1", "--hosts", "a"], option, &["true"]].concat();
        let output = run(&words);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(
            said.contains(option[0]) && said.contains("--hosts"),
            "{said}"
        );
    }
}

/// A filter of system calls that refuses to tell whether a file may be executed need not refuse to execute it.
#[test]
fn programs_run_where_the_system_does_not_tell_whether_they_may() {
    let Some(deny) = deny::Deny::compile() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::write(&data, "no program").unwrap();
    let calls = match cfg!(target_arch = "x86_64") {
        true => "access,faccessat",
        false => "faccessat",
    };
    for error in ["EACCES", "ENOSYS", "EPERM"] {
        let filtered = |program: &str| {
            let mut command = deny.command(error, calls);
            command.args([PORTOLAN, "run", "-n", "1", "--", program]);
            command.output().unwrap()
        };
        let ran = filtered("true");
        assert_eq!(ran.status.code(), Some(0), "{error}: {}", text(&ran.stderr));
        // A file that nobody may execute is none, whatever is refused.
        let refused = filtered(data.to_str().unwrap());
        let errors = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{error}: {errors}");
        assert!(errors.contains("`chmod +x "), "{error}: {errors}");
    }
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

#[test]
fn every_variable_is_shown_with_value_default_and_meaning() {
    let output = command(&["info", "--variables", "--json"])
        .env("PORTOLAN_FABRIC", "shm")
        .env("PORTOLAN_RINGS", "4")
        .output()
        .unwrap();
    let out = text(&output.stdout);
    let lines: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), host::variables::VARIABLES.len());
    let rings = lines.iter().find(|l| l["variable"] == "PORTOLAN_RINGS");
    let rings = rings.unwrap();
    assert_eq!(rings["value"], "4");
    assert_eq!(rings["default"], "8");
    assert_eq!(rings["no_effect"], "the fabric is shm");
    assert!(
        lines
            .iter()
            .all(|l| l["kind"] == "variable" && l["meaning"].is_string())
    );
    let words = text(&run(&["info", "--variables"]).stdout);
    assert!(
        words.contains("PORTOLAN_RINGS is not set; default: 8"),
        "{words}"
    );
}

#[test]
fn options_of_another_fabric_are_said_to_have_no_effect() {
    let job = |options: &[&str]| {
        let output = shell(&[&["-n", "1"], options].concat(), "true");
        assert!(output.status.success());
        let all = text(&output.stderr);
        let said = all.lines().filter(|line| line.contains("no effect"));
        said.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        job(&["--fabric", "shm", "--map", "random:3", "--device", "rxe7"]),
        [
            "portolan: --device (PORTOLAN_DEVICE), --map (PORTOLAN_MAP) have no effect: the fabric is shm"
        ]
    );
    assert_eq!(
        job(&["--map", "linear", "--channel", "ud"]),
        ["portolan: --channel (PORTOLAN_CHANNEL) has no effect: the fabric is seastar"]
    );
    assert!(job(&["--fabric", "shm"]).is_empty());
    let mut quiet = command(&[
        "run", "-n", "1", "--fabric", "shm", "--map", "linear", "--", "true",
    ]);
    let output = quiet.env("PORTOLAN_QUIET", "1").output().unwrap();
    assert!(!text(&output.stderr).contains("no effect"));
}

#[test]
fn a_job_in_a_job_is_not_told_of_what_nobody_gave() {
    let inner = format!("{PORTOLAN} run -n 1 --fabric shm -- true");
    let output = shell(&["-n", "1", "--fabric", "shm"], &inner);
    assert!(output.status.success());
    let said = text(&output.stderr);
    assert!(!said.contains("no effect"), "{said}");
}
