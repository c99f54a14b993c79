//! Programs with privileges that their caller lacks.

use super::*;

/// A copy of `heat3d` that runs as root whoever starts it, beside a program that leaves a trace; `None` where that cannot be.
fn privileged(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let (copy, spy) = (folder.join("heat3d"), folder.join("spy"));
    fs::copy(HEAT3D, &copy).unwrap();
    fs::write(
        &spy,
        format!("#!/bin/sh\nid -u >{}/started\n", folder.display()),
    )
    .unwrap();
    for (file, mode) in [(folder, 0o777), (&copy, 0o4755), (&spy, 0o755)] {
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    }
    let seen = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .arg("--version")
        .output();
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    (root && seen.is_ok_and(|seen| seen.status.success())).then_some((copy, spy))
}

/// A caller that has a capability itself, and hands it on as an ambient one, lends the program nothing that it lacks.
#[test]
fn a_program_with_an_ambient_capability_follows_variables() {
    let own = tempfile::tempdir().unwrap();
    let folder = own.path();
    let input = folder.join("grid");
    let grid = input.display().to_string();
    succeed(program(HEAT3D, &["--generate", "4", "4", "4", "1", &grid]));
    if privileged(folder).is_none() {
        eprintln!("skipped: capabilities are tried as root, with setpriv");
        return;
    }
    let copy = folder.join("ordinary");
    fs::copy(HEAT3D, &copy).unwrap();
    let traced = folder.join("trace");
    let mut caller = Command::new("setpriv");
    caller
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args([
            "--inh-caps=+net_bind_service",
            "--ambient-caps=+net_bind_service",
        ])
        .arg(&copy)
        .arg(&input);
    let output = clean(caller)
        .env("PORTOLAN_FABRIC", "shm")
        .env("GASNET_TRACEFILE", &traced)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(traced.exists(), "{errors}");
}

#[test]
fn a_privileged_program_starts_and_opens_nothing_that_variables_name() {
    let own = tempfile::tempdir().unwrap();
    let folder = own.path();
    let input = folder.join("grid");
    let grid = input.display().to_string();
    succeed(program(HEAT3D, &["--generate", "4", "4", "4", "1", &grid]));
    let Some((copy, spy)) = privileged(folder) else {
        eprintln!("skipped: setuid programs are tried as root, with setpriv");
        return;
    };
    let caller = |fabric: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(&copy).arg(&input);
        let mut command = clean(command);
        command.env("PORTOLAN_FABRIC", fabric);
        command
    };
    // What is beside the program, and in PATH, is the caller's as well.
    fs::copy(&spy, folder.join("portolan")).unwrap();
    let output = caller("seastar")
        .env("PORTOLAN_EXE", &spy)
        .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(
        errors.contains("privileges that its caller lacks"),
        "{errors}"
    );
    assert!(!folder.join("started").exists());
    // Nor does it write what its caller may not.
    let traced = folder.join("trace");
    let output = caller("shm")
        .env("GASNET_TRACEFILE", &traced)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("privileges that its caller lacks"),
        "{errors}"
    );
    assert!(!traced.exists());
    let output = caller("seastar")
        .env("PORTOLAN_MACHINE", "/etc/shadow")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("PORTOLAN_MACHINE"), "{errors}");
    assert!(
        errors.contains("privileges that its caller lacks"),
        "{errors}"
    );
}
