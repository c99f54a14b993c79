//! Finding the program and starting its ranks.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use portals_shim::nal::seastar::EXECUTABLE_VARIABLE;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::CpuSet;

use super::socket::LineSocket;
use super::tags::Written;
use super::{JobSpec, edge};

/// Beginnings of the names by which launchers, this one too, tell a process that it is a rank.
const ABOVE: [&str; 3] = ["PMI_", "PMIX_", "PORTOLAN_LAUNCHER"];

/// How often a process is looked at whose end no descriptor tells.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A started process that leads its own session and group.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// Readable when the process has ended; none where the system refuses such descriptors.
    pub(super) pidfd: Option<OwnedFd>,
}

/// Raises the limit of descriptors, for this process and the ranks, as far as it may be.
pub(super) fn raise_descriptors() {
    if let Err(error) = portals_shim::limit::raise_descriptors() {
        tracing::warn!(%error, "the limit of descriptors stays as it is");
    }
}

/// Looks for `program` as given, then in `PATH`, then beside this command.
pub(crate) fn find_program(program: &OsStr) -> Option<PathBuf> {
    let given = Path::new(program);
    if is_program(given) {
        // With a folder in front, so that exec does not search PATH for it.
        let bare = given.components().count() == 1 && !given.is_absolute();
        return Some(if bare {
            Path::new(".").join(given)
        } else {
            given.to_owned()
        });
    }
    if given.components().count() != 1 {
        return None;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let beside = env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(Path::to_owned));
    let mut places = env::split_paths(&path)
        .filter(|p| !p.as_os_str().is_empty())
        .chain(beside);
    places.find_map(|place| Some(place.join(given)).filter(|p| is_program(p)))
}

/// Why [`find_program`] finds none: there is a file that may not be executed, or nothing.
pub(crate) fn no_program(program: &OsStr) -> String {
    let given = Path::new(program);
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|place| place.join(given));
    let bare = given.components().count() == 1;
    let mut places = std::iter::once(given.to_owned()).chain(in_path.filter(|_| bare));
    match places.find(|place| place.is_file()) {
        Some(file) => {
            let why = cannot_execute(&file).unwrap_or_else(|| "permission denied".to_owned());
            format!("{} cannot be executed: {why}", file.display())
        }
        None if given.is_dir() && !bare => {
            let folder = given.display();
            format!("{folder} is a directory; name the program in it")
        }
        None if hidden(given) && !bare => {
            format!("{} cannot be reached: permission denied", given.display())
        }
        None if bare => format!(
            "no program {program:?} here, in PATH or beside portolan; give its path, such as /folder/{}",
            given.display()
        ),
        None => format!("no program {program:?}; its path may be misspelt"),
    }
}

fn hidden(path: &Path) -> bool {
    let found = path.metadata().map_err(|error| error.kind());
    matches!(found, Err(io::ErrorKind::PermissionDenied))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && cannot_execute(path).is_none()
}

/// Why this file may not be executed, as the end of a sentence; `None` also where only its start shows whether it may.
fn cannot_execute(file: &Path) -> Option<String> {
    let errno = access(file, Access::EXEC_OK).err()?;
    let mode = file.metadata().map_or(0o111, |m| m.permissions().mode());
    let mount = statvfs(file).map(|v| v.f_flag);
    let is_noexec = mount.is_ok_and(|flags| flags.contains(StatVfsMountFlags::NOEXEC));
    why_not(file, errno, mode, is_noexec)
}

/// What `access` refuses with `errno`, of a file with these permissions. A filter of system calls may refuse the question
/// and permit the start, so the refusal counts only where the file explains it.
fn why_not(file: &Path, errno: Errno, mode: u32, is_noexec: bool) -> Option<String> {
    let bits = mode & 0o111;
    match errno {
        _ if bits == 0 => {
            let file = file.display();
            Some(format!("permission denied; `chmod +x {file}` allows it"))
        }
        Errno::ACCESS if is_noexec => Some(format!("{errno}; its file system is mounted noexec")),
        Errno::ACCESS if bits != 0o111 => {
            Some(format!("{errno}; its mode is {:04o}", mode & 0o7777))
        }
        _ => None,
    }
}

/// What a rank has for itself.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// The processors that it runs on; without them the launcher's.
    pub(super) processors: Option<CpuSet>,
    /// Where it writes; without them where the launcher does.
    pub(super) written: Option<Written>,
}

