//! Messages of the interface that no rank of ours sends, and failures of messages that nobody needs.

use crate::credits::cost;
use crate::descriptors::Md;
use crate::matchbits::{AmBits, AmHdr, Category, SysMsg};
use crate::resources::SbUse;
use crate::threads::{self, RankEnd};
use crate::{Conduit, HandlerEntry};
use portals_shim::{Brief, EventKind, NiFail, Put};

const TAKE: u8 = 130;
const SEGMENT: u64 = 4096;

/// Sends rank 1 the header of a Long whose payload it does not bring; `said` stands where the message says where that is.
fn send_long(conduit: &Conduit, placed: bool, chunk: Option<u32>, said: &[u8]) -> u32 {
    let mut core = conduit.core.borrow_mut();
    let core = &mut *core;
    let chunk = chunk.unwrap_or_else(|| {
        core.resources
            .requests_mut()
            .take(SbUse::Request { to: 1 })
            .unwrap()
    });
    core.resources
        .requests()
        .region()
        .write(chunk as usize, said)
        .unwrap();
    let bits = AmBits {
        category: Category::Long,
        request: true,
        packed: false,
        placed,
        handler: TAKE,
        args: 0,
        chunk,
    };
    let credits = cost(said.len());
    assert!(core.resources.take_tickets(1) && core.credits.take(1, credits));
    let hdr = AmHdr {
        source: 0,
        other: 0,
        credits: core.credits.of_request(1, credits, 0).encode(),
    };
    let to = core.am_target(1, bits.encode(), 0);
    let put = Put::new(core.descriptors.reqsb, to).region(u64::from(chunk), said.len() as u64);
    core.ni
        .post_put(put.hdr_data(hdr.encode()).silent())
        .unwrap();
    chunk
}

/// The job of two ranks of which the first one does this ends because of `why`, and runs no handler.
fn refused(what: impl Fn(&Conduit) + Sync, why: &str) {
    let ends = threads::run_in(2, &[], |conduit| {
        let ran = HandlerEntry::new(TAKE, |_, _, _| panic!("the handler ran"));
        conduit.attach(vec![ran], SEGMENT as usize).unwrap();
        if conduit.mynode() == 0 {
            what(conduit);
        }
        conduit.block_until(|| false);
    });
    let line = format!("rank 1 of 2: polling: malformed message from node 0: {why}");
    let said = |end: &RankEnd<()>| *end == RankEnd::Aborted(line.clone());
    assert!(ends.iter().all(said), "{ends:?}");
}

#[test]
fn a_payload_that_is_said_to_lie_outside_the_segment_is_refused() {
    for place in [[SEGMENT - 7, 8], [u64::MAX, 8], [0, u64::MAX]] {
        let said = place.map(u64::to_le_bytes);
        refused(
            |conduit| {
                send_long(conduit, true, None, said.as_flattened());
            },
            "its destination is not in the segment",
        );
    }
}

#[test]
fn a_message_too_short_to_say_where_its_payload_is_is_refused() {
    for len in [0, 8, 15] {
        refused(
            |conduit| {
                send_long(conduit, true, None, &[0; 15][..len]);
            },
            "it does not say where its payload is",
        );
    }
}

#[test]
fn the_header_of_a_long_twice_is_refused() {
    refused(
        |conduit| {
            let chunk = send_long(conduit, false, None, &[]);
            send_long(conduit, false, Some(chunk), &[]);
        },
        "the header of a Long twice",
    );
}

/// News of credits may be lost when this rank leaves, as the other one may have left before; at no other time, and no
/// other message at any.
#[test]
fn only_news_of_credits_and_only_of_a_rank_that_leaves_may_be_lost() {
    let revoke = SysMsg::CreditRevoke {
        epoch: false,
        sender: 0,
    };
    let give = SysMsg::CreditReturn {
        credits: 1,
        epoch: false,
        sender: 0,
    };
    let meet = SysMsg::Barrier {
        phase: 0,
        distance: 1,
        sender: 0,
    };
    let ends = threads::run_in(1, &[], |conduit| {
        conduit.attach(vec![], 0).unwrap();
        let mut core = conduit.core.borrow_mut();
        let mut lost = |message: SysMsg| {
            let (match_bits, hdr_data) = message.encode();
            let event = Brief {
                kind: EventKind::SendEnd,
                initiator: core.ranks.process(core.ranks.me()),
                user_ptr: Md::Sys.encode(),
                match_bits,
                hdr_data,
                ni_fail: NiFail::FAIL,
                ..Brief::default()
            };
            let before = core.handle(&event).is_ok();
            core.leaving.tell(0);
            let leaving = core.handle(&event).is_ok();
            core.leaving = Default::default();
            (before, leaving)
        };
        [revoke, give, meet].map(&mut lost)
    });
    let want = [(false, true), (false, true), (false, false)];
    assert_eq!(super::returned(ends), [want]);
}
