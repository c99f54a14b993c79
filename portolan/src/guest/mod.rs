//! `portolan guest`: a small QEMU machine with SoftRoCE that runs a command on this machine's files.
//!
//! The guest boots the distribution's kernel with a first file system made here, mounts this machine's root
//! read-only over 9p with a writable layer in memory on top (what the command writes is discarded), makes the
//! RDMA device `rxe0` on a dummy interface (10.9.0.1/24, MTU 4200) and runs the command as root. The command's
//! standard output and error come out on ours, byte for byte; its standard input is empty.
//!
//! ```text
//!  portolan guest ──▶ image: kernel + modules (cached)      job: folder, environment, command
//!        │                         └───────────┬──────────────────┘
//!        │                                   cpio: initramfs with init.sh
//!        ▼                                     ▼
//!      qemu ── console (kept, shown when the guest fails) · control · stdout · stderr ports ── init.sh ── job
//! ```
//!
//! With `--hosts 2` a second machine boots, joined to the first by a wire of QEMU's (a socket between the two
//! processes, which nothing else sees). Both have `rxe0` on the wire's interface, 10.9.0.1 and 10.9.0.2, and the names
//! `host0` and `host1`. The command runs on the first; the second runs what `/run/portolan-guest/rsh host1 WORDS…`
//! sends it, and the environment tells Hydra's `mpiexec` to start ranks so, on both.

mod clock;
mod cpio;
mod image;
mod job;
mod qemu;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cmd::numbers::whole;
use crate::waiting::Waiting;

/// What `portolan guest` is asked to do.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GuestOptions {
    /// Machines to boot, 1 or 2
    ///
    /// Two are joined by a wire and have rxe0 each, and mpiexec in the command starts ranks on both.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) hosts: u8,
    /// Memory of the guest in MiB
    ///
    /// Half of it is the room for files that the command writes.
    #[arg(long, default_value_t = 3072, value_name = "MIB", value_parser = whole(256..=u32::MAX))]
    pub(crate) memory: u32,
    /// Processors of the guest
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = whole(1..=255u32))]
    pub(crate) cpus: u32,
    /// Seconds after which the guest is ended; 0 for no limit
    ///
    /// The boot counts too.
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = whole(0..=u64::MAX))]
    pub(crate) timeout: u64,
    /// Use the processor's virtualisation (KVM) instead of emulation
    #[arg(long)]
    pub(crate) kvm: bool,
    /// Set a variable for the command; may be repeated
    ///
    /// Without a value this process's own is handed over, which then stands on no command line.
    #[arg(long = "env", value_name = "K[=V]")]
    pub(crate) env: Vec<String>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Why the guest did not give the command's exit status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum GuestError {
    /// No machine, or more than two.
    #[error("--hosts {0}: 1 and 2 are supported")]
    Hosts(u8),
    /// No command.
    #[error("no command to run in the guest")]
    NoCommand,
    /// Programs or files that this machine lacks, and what to install.
    #[error("no guest can be booted here: {}", .0.join("; "))]
    Missing(Vec<String>),
    /// The kernel could not be had.
    #[error("guest kernel: {0}")]
    Kernel(String),
    /// A file operation on this machine.
    #[error("cannot {what}")]
    Io {
        /// The operation and its object.
        what: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The guest did not reach the command.
    #[error("the guest did not boot: {why}\n{console}")]
    NotBooted {
        /// What is known of the cause.
        why: String,
        /// The last lines of QEMU's messages and the guest's console.
        console: String,
    },
    /// The guest ended while the command ran.
    #[error("the guest died while the command ran\n{console}")]
    Died {
        /// The last lines of QEMU's messages and the guest's console.
        console: String,
    },
    /// The time limit passed.
    #[error("the guest was ended after {} s (--timeout)", .0.as_secs())]
    TimedOut(Duration),
    /// A signal asked for the end.
    #[error("ended by signal {0}")]
    Interrupted(i32),
    /// The reader of our standard output or error went away.
    #[error("nobody reads the command's output any more")]
    OutputClosed,
}

impl GuestError {
    /// The exit status of `portolan` for this error: 2 bad usage, 3 no guest can be had here, 124 time limit,
    /// 128 + n signal n (13, SIGPIPE, for closed output).
    pub(crate) fn exit_status(&self) -> u8 {
        match self {
            Self::Hosts(_) | Self::NoCommand => 2,
            Self::Missing(_)
            | Self::Kernel(_)
            | Self::Io { .. }
            | Self::NotBooted { .. }
            | Self::Died { .. } => 3,
            Self::TimedOut(_) => 124,
            Self::Interrupted(signal) => 128 | u8::try_from(*signal & 0x7f).unwrap_or(0),
            Self::OutputClosed => 128 + 13,
        }
    }

