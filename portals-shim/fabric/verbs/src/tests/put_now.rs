//! Puts that leave within their call, or not at all.

use super::raw::{Raw, adverts, close, connect_all, get_first, raws, settle, until};
use super::*;
use crate::proto::counts::Counts;
use fabric_api::call::{Answer, Call, RemoteKey};
use fabric_api::op::{Posted, Put};
use portals_core::{Error, MdDesc, Memory, Segment};

const LEN: usize = 1 << 16;

fn counts(raw: &Raw) -> Counts {
    raw.library.nal.counters.protocols
}

/// Two ranks; rank 1's descriptor with events is advertised to rank 0, whose memory is registered.
fn notifying() -> Option<Vec<Raw>> {
    let mut raws = raws(2, LEN)?;
    connect_all(&mut raws);
    let there = to(raws[1].id(), LOUD, 0);
    let mut puts = 0;
    while counts(&raws[0]).rma_write_send < 2 {
        puts += 1;
        raws[0].put(there, 4096, AckRequest::NoAck, 0);
        until(&mut raws, "it arrives", |r| {
            r[1].seen(EventKind::PutEnd, LOUD) == (puts, 0)
                && r[0].seen(EventKind::SendEnd, LOUD) == (puts, 0)
        });
        settle(&mut raws);
    }
    Some(raws)
}

/// A put that is declined has had no effect.
fn is_declined(raw: &mut Raw, mut put: Put<'_>, what: &str) {
    let before = counts(raw);
    let posted = raw.library.put(&mut put);
    assert_eq!(
        (posted, counts(raw)),
        (Ok(Posted::Declined), before),
        "{what}"
    );
}

/// A caller that takes its memory back after the call lends none of it to the adapter.
#[test]
fn device_only_memory_that_may_be_read_after_the_call_is_lent() {
    let Some(mut raws) = notifying() else { return };
    let (source, there) = (raws[0].source, to(raws[1].id(), LOUD, 0));
    let put = || Put::new(source, there).region(0, 4096);
    is_declined(&mut raws[0], put().at_once().silent(), "at once");
    let mut calls = 0;
    let mut pack = |_: &mut [u8]| calls += 1;
    is_declined(&mut raws[0], put().silent().pack(&mut pack), "packed");
    assert_eq!(calls, 0);
    let before = counts(&raws[0]).rma_write_send;
    assert_eq!(raws[0].library.put(&mut put()), Ok(Posted::Begun));
    assert_eq!(counts(&raws[0]).rma_write_send, before + 1);
    close(raws);
}

/// The adapter does not read one request from several places: such a put is copied into its frame within the call.
#[test]
fn device_memory_in_pieces_leaves_in_a_frame() {
    let Some(mut raws) = notifying() else { return };
    let there = to(raws[1].id(), LOUD, 0);
    let bytes = pattern(LEN, 5);
    raws[0].work.write(0, &bytes).unwrap();
    let at = raws[0].work.addr();
    let pieces = [at, at + 8192].map(|addr| Segment { addr, len: 2048 });
    let desc = MdDesc {
        memory: Memory::Iovec {
            start: 0,
            segments: pieces.to_vec(),
        },
        threshold: -1,
        max_size: 0,
        options: MdOptions::IOVEC,
        user_ptr: 0,
        eq: None,
    };
    let unlink = Unlink::Retain;
    let bound = raws[0].library.execute(Call::MdBind { desc, unlink });
    let Ok(Answer::Md(source)) = bound else {
        panic!("{bound:?}");
    };
    let before = counts(&raws[0]);
    let mut put = Put::new(source, there).at_once().silent();
    assert_eq!(raws[0].library.put(&mut put), Ok(Posted::Taken));
    let eager = before.eager + 1;
    assert_eq!(counts(&raws[0]), Counts { eager, ..before });
    settle(&mut raws);
    let mut seen = [0; 4096];
    raws[1].loud.read(0, &mut seen).unwrap();
    assert!(seen[..2048] == bytes[..2048] && seen[2048..] == bytes[8192..8192 + 2048]);
    close(raws);
}

