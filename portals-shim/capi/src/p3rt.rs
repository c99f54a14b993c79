// UNSAFETY: entries that C calls: exported symbols and pointers of the caller.
#![expect(
    unsafe_code,
    reason = "exports symbols for C, takes pointers of the caller"
)]
//! Ranks, as the reference's run-time library gives them (`p3rt/p3rt.h`).
//!
//! A group is set for an open interface, or, with `PTL_INVALID_HANDLE`, for the next one that is
//! opened.

use portals_shim::{Error, ProcessId};
use std::ffi::{c_char, c_int, c_uint};
use std::sync::PoisonError;

use crate::ptr::{self, Out};
use crate::types::{INVALID_HANDLE, OK, PtlProcessId};
use crate::{cnos, job, state};

/// What a program knows of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    rank: u32,
    size: u32,
    nids: Option<Vec<u32>>,
    pids: Option<Vec<u32>>,
    /// Rank and size are the launcher's, so missing maps are those of the fabric.
    of_job: bool,
    /// Nobody set it: it was asked for.
    implied: bool,
}

/// Why a group could not be read from the environment.
#[derive(Debug, thiserror::Error)]
enum GroupError {
    #[error("{0} is not set")]
    Missing(&'static str),
    #[error("{name} is \"{value}\", which is not {expected}")]
    Bad {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("PTL_NIDMAP has {nids} ranks and PTL_PIDMAP {pids}; PTL_MY_RID is {rank}")]
    Unequal { nids: usize, pids: usize, rank: u32 },
}

impl GroupError {
    fn code(&self) -> Error {
        match self {
            Self::Missing(_) => Error::NoInit,
            Self::Bad { .. } | Self::Unequal { .. } => Error::Fail,
        }
    }
}

/// A number as C writes it: with 0x in base 16, with a leading 0 in base 8.
fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u32::from_str_radix(hex, 16).ok();
    }
    match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u32::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

