//! What programs read when they ask the system for the time: the library that is preloaded for virtual time.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::installed;

/// Whose time the system's clocks show to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clock {
    /// The host's
    Host,
    /// That of the model: a library is preloaded
    Virtual,
}

/// The variable by which the system's loader is told of libraries.
const PRELOAD: &str = "LD_PRELOAD";
/// The library as it is installed, in a folder `portolan` of libraries.
const INSTALLED: &str = "libportolan-clock.so";
/// The same as it was built.
const BUILT: &str = "libportolan_clock.so";

/// Why there is no virtual time for programs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClockError {
    /// The library is missing.
    #[error(
        "--clock virtual needs {INSTALLED}, which is not installed beside {}; `cargo xtask install` installs it", .0.display()
    )]
    Missing(PathBuf),
    /// A blank or a colon separates the libraries of the list.
    #[error("--clock virtual: the path {:?} has a blank or a colon, and libraries of such paths cannot be preloaded", .0.display())]
    Separator(PathBuf),
}

/// The library as it was built or installed with this command.
fn found(own: &Path) -> Option<PathBuf> {
    let built = Some(own.with_file_name(BUILT)).filter(|path| path.is_file());
    let found = built.or_else(|| installed::library(own, Path::new("portolan").join(INSTALLED)))?;
    found.canonicalize().ok()
}

/// The list of libraries to preload: those that are named already stay in front, as sanitizers want to be.
fn list(library: PathBuf, others: Option<OsString>) -> Result<OsString, ClockError> {
    let bytes = library.as_os_str().as_encoded_bytes();
    if bytes
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || *byte == b':')
    {
        return Err(ClockError::Separator(library));
    }
    let mut list = others.unwrap_or_default();
    if !list.is_empty() {
        list.push(":");
    }
    list.push(library);
    Ok(list)
}

/// What a program needs in its environment for virtual time; `given` is the value that its environment has otherwise.
pub(crate) fn variable(
    own: &Path,
    given: Option<OsString>,
) -> Result<(OsString, OsString), ClockError> {
    let library = found(own).ok_or_else(|| ClockError::Missing(own.to_owned()))?;
    Ok((PRELOAD.into(), list(library, given)?))
}

/// The value of the variable in these, or in the environment.
pub(crate) fn given(variables: &[(OsString, OsString)]) -> Option<OsString> {
    let named = variables.iter().rev().find(|(name, _)| name == PRELOAD);
    named
        .map(|(_, value)| value.clone())
        .or_else(|| env::var_os(PRELOAD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn other_libraries_stay_in_front() {
        let one = || PathBuf::from("/lib/one.so");
        assert_eq!(list(one(), None).unwrap(), "/lib/one.so");
        assert_eq!(list(one(), Some(OsString::new())).unwrap(), "/lib/one.so");
        let two = list(one(), Some("two.so".into())).unwrap();
        assert_eq!(two, "two.so:/lib/one.so");
    }

    #[test]
    fn a_path_that_no_list_can_have_is_refused() {
        for path in ["/my lib/one.so", "/a:b/one.so"] {
            assert!(list(PathBuf::from(path), None).is_err(), "{path}");
        }
    }

    #[test]
    fn the_library_is_found_where_it_is_installed_and_where_it_is_built() {
        for place in [
            "lib/portolan/libportolan-clock.so",
            "lib64/portolan/libportolan-clock.so",
            "bin/libportolan_clock.so",
        ] {
            let prefix = tempfile::tempdir().unwrap();
            let own = prefix.path().join("bin/portolan");
            let library = prefix.path().join(place);
            fs::create_dir_all(own.parent().unwrap()).unwrap();
            assert!(variable(&own, None).is_err());
            fs::create_dir_all(library.parent().unwrap()).unwrap();
            fs::write(&library, "").unwrap();
            let (name, value) = variable(&own, None).unwrap();
            let found = library.canonicalize().unwrap();
            assert_eq!((name.to_str(), value), (Some("LD_PRELOAD"), found.into()));
        }
    }
}
