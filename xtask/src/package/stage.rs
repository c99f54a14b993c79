//! The installation that is packed.

use super::{glibc, licences, output, paths};
use crate::install;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// An installation in a folder that is gone with this.
pub(super) struct Staged {
    root: TempDir,
    /// Where it is below the folder.
    prefix: PathBuf,
    pub(super) glibc: glibc::Version,
}

impl Staged {
    /// An installation at `prefix`, which is relative, of a root.
    pub(super) fn new(prefix: &str, libdir: &str) -> Result<Self> {
        let root = tempfile::tempdir().context("a folder for the installation")?;
        let to = root.path().join(prefix);
        std::fs::create_dir_all(&to)?;
        let written = install::into(&to, libdir)?;
        let programs: Vec<_> = written.into_iter().filter(|path| is_elf(path)).collect();
        for program in &programs {
            output(Command::new("strip").arg("--strip-unneeded").arg(program))?;
        }
        let archives = archives(&to.join(libdir))?;
        for archive in &archives {
            output(Command::new("strip").arg("--strip-debug").arg(archive))?;
        }
        paths::check(&programs)?;
        paths::check(&archives)?;
        licences::write(&to.join("share/doc/portolan/THIRD-PARTY"))?;
        Ok(Self {
            root,
            prefix: prefix.into(),
            glibc: glibc::floor(&programs)?,
        })
    }

    /// The folder that stands for the root.
    pub(super) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(super) fn prefix(&self) -> PathBuf {
        self.root().join(&self.prefix)
    }
}

/// Whether a file is an executable or a shared library, and no link to one.
fn is_elf(path: &Path) -> bool {
    let link = path.is_symlink();
    let begin = std::fs::read(path).unwrap_or_default();
    !link && begin.starts_with(b"\x7fELF")
}

/// The static libraries of a folder, without links.
fn archives(lib: &Path) -> Result<Vec<PathBuf>> {
    let files = std::fs::read_dir(lib)?.map(|entry| entry.map(|e| e.path()));
    let files = files.collect::<std::io::Result<Vec<_>>>()?;
    let is_archive = |p: &PathBuf| !p.is_symlink() && p.extension().is_some_and(|e| e == "a");
    Ok(files.into_iter().filter(is_archive).collect())
}
