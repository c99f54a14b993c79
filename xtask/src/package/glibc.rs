//! The oldest glibc that programs run with: the newest version of a symbol that any of them asks for.

use super::output;
use anyhow::{Context, Result};
use std::fmt;
use std::path::PathBuf;
use std::process::Command;

/// A version of glibc, such as 2.34.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u32, pub(super) u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The newest `GLIBC_x.y` among the words of a table of symbols. `GLIBC_PRIVATE` is none.
fn newest(table: &str) -> Option<Version> {
    let words = table.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
    words
        .filter_map(|word| {
            let mut parts = word.strip_prefix("GLIBC_")?.split('.');
            let number = |part: Option<&str>| part?.parse().ok();
            Some(Version(number(parts.next())?, number(parts.next())?))
        })
        .max()
}

/// The oldest glibc that all of the programs run with.
pub(super) fn floor(programs: &[PathBuf]) -> Result<Version> {
    let table = output(Command::new("objdump").arg("-T").args(programs))?;
    newest(&table).context("the programs ask for no symbol of glibc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts() {
        let table = "0 DF *UND* (GLIBC_2.2.5) write\n0 DF *UND* (GLIBC_2.34) dlsym\n(GLIBC_2.9) (GLIBC_PRIVATE)";
        assert_eq!(newest(table), Some(Version(2, 34)));
        assert_eq!(newest("DF *UND* (GCC_3.0) _Unwind_Resume"), None);
        assert!(Version(2, 4) < Version(2, 17));
    }
}
