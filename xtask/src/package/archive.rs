//! The packages themselves.

use super::stage::Staged;
use super::{Form, VERSION, output};
use crate::cargo::root;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to say of it in a line.
const SUMMARY: &str = "Portals 3.3, the GASNet portals-conduit and a libfabric provider";

/// The time of all files in packages: the commit's, so that the same sources give the same package.
fn time() -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let commit = || {
        let mut git = Command::new("git");
        let time = output(git.args(["log", "-1", "--format=%ct"]).current_dir(root()));
        time.map(|t| t.trim().to_owned()).ok()
    };
    given.or_else(commit).unwrap_or_else(|| "0".to_owned())
}

/// How Debian calls this machine's folder of libraries.
fn triplet() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

/// A file of `packaging` with what is filled in.
fn filled(name: &str, words: &[(&str, &str)]) -> Result<String> {
    let path = root().join("packaging").join(name);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let all = [("@VERSION@", VERSION), ("@SUMMARY@", SUMMARY)];
    let all = all.iter().chain(words);
    Ok(all.fold(text, |text, (mark, word)| text.replace(mark, word)))
}

/// Makes a package in `out`; its path.
pub(super) fn make(form: Form, out: &Path) -> Result<PathBuf> {
    match form {
        Form::Tar => tarball(out),
        Form::Deb => deb(out),
        Form::Rpm => rpm(out),
        Form::Wheel => wheel(out),
    }
}

fn tarball(out: &Path) -> Result<PathBuf> {
    let name = format!("portolan-{VERSION}");
    let staged = Staged::new(&name, "lib")?;
    let glibc = staged.glibc.to_string();
    let read = filled("README.tarball", &[("@GLIBC@", &glibc)])?;
    std::fs::write(staged.prefix().join("README"), read)?;
    let file = format!(
        "{name}-{}-linux-glibc{glibc}.tar.gz",
        std::env::consts::ARCH
    );
    let to = out.join(file);
    pack(&staged, &name, &to)?;
    Ok(to)
}

/// Packs a folder of the root, the same bytes each time.
fn pack(staged: &Staged, folder: &str, to: &Path) -> Result<()> {
    let mtime = format!("--mtime=@{}", time());
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        &mtime,
    ])
    .args(["--use-compress-program=gzip -n", "-cf"])
    .arg(to)
    .arg("-C")
    .arg(staged.root())
    .arg(folder);
    output(&mut tar).map(drop)
}

fn deb(out: &Path) -> Result<PathBuf> {
    let staged = Staged::new("usr", &format!("lib/{}", triplet()))?;
    let arch = output(Command::new("dpkg").arg("--print-architecture"))?;
    let arch = arch.trim();
    let control = filled(
        "debian-control",
        &[("@ARCH@", arch), ("@GLIBC@", &staged.glibc.to_string())],
    )?;
    let debian = staged.root().join("DEBIAN");
    std::fs::create_dir_all(&debian)?;
    std::fs::write(debian.join("control"), control)?;
    std::fs::write(debian.join("triggers"), "activate-noawait ldconfig\n")?;
    let to = out.join(format!("portolan_{VERSION}_{arch}.deb"));
    let mut command = Command::new("dpkg-deb");
    command
        .args(["--root-owner-group", "--build"])
        .arg(staged.root())
        .arg(&to)
        .env("SOURCE_DATE_EPOCH", time());
    output(&mut command)?;
    Ok(to)
}

fn rpm(out: &Path) -> Result<PathBuf> {
    let staged = Staged::new("usr", "lib64")?;
    let work = tempfile::tempdir()?;
    let source = work.path().join("installation.tar.gz");
    pack(&staged, "usr", &source)?;
    let spec = work.path().join("portolan.spec");
    let glibc = staged.glibc.to_string();
    std::fs::write(&spec, filled("portolan.spec", &[("@GLIBC@", &glibc)])?)?;
    let define = |name: &str, value: &Path| format!("{name} {}", value.display());
    let mut command = Command::new("rpmbuild");
    command
        .arg("-bb")
        .args(["--define", &define("_topdir", work.path())])
        .args(["--define", &define("_rpmdir", out)])
        .args(["--define", &define("_sourcedir", work.path())])
        // As in the other packages no time but the sources' counts, and no name of the machine.
        .args(["--define", "use_source_date_epoch_as_buildtime 1"])
        .args(["--define", "clamp_mtime_to_source_date_epoch 1"])
        .args(["--define", "_buildhost localhost"])
        .args([
            "--define",
            "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
        ])
        .arg(&spec)
        .env("SOURCE_DATE_EPOCH", time());
    output(&mut command)?;
    Ok(out.join(format!(
        "portolan-{VERSION}-1.{}.rpm",
        std::env::consts::ARCH
    )))
}

fn wheel(out: &Path) -> Result<PathBuf> {
    let staged = Staged::new("installation", "lib")?;
    let glibc = staged.glibc;
    let platform = format!(
        "manylinux_{}_{}_{}",
        glibc.0,
        glibc.1,
        std::env::consts::ARCH
    );
    let mut command = Command::new("python3");
    command
        .arg(root().join("packaging/wheel.py"))
        .arg(staged.prefix())
        .args([VERSION, &platform, SUMMARY])
        .arg(out)
        .env("SOURCE_DATE_EPOCH", time());
    let to = output(&mut command)?;
    Ok(to.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_wheel_has_commands_and_libraries_where_pip_puts_them() {
        if !crate::packages::is_there("python3") {
            println!("skipped: no python3");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["bin/run", "lib/one.so", "lib/one.a", "include/one.h"] {
            std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            std::fs::write(at(name), name).unwrap();
        }
        std::fs::set_permissions(at("bin/run"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("one.so", at("lib/two.so")).unwrap();
        let out = tempfile::tempdir().unwrap();
        let make = || {
            let mut command = Command::new("python3");
            command
                .arg(root().join("packaging/wheel.py"))
                .arg(folder.path())
                .args(["1.2", "manylinux_2_34_x86_64", "words"])
                .arg(out.path());
            output(command.env("SOURCE_DATE_EPOCH", "1000000000")).unwrap()
        };
        let wheel = make();
        let wheel = Path::new(wheel.trim());
        let name = "portolan-1.2-py3-none-manylinux_2_34_x86_64.whl";
        assert_eq!(wheel, out.path().join(name));
        let list = "import sys, zipfile\n\
                    for i in zipfile.ZipFile(sys.argv[1]).infolist(): print(oct(i.external_attr >> 16 & 0o777), i.filename)";
        let mut command = Command::new("python3");
        let list = output(command.args(["-c", list]).arg(wheel)).unwrap();
        let expected = [
            "0o755 portolan-1.2.data/scripts/run",
            "0o644 portolan-1.2.data/data/include/one.h",
            "0o644 portolan-1.2.data/data/lib/one.so",
            "0o644 portolan-1.2.dist-info/METADATA",
            "0o644 portolan-1.2.dist-info/WHEEL",
            "0o644 portolan-1.2.dist-info/RECORD",
        ];
        assert_eq!(list.lines().collect::<Vec<_>>(), expected);
        let first = std::fs::read(wheel).unwrap();
        make();
        assert!(std::fs::read(wheel).unwrap() == first, "other bytes");
    }
}
