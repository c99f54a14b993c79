//! How (communicator, source, tag) lie in 64 match bits (facts sheet `usnic_ofi.md`, B1 and B2).
//!
//! ```text
//!            63                                                              0
//!  full      | communicator 30              | protocol 2 |            tag 32 |   source in the header data
//!  tag_1     | communicator 12 |  source 18 | protocol 2 |            tag 32 |
//!  tag_2     | communicator 24         |  source 18 | protocol 2 |    tag 20 |
//! ```
//!
//! The lower protocol bit marks a message that the receiver releases (a synchronous or a long one), the upper one is
//! kept for acknowledgements that travel as messages and is 0 on Portals, whose acks do not.
//!
//! # Invariants
//! * The four fields are disjoint and, reserved bits apart, fill the 64 bits.
//! * Tags are two's complement in their field: the largest is `2^(bits-1) - 1`, and those below 0 are the library's own.
//!   A receive of any tag ignores all bits of the field but the sign, so it takes no message of the library.

use crate::error::OpenError;

/// A layout by name, as a user asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagMode {
    /// `full`, since a Portals header has room for the source.
    #[default]
    Auto,
    /// 12 bits of communicator, 18 of source, 32 of tag.
    Tag1,
    /// 24 bits of communicator, 18 of source, 20 of tag.
    Tag2,
    /// 30 bits of communicator, 32 of tag; the source in the header data.
    Full,
}

impl TagMode {
    /// All, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Tag1, Self::Tag2, Self::Full];

    /// The word of the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tag1 => "tag_1",
            Self::Tag2 => "tag_2",
            Self::Full => "full",
        }
    }
}

impl std::str::FromStr for TagMode {
    type Err = OpenError;

    fn from_str(name: &str) -> Result<Self, OpenError> {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == name);
        known.ok_or_else(|| OpenError::Mode {
            name: name.to_owned(),
        })
    }
}

/// No bits of the match bits are reserved.
pub const NO_RESERVED_BITS: u64 = u64::MAX;
/// A job must be able to have this many bits of communicator.
const FEWEST_CID_BITS: u32 = 8;

/// A layout with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    tag_bits: u32,
    source_bits: u32,
    cid_bits: u32,
}

/// What a receive compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Bits to match.
    pub bits: u64,
    /// 1: not compared.
    pub ignore: u64,
}

impl Pattern {
    /// Whether a message with these bits is one.
    pub const fn admits(self, bits: u64) -> bool {
        (bits ^ self.bits) & !self.ignore == 0
    }
}

impl Layout {
    /// The layout of a mode. Each leading 0 of `format` (libfabric's `mem_tag_format`) is a reserved bit that the
    /// communicator loses.
    ///
    /// # Errors
    /// [`OpenError::FewCommunicators`] when fewer than 8 bits of communicator are left.
    pub const fn new(mode: TagMode, format: u64) -> Result<Self, OpenError> {
        let (tag_bits, source_bits, cid_bits) = match mode {
            TagMode::Tag1 => (32, 18, 12),
            TagMode::Tag2 => (20, 18, 24),
            TagMode::Auto | TagMode::Full => (32, 0, 30),
        };
        let reserved = format.leading_zeros();
        if reserved + FEWEST_CID_BITS > cid_bits {
            return Err(OpenError::FewCommunicators {
                reserved,
                of: cid_bits,
            });
        }
        Ok(Self {
            tag_bits,
            source_bits,
            cid_bits: cid_bits - reserved,
        })
    }

    /// Whether the source travels in the header data.
    pub const fn is_full(&self) -> bool {
        self.source_bits == 0
    }

    /// The largest tag of a program.
    pub const fn max_tag(&self) -> i32 {
        (1u64 << (self.tag_bits - 1)).wrapping_sub(1) as i32
    }

    /// The largest communicator id.
    pub const fn max_cid(&self) -> u32 {
        (1 << self.cid_bits) - 1
    }

    /// The most ranks of a job.
    pub const fn max_ranks(&self) -> u64 {
        if self.is_full() {
            1 << 32
        } else {
            1 << self.source_bits
        }
    }

    /// Bits of communicator, source and tag.
    pub const fn widths(&self) -> (u32, u32, u32) {
        (self.cid_bits, self.source_bits, self.tag_bits)
    }

    const fn tag_mask(&self) -> u64 {
        (1 << self.tag_bits) - 1
    }

    /// Marks a message that its receiver releases.
    pub const fn sync_bit(&self) -> u64 {
        1 << self.tag_bits
    }

    /// Marks an acknowledgement that is a message.
    pub const fn ack_bit(&self) -> u64 {
        2 << self.tag_bits
    }

    const fn source_shift(&self) -> u32 {
        self.tag_bits + 2
    }

    const fn cid_shift(&self) -> u32 {
        self.tag_bits + 2 + self.source_bits
    }

    const fn source_mask(&self) -> u64 {
        ((1 << self.source_bits) - 1) << self.source_shift()
    }

    /// The bits of a message. `FULL` is [`Layout::is_full`], known where the caller was compiled.
    #[inline(always)]
    pub const fn message<const FULL: bool>(
        &self,
        cid: u32,
        source: u32,
        tag: i32,
        sync: bool,
    ) -> u64 {
        let mut bits = (cid as u64) << self.cid_shift() | (tag as u32 as u64) & self.tag_mask();
        if !FULL {
            bits |= (source as u64) << self.source_shift();
        }
        if sync {
            bits |= self.sync_bit();
        }
        bits
    }

