//! The environments of `cargo xtask hostile`, as data.

/// What an environment needs to be made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The right to make namespaces and to change users.
    Root,
    /// An executable in the path.
    Command(&'static str),
    /// User namespaces of those who are not root, which a kernel and whoever runs in a `chroot` may not have.
    UserNamespaces,
    /// So many processors that this process may use.
    Processors(usize),
}

/// Which copy of the program the ranks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    /// Anybody may read and run it.
    Plain,
    /// Mode 0711: the kernel makes a process that cannot read its own program not dumpable.
    NotReadable,
    /// With a file capability, which has the same effect.
    Capable,
}

/// What happens to the launcher while the job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Nothing.
    None,
    /// SIGTSTP, and SIGCONT once every rank stands still.
    StopAndContinue,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Environment {
    pub(super) name: &'static str,
    /// In front of the launcher. `DENY` is the program that refuses system calls.
    pub(super) outside: &'static [&'static str],
    /// The launcher; `N` is the number of ranks. Empty: `portolan run`.
    pub(super) launcher: &'static [&'static str],
    /// In front of each rank's program.
    pub(super) inside: &'static [&'static str],
    /// What the program does to itself: an argument of `gasnet_hostile`.
    pub(super) way: &'static str,
    pub(super) copy: Copy,
    pub(super) event: Event,
    pub(super) needs: &'static [Need],
    /// (fabric, words of the reason): where the job cannot run, it ends with status 3 and says so.
    pub(super) refused: &'static [(&'static str, &'static str)],
}

/// Nothing special; the rows below say what differs.
const PLAIN: Environment = Environment {
    name: "nothing special",
    outside: &[],
    launcher: &[],
    inside: &[],
    way: "plain",
    copy: Copy::Plain,
    event: Event::None,
    needs: &[],
    refused: &[],
};

/// Runs a command as a user who is nobody else here.
const AS_USER: &[&str] = &[
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--",
];

/// Calls that have no errors, where no filter refuses them.
const IDS: &str = "getpid,getppid,gettid,geteuid";

