//! A message on its way to its handler.

use super::limits::MAX_ARGS;
use super::longs::Landed;
use crate::chunks::CHUNK;

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

/// The arguments of a message that waits for its handler; those of one without arguments take no memory.
#[derive(Debug, Default)]
pub(crate) struct Args {
    /// The arguments, and behind them what was there before.
    pub(super) values: Option<Box<Values>>,
    pub(super) count: u8,
}

/// Room for the most that there can be.
pub(crate) type Values = [i32; MAX_ARGS];

impl Args {
    pub(crate) fn as_slice(&self) -> &[i32] {
        self.values
            .as_ref()
            .and_then(|values| values.get(..usize::from(self.count)))
            .unwrap_or_default()
    }
}

/// Buffers for what messages bring, which the next message finds again.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// For payloads of Mediums, 8-byte aligned; each holds a chunk.
    scratch: Vec<Box<[u64]>>,
    /// For arguments; `None` while a message has it.
    values: Option<Box<Values>>,
}

impl Buffers {
    /// An 8-byte aligned buffer that holds a chunk. Its contents are of an earlier message.
    pub(crate) fn take_scratch(&mut self) -> Box<[u64]> {
        self.scratch
            .pop()
            .unwrap_or_else(|| vec![0; CHUNK / 8].into_boxed_slice())
    }

    /// Back for the next message.
    pub(crate) fn give_scratch(&mut self, buffer: Box<[u64]>) {
        self.scratch.push(buffer);
    }

    pub(super) fn take_values(&mut self) -> Box<Values> {
        self.values.take().unwrap_or_default()
    }

    /// Back for the next message, if the message had arguments.
    #[inline]
    pub(super) fn give_values(&mut self, values: Option<Box<Values>>) {
        if values.is_some() {
            self.values = values;
        }
    }
}

/// How a request is replied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyPath {
    /// It is a reply.
    None,
    /// Into the sender's chunk, with the credits it is owed.
    Remote { chunk: u32, credits: u8 },
    /// In a frame to the sender, for which there is room.
    Near,
    /// The sender is this rank.
    Loopback,
}

/// What the handler will see.
#[derive(Debug)]
pub(crate) enum Content {
    Empty,
    Medium { buffer: Box<[u64]>, len: usize },
    Long(Landed),
}

/// A message whose every part is here.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) source: u32,
    pub(crate) handler: u8,
    pub(crate) args: Args,
    pub(crate) content: Content,
    pub(crate) reply: ReplyPath,
    /// Chunk of ReqSB to release when the handler of a reply is done.
    pub(crate) chunk: Option<u32>,
}

/// The header of a Long that waits for its payload.
#[derive(Debug)]
pub(crate) struct HeldHeader {
    pub(super) handler: u8,
    pub(super) args: Args,
    pub(super) reply: ReplyPath,
    pub(super) chunk: Option<u32>,
}

impl HeldHeader {
    pub(super) fn with(self, source: u32, content: Content) -> Delivery {
        Delivery {
            source,
            handler: self.handler,
            args: self.args,
            content,
            reply: self.reply,
            chunk: self.chunk,
        }
    }
}
