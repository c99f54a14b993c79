//! Temporary descriptors over the client's own memory.

use crate::descriptors::Md;
use crate::memory::UserMem;
use crate::tickets::Tickets;
use ::firehose::Unit;
use portals_shim::{
    EqHandle, Error, Interface, MdHandle, MdMemory, MdOptions, MdSpec, THRESHOLD_INFINITE, Unlink,
};

/// One temporary descriptor.
#[derive(Debug)]
struct Tmp {
    md: MdHandle,
    lending: u64,
    /// The message no longer reads the memory, or never does (a get).
    sent: bool,
    /// The answer that ends the operation came, or none is expected.
    answered: bool,
    /// The memory is written by the answer.
    get: bool,
    /// Pinned for it.
    here: Option<Unit>,
}

/// What one that is done with gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TmpEnd {
    pub(crate) here: Option<Unit>,
}

/// All temporary descriptors, and the tickets that bound their number.
#[derive(Debug)]
pub(crate) struct TmpMds {
    tickets: Tickets,
    slots: Vec<Option<Tmp>>,
    free: Vec<usize>,
}

/// What a temporary descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TmpUse {
    /// A put that is acknowledged.
    Put,
    /// A put that is not (the payload of a Long).
    PutNoAck,
    /// A get.
    Get,
}

/// What an event says of a temporary descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TmpEvent {
    /// SEND_END.
    Sent,
    /// ACK or REPLY_END.
    Answered,
}

impl TmpMds {
    /// None; so many may be bound at one time.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            tickets: Tickets::new(most),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Takes what one [`TmpMds::bind`] needs; `false` if all are bound or promised. It comes back with the descriptor's end.
    #[inline]
    pub(crate) fn may_bind(&mut self) -> bool {
        self.tickets.take(1)
    }

    /// A descriptor over `memory`, which a unit holds if one is named; its index goes into the events' `user_ptr`.
    pub(crate) fn bind(
        &mut self,
        ni: &Interface,
        safe: EqHandle,
        memory: &UserMem,
        (what, here): (TmpUse, Option<Unit>),
    ) -> Result<MdHandle, Error> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let bound = ni.md_bind(
            MdSpec {
                memory: MdMemory::Raw(memory.describe()),
                threshold: THRESHOLD_INFINITE,
                max_size: 0,
                options: MdOptions::EVENT_START_DISABLE,
                user_ptr: Md::Tmp(index).encode(),
                eq: Some(safe),
            },
            Unlink::Retain,
        );
        match bound {
            Ok(md) => {
                self.slots[index] = Some(Tmp {
                    md,
                    lending: memory.lending,
                    sent: what == TmpUse::Get,
                    answered: what == TmpUse::PutNoAck,
                    get: what == TmpUse::Get,
                    here,
                });
                Ok(md)
            }
            Err(e) => {
                self.free.push(index);
                Err(e)
            }
        }
    }

    /// Takes an event; `Some` of the end when the descriptor is done with and gone, `None` when there is
    /// no such descriptor.
    pub(crate) fn handle(
        &mut self,
        ni: &Interface,
        index: usize,
        event: TmpEvent,
    ) -> Option<Result<Option<TmpEnd>, Error>> {
        let slot = self.slots.get_mut(index)?;
        let tmp = slot.as_mut()?;
        match event {
            TmpEvent::Sent => tmp.sent = true,
            TmpEvent::Answered => tmp.answered = true,
        }
        if !(tmp.sent && tmp.answered) {
            return Some(Ok(None));
        }
        let (md, end) = (tmp.md, TmpEnd { here: tmp.here });
        *slot = None;
        self.free.push(index);
        self.tickets.give(1);
        Some(ni.md_unlink(md).map(|()| Some(end)))
    }

    /// Whether some descriptor still reads or writes the memory of a lending.
    pub(crate) fn touches(&self, lending: u64) -> bool {
        self.slots
            .iter()
            .flatten()
            .any(|t| t.lending == lending && if t.get { !t.answered } else { !t.sent })
    }
}
