//! The job: which rank this process is, and the exchange of small values before a fabric is up.
//!
//! A rank is started by a launcher that speaks PMI-1 (`portolan run`, MPICH's `mpiexec`, Slurm's `srun`).
//! The launcher keeps a key space: a rank *puts* values, all ranks *fence*, and after the fence every
//! rank may *get* what any rank put before it. A process with no launcher is a job of one.
//!
//! ```text
//!   rank 0              launcher              rank 1
//!     │ put addr.0 ─────────▶ │ ◀───────── put addr.1 │
//!     │ fence ──────────────▶ │ ◀────────────── fence │
//!     │ ◀──────────────── all are here ─────────────▶ │
//!     │ get addr.1 ─────────▶ │ ◀───────── get addr.0 │
//! ```
//!
//! Nothing here is on a data path: a call is a blocking question to the launcher. Whatever the launcher
//! sends, these calls return an error and never panic.
//!
//! # Thread safety
//! All calls take `&Job`. Questions of several threads are asked one after the other; [`Job::abort`]
//! waits for none of them.

mod adopt;
mod channel;
mod env;
mod error;
mod host;
mod value;
pub mod wire;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use channel::Channel;
use env::Start;
pub use error::JobError;
use wire::{excerpt, format};

/// A rank's membership in its job.
///
/// Dropping a job without [`Job::finalize`] tells the launcher that the rank failed: it ends the job
/// when the process exits, whatever its status.
#[derive(Debug)]
pub struct Job {
    rank: u32,
    size: u32,
    id: String,
    host: String,
    space: Arc<Space>,
    /// Set by `finalize`; later exchanges are errors.
    finalized: Arc<AtomicBool>,
    /// Fabrics opened so far; a key is put once, so each opening has keys of its own.
    openings: AtomicU32,
}

/// Where the values live.
#[derive(Debug)]
enum Space {
    /// A job of one keeps its own.
    Own(Mutex<BTreeMap<String, Vec<u8>>>),
    /// The launcher keeps them.
    Launcher { channel: Channel, limits: Limits },
}

impl Space {
    fn get_bytes(&self, id: &str, key: &str) -> Result<Vec<u8>, JobError> {
        match self {
            Self::Own(values) => {
                check_key(key, usize::MAX)?;
                let values = values.lock().unwrap_or_else(PoisonError::into_inner);
                values.get(key).cloned().ok_or_else(|| JobError::NoSuchKey {
                    key: key.to_owned(),
                })
            }
            Self::Launcher { channel, limits } => {
                check_key(key, limits.key)?;
                let first = Self::get_raw(channel, id, key)?;
                let (parts, head) = value::head(key, &first)?;
                let mut text = head.to_owned();
                for part in 1..parts {
                    text.push_str(&Self::get_raw(channel, id, &value::part_key(key, part))?);
                }
                value::unescape(key, &text)
            }
        }
    }

    fn get_raw(channel: &Channel, id: &str, key: &str) -> Result<String, JobError> {
        const DOING: &str = "get a value";
        let pairs: [(&str, &dyn std::fmt::Display); 2] = [("kvsname", &id), ("key", &key)];
        let answer = match channel.call(&format("get", &pairs), DOING, "get_result") {
            // Servers word an unknown key differently; the code is the same.
            Err(JobError::Refused { .. }) => {
                return Err(JobError::NoSuchKey {
                    key: key.to_owned(),
                });
            }
            other => other?,
        };
        answer
            .field("value")
            .map(str::to_owned)
            .ok_or_else(|| JobError::Unexpected {
                doing: DOING,
                expected: "value",
                line: "no value".to_owned(),
            })
    }
}

/// Gets values of a job while that has not been finalized. A question waits for one that another thread has under
/// way, a fence too.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    id: String,
    space: Arc<Space>,
    finalized: Arc<AtomicBool>,
}

impl Reader {
    /// As [`Job::get_bytes`].
    pub(crate) fn get_bytes(&self, key: &str) -> Result<Vec<u8>, JobError> {
        if self.finalized.load(Ordering::Acquire) {
            return Err(JobError::Finalized {
                doing: "get a value",
            });
        }
        self.space.get_bytes(&self.id, key)
    }
}

