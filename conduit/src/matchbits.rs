//! What the conduit says in the 64 match bits and the 64 bits of header data of a message.
//!
//! Only the low nibble selects a descriptor; every match entry ignores the other bits, which carry:
//!
//! ```text
//!               63          32 31       24 23     16 15      8 7    4 3    0
//!  put, get     chunk offset   i thread    op address (8-23)   type   sel
//!  AM header    chunk offset   args        handler   flags     0x4    sel
//!  AM data      args,handler,0 thread      0         flags     0x8    sel
//!  system       argument 0     message id (8-31)               0      5
//!
//!  header data  63          32 31                 8 7        0
//!  AM header    source node    length or long id    credits
//!  AM data      source node    long id
//!  system       argument 1     argument 2
//! ```

/// Portal of the segment's descriptors.
pub(crate) const RAR_PORTAL: u32 = 38;
/// Portal of everything else.
pub(crate) const AM_PORTAL: u32 = 39;
/// Bits that no match entry compares.
pub(crate) const IGNORE: u64 = !0xf;

/// Low-nibble selectors.
pub(crate) mod select {
    pub(crate) const RAR: u64 = 0;
    pub(crate) const RARAM: u64 = 1;
    pub(crate) const RARSRC: u64 = 2;
    pub(crate) const REQRB: u64 = 3;
    pub(crate) const REQSB: u64 = 4;
    pub(crate) const SYS: u64 = 5;
    pub(crate) const BOOT: u64 = 6;
}

const TYPE_PUT: u64 = 0x10;
const TYPE_GET: u64 = 0x20;
const TYPE_AM: u64 = 0x40;
const TYPE_AMDATA: u64 = 0x80;
/// With put or get: the initiator counts local completions of this message.
const LOCAL_COMPLETION: u64 = 0x80;

/// What kind of message match bits belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Get,
    AmHeader,
    AmData,
}

/// The kind, or `None` for a value no initiator of this conduit makes.
pub(crate) fn kind(bits: u64) -> Option<Kind> {
    match bits & 0xf0 & !LOCAL_COMPLETION {
        TYPE_PUT => Some(Kind::Put),
        TYPE_GET => Some(Kind::Get),
        TYPE_AM => Some(Kind::AmHeader),
        0 if bits & TYPE_AMDATA != 0 => Some(Kind::AmData),
        _ => None,
    }
}

/// A put or get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RmaBits {
    pub(crate) get: bool,
    pub(crate) local_completion: bool,
    /// Slot of the operation table.
    pub(crate) op: u16,
    pub(crate) implicit: bool,
    /// Offset of the bounce chunk; 0 without one.
    pub(crate) chunk: u32,
}

impl RmaBits {
    pub(crate) fn encode(self) -> u64 {
        let kind = if self.get { TYPE_GET } else { TYPE_PUT };
        let local = if self.local_completion {
            LOCAL_COMPLETION
        } else {
            0
        };
        select::RAR
            | kind
            | local
            | u64::from(self.op) << 8
            | u64::from(self.implicit) << 31
            | u64::from(self.chunk) << 32
    }

    pub(crate) fn decode(bits: u64) -> Self {
        Self {
            get: bits & TYPE_GET != 0,
            local_completion: bits & LOCAL_COMPLETION != 0,
            op: (bits >> 8) as u16,
            implicit: bits >> 31 & 1 != 0,
            chunk: (bits >> 32) as u32,
        }
    }
}

/// Category of an active message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    Short,
    Medium,
    Long,
}

const FLAG_SHORT: u8 = 0x01;
const FLAG_MEDIUM: u8 = 0x02;
const FLAG_LONG: u8 = 0x04;
const FLAG_REQUEST: u8 = 0x08;
const FLAG_PACKED: u8 = 0x10;
const FLAG_SYNC: u8 = 0x20;
/// Ours: the payload of a Long is in its place.
const FLAG_PLACED: u8 = 0x40;