/// Whoever puts by a key counts on the adapter: what it does not write now goes in no frame in its place.
#[test]
fn device_a_put_by_key_leaves_in_no_frame() {
    let Some(mut raws) = raws(2, LEN) else { return };
    connect_all(&mut raws);
    get_first(&mut raws, 1);
    let open = adverts(&raws[0]).iter().find(|a| a.match_bits == QUIET);
    let open = open.unwrap();
    let key = RemoteKey {
        base: open.start.address,
        len: open.length,
        rkey: open.start.rkey,
    };
    let (source, peer) = (raws[0].source, raws[1].id());
    let put = || Put::new(source, to(peer, QUIET, 0)).region(0, 8).key(&key);
    raws[0].put(to(peer, LOUD, 0), 8, AckRequest::NoAck, 0);
    is_declined(&mut raws[0], put().at_once().silent(), "behind a frame");
    let mut calls = 0;
    let mut pack = |_: &mut [u8]| calls += 1;
    is_declined(&mut raws[0], put().silent().pack(&mut pack), "packed");
    settle(&mut raws);
    let mut pack = |_: &mut [u8]| calls += 1;
    is_declined(&mut raws[0], put().silent().pack(&mut pack), "packed");
    assert_eq!(calls, 0);
    let before = counts(&raws[0]);
    // Whatever the portal: nothing of this one is advertised.
    let there = Target {
        pt_index: 5,
        ..to(peer, QUIET, 0)
    };
    let put = Put::new(source, there).region(0, 8).key(&key);
    let posted = raws[0].library.put(&mut put.at_once().silent());
    assert_eq!(posted, Ok(Posted::Taken));
    let rma_write = before.rma_write + 1;
    assert_eq!(
        counts(&raws[0]),
        Counts {
            rma_write,
            ..before
        }
    );
    close(raws);
}

/// An operation that cannot be recorded has had no effect.
#[test]
fn device_nothing_is_written_for_an_operation_without_a_record() {
    let Some(mut raws) = notifying() else { return };
    let (source, peer) = (raws[0].source, raws[1].id());
    let put = |bits| Put::new(source, to(peer, bits, 0)).region(0, 4096);
    let ni = &mut raws[0].library.ni;
    let ack = AckRequest::NoAck;
    let ready = ni.ready_put(source, Some((0, 8)), ack, peer, 4, 0, LOUD, 0, 0);
    let ready = ready.unwrap();
    while ni.has_room() {
        ni.begin_lent(&ready).unwrap();
    }
    let before = counts(&raws[0]);
    let posted = raws[0].library.put(&mut put(LOUD));
    assert_eq!((posted, counts(&raws[0])), (Err(Error::NoSpace), before));
    is_declined(&mut raws[0], put(QUIET).relaxed(), "relaxed");
    close(raws);
}

/// An ack would say that the data is in place, which the end of a put of relaxed order does not.
#[test]
fn device_no_ack_is_promised_in_relaxed_order() {
    let Some(mut raws) = raws(2, LEN) else { return };
    connect_all(&mut raws);
    get_first(&mut raws, 1);
    let there = to(raws[1].id(), QUIET, 0);
    let put = Put::new(raws[0].source, there).region(0, 64).relaxed();
    is_declined(&mut raws[0], put.ack(AckRequest::Ack), "acknowledged");
    close(raws);
}

/// The adapters write where a target refuses to acknowledge, and no ack is made in its name.
#[test]
fn device_a_put_where_no_ack_is_sent_has_none() {
    const UNACKED: u64 = 9;
    let Some(mut raws) = raws(2, LEN) else { return };
    connect_all(&mut raws);
    let memory = raws[1].quiet.clone();
    let options = MdOptions::OP_PUT | MdOptions::ACK_DISABLE;
    raws[1].attach_for(UNACKED, options, &memory);
    until(&mut raws, "it is advertised", |r| {
        adverts(&r[0]).iter().any(|a| a.match_bits == UNACKED)
    });
    let (source, there) = (raws[0].source, to(raws[1].id(), UNACKED, 0));
    let before = counts(&raws[0]).rma_write;
    // The first of each length registers its memory, or begins behind what was sent before.
    for (ended, len) in (1..).zip([8, 8, 5000, 5000]) {
        settle(&mut raws);
        raws[0].put(there, len, AckRequest::Ack, 0);
        until(&mut raws, "it has left", |r| {
            r[0].seen(EventKind::SendEnd, UNACKED) == (ended, 0)
        });
    }
    settle(&mut raws);
    let put = Put::new(source, there).region(0, 8).ack(AckRequest::Ack);
    let posted = raws[0].library.put_awaited(&mut put.wait(), 1 << 20);
    // Not done, as no ack says so.
    assert_eq!(posted, Ok(Posted::Taken));
    settle(&mut raws);
    assert!(counts(&raws[0]).rma_write >= before + 4);
    assert_eq!(raws[0].seen(EventKind::Ack, UNACKED), (0, 0));
    close(raws);
}
