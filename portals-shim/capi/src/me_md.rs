// UNSAFETY: entries that C calls: exported symbols, pointers of the caller, and the promise that
// a descriptor's memory stays mapped, which only the caller can give.
#![expect(
    unsafe_code,
    reason = "exports symbols for C, takes the caller's word that memory stays mapped"
)]
//! Match entries and memory descriptors: `PtlME*`, `PtlMD*`; both in one call: `memd.rs`.

use portals_shim::core::HandleKind;
use portals_shim::{
    EqHandle, Error, InsertPosition, MdHandle, MdMemory, MdOptions, MdSpec, MeHandle, MeSpec,
    Memory, RawMemory, Segment, Unlink,
};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::sync::{Arc, MutexGuard, PoisonError};

use crate::eq;
use crate::ptr::{self, Out};
use crate::state::{self, Open};
use crate::types::{EQ_NONE, OK, PtlMd, PtlMdIovec, PtlProcessId};

/// `ptl_unlink_t`: `PTL_UNLINK` is 1.
pub(crate) fn unlink_of(value: c_uint) -> Unlink {
    if value == 1 {
        Unlink::Unlink
    } else {
        Unlink::Retain
    }
}

/// `ptl_ins_pos_t`: `PTL_INS_BEFORE` is 0.
pub(crate) fn position_of(value: c_uint) -> InsertPosition {
    if value == 0 {
        InsertPosition::Before
    } else {
        InsertPosition::After
    }
}

/// A queue that a caller names, or none; one that was freed is [`Error::EqInvalid`].
pub(crate) fn eq_of(open: &Open, raw: u32) -> Result<Option<EqHandle>, Error> {
    match raw {
        EQ_NONE => Ok(None),
        raw if eq::is_condemned(open, raw) => Err(Error::EqInvalid),
        raw => Ok(Some(EqHandle::from_raw(raw))),
    }
}

pub(crate) fn me_spec(
    id: PtlProcessId,
    match_bits: u64,
    ignore_bits: u64,
    unlink: c_uint,
) -> MeSpec {
    MeSpec {
        match_id: id.criterion(),
        match_bits,
        ignore_bits,
        unlink: unlink_of(unlink),
    }
}

pub(crate) fn me_open(raw: u32) -> Result<Arc<Open>, Error> {
    state::object(raw, HandleKind::Me, Error::MeInvalid)
}

fn md_open(raw: u32) -> Result<Arc<Open>, Error> {
    state::object(raw, HandleKind::Md, Error::MdInvalid)
}

/// A description of memory that cannot be used.
fn illegal() -> MdSpec {
    let nowhere = Memory::contiguous(0, 1);
    MdSpec {
        // SAFETY: attaching a description of bytes at address 0 is always refused, so nothing is
        // ever accessed.
        memory: MdMemory::Raw(unsafe { RawMemory::new(nowhere) }),
        threshold: 0,
        max_size: 0,
        options: MdOptions::empty(),
        user_ptr: 0,
        eq: None,
    }
}

/// What attaching an illegal descriptor says of an entry: free, taken, or not one.
pub(crate) fn me_state(open: &Open, raw: u32) -> Error {
    let attached = open
        .interface
        .md_attach(MeHandle::from_raw(raw), illegal(), Unlink::Retain);
    attached.err().unwrap_or(Error::MeInvalid)
}

pub(crate) fn me_exists(open: &Open, raw: u32) -> bool {
    matches!(me_state(open, raw), Error::MdIllegal | Error::MeInUse)
}

/// The pieces of iovec descriptors, by descriptor. Those of descriptors that are gone without an
/// event are looked for when the table has doubled.
pub(crate) fn iovecs(open: &Open) -> MutexGuard<'_, Pieces> {
    open.iovecs.lock().unwrap_or_else(PoisonError::into_inner)
}

type Pieces = BTreeMap<u32, Vec<Segment>>;

fn keep_iovec(open: &Open, kept: &mut Pieces, md: MdHandle, pieces: Option<Vec<Segment>>) {
    const LOOK_AT: usize = 256;
    match pieces {
        Some(pieces) => {
            if kept.len() >= LOOK_AT && kept.len().is_power_of_two() {
                kept.retain(|md, _| open.interface.md_query(MdHandle::from_raw(*md)).is_ok());
            }
            kept.insert(md.raw(), pieces);
        }
        None => {
            kept.remove(&md.raw());
        }
    }
}

/// `PTL_MD_EVENT_AUTO_UNLINK_ENABLE`
const AUTO_UNLINK_ENABLE: u32 = 0x0200;

/// What a descriptor's options mean on this interface.
fn options_of(open: &Open, given: c_uint) -> MdOptions {
    let options = MdOptions::from_bits_retain(given);
    if open.asked_unlinks && given & AUTO_UNLINK_ENABLE == 0 {
        options | MdOptions::EVENT_AUTO_UNLINK_DISABLE
    } else {
        options
    }
}

