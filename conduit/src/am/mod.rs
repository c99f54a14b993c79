//! Active messages.
//!
//! ```text
//!  request:  credits ─► chunk of ReqSB ─► tickets ─► (TMPMD) ─► header to ReqRB, payload to RARAM
//!  reply:    chunk of RplSB, tickets and TMPMD in hand ─► header to the request's own chunk of
//!            ReqSB, payload to RARSRC
//! ```
//!
//! A request's chunk is where its reply lands, so a request always has its reply: a handler that
//! does not reply is replied for. Requests wait for what they need by polling; replies never wait,
//! because requests are only taken from their queue with a reply's resources in hand.

pub(crate) mod deliver;
pub(crate) mod header;
pub(crate) mod lid;
mod reply;
pub(crate) mod request;
mod table;

use crate::chunks::CHUNK;
use crate::conduit::Conduit;
pub(crate) use deliver::ReplyPath;
use std::fmt;
use std::rc::Rc;
pub(crate) use table::HandlerTable;

/// Most arguments of an active message.
pub const MAX_ARGS: usize = 16;
/// Largest payload of a Medium, bytes.
pub const MAX_MEDIUM: usize = CHUNK - 4 * MAX_ARGS;
/// Largest payload of a Long, bytes.
pub const MAX_LONG: usize = 1 << 30;
/// Largest payload of a Long that travels with its header, bytes; that of any Long reply where memory is pinned when it
/// is needed ([`Conduit::attach_large`], [`Conduit::attach_everything`]).
pub const MAX_PACKED: usize = CHUNK - 4 * MAX_ARGS - 8;
/// First handler index of clients; lower ones are the conduit's.
pub const FIRST_HANDLER: u8 = 128;

/// First handler index of layers between the conduit and the client.
pub const FIRST_EXTENDED: u8 = 64;

/// The reply sent for a handler that did not reply; runs nothing.
pub(crate) const NOOP_REPLY: u8 = 2;

/// The payload of a message, as its handler sees it.
#[derive(Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Of a Short.
    None,
    /// Of a Medium: the handler's own copy, 8-byte aligned.
    Medium(&'a mut [u8]),
    /// Of a Long: it is in the own segment.
    Long {
        /// Address of the first byte, as the sender gave it.
        addr: u64,
        /// The same place as an offset in the segment, bytes.
        offset: usize,
        /// Bytes.
        len: usize,
    },
}

impl Payload<'_> {
    /// The bytes of a Medium, none otherwise.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Medium(bytes) => bytes,
            _ => &[],
        }
    }
}

/// What runs when a message arrives: the token, the payload, the arguments.
///
/// Handlers share state with the program by capture (`Rc<Cell<…>>`). A handler may be entered again
/// while it waits in a Long reply, if one function serves requests and replies. Handlers may not
/// put, get, send requests, poll or call barriers; [`Conduit::exit`] is allowed.
pub type Handler = dyn Fn(&mut Token<'_>, Payload<'_>, &[i32]);

/// A handler and its index.
#[derive(Clone)]
pub struct HandlerEntry {
    pub(crate) index: u8,
    pub(crate) run: Rc<Handler>,
}

impl HandlerEntry {
    /// `run` at `index`, 128 to 255, or 0 for the lowest free index.
    pub fn new(index: u8, run: impl Fn(&mut Token<'_>, Payload<'_>, &[i32]) + 'static) -> Self {
        Self {
            index,
            run: Rc::new(run),
        }
    }
}

impl fmt::Debug for HandlerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerEntry")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// What a handler knows of the message it handles, and how it replies.
#[derive(Debug)]
pub struct Token<'c> {
    conduit: &'c Conduit,
    source: u32,
    reply: ReplyPath,
    replied: bool,
}

impl<'c> Token<'c> {
    pub(crate) fn new(conduit: &'c Conduit, source: u32, reply: ReplyPath) -> Self {
        Self {
            conduit,
            source,
            reply,
            replied: false,
        }
    }

    /// The rank that sent the message.
    pub fn source(&self) -> u32 {
        self.source
    }

    /// The conduit the message came through.
    pub fn conduit(&self) -> &'c Conduit {
        self.conduit
    }

    /// Whether this is a request, which may be replied to once.
    pub fn is_request(&self) -> bool {
        !matches!(self.reply, ReplyPath::None)
    }
}

/// `n` bytes in whole 8-byte words.
pub(crate) const fn round8(n: usize) -> usize {
    (n + 7) & !7
}