/// The header message of an active message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AmBits {
    pub(crate) category: Category,
    pub(crate) request: bool,
    /// A Long whose payload is in this message.
    pub(crate) packed: bool,
    /// A Long whose payload is where it belongs; the message says where that is.
    pub(crate) placed: bool,
    pub(crate) handler: u8,
    pub(crate) args: u8,
    /// Offset of the sender's chunk: where the reply to a request goes.
    pub(crate) chunk: u32,
}

impl AmBits {
    pub(crate) fn encode(self) -> u64 {
        let selector = if self.request {
            select::REQRB
        } else {
            select::REQSB
        };
        let flags = match self.category {
            Category::Short => FLAG_SHORT,
            Category::Medium => FLAG_MEDIUM,
            Category::Long => FLAG_LONG,
        } | if self.request { FLAG_REQUEST } else { 0 }
            | if self.packed { FLAG_PACKED } else { 0 }
            | if self.placed { FLAG_PLACED } else { 0 };
        selector
            | TYPE_AM
            | u64::from(flags) << 8
            | u64::from(self.handler) << 16
            | u64::from(self.args) << 24
            | u64::from(self.chunk) << 32
    }

    /// `None` when the category is not exactly one.
    #[inline(always)]
    pub(crate) fn decode(bits: u64) -> Option<Self> {
        let flags = (bits >> 8) as u8;
        let category = match flags & (FLAG_SHORT | FLAG_MEDIUM | FLAG_LONG) {
            FLAG_SHORT => Category::Short,
            FLAG_MEDIUM => Category::Medium,
            FLAG_LONG => Category::Long,
            _ => return None,
        };
        Some(Self {
            category,
            request: flags & FLAG_REQUEST != 0,
            packed: flags & FLAG_PACKED != 0,
            placed: flags & FLAG_PLACED != 0,
            handler: (bits >> 16) as u8,
            args: (bits >> 24) as u8,
            chunk: (bits >> 32) as u32,
        })
    }
}

/// Header data of the header message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AmHdr {
    pub(crate) source: u32,
    /// 24 bits: payload length, or the long id of a reply.
    pub(crate) other: u32,
    pub(crate) credits: u8,
}

impl AmHdr {
    pub(crate) fn encode(self) -> u64 {
        u64::from(self.source) << 32
            | u64::from(self.other & 0xff_ffff) << 8
            | u64::from(self.credits)
    }

    pub(crate) fn decode(data: u64) -> Self {
        Self {
            source: (data >> 32) as u32,
            other: (data >> 8) as u32 & 0xff_ffff,
            credits: data as u8,
        }
    }
}

/// The payload message of a Long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AmDataBits {
    pub(crate) request: bool,
    /// The sender waits for local completion.
    pub(crate) sync: bool,
    pub(crate) handler: u8,
    pub(crate) args: u8,
}

impl AmDataBits {
    pub(crate) fn encode(self) -> u64 {
        let selector = if self.request {
            select::RARAM
        } else {
            select::RARSRC
        };
        let flags =
            if self.request { FLAG_REQUEST } else { 0 } | if self.sync { FLAG_SYNC } else { 0 };
        selector
            | TYPE_AMDATA
            | u64::from(flags) << 8
            | u64::from(self.handler) << 48
            | u64::from(self.args) << 56
    }

    /// The same to RAR, which makes no event at the target.
    pub(crate) fn encode_quiet(self) -> u64 {
        self.encode() & IGNORE | select::RAR
    }

    pub(crate) fn decode(bits: u64) -> Self {
        let flags = (bits >> 8) as u8;
        Self {
            request: flags & FLAG_REQUEST != 0,
            sync: flags & FLAG_SYNC != 0,
            handler: (bits >> 48) as u8,
            args: (bits >> 56) as u8,
        }
    }
}

/// Header data of the payload message.
pub(crate) fn data_hdr(source: u32, lid: u32) -> u64 {
    u64::from(source) << 32 | u64::from(lid)
}

