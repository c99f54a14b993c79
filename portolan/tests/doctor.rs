//! `portolan doctor`, as a user types it.

use serde_json::Value;
use std::process::Command;

/// Its findings, and its status.
fn doctor(path: &str, words: &[&str], variables: &[(&str, &str)]) -> (Vec<Value>, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    command.args(["doctor", "--json"]).args(words);
    for (name, _) in std::env::vars() {
        if name.starts_with("PORTOLAN_") {
            command.env_remove(name);
        }
    }
    command.env("PATH", path).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let findings = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (findings.collect(), output.status.code())
}

fn verdict_of<'f>(findings: &'f [Value], what: &str) -> &'f str {
    let found = findings.iter().find(|f| f["what"] == what);
    found.unwrap_or_else(|| panic!("{what} is not in {findings:?}"))["verdict"]
        .as_str()
        .unwrap()
}

#[test]
fn fabrics_are_tried_and_a_missing_launcher_is_no_fault() {
    let (findings, status) = doctor("/nonexistent", &[], &[]);
    assert_eq!(status, Some(0), "{findings:?}");
    for fabric in ["shm", "seastar"] {
        assert_eq!(verdict_of(&findings, &format!("fabric {fabric}")), "good");
    }
    assert_eq!(verdict_of(&findings, "launchers"), "absent");
}

#[test]
fn a_fabric_on_which_a_job_fails_is_bad_with_what_the_job_said() {
    let (findings, status) = doctor("/nonexistent", &[], &[("PORTOLAN_SPIN", "long")]);
    assert_eq!(status, Some(1), "{findings:?}");
    let found = findings.iter().find(|f| f["what"] == "fabric shm").unwrap();
    assert_eq!(found["verdict"], "bad");
    let said = found["said"].as_str().unwrap();
    assert!(said.contains("PORTOLAN_SPIN"), "{said}");
    assert!(found["fix"].as_str().unwrap().contains("--fabric shm"));
}

/// A folder with a launcher of this name, which is a script.
fn folder_with(name: &str, script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let launcher = folder.path().join(name);
    std::fs::write(&launcher, script).unwrap();
    let all = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(&launcher, all).unwrap();
    folder
}

#[test]
fn a_launcher_whose_ranks_do_not_meet_is_told_with_what_it_said() {
    let folder = folder_with("mpirun", "#!/bin/sh\necho no such job >&2\nexit 7\n");
    let (findings, status) = doctor(folder.path().to_str().unwrap(), &[], &[]);
    assert_eq!(status, Some(0), "{findings:?}");
    let found = findings
        .iter()
        .find(|f| f["what"] == "launcher mpirun")
        .unwrap();
    assert_eq!(found["verdict"], "warning");
    assert_eq!(found["said"], "exit status: 7: no such job");
    assert!(found["fix"].as_str().unwrap().contains("portolan run"));
}

/// As with Slurm whose MpiDefault is none.
#[test]
fn a_launcher_whose_ranks_meet_if_it_is_told_how_is_told_with_that() {
    let script = "#!/bin/sh\ncase \"$*\" in\n*--mpi=pmi2*) shift 4; exec \"$1\" run -n 2 -- \"$@\" ;;\n\
                  *) echo alone >&2; exit 1 ;;\nesac\n";
    let folder = folder_with("srun", script);
    let (findings, status) = doctor(folder.path().to_str().unwrap(), &[], &[]);
    assert_eq!(status, Some(0), "{findings:?}");
    let found = findings.iter().find(|f| f["what"] == "launcher srun");
    let found = found.unwrap();
    assert_eq!(found["verdict"], "warning");
    let said = found["said"].as_str().unwrap();
    assert!(said.ends_with("with --mpi=pmi2 and not without"), "{said}");
    let fix = found["fix"].as_str().unwrap();
    assert!(fix.contains("MpiDefault=pmi2"), "{fix}");
}
