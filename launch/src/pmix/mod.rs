//! The client of PMIx (Open MPI's `mpirun`, `srun --mpi=pmix`), through the launcher's library.
//!
//! A value of PMIx belongs to the rank that put it, and a get names that rank; a key of [`Job`] does not
//! say who put it. So each rank puts, at each fence, one *blob* of all pairs it has put since the one
//! before, an empty one too, and a get looks through the blobs of the likeliest rank first: keys of ranks
//! have the rank's number in them. A blob is asked for once.
//!
//! ```text
//!   put a.0, put b ┐                       ┌ blob 0 of rank 0: a.0, b
//!   fence ─────────┴▶ PMIx_Put, _Commit,   │ blob 0 of rank 1: a.1
//!                     _Fence (collect)     └ …
//!   get a.1 ────────▶ PMIx_Get(rank 1, blob 0), which every rank has put: no get waits
//! ```
//!
//! Where one server of Open MPI has all ranks, a fence is made of puts and gets too:
//!
//! ```text
//!   round 0: get the blob of the rank 1 below     a rank puts the mark of a round when it has got what it
//!   round 1: get the mark of the rank 2 below     wants of the one before, so after the last round every rank
//!   round 2: get the mark of the rank 4 below …   has put its blob
//! ```
//!
//! `mpirun` that ends a job of which ranks are in `PMIx_Fence` may crash or never end itself; ranks in `PMIx_Get` do it
//! no harm.
//!
//! [`Job`]: super::Job

mod library;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::library::{Got, Pmi, RANK_WILDCARD};
use super::space::{Joined, Space, plain};
use super::{JobError, env, key};

/// A variable that Open MPI's launcher sets for its ranks.
const OPEN_MPI: &str = "OMPI_COMM_WORLD_SIZE";

/// How long a launcher has to end a job of which it knows that a rank is gone.
const END: Duration = Duration::from_secs(3);

/// How long to leave a server alone that has not got a value yet and does not wait for it.
const PAUSE: Duration = Duration::from_millis(1);

/// Pairs of one rank between two fences.
type Blob = BTreeMap<String, Vec<u8>>;

/// A job that was joined over PMIx.
#[derive(Debug)]
pub(super) struct Pmix {
    pmi: Pmi,
    size: u32,
    /// Fences are made of puts and gets.
    by_gets: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Put since the last fence.
    pending: Blob,
    /// Fences so far, which is how many blobs every rank has put.
    fences: u32,
    /// Blobs by rank and fence.
    known: BTreeMap<(u32, u32), Blob>,
}

/// Whether the launcher is Open MPI's.
pub(super) fn of_open_mpi() -> bool {
    std::env::var_os(OPEN_MPI).is_some()
}

/// Joins the job that the environment names.
pub(super) fn join() -> Result<Joined, JobError> {
    const DOING: &str = "join the job";
    let pmi = Pmi::init(DOING)?;
    let rank = pmi.rank();
    let size = match pmi.get(RANK_WILDCARD, library::JOB_SIZE, DOING)? {
        Got::Number(size) => size,
        other => {
            return Err(JobError::Unexpected {
                doing: DOING,
                expected: "the number of ranks",
                line: format!("{other:?}"),
            });
        }
    };
    env::check(rank, size)?;
    let local = pmi.get(RANK_WILDCARD, library::LOCAL_SIZE, DOING);
    let by_gets = of_open_mpi() && matches!(local, Ok(Got::Number(n)) if n == size);
    let word = |c: char| if c.is_ascii_graphic() { c } else { '-' };
    let id = pmi.nspace().chars().map(word).collect();
    Ok(Joined {
        rank,
        size,
        id,
        space: Space::Pmix(Box::new(Pmix {
            pmi,
            size,
            by_gets,
            state: Mutex::default(),
        })),
    })
}

/// The ranks in the order in which `key` is looked for: those whose number stands in it, then the first,
/// which puts what is common to all, then the others.
fn likeliest(key: &str, size: u32) -> impl Iterator<Item = u32> {
    let numbers = key.split(|c: char| !c.is_ascii_digit());
    let named: Vec<u32> = numbers
        .filter_map(|n| n.parse().ok())
        .filter(|n| *n < size)
        .collect();
    named.into_iter().chain(0..size)
}