/// A descriptor as the caller gave it, checked as far as it can be without its interface, and the
/// pieces if it has several.
///
/// # Safety
/// With `PTL_MD_IOVEC`, `md.start` is as [`ptr::iovec`] takes it, with `md.length` entries. The memory stays
/// mapped until the descriptor is unlinked and no operation is under way on it.
pub(crate) unsafe fn md_spec(
    open: &Open,
    md: &PtlMd,
) -> Result<(MdSpec, Option<Vec<Segment>>), Error> {
    let options = options_of(open, md.options);
    let start = md.start.expose_provenance() as u64;
    let (memory, pieces) = if options.contains(MdOptions::IOVEC) {
        let most = u64::try_from(open.interface.limits().max_md_iovecs).unwrap_or(0);
        if md.length > most {
            return Err(Error::MdIllegal);
        }
        // SAFETY: the condition of this function.
        let segments = unsafe { ptr::iovec(md.start, md.length as usize) };
        let segments = segments.map_err(|_| Error::MdIllegal)?;
        let pieces = segments.clone();
        (Memory::Iovec { start, segments }, Some(pieces))
    } else {
        (Memory::contiguous(start, md.length), None)
    };
    let mapped = match &memory {
        Memory::Contiguous(piece) => ptr::is_mapped(piece),
        Memory::Iovec { segments, .. } => segments.iter().all(ptr::is_mapped),
    };
    if !mapped {
        return Err(Error::MdIllegal);
    }
    let spec = MdSpec {
        // SAFETY: the caller promises that the memory stays mapped; C has no exclusive references.
        memory: MdMemory::Raw(unsafe { RawMemory::new(memory) }),
        threshold: md.threshold,
        max_size: md.max_size,
        options,
        user_ptr: md.user_ptr.expose_provenance() as u64,
        eq: eq_of(open, md.eq_handle)?,
    };
    Ok((spec, pieces))
}

/// `PtlMEAttach`
///
/// # Safety
/// `me_handle` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlMEAttach(
    ni_handle: u32,
    pt_index: u32,
    match_id: PtlProcessId,
    match_bits: u64,
    ignore_bits: u64,
    unlink: c_uint,
    position: c_uint,
    me_handle: *mut u32,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(me_handle) }?;
        let open = state::ni(ni_handle)?;
        let spec = me_spec(match_id, match_bits, ignore_bits, unlink);
        let me = open
            .interface
            .me_attach(pt_index, spec, position_of(position))?;
        out.set(me.raw());
        Ok(OK)
    })
}

/// `PtlMEAttachAny`
///
/// # Safety
/// `pt_index` and `me_handle` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlMEAttachAny(
    ni_handle: u32,
    pt_index: *mut u32,
    match_id: PtlProcessId,
    match_bits: u64,
    ignore_bits: u64,
    unlink: c_uint,
    me_handle: *mut u32,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out_index = unsafe { Out::new(pt_index) }?;
        // SAFETY: the same.
        let out = unsafe { Out::new(me_handle) }?;
        let open = state::ni(ni_handle)?;
        let spec = me_spec(match_id, match_bits, ignore_bits, unlink);
        let (index, me) = open.interface.me_attach_any(spec)?;
        out_index.set(index);
        out.set(me.raw());
        Ok(OK)
    })
}

/// `PtlMEInsert`
///
/// # Safety
/// `me_handle` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlMEInsert(
    base: u32,
    match_id: PtlProcessId,
    match_bits: u64,
    ignore_bits: u64,
    unlink: c_uint,
    position: c_uint,
    me_handle: *mut u32,
) -> c_int {
    state::entry_on(Error::MeInvalid, || {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(me_handle) }?;
        let open = me_open(base)?;
        let spec = me_spec(match_id, match_bits, ignore_bits, unlink);
        let base = MeHandle::from_raw(base);
        let me = open
            .interface
            .me_insert(base, spec, position_of(position))?;
        out.set(me.raw());
        Ok(OK)
    })
}

/// `PtlMEUnlink`
#[unsafe(no_mangle)]
pub extern "C" fn PtlMEUnlink(me_handle: u32) -> c_int {
    state::entry_on(Error::MeInvalid, || {
        let open = me_open(me_handle)?;
        open.interface.me_unlink(MeHandle::from_raw(me_handle))?;
        Ok(OK)
    })
}

/// `PtlMDAttach`
///
/// # Safety
/// `md_handle` is null or may be written; `md` is as for [`PtlMDBind`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlMDAttach(
    me_handle: u32,
    md: PtlMd,
    unlink_op: c_uint,
    md_handle: *mut u32,
) -> c_int {
    state::entry_on(Error::MeInvalid, || {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(md_handle) }?;
        let open = me_open(me_handle)?;
        // SAFETY: the same.
        let described = unsafe { md_spec(&open, &md) };
        // An entry that cannot take a descriptor is said first, whatever the descriptor is.
        let (spec, pieces) = described.map_err(|e| match me_state(&open, me_handle) {
            Error::MdIllegal => e,
            of_the_entry => of_the_entry,
        })?;
        let me = MeHandle::from_raw(me_handle);
        let md = open.interface.md_attach(me, spec, unlink_of(unlink_op))?;
        keep_if_iovec(&open, md, pieces);
        out.set(md.raw());
        Ok(OK)
    })
}

