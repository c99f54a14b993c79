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

#[test]
fn a_launcher_whose_ranks_do_not_meet_is_told_with_what_it_said() {
    let folder = tempfile::tempdir().unwrap();
    let launcher = folder.path().join("mpirun");
    std::fs::write(&launcher, "#!/bin/sh\necho no such job >&2\nexit 7\n").unwrap();
    let all = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(&launcher, all).unwrap();
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
