//! How the ranks of a memory hand each other its descriptors.
//!
//! A descriptor says what it is; a path says where something was. The first rank opens a door: a socket, and tells its
//! name and a secret through the launcher. The others knock with the secret and bring the descriptors that are theirs,
//! and the first rank gives everybody's to everybody.
//!
//! ```text
//!   first rank                              another
//!   bind; tell name and secret              ·
//!   ───────────────────────────── fence ─────────────────────────────
//!   listen; accept whoever is there ◄────── connect, send secret and descriptors; tell whether that worked
//!   ───────────────────────────── fence ─────────────────────────────
//!   all are there, or in the queue
//!   send everybody's descriptors ─────────► receive them
//! ```
//!
//! # Invariants
//!
//! * **Who is in has proven two things**: that it runs as the user of this process, which the kernel says, and that the
//!   launcher counts it to the job, which the secret says. The first rank proves the same to the others by its user, and
//!   by the random name that it alone has.
//! * **A stranger delays nobody.** All sockets are non-blocking. Another user is shown out when it comes, and one of the
//!   own user that says nothing, or nonsense, is passed over: what ranks say is in their sockets before the second
//!   fence, and nobody is waited for after it but who has told that it could not come in this way. Strangers that come
//!   without a pause are taken in rounds, between which the time is looked at; after the fence no more than the queue
//!   held are in front of a rank. Nobody can connect while the first rank waits for one that comes late: it listens from
//!   the fence on, at which all are there.
//! * The name is abstract and so within a network namespace, and everybody can read it. A rank of another namespace, and
//!   one that finds the queue full of strangers, comes to a second door: a socket in a directory that only the own user
//!   may enter, of a name that nobody else knows, which is there only in such a start.

use host::accept::{NotAccepted, Refused};
use host::awake::Awake;
use host::limit::raise_descriptors;
use host::peer::{Credentials, is_own_user};
use host::secret::{Secret, random};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, CWD, Mode, OFlags, access, chmod, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recv, recvmsg, sendmsg, socket_with,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MAGIC: [u8; 8] = *b"portolan";
/// Descriptors of one message; the kernel takes 253.
const MOST: usize = 128;
/// How long is looked for ranks that come late or by the second door.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the first rank looks at its door before a fence at which it waits for all of them anyway.
const EARLY: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);
/// How long is waited for descriptors to be given back.
const BREATH: Duration = Duration::from_millis(20);
/// How long a rank tries to get into the queue of the first door, which strangers may keep full, before it takes the second.
const QUEUE: Duration = Duration::from_millis(100);
/// Between two tries of a rank that has left the first fence before rank 0.
const SHORT: Duration = Duration::from_micros(100);
/// Connections that a queue holds.
const BACKLOG: i32 = 4096;
/// Connections of a door that are taken in one look: strangers may come as fast as they are shown out.
const ROUND: usize = 64;