impl Group {
    /// From `PTL_MY_RID`, `PTL_NIDMAP` and `PTL_PIDMAP`; `None` when none of them is set.
    fn from_lookup(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, GroupError> {
        const NAMES: [&str; 3] = ["PTL_MY_RID", "PTL_NIDMAP", "PTL_PIDMAP"];
        let [rid, nids, pids] = NAMES.map(get);
        let (rid, nids, pids) = match (rid, nids, pids) {
            (None, None, None) => return Ok(None),
            (Some(rid), Some(nids), Some(pids)) => (rid, nids, pids),
            (None, _, _) => return Err(GroupError::Missing("PTL_MY_RID")),
            (_, None, _) => return Err(GroupError::Missing("PTL_NIDMAP")),
            (_, _, None) => return Err(GroupError::Missing("PTL_PIDMAP")),
        };
        let bad = |name, value: &str, expected| GroupError::Bad {
            name,
            value: value.chars().take(60).collect(),
            expected,
        };
        let rank = number(&rid).ok_or_else(|| bad("PTL_MY_RID", &rid, "a number"))?;
        let map = |name, text: &str| {
            text.split(':')
                .filter(|part| !part.is_empty())
                .map(number)
                .collect::<Option<Vec<u32>>>()
                .ok_or_else(|| bad(name, text, "a list of numbers with colons between"))
        };
        let (nids, pids) = (map("PTL_NIDMAP", &nids)?, map("PTL_PIDMAP", &pids)?);
        if nids.len() != pids.len() || rank as usize >= nids.len() {
            return Err(GroupError::Unequal {
                nids: nids.len(),
                pids: pids.len(),
                rank,
            });
        }
        Ok(Some(Self {
            rank,
            size: u32::try_from(nids.len()).unwrap_or(u32::MAX),
            nids: Some(nids),
            pids: Some(pids),
            of_job: false,
            implied: false,
        }))
    }

    /// From the environment, or else from the launcher.
    fn found() -> Result<Self, Error> {
        let set = Self::from_lookup(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
        if let Some(group) = set.map_err(|error| {
            job::complain("PtlSetRank", &error);
            error.code()
        })? {
            return Ok(group);
        }
        let job = job::join().map_err(|error| {
            job::complain("PtlSetRank", &error);
            Error::Fail
        })?;
        Ok(Self {
            rank: job.rank(),
            size: job.size(),
            nids: None,
            pids: None,
            of_job: true,
            implied: false,
        })
    }

    /// The process id of the own rank, where a map says it.
    pub(crate) fn own_pid(&self) -> Option<u32> {
        self.pids.as_ref()?.get(self.rank as usize).copied()
    }

    /// Ids of all ranks; missing maps of the job's group are filled from those of the fabric.
    fn ids(&self, peers: &[ProcessId]) -> Option<Vec<ProcessId>> {
        let of_fabric = |part: fn(&ProcessId) -> u32| {
            let whole = self.of_job && peers.len() == self.size as usize;
            whole.then(|| peers.iter().map(part).collect::<Vec<_>>())
        };
        let nids = self.nids.clone().or_else(|| of_fabric(|id| id.nid))?;
        let pids = self.pids.clone().or_else(|| of_fabric(|id| id.pid))?;
        Some(
            nids.into_iter()
                .zip(pids)
                .map(|(n, p)| ProcessId::new(n, p))
                .collect(),
        )
    }
}

/// Gives `body` the group of an interface, or the pending one, and the ids of the fabric.
fn with_group<R>(
    ni_handle: u32,
    body: impl FnOnce(&mut Option<Group>, &[ProcessId]) -> Result<R, Error>,
) -> Result<R, Error> {
    state::initialised()?;
    if ni_handle == INVALID_HANDLE {
        return body(&mut state::shared().pending, &[]);
    }
    let open = state::ni(ni_handle).map_err(|e| match e {
        Error::NiInvalid => Error::HandleInvalid,
        other => other,
    })?;
    let mut group = open.group.lock().unwrap_or_else(PoisonError::into_inner);
    body(&mut group, &open.peers)
}

/// Calls with the group ([`with_group`]) what only asks. An open interface without a group has the one that
/// `PtlSetRank(ni, -1, -1)` would set: programs older than that function ask at once. A program may set another one later.
fn asked_group<R>(
    ni_handle: u32,
    body: impl FnOnce(&Group, &[ProcessId]) -> Result<R, Error>,
) -> Result<R, Error> {
    let absent = with_group(ni_handle, |group, _| Ok(group.is_none()))?;
    if absent && ni_handle != INVALID_HANDLE {
        let found = Group {
            implied: true,
            ..Group::found()?
        };
        with_group(ni_handle, |group, peers| {
            if found.size as usize == peers.len() {
                group.get_or_insert(found);
            }
            Ok(())
        })?;
    }
    with_group(ni_handle, |group, peers| {
        body(group.as_ref().ok_or(Error::NoInit)?, peers)
    })
}

/// `PtlSetRank`
#[unsafe(no_mangle)]
pub extern "C" fn PtlSetRank(ni_handle: u32, rank: c_uint, size: c_uint) -> c_int {
    state::entry(|| {
        let set = |group: &Option<Group>| group.as_ref().is_some_and(|g| !g.implied);
        if with_group(ni_handle, |group, _| Ok(set(group)))? {
            return Err(Error::Fail);
        }
        // Without a lock: asking the launcher may take time.
        let found = if (rank, size) == (c_uint::MAX, c_uint::MAX) {
            Group::found()?
        } else if rank < size {
            Group {
                rank,
                size,
                nids: None,
                pids: None,
                of_job: false,
                implied: false,
            }
        } else {
            return Err(Error::Fail);
        };
        with_group(ni_handle, |group, _| {
            *group = Some(found);
            Ok(OK)
        })
    })
}

/// Stores a map in the group; `taken` is the error for one that has it or is of another size.
///
/// # Safety
/// `map` is null or an array of `size` elements.
unsafe fn set_map(
    ni_handle: u32,
    map: *const u32,
    size: c_uint,
    taken: Error,
    slot: fn(&mut Group) -> &mut Option<Vec<u32>>,
) -> c_int {
    state::entry(|| {
        with_group(ni_handle, |group, _| {
            let group = group.as_mut().filter(|g| !g.implied);
            let group = group.ok_or(Error::NoInit)?;
            if size != group.size || slot(group).is_some() {
                return Err(taken);
            }
            // SAFETY: the condition of this function.
            let values = unsafe { ptr::read_array(map, size as usize) }?;
            *slot(group) = Some(values);
            Ok(OK)
        })
    })
}

/// `PtlSetNIDMap`
///
/// # Safety
/// `map` is null or an array of `size` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlSetNIDMap(ni_handle: u32, map: *const u32, size: c_uint) -> c_int {
    // SAFETY: the condition of this function.
    unsafe { set_map(ni_handle, map, size, Error::Fail, |g| &mut g.nids) }
}

/// `PtlSetPIDMap`
///
/// # Safety
/// `map` is null or an array of `size` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlSetPIDMap(ni_handle: u32, map: *const u32, size: c_uint) -> c_int {
    // SAFETY: the condition of this function.
    unsafe { set_map(ni_handle, map, size, Error::PidInvalid, |g| &mut g.pids) }
}

