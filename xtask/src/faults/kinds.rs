//! The faults: how each is made, and what must be seen.

use super::job::{End, Job, Traces, kill};
use crate::cargo::{debug_dir, release_dir};
use anyhow::{Context, Result, bail};
use fastrand::Rng;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Processes of a job.
const RANKS: u32 = 3;
/// For a whole round; none takes half of it on a machine that is not busy.
const LIMIT: Duration = Duration::from_secs(90);
/// Until traffic flows.
const START: Duration = Duration::from_secs(40);
/// How long a rank may wait for another, in the rounds in which the network never comes back.
const PATIENCE: &str = "2";
const PROGRAM: &str = "fault_traffic";

/// Where rounds happen.
pub(super) struct Place {
    device: String,
    netdev: String,
    portolan: PathBuf,
    program: PathBuf,
    mpiexec: bool,
}

impl Place {
    pub(super) fn new(device: &str) -> Result<Self> {
        let parent = format!("/sys/class/infiniband/{device}/parent");
        let netdev = std::fs::read_to_string(&parent).with_context(|| parent.clone())?;
        Ok(Self {
            device: device.to_owned(),
            netdev: netdev.trim().to_owned(),
            portolan: release_dir().join("portolan"),
            program: debug_dir().join("examples").join(PROGRAM),
            mpiexec: crate::packages::is_there("mpiexec.hydra"),
        })
    }

    /// The job under our own launcher, its ranks prepared by the command `wrap`.
    fn run(&self, wrap: &[&str], arguments: &[&str]) -> Command {
        let mut c = Command::new(&self.portolan);
        c.args(["run", "-n", &RANKS.to_string(), "--fabric", "verbs"]);
        // Faults of the device are for ranks that talk through it.
        c.args(["--no-shm", "--device", &self.device, "--"]);
        c.args(wrap).arg(&self.program).args(arguments);
        c
    }

    fn mpiexec(&self, arguments: &[&str]) -> Command {
        let mut c = Command::new("mpiexec.hydra");
        c.args(["-n", &RANKS.to_string()]);
        c.arg(&self.program).args(arguments);
        c.env("PORTOLAN_FABRIC", "verbs");
        c.env("GASNET_SUPERNODE_MAXSIZE", "1");
        c.env("PORTOLAN_DEVICE", &self.device);
        c
    }
}

/// What a round did.
pub(super) struct Done {
    /// For the round's line.
    pub(super) words: String,
    /// The rank it was done to, if it was one.
    rank: Option<u32>,
    /// The job had begun to send before it was done.
    flowing: bool,
}

pub(super) type Make = fn(&Place, &str, &mut Rng, &Traces) -> Result<(Done, End)>;