/// The launcher's limits, in bytes a string may have (its terminator taken off).
#[derive(Debug, Clone, Copy)]
struct Limits {
    key: usize,
    value: usize,
}

impl Job {
    /// Joins the job this process was started in; without a launcher, makes a job of one.
    ///
    /// Where there is a launcher the process asks to be killed when its parent dies, so that no rank
    /// outlives the job.
    ///
    /// # Errors
    /// The environment is inconsistent, or the launcher does not answer as PMI-1 says.
    pub fn from_env() -> Result<Self, JobError> {
        match Start::from_env()? {
            Start::Singleton => Ok(Self::singleton()),
            Start::Inherited { fd, rank, size } => {
                let socket = adopt::socket(fd)?;
                die_with_parent()?;
                Self::over(socket, rank, size)
            }
            Start::Port { address, id } => {
                let socket = TcpStream::connect(&address)
                    .map_err(|source| JobError::Connect { address, source })?;
                // Each message is one small line that is answered before the next.
                let _ = socket.set_nodelay(true);
                die_with_parent()?;
                Self::introduce(socket.into(), id)
            }
        }
    }

    /// A job of one rank with no launcher.
    #[must_use]
    pub fn singleton() -> Self {
        Self {
            rank: 0,
            size: 1,
            id: format!("singleton_{}", std::process::id()),
            host: host::id(),
            space: Arc::new(Space::Own(Mutex::default())),
            finalized: Arc::default(),
            openings: AtomicU32::new(0),
        }
    }

    /// Joins as `rank` of `size` over a connected stream socket whose other end speaks PMI-1.
    ///
    /// # Errors
    /// The other end does not answer as PMI-1 says, or `rank` is not below `size`.
    pub fn over(socket: OwnedFd, rank: u32, size: u32) -> Result<Self, JobError> {
        env::check(rank, size)?;
        let channel = Channel::new(socket)?;
        Self::join(channel, rank, size)
    }

    /// The `PMI_PORT` style: tell the launcher the process id it gave, be told rank and size.
    fn introduce(socket: OwnedFd, id: u32) -> Result<Self, JobError> {
        const DOING: &str = "introduce itself";
        let channel = Channel::new(socket)?;
        channel.call(&format("initack", &[("pmiid", &id)]), DOING, "initack")?;
        let (mut rank, mut size) = (None, None);
        // The launcher sends `cmd=set` lines for size, rank and debug, in this order.
        for _ in 0..3 {
            let (text, line) = channel.unasked(DOING)?;
            if line.command() != Some("set") {
                let line = excerpt(&text);
                return Err(JobError::Unexpected {
                    doing: DOING,
                    expected: "cmd=set",
                    line,
                });
            }
            rank = rank.or_else(|| line.number("rank"));
            size = size.or_else(|| line.number("size"));
        }
        let (Some(rank), Some(size)) = (rank, size) else {
            let line = format!("rank {rank:?}, size {size:?}");
            return Err(JobError::Unexpected {
                doing: DOING,
                expected: "a rank and a size",
                line,
            });
        };
        env::check(rank, size)?;
        Self::join(channel, rank, size)
    }

    fn join(channel: Channel, rank: u32, size: u32) -> Result<Self, JobError> {
        let hello = format("init", &[("pmi_version", &1), ("pmi_subversion", &1)]);
        let answer = channel.call(&hello, "join the job", "response_to_init")?;
        let major = answer.number("pmi_version").unwrap_or(1);
        let minor = answer.number("pmi_subversion").unwrap_or(1);
        if major != 1 {
            return Err(JobError::Version { major, minor });
        }

        let doing = "learn the limits";
        let answer = channel.call(&format("get_maxes", &[]), doing, "maxes")?;
        let limit = |name: &'static str, least: usize| {
            let value: usize = answer.number(name).ok_or_else(|| JobError::Unexpected {
                doing,
                expected: name,
                line: excerpt(answer.field(name).unwrap_or("no value")),
            })?;
            // The protocol counts a terminating zero.
            if value > least {
                Ok(value - 1)
            } else {
                Err(JobError::Limit { name, value, least })
            }
        };
        // 32 and 64 are the least that MPICH's process management notes ask of a server.
        let limits = Limits {
            key: limit("keylen_max", 31)?,
            value: limit("vallen_max", 63)?.min(wire::LINE_MAX / 2),
        };

