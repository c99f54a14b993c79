//! How much memory this process may have: the machine's, what its control groups leave of it, and its own limits.
//!
//! More than a control group allows would be granted by `mmap`, and the process killed when it is touched. A group's limit is that of
//! all its ancestors too, and the job of a resource manager sits some levels below the root (`system.slice/slurmstepd.scope/job_N/step_M`).
//! Cgroups v1, v2 and both at a time (systemd's hybrid layout) are looked at as the kernel tells them in `/proc/self/cgroup` and
//! `/proc/self/mountinfo`; see cgroups(7) and `Documentation/admin-guide/cgroup-v2.rst` of Linux.

use crate::limit::limit;
use rustix::process::Resource;

/// Limits of memory, bytes; `None`: there is none, or the system does not tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Memory of the machine; 1 GiB where the kernel does not say.
    pub machine: u64,
    /// The least limit of the process's control group and its ancestors, as far as they are mounted here. All processes of
    /// the group share it.
    pub group: Option<u64>,
    /// What may still be mapped (`RLIMIT_AS`).
    pub addresses: Option<u64>,
    /// What may still be mapped privately and written (`RLIMIT_DATA`).
    pub data: Option<u64>,
}

impl MemoryLimits {
    /// The limits of this moment.
    #[must_use]
    pub fn now() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let statm = read("/proc/self/statm").unwrap_or_default();
        let used = |field: usize| {
            let pages = statm.split_ascii_whitespace().nth(field);
            let pages = pages.and_then(|p| p.parse::<u64>().ok()).unwrap_or(0);
            pages.saturating_mul(rustix::param::page_size() as u64)
        };
        let left = |of, field| {
            let most = limit(of).ok().and_then(|l| l.current);
            most.map(|most| most.saturating_sub(used(field)))
        };
        Self {
            machine: read("/proc/meminfo")
                .and_then(|text| total(&text))
                .unwrap_or(1 << 30),
            group: read("/proc/self/cgroup")
                .zip(read("/proc/self/mountinfo"))
                .and_then(|(groups, mounts)| group_limit(&groups, &mounts, &read)),
            addresses: left(Resource::As, 0),
            data: left(Resource::Data, 5),
        }
    }

    /// What all processes of this one's group may have together.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.group
            .map_or(self.machine, |group| group.min(self.machine))
    }
}

/// Memory of the machine, from `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kib.checked_mul(1024)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A mounted hierarchy that may limit memory.
#[derive(Debug)]
struct Mount {
    version: Version,
    /// The group that is seen at `place`, from the root of the control group namespace.
    root: String,
    place: String,
}

/// The least limit of the groups named by `/proc/self/cgroup` and of their ancestors, by mounts of `/proc/self/mountinfo`.
fn group_limit(groups: &str, mounts: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let mounts: Vec<_> = mounts.lines().filter_map(mount).collect();
    let limits = groups
        .lines()
        .filter_map(group)
        .flat_map(|(version, path)| {
            let same = mounts.iter().filter(move |m| m.version == version);
            same.filter_map(move |m| limit_within(m, path, read))
        });
    limits.min()
}

/// A line of `/proc/self/cgroup` of a hierarchy that may limit memory: which, and the process's group in it.
fn group(line: &str) -> Option<(Version, &str)> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let version = match controllers {
        "" => Version::V2,
        _ if controllers.split(',').any(|c| c == "memory") => Version::V1,
        _ => return None,
    };
    Some((version, path))
}

