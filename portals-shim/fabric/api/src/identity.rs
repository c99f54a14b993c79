//! Who a rank is on its fabric: process id, user, job.

use super::config::FabricError;
use super::place::{FIRST_NID, LARGEST_PID, Placement, RANK_PID};
use launch::{Job, JobError};
use portals_core::{Limits, NiConfig, ProcessId};

/// What a process asks of its interface; ranks need not ask for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Process id, up to [`LARGEST_PID`]; [`RANK_PID`] is no wish: ranks that share a node then have
    /// that and the following ones.
    pub pid: u32,
    /// Limits, cut to [`Limits::LIBRARY`].
    pub limits: Limits,
    /// Number of the interface within the process, 0 to 6.
    pub interface: u8,
    /// See [`NiConfig::get_send_events`].
    pub get_send_events: bool,
    /// Job id, up to 65535; without a wish the job's own.
    pub jid: Option<u32>,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            pid: RANK_PID,
            limits: Limits::LIBRARY,
            interface: 0,
            get_send_events: false,
            jid: None,
        }
    }
}

impl Wishes {
    /// Who `rank` is if it gets what it wishes.
    pub fn config(&self, place: Placement, rank: u32, jid: u32) -> NiConfig {
        let id = match self.pid {
            RANK_PID => place.of(rank),
            pid => place.of_pid(rank, pid),
        };
        NiConfig {
            id,
            limits: self.limits.min(Limits::LIBRARY),
            interface: self.interface,
            get_send_events: self.get_send_events,
            ..rank_config(place, rank, self.jid.unwrap_or(jid))
        }
    }
}

/// The exchange of process ids where ranks may have different ones.
#[derive(Debug)]
pub struct Ids<'a> {
    wishes: Option<&'a Wishes>,
    opening: String,
}

impl<'a> Ids<'a> {
    /// Before the fence: tells the own process id unless it is the common one.
    pub fn announce(
        job: &Job,
        wishes: Option<&'a Wishes>,
        opening: &str,
    ) -> Result<Self, JobError> {
        if let Some(w) = wishes.filter(|w| w.pid != RANK_PID) {
            job.put(&Self::key(job.rank(), opening), w.pid.to_string())?;
        }
        let opening = opening.to_owned();
        Ok(Self { wishes, opening })
    }

    fn key(rank: u32, opening: &str) -> String {
        format!("portolan.pid.{rank}{opening}")
    }

    /// After it: everybody's id. Without wishes nobody is asked, and all have the common one.
    pub fn collect(&self, job: &Job, place: Placement) -> Result<Vec<ProcessId>, FabricError> {
        let id = |rank| {
            let common = place.of(rank);
            if self.wishes.is_none() {
                return Ok(common);
            }
            match job.get(&Self::key(rank, &self.opening)) {
                Ok(pid) => Ok(place.of_pid(rank, pid.parse().unwrap_or(common.pid))),
                Err(JobError::NoSuchKey { .. }) => Ok(common),
                Err(e) => Err(e),
            }
        };
        let ids = (0..job.size()).map(id).collect::<Result<Vec<_>, _>>()?;
        for (second, id) in ids.iter().enumerate() {
            let first = place.find(*id, |rank| rank < second && ids[rank] == *id);
            if let Some(first) = first {
                let id = *id;
                return Err(FabricError::SameProcess { first, second, id });
            }
        }
        Ok(ids)
    }
}

/// The identity of a rank that wishes for nothing.
pub fn rank_config(place: Placement, rank: u32, jid: u32) -> NiConfig {
    NiConfig {
        id: place.of(rank),
        uid: host::ids::user_or_nobody(),
        jid,
        interface: 0,
        limits: Limits::LIBRARY,
        get_send_events: false,
    }
}

/// The identity of a process that belongs to no job, with what it wishes but its process id: that is random, 31 bits of
/// the node id and nearly 16 of the process id, as nobody is there who could give it one.
///
/// # Errors
/// The kernel has no random numbers.
pub fn endpoint_config(wishes: &Wishes) -> std::io::Result<NiConfig> {
    let mut bytes = [0; 6];
    host::secret::random(&mut bytes)?;
    let [a, b, c, d, pid @ ..] = bytes;
    // Node 0 is the own node to old programs, and all ones is any process.
    let nid = (u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff).max(FIRST_NID);
    let pid = u32::from(u16::from_be_bytes(pid)).clamp(1, LARGEST_PID);
    Ok(NiConfig {
        id: ProcessId::new(nid, pid),
        ..wishes.config(Placement::ONE, 0, 0)
    })
}

/// The number of a job by its name: 16 bits, for which the SeaStar's header has room, without the one that is any job
/// in programs for Cray's systems.
fn job_number(id: &str) -> u32 {
    let hash = id.bytes().fold(0x811c_9dc5u32, |h, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    });
    ((hash ^ hash >> 16) & 0xffff).min(0xfffe)
}

/// The identity of this process in a job.
pub fn identity(job: &Job, place: Placement, wishes: Option<&Wishes>) -> NiConfig {
    let jid = job_number(job.id());
    wishes.map_or_else(
        || rank_config(place, job.rank(), jid),
        |w| w.config(place, job.rank(), jid),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_numbers_of_16_bits_none_of_which_is_any_job() {
        let numbers: Vec<u32> = (0..200_000)
            .map(|n| job_number(&format!("job-{n}")))
            .collect();
        assert!(numbers.iter().all(|n| *n < 0xffff));
        let distinct: std::collections::HashSet<_> = numbers.iter().collect();
        assert!(distinct.len() > 50_000, "{}", distinct.len());
        assert_eq!(numbers[7], job_number("job-7"));
    }
}
