//! How the simulation of a job is started, and how its ranks find it.
//!
//! ```text
//!   rank 0                          simulation                    rank 1
//!     │ starts it, with one end of a    │                           │
//!     │ pair of sockets as its input    │                           │
//!     │ listening socket, secret ─────► │                           │
//!     │ name and secret ─► key space ──────────────────────────────►│
//!     │ hello ────────────────────────► │ ◄─────────────────── hello│
//! ```
//!
//! The socket's name is in Linux's abstract name space: nothing is left in a file system, whatever ends the job. Names there
//! are for everybody to see and to connect to, so who is a rank is proven otherwise ([`super::door`]). The secret is on no
//! command line and in no environment.
//!
//! Rank 0 keeps its end of the pair for its own calls. When it closes before all ranks have joined, the simulation ends: so
//! it never outlives a job that is ended early.

use super::choice::{EXECUTABLE_VARIABLE, SIMULATION_COMMAND, setting, unusable};
use super::line::{FDS, Received, receive};
use super::proto::{BEGIN, MAX_DATAGRAM, VERSION, opening, read_opening};
use super::server::{self, ServeError};
use super::sim::SimError;
use fabric_api::config::{FabricConfig, FabricError};
use host::detached::spawn_detached;
use host::null_stdio;
use host::peer::{Credentials, is_own_user};
use host::privilege::{PRIVILEGED, is_privileged, is_trusted};
use host::secret::{Secret, random};
use launch::Job;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, bind, connect, listen, sendmsg, socket_with, socketpair,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Connections that the kernel keeps until they are accepted, if `net.core.somaxconn` permits.
const BACKLOG: i32 = 4096;

/// Where the simulation of a job is, and what its ranks must know.
#[derive(Debug)]
pub(super) struct Address {
    /// In the abstract name space.
    name: String,
    pub(super) secret: Secret,
    /// Where rank 0 is; without blanks.
    place: String,
}

impl Address {
    /// A new one, that nobody can guess.
    pub(super) fn new(job: &Job) -> std::io::Result<Self> {
        let mut unique = [0; 8];
        random(&mut unique)?;
        Ok(Self {
            name: format!("portolan-{}-{:016x}", job.id(), u64::from_ne_bytes(unique)),
            secret: Secret::new()?,
            place: place(job),
        })
    }

    /// One value of the job's key space that says all of it.
    pub(super) fn to_text(&self) -> String {
        format!("{} {} {}", self.secret.to_hex(), self.place, self.name)
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let mut words = text.splitn(3, ' ');
        Some(Self {
            secret: Secret::from_hex(words.next()?)?,
            place: words.next()?.to_owned(),
            name: words.next().filter(|name| !name.is_empty())?.to_owned(),
        })
    }

    /// One word that says all of it, without anything that a shell takes for more than that.
    pub(super) fn to_word(&self) -> String {
        format!("{}:{}:{}", self.secret.to_hex(), self.name, self.place)
    }

    /// What [`Address::to_word`] made.
    pub(super) fn from_word(word: &str) -> Option<Self> {
        let mut parts = word.splitn(3, ':');
        Some(Self {
            secret: Secret::from_hex(parts.next()?)?,
            name: parts.next().filter(|name| !name.is_empty())?.to_owned(),
            place: parts.next()?.to_owned(),
        })
    }

    /// In the abstract name space; no other simulation has it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn socket_address(&self) -> rustix::io::Result<SocketAddrUnix> {
        SocketAddrUnix::new_abstract_name(self.name.as_bytes())
    }

    /// Connects a rank, and makes sure that it is to a process of its own user.
    pub(super) fn connect(&self, job: &Job) -> Result<OwnedFd, FabricError> {
        let connected = || -> rustix::io::Result<OwnedFd> {
            let socket = socket_of(SocketFlags::CLOEXEC)?;
            let address = self.socket_address()?;
            while let Err(errno) = connect(&socket, &address) {
                if errno != Errno::INTR {
                    return Err(errno);
                }
            }
            Ok(socket)
        };
        let socket = connected().map_err(|errno| {
            let here = place(job);
            unusable(match errno {
                Errno::CONNREFUSED if here != self.place => format!(
                    "cannot reach the simulation, which rank 0 has started in {}: this rank is in {here}; they must be on one machine and in one network namespace",
                    self.place
                ),
                errno => format!("cannot reach the simulation: {errno}"),
            })
        })?;
        let listens = Credentials::of(&socket)
            .map_err(|e| unusable(format!("cannot tell whose the simulation is: {e}")))?;
        // Otherwise it would be told the secret.
        is_own_user(listens.uid)
            .map_err(|other| unusable(format!("what listens as the simulation is not: {other}")))?;
        Ok(socket)
    }
}

