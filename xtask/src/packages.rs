//! What the tests need besides cargo, from the system's packages.

use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// (executable or file that shows it is there, Debian package).
const NEEDED: &[(&str, &str)] = &[
    ("cc", "gcc"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("modprobe", "kmod"),
    ("ip", "iproute2"),
    ("rdma", "iproute2"),
    ("ibv_devinfo", "ibverbs-utils"),
    ("ib_write_lat", "perftest"),
    ("mpiexec.hydra", "mpich"),
    ("/usr/share/doc/rdma-core", "rdma-core"),
    ("/usr/share/doc/librdmacm1", "librdmacm1"),
    ("/usr/share/doc/ibverbs-providers", "ibverbs-providers"),
];

/// The same, of what a test is left out without.
const WANTED: &[(&str, &str)] = &[
    ("python3", "python3"),
    ("pkg-config", "pkg-config"),
    ("valgrind", "valgrind"),
    ("fi_pingpong", "libfabric-bin"),
    ("/usr/include/rdma/fabric.h", "libfabric-dev"),
    ("mpirun.openmpi", "openmpi-bin"),
    ("mpicc.openmpi", "libopenmpi-dev"),
];

/// The launchers of `cargo xtask launchers`; each row is left out without its own.
const LAUNCHERS: &[(&str, &str)] = &[
    ("mpiexec.hydra", "mpich"),
    ("mpirun.openmpi", "openmpi-bin"),
    ("srun", "slurm-client"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("munged", "munge"),
    // Slurm looks for the library by the name that programs link.
    ("/usr/share/doc/libpmix-dev", "libpmix-dev"),
    ("ssh", "openssh-client"),
    ("sshd", "openssh-server"),
];

/// Whether an executable is in the path or a file exists.
pub(crate) fn is_there(name: &str) -> bool {
    place(name).is_some()
}

/// Where an executable is in the path, or a file if it exists.
pub(crate) fn place(name: &str) -> Option<PathBuf> {
    if name.starts_with('/') {
        return Some(name.into()).filter(|file: &PathBuf| file.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let folders = std::env::split_paths(&path).chain(system);
    folders.map(|d| d.join(name)).find(|file| file.is_file())
}

fn missing(of: &[(&str, &'static str)]) -> Vec<&'static str> {
    let mut missing: Vec<_> = of
        .iter()
        .filter(|(name, _)| !is_there(name))
        .map(|(_, package)| *package)
        .collect();
    missing.dedup();
    missing
}

/// Runs apt-get without questions; whether it succeeded.
fn apt(args: &[&str]) -> bool {
    Command::new("apt-get")
        .args(["-qq", "-o", "Dpkg::Use-Pty=0"])
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .is_ok_and(|s| s.success())
}

fn install(packages: &[&str]) -> bool {
    println!("installing {}", packages.join(" "));
    let install = ["install", "--yes", "--no-install-recommends"];
    apt(&[&install, packages].concat())
}

/// Whether packages can be installed: as root, on Debian and its kin.
fn installs() -> bool {
    let root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|o| o.stdout == b"0\n");
    root && is_there("apt-get")
}

/// Installs the launchers that are missing, as far as that can be done.
pub(crate) fn ensure_launchers() -> Result<()> {
    let missing = missing(LAUNCHERS);
    if missing.is_empty() {
        return Ok(());
    }
    if !installs() {
        println!(
            "skipped: what needs {}, which are not there",
            missing.join(", ")
        );
        return Ok(());
    }
    let updated = apt(&["update"]);
    for package in missing {
        if !updated || !install(&[package]) {
            println!("skipped: what needs {package}, which apt-get could not install");
        }
    }
    Ok(())
}

/// Installs what is missing (as root, on Debian and its kin), or says what to install.
pub(crate) fn ensure() -> Result<()> {
    let (needed, wanted) = (missing(NEEDED), missing(WANTED));
    let installs = installs();
    let list = needed.join(" ");
    if !installs && !needed.is_empty() {
        bail!(
            "the tests need these Debian packages: {list} (for example: sudo apt-get install {list})"
        );
    }
    if !installs || (needed.is_empty() && wanted.is_empty()) {
        return Ok(());
    }
    let updated = apt(&["update"]);
    let got = |packages: &[&str]| packages.is_empty() || (updated && install(packages));
    if !got(&needed) {
        bail!("apt-get could not install {list}");
    }
    for package in wanted {
        if !got(&[package]) {
            println!("skipped: what needs {package}, which apt-get could not install");
        }
    }
    Ok(())
}
