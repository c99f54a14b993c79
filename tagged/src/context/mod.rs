//! One context: a match list, two event queues, and the requests that go through them.
//!
//! ```text
//!  portal MESSAGE   posted receives, in their order ▸ marker ▸ overflow buffers ▸ header only
//!  portal FETCH     what this rank has sent and the receiver has not released
//!  portal CREDIT    credits that no message carried
//! ```
//!
//! # Invariants
//! * **No receive overtakes a message.** A receive is posted with `PtlMEMDPost` on the condition that the queue of the
//!   unexpected messages is empty, and those that were in it are in [`Unexpected`], which was searched before. START events
//!   put a message into that queue when it is matched.
//! * **A receive that is like the one before** renews the descriptor that took the last message ([`kept`]), which changes
//!   nothing in the order of those that wait.
//! * **A short message finds a place.** A sender has as many credits as the overflow buffers have room ([`crate::flow`]).
//! * **An ack of a message with the sync bit says that a receive has it**: the overflow buffers do not take such a message,
//!   and the entry that takes its header makes no ack. Without the ack the receiver fetches, if only 0 bytes.
//! * **Sends to one peer are handed to Portals in the order of the calls**: what waits for a credit is not passed, but by
//!   messages of the library's own, which have tags of their own and an order of their own.

mod events;
mod kept;
mod receive;
mod send;
mod waiting;

use crate::error::{CallError, OpenError};
use crate::flow::{Flow, RESERVE};
use crate::header::{MOST_CREDITS, OPERATIONS};
use crate::layout::Layout;
use crate::options::OVERFLOW_BUFFERS;
use crate::request::{End, Requests, Ticket};
use crate::unexpected::Unexpected;
use crate::{Counts, Options};
use kept::Kept;
use portals_shim::{
    Brief, EqHandle, InsertPosition, Interface, MdHandle, MdMemory, MdOptions, MdSpec, MeHandle,
    MeSpec, ProcessId, Region, THRESHOLD_INFINITE, Taken, Target, Unlink, Wait, WeakRegion,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use waiting::Waiting;

use send::lanes;

pub(crate) use kept::Spot;
pub(crate) use send::Outgoing;

/// The first portal index; each context has [`PORTALS`] from there on.
const FIRST_PORTAL: u32 = 44;
const PORTALS: u32 = 3;
/// Contexts that there are portal indexes for.
pub(crate) const MOST_CONTEXTS: u16 = 6;
/// Descriptors of sent regions that are kept; the regions stay mapped as long.
const MOST_SOURCES: usize = 64;

/// The index of the queue for everything but unexpected messages.
const OTHERS: usize = 1;

/// What an event's descriptor is, in the upper half of its user value.
pub(crate) mod owner {
    pub(crate) const SOURCE: u32 = 1;
    pub(crate) const POSTED: u32 = 2;
    pub(crate) const RELEASED: u32 = 3;
    pub(crate) const FETCH: u32 = 4;
    pub(crate) const CREDIT: u32 = 5;
    pub(crate) const OVERFLOW: u32 = 6;
    pub(crate) const HEADER: u32 = 7;
}

const fn user(owner: u32, index: u32) -> u64 {
    (owner as u64) << 32 | index as u64
}

/// What contexts share and nobody changes.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) ni: Interface,
    pub(crate) peers: Vec<ProcessId>,
    pub(crate) me: u32,
    pub(crate) layout: Layout,
}

/// Events that were taken one after the other.
#[derive(Clone, Copy, Debug)]
struct Receipts {
    count: u32,
    /// The queues have no other.
    all: bool,
}

#[derive(Debug)]
pub(crate) struct Context {
    place: Arc<Place>,
    number: u16,
    /// Unexpected messages, and everything else.
    queues: [EqHandle; 2],
    /// Receives are posted before it.
    marker: MeHandle,
    /// Overflow buffers are put before it.
    header_only: MeHandle,
    overflow: Vec<Region>,
    short: u64,
    unexpected: Unexpected,
    /// See [`Options::unexpected`].
    unexpected_bytes: usize,
    /// A hash of the options that all ranks have to agree on.
    options: u64,
    /// A rank that does not.
    refused_by: Option<u32>,
    requests: Requests,
    kept: Kept,
    flow: Flow,
    /// Where events are read.
    polled: Brief,
    /// Sends that wait.
    waiting: Waiting,
    /// Descriptors of the regions that were sent from, by address.
    sources: BTreeMap<u64, (MdHandle, WeakRegion)>,
    last_source: Option<(u64, MdHandle)>,
    /// For credits, of which no event tells.
    silent: MdHandle,
    /// For messages without data.
    empty: MdHandle,
    events_per_call: u32,
    pub(crate) counts: Counts,
}

