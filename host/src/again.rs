//! Tests that need a process of another kind run themselves again, started by a command that makes it one.

use std::process::Command;

const ROLE: &str = "PORTOLAN_TEST_ROLE";

/// What the running copy of a test is to be; `None` in the first.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Runs `test` again by the command `by`, as `role`; says so where that command is refused here.
pub(crate) fn again(by: &[&str], test: &str, role: &str) {
    let command = || {
        let mut command = Command::new(by[0]);
        command.args(&by[1..]);
        command
    };
    let tried = command().arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        println!("skipped: {} cannot be run here", by.join(" "));
        return;
    }
    let copy = std::env::current_exe().expect("this test");
    let output = command()
        .arg(copy)
        .args(["--exact", test])
        .env(ROLE, role)
        .output()
        .expect("it was tried");
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{role}: {said}");
}

/// Runs `test` again where these system calls fail with `error` (`EPERM`); says so where there is no compiler.
pub(crate) fn again_denied(error: &str, calls: &str, test: &str) {
    if let Some(deny) = deny::Deny::compile() {
        let program = deny.program().to_string_lossy();
        again(&[&program, error, calls], test, error);
    }
}
