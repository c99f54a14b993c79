//! `cargo xtask package`: an installation as a tarball, a Debian package, an RPM and a Python wheel.
//!
//! | file | makes |
//! |---|---|
//! | `paths.rs` | builds so that no path of this machine is in what is packed |
//! | `stage.rs` | the installation that is packed: stripped, with the licences of all that is in it |
//! | `glibc.rs` | the oldest glibc that it runs with, which names and dependencies say |
//! | `archive.rs` | the packages |
//! | `trial.rs` | each installed and used in a root of its own, if `--try` names one |
//!
//! `packaging/` has what is no code: the descriptions, and recipes for Spack, modules and containers.

mod archive;
mod glibc;
mod licences;
mod paths;
mod stage;
mod trial;

use crate::cargo;
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::path::PathBuf;
use std::process::Command;

/// A form in which an installation travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// An archive to unpack anywhere
    Tar,
    /// For Debian and Ubuntu
    Deb,
    /// For Fedora, RHEL, SUSE
    Rpm,
    /// For pip
    Wheel,
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// What to make; everything whose tools are here if none is named
    forms: Vec<Form>,
    /// The folder for the packages
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Install and use each package in this root, such as one of debootstrap
    #[arg(long, value_name = "ROOT")]
    r#try: Option<PathBuf>,
}

/// The version, as all packages have it.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Form {
    /// The command that makes it.
    fn tool(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::Deb => "dpkg-deb",
            Self::Rpm => "rpmbuild",
            Self::Wheel => "python3",
        }
    }
}

/// Runs a command; what it printed. An error when it fails.
fn output(command: &mut Command) -> Result<String> {
    let line = cargo::line(command);
    let out = command
        .output()
        .with_context(|| format!("cannot start {line}"))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        anyhow::bail!("{line}: {}\n{said}", out.status);
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

pub(crate) fn run(options: &Options) -> Result<()> {
    paths::build()?;
    let out = match &options.out {
        Some(out) => std::path::absolute(out)?,
        None => cargo::release_dir().with_file_name("package"),
    };
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let all = Form::value_variants().to_vec();
    let forms = if options.forms.is_empty() {
        all.into_iter()
            .filter(|form| {
                let there = crate::packages::is_there(form.tool());
                if !there {
                    println!("skipped: {form:?}, as {} is not installed", form.tool());
                }
                there
            })
            .collect()
    } else {
        options.forms.clone()
    };
    let mut made = Vec::new();
    for form in forms {
        let package = archive::make(form, &out)?;
        let size = std::fs::metadata(&package)?.len() as f64 / 1e6;
        println!("{} ({size:.1} MB)", package.display());
        made.push((form, package));
    }
    if let Some(root) = &options.r#try {
        for (form, package) in &made {
            trial::install_and_use(*form, package, root)?;
        }
    }
    Ok(())
}
