//! What `portolan info` says of this process and its machine: what the library's own probes find.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use portals_shim::limit::limit;
use portals_shim::nal::shm;
use portals_shim::{MemoryLimits, allowed_processors, unknown_variables};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, PidfdFlags, Resource, dumpable_behavior, pidfd_open};
use serde::Serialize;

/// This machine and process, as a rank that is started from here would find them.
#[derive(Debug, Serialize)]
pub(super) struct HostInfo {
    /// Release of the kernel.
    kernel: String,
    /// Whether `pidfd_open` works, by which a rank knows that a peer lives.
    pidfd: Probe,
    /// Whether the kernel copies between processes (`process_vm_readv`).
    copies: Probe,
    /// `kernel.yama.ptrace_scope`, where the kernel has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ptrace_scope: Option<String>,
    namespaces: Vec<Namespace>,
    /// Whether other processes of the user may look into this one; a program may have more rights than its caller.
    dumpable: bool,
    /// Processors that this process may run on, and how many of its threads run at once.
    processors: Vec<usize>,
    at_once: usize,
    memory: MemoryInfo,
    /// None where the system does not say.
    descriptors: Option<Limit>,
    launchers: Vec<Launcher>,
    /// Variables that nothing reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variables: Vec<String>,
}

/// What a probe found.
#[derive(Debug, Serialize)]
struct Probe {
    works: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Probe {
    fn of(result: Result<(), String>) -> Self {
        Self {
            works: result.is_ok(),
            reason: result.err(),
        }
    }

    fn words(&self) -> String {
        match &self.reason {
            None => "works".to_owned(),
            Some(reason) => format!("refused ({reason})"),
        }
    }
}

/// A namespace of this process.
#[derive(Debug, Serialize)]
struct Namespace {
    namespace: &'static str,
    /// Its number, by which processes compare theirs.
    id: String,
    /// It is the machine's first; absent where that cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<bool>,
}

/// Bytes; an absent limit is none, unless the system does not tell it.
#[derive(Debug, Serialize)]
struct MemoryInfo {
    machine: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    control_group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    control_group_limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    addresses_left: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locked: Option<u64>,
    /// Limits that the system does not tell: a filter of system calls may refuse that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<&'static str>,
}

impl MemoryInfo {
    const LOCKED: &str = "locked";
    const ADDRESSES: &str = "addresses_left";

    fn limit(&self, name: &str, bytes: Option<u64>) -> String {
        match bytes {
            Some(bytes) => amount(bytes),
            None if self.unknown.contains(&name) => NOT_KNOWN.to_owned(),
            None => "unlimited".to_owned(),
        }
    }
}

const NOT_KNOWN: &str = "not known";

/// A soft limit and the hard one; absent is none.
#[derive(Debug, Serialize)]
struct Limit {
    #[serde(skip_serializing_if = "Option::is_none")]
    soft: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hard: Option<u64>,
}

/// A launcher that started this process, or a program of `PATH` that starts ranks.
#[derive(Debug, Serialize)]
struct Launcher {
    launcher: &'static str,
    /// The variable that says so, or the file.
    found: String,
}

/// Numbers that the kernel gives the machine's first namespaces (`include/linux/proc_ns.h`).
const FIRST: [(&str, Option<&str>); 4] = [
    ("pid", Some("4026531836")),
    ("user", Some("4026531837")),
    ("ipc", Some("4026531839")),
    ("net", None),
];

/// Variables by which launchers tell a process that it is a rank of theirs.
const SAID_BY: [(&str, &str); 5] = [
    ("PMI_FD", "PMI over a descriptor"),
    ("PMI_PORT", "PMI over a port"),
    ("PMIX_NAMESPACE", "PMIx"),
    ("SLURM_STEP_ID", "Slurm"),
    ("OMPI_COMM_WORLD_SIZE", "Open MPI"),
];

/// Programs that start ranks.
const PROGRAMS: [&str; 5] = ["mpiexec.hydra", "mpiexec", "mpirun", "srun", "ssh"];

impl HostInfo {
    pub(super) fn look() -> Self {
        let read = |file: &str| {
            let text = fs::read_to_string(file).ok();
            text.map(|text| text.trim().to_owned())
        };
        let pidfd = host::ids::process().ok_or(Errno::NOSYS);
        let pidfd = pidfd.and_then(|own| pidfd_open(own, PidfdFlags::empty()));
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let descriptors = limit(Resource::Nofile).ok();
        Self {
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned()),
            pidfd: Probe::of(pidfd.map(drop).map_err(|e| e.to_string())),
            copies: Probe::of(shm::check_copies()),
            ptrace_scope: read("/proc/sys/kernel/yama/ptrace_scope"),
            namespaces: namespaces(),
            dumpable: matches!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable)),
            processors: allowed_processors(),
            at_once: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory(),
            descriptors: descriptors.map(|d| Limit {
                soft: d.current,
                hard: d.maximum,
            }),
            launchers: launchers(),
            variables: unknown_variables(names),
        }
    }

    pub(super) fn words(&self) -> String {
        let mut lines = vec![format!("{:<8} kernel {}", "machine", self.kernel)];
        let mut add = |name: &str, text: String| lines.push(format!("  {name:<12} {text}"));
        add("pidfd", self.pidfd.words());
        let scope = self.ptrace_scope.as_ref();
        let scope = scope.map_or_else(String::new, |s| format!(", kernel.yama.ptrace_scope {s}"));
        add(
            "copies",
            format!("between processes: {}{scope}", self.copies.words()),
        );
        let namespaces = self.namespaces.iter().map(|n| {
            let first = match n.first {
                Some(true) => " (the machine's)",
                Some(false) => " (of its own)",
                None => "",
            };
            format!("{} {}{first}", n.namespace, n.id)
        });
        add("namespaces", namespaces.collect::<Vec<_>>().join(", "));
        add(
            "dumpable",
            if self.dumpable { "yes" } else { "no" }.to_owned(),
        );
        let (processors, at_once) = (ranges(&self.processors), self.at_once);
        add(
            "processors",
            format!("{processors}; {at_once} threads at once"),
        );
        let m = &self.memory;
        let group = match (&m.control_group, m.control_group_limit) {
            (Some(group), Some(limit)) => format!("{group} allows {}", amount(limit)),
            (Some(group), None) => format!("{group} has no limit"),
            (None, _) => "none".to_owned(),
        };
        add(
            "memory",
            format!("{}; control group {group}", amount(m.machine)),
        );
        let locked = m.limit(MemoryInfo::LOCKED, m.locked);
        let addresses = m.limit(MemoryInfo::ADDRESSES, m.addresses_left);
        add(
            "limits",
            format!("locked memory {locked}, addresses left {addresses}"),
        );
        let count = |n: Option<u64>| n.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
        let words = |d: &Limit| format!("{}, at most {}", count(d.soft), count(d.hard));
        let descriptors = self.descriptors.as_ref();
        add(
            "descriptors",
            descriptors.map_or_else(|| NOT_KNOWN.to_owned(), words),
        );
        let found = self.launchers.iter();
        let found: Vec<_> = found
            .map(|l| format!("{} ({})", l.launcher, l.found))
            .collect();
        let none = "none but portolan run".to_owned();
        add(
            "launchers",
            if found.is_empty() {
                none
            } else {
                found.join(", ")
            },
        );
        for line in &self.variables {
            add("variables", line.clone());
        }
        lines.join("\n")
    }
}