    /// What a receive compares; `None` is any.
    #[inline(always)]
    pub const fn pattern<const FULL: bool>(
        &self,
        cid: u32,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Pattern {
        let mut ignore = self.sync_bit();
        let source = match source {
            Some(source) => source,
            None => {
                if !FULL {
                    ignore |= self.source_mask();
                }
                0
            }
        };
        let tag = match tag {
            Some(tag) => tag,
            None => {
                ignore |= self.tag_mask() >> 1;
                0
            }
        };
        Pattern {
            bits: self.message::<FULL>(cid, source, tag, false),
            ignore,
        }
    }

    /// The tag of a message.
    #[inline(always)]
    pub const fn tag(&self, bits: u64) -> i32 {
        let unused = 32 - self.tag_bits;
        ((bits & self.tag_mask()) as u32)
            .wrapping_shl(unused)
            .cast_signed()
            >> unused
    }

    /// The source of a message whose header data told `told`.
    #[inline(always)]
    pub const fn source<const FULL: bool>(&self, bits: u64, told: u32) -> u32 {
        if FULL {
            told
        } else {
            ((bits & self.source_mask()) >> self.source_shift()) as u32
        }
    }

    /// The communicator of a message.
    pub const fn cid(&self, bits: u64) -> u32 {
        (bits >> self.cid_shift()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [TagMode; 3] = [TagMode::Tag1, TagMode::Tag2, TagMode::Full];

    fn layout(mode: TagMode) -> Layout {
        Layout::new(mode, NO_RESERVED_BITS).unwrap()
    }

    /// The message of either kind of layout, as a run-time choice.
    fn message(l: &Layout, cid: u32, source: u32, tag: i32, sync: bool) -> u64 {
        if l.is_full() {
            l.message::<true>(cid, source, tag, sync)
        } else {
            l.message::<false>(cid, source, tag, sync)
        }
    }

    fn source(l: &Layout, bits: u64, told: u32) -> u32 {
        if l.is_full() {
            l.source::<true>(bits, told)
        } else {
            l.source::<false>(bits, told)
        }
    }

    #[test]
    fn widths_and_limits_are_those_of_the_sheet() {
        let of = |mode| {
            let l = layout(mode);
            (l.widths(), l.max_tag(), l.max_cid(), l.max_ranks())
        };
        assert_eq!(
            of(TagMode::Full),
            ((30, 0, 32), i32::MAX, (1 << 30) - 1, 1 << 32)
        );
        assert_eq!(of(TagMode::Auto), of(TagMode::Full));
        assert_eq!(of(TagMode::Tag1), ((12, 18, 32), i32::MAX, 4095, 1 << 18));
        assert_eq!(
            of(TagMode::Tag2),
            ((24, 18, 20), (1 << 19) - 1, (1 << 24) - 1, 1 << 18)
        );
    }

    #[test]
    fn reserved_bits_come_off_the_communicator() {
        let l = Layout::new(TagMode::Tag1, u64::MAX >> 4).unwrap();
        assert_eq!(l.max_cid(), 255);
        assert_eq!(
            Layout::new(TagMode::Tag1, u64::MAX >> 5),
            Err(OpenError::FewCommunicators {
                reserved: 5,
                of: 12
            })
        );
        assert_eq!(message(&l, 255, (1 << 18) - 1, -1, true) >> 60, 0);
    }

    #[test]
    fn a_message_tells_what_it_was_made_of_at_every_limit() {
        for mode in MODES {
            let l = layout(mode);
            for cid in [0, 1, l.max_cid()] {
                for rank in [0, 1, (l.max_ranks() - 1) as u32] {
                    for tag in [0, 1, l.max_tag(), -1, -l.max_tag() - 1] {
                        for sync in [false, true] {
                            let bits = message(&l, cid, rank, tag, sync);
                            assert_eq!(l.cid(bits), cid);
                            assert_eq!(source(&l, bits, rank), rank);
                            assert_eq!(l.tag(bits), tag);
                            assert_eq!(bits & l.sync_bit() != 0, sync);
                            assert_eq!(bits & l.ack_bit(), 0);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn wildcards_admit_what_they_should_and_never_the_librarys_own_tags() {
        for mode in [TagMode::Tag1, TagMode::Tag2] {
            let l = layout(mode);
            let any = l.pattern::<false>(7, None, None);
            assert!(any.admits(l.message::<false>(7, 3, l.max_tag(), true)));
            assert!(!any.admits(l.message::<false>(8, 3, 5, false)));
            assert!(!any.admits(l.message::<false>(7, 3, -5, false)));
            assert!(!any.admits(l.message::<false>(7, 3, 5, false) | l.ack_bit()));
            let from = l.pattern::<false>(7, Some(3), None);
            assert!(!from.admits(l.message::<false>(7, 4, 5, false)));
            let exact = l.pattern::<false>(7, Some(3), Some(-5));
            assert!(exact.admits(l.message::<false>(7, 3, -5, true)));
        }
        let l = layout(TagMode::Full);
        let any = l.pattern::<true>(7, None, None);
        assert!(any.admits(l.message::<true>(7, 3, i32::MAX, false)));
        assert!(!any.admits(l.message::<true>(7, 3, i32::MIN, false)));
    }
}
