//! Answers that say that a request has failed, for whoever holds the Portals state of a process.

use portals_core::{Ack, Body, Header, Incoming, Ni, NiFail};

/// The answer with which a target says that `request` has failed; `None` when none is awaited.
pub fn refusal(request: &Header) -> Option<Header> {
    let body = match request.body {
        Body::Put { .. } => Body::Ack(Ack::of_nothing(&request.body)?),
        Body::Get {
            length,
            reply_md,
            reply_offset,
            ..
        }
        | Body::GetPut {
            length,
            reply_md,
            reply_offset,
            ..
        } => Body::Reply {
            md: reply_md,
            local_offset: reply_offset,
            rlength: length,
            mlength: 0,
        },
        _ => return None,
    };
    Some(Header {
        target: request.source,
        source: request.target,
        body,
        ..*request
    })
}

/// The request behind an answer with the failure flag, as far as its end needs it.
pub fn request_of(answer: &Header) -> Option<Header> {
    let body = match answer.body {
        Body::Ack(Ack {
            md,
            offset,
            rlength,
            ..
        }) => Body::Put {
            length: rlength,
            remote_offset: offset,
            hdr_data: 0,
            ac_index: 0,
            ack_md: Some(md),
        },
        Body::Reply {
            md,
            local_offset,
            rlength,
            ..
        } => Body::Get {
            length: rlength,
            remote_offset: 0,
            ac_index: 0,
            reply_md: md,
            reply_offset: local_offset,
        },
        _ => return None,
    };
    Some(Header {
        target: answer.source,
        source: answer.target,
        body,
        ..*answer
    })
}

/// Ends what the program waits for: an ACK, or a REPLY without data, with this failure.
pub fn fail(ni: &mut Ni, request: &Header, fail: NiFail) {
    match request.body {
        Body::Put { .. } => ni.ack_lost(request, fail),
        Body::Get { .. } | Body::GetPut { .. } => {
            if let Some(reply) = refusal(request)
                && let Incoming::Deposit(d) = ni.handle_header(&reply)
            {
                ni.deposit_end(d.op, fail);
            }
        }
        Body::Ack { .. } | Body::Reply { .. } => {}
    }
}

/// Whether an answer is an ack of data that has arrived, of which nothing is missing when it is sent
/// again without data.
#[must_use]
pub fn has_succeeded(answer: &Body) -> bool {
    match *answer {
        Body::Ack(Ack {
            rlength, mlength, ..
        }) => mlength > 0 || rlength == 0,
        _ => false,
    }
}

/// How much an answer is like the one to a request, apart from how many bytes were moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// Of its target, and about as many bytes of the same descriptor.
    ButOffset,
    /// About the same bytes.
    Exact,
}

/// How much `answer` is like the one to `request`; `None` where it is to another one.
#[must_use]
pub fn likeness(answer: &Header, request: &Header) -> Option<Likeness> {
    let key = |body: &Body| match *body {
        Body::Ack(Ack {
            md,
            offset,
            rlength,
            ..
        }) => Some((md, rlength, offset)),
        Body::Reply {
            md,
            local_offset,
            rlength,
            ..
        } => Some((md, rlength, local_offset)),
        _ => None,
    };
    let expected = answers(&answer.body, &request.body).then(|| refusal(request))??;
    let said = |a: &Header| (a.source, a.pt_index, a.match_bits);
    let ((md, length, offset), expected_key) = (key(&answer.body)?, key(&expected.body)?);
    let same = said(&expected) == said(answer) && expected_key == (md, length, expected_key.2);
    same.then_some(if expected_key.2 == offset {
        Likeness::Exact
    } else {
        Likeness::ButOffset
    })
}

/// Whether `answer` is one to `request`.
#[must_use]
pub fn answers(answer: &Body, request: &Body) -> bool {
    match (answer, request) {
        (Body::Ack(Ack { md, .. }), Body::Put { ack_md, .. }) => *ack_md == Some(*md),
        (Body::Reply { md, .. }, Body::Get { reply_md, .. } | Body::GetPut { reply_md, .. }) => {
            md == reply_md
        }
        _ => false,
    }
}
