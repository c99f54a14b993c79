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

mod deliver;
pub(crate) mod delivery;
mod header;
pub(crate) mod limits;
pub(crate) mod longs;
pub(crate) mod message;
mod reply;
mod request;
mod table;

use crate::conduit::Conduit;
pub use delivery::Payload;
pub(crate) use delivery::ReplyPath;
pub use limits::{FIRST_EXTENDED, FIRST_HANDLER, MAX_ARGS, MAX_LONG, MAX_MEDIUM, MAX_PACKED};
use std::fmt;
use std::rc::Rc;
pub(crate) use table::HandlerTable;

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
