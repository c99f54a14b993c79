//! How ranks find each other: what each says of itself in the job's key space.

use super::advice::unusable;
use fabric_api::config::FabricError;
use host::with_causes;
use launch::Reader;
use portals_core::ProcessId;
use std::collections::BTreeMap;

/// How a rank can be talked to.
pub trait Contact: Copy {
    /// Under which a rank says it; `opening` tells the openings of a process apart.
    fn key(rank: u32, opening: &str) -> String;

    /// What was said, and what may follow it.
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])>;
}

/// The contacts of a job's ranks.
#[derive(Debug)]
pub struct Directory<C> {
    /// The job's key space, for those not known yet.
    job: Option<(Reader, String)>,
    /// The key under which a rank says its address; see [`Contact::key`].
    key: fn(u32, &str) -> String,
    /// Bytes before the contact in what a rank has said.
    before: usize,
    known: BTreeMap<u32, C>,
}

impl<C: Contact> Directory<C> {
    /// That of a job, which knows nobody yet; `opening` as in [`Contact::key`].
    pub(crate) fn new(job: Reader, opening: String) -> Self {
        Self::within(job, opening, C::key, 0)
    }

    /// A directory of ranks that say their address under another key, after `before` bytes.
    pub(crate) fn within(
        job: Reader,
        opening: String,
        key: fn(u32, &str) -> String,
        before: usize,
    ) -> Self {
        Self {
            job: Some((job, opening)),
            key,
            before,
            known: BTreeMap::new(),
        }
    }

    /// One that knows these only.
    pub(crate) fn of(known: BTreeMap<u32, C>) -> Self {
        Self {
            job: None,
            key: C::key,
            before: 0,
            known,
        }
    }

    /// Asks for a rank's contact, and gives what the rank has said beside it.
    pub(crate) fn learn(&mut self, rank: u32) -> Result<Vec<u8>, FabricError> {
        self.ask(rank).map(|(_, rest)| rest).map_err(unusable)
    }

    fn ask(&mut self, rank: u32) -> Result<(C, Vec<u8>), String> {
        let (job, opening) = self
            .job
            .as_ref()
            .ok_or_else(|| format!("rank {rank} has no address"))?;
        let bytes = job
            .get_bytes(&(self.key)(rank, opening))
            .map_err(|e| with_causes(&e))?;
        let own = bytes.get(self.before..).unwrap_or_default();
        let (contact, rest) = C::read(own).ok_or_else(|| format!("rank {rank}: not an address"))?;
        self.known.insert(rank, contact);
        Ok((contact, rest.to_vec()))
    }

    /// Takes note of what a rank has said, and gives what follows it.
    pub(super) fn heard<'a>(&mut self, rank: u32, said: &'a [u8]) -> Result<&'a [u8], FabricError> {
        let read = C::read(said).ok_or_else(|| unusable(format!("rank {rank}: not an address")));
        let (contact, rest) = read?;
        self.known.insert(rank, contact);
        Ok(rest)
    }

    /// The contact of a rank.
    pub(super) fn find(&mut self, rank: u32) -> Result<C, String> {
        if let Some(contact) = self.known.get(&rank) {
            return Ok(*contact);
        }
        self.ask(rank).map(|(contact, _)| contact)
    }
}

/// Ranks of one process, which know each other: the first ones of a job of `size`. Each is finished by `end`, which gets
/// the ids of all ranks.
pub(super) fn acquainted<U, C: Contact, T>(
    ranks: impl Iterator<Item = Result<U, FabricError>>,
    size: u32,
    contact: impl Fn(&U) -> C,
    mut end: impl FnMut(U, Vec<ProcessId>, Directory<C>) -> Result<T, FabricError>,
) -> Result<Vec<T>, FabricError> {
    let ranks = ranks.collect::<Result<Vec<U>, _>>()?;
    let known: BTreeMap<u32, C> = (0..).zip(ranks.iter().map(contact)).collect();
    let place = fabric_api::place::Placement::ONE;
    let ids: Vec<ProcessId> = (0..size).map(|rank| place.of(rank)).collect();
    ranks
        .into_iter()
        .map(|rank| end(rank, ids.clone(), Directory::of(known.clone())))
        .collect()
}
