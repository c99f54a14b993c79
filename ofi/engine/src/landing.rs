//! Where the messages of others land, and where own short ones are sent from.

use crate::frames::HEAD;
use crate::memory::Buffer;
use crate::pool::BufferPool;
use crate::wire::{Envelope, Said};
use portals_shim::{
    Brief, EqHandle, Error, InsertPosition, Interface, MdHandle, MdMemory, MdOptions, MdSpec,
    MeSpec, ProcessId, Region, RegionError, Unlink,
};

/// The longest message that travels with its bytes.
pub const EAGER: usize = 4096;
const _: () = assert!(Envelope::LEN <= EAGER);
/// The portal at which messages arrive.
pub(crate) const MESSAGES: u32 = 4;
/// The portal at which long messages are exposed.
pub(crate) const EXPOSED: u32 = 5;
/// The portal of registered memory.
pub(crate) const MEMORY: u32 = 6;

/// The user's values of descriptors: which one, in the highest byte, and a number.
pub(crate) const LANDING: u64 = 1 << 56;
pub(crate) const SLOT: u64 = 2 << 56;
pub(crate) const CONTROL: u64 = 3 << 56;
pub(crate) const PENDING: u64 = 4 << 56;
pub(crate) const ACCESS: u64 = 5 << 56;
pub(crate) const NUMBER: u64 = (1 << 56) - 1;

/// Bytes of one buffer that messages land in.
const BUFFER: usize = 256 << 10;
/// Messages that find room in one however long they are.
const EACH: u64 = (BUFFER / EAGER) as u64 - 1;
/// Own short messages that may be under way before one has to wait.
const SLOTS: usize = 64;

/// An entry that takes what comes, whatever its tag.
pub(crate) fn any() -> MeSpec {
    MeSpec {
        match_id: ProcessId::ANY,
        match_bits: 0,
        ignore_bits: u64::MAX,
        unlink: Unlink::Unlink,
    }
}

/// Why memory for messages cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    /// Portals refuses a descriptor.
    #[error("no descriptor for messages: {0}")]
    Descriptor(#[from] Error),
    /// There is no memory.
    #[error("no memory for messages: {0}")]
    Memory(#[from] RegionError),
}

/// A message that has arrived.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) said: Said,
    pub(crate) from: ProcessId,
    /// The tag, or the engine's own number.
    pub(crate) bits: u64,
    pub(crate) len: u64,
    bytes: Bytes,
}

/// The bytes of a message.
#[derive(Debug)]
enum Bytes {
    /// In the buffer of this number, from there on.
    Landed(usize, usize),
    Copied(Vec<u8>),
    /// Behind the head of a frame.
    Framed(Vec<u8>),
}

impl Bytes {
    /// Those that are in no buffer.
    fn here(&self) -> &[u8] {
        match self {
            Self::Landed(..) => &[],
            Self::Copied(bytes) => bytes,
            Self::Framed(frame) => frame.get(HEAD..).unwrap_or_default(),
        }
    }
}

impl Landed {
    #[inline]
    pub(crate) const fn new(said: Said, buffer: usize, event: &Brief) -> Self {
        Self {
            said,
            from: event.initiator,
            bits: event.match_bits,
            len: event.mlength,
            bytes: Bytes::Landed(buffer, event.offset as usize),
        }
    }
}

impl Landed {
    /// A message that came as this frame.
    #[inline]
    pub(crate) const fn framed(said: Said, from: ProcessId, bits: u64, frame: Vec<u8>) -> Self {
        Self {
            said,
            from,
            bits,
            len: frame.len().saturating_sub(HEAD) as u64,
            bytes: Bytes::Framed(frame),
        }
    }

    /// The frame that it came as, or the copy.
    #[inline]
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        match self.bytes {
            Bytes::Landed(..) => Vec::new(),
            Bytes::Copied(bytes) | Bytes::Framed(bytes) => bytes,
        }
    }
}

/// The buffers that messages land in, one after the other.
#[derive(Debug)]
pub(crate) struct Landing {
    eq: EqHandle,
    buffers: Vec<Region>,
}

impl Landing {
    pub(crate) fn new(eq: EqHandle) -> Self {
        Self {
            eq,
            buffers: Vec::new(),
        }
    }