/// One kind of fault.
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// What the documentation promises.
    pub(super) expected: &'static str,
    pub(super) make: Make,
    /// What is not as promised.
    pub(super) check: fn(&Done, &End) -> Vec<String>,
}

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "kill",
        expected: "a rank is killed: the launcher ends the job and says so",
        make: kill_a_rank,
        check: |done, end| {
            let mut wrong = flowing(done);
            let rank = done.rank.unwrap_or(u32::MAX);
            let (status, word) = match done.words.contains("mpiexec") {
                false => (137, format!("rank {rank} was killed by signal 9")),
                true => (9, "Killed (signal 9)".to_owned()),
            };
            wrong.extend(wants_status(end, &[status, 137]));
            wrong.extend(wants(end, &word));
            wrong
        },
    },
    Fault {
        name: "netdev-blink",
        expected: "the network is down and comes back: a delay; messages and gets go on, one-sided puts may fail",
        make: blink,
        check: |done, end| {
            let mut wrong = flowing(done);
            wrong.extend(wants_status(end, &[0]));
            for kind in ["long puts", "short puts", "gets"] {
                let failures = end.said.iter().filter_map(|l| failed(l, kind));
                if failures.sum::<u64>() > 0 {
                    wrong.push(format!("{kind} failed"));
                }
            }
            let reports = end.said.iter().filter(|l| l.contains("arrived in order"));
            if reports.count() != RANKS as usize {
                wrong.push("not every rank reports".to_owned());
            }
            wrong
        },
    },
    Fault {
        name: "netdev-down",
        expected: "the network is down for good: every operation ends, what failed says so, the ranks end",
        make: down,
        check: |done, end| {
            let mut wrong = flowing(done);
            wrong.extend(wants_status(end, &[1]));
            wrong.extend(wants(end, "peer given up, its operations fail"));
            wrong.extend(wants(end, "the next rank is gone"));
            wrong
        },
    },
    Fault {
        name: "conduit-down",
        expected: "the network is down for good under a job of the conduit: it ends, with rank, call and code",
        make: conduit_down,
        check: |done, end| {
            let mut wrong = flowing(done);
            wrong.extend(wants_status(end, &[1]));
            wrong.extend(names_unreachable(end));
            wrong
        },
    },
    Fault {
        name: "stop",
        expected: "a rank is stopped for longer than others wait for it: over datagrams every operation ends, and the ranks end",
        make: stop,
        check: |done, end| {
            let mut wrong = flowing(done);
            wrong.extend(wants_status(end, &[0, 1]));
            wrong
        },
    },
    Fault {
        name: "conduit-stop",
        expected: "a rank of the conduit is stopped for longer than others wait for it: over datagrams the job ends, with rank, call and code",
        make: conduit_stop,
        check: |done, end| {
            let mut wrong = flowing(done);
            wrong.extend(wants_status(end, &[1]));
            wrong.extend(names_unreachable(end));
            wrong
        },
    },
    Fault {
        name: "job-stop",
        expected: "all ranks are stopped for longer than they wait for each other, and go on: a delay, over connections and datagrams",
        make: stop_the_job,
        check: |done, end| {
            let mut wrong = flowing(done);
            wrong.extend(wants_status(end, &[0]));
            for line in end.said.iter().filter(|l| l.contains("arrived in order")) {
                for kind in ["long puts", "short puts", "gets"] {
                    if failed(line, kind) != Some(0) {
                        wrong.push(format!("{kind} failed"));
                    }
                }
            }
            wrong
        },
    },
    Fault {
        name: "memlock-start",
        expected: "no memory may be locked at the start: status 3, and a message with the limit and the remedy",
        make: memlock_at_the_start,
        check: |_, end| {
            let mut wrong = wants_status(end, &[3]);
            wrong.extend(wants(end, "limited to"));
            wrong.extend(wants(end, "ulimit -l"));
            wrong
        },
    },
    Fault {
        name: "memlock-run",
        expected: "no more memory may be locked: long operations of that rank fail with limit and remedy, short ones go on",
        make: memlock_in_mid_run,
        check: |done, end| {
            let mut wrong = flowing(done);
            wrong.extend(wants_status(end, &[0]));
            wrong.extend(wants(end, "limited to"));
            wrong.extend(wants(end, "ulimit -l"));
            for line in end.said.iter().filter(|l| l.contains("arrived in order")) {
                let is = done
                    .rank
                    .is_some_and(|r| line.starts_with(&format!("rank {r}:")));
                if is && failed(line, "long puts").unwrap_or(0) == 0 {
                    wrong.push("no long put failed".to_owned());
                }
                if failed(line, "short puts") != Some(0) {
                    wrong.push("a short put failed".to_owned());
                }
            }
            wrong
        },
    },
    Fault {
        name: "device-delete",
        expected: "the device is deleted: every operation ends, and the device can go when the job has ended",
        make: delete_the_device,
        check: |done, end| {
            let mut wrong = flowing(done);
            wrong.extend(wants_status(end, &[0, 1]));
            wrong
        },
    },
];

fn flowing(done: &Done) -> Vec<String> {
    if done.flowing {
        Vec::new()
    } else {
        vec!["no traffic before the fault".to_owned()]
    }
}

fn wants_status(end: &End, allowed: &[i32]) -> Vec<String> {
    let mut wrong = Vec::new();
    match end.status {
        None => wrong.push(format!("hung for {} s", LIMIT.as_secs())),
        Some(status) if !allowed.contains(&status) => wrong.push(format!("exit status {status}")),
        Some(_) => {}
    }
    if let Some(line) = end
        .said
        .iter()
        .find(|l| l.contains("NOT AS DOCUMENTED") || l.contains("panicked"))
    {
        wrong.push(line.clone());
    }
    wrong
}

fn wants(end: &End, word: &str) -> Option<String> {
    let there = end.said.iter().any(|l| l.contains(word));
    (!there).then(|| format!("nothing says {word:?}"))
}

