//! The shell script that the guest runs: the caller's folder, environment and command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Variables forwarded into the guest by name.
const FORWARDED: &[&str] = &["HOME", "USER", "LANG", "LD_LIBRARY_PATH", "TERM"];
/// Variables forwarded into the guest by the start of their name.
const FORWARDED_PREFIXES: &[&str] = &["GASNET_", "PORTOLAN_", "CARGO_", "RUST_", "RUSTUP_", "LC_"];

/// The environment of the job: what is forwarded of `caller`, `PATH` with `first` in front, the test device,
/// then `extra`, which wins: `NAME=VALUE`, or `NAME` for the caller's value.
pub(super) fn environment(
    caller: impl Iterator<Item = (OsString, OsString)>,
    first: Option<&Path>,
    extra: &[String],
) -> Vec<(OsString, OsString)> {
    let mut kept: Vec<(OsString, OsString)> = vec![
        ("PORTOLAN_GUEST".into(), "1".into()),
        ("PORTOLAN_TEST_DEVICE".into(), "rxe0".into()),
    ];
    let mut path = OsString::new();
    let mut wanted = Vec::new();
    for (name, value) in caller {
        if extra.iter().any(|extra| name == extra.as_str()) {
            wanted.push((name.clone(), value.clone()));
        }
        let Some(text) = name.to_str() else { continue };
        if text == "PATH" {
            path = value;
        } else if FORWARDED.contains(&text)
            || (FORWARDED_PREFIXES.iter().any(|p| text.starts_with(p)) && is_name(text))
        {
            // The guest's own device is rxe0, whatever the caller tests with outside.
            if text != "PORTOLAN_TEST_DEVICE" {
                kept.push((name, value));
            }
        }
    }
    let mut search = OsString::new();
    for part in first
        .map(Path::as_os_str)
        .into_iter()
        .chain([path.as_os_str()])
    {
        if !part.is_empty() {
            search.push(part);
            search.push(":");
        }
    }
    search.push("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    kept.push(("PATH".into(), search));
    for setting in extra {
        let (name, value) = match setting.split_once('=') {
            Some((name, value)) => (name, value.into()),
            // The caller's own; one that it has not stays unset.
            None => match wanted.iter().find(|(name, _)| name == setting.as_str()) {
                Some((_, value)) => (setting.as_str(), value.clone()),
                None => continue,
            },
        };
        if is_name(name) {
            kept.push((name.into(), value));
        }
    }
    kept
}

/// The environment of the command where there are several machines: Hydra's `mpiexec` starts ranks on all of them,
/// by the guest's own remote shell.
pub(super) fn several(
    environment: &[(OsString, OsString)],
    hosts: u8,
) -> Vec<(OsString, OsString)> {
    let mut all = environment.to_vec();
    if hosts > 1 {
        for (name, value) in [
            ("HYDRA_LAUNCHER", "rsh"),
            ("HYDRA_LAUNCHER_EXEC", "/run/portolan-guest/rsh"),
            ("HYDRA_HOST_FILE", "/run/portolan-guest/hosts"),
        ] {
            if !all.iter().any(|(n, _)| n == name) {
                all.push((name.into(), value.into()));
            }
        }
    }
    all
}

/// The command of a machine that serves the first one: runs the line on its standard input.
pub(super) fn served() -> Vec<OsString> {
    let serve = "IFS= read -r line && eval \"$line\" </dev/null 2>&1";
    ["/bin/sh", "-c", serve].map(OsString::from).to_vec()
}

/// A POSIX shell script that changes to `folder`, sets `environment` and becomes `command`.
pub(super) fn script(
    folder: &Path,
    environment: &[(OsString, OsString)],
    command: &[OsString],
) -> Vec<u8> {
    let mut text = Vec::new();
    text.extend_from_slice(b"cd ");
    quote(&mut text, folder.as_os_str());
    text.extend_from_slice(b" || exit 126\n");
    for (name, value) in environment {
        text.extend_from_slice(b"export ");
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        quote(&mut text, value);
        text.push(b'\n');
    }
    text.extend_from_slice(b"exec");
    for word in command {
        text.push(b' ');
        quote(&mut text, word);
    }
    text.push(b'\n');
    text
}

/// Is `text` a name that a POSIX shell can export?
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Single-quotes `word`, byte for byte.
fn quote(to: &mut Vec<u8>, word: &OsStr) {
    to.push(b'\'');
    for &byte in word.as_bytes() {
        if byte == b'\'' {
            to.extend_from_slice(b"'\\''");
        } else {
            to.push(byte);
        }
    }
    to.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn pair(name: &str, value: &str) -> (OsString, OsString) {
        (name.into(), value.into())
    }

    #[test]
    fn a_served_line_is_run_with_its_environment() {
        use std::io::Write as _;
        let script = script(Path::new("/usr"), &[pair("A", "b c")], &served());
        let mut child = Command::new("/bin/sh")
            .arg("-c")
            .arg(OsStr::from_bytes(&script))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin
            .write_all(b"pwd; printf '<%s>' \"$A\" 'x  y'; cat\nmore")
            .unwrap();
        drop(stdin);
        let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(text, "/usr\n<b c><x  y>");
    }

    #[test]
    fn the_script_reproduces_folder_environment_and_words() {
        let environment = environment(
            [
                pair("HOME", "/it's"),
                pair("GASNET_X", "a b\n$c"),
                pair("SECRET", "no"),
                pair("TOKEN", "its own"),
            ]
            .into_iter(),
            Some(Path::new("/opt/portolan")),
            &["EXTRA=1=2", "TOKEN", "ABSENT"].map(str::to_owned),
        );
        let command = [
            "/bin/sh",
            "-c",
            "pwd; env; printf '<%s>' \"$@\"",
            "x",
            "a'b",
            "",
            "$HOME",
        ];
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let script = script(Path::new("/usr"), &environment, &command);
        let output = Command::new("/bin/sh")
            .arg("-c")
            .arg(OsStr::from_bytes(&script))
            .env_clear()
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("/usr\n"), "{text}");
        assert!(text.ends_with("<a'b><><$HOME>"), "{text}");
        assert!(text.contains("HOME=/it's\n"), "{text}");
        assert!(text.contains("GASNET_X=a b\n$c\n"), "{text}");
        assert!(text.contains("EXTRA=1=2\n"), "{text}");
        assert!(text.contains("PORTOLAN_TEST_DEVICE=rxe0\n"), "{text}");
        assert!(
            text.contains("PATH=/opt/portolan:/usr/local/sbin:"),
            "{text}"
        );
        assert!(text.contains("TOKEN=its own\n"), "{text}");
        assert!(!text.contains("SECRET"), "{text}");
        assert!(!text.contains("ABSENT"), "{text}");
    }
}