        let doing = "learn the job's name";
        let answer = channel.call(&format("get_my_kvsname", &[]), doing, "my_kvsname")?;
        let id = match answer.field("kvsname") {
            Some(name) if !name.is_empty() && !name.contains(char::is_whitespace) => {
                name.to_owned()
            }
            other => {
                let line = excerpt(other.unwrap_or("no value"));
                return Err(JobError::Unexpected {
                    doing,
                    expected: "kvsname",
                    line,
                });
            }
        };
        Ok(Self {
            rank,
            size,
            id,
            host: host::id(),
            space: Arc::new(Space::Launcher { channel, limits }),
            finalized: Arc::default(),
            openings: AtomicU32::new(0),
        })
    }

    /// This process's rank, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks, at least 1.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The job's name: one word, the same on all ranks, different for jobs that run at one time.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The machine this rank runs on: one word, equal for two ranks that can share memory.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether there is a launcher behind this job.
    #[must_use]
    pub fn has_launcher(&self) -> bool {
        matches!(*self.space, Space::Launcher { .. })
    }

    /// Puts `value` under `key` for all ranks to get after the next [`Job::fence`].
    ///
    /// The value may have any bytes and any length; one too long for the launcher travels in parts. A
    /// key is put once in the life of the job. Keys are printable ASCII without blanks, `=` or `~`, and
    /// do not begin with `PMI_`.
    ///
    /// # Errors
    /// The key cannot travel, or the launcher refuses the put.
    pub fn put(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), JobError> {
        const DOING: &str = "put a value";
        self.check_open(DOING)?;
        let value = value.as_ref();
        match &*self.space {
            Space::Own(values) => {
                check_key(key, usize::MAX)?;
                let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
                values.insert(key.to_owned(), value.to_vec());
            }
            Space::Launcher { channel, limits } => {
                check_key(key, limits.key)?;
                for (key, text) in value::split(key, value, limits.value)? {
                    check_length(&key, limits.key)?;
                    let pairs: [(&str, &dyn std::fmt::Display); 3] =
                        [("kvsname", &self.id), ("key", &key), ("value", &text)];
                    channel.call(&format("put", &pairs), DOING, "put_result")?;
                }
            }
        }
        Ok(())
    }

    /// Waits until all ranks fence; what any rank put before is visible to all after.
    ///
    /// # Errors
    /// The connection failed: the launcher is ending the job.
    pub fn fence(&self) -> Result<(), JobError> {
        self.meet("fence")
    }

    /// Waits until all ranks are in the barrier. The same exchange as [`Job::fence`]: a rank in one and
    /// a rank in the other meet.
    ///
    /// # Errors
    /// As [`Job::fence`].
    pub fn barrier(&self) -> Result<(), JobError> {
        self.meet("pass a barrier")
    }

    fn meet(&self, doing: &'static str) -> Result<(), JobError> {
        self.check_open(doing)?;
        if let Space::Launcher { channel, .. } = &*self.space {
            channel.call(&format("barrier_in", &[]), doing, "barrier_out")?;
        }
        Ok(())
    }

    /// The text that some rank put under `key`.
    ///
    /// # Errors
    /// As [`Job::get_bytes`], and [`JobError::BadValue`] where the value is not UTF-8.
    pub fn get(&self, key: &str) -> Result<String, JobError> {
        String::from_utf8(self.get_bytes(key)?).map_err(|e| JobError::BadValue {
            key: key.to_owned(),
            reason: format!("not UTF-8 at byte {}", e.utf8_error().valid_up_to()),
        })
    }

    /// The bytes that some rank put under `key`.
    ///
    /// # Errors
    /// [`JobError::NoSuchKey`] where nothing is visible under `key`; otherwise the launcher's failure.
    pub fn get_bytes(&self, key: &str) -> Result<Vec<u8>, JobError> {
        self.check_open("get a value")?;
        self.space.get_bytes(&self.id, key)
    }

    /// The values put so far, to be asked for later and by any thread.
    pub(crate) fn reader(&self) -> Reader {
        Reader {
            id: self.id.clone(),
            space: Arc::clone(&self.space),
            finalized: Arc::clone(&self.finalized),
        }
    }

    /// The ranks that run on this rank's machine, in order, this one included. All ranks must call it,
    /// once.
    ///
    /// # Errors
    /// As [`Job::put`], [`Job::fence`] and [`Job::get`].
    pub fn local_ranks(&self) -> Result<Vec<u32>, JobError> {
        self.put(&format!("host.{}", self.rank), &self.host)?;
        self.fence()?;
        let mut local = Vec::new();
        for rank in 0..self.size {
            if rank == self.rank || self.get(&format!("host.{rank}"))? == self.host {
                local.push(rank);
            }
        }
        Ok(local)
    }

    /// What to append to the keys of the next opening of a fabric: nothing the first time. Ranks open
    /// fabrics in the same order, so they agree.
    pub(crate) fn next_opening(&self) -> String {
        match self.openings.fetch_add(1, Ordering::Relaxed) {
            0 => String::new(),
            n => format!(".{n}"),
        }
    }

    /// Leaves the job in good order. A rank that exits without it counts as failed.
    ///
    /// # Errors
    /// The launcher does not acknowledge, or this rank has finalized before.
    pub fn finalize(&self) -> Result<(), JobError> {
        const DOING: &str = "finalize";
        if self.finalized.swap(true, Ordering::AcqRel) {
            return Err(JobError::Finalized { doing: DOING });
        }
        if let Space::Launcher { channel, .. } = &*self.space {
            channel.call(&format("finalize", &[]), DOING, "finalize_ack")?;
        }
        Ok(())
    }

    /// Ends the whole job with exit status `code` (its low 8 bits), says `message` on stderr and exits
    /// this process. Works while another thread waits in a fence.
    pub fn abort(&self, code: i32, message: &str) -> ! {
        // In one write, because all ranks may say something at once.
        let line = format!("rank {} of {}: {message}\n", self.rank, self.size);
        eprint!("{line}");
        if let Space::Launcher { channel, .. } = &*self.space {
            let message: String = message
                .chars()
                .take(200)
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            let line = format("abort", &[("exitcode", &code), ("message", &message)]);
            // The process exits in any case; a launcher that is gone has ended the job already.
            let _ = channel.post(&line, "abort the job");
        }
        std::process::exit(code)
    }

    fn check_open(&self, doing: &'static str) -> Result<(), JobError> {
        if self.finalized.load(Ordering::Acquire) {
            return Err(JobError::Finalized { doing });
        }
        Ok(())
    }
}

/// Asks the kernel to kill this process when its parent dies.
fn die_with_parent() -> Result<(), JobError> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(
        |errno| JobError::Io {
            doing: "tie its life to its launcher",
            source: errno.into(),
        },
    )
}

fn check_key(key: &str, max: usize) -> Result<(), JobError> {
    let reason = if key.is_empty() {
        "it is empty"
    } else if key.starts_with("PMI_") {
        "names that begin with PMI_ are the launcher's"
    } else if !key.bytes().all(|b| b.is_ascii_graphic() && b != b'=')
        || key.contains(value::PART_MARK)
    {
        "it must be printable ASCII without blanks, = or ~"
    } else {
        return check_length(key, max);
    };
    Err(JobError::BadKey {
        key: excerpt(key),
        reason,
        max,
    })
}

fn check_length(key: &str, max: usize) -> Result<(), JobError> {
    if key.len() <= max {
        return Ok(());
    }
    Err(JobError::BadKey {
        key: excerpt(key),
        reason: "it is too long for the launcher",
        max,
    })
}