/// Why descriptors could not be handed over.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each says what it is")]
pub enum DoorError {
    #[error("no socket to meet at: {0}")]
    Open(#[source] io::Error),
    #[error(
        "a rank is in another network namespace, and it cannot be met at {} ({source})", at.display()
    )]
    Second { at: PathBuf, source: io::Error },
    #[error("what rank 0 has told makes no sense")]
    Told,
    #[error(
        "the socket of rank 0 cannot be reached, neither by its abstract name ({name}), which is within a network \
         namespace, nor at {} ({path})", at.display()
    )]
    Reach {
        name: io::Error,
        at: PathBuf,
        path: io::Error,
    },
    #[error("the ranks must belong to one user: of rank 0, {0}")]
    User(#[source] host::peer::OtherUser),
    #[error("descriptors cannot be handed over a socket: {0}")]
    Hand(#[source] io::Error),
    #[error("rank {0} has not come, although it says so")]
    Missing(usize),
    #[error("rank {rank} cannot be let in by rank 0: {why}")]
    Full { rank: usize, why: Refused },
    #[error("rank {0} cannot share memory: {1}")]
    Other(usize, String),
    #[error("rank 0 has gone, or has sent nonsense")]
    Gone,
}

fn wait(fd: impl AsFd, flags: PollFlags, most: Duration) -> rustix::io::Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), flags)];
    let most = Timespec::try_from(most).ok();
    match poll(&mut fds, most.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn seqpacket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Sends a message with descriptors, if there is room for it.
pub(super) fn send_now(
    to: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    loop {
        let mut with = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !with.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::MSGSIZE);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg(&to, &[IoSlice::new(bytes)], &mut with, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends a message with descriptors, however long the other side takes for what came before.
fn send(to: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut left = Awake::new(PATIENCE);
    loop {
        match send_now(&to, bytes, fds) {
            Ok(()) => return Ok(()),
            Err(Errno::AGAIN) if !left.is_over() => wait(&to, PollFlags::OUT, PAUSE)?,
            // Too many descriptors are on their way, to whomever: those have to be taken out first.
            Err(Errno::TOOMANYREFS) if !left.is_over() => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
}

/// A message that is there, with its descriptors.
pub(super) fn receive(
    from: impl AsFd,
    bytes: &mut [u8],
) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(from, &mut [IoSliceMut::new(bytes)], &mut with, flags)?;
    let mut fds = Vec::new();
    for message in with.drain() {
        if let RecvAncillaryMessage::ScmRights(these) = message {
            fds.extend(these);
        }
    }
    if got.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
        // This process has no descriptor left.
        return Err(Errno::MFILE);
    }
    Ok((got.bytes, fds))
}

/// Whether somebody has said nothing yet, and is still there.
fn is_silent(socket: &OwnedFd) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(recv(socket, &mut [0; 1], flags), Err(Errno::AGAIN))
}

/// Whether this process may have so many more descriptors.
fn room_for(any: &OwnedFd, count: usize) -> rustix::io::Result<()> {
    let copies = (0..count).map(|_| fcntl_dupfd_cloexec(any, 0));
    copies
        .collect::<rustix::io::Result<Vec<OwnedFd>>>()
        .map(drop)
}

/// What a rank says when it comes: who it is, the secret, and how many descriptors it has with it.
struct Knock {
    number: u32,
    secret: [u8; Secret::LEN],
    files: u32,
}

impl Knock {
    const LEN: usize = MAGIC.len() + 8 + Secret::LEN;

    fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&self.number.to_le_bytes());
        b[12..16].copy_from_slice(&self.files.to_le_bytes());
        b[16..].copy_from_slice(&self.secret);
        b
    }

    fn decode(b: &[u8]) -> Option<Self> {
        let b: &[u8; Self::LEN] = b.try_into().ok()?;
        let word = |at: usize| b[at..].first_chunk().map(|c| u32::from_le_bytes(*c));
        let known = b.starts_with(&MAGIC);
        known.then_some(Self {
            number: word(8)?,
            files: word(12)?,
            secret: *b[16..].first_chunk()?,
        })
    }
}

/// A rank that has come in.
struct Member {
    socket: OwnedFd,
    files: Vec<OwnedFd>,
}

/// The second door, and the directory in which it is.
struct Second {
    socket: OwnedFd,
    directory: PathBuf,
}

