//! The fields of a header's body side by side, as every codec writes them.
//!
//! | operation | length | offset | extra | md | moved |
//! |---|---|---|---|---|---|
//! | 0 put | requested | remote offset | hdr_data | the source MD, if an ack is wanted | – |
//! | 1 get | requested | remote offset | reply offset | the destination MD | – |
//! | 2 getput | requested | remote offset | hdr_data | the destination MD | reply offset |
//! | 3 ack | requested | request offset | – | the source MD | accepted |
//! | 4 reply | requested | local offset | – | the destination MD | bytes that follow |

use super::Body;
use crate::ack::Ack;
use crate::handle::MdHandle;

/// The fields of a [`Body`]; the module's table says what each is. One that an operation does not have is 0, or `None`.
///
/// # Examples
///
/// ```
/// use portals_core::{Ack, Body, Fields, MdHandle};
///
/// let ack = Body::Ack(Ack { md: MdHandle::from_raw(7), offset: 16, rlength: 100, mlength: 80 });
/// let fields = Fields::of(&ack);
/// assert_eq!((fields.operation, fields.length, fields.moved), (Fields::ACK, 100, 80));
/// assert_eq!(fields.body(), Ok(ack));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Which one.
    pub operation: u8,
    /// Access control index at the target.
    pub ac_index: u32,
    /// Bytes that were asked for.
    pub length: u64,
    /// Of a request, in the target's memory; of a reply, in the initiator's.
    pub offset: u64,
    /// The third word of a request.
    pub extra: u64,
    /// The initiator's descriptor.
    pub md: Option<MdHandle>,
    /// Bytes that an answer is about; the reply offset of a getput.
    pub moved: u64,
}

/// Why fields are no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// No operation has this number.
    #[error("unknown operation {0}")]
    Operation(u8),
    /// This operation has a descriptor.
    #[error("{0} without a descriptor")]
    NoDescriptor(&'static str),
}

impl Fields {
    /// The operation of a put.
    pub const PUT: u8 = 0;
    /// The operation of a get.
    pub const GET: u8 = 1;
    /// The operation of a getput.
    pub const GET_PUT: u8 = 2;
    /// The operation of an ack.
    pub const ACK: u8 = 3;
    /// The operation of a reply.
    pub const REPLY: u8 = 4;

    /// Those of a body.
    #[inline(always)]
    pub fn of(body: &Body) -> Self {
        match *body {
            Body::Put {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                ack_md,
            } => Self {
                operation: Self::PUT,
                ac_index,
                length,
                offset: remote_offset,
                extra: hdr_data,
                md: ack_md,
                moved: 0,
            },
            Body::Get {
                length,
                remote_offset,
                ac_index,
                reply_md,
                reply_offset,
            } => Self {
                operation: Self::GET,
                ac_index,
                length,
                offset: remote_offset,
                extra: reply_offset,
                md: Some(reply_md),
                moved: 0,
            },
            Body::GetPut {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                reply_md,
                reply_offset,
            } => Self {
                operation: Self::GET_PUT,
                ac_index,
                length,
                offset: remote_offset,
                extra: hdr_data,
                md: Some(reply_md),
                moved: reply_offset,
            },
            Body::Ack(Ack {
                md,
                offset,
                rlength,
                mlength,
            }) => Self {
                operation: Self::ACK,
                length: rlength,
                offset,
                md: Some(md),
                moved: mlength,
                ..Self::default()
            },
            Body::Reply {
                md,
                local_offset,
                rlength,
                mlength,
            } => Self {
                operation: Self::REPLY,
                length: rlength,
                offset: local_offset,
                md: Some(md),
                moved: mlength,
                ..Self::default()
            },
        }
    }

    /// The body with these fields.
    ///
    /// # Errors
    /// [`FieldsError`] when no body has them.
    #[inline(always)]
    pub fn body(&self) -> Result<Body, FieldsError> {
        let md = |what| self.md.ok_or(FieldsError::NoDescriptor(what));
        Ok(match self.operation {
            Self::PUT => Body::Put {
                length: self.length,
                remote_offset: self.offset,
                hdr_data: self.extra,
                ac_index: self.ac_index,
                ack_md: self.md,
            },
            Self::GET => Body::Get {
                length: self.length,
                remote_offset: self.offset,
                ac_index: self.ac_index,
                reply_md: md("get")?,
                reply_offset: self.extra,
            },
            Self::GET_PUT => Body::GetPut {
                length: self.length,
                remote_offset: self.offset,
                hdr_data: self.extra,
                ac_index: self.ac_index,
                reply_md: md("getput")?,
                reply_offset: self.moved,
            },
            Self::ACK => Body::Ack(Ack {
                md: md("ack")?,
                offset: self.offset,
                rlength: self.length,
                mlength: self.moved,
            }),
            Self::REPLY => Body::Reply {
                md: md("reply")?,
                local_offset: self.offset,
                rlength: self.length,
                mlength: self.moved,
            },
            other => return Err(FieldsError::Operation(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_has_fields_that_make_it_again() {
        let md = MdHandle::from_raw(7);
        let bodies = [
            Body::Put {
                length: 1,
                remote_offset: 2,
                hdr_data: 3,
                ac_index: 4,
                ack_md: Some(md),
            },
            Body::Get {
                length: 1,
                remote_offset: 2,
                ac_index: 4,
                reply_md: md,
                reply_offset: 3,
            },
            Body::GetPut {
                length: 1,
                remote_offset: 2,
                hdr_data: 3,
                ac_index: 4,
                reply_md: md,
                reply_offset: 5,
            },
            Body::Ack(Ack {
                md,
                offset: 2,
                rlength: 1,
                mlength: 5,
            }),
            Body::Reply {
                md,
                local_offset: 2,
                rlength: 1,
                mlength: 5,
            },
        ];
        for (operation, body) in (0..).zip(bodies) {
            let fields = Fields::of(&body);
            assert_eq!(
                (fields.operation, fields.length, fields.offset),
                (operation, 1, 2)
            );
            assert_eq!(fields.body(), Ok(body));
            let no_md = Fields { md: None, ..fields }.body();
            assert_eq!(no_md.is_ok(), operation == Fields::PUT, "{no_md:?}");
        }
        let fields = Fields {
            operation: 5,
            ..Fields::default()
        };
        assert_eq!(fields.body(), Err(FieldsError::Operation(5)));
    }
}