    /// Makes room for so many messages of any length. A buffer is used again when it is full, so one more is there while the
    /// last messages of another are handled, and one because half-full ones are not.
    pub(crate) fn reserve(&mut self, ni: &Interface, messages: u64) -> Result<(), RoomError> {
        let wanted = messages.div_ceil(EACH) + 2;
        while (self.buffers.len() as u64) < wanted {
            let at = self.buffers.len();
            self.buffers.push(Region::new(BUFFER)?);
            if let Err(error) = self.post(ni, at) {
                self.buffers.pop();
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Has messages land in a buffer, after those that take them now.
    pub(crate) fn post(&self, ni: &Interface, at: usize) -> Result<(), Error> {
        let Some(region) = self.buffers.get(at) else {
            return Err(Error::Fail);
        };
        let me = ni.me_attach(MESSAGES, any(), InsertPosition::After)?;
        let spec = MdSpec {
            memory: MdMemory::whole(region),
            threshold: -1,
            max_size: EAGER as u64,
            options: MdOptions::OP_PUT | MdOptions::MAX_SIZE | MdOptions::EVENT_START_DISABLE,
            user_ptr: LANDING | at as u64,
            eq: Some(self.eq),
        };
        ni.md_attach(me, spec, Unlink::Unlink).map(drop)
    }

    /// The bytes of a message.
    pub(crate) fn bytes(&self, message: &mut Landed, pool: &mut BufferPool) -> Vec<u8> {
        if let Bytes::Copied(bytes) = &mut message.bytes {
            return std::mem::take(bytes);
        }
        let mut bytes = pool.take();
        bytes.resize(message.len as usize, 0);
        if !self.read(message, &mut bytes) {
            tracing::error!("a message outside its buffer");
            bytes.clear();
        }
        bytes
    }

    /// Reads the first bytes of a message, as many as are wanted.
    pub(crate) fn read(&self, message: &Landed, to: &mut [u8]) -> bool {
        match &message.bytes {
            Bytes::Landed(at, offset) => {
                let buffer = self.buffers.get(*at);
                buffer.is_some_and(|region| region.read(*offset, to).is_ok())
            }
            bytes => bytes
                .here()
                .get(..to.len())
                .map(|bytes| to.copy_from_slice(bytes))
                .is_some(),
        }
    }

    /// Copies a message into memory, as far as that goes.
    pub(crate) fn store(&self, message: &Landed, place: &Buffer) {
        match &message.bytes {
            Bytes::Copied(_) | Bytes::Framed(_) => place.store_bytes(message.bytes.here()),
            Bytes::Landed(at, offset) => {
                let stored = self
                    .buffers
                    .get(*at)
                    .map(|r| place.store(0, message.len, r, *offset));
                if !matches!(stored, Some(Ok(()))) {
                    tracing::error!("a message outside its buffer");
                }
            }
        }
    }

    /// Takes the bytes of a message out of its buffer, which will be used again before the message is handled.
    pub(crate) fn take_out(&self, message: &mut Landed, pool: &mut BufferPool) -> Landed {
        let bytes = self.bytes(message, pool);
        let Landed {
            said,
            from,
            bits,
            len,
            ..
        } = *message;
        Landed {
            said,
            from,
            bits,
            len,
            bytes: Bytes::Copied(bytes),
        }
    }
}

/// Where short messages are sent from.
#[derive(Debug)]
pub(crate) struct Slots {
    region: Region,
    descriptors: Vec<MdHandle>,
    free: Vec<usize>,
}

impl Slots {
    pub(crate) fn new(ni: &Interface, eq: EqHandle) -> Result<Self, RoomError> {
        let region = Region::new(SLOTS * EAGER)?;
        let bind = |at: usize| {
            let memory = MdMemory::Region {
                region: region.clone(),
                offset: at * EAGER,
                len: EAGER,
            };
            let spec = MdSpec {
                memory,
                threshold: -1,
                max_size: 0,
                options: MdOptions::EVENT_START_DISABLE,
                user_ptr: SLOT | at as u64,
                eq: Some(eq),
            };
            ni.md_bind(spec, Unlink::Retain)
        };
        let descriptors = (0..SLOTS).map(bind).collect::<Result<_, _>>()?;
        Ok(Self {
            descriptors,
            free: (0..SLOTS).rev().collect(),
            region,
        })
    }

    pub(crate) fn take(&mut self) -> Option<usize> {
        self.free.pop()
    }

    pub(crate) fn give_back(&mut self, at: usize) {
        self.free.push(at);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// The descriptor of a slot.
    pub(crate) fn md(&self, at: usize) -> MdHandle {
        self.descriptors[at]
    }

    /// The memory of all, and where a slot is in it.
    pub(crate) fn memory(&self, at: usize) -> (&Region, usize) {
        (&self.region, at * EAGER)
    }
}
