//! Puts and gets as values: what a program asks an interface for, and how far that is when the call returns.
//!
//! ```text
//!   Put { memory, target, ack, report, mode, key } ──► Interface ──► Library ──► Nal
//!   Posted: Declined | Begun | Taken | Done                 ◄──
//! ```
//!
//! What one caller wants differently from another is a field here, and no other function.

use crate::call::{RemoteKey, Target};
use portals_core::{AckRequest, MdHandle};

/// How a put is made. In each mode but the first a fabric may decline it, so that nothing has happened.
pub enum Mode<'a> {
    /// The put of the API: after all that was sent before, from the descriptor's memory.
    Standard,
    /// The same, if the fabric takes the data within the call.
    AtOnce,
    /// It may have its effect before earlier messages. Its data is in place before anything arrives that is sent later to
    /// the same process.
    ///
    /// It is for puts without an ack, to a descriptor that needs no part of its owner's library. A connection that breaks makes the put
    /// again, so nobody may look at the memory before a later message says so.
    Relaxed,
    /// Its bytes are those that a function writes into the memory that the fabric sends from, of the put's length. The descriptor's
    /// memory is not read. The function is not called for a put of no bytes, and must not call the interface.
    Pack(&'a mut dyn FnMut(&mut [u8])),
}

impl std::fmt::Debug for Mode<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Standard => "Standard",
            Self::AtOnce => "AtOnce",
            Self::Relaxed => "Relaxed",
            Self::Pack(_) => "Pack",
        })
    }
}

/// What the initiator hears of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Every event that the API has.
    Events,
    /// Neither SEND_START nor SEND_END of a put whose data was taken within the call ([`Posted::Taken`]).
    Silent,
    /// The caller waits for the end: the call looks for it a few times, and then there is no event at all
    /// ([`Posted::Done`]). Otherwise as [`Report::Silent`].
    Wait,
}

/// A put: `PtlPut`, `PtlPutRegion`, and what those leave open.
///
/// ```
/// use fabric_api::call::Target;
/// use fabric_api::op::{Put, Report};
/// use portals_core::{AckRequest, MdHandle, ProcessId};
///
/// let to = Target {
///     process: ProcessId::new(0, 1),
///     pt_index: 4,
///     ac_index: 0,
///     match_bits: 7,
///     remote_offset: 0,
/// };
/// let put = Put::new(MdHandle::from_raw(0), to).region(16, 8).ack(AckRequest::Ack).silent();
/// assert_eq!((put.region, put.report), (Some((16, 8)), Report::Silent));
/// ```
#[derive(Debug)]
pub struct Put<'a> {
    /// The initiator's descriptor.
    pub md: MdHandle,
    /// Offset in it and length, bytes; `None` for all of it.
    pub region: Option<(u64, u64)>,
    /// What it is for.
    pub to: Target,
    /// 64 bits that the target's events have.
    pub hdr_data: u64,
    /// Whether the target acknowledges it.
    pub ack: AckRequest,
    /// What the initiator hears.
    pub report: Report,
    /// How it is made.
    pub mode: Mode<'a>,
    /// Reaches the target's memory by the adapters alone, where a fabric can.
    pub key: Option<&'a RemoteKey>,
}

impl<'a> Put<'a> {
    /// All of the descriptor `md`, without an ack, as `PtlPut` has it.
    #[inline(always)]
    pub const fn new(md: MdHandle, to: Target) -> Self {
        Self {
            md,
            region: None,
            to,
            hdr_data: 0,
            ack: AckRequest::NoAck,
            report: Report::Events,
            mode: Mode::Standard,
            key: None,
        }
    }

    /// Only `len` bytes of the descriptor, from `offset` on.
    #[inline(always)]
    #[must_use]
    pub const fn region(mut self, offset: u64, len: u64) -> Self {
        self.region = Some((offset, len));
        self
    }

    /// With this request for an ack.
    #[inline(always)]
    #[must_use]
    pub const fn ack(mut self, ack: AckRequest) -> Self {
        self.ack = ack;
        self
    }

    /// With these 64 bits for the target's events.
    #[inline(always)]
    #[must_use]
    pub const fn hdr_data(mut self, hdr_data: u64) -> Self {
        self.hdr_data = hdr_data;
        self
    }

    /// [`Report::Silent`]
    #[inline(always)]
    #[must_use]
    pub const fn silent(mut self) -> Self {
        self.report = Report::Silent;
        self
    }