pub(crate) fn keep_if_iovec(open: &Open, md: MdHandle, pieces: Option<Vec<Segment>>) {
    if pieces.is_some() {
        keep_iovec(open, &mut iovecs(open), md, pieces);
    }
}

/// `PtlMDBind`. Memory that is not mapped is `PTL_MD_ILLEGAL`.
///
/// # Safety
/// `md_handle` is null or may be written. With `PTL_MD_IOVEC`, `md.start` is null or an array of
/// `md.length` entries. The memory stays mapped until the descriptor is unlinked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlMDBind(
    ni_handle: u32,
    md: PtlMd,
    unlink_op: c_uint,
    md_handle: *mut u32,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out = unsafe { Out::new(md_handle) }?;
        let open = state::ni(ni_handle)?;
        // SAFETY: the same.
        let (spec, pieces) = unsafe { md_spec(&open, &md) }?;
        let md = open.interface.md_bind(spec, unlink_of(unlink_op))?;
        keep_if_iovec(&open, md, pieces);
        out.set(md.raw());
        Ok(OK)
    })
}

/// `PtlMDUnlink`
#[unsafe(no_mangle)]
pub extern "C" fn PtlMDUnlink(md_handle: u32) -> c_int {
    state::entry_on(Error::MdInvalid, || {
        let open = md_open(md_handle)?;
        let md = MdHandle::from_raw(md_handle);
        open.interface.md_unlink(md)?;
        iovecs(&open).remove(&md_handle);
        Ok(OK)
    })
}

/// Where a caller wants the pieces of an iovec descriptor's old values: with `PTL_MD_IOVEC` in `old.options`, `old.start` is
/// an array and `old.length` its size. No more entries than there are `pieces`; [`Error::Segv`] where no memory is.
fn room_for(old: &PtlMd, pieces: &[Segment]) -> Result<usize, Error> {
    if !MdOptions::from_bits_retain(old.options).contains(MdOptions::IOVEC) {
        return Ok(0);
    }
    let room = usize::try_from(old.length).map_or(pieces.len(), |room| room.min(pieces.len()));
    let array = Segment {
        addr: old.start.expose_provenance() as u64,
        len: (room * size_of::<PtlMdIovec>()) as u64,
    };
    if old.start.is_null() || ptr::is_mapped(&array) {
        Ok(room)
    } else {
        Err(Error::Segv)
    }
}

/// Gives a caller the first `room` pieces of an iovec descriptor's old values.
///
/// # Safety
/// `old.start` is null, or an array of so many entries that may be written.
unsafe fn give_pieces(old: &PtlMd, pieces: &[Segment], room: usize) {
    let entry = |s: &Segment| PtlMdIovec::new(s.addr, s.len);
    let entries: Vec<_> = pieces.iter().take(room).map(entry).collect();
    // SAFETY: the condition of this function.
    unsafe { ptr::write_array(old.start.cast(), &entries) };
}

/// `PtlMDUpdate`. On `PTL_MD_NO_UPDATE` the old values are not written.
///
/// # Safety
/// `old_md` is null or may be written, and if the descriptor is an iovec one, is filled in as
/// `room_for` says, with an array that may be written if it is mapped; `new_md` is null or as the `md` of [`PtlMDBind`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlMDUpdate(
    md_handle: u32,
    old_md: *mut PtlMd,
    new_md: *mut PtlMd,
    eq_handle: u32,
) -> c_int {
    state::entry_on(Error::MdInvalid, || {
        let open = md_open(md_handle)?;
        let md = MdHandle::from_raw(md_handle);
        // From the query on, so that the pieces are those of the values that another thread's update may replace.
        let mut kept = iovecs(&open);
        let old = open.interface.md_query(md)?;
        let pieces = old
            .options
            .contains(MdOptions::IOVEC)
            .then(|| kept.get(&md_handle).cloned())
            .flatten();
        // SAFETY: the condition of this function.
        let given = unsafe { ptr::read(old_md) };
        // Before anything is changed.
        let given = match given.zip(pieces) {
            Some((given, pieces)) => {
                let room = room_for(&given, &pieces)?;
                Some((given, pieces, room))
            }
            None => None,
        };
        // SAFETY: the same.
        let wanted = unsafe { ptr::read(new_md) };
        let old = match wanted {
            None => old,
            Some(new) => {
                // SAFETY: the same.
                let (spec, new_pieces) = unsafe { md_spec(&open, &new) }?;
                let test = eq_of(&open, eq_handle)?;
                let old = open.interface.md_update(md, spec, test)?;
                keep_iovec(&open, &mut kept, md, new_pieces);
                old
            }
        };
        drop(kept);
        // SAFETY: the same.
        if let Some(out) = unsafe { Out::optional(old_md) } {
            if let Some((given, pieces, room)) = &given {
                // SAFETY: the same; `room_for` has found the array mapped.
                unsafe { give_pieces(given, pieces, *room) };
            }
            out.set(old.into());
        }
        Ok(OK)
    })
}
