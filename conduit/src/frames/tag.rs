//! What the 16 bits beside a frame say of it.
//!
//! ```text
//!   15    14 13 12      8 7        0
//!    0   category  arguments  handler
//! ```

use crate::am::limits::MAX_ARGS;
use crate::matchbits::Category;

/// Category, number of arguments, handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) category: Category,
    /// 0 to [`MAX_ARGS`].
    pub(crate) args: usize,
    pub(crate) handler: u8,
}

impl Tag {
    #[inline]
    pub(crate) const fn encode(self) -> u16 {
        let category = match self.category {
            Category::Short => 0,
            Category::Medium => 1,
            Category::Long => 2,
        };
        category << 13 | (self.args as u16) << 8 | self.handler as u16
    }

    /// `None` for bits that no rank writes.
    #[inline]
    pub(crate) const fn decode(bits: u16) -> Option<Self> {
        let category = match bits >> 13 {
            0 => Category::Short,
            1 => Category::Medium,
            2 => Category::Long,
            _ => return None,
        };
        let args = (bits >> 8 & 0x1f) as usize;
        if args > MAX_ARGS {
            return None;
        }
        Some(Self {
            category,
            args,
            handler: bits as u8,
        })
    }
}

/// What a Long's frame says of its payload: offset in the target's segment, and length.
pub(super) const PLACE: usize = 16;

/// What a Long's frame says of its payload.
pub(crate) fn place(offset: u64, len: usize) -> [u8; PLACE] {
    let mut place = [0; PLACE];
    place[..8].copy_from_slice(&offset.to_le_bytes());
    place[8..].copy_from_slice(&(len as u64).to_le_bytes());
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_is_read_as_written_and_others_are_refused() {
        let mut good = 0;
        for bits in 0..=u16::MAX {
            if let Some(tag) = Tag::decode(bits) {
                assert_eq!(tag.encode(), bits, "{tag:?}");
                good += 1;
            }
        }
        assert_eq!(good, 3 * 17 * 256);
    }
}