    /// [`Report::Wait`], and with an ack, which says that the put has ended.
    #[inline(always)]
    #[must_use]
    pub const fn wait(mut self) -> Self {
        (self.report, self.ack) = (Report::Wait, AckRequest::Ack);
        self
    }

    /// [`Mode::Relaxed`]
    #[inline(always)]
    #[must_use]
    pub fn relaxed(mut self) -> Self {
        self.mode = Mode::Relaxed;
        self
    }

    /// [`Mode::Pack`]
    #[inline(always)]
    #[must_use]
    pub fn pack<'b>(self, pack: &'b mut dyn FnMut(&mut [u8])) -> Put<'b>
    where
        'a: 'b,
    {
        // Made anew, since the function lives shorter than what the put had before.
        Put {
            md: self.md,
            region: self.region,
            to: self.to,
            hdr_data: self.hdr_data,
            ack: self.ack,
            report: self.report,
            mode: Mode::Pack(pack),
            key: self.key,
        }
    }

    /// To memory that `key` reaches.
    #[inline(always)]
    #[must_use]
    pub const fn key(mut self, key: &'a RemoteKey) -> Self {
        self.key = Some(key);
        self
    }

    /// [`Mode::AtOnce`]
    #[inline(always)]
    #[must_use]
    pub fn at_once(mut self) -> Self {
        self.mode = Mode::AtOnce;
        self
    }
}

/// A get: `PtlGet`, `PtlGetRegion`, and what those leave open.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// The initiator's descriptor, into which the data goes.
    pub md: MdHandle,
    /// Offset in it and length, bytes; `None` for all of it.
    pub region: Option<(u64, u64)>,
    /// Where the data is.
    pub from: Target,
    /// What the initiator hears; a get has no events that [`Report::Silent`] leaves out.
    pub report: Report,
    /// Reaches the target's memory by the adapters alone, where a fabric can.
    pub key: Option<&'a RemoteKey>,
}

impl<'a> Get<'a> {
    /// Into all of the descriptor `md`, as `PtlGet` has it.
    #[inline(always)]
    pub const fn new(md: MdHandle, from: Target) -> Self {
        Self {
            md,
            region: None,
            from,
            report: Report::Events,
            key: None,
        }
    }

    /// Only into `len` bytes of the descriptor, from `offset` on.
    #[inline(always)]
    #[must_use]
    pub const fn region(mut self, offset: u64, len: u64) -> Self {
        self.region = Some((offset, len));
        self
    }

    /// [`Report::Wait`]
    #[inline(always)]
    #[must_use]
    pub const fn wait(mut self) -> Self {
        self.report = Report::Wait;
        self
    }

    /// From memory that `key` reaches.
    #[inline(always)]
    #[must_use]
    pub const fn key(mut self, key: &'a RemoteKey) -> Self {
        self.key = Some(key);
        self
    }
}

/// How far an operation is when the call that posted it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// Nothing has happened: the fabric cannot make it so now. No put in [`Mode::Standard`] and no get ends so.
    Declined,
    /// It has begun, and its events come as the API has it.
    Begun,
    /// A put whose data the fabric has taken: the memory is free, and of its events only the ack comes, if it was asked for.
    Taken,
    /// The data is where it belongs, and no event comes of it.
    Done {
        /// Some queue of the interface has events.
        events: bool,
    },
}

impl Posted {
    /// Whether the put's memory is free again.
    #[inline(always)]
    pub const fn is_taken(self) -> bool {
        matches!(self, Self::Taken | Self::Done { .. })
    }
}

/// What a fabric can do, and how much memory it takes for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// A put whose bytes a function packs is taken at times ([`Mode::Pack`]).
    pub packs: bool,
    /// A descriptor can be renewed (`Interface::md_renew`).
    pub renews: bool,
    /// Peers of this machine map regions that are made to be shared.
    pub shares: bool,
    /// Memory of messages is pinned, so that it is of use to keep it pinned ([`PINNED`](portals_core::MdOptions::PINNED)).
    pub pins: bool,
    /// Most bytes that the fabric and the system let this process pin for its messages; `None` without a limit.
    pub pinnable: Option<u64>,
    /// Most bytes that the fabric lets this process open to peers from here on, each use counted; `None` without a limit, or
    /// where no peer needs it.
    pub exposable: Option<u64>,
}