/// A line of `/proc/self/mountinfo`, if it is a mount of control groups that may limit memory.
fn mount(line: &str) -> Option<Mount> {
    let (about, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let (name, _, options) = (kind.next()?, kind.next(), kind.next().unwrap_or(""));
    let version = match name {
        "cgroup2" => Version::V2,
        "cgroup" if options.split(',').any(|o| o == "memory") => Version::V1,
        _ => return None,
    };
    let mut about = about.split(' ').skip(3);
    Some(Mount {
        version,
        root: unescaped(about.next()?),
        place: unescaped(about.next()?),
    })
}

/// A path of `mountinfo`, in which blanks and backslashes are octal numbers.
fn unescaped(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = after.get(..3).and_then(|o| u8::from_str_radix(o, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                plain.push(char::from(code));
                rest = &after[3..];
            }
            _ => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// The least limit from the group at `path` up to the top of a mount; `None` where the mount does not have the group, or
/// nothing is limited.
fn limit_within(m: &Mount, path: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let top = m.place.trim_end_matches('/');
    let below = below(&m.root, path)?;
    let mut dir = format!("{top}{below}");
    let mut least = None;
    let mut note = |limit: Option<u64>| {
        least = match (least, limit) {
            (Some(a), Some(b)) => Some(u64::min(a, b)),
            (a, b) => a.or(b),
        };
    };
    let number = |dir: &str, file: &str| read(&format!("{dir}/{file}"))?.trim().parse().ok();
    if m.version == Version::V1 {
        // That of ancestors too, also of those that are not mounted here.
        let stat = read(&format!("{dir}/memory.stat"));
        note(stat.as_deref().and_then(|text| {
            let mut lines = text.lines();
            let most = lines.find_map(|l| l.strip_prefix("hierarchical_memory_limit "))?;
            most.trim().parse().ok()
        }));
    }
    loop {
        match m.version {
            Version::V1 => note(number(&dir, "memory.limit_in_bytes")),
            // Beyond `memory.high` a group makes no headway. No limit is a word, and no number.
            Version::V2 => {
                note(number(&dir, "memory.max"));
                note(number(&dir, "memory.high"));
            }
        }
        if dir.len() <= top.len() {
            return least;
        }
        let parent = dir.rfind('/').unwrap_or(0).max(top.len());
        dir.truncate(parent);
    }
}

/// Where a group is below the one that a mount shows: nothing, or a path that begins with a slash.
fn below<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    let ups = |p: &str| p.split('/').filter(|c| *c == "..").count();
    let names = |p: &str| p.split('/').any(|c| !c.is_empty() && c != "..");
    // A mount that was made outside of the namespace shows an ancestor of its root, and names between are not known here.
    if ups(root) > 0 {
        return (!names(root) && ups(path) <= ups(root)).then_some("");
    }
    // The process was moved out of its namespace.
    if ups(path) > 0 {
        return None;
    }
    let path = path.trim_end_matches('/');
    let below = path.strip_prefix(root.trim_end_matches('/'))?;
    (below.is_empty() || below.starts_with('/')).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const MIB: u64 = 1 << 20;
    /// What v1 says where nothing is limited.
    const NONE: &str = "9223372036854771712\n";

    fn least(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<u64> {
        let files: BTreeMap<_, _> = files.iter().copied().collect();
        group_limit(groups, mounts, &|path| {
            files.get(path).map(|text| (*text).to_owned())
        })
    }

    const V2: &str = "\
24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
35 24 0:29 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
";

    #[test]
    fn a_step_of_slurm_has_the_limit_of_its_job() {
        let group = "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_1\n";
        let job = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_42";
        let [max, step, task] =
            ["", "/step_0", "/step_0/user/task_1"].map(|below| format!("{job}{below}/memory.max"));
        let files = [
            (max.as_str(), "838860800\n"),
            (&step, "max\n"),
            (&task, "max\n"),
        ];
        assert_eq!(least(group, V2, &files), Some(800 * MIB));
        // Each level may have less.
        let files = [
            (max.as_str(), "838860800\n"),
            (&step, "419430400\n"),
            (&task, "max\n"),
        ];
        assert_eq!(least(group, V2, &files), Some(400 * MIB));
        assert_eq!(least(group, V2, &[(&max, "max\n")]), None);
        // Of another job.
        let other = job.replace("job_42", "job_4") + "/memory.max";
        assert_eq!(least(group, V2, &[(&other, "4096\n")]), None);
    }

    #[test]
    fn slurm_with_version_1() {
        let groups = "12:pids:/\n\
            9:memory:/slurm/uid_1000/job_7/step_batch/task_0\n\
            8:cpu,cpuacct:/slurm/uid_1000/job_7\n1:name=systemd:/system.slice/slurmd.service\n";
        let mounts = "\
31 23 0:28 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:8 - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:12 - cgroup cgroup rw,memory
";
        let files = [
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", NONE),
            ("/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", NONE),
            (
                "/sys/fs/cgroup/memory/slurm/uid_1000/job_7/memory.limit_in_bytes",
                "838860800\n",
            ),
            (
                "/sys/fs/cgroup/memory/slurm/uid_1000/job_7/step_batch/task_0/memory.limit_in_bytes",
                NONE,
            ),
        ];
        assert_eq!(least(groups, mounts, &files), Some(800 * MIB));
        assert!(least(groups, mounts, &files[..2]) > Some(1 << 62));
        // What the group itself knows of its ancestors.
        let stat = [(
            "/sys/fs/cgroup/memory/slurm/uid_1000/job_7/step_batch/task_0/memory.stat",
            "cache 0\nhierarchical_memory_limit 104857600\nhierarchical_memsw_limit 9\ntotal_cache 0\n",
        )];
        assert_eq!(least(groups, mounts, &stat), Some(100 * MIB));
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount() {
        // Docker with version 1: the mount shows the container's group, the process has the whole path.
        let id = "3f2a9c";
        let groups = format!("4:memory:/docker/{id}\n0::/system.slice/containerd.service\n");
        let mounts = format!(
            "900 890 0:32 /docker/{id} /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n"
        );
        let files = [("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n")];
        assert_eq!(least(&groups, &mounts, &files), Some(512 * MIB));
        // A group of its own that the program made below.
        let groups = format!("4:memory:/docker/{id}/inner\n");
        let inner = [
            files[0],
            (
                "/sys/fs/cgroup/memory/inner/memory.limit_in_bytes",
                "268435456\n",
            ),
        ];
        assert_eq!(least(&groups, &mounts, &inner), Some(256 * MIB));
        // Another container's.
        assert_eq!(least("4:memory:/docker/3f2a9\n", &mounts, &files), None);
        // Docker and podman with version 2 and a control group namespace: both are the root.
        let mounts =
            "610 609 0:29 / /sys/fs/cgroup ro,nosuid,nodev - cgroup2 cgroup rw,nsdelegate\n";
        let files = [
            ("/sys/fs/cgroup/memory.max", "536870912\n"),
            ("/sys/fs/cgroup/memory.high", "max\n"),
        ];
        assert_eq!(least("0::/\n", mounts, &files), Some(512 * MIB));
    }

    #[test]
    fn a_scope_of_systemd() {
        let group = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-u3.scope\n";
        let slice = "/sys/fs/cgroup/user.slice/user-1000.slice";
        let scope = format!("{slice}/user@1000.service/app.slice/run-u3.scope");
        let (max, high) = (
            format!("{slice}/memory.max"),
            format!("{scope}/memory.high"),
        );
        let files = [(max.as_str(), "4294967296\n"), (&high, "1073741824\n")];
        assert_eq!(least(group, V2, &files), Some(1 << 30));
        assert_eq!(least(group, V2, &files[..1]), Some(4 << 30));
    }

    #[test]
    fn version_1_beside_version_2() {
        let groups = "4:memory:/jobs/a\n1:name=systemd:/\n0::/jobs/a\n";
        let mounts = "\
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup systemd rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
        let files = [
            (
                "/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes",
                "1048576\n",
            ),
            ("/sys/fs/cgroup/unified/jobs/a/memory.max", "2097152\n"),
        ];
        assert_eq!(least(groups, mounts, &files), Some(MIB));
        assert_eq!(least(groups, mounts, &files[1..]), Some(2 * MIB));
    }

    #[test]
    fn mounts_at_odd_places() {
        let mounts =
            "9 1 0:1 /a\\040b /mnt/my\\040groups\\134 rw shared:1 master:2 - cgroup2 none rw\n";
        let files = [("/mnt/my groups\\/c/memory.max", "4096")];
        assert_eq!(least("0::/a b/c\n", mounts, &files), Some(4096));
        assert_eq!(least("0::/a bc\n", mounts, &files), None);
        // Made outside of the namespace: the top of the mount is above this group.
        let above = "9 1 0:1 /../.. /sys/fs/cgroup rw - cgroup2 none rw\n";
        let files = [("/sys/fs/cgroup/memory.max", "4096")];
        assert_eq!(least("0::/\n", above, &files), Some(4096));
        // Beside it.
        let beside = above.replace("/../..", "/../x");
        assert_eq!(least("0::/\n", &beside, &files), None);
        assert_eq!(least("0::/../x\n", V2, &files), None);
    }

    #[test]
    fn what_is_no_limit_is_none() {
        let files = [("/sys/fs/cgroup/memory.max", "rubbish")];
        for groups in ["", "0::", "0::/", "rubbish", "3:cpu:/", "::"] {
            for mounts in [
                "",
                V2,
                "rubbish - cgroup2",
                " - cgroup2 x y",
                "1 2 3 - cgroup c memory",
            ] {
                assert_eq!(least(groups, mounts, &files), None, "{groups:?} {mounts:?}");
            }
        }
        assert_eq!(
            total("MemFree: 1 kB\nMemTotal:       2048 kB\n"),
            Some(2 * MIB)
        );
        assert_eq!(total("MemTotal: many kB\n"), None);
    }

    #[test]
    fn this_process_has_memory() {
        let now = MemoryLimits::now();
        assert!(now.memory() > 0 && now.memory() <= now.machine, "{now:?}");
    }
}