fn blob_key(fence: u32) -> CString {
    // Digits have no zero among them.
    CString::new(format!("portolan.{fence}")).unwrap_or_default()
}

/// What a rank puts in a round of a fence: in the first its blob, then a mark.
fn mark_key(fence: u32, round: u32) -> CString {
    match round {
        0 => blob_key(fence),
        _ => CString::new(format!("portolan.{fence}.{round}")).unwrap_or_default(),
    }
}

/// Rounds of a fence of `size` ranks, and of whom rank `me` gets something in each.
fn rounds(me: u32, size: u32) -> impl Iterator<Item = (u32, u32)> {
    let distances = (0..u32::BITS).map(|round| (round, 1 << round));
    let distances = distances.take_while(move |(_, distance)| *distance < size);
    distances.map(move |(round, distance)| {
        let below = me.checked_sub(distance);
        (round, below.unwrap_or_else(|| size - (distance - me)))
    })
}

impl Pmix {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, key: &str, value: &[u8]) -> Result<(), JobError> {
        key::check(key, usize::MAX)?;
        self.state().pending.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    pub(super) fn fence(&self, doing: &'static str) -> Result<(), JobError> {
        let (blob, fence) = {
            let mut state = self.state();
            (std::mem::take(&mut state.pending), state.fences)
        };
        let bytes = postcard::to_stdvec(&blob).map_err(|error| JobError::BadValue {
            key: format!("portolan.{fence}"),
            reason: error.to_string(),
        })?;
        self.pmi.put(&blob_key(fence), &bytes, doing)?;
        if self.by_gets {
            self.meet(fence, doing)?;
        } else {
            self.pmi.fence(doing).inspect_err(await_end)?;
        }
        self.state().fences = fence.saturating_add(1);
        Ok(())
    }

    /// Waits until every rank has put its blob of this fence.
    fn meet(&self, fence: u32, doing: &'static str) -> Result<(), JobError> {
        for (round, below) in rounds(self.pmi.rank(), self.size) {
            if round > 0 {
                self.pmi.put(&mark_key(fence, round), &[1], doing)?;
            }
            let awaited = mark_key(fence, round);
            while let Err(error) = self.pmi.get(below, &awaited, doing) {
                if !matches!(&error, JobError::Library { status, .. } if *status == library::NOT_FOUND)
                {
                    return Err(error);
                }
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, key: &str) -> Result<Vec<u8>, JobError> {
        key::check(key, usize::MAX)?;
        let mut state = self.state();
        for rank in likeliest(key, self.size) {
            for fence in (0..state.fences).rev() {
                let blob = match state.known.entry((rank, fence)) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(unknown) => unknown.insert(self.blob(rank, fence)?),
                };
                if let Some(value) = blob.get(key) {
                    return Ok(value.clone());
                }
            }
        }
        Err(JobError::NoSuchKey {
            key: key.to_owned(),
        })
    }

    fn blob(&self, rank: u32, fence: u32) -> Result<Blob, JobError> {
        let foreign = |reason: String| JobError::ForeignBlob { rank, reason };
        match self.pmi.get(rank, &blob_key(fence), "get a value")? {
            Got::Bytes(bytes) => {
                postcard::from_bytes(&bytes).map_err(|error| foreign(error.to_string()))
            }
            other => Err(foreign(format!("{other:?}"))),
        }
    }

    pub(super) fn finalize(&self, doing: &'static str) -> Result<(), JobError> {
        self.pmi.finalize(doing)
    }

    pub(super) fn abort(&self, code: i32, message: &str) {
        // `mpirun` of Open MPI 4.1.4 may hang or crash on its way out after `PMIx_Abort`, whoever calls it. It ends a job
        // of which a rank exits without leaving, with the status of that rank; and that is what follows.
        if !of_open_mpi() {
            self.pmi.abort(code, &plain(message));
        }
    }
}

/// After a fence that went on without a rank: the launcher is about to end the job with that rank's status, and would take
/// the status of one that exits before.
fn await_end(error: &JobError) {
    if matches!(error, JobError::Library { status, .. } if *status == library::PARTIAL_SUCCESS) {
        std::thread::sleep(END);
    }
}

#[cfg(test)]
mod tests;