impl Second {
    fn open(directory: PathBuf) -> io::Result<Self> {
        // Only the own user may enter it, and it is new.
        rustix::fs::mkdir(&directory, Mode::RWXU)?;
        let opened = seqpacket().and_then(|socket| {
            // The user's mask may forbid them to the own user too.
            chmod(&directory, Mode::RWXU)?;
            by_name(&directory, |name| bind(&socket, name))?;
            chmod(door_in(&directory), Mode::RUSR | Mode::WUSR)?;
            listen(&socket, BACKLOG)?;
            Ok(socket)
        });
        match opened {
            Ok(socket) => Ok(Self { socket, directory }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&directory);
                Err(error.into())
            }
        }
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Whether this user may make a directory there.
fn may_have(place: &Path) -> bool {
    place.is_dir() && access(place, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

fn door_in(directory: &Path) -> PathBuf {
    directory.join("door")
}

/// Uses the second door by a name that the system takes for a socket: of at most 107 bytes, however deep the directory is.
fn by_name<T>(
    directory: &Path,
    mut call: impl FnMut(&SocketAddrUnix) -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match SocketAddrUnix::new(door_in(directory)) {
        Err(Errno::NAMETOOLONG) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let entered = openat(CWD, directory, flags, Mode::empty())?;
            let short = format!("/proc/self/fd/{}/door", entered.as_raw_fd());
            call(&SocketAddrUnix::new(short)?)
        }
        name => call(&name?),
    }
}

/// What ranks need to find the door, and to be let in.
#[derive(Clone, Debug)]
struct Address {
    name: String,
    /// The network namespace, by the inode of `/proc/self/ns/net`; 0 if unknown.
    network: u64,
    secret: Secret,
    /// Of the second door.
    directory: PathBuf,
}

/// The own network namespace, as in [`Address::network`].
pub(super) fn network() -> u64 {
    rustix::fs::stat("/proc/self/ns/net").map_or(0, |s| s.st_ino)
}

impl Address {
    fn tell(&self) -> String {
        let Self {
            name,
            network,
            secret,
            directory,
        } = self;
        let directory = directory.display();
        format!("{name} {network} {} {directory}", secret.to_hex())
    }

    fn told(text: &str) -> Option<Self> {
        let mut words = text.splitn(4, ' ');
        let (name, network) = (words.next()?, words.next()?);
        let (secret, directory) = (words.next()?, words.next()?);
        Some(Self {
            name: name.to_owned(),
            network: network.parse().ok()?,
            secret: Secret::from_hex(secret)?,
            directory: directory.into(),
        })
    }

    /// How long a rank here waits for the first to listen, if it does not yet.
    fn patience(&self) -> Duration {
        match (self.network, network()) {
            (0, _) | (_, 0) => QUEUE,
            (theirs, own) if theirs == own => EARLY,
            // The name is of another namespace.
            _ => Duration::ZERO,
        }
    }
}

/// The door of the first rank.
pub struct Door {
    socket: OwnedFd,
    address: Address,
    /// By number; the own one is not used.
    members: Vec<Option<Member>>,
    /// Those who have not said who they are.
    waiting: Vec<OwnedFd>,
    /// Why somebody who is at the door could not be let in when it was last looked at.
    full: Option<Refused>,
    /// Descriptors that each brings.
    files: usize,
    /// For a moment it holds the descriptors of all.
    _raised: Raised,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}

/// Raises the limit of descriptors to the most that this process may have, until it is dropped.
#[derive(Debug)]
struct Raised(Option<Rlimit>);

impl Raised {
    fn new() -> Self {
        Self(raise_descriptors().ok())
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some(limit) = self.0 {
            let _ = setrlimit(Resource::Nofile, limit);
        }
    }
}

impl Door {
    /// For so many ranks, each of which brings `files` descriptors.
    pub fn open(ranks: u32, files: usize) -> Result<Self, DoorError> {
        let random_name = || -> Result<String, DoorError> {
            let mut bytes = [0; 16];
            random(&mut bytes).map_err(DoorError::Open)?;
            Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
        };
        let name = random_name()?;
        // Abstract names can be read by everybody, who might take the directory's before it is needed.
        let hidden = random_name()?;
        let secret = Secret::new().map_err(DoorError::Open)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the name in it is random, and only the ranks know it"
        )]
        let usual = std::env::temp_dir();
        let places = [usual.clone(), "/tmp".into(), "/dev/shm".into()];
        let place = places.into_iter().find(|p| may_have(p)).unwrap_or(usual);
        // Ranks may be in other folders.
        let place = std::path::absolute(&place).unwrap_or(place);
        let directory = place.join(format!("portolan-{hidden}"));
        let bound = || {
            let socket = seqpacket()?;
            bind(
                &socket,
                &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
            )?;
            Ok(socket)
        };
        let socket = bound().map_err(|e: Errno| DoorError::Open(e.into()))?;
        Ok(Self {
            socket,
            address: Address {
                name,
                network: network(),
                secret,
                directory,
            },
            members: (0..ranks).map(|_| None).collect(),
            waiting: Vec::new(),
            full: None,
            files,
            _raised: Raised::new(),
        })
    }

