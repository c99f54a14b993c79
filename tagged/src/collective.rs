//! What communicators need of each other: agreement on ids, a meeting, a gathering of small values. By binomial trees,
//! with tags below 0.

use crate::Slice;
use crate::comm::{Comm, Group};
use crate::error::{CallError, OpenError, TagError};
use crate::world::{Shared, lock};
use portals_shim::Region;

/// Tags that no program has.
const UP: i32 = -2;
const DOWN: i32 = -3;
const GATHER: i32 = -4;

/// Why there is no new communicator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommError {
    /// A message failed or was refused.
    #[error(transparent)]
    Message(#[from] TagError),
    /// No memory.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<CallError> for CommError {
    fn from(error: CallError) -> Self {
        Self::Message(error.into())
    }
}

/// Pieces of memory that are kept for the next call.
const KEPT: usize = 8;

/// Memory of a collective call.
struct Scratch<'a> {
    region: Region,
    shared: &'a Shared,
}

impl<'a> Scratch<'a> {
    fn new(shared: &'a Shared, len: usize) -> Result<Self, CommError> {
        let kept = lock(&shared.scratch).pop();
        let region = match kept.filter(|region| region.len() >= len) {
            Some(region) => region,
            None => Region::new(len).map_err(|e| OpenError::Start(e.to_string()))?,
        };
        Ok(Self { region, shared })
    }
}

impl Drop for Scratch<'_> {
    /// A call that failed may have left a message under way, which is the library's own and hurts no other.
    fn drop(&mut self) {
        let mut kept = lock(&self.shared.scratch);
        if kept.len() < KEPT {
            kept.push(self.region.clone());
        }
    }
}

/// The ranks of a communicator look for an id.
struct Asking<'a> {
    shared: &'a Shared,
    by: u32,
}

impl<'a> Asking<'a> {
    fn new(shared: &'a Shared, by: u32) -> Self {
        lock(&shared.ids).ask(by);
        Self { shared, by }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        lock(&self.shared.ids).done(self.by);
    }
}

fn read(region: &Region, at: usize) -> u64 {
    let mut bytes = [0; 8];
    // Callers keep within the region.
    let _ = region.read(at, &mut bytes);
    u64::from_le_bytes(bytes)
}

fn write(region: &Region, at: usize, value: u64) {
    let _ = region.write(at, &value.to_le_bytes());
}

impl Comm {
    /// The largest of the values that the ranks give. Collective.
    pub fn all_max(&self, value: u64) -> Result<u64, CommError> {
        let scratch = Scratch::new(&self.shared, 16)?;
        let region = scratch.region.clone();
        write(&region, 0, value);
        let (rank, size) = (self.rank(), self.size());
        let mut bit = 1;
        while bit < size {
            if rank & bit != 0 {
                self.send_any(&Slice::new(&region, 0, 8)?, rank - bit, UP, false)?;
                break;
            }
            if rank + bit < size {
                self.receive_any(&Slice::new(&region, 8, 8)?, Some(rank + bit), Some(UP))?;
                let larger = read(&region, 0).max(read(&region, 8));
                write(&region, 0, larger);
            }
            bit <<= 1;
        }
        if rank != 0 {
            self.receive_any(&Slice::new(&region, 0, 8)?, Some(rank - bit), Some(DOWN))?;
        }
        bit >>= 1;
        while bit > 0 {
            if rank + bit < size {
                self.send_any(&Slice::new(&region, 0, 8)?, rank + bit, DOWN, false)?;
            }
            bit >>= 1;
        }
        Ok(read(&region, 0))
    }

    /// Returns when all ranks have called it. Collective.
    pub fn barrier(&self) -> Result<(), CommError> {
        self.all_max(0).map(drop)
    }

    /// The pairs of all ranks, by rank. Collective.
    fn gather(&self, pair: (u64, u64)) -> Result<Vec<(u64, u64)>, CommError> {
        const PAIR: usize = 16;
        let (rank, size) = (self.rank(), self.size());
        let scratch = Scratch::new(&self.shared, size as usize * PAIR)?;
        let region = scratch.region.clone();
        let at = |rank: u32| rank as usize * PAIR;
        write(&region, at(rank), pair.0);
        write(&region, at(rank) + 8, pair.1);
        // A ring: in each step the pair that came last goes on.
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        for step in 0..size - 1 {
            let (out, into) = ((rank + size - step) % size, (rank + size - step - 1) % size);
            let request = self.start_receive(
                &Slice::new(&region, at(into), PAIR)?,
                Some(previous),
                Some(GATHER),
            )?;
            self.send_any(&Slice::new(&region, at(out), PAIR)?, next, GATHER, false)?;
            self.wait(request)?;
        }
        let pairs = (0..size).map(|r| (read(&region, at(r)), read(&region, at(r) + 8)));
        Ok(pairs.collect())
    }

    /// An id that is free at all ranks, taken. Collective. Other threads may look for one for other communicators.
    fn agree(&self) -> Result<u32, CommError> {
        let max = self.shared.place.layout.max_cid();
        let none = u64::from(max) + 1;
        let ids = &self.shared.ids;
        // No rank asks before all have come. One that is still on its way may first need the id of another communicator.
        self.barrier()?;
        let _asking = Asking::new(&self.shared, self.cid);
        let mut from = 1;
        loop {
            // A rank at which it is another's turn answers so, and all try again.
            let free = if lock(ids).has_turn(self.cid) {
                self.shared.reclaim_ids();
                lock(ids).free(from, max).map_or(none, u64::from)
            } else {
                u64::MAX
            };
            let wanted = self.all_max(free)?;
            if wanted == u64::MAX {
                lock(ids).give_way(self.cid);
                std::thread::yield_now();
                continue;
            }
            let cid = u32::try_from(wanted).unwrap_or(u32::MAX);
            if cid > max {
                return Err(CallError::NoCommunicator { max }.into());
            }
            let taken = lock(ids).is_used(cid);
            if self.all_max(u64::from(taken))? == 0 {
                lock(ids).take(cid);
                return Ok(cid);
            }
            from = cid + 1;
        }
    }

    /// A communicator of the same ranks. Collective.
    pub fn dup(&self) -> Result<Self, CommError> {
        let cid = self.agree()?;
        Ok(Self::new(
            &self.shared,
            cid,
            self.group().clone(),
            self.rank(),
        ))
    }

    /// A communicator of the ranks that give the same colour, in the order of their keys, and of their ranks here where
    /// these are equal; none for `None`. Collective.
    pub fn split(&self, colour: Option<u32>, key: u32) -> Result<Option<Self>, CommError> {
        let mine = colour.map_or(u64::MAX, u64::from);
        let all = self.gather((mine, u64::from(key)))?;
        let cid = self.agree()?;
        if colour.is_none() {
            lock(&self.shared.ids).untake(cid);
            return Ok(None);
        }
        let mut members: Vec<(u64, u32)> = (0..)
            .zip(&all)
            .filter(|(_, p)| p.0 == mine)
            .map(|(r, p)| (p.1, r))
            .collect();
        members.sort_unstable();
        let rank = members
            .iter()
            .position(|(_, r)| *r == self.rank())
            .unwrap_or_default();
        let group = members.iter().filter_map(|(_, r)| self.group().of_job(*r));
        let job = self.shared.place.peers.len() as u32;
        Ok(Some(Self::new(
            &self.shared,
            cid,
            Group::new(job, group.collect()),
            rank as u32,
        )))
    }
}
