//! Which variables of the launcher's environment go to other hosts.

use std::ffi::OsString;

/// Variables that describe the place or the session, and would be wrong on another host.
const OF_THE_PLACE: [&str; 17] = [
    "_",
    "DISPLAY",
    "HOME",
    "HOST",
    "HOSTNAME",
    "LOGNAME",
    "MAIL",
    "OLDPWD",
    "PWD",
    "SHELL",
    "SHLVL",
    "TERM",
    "TMPDIR",
    "USER",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "PORTOLAN_EXE",
];

/// Beginnings of such names; those of launchers above this one among them.
const BEGINNINGS: [&str; 7] = ["SSH_", "XDG_", "DBUS_", "PMI_", "PMIX_", "SLURM_", "OMPI_"];

/// Whether the variable `name` goes to other hosts.
pub(super) fn travels(name: &str) -> bool {
    !OF_THE_PLACE.contains(&name) && !BEGINNINGS.iter().any(|b| name.starts_with(b))
}

/// What goes: the variables of this process that may travel, then those of the job, which always do.
/// Variables that are not UTF-8 stay, with a warning.
pub(super) fn forwarded(
    own: impl Iterator<Item = (OsString, OsString)>,
    job: &[(OsString, OsString)],
) -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        let (Ok(name), Ok(value)) = (name.clone().into_string(), value.into_string()) else {
            tracing::warn!(?name, "a variable that is not UTF-8 stays on this host");
            return None;
        };
        Some((name, value))
    };
    let own = own.filter_map(text).filter(|(name, _)| travels(name));
    own.chain(job.iter().cloned().filter_map(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_variables_travel_and_those_of_the_place_stay() {
        for name in [
            "GASNET_TRACEFILE",
            "PATH",
            "LD_LIBRARY_PATH",
            "PORTOLAN_LOG",
            "MY_OWN",
        ] {
            assert!(travels(name), "{name}");
        }
        for name in [
            "HOME",
            "PWD",
            "SSH_CONNECTION",
            "PMI_RANK",
            "PMIX_RANK",
            "SLURM_JOB_ID",
        ] {
            assert!(!travels(name), "{name}");
        }
        let own = [("A", "1"), ("HOME", "/h")].map(|(k, v)| (k.into(), v.into()));
        let job = [("HOME".into(), "/j".into())];
        let expected = [("A", "1"), ("HOME", "/j")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(forwarded(own.into_iter(), &job), expected);
    }
}
