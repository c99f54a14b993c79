// UNSAFETY: entries that C calls: exported symbols and pointers of the caller.
#![expect(
    unsafe_code,
    reason = "exports symbols for C, takes pointers of the caller"
)]
//! Interfaces and identity: `PtlNI*`, `PtlGetUid`, `PtlGetId`, `PtlGetJid`, `PtlACEntry`.

use portals_shim::core::{Gauge, HandleKind, NiConfig};
use portals_shim::fabric::{self, FabricConfig, LARGEST_PID, Opened, RANK_PID, Wishes};
use portals_shim::place::Placement;
use portals_shim::{
    AcEntry, ClockKind, EqHandle, Error, Handle, Interface, Limits, MdHandle, Wait,
};
use std::ffi::{c_int, c_ulong};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::cancel::PIECE;
use crate::ptr::{self, Out};
use crate::state::{self, Kind, Open};
use crate::types::{OK, PID_ANY, PtlNiLimits, PtlProcessId, wished_or_any};
use crate::{eq, job, library, me_md, p3rt};

/// Numbers that mean the interface of the job: ours, UTCP0, IBNG0 (`p3/nal_types.h`).
const JOB_NUMBERS: [u32; 3] = [0xf0f0_f100, 0xf0f0_f000, 0xf0f0_f050];
/// The interface of this process alone.
const OWN_NUMBER: u32 = 0xf0f0_f101;
/// Set to anything but 0: a get makes SEND events and costs two operations of the threshold, as on
/// Cray's machines.
const CRAY_GETS: &str = "PORTOLAN_CRAY_GET_EVENTS";
/// Set to anything but 0: an automatic unlink makes an event only if `PTL_MD_EVENT_AUTO_UNLINK_ENABLE` asks for it, as
/// on Cray's machines.
const CRAY_UNLINKS: &str = "PORTOLAN_CRAY_UNLINK_EVENTS";
/// Set to anything but 0: `PtlNIInit` does what `PtlInit` does, if that was not called, as start-up on Cray's machines had
/// done before `main`.
const CRAY_START: &str = "PORTOLAN_CRAY_START";

/// One interface is opened at a time; the others wait, and find it open.
static OPENING: Mutex<()> = Mutex::new(());

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|v| !v.is_empty() && v != "0")
}

/// The process id to ask for. Without a wish it is that of the own rank in the map that was set
/// before, or the common one.
fn wished_pid(pid: u32) -> Result<u32, Error> {
    let pid = if wished_or_any(pid) == PID_ANY {
        let shared = state::shared();
        let mapped = shared.pending.as_ref().and_then(|g| g.own_pid());
        mapped.filter(|p| *p <= LARGEST_PID).unwrap_or(RANK_PID)
    } else {
        pid
    };
    if pid <= LARGEST_PID {
        Ok(pid)
    } else {
        Err(Error::PidInvalid)
    }
}

/// The job id that `PtlSetJID` set, or else the one of the environment.
fn wished_jid() -> Result<Option<u32>, Error> {
    let set = state::shared().jid;
    match set {
        None => p3rt::jid_of_environment(),
        set => Ok(set),
    }
}

/// The interface, and whether any of its calls may come to a system call.
fn open_job(wishes: &Wishes) -> Result<(Opened, bool), Error> {
    let attempt = || -> Result<(Opened, bool), fabric::FabricError> {
        let job = job::join()?;
        let config = fabric::resolve(&job, &FabricConfig::from_env()?)?;
        let opened = fabric::open_with(&job, &config, wishes)?;
        Ok((opened, config.kind().calls_the_system()))
    };
    attempt().map_err(|error| {
        job::complain("PtlNIInit", &error);
        Error::Fail
    })
}

fn open_own(wishes: &Wishes) -> Opened {
    let id = Placement::ONE.of_pid(0, wishes.pid);
    let config = NiConfig {
        id,
        uid: portals_shim::ids::user_or_nobody(),
        jid: wishes.jid.unwrap_or(1),
        interface: wishes.interface,
        limits: wishes.limits.min(Limits::LIBRARY),
        get_send_events: wishes.get_send_events,
    };
    fabric::alone(config)
}

