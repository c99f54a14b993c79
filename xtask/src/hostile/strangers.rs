//! Another user of the machine against every socket that a job listens on: connects, and then is silent, babbles, stops in the
//! middle or forges. The job's result is the same, and how much later it ends is printed.

use super::{Stage, read};
use crate::{cargo, wait};
use anyhow::{Result, bail};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The user that the job is not.
pub(super) const STRANGER: u32 = 65534;
/// Connections that a stranger keeps open.
const KEPT: usize = 200;
/// How long a job takes with a rank that comes late, at most.
const PATIENCE: Duration = Duration::from_secs(60);
/// How late the second rank is; until it comes, everything that listens at start-up listens.
const LATE: &str = "[ \"$PMI_RANK\" = 1 ] && sleep 2; exec \"$@\"";
/// Between two looks for sockets.
const PAUSE: Duration = Duration::from_millis(1);
/// Jobs beside a stranger that connects, and as many beside one that only looks, in the test command.
pub(super) const PAIRS: usize = 3;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Connections to make
    #[arg(long)]
    tries: u32,
    /// Look for sockets only, and connect to none
    #[arg(long)]
    look: bool,
}

#[derive(clap::Args)]
pub(crate) struct Inside {
    /// Jobs beside a stranger that connects, and as many beside one that only looks
    #[arg(long)]
    pairs: usize,
}

/// Where somebody listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Door {
    /// A Unix socket by its type in the kernel's table, and its name; abstract ones begin with `@`.
    Unix(u32, String),
    Tcp(SocketAddr),
}

/// An address of `/proc/net/tcp` or `tcp6`.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Vec<u32> = host
        .as_bytes()
        .chunks(8)
        .map(|c| u32::from_str_radix(std::str::from_utf8(c).ok()?, 16).ok())
        .collect::<Option<_>>()?;
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let v4 = <[u8; 4]>::try_from(&bytes[..]).map(Ipv4Addr::from);
    let v6 = <[u8; 16]>::try_from(&bytes[..]).map(Ipv6Addr::from);
    match (v4, v6) {
        (Ok(at), _) if at.is_unspecified() => Some((Ipv4Addr::LOCALHOST, port).into()),
        (Ok(at), _) => Some((at, port).into()),
        (_, Ok(at)) if at.is_unspecified() => Some((Ipv6Addr::LOCALHOST, port).into()),
        (_, Ok(at)) => Some((at, port).into()),
        _ => None,
    }
}

/// Everything on this machine that one could connect to.
fn doors() -> BTreeSet<Door> {
    let table = |name: &str| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
    let mut doors = BTreeSet::new();
    for line in table("unix").lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Address, references, protocol, flags, type, state, inode, path; state 1 is that of no connection. One that has a
        // name and does not listen may do so at any moment.
        if let [_, _, _, _, kind @ ("0001" | "0005"), "01", _, name] = words[..]
            && let Ok(kind) = u32::from_str_radix(kind, 16)
        {
            doors.insert(Door::Unix(kind, name.to_owned()));
        }
    }
    for name in ["tcp", "tcp6"] {
        for line in table(name).lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.get(3) == Some(&"0A")
                && let Some(at) = words.get(1).and_then(|a| address(a))
            {
                doors.insert(Door::Tcp(at));
            }
        }
    }
    doors
}

fn connect(door: &Door) -> Result<OwnedFd, Errno> {
    match door {
        Door::Unix(kind, name) => {
            let kind = match kind {
                1 => SocketType::STREAM,
                5 => SocketType::SEQPACKET,
                _ => return Err(Errno::PROTOTYPE),
            };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
            let to = match name.strip_prefix('@') {
                Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
                None => SocketAddrUnix::new(name.as_str())?,
            };
            rustix::net::connect(&socket, &to)?;
            Ok(socket)
        }
        Door::Tcp(at) => {
            let stream = TcpStream::connect_timeout(at, Duration::from_millis(100));
            let stream = stream.map_err(|_| Errno::CONNREFUSED)?;
            let _ = stream.set_nonblocking(true);
            Ok(stream.into())
        }
    }
}

/// What the stranger says on its `n`th connection: nothing, noise, the beginning of a line, or what looks like a greeting.
fn says(n: u32, noise: &mut fastrand::Rng) -> Vec<u8> {
    match n % 4 {
        0 => Vec::new(),
        1 => (0..noise.usize(1..2000)).map(|_| noise.u8(..)).collect(),
        2 => b"cmd=init pmi_ver".to_vec(),
        // Small numbers, as headers of start-up have: a variant, a version, a rank.
        _ => (0..64).map(|_| noise.u8(..8)).collect(),
    }
}