    /// What the others have to be told.
    pub fn told(&self) -> String {
        self.address.tell()
    }

    fn missing(&self) -> Option<usize> {
        let others = self.members.iter().enumerate().skip(1);
        others.filter(|(_, m)| m.is_none()).map(|(n, _)| n).next()
    }

    /// Lets in whoever is at a door, at most [`ROUND`] at each; whether there may be more. Never waits. Who is refused, as by a lack
    /// of descriptors, stays where it is, with what it brings.
    fn look(&mut self, second: Option<&Second>) -> bool {
        self.full = None;
        let mut more = false;
        for door in std::iter::once(&self.socket).chain(second.map(|s| &s.socket)) {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let mut left = ROUND;
            while left > 0 {
                match accept_with(door, flags) {
                    Ok(socket) => {
                        left -= 1;
                        match Credentials::of(&socket).map(|c| is_own_user(c.uid)) {
                            Ok(Ok(())) => self.waiting.push(socket),
                            Ok(Err(error)) => tracing::debug!(%error, "not let in"),
                            Err(error) => tracing::debug!(%error, "not let in"),
                        }
                    }
                    Err(errno) => match NotAccepted::of(errno, door) {
                        NotAccepted::Nobody => break,
                        NotAccepted::Next => left -= 1,
                        NotAccepted::Later(refused) => {
                            self.full = Some(refused);
                            break;
                        }
                    },
                }
            }
            more |= left == 0;
        }
        let mut bytes = [0; Knock::LEN + 1];
        for socket in std::mem::take(&mut self.waiting) {
            if is_silent(&socket) {
                self.waiting.push(socket);
                continue;
            }
            // The kernel drops what finds no number.
            if let Err(errno) = room_for(&socket, self.files) {
                self.full = Some(Refused(errno));
                self.waiting.push(socket);
                continue;
            }
            match receive(&socket, &mut bytes) {
                Ok((len, files)) => self.admit(socket, &bytes[..len], files),
                Err(Errno::AGAIN | Errno::INTR) => self.waiting.push(socket),
                Err(error) => tracing::debug!(%error, "not let in"),
            }
        }
        more
    }

    fn admit(&mut self, socket: OwnedFd, said: &[u8], files: Vec<OwnedFd>) {
        let Some(knock) = Knock::decode(said) else {
            return tracing::debug!("not let in: nonsense");
        };
        let right = self.address.secret.is(&knock.secret)
            && files.len() == self.files
            && knock.files as usize == self.files;
        let place = self.members.get_mut(knock.number as usize);
        match place.filter(|_| right && knock.number != 0) {
            // Who comes first has come.
            Some(place @ None) => *place = Some(Member { socket, files }),
            _ => tracing::debug!(number = knock.number, "not let in"),
        }
    }

    /// Between the two fences: listens, and lets in those who are quick.
    ///
    /// # Errors
    /// The kernel refuses it a queue.
    pub fn expect(&mut self) -> Result<(), DoorError> {
        self.listen()?;
        self.look_within(None, EARLY);
        Ok(())
    }

    fn listen(&self) -> Result<(), DoorError> {
        listen(&self.socket, BACKLOG).map_err(|e| DoorError::Open(e.into()))
    }

    fn look_within(&mut self, second: Option<&Second>, time: Duration) {
        let mut left = Awake::new(time);
        loop {
            let more = self.look(second);
            if self.missing().is_none() || left.is_over() {
                return;
            }
            if more {
                continue;
            }
            let door = second.map_or(&self.socket, |s| &s.socket);
            // Its socket is readable until others give descriptors back.
            if self.full.is_some() {
                std::thread::sleep(BREATH);
                continue;
            }
            // A knock follows its connection at once, so that one need not be waited for.
            let most = if self.waiting.is_empty() && second.is_none() {
                Duration::from_millis(20)
            } else {
                PAUSE
            };
            let _ = wait(door, PollFlags::IN, most);
        }
    }