fn open(number: u32, pid: u32, desired: Option<PtlNiLimits>) -> Result<Arc<Open>, Error> {
    let kind = match number {
        n if JOB_NUMBERS.contains(&n) => Kind::Job,
        OWN_NUMBER => Kind::Own,
        _ => return Err(Error::IfaceInvalid),
    };
    let _one = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = state::of_kind(kind) {
        return Ok(open);
    }
    let pid = wished_pid(pid)?;
    let (interface, handle) = state::next_number().ok_or(Error::NoSpace)?;
    let wishes = Wishes {
        pid,
        limits: desired.map_or(Limits::LIBRARY, Limits::from),
        interface,
        get_send_events: is_set(CRAY_GETS),
        jid: wished_jid()?,
    };
    let (opened, calls_the_system) = match kind {
        Kind::Job => open_job(&wishes)?,
        Kind::Own => (open_own(&wishes), false),
    };
    let endless = match opened.interface.clock() {
        ClockKind::Virtual => Wait::Forever,
        ClockKind::Wall => Wait::Nanos(PIECE.as_nanos() as u64),
    };
    clock_offer::opened(&opened.interface);
    let open = Open {
        interface: opened.interface,
        handle,
        kind,
        peers: opened.peers,
        group: Mutex::default(),
        debug_mask: AtomicU32::new(0),
        handlers: RwLock::default(),
        any_handler: AtomicBool::new(false),
        iovecs: Mutex::default(),
        condemned: Mutex::default(),
        any_condemned: AtomicBool::new(false),
        asked_unlinks: is_set(CRAY_UNLINKS),
        calls_the_system,
        endless,
    };
    state::insert(interface, open)
}

/// `PtlNIInit`. Opening the interface of the job is collective. A second call for an open interface
/// gives the same handle and the limits of the first.
///
/// # Safety
/// `desired` is null or readable; `actual` and `ni_handle` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlNIInit(
    interface: u32,
    pid: u32,
    desired: *mut PtlNiLimits,
    actual: *mut PtlNiLimits,
    ni_handle: *mut u32,
) -> c_int {
    state::entry(|| {
        if is_set(CRAY_START) && !state::is_forked() {
            library::initialise()?;
        }
        state::initialised()?;
        // SAFETY: the condition of this function.
        let handle = unsafe { Out::new(ni_handle) }?;
        // SAFETY: the same.
        let actual = unsafe { Out::optional(actual) };
        // SAFETY: the same.
        let desired = unsafe { ptr::read(desired) };
        let open = open(interface, pid, desired)?;
        if let Some(actual) = actual {
            actual.set(open.interface.limits().into());
        }
        handle.set(open.handle);
        Ok(OK)
    })
}

/// `PtlNIFini`
#[unsafe(no_mangle)]
pub extern "C" fn PtlNIFini(ni_handle: u32) -> c_int {
    state::entry(|| {
        let open = state::remove(ni_handle)?;
        state::leave(&open.interface);
        Ok(OK)
    })
}

/// `PtlNIStatus`
///
/// # Safety
/// `status` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlNIStatus(
    ni_handle: u32,
    register_index: u32,
    status: *mut u64,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(status) }?;
        let open = state::ni(ni_handle)?;
        out.set(register(&open.interface, register_index)?);
        Ok(OK)
    })
}