/// The stranger itself, in a process of its user.
pub(crate) fn stranger(options: &Options) -> Result<()> {
    let mut noise = fastrand::Rng::with_seed(7);
    let mut kept = VecDeque::new();
    let (mut tries, mut connected) = (0, 0);
    let mut seen = BTreeSet::new();
    // The job's end is the end of standard input.
    let over = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&over);
    let listener = std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        end.store(true, Ordering::Relaxed);
    });
    while tries < options.tries && !over.load(Ordering::Relaxed) {
        // A stranger who only takes the processor from the job would prove nothing.
        std::thread::sleep(PAUSE);
        // Several at a look, as a look takes longer than they do.
        for door in doors().into_iter().flat_map(|d| std::iter::repeat_n(d, 20)) {
            tries += 1;
            if options.look {
                continue;
            }
            let Ok(socket) = connect(&door) else {
                continue;
            };
            seen.insert(door);
            connected += 1;
            let _ = rustix::net::send(
                &socket,
                &says(connected, &mut noise),
                rustix::net::SendFlags::NOSIGNAL,
            );
            kept.push_back(socket);
            if kept.len() > KEPT {
                kept.pop_front();
            }
        }
    }
    // The connections stay open while the job goes on.
    let _ = listener.join();
    println!(
        "{connected} of {tries} tries connected, to {} sockets",
        seen.len()
    );
    Ok(())
}

/// Runs a job, beside a stranger that connects or one that only looks, which takes as much of the processor: how long it
/// took, its result, and what the stranger says.
fn job(stage: &mut Stage, fabric: &str, connects: bool) -> Result<(Duration, String, String)> {
    let result = stage.path("result-of-strangers");
    let _ = fs::remove_file(&result);
    let said = stage.path("said-to-strangers");
    let out = fs::File::create(&said)?;
    let begun = Instant::now();
    let mut job = Command::new(stage.path("portolan"))
        .args(["run", "-n", "2", "--fabric", fabric, "--"])
        .args(["sh", "-c", LATE, "sh"])
        .arg(stage.path(super::PROGRAM))
        .arg(&result)
        .arg("plain")
        .env("PORTOLAN_EXE", stage.path("portolan"))
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()?;
    let stranger = Command::new(stage.path("xtask"))
        .args(["stranger", "--tries", "1000"])
        .args((!connects).then_some("--look"))
        .uid(STRANGER)
        .gid(STRANGER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let ended = wait::end(&mut job, PATIENCE)?;
    let took = begun.elapsed();
    let words = stranger.wait_with_output()?.stdout;
    let words = String::from_utf8_lossy(&words).into_owned();
    let Some(status) = ended else {
        let _ = job.kill();
        job.wait()?;
        bail!("{fabric}: the job goes on after {PATIENCE:?}");
    };
    if !status.success() {
        bail!("{fabric}: {status}: {}", super::last(&read(&said)));
    }
    Ok((took, read(&result), words.trim().to_owned()))
}

/// Strangers at every socket of jobs on each fabric, in a network namespace of their own: nothing else listens there.
pub(super) fn run(pairs: usize) -> Result<()> {
    if !super::is_root() {
        println!("skipped: strangers, which need another user's processes, and so root");
        return Ok(());
    }
    let own = cargo::own_exe()?;
    let mut inside = Command::new("unshare");
    inside.args([
        "--net",
        "sh",
        "-c",
        "ip link set lo up && exec \"$1\" strangers --pairs \"$2\"",
        "sh",
    ]);
    cargo::run(inside.arg(own).arg(pairs.to_string()))
}

/// `part` quarters of the way through what is sorted.
fn quartile(sorted: &[f64], part: usize) -> f64 {
    sorted[(sorted.len() - 1) * part / 4]
}

/// In that namespace: a table of fabrics.
pub(crate) fn inside(options: &Inside) -> Result<()> {
    let pairs = options.pairs.max(1);
    let mut stage = Stage::new()?;
    let own = cargo::own_exe()?;
    fs::copy(own, stage.path("xtask"))?;
    println!(
        "\n| fabric | strangers | later than beside one that only looks, ms: median of {pairs} pairs of jobs (quartiles) |\n|---|---|---|"
    );
    for fabric in ["shm", "seastar"] {
        let mut later = Vec::new();
        let mut words = String::new();
        // The first job of all reads its programs from the disk.
        job(&mut stage, fabric, false)?;
        for _ in 0..pairs {
            let (alone, right, _) = job(&mut stage, fabric, false)?;
            let (beside, result, said) = job(&mut stage, fabric, true)?;
            if result != right || result.is_empty() {
                bail!("{fabric}: with a stranger the result is {result:?}, without {right:?}");
            }
            if said.contains("0 of 0 tries") {
                bail!("{fabric}: the stranger has found no socket");
            }
            later.push(1e3 * (beside.as_secs_f64() - alone.as_secs_f64()));
            words = said;
        }
        later.sort_by(f64::total_cmp);
        let [low, median, high] = [1, 2, 3].map(|part| quartile(&later, part));
        println!("| {fabric} | {words} | {median:.1} ({low:.1} to {high:.1}) |");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_one_could_connect_to_is_found() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _unix = UnixListener::bind(&path).unwrap();
        let wanted = [
            Door::Tcp(tcp.local_addr().unwrap()),
            Door::Unix(1, path.to_string_lossy().into_owned()),
        ];
        // One that has a name, and may listen at any moment.
        let flags = SocketFlags::CLOEXEC;
        let bound =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (bound, name) = (bound.unwrap(), format!("portolan-{}", std::process::id()));
        let to = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        rustix::net::bind(&bound, &to).unwrap();
        let bound = Door::Unix(5, format!("@{name}"));
        assert!(doors().contains(&bound));
        assert_eq!(connect(&bound).unwrap_err(), Errno::CONNREFUSED);
        let found = doors();
        for door in wanted {
            assert!(found.contains(&door), "{door:?}");
            connect(&door).unwrap();
        }
    }
}