/// Where abstract names of this process are seen: its machine and its network namespace, without blanks.
fn place(job: &Job) -> String {
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{}/{}", job.host(), network.display())
        .chars()
        .filter(|c| !c.is_whitespace() && !"[]".contains(*c))
        .collect()
}

fn socket_of(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Two ends of a line.
pub(super) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Sends a datagram with descriptors beside it, and waits for room.
pub(super) fn send_with(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    loop {
        match sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        ) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Where `portolan` is: named by [`EXECUTABLE_VARIABLE`], beside this executable, or in `PATH`. A privileged program
/// starts only what is beside it, and that its caller cannot replace.
fn executable() -> Result<PathBuf, FabricError> {
    if is_privileged() {
        let mut beside = beside();
        return beside.find(|p| p.is_file() && is_trusted(p)).ok_or_else(|| {
            unusable(format!(
                "{PRIVILEGED}, and starts the simulation only from a portolan executable beside it that nobody but \
                 root and its own user can replace"
            ))
        });
    }
    if let Some(named) = std::env::var_os(EXECUTABLE_VARIABLE) {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|d| d.join("portolan"));
    beside().chain(in_path).find(|p| p.is_file()).ok_or_else(|| {
        unusable(format!(
            "the portolan executable, which runs the simulation, is neither beside this program nor in PATH; set {EXECUTABLE_VARIABLE}"
        ))
    })
}

/// The places of `portolan` beside this program, and one folder up.
fn beside() -> impl Iterator<Item = PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    let folders: Vec<_> = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(Path::to_owned)
        .collect();
    folders.into_iter().map(|folder| folder.join("portolan"))
}

/// Starts the simulation of a job; the descriptor is rank 0's line to it.
pub(super) fn start(job: &Job, config: &FabricConfig) -> Result<(Address, OwnedFd), FabricError> {
    let address = Address::new(job).map_err(no_socket)?;
    let size = job.size().to_string();
    // The program of rank 0 may wait for all its children, of which this is none.
    let (line, ()) = found(&address, config, &["--ranks", &size], spawn_detached)?;
    Ok((address, line))
}

fn no_socket(error: std::io::Error) -> FabricError {
    unusable(format!("cannot make the simulation's socket: {error}"))
}

/// Starts the process of a simulation that listens at `address`, with these words for how many will join; the descriptor is
/// the founder's line to it. `spawn` starts the command.
pub(super) fn found<T>(
    address: &Address,
    config: &FabricConfig,
    how_many: &[&str],
    spawn: impl FnOnce(&mut Command) -> std::io::Result<T>,
) -> Result<(OwnedFd, T), FabricError> {
    let make = || -> std::io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
        let listener = socket_of(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        bind(&listener, &address.socket_address()?)?;
        listen(&listener, BACKLOG)?;
        let (ours, theirs) = pair()?;
        Ok((listener, ours, theirs))
    };
    let (listener, ours, theirs) = make().map_err(no_socket)?;
    let exe = executable()?;
    let grid = config.topology.iter().flat_map(|t| ["--topology", t]);
    let map = config.map.iter().flat_map(|m| ["--map", m]);
    let set = config.set.iter().flat_map(|s| ["--set", s]);
    let faults = config.faults.iter().flat_map(|f| ["--faults", f]);
    let seed = config.fault_seed.iter().flat_map(|s| ["--fault-seed", s]);
    let mut command = Command::new(&exe);
    if is_privileged() {
        command.env_clear();
    }
    command
        .arg(SIMULATION_COMMAND)
        .args(how_many)
        .args(["--machine", &config.machine, "--mode", config.mode.name()])
        .args(set)
        .args(grid)
        .args(map)
        .args(faults)
        .args(seed)
        .stdin(Stdio::from(theirs))
        .stdout(null_stdio::output());
    let child = spawn(&mut command)
        .map_err(|e| unusable(format!("cannot start {}: {e}", exe.display())))?;
    let begin = opening(BEGIN, &address.secret);
    send_with(ours.as_fd(), &begin, &[listener.as_fd()])
        .map_err(|e| unusable(format!("the simulation does not listen: {e}")))?;
    Ok((ours, child))
}

/// What the process that started this one has said over standard input.
pub(super) struct Begun {
    pub(super) founder: OwnedFd,
    pub(super) listener: OwnedFd,
    pub(super) secret: Secret,
}

/// Waits for that; nothing comes when the founder has ended meanwhile.
pub(super) fn begun() -> Result<Option<Begun>, ServeError> {
    let begin = |why: String| ServeError::Begin(why);
    let founder = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|e| begin(e.to_string()))?;
    let mut buffer = [0; MAX_DATAGRAM];
    let mut fds = Vec::new();
    let received = loop {
        match receive(founder.as_fd(), &mut buffer, &mut fds, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            received => break received.map_err(|e| begin(e.to_string()))?,
        }
    };
    let Received::Datagram(n) = received else {
        return Ok(None);
    };
    let opened = read_opening(BEGIN, &buffer[..n])
        .ok_or_else(|| begin("what it says is not understood".to_owned()))?;
    if opened.version != VERSION {
        return Err(begin(format!(
            "it is of version {} and not {VERSION}",
            opened.version
        )));
    }
    let secret = opened.secret.try_into().map(Secret::from_bytes);
    let secret = secret.map_err(|_| begin("no secret".to_owned()))?;
    let listener = fds.pop().ok_or_else(|| begin("no socket".to_owned()))?;
    Ok(Some(Begun {
        founder,
        listener,
        secret,
    }))
}