/// The conduit's line about a rank that cannot be reached.
fn names_unreachable(end: &End) -> Option<String> {
    let named = |l: &String| {
        (0..RANKS).any(|r| l.starts_with(&format!("rank {r} of {RANKS}: ")))
            && l.contains(" cannot be reached (")
            && l.contains("PTL_NI_FAIL")
    };
    let there = end.said.iter().any(named);
    (!there).then(|| "nothing names rank, call and code".to_owned())
}

/// The number of failures of a kind in a rank's report.
fn failed(line: &str, kind: &str) -> Option<u64> {
    let list = line.split(", ").find_map(|part| {
        let part = part.split_once(": ").map_or(part, |(_, p)| p);
        part.strip_prefix(kind)
    })?;
    let (_, rest) = list.split_once('(')?;
    rest.split(' ').next()?.parse().ok()
}

/// Starts the job and lets it come to a random moment of its traffic.
fn into_traffic(command: Command, name: &str, random: &mut Rng) -> Result<(Job, bool, u64)> {
    let mut job = Job::start(command, name)?;
    let flowing = job.said(": traffic", RANKS as usize, START);
    let moment = random.u64(0..500);
    job.run_for(Duration::from_millis(moment));
    Ok((job, flowing, moment))
}

fn kill_a_rank(
    place: &Place,
    name: &str,
    random: &mut Rng,
    before: &Traces,
) -> Result<(Done, End)> {
    let rank = random.u32(0..RANKS);
    let mpiexec = place.mpiexec && random.bool();
    // Longer than the round: only the launcher ends it.
    let (launcher, command) = match mpiexec {
        true => ("mpiexec", place.mpiexec(&["1000"])),
        false => ("portolan run", place.run(&[], &["1000"])),
    };
    let (job, flowing, moment) = into_traffic(command, name, random)?;
    kill(job.rank(rank, PROGRAM)?);
    let words = format!("rank {rank} of {launcher} after {moment} ms");
    let done = Done {
        words,
        rank: Some(rank),
        flowing,
    };
    Ok((done, job.end(LIMIT, before)?))
}

fn ip(words: &[&str]) -> Result<()> {
    tool("ip", words)
}

