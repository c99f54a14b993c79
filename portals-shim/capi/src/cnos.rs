// UNSAFETY: entries that C calls: exported symbols and pointers of the caller.
#![expect(
    unsafe_code,
    reason = "exports symbols for C, takes pointers of the caller"
)]
//! Ranks, as Cray's machines give them (`cnos_mpi_os.h`).
//!
//! These functions need neither `PtlInit` nor an interface: they speak of the job. In a forked child they fail: it is no
//! rank, and the line to the launcher is its parent's.

use portals_shim::fabric::FabricConfig;
use portals_shim::job::{Job, JobError};
use portals_shim::{ClockKind, Wait, with_signals_blocked};
use std::ffi::c_int;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::job;
use crate::ptr::Out;
use crate::state::{self, Kind, Open};
use crate::types::PtlProcessId;

/// What these functions return when they fail.
const FAILED: c_int = -1;
/// `CNOS_LAUNCHER_APRUN`
const APRUN: c_int = 1;

fn joined() -> Option<Arc<Job>> {
    // Without a word and without a lock, which another thread may have held at the fork.
    if job::is_of_another() {
        return None;
    }
    job::join()
        .map_err(|error| job::complain("joining the job", &error))
        .ok()
}

fn small(n: u32) -> c_int {
    c_int::try_from(n).unwrap_or(FAILED)
}

/// `cnos_get_rank`
#[unsafe(no_mangle)]
pub extern "C" fn cnos_get_rank() -> c_int {
    state::guarded(FAILED, || joined().map_or(FAILED, |job| small(job.rank())))
}

/// `cnos_get_size`
#[unsafe(no_mangle)]
pub extern "C" fn cnos_get_size() -> c_int {
    state::guarded(FAILED, || joined().map_or(FAILED, |job| small(job.size())))
}

/// The ids of all ranks; before the interface is open those that ranks have unless they wish for
/// others.
fn ids(job: &Job) -> Vec<PtlProcessId> {
    match state::of_kind(Kind::Job) {
        Some(open) => open.peers.iter().map(|id| (*id).into()).collect(),
        None => {
            let place = FabricConfig::from_env().unwrap_or_default().place;
            (0..job.size()).map(|rank| place.of(rank).into()).collect()
        }
    }
}

/// The own rank's id; `None` if there is no job.
pub(crate) fn own_id() -> Option<PtlProcessId> {
    let job = joined()?;
    ids(&job).get(job.rank() as usize).copied()
}

/// A copy of the map that lives as long as the program; the same one while the map is the same.
fn kept(ids: Vec<PtlProcessId>) -> &'static [PtlProcessId] {
    static KEPT: Mutex<Vec<&'static [PtlProcessId]>> = Mutex::new(Vec::new());
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(same) = all.iter().find(|m| **m == ids.as_slice()) {
        return same;
    }
    let map: &'static [PtlProcessId] = Box::leak(ids.into_boxed_slice());
    all.push(map);
    map
}

/// `cnos_get_nidpid_map`
///
/// # Safety
/// `map` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnos_get_nidpid_map(map: *mut *const PtlProcessId) -> c_int {
    state::guarded(FAILED, || {
        // SAFETY: the condition of this function.
        let Ok(out) = (unsafe { Out::new(map) }) else {
            return FAILED;
        };
        let Some(job) = joined() else { return FAILED };
        let map = kept(ids(&job));
        out.set(map.as_ptr());
        c_int::try_from(map.len()).unwrap_or(FAILED)
    })
}

/// `cnos_barrier_init`: the job's barrier needs nothing.
#[unsafe(no_mangle)]
pub extern "C" fn cnos_barrier_init(_ni_handle: u32) {}

/// `cnos_register_ptlid`: all ranks know the id already; it is compared.
#[unsafe(no_mangle)]
pub extern "C" fn cnos_register_ptlid(id: PtlProcessId) -> c_int {
    state::guarded(FAILED, || {
        if job::is_of_another() {
            return FAILED;
        }
        match state::of_kind(Kind::Job) {
            Some(open) if PtlProcessId::from(open.interface.id()) != id => FAILED,
            _ => 0,
        }
    })
}

/// How long a rank that waits for others serves puts and gets before it looks whether they have come, nanoseconds.
const ROUND: u64 = 500_000;

/// The barrier of the job, while this rank serves what others put and get: on Cray's machines that needs no call of it.
fn meet_serving(open: &Open, job: &Job) -> Result<(), JobError> {
    thread::scope(|scope| {
        let meet = || thread::Builder::new().spawn_scoped(scope, || job.barrier());
        let Ok(barrier) = with_signals_blocked(meet) else {
            return job.barrier();
        };
        while !barrier.is_finished() && open.interface.progress(Wait::Nanos(ROUND)).is_ok() {}
        barrier.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Meets all ranks. Simulated time passes meanwhile.
fn meet() -> Option<()> {
    let job = joined()?;
    let met = match state::of_kind(Kind::Job) {
        Some(open) if open.interface.clock() == ClockKind::Wall => meet_serving(&open, &job),
        Some(open) => open.interface.outside(|| job.barrier()).ok()?,
        None => job.barrier(),
    };
    met.map_err(|error| job::complain("barrier", &error)).ok()
}

/// `cnos_barrier`
#[unsafe(no_mangle)]
pub extern "C" fn cnos_barrier() -> c_int {
    state::guarded(FAILED, || meet().map_or(FAILED, |()| 0))
}

/// `cnos_pm_barrier`
#[unsafe(no_mangle)]
pub extern "C" fn cnos_pm_barrier(clean: c_int) {
    state::guarded((), || {
        if meet().is_some() && clean != 0 {
            job::leave();
        }
    });
}

/// `cnos_launcher`
#[unsafe(no_mangle)]
pub extern "C" fn cnos_launcher() -> c_int {
    APRUN
}
