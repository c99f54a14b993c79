//! GASNet-1 as its authors published it: its test programs, and its portals-conduit over `libportals3`. Nothing of it is in this
//! repository; the user fetches it, and it is built in a scratch folder.

use crate::cargo;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A commit whose portals-conduit links alone, and where it is.
const FETCH: &str = "fetch GASNet-1 with `git clone https://github.com/evidence/axiom-evi-gasnet`, \
                     check out 28e67e6b there, and give that folder";

/// Files without which a folder is no such checkout.
const FILES: [&str; 5] = [
    "gasnet.h",
    "tests/test.h",
    "tests/testsmall.c",
    "tests/testlarge.c",
    "tests/testam.c",
];
/// The same of the conduit, which later versions do not have.
const CONDUIT: &str = "portals-conduit/gasnet_core.c";

/// Old C, as compilers take it today; many of its warnings say no more than that.
pub(super) const OLD_C: &str = "-std=gnu89 -fcommon -w";

/// Features that the three programs need not. The processor's counter takes no virtual time, so the clock is POSIX's.
const CONFIGURE: [&str; 9] = [
    "--quiet",
    "--enable-portals",
    "--enable-force-posix-realtime",
    "--disable-auto-conduit-detect",
    "--disable-pshm",
    "--disable-par",
    "--disable-parsync",
    "--disable-mpi-compat",
    "--disable-dependency-tracking",
];

/// A checkout of GASNet-1.
#[derive(Debug)]
pub(super) struct Checkout(PathBuf);

impl Checkout {
    /// The checkout in `folder`.
    ///
    /// # Errors
    /// It is none, or one without the portals-conduit; the message says what to fetch.
    pub(super) fn find(folder: &Path) -> Result<Self> {
        let shown = folder.display();
        if !folder.is_dir() {
            bail!("--gasnet {shown} is no folder: {FETCH}");
        }
        let missing = FILES.iter().find(|file| !folder.join(file).is_file());
        if let Some(file) = missing {
            bail!("--gasnet {shown} is no checkout of GASNet-1, as {file} is missing: {FETCH}");
        }
        if !folder.join(CONDUIT).is_file() {
            bail!("--gasnet {shown} is a GASNet without portals-conduit: {FETCH}");
        }
        let folder = folder.canonicalize().with_context(|| shown.to_string());
        folder.map(Self)
    }

    /// The folder of the test programs.
    pub(super) fn tests(&self) -> PathBuf {
        self.0.join("tests")
    }

    /// Builds the portals-conduit in `scratch` over the Portals library that is installed under `prefix`. Gives the file of variables
    /// by which programs are compiled and linked with it.
    pub(super) fn build(&self, scratch: &Path, prefix: &Path) -> Result<PathBuf> {
        let sources = scratch.join("sources");
        self.copy_to(&sources)?;
        if !sources.join("configure").is_file() {
            // The check of versions knows those of its time alone.
            cargo::run_in(&sources, Command::new("./Bootstrap").arg("-n"))
                .context("GASNet's Bootstrap needs autoconf, automake and perl")?;
        }
        let built = scratch.join("built");
        fs::create_dir(&built)?;
        let lib = prefix.join("lib").display().to_string();
        let mut configure = Command::new(sources.join("configure"));
        configure
            .args(CONFIGURE)
            .env("CC", "cc")
            .env("CFLAGS", format!("-O2 {OLD_C}"))
            .env("PORTALS_INCLUDE", prefix.join("include"))
            .env(
                "PORTALS_LIBS",
                format!("-L{lib} -Wl,-rpath,{lib} -lportals3"),
            );
        cargo::run_in(&built, &mut configure)?;
        let conduit = built.join("portals-conduit");
        let mut make = Command::new("make");
        make.args(["--silent", "libgasnet-portals-seq.a", "portals-seq.mak"])
            .arg(format!("MANUAL_LIBCFLAGS={OLD_C}"));
        cargo::run_in(&conduit, &mut make)?;
        Ok(conduit.join("portals-seq.mak"))
    }

    /// Copies the sources, which `Bootstrap` changes, without their history.
    fn copy_to(&self, to: &Path) -> Result<()> {
        fs::create_dir(to)?;
        let mut copy = Command::new("cp");
        copy.args(["-R", "-t"]).arg(to);
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if entry.file_name() != ".git" {
                copy.arg(entry.path());
            }
        }
        cargo::run(&mut copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(folder: &Path) -> String {
        Checkout::find(folder).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_checkout_is_refused_with_what_to_fetch() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("nowhere");
        let shown = folder.path().display().to_string();
        assert!(refused(&nowhere).contains("nowhere is no folder: fetch GASNet-1"));
        let error = refused(folder.path());
        let expected =
            format!("--gasnet {shown} is no checkout of GASNet-1, as gasnet.h is missing: ");
        assert!(error.starts_with(&expected), "{error}");
        assert!(
            error.contains("axiom-evi-gasnet") && error.contains("28e67e6b"),
            "{error}"
        );
    }

    #[test]
    fn a_checkout_has_the_programs_and_the_conduit() {
        let folder = tempfile::tempdir().unwrap();
        let touch = |file: &str| {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        };
        FILES[..4].iter().copied().for_each(touch);
        assert!(refused(folder.path()).contains("as tests/testam.c is missing"));
        touch("tests/testam.c");
        assert!(refused(folder.path()).contains("a GASNet without portals-conduit"));
        touch(CONDUIT);
        let found = Checkout::find(folder.path()).unwrap();
        let real = folder.path().canonicalize().unwrap();
        assert_eq!(found.tests(), real.join("tests"));
    }

    #[test]
    fn sources_are_copied_without_their_history() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("tests")).unwrap();
        fs::create_dir_all(from.join(".git")).unwrap();
        fs::write(from.join("tests/test.h"), "here").unwrap();
        Checkout(from).copy_to(&to).unwrap();
        assert_eq!(fs::read_to_string(to.join("tests/test.h")).unwrap(), "here");
        assert!(!to.join(".git").exists());
    }
}