    /// After it: gives everybody's descriptors to everybody, and returns them, by number. `common`: what the first rank has
    /// for all; `own`: what it would have brought; `words`: by number, what the others have told ([`Guest::word`]).
    pub fn serve(
        mut self,
        common: &[OwnedFd],
        own: Vec<OwnedFd>,
        words: &[String],
    ) -> Result<Vec<Vec<OwnedFd>>, DoorError> {
        let agreed = self.agree(words);
        if let Err(error) = &agreed {
            let text = error.to_string();
            let refusal = [&[REFUSAL], text.as_bytes()].concat();
            for m in self.members.iter().flatten() {
                let _ = send(&m.socket, &refusal, &[]);
            }
        }
        agreed?;
        let members = std::mem::take(&mut self.members);
        let mut all = vec![own];
        let mut sockets = Vec::new();
        for (number, member) in members.into_iter().enumerate().skip(1) {
            let Member { socket, files } = member.ok_or(DoorError::Missing(number))?;
            sockets.push(socket);
            all.push(files);
        }
        let given: Vec<BorrowedFd<'_>> = (common.iter())
            .chain(all.iter().flatten())
            .map(AsFd::as_fd)
            .collect();
        for socket in &sockets {
            for part in given.chunks(MOST) {
                send(socket, &[FILES], part).map_err(|e| DoorError::Hand(e.into()))?;
            }
        }
        Ok(all)
    }

    /// Lets in those who have told that they came. They stand in the queue, and in front of them no more than it holds.
    fn clear_queue(&mut self, words: &[String]) {
        let queues = (BACKLOG as usize).div_ceil(ROUND) + 1;
        for _ in 0..queues {
            let more = self.look(None);
            let mut came = words.iter().zip(&self.members).skip(1);
            if !more || came.all(|(word, member)| member.is_some() || word != CAME) {
                return;
            }
        }
    }

    /// Whether all are here, those included who could not come to the first door.
    fn agree(&mut self, words: &[String]) -> Result<(), DoorError> {
        self.clear_queue(words);
        // What ranks say is in their sockets. Whoever has said nothing is none, and makes room for them.
        while self.full.is_some_and(Refused::is_for_want_of_room)
            && self.waiting.iter().any(is_silent)
        {
            self.waiting.retain(|socket| !is_silent(socket));
            self.clear_queue(words);
        }
        if self.full.is_some() {
            self.look_within(None, PATIENCE);
        }
        let other = |(n, word): (usize, &String)| {
            let why = word.strip_prefix(FAILED)?;
            Some(DoorError::Other(n, why.to_owned()))
        };
        if let Some(error) = words.iter().enumerate().skip(1).find_map(other) {
            return Err(error);
        }
        if words.iter().any(|word| word.as_str() == AWAY) {
            let at = &self.address.directory;
            let second = Second::open(at.clone()).map_err(|source| DoorError::Second {
                at: at.clone(),
                source,
            })?;
            self.look_within(Some(&second), PATIENCE);
        }
        match (self.missing(), self.full) {
            (None, _) => Ok(()),
            (Some(rank), None) => Err(DoorError::Missing(rank)),
            (Some(rank), Some(why)) => Err(DoorError::Full { rank, why }),
        }
    }
}

const FILES: u8 = 1;
const REFUSAL: u8 = 2;

/// What a rank tells that has come.
const CAME: &str = "ok";
/// What it tells if the first door is out of its reach, or full of strangers.
const AWAY: &str = "away";
/// What it tells, with the reason behind it, if it does not come at all.
const FAILED: &str = "no: ";

/// What a rank tells that shall not share memory, and why.
pub fn failed(why: &str) -> String {
    format!("{FAILED}{why}")
}

/// A rank at the door of the first.
#[derive(Debug)]
pub struct Guest {
    address: Address,
    /// For a moment it holds the descriptors of all.
    raised: Raised,
    number: u32,
    files: Vec<OwnedFd>,
    socket: Result<OwnedFd, io::Error>,
}