/// The largest job id; headers have 16 bits for it.
const LARGEST_JID: u32 = 0xffff;

/// `PTL_MY_JID`, for processes that were started without a call of `PtlSetJID`. One that is set and
/// no job id is [`Error::Fail`], and said.
pub(crate) fn jid_of_environment() -> Result<Option<u32>, Error> {
    let set = std::env::var("PTL_MY_JID").ok().filter(|v| !v.is_empty());
    set.map(|value| {
        jid_of(&value).map_err(|error| {
            job::complain("PtlNIInit", &error);
            error.code()
        })
    })
    .transpose()
}

fn jid_of(value: &str) -> Result<u32, GroupError> {
    let jid = number(value).filter(|jid| *jid <= LARGEST_JID);
    jid.ok_or_else(|| GroupError::Bad {
        name: "PTL_MY_JID",
        value: value.chars().take(60).collect(),
        expected: "a number up to 65535",
    })
}

/// `PtlSetJID`: the job id of interfaces opened later.
#[unsafe(no_mangle)]
pub extern "C" fn PtlSetJID(jid: u32) -> c_int {
    state::entry(|| {
        state::initialised()?;
        if jid > LARGEST_JID {
            return Err(Error::Fail);
        }
        state::shared().jid = Some(jid);
        Ok(OK)
    })
}

/// `PtlGetRank`
///
/// # Safety
/// `rank` and `size` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlGetRank(ni_handle: u32, rank: *mut c_uint, size: *mut c_uint) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out_rank = unsafe { Out::new(rank) }?;
        // SAFETY: the same.
        let out_size = unsafe { Out::new(size) }?;
        asked_group(ni_handle, |group, _| {
            out_rank.set(group.rank);
            out_size.set(group.size);
            Ok(OK)
        })
    })
}

/// `PtlGetRankId`
///
/// # Safety
/// `id` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlGetRankId(
    ni_handle: u32,
    rank: c_uint,
    id: *mut PtlProcessId,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(id) }?;
        asked_group(ni_handle, |group, peers| {
            let ids = group.ids(peers);
            let id = ids.and_then(|ids| ids.get(rank as usize).copied());
            out.set(id.ok_or(Error::NoInit)?.into());
            Ok(OK)
        })
    })
}

/// Copies one half of all ids to the caller.
///
/// # Safety
/// `map` is null or may be written for `size` elements.
unsafe fn give_map(
    ni_handle: u32,
    map: *mut u32,
    size: c_uint,
    part: fn(&ProcessId) -> u32,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        if map.is_null() {
            return Err(Error::Segv);
        }
        asked_group(ni_handle, |group, peers| {
            let ids = group.ids(peers).ok_or(Error::NoInit)?;
            if size != group.size {
                return Err(Error::Fail);
            }
            let values: Vec<_> = ids.iter().map(part).collect();
            // SAFETY: `ids` has as many elements as the group, which are `size`.
            unsafe { ptr::write_array(map, &values) };
            Ok(OK)
        })
    })
}