    fn io(what: String) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Boots the guest, runs the command and gives its exit status (0-255).
pub(crate) fn run(options: &GuestOptions) -> Result<u8, GuestError> {
    if !(1..=2).contains(&options.hosts) {
        return Err(GuestError::Hosts(options.hosts));
    }
    if options.command.is_empty() {
        return Err(GuestError::NoCommand);
    }
    let tools = Tools::find()?;
    let getting = Waiting::begin("portolan guest: getting the guest's kernel ready".to_owned());
    let kernel = image::Kernel::cached()?;
    drop(getting);
    let here = std::env::current_dir().map_err(GuestError::io("find the current folder".into()))?;
    let own = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(Path::to_path_buf));
    let environment = job::environment(std::env::vars_os(), own.as_deref(), &options.env);
    let mut initramfs = Vec::new();
    for host in 0..options.hosts {
        let script = match host {
            0 => job::script(
                &here,
                &job::several(&environment, options.hosts),
                &options.command,
            ),
            // The others run what the first one sends, a line each.
            _ => job::script(&here, &environment, &job::served()),
        };
        initramfs.push(kernel.initramfs(&tools.busybox, &script)?);
    }
    qemu::run(&tools, options, &kernel.file(), initramfs)
}

/// What this machine lacks for a guest, and what to install; empty when nothing is missing.
pub(crate) fn missing() -> Vec<String> {
    match Tools::find() {
        Err(GuestError::Missing(missing)) => missing,
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// The programs of this machine that the guest is made with.
#[derive(Debug)]
struct Tools {
    qemu: PathBuf,
    busybox: PathBuf,
    /// `setpriv`, which ends QEMU if this process is killed; done without where it is absent.
    setpriv: Option<PathBuf>,
}

impl Tools {
    /// Finds them all, or says for each missing one what to install.
    fn find() -> Result<Self, GuestError> {
        let mut missing = Vec::new();
        if !cfg!(target_arch = "x86_64") {
            missing.push("portolan guest works on x86_64 machines only".to_owned());
        }
        let mut need = |name: &str, package: &str| {
            let found = find_program(name);
            if found.is_none() {
                missing.push(format!("{name} is missing: apt-get install {package}"));
            }
            found.unwrap_or_default()
        };
        let qemu = need("qemu-system-x86_64", "qemu-system-x86");
        let busybox = need("busybox", "busybox-static");
        need(
            "apt-get",
            "apt (the guest's kernel is taken from a Debian package)",
        );
        need("dpkg", "dpkg");
        need("rdma", "iproute2");
        if !busybox.as_os_str().is_empty() && !is_static(&busybox) {
            missing.push(format!(
                "{} is not statically linked: apt-get install busybox-static",
                busybox.display()
            ));
        }
        if !Path::new("/etc/libibverbs.d/rxe.driver").exists() {
            missing
                .push("libibverbs does not know rxe: apt-get install ibverbs-providers".to_owned());
        }
        if missing.is_empty() {
            Ok(Self {
                qemu,
                busybox,
                setpriv: find_program("setpriv"),
            })
        } else {
            Err(GuestError::Missing(missing))
        }
    }
}

/// The file `name` in `PATH` or in the folders of system programs, which `PATH` often leaves out.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Is the ELF file without an interpreter (program header type 3), that is to say statically linked?
/// Header layout: ELF-64, e_phoff at 32, e_phentsize at 54, e_phnum at 56.
fn is_static(file: &Path) -> bool {
    let Ok(data) = std::fs::read(file) else {
        return false;
    };
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let field = data.get(at..at.checked_add(bytes)?)?;
        Some(
            field
                .iter()
                .rev()
                .fold(0, |value, &byte| value << 8 | usize::from(byte)),
        )
    };
    let interpreted = || -> Option<bool> {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        for index in 0..count {
            if number(table.checked_add(index * size)?, 4)? == 3 {
                return Some(true);
            }
        }
        Some(false)
    };
    data.starts_with(b"\x7fELF") && interpreted() == Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_program_is_not_static() {
        let exe = std::env::current_exe().unwrap();
        assert_eq!(is_static(&exe), cfg!(target_feature = "crt-static"));
        assert!(!is_static(Path::new("/etc/passwd")));
    }

    #[test]
    fn no_host_and_three_hosts_are_bad_usage() {
        for hosts in [0, 3] {
            let options = GuestOptions {
                hosts,
                memory: 1,
                cpus: 1,
                timeout: 1,
                kvm: false,
                env: Vec::new(),
                command: vec!["true".into()],
            };
            let error = run(&options).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            let text = format!("--hosts {hosts}: 1 and 2 are supported");
            assert_eq!(error.to_string(), text);
        }
    }
}