/// The body of [`SIMULATION_COMMAND`]: serves `ranks` ranks, as the process says that has started it by standard input, and
/// returns when all have left.
pub fn simulate(ranks: u32, config: &FabricConfig) -> Result<(), ServeError> {
    let Some(Begun {
        founder,
        listener,
        secret,
    }) = begun()?
    else {
        return Ok(());
    };
    let setting = setting(config).map_err(SimError::Setting)?;
    permit_descriptors();
    match server::serve(listener, founder, secret, ranks as usize, setting) {
        // The job is being ended, and who ended it says why.
        Err(ServeError::Left { rank }) => {
            tracing::debug!("rank {rank} left before all had joined");
            Ok(())
        }
        served => served,
    }
}

/// Raises the limit of descriptors to what the system permits: there are four for each rank.
pub(super) fn permit_descriptors() {
    if let Err(error) = host::limit::raise_descriptors() {
        tracing::debug!(%error, "the limit of descriptors stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Uid, dumpable_behavior, set_dumpable_behavior};

    #[test]
    fn an_address_travels_as_text_and_two_differ() {
        let job = Job::singleton();
        let [a, b] = [Address::new(&job).unwrap(), Address::new(&job).unwrap()];
        assert!(a.name != b.name && !a.secret.is(b.secret.bytes()));
        let back = Address::from_text(&a.to_text()).unwrap();
        assert_eq!((&back.name, &back.place), (&a.name, &a.place));
        assert!(back.secret.is(a.secret.bytes()));
        let hex = a.secret.to_hex();
        for bad in [
            "",
            " ",
            &hex,
            &format!("{hex} here"),
            &format!("{hex} here "),
            "0 here name",
        ] {
            assert!(Address::from_text(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn who_cannot_be_reached_is_said_with_where_it_is() {
        let job = Job::singleton();
        let mut address = Address::new(&job).unwrap();
        let error = address.connect(&job).unwrap_err().to_string();
        assert!(error.contains("cannot reach the simulation: "), "{error}");
        address.place = "elsewhere".to_owned();
        let error = address.connect(&job).unwrap_err().to_string();
        assert!(
            error.contains("started in elsewhere: this rank is in "),
            "{error}"
        );
    }

    /// Somebody may take the name of a simulation that has ended.
    #[test]
    fn a_rank_tells_its_secret_to_no_other_user() {
        if host::ids::user().unwrap() != 0 {
            eprintln!("skipped: only root can become another user");
            return;
        }
        let job = Job::singleton();
        let address = Address::new(&job).unwrap();
        let dumpable = dumpable_behavior().unwrap();
        let listens = std::thread::scope(|s| {
            let other = s.spawn(|| {
                // Of this thread alone.
                let nobody = Uid::from_raw(65533);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
                let socket = socket_of(SocketFlags::CLOEXEC).unwrap();
                bind(&socket, &address.socket_address().unwrap()).unwrap();
                listen(&socket, 4).unwrap();
                socket
            });
            other.join().unwrap()
        });
        // The kernel has closed the whole process's memory for that.
        set_dumpable_behavior(dumpable).unwrap();
        let error = address.connect(&job).unwrap_err().to_string();
        assert!(error.contains("it runs as user 65533"), "{error}");
        drop(listens);
    }
}