impl Guest {
    /// Rank `number` comes to the door that rank 0 has [told](Door::told) of, and brings its descriptors.
    pub fn knock(told: &str, number: u32, files: Vec<OwnedFd>) -> Result<Self, DoorError> {
        let address = Address::told(told).ok_or(DoorError::Told)?;
        let raised = Raised::new();
        let to = SocketAddrUnix::new_abstract_name(address.name.as_bytes());
        let socket = match to.and_then(|to| reach(&to, QUEUE, address.patience())) {
            Ok(socket) => {
                enter(&socket, &address, number, &files)?;
                Ok(socket)
            }
            Err(error) => Err(error.into()),
        };
        Ok(Self {
            address,
            raised,
            number,
            files,
            socket,
        })
    }

    /// What it has to tell before the second fence.
    pub const fn word(&self) -> &'static str {
        match self.socket {
            Ok(_) => CAME,
            Err(_) => AWAY,
        }
    }

    /// After the second fence: everybody's descriptors, those for all first; `count` in all.
    pub fn take(self, count: usize) -> Result<Vec<OwnedFd>, DoorError> {
        let Self {
            address,
            raised: _raised,
            number,
            files,
            socket,
        } = self;
        let socket = match socket {
            Ok(socket) => socket,
            Err(name) => {
                let socket = second(&address, name)?;
                enter(&socket, &address, number, &files)?;
                socket
            }
        };
        let mut taken = Vec::with_capacity(count);
        let mut bytes = [0; 1024];
        while taken.len() < count {
            match receive(&socket, &mut bytes) {
                Ok((1, files)) if bytes[0] == FILES && !files.is_empty() => taken.extend(files),
                Ok((len, _)) if len > 1 && bytes[0] == REFUSAL => {
                    let why = String::from_utf8_lossy(&bytes[1..len]).into_owned();
                    return Err(DoorError::Other(0, why));
                }
                Err(Errno::INTR) => {}
                // The first rank does what it does for all; if it ends, so does the connection.
                Err(Errno::AGAIN) => {
                    wait(&socket, PollFlags::IN, PATIENCE).map_err(|e| DoorError::Hand(e.into()))?
                }
                Err(error) => return Err(DoorError::Hand(error.into())),
                Ok(_) => return Err(DoorError::Gone),
            }
        }
        if taken.len() == count {
            Ok(taken)
        } else {
            Err(DoorError::Gone)
        }
    }
}

/// Connects, however many others do so at this moment: waits for a place in the queue, and before for somebody to listen.
fn reach(to: &SocketAddrUnix, queue: Duration, listening: Duration) -> rustix::io::Result<OwnedFd> {
    let socket = seqpacket()?;
    let (mut queue, mut listening) = (Awake::new(queue), Awake::new(listening));
    loop {
        match connect(&socket, to) {
            Ok(()) => return Ok(socket),
            Err(Errno::AGAIN | Errno::INTR) if !queue.is_over() => std::thread::sleep(PAUSE),
            Err(Errno::CONNREFUSED) if !listening.is_over() => std::thread::sleep(SHORT),
            Err(error) => return Err(error),
        }
    }
}

/// Connects to the second door, once the first rank knows that it is needed.
fn second(address: &Address, name: io::Error) -> Result<OwnedFd, DoorError> {
    let at = door_in(&address.directory);
    let mut left = Awake::new(PATIENCE);
    loop {
        match by_name(&address.directory, |to| reach(to, PATIENCE, Duration::ZERO)) {
            Ok(socket) => return Ok(socket),
            Err(Errno::NOENT | Errno::CONNREFUSED) if !left.is_over() => {
                std::thread::sleep(PAUSE);
            }
            Err(error) => {
                let path = error.into();
                return Err(DoorError::Reach { name, at, path });
            }
        }
    }
}

fn enter(
    socket: &OwnedFd,
    address: &Address,
    number: u32,
    files: &[OwnedFd],
) -> Result<(), DoorError> {
    let hand = |e: Errno| DoorError::Hand(e.into());
    let first = Credentials::of(socket).map_err(DoorError::Hand)?;
    is_own_user(first.uid).map_err(DoorError::User)?;
    let knock = Knock {
        number,
        secret: *address.secret.bytes(),
        files: files.len() as u32,
    };
    let with: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    send(socket, &knock.encode(), &with).map_err(hand)
}

#[cfg(test)]
mod tests;