fn tool(name: &str, words: &[&str]) -> Result<()> {
    let out = Command::new(name)
        .args(words)
        .output()
        .with_context(|| name.to_owned())?;
    if !out.status.success() {
        bail!(
            "{name} {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    Ok(())
}

fn blink(place: &Place, name: &str, random: &mut Rng, before: &Traces) -> Result<(Done, End)> {
    let command = place.run(&[], &["1"]);
    let (mut job, flowing, moment) = into_traffic(command, name, random)?;
    let length = random.u64(0..1500);
    ip(&["link", "set", &place.netdev, "down"])?;
    job.run_for(Duration::from_millis(length));
    ip(&["link", "set", &place.netdev, "up"])?;
    let words = format!("{} down after {moment} ms for {length} ms", place.netdev);
    let done = Done {
        words,
        rank: None,
        flowing,
    };
    Ok((done, job.end(LIMIT, before)?))
}

fn down(place: &Place, name: &str, random: &mut Rng, before: &Traces) -> Result<(Done, End)> {
    let mut command = place.run(&[], &["1000"]);
    command.env("PORTOLAN_CONNECT_TIMEOUT", PATIENCE);
    let (job, flowing, moment) = into_traffic(command, name, random)?;
    ip(&["link", "set", &place.netdev, "down"])?;
    let end = job.end(LIMIT, before);
    ip(&["link", "set", &place.netdev, "up"])?;
    let words = format!("{} down after {moment} ms", place.netdev);
    let done = Done {
        words,
        rank: None,
        flowing,
    };
    Ok((done, end?))
}

/// What the ranks of a conduit's job do.
const TRAFFIC: [&str; 6] = ["barrier", "am", "medium", "long", "put", "get"];

fn conduit_down(
    place: &Place,
    name: &str,
    random: &mut Rng,
    before: &Traces,
) -> Result<(Done, End)> {
    let kind = TRAFFIC[random.usize(0..TRAFFIC.len())];
    let mut command = Command::new(&place.portolan);
    command.args(["run", "-n", &RANKS.to_string(), "--fabric", "verbs"]);
    command.args(["--no-shm", "--device", &place.device, "--"]);
    command.arg(&place.portolan);
    command.args(["exits", &format!("endless-{kind}")]);
    command.env("PORTOLAN_CONNECT_TIMEOUT", PATIENCE);
    let (job, flowing, moment) = into_traffic(command, name, random)?;
    ip(&["link", "set", &place.netdev, "down"])?;
    let end = job.end(LIMIT, before);
    ip(&["link", "set", &place.netdev, "up"])?;
    let words = format!("{kind}, {} down after {moment} ms", place.netdev);
    let done = Done {
        words,
        rank: None,
        flowing,
    };
    Ok((done, end?))
}

/// How long a rank is stopped: longer than [`PATIENCE`].
const STOPPED: Duration = Duration::from_secs(5);
/// How soon a job ends in which a stopped rank was missed, and how many stops one may outlive.
const MISSED: Duration = Duration::from_secs(4);
const STOPS: u32 = 5;

/// Stops a rank of `program` for a while.
fn stop_a_rank(job: &mut Job, rank: u32, program: &str) -> Result<()> {
    let pid = job.rank(rank, program)?.to_string();
    tool("kill", &["-STOP", &pid])?;
    job.run_for(STOPPED);
    // The launcher may have ended it.
    let _ = Command::new("kill").args(["-CONT", &pid]).status();
    Ok(())
}

fn stop(place: &Place, name: &str, random: &mut Rng, before: &Traces) -> Result<(Done, End)> {
    let rank = random.u32(0..RANKS);
    let mut command = place.run(&[], &["8"]);
    command.env("PORTOLAN_CONNECT_TIMEOUT", PATIENCE);
    command.env("PORTOLAN_CHANNEL", "ud");
    let (mut job, flowing, moment) = into_traffic(command, name, random)?;
    stop_a_rank(&mut job, rank, PROGRAM)?;
    let done = Done {
        words: format!("rank {rank} stopped after {moment} ms"),
        rank: Some(rank),
        flowing,
    };
    Ok((done, job.end(LIMIT, before)?))
}

/// As Ctrl-Z does. The ranks go on one after the other.
fn stop_the_job(
    place: &Place,
    name: &str,
    random: &mut Rng,
    before: &Traces,
) -> Result<(Done, End)> {
    let channel = ["rc", "ud", "auto"][random.usize(0..3)];
    let mut command = place.run(&[], &["8"]);
    command.env("PORTOLAN_CONNECT_TIMEOUT", PATIENCE);
    command.env("PORTOLAN_CHANNEL", channel);
    let mut job = Job::start(command, name)?;
    // At any moment, that of its connections too.
    let early = random.bool();
    let flowing = early || job.said(": traffic", RANKS as usize, START);
    let until = Instant::now() + START;
    let pids = loop {
        let pids = (0..RANKS).map(|rank| job.rank(rank, PROGRAM).map(|pid| pid.to_string()));
        match pids.collect::<Result<Vec<_>>>() {
            Ok(pids) => break pids,
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => job.run_for(Duration::from_millis(1)),
        }
    };
    let moment = random.u64(0..500);
    job.run_for(Duration::from_millis(moment));
    let all: Vec<&str> = pids.iter().map(String::as_str).collect();
    tool("kill", &[&["-STOP"], &all[..]].concat())?;
    job.run_for(STOPPED);
    tool("kill", &[&["-CONT"], &all[..]].concat())?;
    let done = Done {
        words: format!(
            "{channel}, all ranks stopped {moment} ms after {}",
            if early {
                "their start"
            } else {
                "traffic flowed"
            }
        ),
        rank: None,
        flowing,
    };
    Ok((done, job.end(LIMIT, before)?))
}

fn conduit_stop(
    place: &Place,
    name: &str,
    random: &mut Rng,
    before: &Traces,
) -> Result<(Done, End)> {
    let (rank, kind) = (
        random.u32(0..RANKS),
        TRAFFIC[random.usize(0..TRAFFIC.len())],
    );
    let mut command = Command::new(&place.portolan);
    command.args(["run", "-n", &RANKS.to_string(), "--fabric", "verbs"]);
    command.args(["--no-shm", "--channel", "ud", "--device", &place.device]);
    command.arg("--").arg(&place.portolan);
    command.args(["exits", &format!("endless-{kind}")]);
    command.env("PORTOLAN_CONNECT_TIMEOUT", PATIENCE);
    let (mut job, flowing, moment) = into_traffic(command, name, random)?;
    // Nobody misses a rank to which nothing is under way when it is stopped, and which is awaited for a message that it has still to
    // send. Then the job goes on, and the next stop finds another moment.
    let mut stops = 0;
    loop {
        stop_a_rank(&mut job, rank, "portolan")?;
        stops += 1;
        if job.ends_within(MISSED)? || stops == STOPS {
            break;
        }
    }
    let done = Done {
        words: format!("{kind}, rank {rank} stopped after {moment} ms, {stops} times"),
        rank: Some(rank),
        flowing,
    };
    Ok((done, job.end(LIMIT, before)?))
}

/// Runs a command with a limit of locked memory and without the right to pass it.
pub(crate) fn limited(bytes: u64) -> Vec<String> {
    let mut words = vec!["prlimit".to_owned(), format!("--memlock={bytes}:{bytes}")];
    words.extend(unprivileged().map(str::to_owned));
    words
}

fn unprivileged() -> [&'static str; 5] {
    [
        "setpriv",
        "--bounding-set",
        "-ipc_lock",
        "--inh-caps",
        "-ipc_lock",
    ]
}

fn memlock_at_the_start(
    place: &Place,
    name: &str,
    random: &mut Rng,
    before: &Traces,
) -> Result<(Done, End)> {
    // From nothing to a little less than an opening needs.
    let bytes = random.u64(0..1024) << 10;
    let wrap = limited(bytes);
    let wrap: Vec<&str> = wrap.iter().map(String::as_str).collect();
    let job = Job::start(place.run(&wrap, &["1"]), name)?;
    let done = Done {
        words: format!("ulimit -l {}", bytes >> 10),
        rank: None,
        flowing: false,
    };
    Ok((done, job.end(LIMIT, before)?))
}

fn memlock_in_mid_run(
    place: &Place,
    name: &str,
    random: &mut Rng,
    before: &Traces,
) -> Result<(Done, End)> {
    let rank = random.u32(0..RANKS);
    let mut command = place.run(&unprivileged(), &["fresh"]);
    // The system's limit alone, not the library's.
    command.env("PORTOLAN_MEMLOCK", "1G");
    let (job, flowing, moment) = into_traffic(command, name, random)?;
    let kib = random.u64(0..1024);
    let pid = job.rank(rank, PROGRAM)?.to_string();
    let limit = format!("--memlock={}:{}", kib << 10, kib << 10);
    tool("prlimit", &["--pid", &pid, &limit])?;
    let done = Done {
        words: format!("ulimit -l {kib} at rank {rank} after {moment} ms"),
        rank: Some(rank),
        flowing,
    };
    Ok((done, job.end(LIMIT, before)?))
}

fn delete_the_device(
    place: &Place,
    name: &str,
    random: &mut Rng,
    before: &Traces,
) -> Result<(Done, End)> {
    let mut command = place.run(&[], &["1"]);
    command.env("PORTOLAN_CONNECT_TIMEOUT", PATIENCE);
    let (job, flowing, moment) = into_traffic(command, name, random)?;
    let mut taker = Command::new("rdma")
        .args(["link", "delete", &place.device])
        .spawn()
        .context("rdma")?;
    let end = job.end(LIMIT, before)?;
    // The kernel holds it until its users have left, which they have.
    let taken = taker.wait().context("rdma link delete")?;
    if !taken.success() {
        bail!("rdma link delete {}: {taken}", place.device);
    }
    tool(
        "rdma",
        &[
            "link",
            "add",
            &place.device,
            "type",
            "rxe",
            "netdev",
            &place.netdev,
        ],
    )?;
    let done = Done {
        words: format!("{} deleted after {moment} ms", place.device),
        rank: None,
        flowing,
    };
    Ok((done, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_from_a_report() {
        let line = "rank 3: long puts 12 (4 failed), short puts 9 (0 failed), one-sided puts 8 (1 failed), \
                    gets 7 (2 failed); 30 arrived in order";
        let of = |kind| failed(line, kind);
        assert_eq!(of("long puts"), Some(4));
        assert_eq!(of("short puts"), Some(0));
        assert_eq!(of("gets"), Some(2));
        assert_eq!(failed("rank 3: nothing", "gets"), None);
    }
}
