//! The job: which rank this process is, and the exchange of small values before a fabric is up.
//!
//! A rank is started by a launcher: `portolan run`, MPICH's `mpiexec`, Slurm's `srun`, Open MPI's
//! `mpirun`. The launcher keeps a key space: a rank *puts* values, all ranks *fence*, and after the fence
//! every rank may *get* what any rank put before it. A process with no launcher is a job of one. Which
//! launcher it is is read from the environment (`env`), each protocol is a file: `pmi1`, `pmi2`, `pmix`.
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

mod above;
mod adopt;
mod channel;
mod ending;
mod env;
mod error;
mod key;
mod leave;
mod parent;
mod pmi1;
pub mod pmi2;
mod pmix;
mod space;
pub mod stdio;
mod stream;
mod value;
pub mod wire;

#[cfg(test)]
mod tests;

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub use ending::{end_by, end_process};
use env::Start;
pub use error::JobError;
pub use leave::is_child_of_rank;
use space::{Joined, Space};

/// A rank's membership in its job.
///
/// A rank whose job is dropped without [`Job::finish`] leaves when its process exits: in good order with status 0, and as one
/// that has failed with any other, or if the job was dropped by a panic. A process that exits while it has its job has failed.
#[derive(Debug)]
pub struct Job {
    rank: u32,
    size: u32,
    id: String,
    host: String,
    space: Arc<Space>,
    /// The launcher's socket, if it was inherited.
    inherited: Option<adopt::Inherited>,
    /// Set by `finalize`; later exchanges are errors.
    finalized: Arc<AtomicBool>,
    /// Fabrics opened so far; a key is put once, so each opening has keys of its own.
    openings: AtomicU32,
    /// The process exits as a rank of it.
    of_process: bool,
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.of_process && !self.finalized.load(Ordering::Acquire) {
            leave::at_exit_of(Arc::clone(&self.space), !std::thread::panicking());
        }
    }
}

/// Gets values of a job while that has not been finalized. A question waits for one that another thread has under
/// way, a fence too.
#[derive(Clone, Debug)]
pub struct Reader {
    space: Arc<Space>,
    finalized: Arc<AtomicBool>,
}

impl Reader {
    /// A value of the job's key space; see [`Job::get_bytes`].
    pub fn get_bytes(&self, key: &str) -> Result<Vec<u8>, JobError> {
        if self.finalized.load(Ordering::Acquire) {
            return Err(JobError::Finalized {
                doing: "get a value",
            });
        }
        self.space.get(key)
    }
}

/// Whether the job is not one of PMIx, and a library beside this one has made one of its own by that.
fn is_alone_by_pmix(space: &Space) -> bool {
    !matches!(space, Space::Pmix(_)) && env::has_job_of_its_own()
}

impl Job {
    /// Joins the job this process was started in; without a launcher, makes a job of one.
    ///
    /// Where there is a launcher the process asks to be killed when its parent dies, so that no rank
    /// outlives the job.
    ///
    /// # Errors
    /// The environment is inconsistent, the launcher does not answer as its protocol says, or its library
    /// is not here.
    pub fn from_env() -> Result<Self, JobError> {
        stdio::occupy();
        let server = std::env::var("PMI_JOBID").ok();
        let mut inherited = None;
        let joined = match Start::from_env()? {
            Start::Singleton => {
                leave::become_single();
                return Ok(Self::singleton());
            }
            Start::Inherited { fd, rank, size } => {
                // Another launcher's, unless the user has chosen PMI-1.
                let server = server.filter(|_| env::is_chosen());
                let behind = env::is_behind_mpi(adopt::mpi(), server.as_deref())?;
                let (socket, of) = adopt::socket(fd)?;
                inherited = Some(of);
                parent::die_with_it()?;
                if behind {
                    pmi1::join_behind_mpi(socket, rank, size)?
                } else {
                    pmi1::join(socket, rank, size)?
                }
            }
            Start::Pmi2 {
                fd,
                rank,
                size,
                job,
            } => {
                let behind = env::is_behind_mpi(adopt::mpi(), server.as_deref())?;
                let (socket, of) = adopt::socket(fd)?;
                inherited = Some(of);
                parent::die_with_it()?;
                if behind {
                    pmi1::join_behind_mpi(socket, rank, size)?
                } else {
                    pmi2::join(socket, rank, size, job.as_deref())?
                }
            }
            Start::Port { address, id } => {
                adopt::once()?;
                let socket = TcpStream::connect(&address)
                    .map_err(|source| JobError::Connect { address, source })?;
                // Each message is one small line that is answered before the next.
                let _ = socket.set_nodelay(true);
                parent::die_with_it()?;
                pmi1::introduce(socket.into(), id)?
            }
            Start::Pmix => {
                adopt::once()?;
                parent::watch()?;
                pmix::join()?
            }
        };
        let mut job = Self::of(joined);
        job.inherited = inherited;
        job.of_process = true;
        leave::become_rank();
        if job.size > 1 && job.rank == 0 && is_alone_by_pmix(&job.space) {
            host::say(format_args!(
                "rank 0 of {}: an MPI library of this process has made a job of one rank, as it does not know this \
                 launcher; start the program by its own",
                job.size
            ));
        }
        if env::leaves_unnoticed(&job.space) {
            leave::watch(Arc::downgrade(&job.space));
        }
        Ok(job)
    }

