//! The answer to a put: what it says, and who makes it of what.

use crate::handle::MdHandle;
use crate::header::Body;

/// The answer to a put. Lengths and offsets are bytes.
///
/// # Examples
///
/// ```
/// use portals_core::{Ack, Body, MdHandle};
///
/// let md = MdHandle::from_raw(7);
/// let put = Body::Put {
///     length: 100,
///     remote_offset: 16,
///     hdr_data: 0,
///     ac_index: 0,
///     ack_md: Some(md),
/// };
/// let ack = Ack::of(&put, 80).ok_or("no ack is wanted")?;
/// assert_eq!((ack.md, ack.offset, ack.rlength, ack.mlength), (md, 16, 100, 80));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The put's source MD.
    pub md: MdHandle,
    /// The request's remote offset.
    pub offset: u64,
    /// The request's length.
    pub rlength: u64,
    /// What the target accepted.
    pub mlength: u64,
}

impl Ack {
    /// Of a request of which the target accepted `mlength` bytes; `None` if that is no put, or one that wants no ack.
    #[inline(always)]
    pub const fn of(request: &Body, mlength: u64) -> Option<Self> {
        match *request {
            Body::Put {
                length,
                remote_offset,
                ack_md: Some(md),
                ..
            } => Some(Self {
                md,
                offset: remote_offset,
                rlength: length,
                mlength,
            }),
            _ => None,
        }
    }

    /// Of a request of which the target accepted all.
    #[inline]
    pub const fn of_all(request: &Body) -> Option<Self> {
        match *request {
            Body::Put { length, .. } => Self::of(request, length),
            _ => None,
        }
    }

    /// Of a request that the target has refused.
    #[inline]
    pub const fn of_nothing(request: &Body) -> Option<Self> {
        Self::of(request, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(ack_md: Option<MdHandle>) -> Body {
        Body::Put {
            length: 100,
            remote_offset: 16,
            hdr_data: 3,
            ac_index: 4,
            ack_md,
        }
    }

    #[test]
    fn an_ack_repeats_its_put_and_says_what_was_accepted() {
        let md = MdHandle::from_raw(7);
        let ack = |mlength| {
            Some(Ack {
                md,
                offset: 16,
                rlength: 100,
                mlength,
            })
        };
        let put = put(Some(md));
        assert_eq!(Ack::of(&put, 80), ack(80));
        assert_eq!(Ack::of_all(&put), ack(100));
        assert_eq!(Ack::of_nothing(&put), ack(0));
    }

    #[test]
    fn nobody_acks_what_asks_for_none() {
        assert_eq!(Ack::of_all(&put(None)), None);
        let get = Body::Get {
            length: 8,
            remote_offset: 0,
            ac_index: 0,
            reply_md: MdHandle::from_raw(1),
            reply_offset: 0,
        };
        assert_eq!((Ack::of_all(&get), Ack::of_nothing(&get)), (None, None));
    }
}