/// Starts rank `rank` of the job and returns the process and the launcher's end of its line.
pub(super) fn rank(
    spec: &JobSpec,
    program: &Path,
    rank: u32,
    own: Own,
) -> io::Result<(Process, LineSocket)> {
    let (ours, theirs) = UnixStream::pair()?;
    // The rank's end survives exec; it closes here when this function returns, so that no other rank
    // inherits it.
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut command = Command::new(program);
    // A launcher above this one must not be taken for the rank's.
    for (name, _) in env::vars_os() {
        let above = |beginning: &&str| name.as_encoded_bytes().starts_with(beginning.as_bytes());
        if ABOVE.iter().any(above) {
            command.env_remove(name);
        }
    }
    command
        .args(&spec.args)
        .envs(spec.env.iter().map(|(k, v)| (k, v)));
    if spec.pmi {
        command
            .env("PMI_FD", theirs.as_raw_fd().to_string())
            .env("PMI_RANK", rank.to_string())
            .env("PMI_SIZE", spec.ranks.to_string());
    }
    // A rank on the SeaStar fabric starts the simulation, which is a command of this executable.
    if env::var_os(EXECUTABLE_VARIABLE).is_none()
        && let Ok(own) = env::current_exe()
    {
        command.env(EXECUTABLE_VARIABLE, own);
    }
    // What is typed at a terminal the front gives to the supervisor.
    command.stdin(if rank == 0 {
        Stdio::inherit()
    } else {
        host::null_stdio::input()?
    });
    if let Some(written) = own.written {
        command.stdout(written.out).stderr(written.err);
    }
    let (process, _) = start(&mut command, own.processors)?;
    Ok((process, LineSocket::new(ours)?))
}

/// Starts `command` in a session of its own, tied to this process's life, on `processors` where there are some.
///
/// Without a terminal that is theirs ranks may write to one at any time: where `stty tostop` is set, the system stops
/// a process of another group of the terminal's session that does.
pub(super) fn start(
    command: &mut Command,
    processors: Option<CpuSet>,
) -> io::Result<(Process, Option<std::process::ChildStdin>)> {
    edge::tie_to_launcher(command, host::ids::process(), processors);
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    let stdin = child.stdin.take();
    let pidfd = pidfd_open(pid, PidfdFlags::empty())
        .inspect_err(|errno| tracing::debug!(%errno, "the end of a process has to be looked for"))
        .ok();
    Ok((Process { pid, pidfd }, stdin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_path_and_by_path() {
        assert!(find_program(OsStr::new("sh")).is_some_and(|p| p.is_absolute()));
        assert_eq!(
            find_program(OsStr::new("/bin/sh")),
            Some(PathBuf::from("/bin/sh"))
        );
    }

    #[test]
    fn a_file_that_may_not_be_executed_is_told_from_none() {
        let said = |name: &str| no_program(OsStr::new(name));
        assert_eq!(
            said("/etc/passwd"),
            "/etc/passwd cannot be executed: permission denied; `chmod +x /etc/passwd` allows it"
        );
        assert_eq!(said("/etc"), "/etc is a directory; name the program in it");
        let bare = said("no-such-program");
        let words =
            "no program \"no-such-program\" here, in PATH or beside portolan; give its path";
        assert!(bare.starts_with(words), "{bare}");
        let path = "no program \"/no/such\"; its path may be misspelt";
        assert_eq!(said("/no/such"), path);
    }

    #[test]
    fn a_refusal_counts_where_the_file_explains_it() {
        let said = |errno, mode, is_noexec| why_not(Path::new("/a/b"), errno, mode, is_noexec);
        for errno in [Errno::ACCESS, Errno::PERM, Errno::NOSYS] {
            let advice = "permission denied; `chmod +x /a/b` allows it";
            assert_eq!(said(errno, 0o644, false).as_deref(), Some(advice));
            // Nothing about the file is a reason: its start says whether the system permits it.
            assert_eq!(said(errno, 0o755, false), None, "{errno}");
        }
        let of_others = "Permission denied (os error 13); its mode is 0700";
        assert_eq!(
            said(Errno::ACCESS, 0o10_0700, false).as_deref(),
            Some(of_others)
        );
        assert_eq!(said(Errno::PERM, 0o700, false), None);
        let mount = "Permission denied (os error 13); its file system is mounted noexec";
        assert_eq!(said(Errno::ACCESS, 0o755, true).as_deref(), Some(mount));
        assert_eq!(said(Errno::NOSYS, 0o755, true), None);
    }

    #[test]
    fn what_is_no_program_is_not_found() {
        for name in [
            "",
            "/",
            "/etc/passwd",
            "/bin",
            "./sh",
            "no-such-program-anywhere",
        ] {
            assert_eq!(find_program(OsStr::new(name)), None, "{name:?}");
        }
    }
}