/// The value of a status register (`p3api/types.h`). Portals have two each, whose numbers are bit
/// 31, the portal in bits 16 to 30, and 15 (entries now) or 14 (most so far).
fn register(ni: &Interface, index: u32) -> Result<u64, Error> {
    const BAD: Error = Error::SrIndexInvalid;
    if index >> 31 == 1 {
        let bad_portal = |e| match e {
            Error::PtIndexInvalid => BAD,
            other => other,
        };
        let (now, most) = ni.list_lengths(index >> 16 & 0x7fff).map_err(bad_portal)?;
        return match index & 0xffff {
            15 => Ok(now),
            14 => Ok(most),
            _ => Err(BAD),
        };
    }
    let of = |gauge: Gauge, which| match which {
        0 => gauge.made,
        1 => gauge.freed(),
        2 => gauge.most,
        _ => gauge.current,
    };
    Ok(match index {
        0..=5 => {
            let s = ni.status()?;
            let traffic = [
                s.drop_count,
                s.drop_length,
                s.recv_count,
                s.recv_length,
                s.send_count,
                s.send_length,
            ];
            traffic[index as usize]
        }
        6 => ni.usage()?.portals.most,
        7 => ni.usage()?.portals.current,
        8..=11 => of(ni.usage()?.messages, index - 8),
        12..=15 => of(ni.usage()?.mes, index - 12),
        16..=19 => of(ni.usage()?.mds, index - 16),
        20..=23 => of(ni.usage()?.eqs, index - 20),
        24..=28 => ni.usage()?.aligned[index as usize - 24],
        29 => ni.paths()?.one_sided,
        30 => ni.paths()?.two_sided,
        _ => return Err(BAD),
    })
}

/// `PtlNIDist`; of a process that cannot exist the distance is `ULONG_MAX`.
///
/// # Safety
/// `distance` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlNIDist(
    ni_handle: u32,
    process: PtlProcessId,
    distance: *mut c_ulong,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(distance) }?;
        match state::ni(ni_handle)?.interface.distance(process.into()) {
            Ok(d) => out.set(d),
            Err(e) => {
                out.set(c_ulong::MAX);
                return Err(e);
            }
        }
        Ok(OK)
    })
}

/// The interface of a handle of any kind whose object exists.
pub(crate) fn of_any(raw: u32) -> Result<Arc<Open>, Error> {
    const BAD: Error = Error::HandleInvalid;
    let kind = Handle(raw).kind();
    if kind == HandleKind::Ni {
        return match state::ni(raw) {
            Err(Error::NiInvalid) => Err(BAD),
            other => other,
        };
    }
    let open = state::object(raw, kind, BAD)?;
    let exists = match kind {
        HandleKind::Ni => true,
        HandleKind::Me => me_md::me_exists(&open, raw),
        HandleKind::Md => open.interface.md_query(MdHandle::from_raw(raw)).is_ok(),
        HandleKind::Eq => eq::eq_open(raw).is_ok_and(|o| {
            let seen = o.interface.eq_peek(EqHandle::from_raw(raw));
            seen.is_ok()
        }),
    };
    if exists { Ok(open) } else { Err(BAD) }
}

/// `PtlNIHandle`
///
/// # Safety
/// `ni_handle` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlNIHandle(handle: u32, ni_handle: *mut u32) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(ni_handle) }?;
        out.set(of_any(handle)?.handle);
        Ok(OK)
    })
}

/// `PtlGetUid`
///
/// # Safety
/// `uid` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlGetUid(ni_handle: u32, uid: *mut u32) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(uid) }?;
        out.set(state::ni(ni_handle)?.interface.uid());
        Ok(OK)
    })
}

/// `PtlGetId`
///
/// # Safety
/// `id` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlGetId(ni_handle: u32, id: *mut PtlProcessId) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(id) }?;
        out.set(state::ni(ni_handle)?.interface.id().into());
        Ok(OK)
    })
}

/// `PtlGetJid`
///
/// # Safety
/// `jid` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlGetJid(ni_handle: u32, jid: *mut u32) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(jid) }?;
        out.set(state::ni(ni_handle)?.interface.jid());
        Ok(OK)
    })
}

/// `PtlACEntry`
#[unsafe(no_mangle)]
pub extern "C" fn PtlACEntry(
    ni_handle: u32,
    ac_index: u32,
    match_id: PtlProcessId,
    user_id: u32,
    job_id: u32,
    pt_index: u32,
) -> c_int {
    state::entry(|| {
        let entry = AcEntry {
            match_id: match_id.criterion(),
            uid: user_id,
            jid: job_id,
            pt_index,
        };
        state::ni(ni_handle)?.interface.ac_entry(ac_index, entry)?;
        Ok(OK)
    })
}