/// `PtlGetNIDMap`
///
/// # Safety
/// `map` is null or may be written for `size` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlGetNIDMap(ni_handle: u32, map: *mut u32, size: c_uint) -> c_int {
    // SAFETY: the condition of this function.
    unsafe { give_map(ni_handle, map, size, |id| id.nid) }
}

/// `PtlGetPIDMap`
///
/// # Safety
/// `map` is null or may be written for `size` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlGetPIDMap(ni_handle: u32, map: *mut u32, size: c_uint) -> c_int {
    // SAFETY: the condition of this function.
    unsafe { give_map(ni_handle, map, size, |id| id.pid) }
}

/// `p3tcp_my_nid`, of the reference's library for TCP: the node id of this process, which there is the address of a
/// network interface. Here it does not depend on the interface. Needs no `PtlInit`.
///
/// # Safety
/// `nid` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p3tcp_my_nid(_interface: *const c_char, nid: *mut c_uint) -> c_int {
    state::entry(|| {
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(nid) }?;
        out.set(cnos::own_id().ok_or(Error::Fail)?.nid);
        Ok(OK)
    })
}

/// `utcp_my_nid`, the earlier name: as [`p3tcp_my_nid`], but it returns the node id, `PTL_NID_ANY` where there is no job.
#[unsafe(no_mangle)]
pub extern "C" fn utcp_my_nid(_interface: *const c_char) -> c_uint {
    cnos::own_id().map_or(c_uint::MAX, |id| id.nid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(vars: &[(&str, &str)]) -> Result<Option<Group>, Error> {
        Group::from_lookup(|n| {
            let found = vars.iter().find(|(k, _)| *k == n);
            found.map(|(_, v)| (*v).to_owned())
        })
        .map_err(|e| e.code())
    }

    #[test]
    fn maps_are_c_numbers_between_colons() {
        let g = group(&[
            ("PTL_MY_RID", "1"),
            ("PTL_NIDMAP", "0x10::011:7"),
            ("PTL_PIDMAP", ":128:129:0"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!((g.rank, g.size, g.own_pid()), (1, 3, Some(129)));
        let ids = g.ids(&[]).unwrap();
        assert_eq!(
            ids,
            [(16, 128), (9, 129), (7, 0)].map(|(n, p)| ProcessId::new(n, p))
        );
    }

    /// Scenario 103.
    #[test]
    fn incomplete_and_unequal_environments_have_their_codes() {
        assert_eq!(group(&[]), Ok(None));
        assert_eq!(group(&[("PTL_MY_RID", "0")]), Err(Error::NoInit));
        let full = |rid, nids, pids| {
            group(&[
                ("PTL_MY_RID", rid),
                ("PTL_NIDMAP", nids),
                ("PTL_PIDMAP", pids),
            ])
        };
        assert_eq!(full("0", "1:2", "3"), Err(Error::Fail));
        assert_eq!(full("2", "1:2", "3:4"), Err(Error::Fail));
        assert_eq!(full("0", "1:x", "3:4"), Err(Error::Fail));
        assert_eq!(full("-1", "1:2", "3:4"), Err(Error::Fail));
        assert!(full("1", "1:2", "3:4").unwrap().is_some());
    }

    #[test]
    fn a_job_id_is_a_c_number_of_16_bits() {
        let jid = |text| jid_of(text).map_err(|e| e.code());
        assert_eq!(jid("0x1f"), Ok(31));
        assert_eq!(jid("65535"), Ok(65_535));
        for bad in ["65536", "-1", "one", "0x"] {
            assert_eq!(jid(bad), Err(Error::Fail), "{bad}");
        }
    }

    #[test]
    fn the_job_s_group_takes_ids_from_the_fabric() {
        let g = Group {
            rank: 0,
            size: 2,
            nids: None,
            pids: None,
            of_job: true,
            implied: false,
        };
        let peers = [ProcessId::new(0, 128), ProcessId::new(1, 9)];
        assert_eq!(g.ids(&peers).unwrap(), peers);
        assert_eq!(g.ids(&[]), None);
        let own = Group { of_job: false, ..g };
        assert_eq!(own.ids(&peers), None);
    }
}
