//! Units of own memory as objects of Portals. Each piece of a pinned unit that is memory has a descriptor. If
//! peers reach the unit, the descriptor belongs to a match entry with bits of its own, which takes puts and gets. If own
//! transfers alone use it, no match entry leads to the descriptor.

use super::edge::open_memory;
use super::maps::Maps;
use super::stacks::Stacks;
use super::wire::{PIECES, Reach, Reaches, portal_of};
use ::firehose::{Pins, Refusal, Shape, Unit};
use portals_shim::{
    Error, InsertPosition, Interface, MdHandle, MdMemory, MdOptions, MdSpec, MeHandle, MeSpec,
    ProcessId, THRESHOLD_INFINITE, Unlink,
};

/// Who reaches pinned units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    Peers,
    OwnTransfers,
}

/// What ends a piece.
#[derive(Clone, Copy, Debug)]
enum Held {
    Me(MeHandle),
    Md(MdHandle),
}

/// A pinned unit.
#[derive(Clone, Debug)]
pub(super) struct Pin {
    /// By piece, as `reaches` has them.
    held: Vec<Held>,
    pub(super) reaches: Reaches,
}

#[derive(Debug)]
pub(super) struct Units {
    ni: Interface,
    shape: Shape,
    whom: For,
    next_bits: u64,
    /// Never pinned.
    pub(super) stacks: Stacks,
}

impl Units {
    pub(super) fn new(ni: &Interface, shape: Shape, whom: For) -> Self {
        Self {
            ni: ni.clone(),
            shape,
            whom,
            next_bits: 0,
            stacks: Stacks::default(),
        }
    }

    pub(super) fn whom(&self) -> For {
        self.whom
    }

    pub(super) fn with<'a>(&'a mut self, maps: &'a mut Maps) -> Pinner<'a> {
        Pinner { units: self, maps }
    }

    fn end(&self, held: Held) {
        let ended = match held {
            Held::Me(me) => self.ni.me_unlink(me),
            Held::Md(md) => self.ni.md_unlink(md),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "a unit stays pinned");
        }
    }

    fn pin_piece(&mut self, (base, len): (u64, u64)) -> Result<(Held, Reach), Refusal> {
        let refuse = |e: Error| match e {
            Error::Segv => Refusal::Unmapped,
            _ => Refusal::Limit,
        };
        let rights = match self.whom {
            For::Peers => MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE,
            For::OwnTransfers => MdOptions::empty(),
        };
        let spec = MdSpec {
            memory: MdMemory::Raw(open_memory(base, len)),
            threshold: THRESHOLD_INFINITE,
            max_size: 0,
            options: rights
                | MdOptions::PINNED
                | MdOptions::EVENT_START_DISABLE
                | MdOptions::EVENT_END_DISABLE,
            user_ptr: 0,
            eq: None,
        };
        let ni = &self.ni;
        let bits = self.next_bits + 1;
        let (held, md) = match self.whom {
            For::Peers => {
                let entry = MeSpec {
                    match_id: ProcessId::ANY,
                    match_bits: bits,
                    ignore_bits: 0,
                    unlink: Unlink::Retain,
                };
                let me = ni
                    .me_attach(portal_of(bits), entry, InsertPosition::After)
                    .map_err(refuse)?;
                (Held::Me(me), ni.md_attach(me, spec, Unlink::Retain))
            }
            For::OwnTransfers => {
                let md = ni.md_bind(spec, Unlink::Retain).map_err(refuse)?;
                (Held::Md(md), Ok(md))
            }
        };
        match md.and_then(|md| ni.remote_key(md)) {
            Ok(rkey) => {
                self.next_bits = bits;
                let reach = Reach {
                    bits,
                    base,
                    len,
                    rkey,
                };
                Ok((held, reach))
            }
            Err(e) => {
                self.end(held);
                Err(refuse(e))
            }
        }
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
        let pieces = self.maps.writable(e.addr, e.len);
        let mut pieces = self.units.stacks.without(pieces);
        pieces.sort_by_key(|(_, len)| std::cmp::Reverse(*len));
        pieces.truncate(PIECES);
        let mut held = Vec::with_capacity(pieces.len());
        let mut all = Vec::with_capacity(pieces.len());
        for piece in pieces {
            match self.units.pin_piece(piece) {
                Ok((h, reach)) => {
                    held.push(h);
                    all.push(reach);
                }
                // It went since the kernel was asked.
                Err(Refusal::Unmapped) => {}
                Err(refusal) => {
                    held.into_iter().for_each(|h| self.units.end(h));
                    return Err(refusal);
                }
            }
        }
        let reaches = Reaches::new(all).ok_or(Refusal::Unmapped)?;
        Ok(Pin { held, reaches })
    }

    fn unpin(&mut self, _: Unit, key: Pin) {
        key.held.into_iter().for_each(|h| self.units.end(h));
    }

    fn renew(&mut self, unit: Unit, key: &mut Pin) {
        let e = self.units.shape.extent(unit);
        if key.reaches.bytes() >= e.len {
            return;
        }
        self.maps.look();
        let pieces = self.maps.within(e.addr, e.len);
        for (base, len) in self.units.stacks.without(pieces) {
            for piece in key.reaches.missing(base, len) {
                if key.held.len() >= PIECES {
                    return;
                }
                if let Ok((h, reach)) = self.units.pin_piece(piece) {
                    key.held.push(h);
                    key.reaches.push(reach);
                }
            }
        }
    }
}
