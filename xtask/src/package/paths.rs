//! Programs name the files of their sources where they panic. What is packed names them from a folder on that is the same everywhere, so
//! that nothing tells of the machine that built it, and two machines build the same bytes.

use crate::cargo::{self, root};
use crate::install;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Flags for rustc between which there is this byte, which no path has.
const FLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";
const BETWEEN: &str = "\x1f";

/// The folder in which cargo keeps crates of others.
fn cargo_home() -> Result<PathBuf> {
    let given = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = || Some(std::env::home_dir()?.join(".cargo"));
    given.or_else(home).context("no home folder")
}

/// The folders whose names are left out, and what stands for them: the workspace, and each folder of crates of others.
fn replaced() -> Result<Vec<(PathBuf, &'static str)>> {
    let sources = cargo_home()?.join("registry/src");
    let mut all = vec![(root(), "portolan")];
    for registry in
        std::fs::read_dir(&sources).with_context(|| format!("cannot read {}", sources.display()))?
    {
        all.push((registry?.path(), "crates"));
    }
    Ok(all)
}

/// The flags for rustc: those that cargo would take, and one for each folder.
fn flags() -> Result<OsString> {
    let mut flags = std::env::var_os(FLAGS).unwrap_or_else(|| {
        let plain = std::env::var("RUSTFLAGS").unwrap_or_default();
        let words: Vec<_> = plain.split_whitespace().collect();
        words.join(BETWEEN).into()
    });
    for (folder, instead) in replaced()? {
        if !flags.is_empty() {
            flags.push(BETWEEN);
        }
        flags.push("--remap-path-prefix=");
        flags.push(folder);
        flags.push("=");
        flags.push(instead);
    }
    Ok(flags)
}

/// Builds what is packed.
pub(super) fn build() -> Result<()> {
    // Crates of others have to be there before their folder can be named.
    cargo::run(&mut cargo::cargo(&["fetch", "--quiet", "--locked"]))?;
    cargo::run(install::build().env(FLAGS, flags()?))
}

/// An error if a program or library has the workspace's place in it, or that of crates of others.
pub(super) fn check(files: &[PathBuf]) -> Result<()> {
    for (folder, _) in replaced()? {
        for file in files {
            if has(file, &folder)? {
                bail!("{} has {} in it", file.display(), folder.display());
            }
        }
    }
    Ok(())
}

fn has(file: &Path, folder: &Path) -> Result<bool> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let word = folder.as_os_str().as_encoded_bytes();
    Ok(bytes.windows(word.len()).any(|here| here == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_the_workspace_in_it_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let [clean, tells] = ["clean", "tells"].map(|name| folder.path().join(name));
        std::fs::write(&clean, "portolan/src/main.rs").unwrap();
        let place = root().join("src/main.rs");
        let text = [b"\0", place.as_os_str().as_encoded_bytes(), b"\0"].concat();
        std::fs::write(&tells, text).unwrap();
        check(std::slice::from_ref(&clean)).unwrap();
        let said = check(&[clean, tells.clone()]).unwrap_err().to_string();
        assert!(said.starts_with(&*tells.to_string_lossy()), "{said}");
    }

    #[test]
    fn rustc_is_told_what_stands_for_each_folder() {
        let flags = flags().unwrap().into_string().unwrap();
        let wanted = format!("--remap-path-prefix={}=portolan", root().display());
        assert!(flags.split(BETWEEN).any(|flag| flag == wanted), "{flags}");
        assert!(
            flags.split(BETWEEN).any(|flag| flag.ends_with("=crates")),
            "{flags}"
        );
    }
}