impl Context {
    /// Makes all its descriptors; nobody may send to it before.
    pub(crate) fn new(
        place: &Arc<Place>,
        number: u16,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let ni = &place.ni;
        let told = |what: &'static str| move |error| OpenError::Setup { what, error };
        let peers = place.peers.len() as u64;
        let credits = options.credits(peers);
        let buffer_bytes = options.overflow_buffer_bytes(peers);
        // A START and an END of each message with a credit, and of each without.
        let unexpected =
            peers * u64::from(credits * 2 + RESERVE) * 2 + OVERFLOW_BUFFERS as u64 + 64;
        let other = u64::from(options.requests) * 4 + peers * 4 + 64;
        let queues = [
            ni.eq_alloc(unexpected)
                .map_err(told("the queue of unexpected messages"))?,
            ni.eq_alloc(other).map_err(told("the event queue"))?,
        ];
        let portal = FIRST_PORTAL + PORTALS * u32::from(number);
        let any = |ignore_bits| MeSpec {
            match_id: ProcessId::ANY,
            match_bits: 0,
            ignore_bits,
            unlink: Unlink::Retain,
        };
        let tail = InsertPosition::After;
        // An entry without a descriptor takes nothing. This one compares what most receives compare, so a search of an index asks
        // no table more for it; and as no message of Portals has the bit of acknowledgements, none asks it.
        let own = place.peers.get(place.me as usize);
        let marker = MeSpec {
            match_id: own.copied().unwrap_or(ProcessId::ANY),
            match_bits: place.layout.ack_bit(),
            ignore_bits: place.layout.sync_bit(),
            unlink: Unlink::Retain,
        };
        let marker = ni
            .me_attach(portal, marker, tail)
            .map_err(told("the match list"))?;
        let header_only = ni
            .me_attach(portal, any(u64::MAX), tail)
            .map_err(told("the match list"))?;
        let nothing = |options, index, eq| MdSpec {
            memory: MdMemory::Empty,
            threshold: THRESHOLD_INFINITE,
            max_size: 0,
            options,
            user_ptr: user(index, 0),
            eq,
        };
        let takes_headers = MdOptions::OP_PUT | MdOptions::TRUNCATE | MdOptions::ACK_DISABLE;
        let spec = nothing(takes_headers, owner::HEADER, Some(queues[0]));
        ni.md_attach(header_only, spec, Unlink::Retain)
            .map_err(told("the header entry"))?;
        let credit = ni
            .me_attach(portal + 2, any(u64::MAX), tail)
            .map_err(told("the credit entry"))?;
        let spec = nothing(
            takes_headers | MdOptions::EVENT_START_DISABLE,
            owner::CREDIT,
            Some(queues[1]),
        );
        ni.md_attach(credit, spec, Unlink::Retain)
            .map_err(told("the credit entry"))?;
        let quiet = MdOptions::EVENT_START_DISABLE | MdOptions::EVENT_END_DISABLE;
        let bind = |spec| {
            ni.md_bind(spec, Unlink::Retain)
                .map_err(told("the empty descriptors"))
        };
        let silent = bind(nothing(quiet, owner::SOURCE, None))?;
        let empty = bind(nothing(
            MdOptions::EVENT_START_DISABLE,
            owner::SOURCE,
            Some(queues[1]),
        ))?;
        let mut context = Self {
            place: Arc::clone(place),
            number,
            queues,
            marker,
            header_only,
            overflow: Vec::new(),
            short: options.short as u64,
            unexpected: Unexpected::default(),
            unexpected_bytes: options.unexpected,
            options: options.hash(&place.layout, peers),
            refused_by: None,
            requests: Requests::new(options.requests.min(OPERATIONS)),
            kept: Kept::new(ni.capabilities().renews),
            flow: Flow::new(place.peers.len(), credits.min(MOST_CREDITS)),
            polled: Brief::default(),
            waiting: Waiting::new(lanes(place.peers.len())),
            sources: BTreeMap::new(),
            last_source: None,
            silent,
            empty,
            events_per_call: options.events_per_call,
            counts: Counts::default(),
        };
        for buffer in 0..OVERFLOW_BUFFERS {
            let region = ni
                .new_region(buffer_bytes)
                .map_err(|e| OpenError::Start(e.to_string()))?;
            context.overflow.push(region);
            context
                .post_overflow(buffer as u32)
                .map_err(|error| OpenError::Setup {
                    what: "an overflow buffer",
                    error,
                })?;
        }
        Ok(context)
    }

    #[inline]
    fn portal(&self, which: u32) -> u32 {
        FIRST_PORTAL + PORTALS * u32::from(self.number) + which
    }

    #[inline]
    fn target(&self, to: u32, portal: u32, match_bits: u64) -> Result<Target, CallError> {
        let Some(process) = self.place.peers.get(to as usize) else {
            return Err(CallError::Portals(portals_shim::Error::ProcessInvalid));
        };
        Ok(Target {
            process: *process,
            pt_index: self.portal(portal),
            ac_index: 0,
            match_bits,
            remote_offset: 0,
        })
    }