fn namespaces() -> Vec<Namespace> {
    let one = |(namespace, first): (&'static str, Option<&str>)| {
        let link = fs::read_link(format!("/proc/self/ns/{namespace}")).ok()?;
        let link = link.to_string_lossy().into_owned();
        let id = link.split(['[', ']']).nth(1)?.to_owned();
        let first = first.map(|first| first == id);
        Some(Namespace {
            namespace,
            id,
            first,
        })
    };
    FIRST.into_iter().filter_map(one).collect()
}

fn memory() -> MemoryInfo {
    let limits = MemoryLimits::now();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let locked = limit(Resource::Memlock);
    let unknown = [
        (MemoryInfo::LOCKED, locked.is_err()),
        (MemoryInfo::ADDRESSES, limit(Resource::As).is_err()),
    ];
    let unknown = unknown.into_iter().filter(|(_, unknown)| *unknown);
    MemoryInfo {
        machine: limits.machine,
        control_group: group_of(&groups),
        // The kernel's word for no limit, in version 1, is the largest number of whole pages.
        control_group_limit: limits.group.filter(|limit| *limit < 1 << 62),
        addresses_left: limits.addresses,
        locked: locked.ok().and_then(|l| l.current),
        unknown: unknown.map(|(name, _)| name).collect(),
    }
}

/// The group of `/proc/self/cgroup` that may limit memory: that of version 1's controller, or of version 2.
fn group_of(groups: &str) -> Option<String> {
    let fields = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1).map(str::to_owned);
        fields.next().zip(fields.next())
    };
    let all: Vec<(String, String)> = groups.lines().filter_map(fields).collect();
    let of_memory = |list: &str| list.split(',').any(|one| one == "memory");
    let old = all.iter().find(|(list, _)| of_memory(list));
    let found = old.or_else(|| all.iter().find(|(list, _)| list.is_empty()));
    found.map(|(_, group)| group.clone())
}

fn launchers() -> Vec<Launcher> {
    let said = SAID_BY.iter().filter_map(|(variable, launcher)| {
        let value = std::env::var_os(variable)?;
        let found = format!("{variable}={}", value.display());
        Some(Launcher { launcher, found })
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let present = PROGRAMS.iter().filter_map(|name| {
        let file = program(name, &path)?;
        let found = file.display().to_string();
        Some(Launcher {
            launcher: name,
            found,
        })
    });
    said.chain(present).collect()
}

/// The executable of this name in a list of folders.
pub(crate) fn program(name: &str, path: &OsStr) -> Option<PathBuf> {
    let mut places = std::env::split_paths(path).map(|folder| folder.join(name));
    places.find(|file| {
        file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
    })
}

/// The file of libibverbs that this process has loaded, whose name ends with its version.
pub(super) fn verbs_library() -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let files = maps.lines().filter_map(|line| line.split_once('/'));
    let mut files = files.map(|(_, file)| format!("/{file}"));
    files.find(|file| file.contains("/libibverbs.so"))
}

fn amount(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mib => format!("{mib} MiB"),
    }
}

/// Numbers in order, as a list such as `0-3,8`.
fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &n in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => parts.push((n, n)),
        }
    }
    let words = parts.into_iter().map(|(low, high)| match high - low {
        0 => low.to_string(),
        _ => format!("{low}-{high}"),
    });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_a_list_of_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn the_group_that_limits_memory_is_found() {
        let v2 = "0::/system.slice/job_7\n";
        assert_eq!(group_of(v2).as_deref(), Some("/system.slice/job_7"));
        let hybrid = "9:memory:/slurm/job_7\n4:cpu,cpuacct:/x\n0::/init.scope\n";
        assert_eq!(group_of(hybrid).as_deref(), Some("/slurm/job_7"));
        assert_eq!(group_of(""), None);
    }
}