/// The rows. The first is what all others are compared with.
pub(super) const ALL: &[Environment] = &[
    PLAIN,
    Environment {
        name: "an ordinary user",
        outside: AS_USER,
        needs: &[Need::Root],
        ..PLAIN
    },
    // System calls that container profiles refuse and old kernels lack.
    Environment {
        name: "pidfd_open is unknown (ENOSYS)",
        inside: &["DENY", "ENOSYS", "pidfd_open"],
        ..PLAIN
    },
    Environment {
        name: "pidfd_open is refused (EPERM)",
        inside: &["DENY", "EPERM", "pidfd_open"],
        ..PLAIN
    },
    Environment {
        name: "copies between processes are refused (EPERM)",
        inside: &["DENY", "EPERM", "process_vm_readv,process_vm_writev"],
        ..PLAIN
    },
    Environment {
        name: "copies between processes are unknown (ENOSYS)",
        inside: &["DENY", "ENOSYS", "process_vm_readv,process_vm_writev"],
        ..PLAIN
    },
    Environment {
        name: "only writes between processes are refused",
        inside: &["DENY", "EPERM", "process_vm_writev"],
        ..PLAIN
    },
    Environment {
        name: "membarrier is unknown",
        inside: &["DENY", "ENOSYS", "membarrier"],
        ..PLAIN
    },
    Environment {
        name: "madvise is refused",
        inside: &["DENY", "EPERM", "madvise"],
        ..PLAIN
    },
    Environment {
        name: "memfd_create is unknown",
        inside: &["DENY", "ENOSYS", "memfd_create"],
        // Over verbs the device does without memory that is shared.
        refused: &[("shm", "memfd_create")],
        ..PLAIN
    },
    Environment {
        name: "getrandom is unknown",
        inside: &["DENY", "ENOSYS", "getrandom"],
        ..PLAIN
    },
    Environment {
        name: "no thread and no process can be started",
        inside: &["DENY", "EAGAIN", "clone,clone3,fork,vfork"],
        // Peers that connect over the device are answered by a thread, and the first rank starts the simulation.
        refused: &[
            (
                "verbs",
                "no thread for connections can be started: Resource temporarily unavailable",
            ),
            (
                "seastar",
                "cannot start: fabric seastar cannot be used here",
            ),
        ],
        ..PLAIN
    },
    Environment {
        name: "affinity and limits cannot be read",
        inside: &["DENY", "EPERM", "sched_getaffinity,prlimit64"],
        ..PLAIN
    },
    Environment {
        name: "numbers of processes, threads and users cannot be read",
        inside: &["DENY", "EPERM", IDS],
        ..PLAIN
    },
    Environment {
        name: "numbers of processes, threads and users are unknown to the launcher too",
        outside: &["DENY", "ENOSYS", IDS],
        ..PLAIN
    },
    Environment {
        name: "prctl is refused",
        inside: &["DENY", "EPERM", "prctl"],
        ..PLAIN
    },
    Environment {
        name: "prctl is unknown to the launcher too",
        outside: &["DENY", "ENOSYS", "prctl"],
        ..PLAIN
    },
    Environment {
        name: "descriptors of events and of timers are refused",
        inside: &["DENY", "EPERM", "eventfd2,timerfd_create"],
        refused: &[("verbs", "no event descriptor: Operation not permitted")],
        ..PLAIN
    },
    Environment {
        name: "ppoll is refused",
        inside: &["DENY", "EPERM", "ppoll"],
        refused: &[
            (
                "shm",
                "descriptors cannot be handed over a socket: Operation not permitted",
            ),
            (
                "seastar",
                "waiting for ranks failed: Operation not permitted",
            ),
        ],
        ..PLAIN
    },
    Environment {
        name: "pairs of sockets are refused",
        inside: &["DENY", "EPERM", "socketpair"],
        refused: &[
            ("shm", "no socket for descriptors: Operation not permitted"),
            (
                "seastar",
                "cannot start: fabric seastar cannot be used here",
            ),
        ],
        ..PLAIN
    },
    // Namespaces.
    Environment {
        name: "a PID namespace a rank, the host's /proc",
        inside: &["unshare", "--pid", "--fork", "--kill-child"],
        needs: &[Need::Root],
        ..PLAIN
    },
    Environment {
        name: "a PID namespace a rank, its own /proc",
        inside: &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"],
        needs: &[Need::Root],
        ..PLAIN
    },
    Environment {
        name: "a PID namespace a rank, an empty /proc",
        inside: &[
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs none /proc && exec \"$@\"",
            "sh",
        ],
        needs: &[Need::Root],
        refused: &[("seastar", "/proc is not mounted here")],
        ..PLAIN
    },
    Environment {
        name: "a PID namespace for one of the ranks",
        inside: &[
            "sh",
            "-c",
            "[ \"$PMI_RANK\" = 1 ] && exec unshare --pid --fork --kill-child \"$@\"; exec \"$@\"",
            "sh",
        ],
        needs: &[Need::Root],
        ..PLAIN
    },
    Environment {
        name: "a user namespace a rank",
        outside: AS_USER,
        inside: &["unshare", "--user", "--map-root-user"],
        needs: &[Need::Root, Need::UserNamespaces],
        ..PLAIN
    },
    Environment {
        name: "a user namespace around the job",
        outside: &[
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--",
            "unshare",
            "--user",
            "--map-root-user",
        ],
        needs: &[Need::Root, Need::UserNamespaces],
        ..PLAIN
    },
    Environment {
        name: "user, PID, mount, IPC and UTS namespaces a rank, as rootless containers",
        outside: AS_USER,
        inside: &[
            "unshare",
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--ipc",
            "--uts",
        ],
        needs: &[Need::Root, Need::UserNamespaces],
        ..PLAIN
    },
    Environment {
        name: "a network namespace a rank",
        inside: &["unshare", "--net"],
        needs: &[Need::Root],
        refused: &[(
            "seastar",
            "they must be on one machine and in one network namespace",
        )],
        ..PLAIN
    },
    Environment {
        name: "a network namespace a rank, users with a TMPDIR of root and umask 777",
        outside: &["env", "TMPDIR=/root"],
        inside: &[
            "unshare",
            "--net",
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--",
            "sh",
            "-c",
            "umask 777 && exec \"$@\"",
            "sh",
        ],
        needs: &[Need::Root],
        refused: &[(
            "seastar",
            "they must be on one machine and in one network namespace",
        )],
        ..PLAIN
    },
    Environment {
        name: "a /dev/shm and a /run a rank",
        inside: &[
            "unshare",
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs none /dev/shm && mount -t tmpfs none /run && exec \"$@\"",
            "sh",
        ],
        needs: &[Need::Root],
        ..PLAIN
    },
    Environment {
        name: "no /dev",
        outside: &[
            "unshare",
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs none /dev && exec \"$@\"",
            "sh",
        ],
        refused: &[("verbs", "/dev/infiniband has none of their files")],
        needs: &[Need::Root],
        ..PLAIN
    },
    Environment {
        name: "no place for temporary files",
        outside: &["env", "TMPDIR=/nonexistent", "XDG_RUNTIME_DIR=/nonexistent"],
        ..PLAIN
    },
    // What a program may be, and do to itself.
    Environment {
        name: "a program that cannot be read (mode 0711)",
        outside: AS_USER,
        copy: Copy::NotReadable,
        needs: &[Need::Root],
        refused: &[("seastar", "its user may run, but not read")],
        ..PLAIN
    },
    Environment {
        name: "a program with a capability",
        outside: AS_USER,
        copy: Copy::Capable,
        needs: &[Need::Root, Need::Command("setcap")],
        refused: &[("seastar", "the kernel closes its /proc/self/mem")],
        ..PLAIN
    },
    Environment {
        name: "ranks that clear PR_SET_DUMPABLE",
        way: "undumpable",
        ..PLAIN
    },
    Environment {
        name: "ranks of a user that clear PR_SET_DUMPABLE",
        outside: AS_USER,
        way: "undumpable",
        needs: &[Need::Root],
        ..PLAIN
    },
    Environment {
        name: "ranks that drop their privileges",
        way: "user",
        needs: &[Need::Root],
        ..PLAIN
    },
    Environment {
        name: "a rank that uses up its descriptors",
        way: "descriptors",
        ..PLAIN
    },
    Environment {
        name: "children that close every descriptor",
        way: "child",
        ..PLAIN
    },
    // Limits.
    Environment {
        name: "24 descriptors a rank",
        inside: &["prlimit", "--nofile=24:24"],
        ..PLAIN
    },
    Environment {
        name: "64 KiB of locked memory",
        inside: &["prlimit", "--memlock=65536:65536"],
        ..PLAIN
    },
    Environment {
        name: "1 GiB of address space",
        inside: &["prlimit", "--as=1073741824"],
        ..PLAIN
    },
    Environment {
        name: "a stack of 256 KiB",
        inside: &["prlimit", "--stack=262144"],
        ..PLAIN
    },
    Environment {
        name: "a stack of 64 KiB for the launcher",
        outside: &["prlimit", "--stack=65536:"],
        inside: &["prlimit", "--stack=8388608:"],
        ..PLAIN
    },
    Environment {
        name: "files of no more than 4 KiB",
        inside: &["prlimit", "--fsize=4096"],
        refused: &[("shm", "the limit of files (ulimit -f)")],
        ..PLAIN
    },
    // Descriptors and terminals.
    Environment {
        name: "standard descriptors closed for the launcher",
        outside: &["sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh"],
        ..PLAIN
    },
    Environment {
        name: "standard descriptors closed for the ranks",
        inside: &["sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh"],
        ..PLAIN
    },
    Environment {
        name: "standard output closed for one rank",
        inside: &[
            "sh",
            "-c",
            "[ \"$PMI_RANK\" = 1 ] && exec \"$@\" >&-; exec \"$@\"",
            "sh",
        ],
        ..PLAIN
    },
    Environment {
        name: "a full disk behind standard output",
        outside: &["sh", "-c", "exec \"$@\" >/dev/full", "sh"],
        ..PLAIN
    },
    Environment {
        name: "nohup",
        outside: &["nohup"],
        ..PLAIN
    },
    Environment {
        name: "the end of children ignored, as daemons have it",
        outside: &["env", "--ignore-signal=CHLD"],
        ..PLAIN
    },
    Environment {
        name: "a terminal of its own",
        outside: &["setsid", "--wait"],
        ..PLAIN
    },
    Environment {
        name: "stopped by Ctrl-Z, and continued",
        event: Event::StopAndContinue,
        ..PLAIN
    },
    Environment {
        name: "ranks that a thread has started which ends",
        inside: &[
            "python3",
            "-c",
            "import subprocess, sys, threading\n\
             ranks = []\n\
             def start():\n ranks.append(subprocess.Popen(sys.argv[1:], close_fds=False))\n \
             try: ranks[0].wait(0.1)\n except subprocess.TimeoutExpired: pass\n\
             thread = threading.Thread(target=start)\n\
             thread.start()\n\
             thread.join()\n\
             sys.exit(ranks[0].wait())",
        ],
        needs: &[Need::Command("python3")],
        ..PLAIN
    },
    // Processors.
    Environment {
        name: "ranks bound one to a processor",
        inside: &["sh", "-c", "exec taskset -c \"$PMI_RANK\" \"$@\"", "sh"],
        needs: &[Need::Processors(2)],
        ..PLAIN
    },
    Environment {
        name: "ranks bound to one processor together",
        outside: &["taskset", "-c", "0"],
        ..PLAIN
    },
    // Launchers beside and within one another.
    Environment {
        name: "mpiexec.hydra",
        launcher: &["mpiexec.hydra", "-n", "N"],
        needs: &[Need::Command("mpiexec.hydra")],
        ..PLAIN
    },
    Environment {
        name: "mpiexec.hydra under mpirun",
        outside: &[
            "mpirun.openmpi",
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            "1",
        ],
        launcher: &["mpiexec.hydra", "-n", "N"],
        needs: &[
            Need::Command("mpiexec.hydra"),
            Need::Command("mpirun.openmpi"),
        ],
        ..PLAIN
    },
    Environment {
        name: "portolan run under mpiexec.hydra",
        outside: &["mpiexec.hydra", "-n", "1"],
        needs: &[Need::Command("mpiexec.hydra")],
        ..PLAIN
    },
    Environment {
        name: "portolan run under mpirun",
        outside: &[
            "mpirun.openmpi",
            "--allow-run-as-root",
            "--oversubscribe",
            "-n",
            "1",
        ],
        needs: &[Need::Command("mpirun.openmpi")],
        ..PLAIN
    },
    Environment {
        name: "mpiexec.hydra in the shell of an srun",
        outside: &[
            "env",
            "SLURM_JOB_ID=7",
            "SLURM_STEP_ID=0",
            "SLURM_PROCID=0",
            "SLURM_NTASKS=1",
            "SLURM_STEP_NUM_TASKS=1",
            "PMIX_NAMESPACE=slurm.pmix.7.0",
            "PMIX_RANK=0",
        ],
        launcher: &["mpiexec.hydra", "-n", "N"],
        needs: &[Need::Command("mpiexec.hydra")],
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_name_of_its_own() {
        let mut names: Vec<_> = ALL.iter().map(|e| e.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