    /// Puts an overflow buffer, all of it free, at the end of the list.
    fn post_overflow(&mut self, buffer: u32) -> Result<(), portals_shim::Error> {
        let Some(region) = self.overflow.get(buffer as usize) else {
            return Ok(());
        };
        let ni = &self.place.ni;
        // Messages with the sync bit are not for it, nor acknowledgements.
        let special = self.place.layout.sync_bit() | self.place.layout.ack_bit();
        let spec = MeSpec {
            match_id: ProcessId::ANY,
            match_bits: 0,
            ignore_bits: !special,
            unlink: Unlink::Unlink,
        };
        let me = ni.me_insert(self.header_only, spec, InsertPosition::Before)?;
        let md = MdSpec {
            memory: MdMemory::whole(region),
            threshold: THRESHOLD_INFINITE,
            max_size: self.short,
            options: MdOptions::OP_PUT | MdOptions::MAX_SIZE,
            user_ptr: user(owner::OVERFLOW, buffer),
            eq: Some(self.queues[0]),
        };
        ni.md_attach(me, md, Unlink::Unlink)?;
        Ok(())
    }

    /// A request of which nothing is known yet.
    #[inline(always)]
    fn open(&mut self) -> Result<Ticket, CallError> {
        let (slot, generation) = self.requests.open()?;
        Ok(Ticket {
            context: self.number,
            slot,
            generation,
        })
    }

    /// Whether a request has ended.
    #[inline]
    pub(crate) fn has_ended(&self, request: &Ticket) -> Result<bool, CallError> {
        self.requests.has_ended(request)
    }

    /// The end of a request that has one, which is used up.
    #[inline]
    pub(crate) fn ended(&mut self, request: &Ticket) -> Result<&End, CallError> {
        self.requests.close(request)
    }

    /// Handles what has come, at most so many events as a call may; whether there was any.
    #[inline(never)]
    pub(crate) fn progress<const FULL: bool>(&mut self) -> Result<bool, CallError> {
        let any = self.steps::<FULL>(self.events_per_call)?;
        if any || self.flow.is_any_due() {
            self.settle()?;
        }
        Ok(any)
    }

    /// Waits for the first event, and then makes progress.
    #[inline(always)]
    pub(crate) fn progress_wait<const FULL: bool>(&mut self) -> Result<(), CallError> {
        self.settle()?;
        if self.step::<FULL>(Wait::Forever)? == Taken::More {
            self.rest::<FULL>()?;
        }
        self.settle()
    }

    /// The events after one that was not the last.
    #[inline(never)]
    fn rest<const FULL: bool>(&mut self) -> Result<(), CallError> {
        let left = self.events_per_call - 1;
        let taken = self.receipts::<FULL>(left)?;
        if !taken.all {
            self.steps::<FULL>(left - taken.count)?;
        }
        Ok(())
    }

    /// Handles at most so many events; whether there was any.
    fn steps<const FULL: bool>(&mut self, most: u32) -> Result<bool, CallError> {
        let mut left = most;
        while left > 0 {
            match self.step::<FULL>(Wait::No)? {
                Taken::Nothing => return Ok(left < most),
                Taken::Last => return Ok(true),
                Taken::More => left -= 1,
            }
            let taken = self.receipts::<FULL>(left)?;
            if taken.all {
                return Ok(true);
            }
            left -= taken.count;
        }
        Ok(most > 0)
    }

    #[inline(always)]
    fn step<const FULL: bool>(&mut self, wait: Wait) -> Result<Taken, CallError> {
        let ni = &self.place.ni;
        let taken = match ni.eq_take_or(&self.queues, wait, None, &mut self.polled) {
            Ok(Taken::Nothing) => return Ok(Taken::Nothing),
            Ok(taken) => taken,
            Err(refused) => return Err(CallError::Portals(refused.error)),
        };
        if self.polled.dropped {
            return Err(CallError::EventsLost);
        }
        if events::is_receipt(self.polled.user_ptr) {
            self.handle_receipt::<FULL>();
        } else {
            let event = self.polled;
            self.handle_other::<FULL>(&event)?;
        }
        Ok(taken)
    }

    /// Sends what waits and may go, and credits that are due.
    #[inline]
    fn settle(&mut self) -> Result<(), CallError> {
        if self.waiting.is_empty() && !self.flow.is_any_due() {
            return Ok(());
        }
        self.settle_now()
    }

    #[inline(never)]
    fn settle_now(&mut self) -> Result<(), CallError> {
        if let Some(rank) = self.refused_by.filter(|_| self.flow.is_refused()) {
            return Err(CallError::Differs { rank });
        }
        self.send_waiting();
        while let Some(peer) = self.flow.due() {
            self.send_credits(peer)?;
        }
        self.send_notes()
    }

    /// Whether sends wait for their turn, for the fabric to take their data, or for their receivers to get it.
    pub(crate) fn is_sending(&self) -> bool {
        !self.waiting.is_empty() || self.requests.is_sending()
    }
}