/// Source node and long id.
pub(crate) fn decode_data_hdr(data: u64) -> (u32, u32) {
    ((data >> 32) as u32, data as u32)
}

/// System messages. Ids 0 to 3 are the portals-conduit's (2 and 3 move credits between ranks);
/// id 4, the client barrier, is this conduit's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SysMsg {
    /// The sender is leaving; `code` is the code it knows, with bit 8 if a rank exited.
    Shutdown {
        distance: u32,
        code: u32,
        sender: u32,
    },
    /// One round of the conduit's own barrier.
    Barrier {
        phase: u32,
        distance: u32,
        sender: u32,
    },
    /// Asks for credits that the receiver does not need; see [`crate::credits`].
    CreditRevoke { epoch: bool, sender: u32 },
    /// The answer.
    CreditReturn {
        credits: u16,
        epoch: bool,
        sender: u32,
    },
    /// From a rank to itself: ends a wait.
    Wake,
    /// One round of the client's barrier; `flags` 0 named, 1 anonymous, 2 mismatch.
    ClientBarrier {
        phase: u8,
        round: u8,
        flags: u8,
        id: u32,
        sender: u32,
    },
    /// One round of [`crate::Conduit::least`]: the least value that the sender, of 24 bits, knows of.
    Least { round: u8, value: u64, sender: u32 },
}

impl SysMsg {
    /// Match bits and header data.
    pub(crate) fn encode(self) -> (u64, u64) {
        let (id, a0, a1, a2) = match self {
            Self::Shutdown {
                distance,
                code,
                sender,
            } => (0u64, distance, code, sender),
            Self::Barrier {
                phase,
                distance,
                sender,
            } => (1, phase, distance, sender),
            Self::CreditRevoke { epoch, sender } => (2, sender, u32::from(epoch), 0),
            Self::CreditReturn {
                credits,
                epoch,
                sender,
            } => (3, sender, u32::from(credits), u32::from(epoch)),
            Self::Wake => (5, 0, 0, 0),
            Self::ClientBarrier {
                phase,
                round,
                flags,
                id,
                sender,
            } => {
                let a0 = u32::from(phase) | u32::from(round) << 8 | u32::from(flags) << 16;
                (4, a0, id, sender)
            }
            Self::Least {
                round,
                value,
                sender,
            } => {
                let a0 = sender & 0xff_ffff | u32::from(round) << 24;
                (6, a0, (value >> 32) as u32, value as u32)
            }
        };
        let bits = select::SYS | id << 8 | u64::from(a0) << 32;
        (bits, u64::from(a1) << 32 | u64::from(a2))
    }

