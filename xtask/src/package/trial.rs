//! Each package installed and used in a root where nothing of this project is.

use super::Form;
use crate::cargo::{self, root};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// Installs a package in the root, uses it, and takes it away again. Needs to be root.
pub(super) fn install_and_use(form: Form, package: &Path, at: &Path) -> Result<()> {
    let name = package.file_name().context("a package without a name")?;
    let inside = Path::new("tmp").join(name);
    std::fs::copy(package, at.join(&inside))
        .with_context(|| format!("cannot copy into {}", at.display()))?;
    let script = "tmp/try-package";
    std::fs::copy(root().join("packaging/try.sh"), at.join(script))?;
    let word = match form {
        Form::Tar => "tar",
        Form::Deb => "deb",
        Form::Rpm => "rpm",
        Form::Wheel => "wheel",
    };
    // Mounts and processes of their own: nothing of them is left afterwards.
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c"])
        .arg("mount -t proc none \"$0/proc\" && mount --rbind /dev \"$0/dev\" && exec chroot \"$0\" sh \"$@\"")
        .arg(at)
        .arg(Path::new("/").join(script))
        .arg(word)
        .arg(Path::new("/").join(&inside));
    let done = cargo::run(&mut command);
    let _ = std::fs::remove_file(at.join(&inside));
    let _ = std::fs::remove_file(at.join(script));
    done
}