    /// A job of one rank with no launcher.
    #[must_use]
    pub fn singleton() -> Self {
        Self::of(Joined {
            rank: 0,
            size: 1,
            id: format!("singleton_{}", std::process::id()),
            space: Space::Own(std::sync::Mutex::default()),
        })
    }

    /// Joins as `rank` of `size` over a connected stream socket whose other end speaks PMI-1.
    ///
    /// # Errors
    /// The other end does not answer as PMI-1 says, or `rank` is not below `size`.
    pub fn over(socket: OwnedFd, rank: u32, size: u32) -> Result<Self, JobError> {
        pmi1::join(socket, rank, size).map(Self::of)
    }

    fn of(joined: Joined) -> Self {
        Self {
            rank: joined.rank,
            size: joined.size,
            id: joined.id,
            host: host::machine::id(),
            space: Arc::new(joined.space),
            inherited: None,
            finalized: Arc::default(),
            openings: AtomicU32::new(0),
            of_process: false,
        }
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
        !matches!(*self.space, Space::Own(_))
    }

    /// Puts `value` under `key` for all ranks to get after the next [`Job::fence`].
    ///
    /// The value may have any bytes and any length; one too long for the launcher travels in parts. A
    /// key is put once in the life of the job. Keys are printable ASCII without blanks, `=`, `;` or `~`, and
    /// do not begin with `PMI_`.
    ///
    /// # Errors
    /// The key cannot travel, or the launcher refuses the put.
    pub fn put(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), JobError> {
        self.check_open("put a value")?;
        self.space.put(key, value.as_ref())
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
    /// Those of [`Job::fence`].
    pub fn barrier(&self) -> Result<(), JobError> {
        self.meet("pass a barrier")
    }

    fn meet(&self, doing: &'static str) -> Result<(), JobError> {
        self.check_open(doing)?;
        self.space.fence(doing)
    }

    /// The text that some rank put under `key`.
    ///
    /// # Errors
    /// Those of [`Job::get_bytes`], and [`JobError::BadValue`] where the value is not UTF-8.
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
        self.space.get(key)
    }

    /// The values put so far, to be asked for later and by any thread.
    pub fn reader(&self) -> Reader {
        Reader {
            space: Arc::clone(&self.space),
            finalized: Arc::clone(&self.finalized),
        }
    }

    /// The ranks that run on this rank's machine, in order, this one included. All ranks must call it,
    /// once.
    ///
    /// # Errors
    /// Those of [`Job::put`], [`Job::fence`] and [`Job::get`].
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
    pub fn next_opening(&self) -> String {
        match self.openings.fetch_add(1, Ordering::Relaxed) {
            0 => String::new(),
            n => format!(".{n}"),
        }
    }

    /// Leaves the job in good order, as [`Job::finalize`].
    ///
    /// # Errors
    /// Those of [`Job::finalize`].
    pub fn finish(self) -> Result<(), JobError> {
        self.finalize()
    }

    /// Leaves the job in good order. A rank that exits without it, and has not dropped its job, counts as failed.
    ///
    /// An MPI library of this process that has left the job over the same socket, and closed it, has left for the rank: some
    /// launchers listen no more then, and that is no error.
    ///
    /// # Errors
    /// The launcher does not acknowledge, or this rank has finalized before.
    pub fn finalize(&self) -> Result<(), JobError> {
        const DOING: &str = "finalize";
        if is_child_of_rank() {
            return Err(JobError::Child { doing: DOING });
        }
        if self.finalized.swap(true, Ordering::AcqRel) {
            return Err(JobError::Finalized { doing: DOING });
        }
        leave::forget();
        match self.space.finalize(DOING) {
            Err(JobError::LauncherGone { .. })
                if self.inherited.as_ref().is_some_and(|i| i.is_closed()) =>
            {
                Ok(())
            }
            done => done,
        }
    }

    /// Ends the whole job with exit status `code` (its low 8 bits), says `message` on stderr and exits
    /// this process. Works while another thread waits in a fence.
    pub fn abort(&self, code: i32, message: &str) -> ! {
        self.ask_to_end(code, message);
        end_process(code)
    }

    /// Asks the launcher to end the job with exit status 1, from a handler of a signal too: it takes neither a lock nor memory. The
    /// process must end at once. A launcher of PMIx is not asked, and goes by the exit.
    pub fn say_last_words(&self, message: &str) {
        host::say::say_at_once(format_args!(
            "rank {} of {}: {message}",
            self.rank, self.size
        ));
        if !is_child_of_rank() {
            self.space.abort_at_once();
        }
    }

    /// Asks the launcher to end the job; the exit must follow at once: some launchers are not asked, and go by it.
    pub fn ask_to_end(&self, code: i32, message: &str) {
        host::say(format_args!(
            "rank {} of {}: {message}",
            self.rank, self.size
        ));
        // A child ends itself only: its parent's job is none of its business.
        if !is_child_of_rank() {
            leave::forget();
            self.space.abort(code, message);
        }
    }

    fn check_open(&self, doing: &'static str) -> Result<(), JobError> {
        if is_child_of_rank() {
            return Err(JobError::Child { doing });
        }
        if self.finalized.load(Ordering::Acquire) {
            return Err(JobError::Finalized { doing });
        }
        Ok(())
    }
}