    /// `None` for an id this conduit does not know.
    pub(crate) fn decode(bits: u64, data: u64) -> Option<Self> {
        let (a0, a1, a2) = ((bits >> 32) as u32, (data >> 32) as u32, data as u32);
        Some(match bits >> 8 & 0xff_ffff {
            0 => Self::Shutdown {
                distance: a0,
                code: a1,
                sender: a2,
            },
            1 => Self::Barrier {
                phase: a0,
                distance: a1,
                sender: a2,
            },
            2 => Self::CreditRevoke {
                epoch: a1 != 0,
                sender: a0,
            },
            3 => Self::CreditReturn {
                credits: u16::try_from(a1).ok()?,
                epoch: a2 != 0,
                sender: a0,
            },
            4 => Self::ClientBarrier {
                phase: a0 as u8,
                round: (a0 >> 8) as u8,
                flags: (a0 >> 16) as u8,
                id: a1,
                sender: a2,
            },
            5 => Self::Wake,
            6 => Self::Least {
                round: (a0 >> 24) as u8,
                value: data,
                sender: a0 & 0xff_ffff,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let put = RmaBits {
            get: false,
            local_completion: true,
            op: 0x1234,
            implicit: true,
            chunk: 0x800,
        };
        assert_eq!(put.encode(), 0x0000_0800_8012_3490);
        let am = AmBits {
            category: Category::Medium,
            request: true,
            packed: false,
            placed: false,
            handler: 200,
            args: 3,
            chunk: 0x1000,
        };
        assert_eq!(am.encode(), 0x0000_1000_03c8_0a43);
        let reply = AmBits {
            category: Category::Long,
            request: false,
            packed: true,
            placed: false,
            handler: 1,
            args: 16,
            chunk: 0,
        };
        assert_eq!(reply.encode(), 0x1001_1444);
        let data = AmDataBits {
            request: false,
            sync: true,
            handler: 7,
            args: 2,
        };
        assert_eq!(data.encode(), 0x0207_0000_0000_2082);
        assert_eq!(
            SysMsg::Shutdown {
                distance: 4,
                code: 3,
                sender: 9
            }
            .encode(),
            (0x0000_0004_0000_0005, 0x0000_0003_0000_0009)
        );
        assert_eq!(
            AmHdr {
                source: 5,
                other: 0x80_0001,
                credits: 0x93
            }
            .encode(),
            0x0000_0005_8000_0193
        );
    }

    #[test]
    fn everything_comes_back() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let rma = RmaBits {
                get: rng.bool(),
                local_completion: rng.bool(),
                op: rng.u16(..),
                implicit: rng.bool(),
                chunk: rng.u32(..),
            };
            assert_eq!(RmaBits::decode(rma.encode()), rma);
            assert_eq!(
                kind(rma.encode()),
                Some(if rma.get { Kind::Get } else { Kind::Put })
            );
            let am = AmBits {
                category: [Category::Short, Category::Medium, Category::Long][rng.usize(0..3)],
                request: rng.bool(),
                packed: rng.bool(),
                placed: rng.bool(),
                handler: rng.u8(..),
                args: rng.u8(..),
                chunk: rng.u32(..),
            };
            assert_eq!(AmBits::decode(am.encode()), Some(am));
            assert_eq!(kind(am.encode()), Some(Kind::AmHeader));
            let data = AmDataBits {
                request: rng.bool(),
                sync: rng.bool(),
                handler: rng.u8(..),
                args: rng.u8(..),
            };
            assert_eq!(AmDataBits::decode(data.encode()), data);
            assert_eq!(kind(data.encode()), Some(Kind::AmData));
            let hdr = AmHdr {
                source: rng.u32(..),
                other: rng.u32(..1 << 24),
                credits: rng.u8(..),
            };
            assert_eq!(AmHdr::decode(hdr.encode()), hdr);
            for sys in [
                SysMsg::Shutdown {
                    distance: rng.u32(..),
                    code: rng.u32(..),
                    sender: rng.u32(..),
                },
                SysMsg::Barrier {
                    phase: rng.u32(..),
                    distance: rng.u32(..),
                    sender: rng.u32(..),
                },
                SysMsg::CreditRevoke {
                    epoch: rng.bool(),
                    sender: rng.u32(..),
                },
                SysMsg::Wake,
                SysMsg::CreditReturn {
                    credits: rng.u16(..),
                    epoch: rng.bool(),
                    sender: rng.u32(..),
                },
                SysMsg::ClientBarrier {
                    phase: rng.u8(..),
                    round: rng.u8(..),
                    flags: rng.u8(..),
                    id: rng.u32(..),
                    sender: rng.u32(..),
                },
                SysMsg::Least {
                    round: rng.u8(..),
                    value: rng.u64(..),
                    sender: rng.u32(..1 << 24),
                },
            ] {
                let (bits, data) = sys.encode();
                assert_eq!(bits & 0xf, select::SYS);
                assert_eq!(SysMsg::decode(bits, data), Some(sys));
            }
        }
        assert_eq!(SysMsg::decode(7 << 8 | select::SYS, 0), None);
        assert_eq!(kind(0), None);
        assert_eq!(AmBits::decode(TYPE_AM), None);
    }
}
