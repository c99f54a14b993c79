//! Libraries that were installed with this command.

use std::path::{Path, PathBuf};

/// The file `name` below a folder of libraries of the installation that the executable `own` is of: `lib`, `lib64` or Debian's for this
/// architecture.
pub(crate) fn library(own: &Path, name: impl AsRef<Path>) -> Option<PathBuf> {
    let prefix = own.parent()?.parent()?;
    let triplet = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = ["lib", "lib64", &triplet].map(|folder| prefix.join(folder));
    let mut files = folders.iter().map(|folder| folder.join(&name));
    files.find(|file| file.is_file())
}
