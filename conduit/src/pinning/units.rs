//! Units of own memory as objects of Portals: each pinned one is a match entry with bits of its own, and a
//! descriptor that takes puts and gets.

use super::edge::open_memory;
use super::maps::Maps;
use super::portal_of;
use super::wire::Reach;
use ::firehose::{Pins, Refusal, Shape, Unit};
use portals_shim::{
    Error, InsertPosition, Interface, MdMemory, MdOptions, MdSpec, MeHandle, MeSpec, ProcessId,
    THRESHOLD_INFINITE, Unlink,
};

/// A pinned unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pin {
    me: MeHandle,
    pub(super) reach: Reach,
}

#[derive(Debug)]
pub(super) struct Units {
    ni: Interface,
    shape: Shape,
    next_bits: u64,
}

impl Units {
    pub(super) fn new(ni: &Interface, shape: Shape) -> Self {
        Self {
            ni: ni.clone(),
            shape,
            next_bits: 0,
        }
    }

    pub(super) fn with<'a>(&'a mut self, maps: &'a mut Maps) -> Pinner<'a> {
        Pinner { units: self, maps }
    }
}

/// Pins units where there is memory.
pub(super) struct Pinner<'a> {
    units: &'a mut Units,
    maps: &'a mut Maps,
}

impl Pins for Pinner<'_> {
    type Key = Pin;

    fn pin(&mut self, unit: Unit) -> Result<Pin, Refusal> {
        let e = self.units.shape.extent(unit);
        let (base, len) = self.maps.writable(e.addr, e.len).ok_or(Refusal::Unmapped)?;
        let bits = self.units.next_bits + 1;
        let spec = MdSpec {
            memory: MdMemory::Raw(open_memory(base, len)),
            threshold: THRESHOLD_INFINITE,
            max_size: 0,
            options: MdOptions::OP_PUT
                | MdOptions::OP_GET
                | MdOptions::MANAGE_REMOTE
                | MdOptions::PINNED
                | MdOptions::EVENT_START_DISABLE
                | MdOptions::EVENT_END_DISABLE,
            user_ptr: 0,
            eq: None,
        };
        let entry = MeSpec {
            match_id: ProcessId::ANY,
            match_bits: bits,
            ignore_bits: 0,
            unlink: Unlink::Retain,
        };
        let ni = &self.units.ni;
        let refuse = |e: Error| match e {
            Error::Segv => Refusal::Unmapped,
            _ => Refusal::Limit,
        };
        let me = ni
            .me_attach(portal_of(bits), entry, InsertPosition::After)
            .map_err(refuse)?;
        let made = ni
            .md_attach(me, spec, Unlink::Retain)
            .and_then(|md| ni.remote_key(md));
        match made {
            Ok(rkey) => {
                self.units.next_bits = bits;
                let reach = Reach {
                    bits,
                    base,
                    len,
                    rkey,
                };
                Ok(Pin { me, reach })
            }
            Err(e) => {
                let _ = ni.me_unlink(me);
                Err(refuse(e))
            }
        }
    }

    fn unpin(&mut self, _: Unit, key: Pin) {
        if let Err(error) = self.units.ni.me_unlink(key.me) {
            tracing::warn!(%error, "a unit stays pinned");
        }
    }
}
