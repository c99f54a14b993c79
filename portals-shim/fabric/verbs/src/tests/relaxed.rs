//! A write of relaxed order and the message behind it.

use super::raw::{Raw, close, connect_all, raws, until};
use super::*;
use fabric_api::op::{Posted, Put};

const LEN: usize = 1 << 20;

/// Writes `len` bytes of the own memory to the start of rank 1's, in relaxed order.
fn rma_write_relaxed(raws: &mut [Raw], len: u64) {
    let there = to(raws[1].id(), QUIET, 0);
    let (library, source) = (&mut raws[0].library, raws[0].source);
    let before = library.nal.counters.protocols.rma_write;
    let mut put = Put::new(source, there).region(0, len).relaxed();
    assert_eq!(library.put(&mut put), Ok(Posted::Begun));
    assert_eq!(library.nal.counters.protocols.rma_write, before + 1);
}

fn message(raws: &mut [Raw], len: u64, number: u64) {
    let there = to(raws[1].id(), LOUD, 0);
    raws[0].put(there, len, AckRequest::NoAck, number);
}

fn doorbells(raws: &mut [Raw]) -> u64 {
    let peer = raws[0].nal().peer(1).expect("a peer");
    peer.sq.qp().expect("a link").posts()
}

/// Rank 1 has had `number` messages, and has the bytes.
fn arrives(raws: &mut [Raw], number: usize, bytes: &[u8]) {
    until(raws, "the message arrives", |r| {
        r[1].seen(EventKind::PutEnd, LOUD) == (number, 0)
    });
    let mut seen = vec![0; bytes.len()];
    raws[1].quiet.read(0, &mut seen).unwrap();
    assert!(
        seen == bytes,
        "{} bytes differ when the message is there",
        bytes.len()
    );
}

fn connected() -> Option<Vec<Raw>> {
    let mut raws = raws(2, LEN)?;
    connect_all(&mut raws);
    until(&mut raws, "memory is advertised", |r| {
        let peer = r[0].library.nal.peers.get(1);
        peer.is_some_and(|p| p.is_settled() && !p.adverts.of(4).is_empty())
    });
    Some(raws)
}

/// One doorbell for both, whether either is copied by the post or not; and the memory is free when both have left.
#[test]
fn device_a_write_and_its_message_take_one_doorbell() {
    let Some(mut raws) = connected() else { return };
    let mut number = 0;
    // Either side of what is copied by a post, and more than one packet.
    for len in [1u64, 8, 200, 256, 257, 1984, 4096, 70_000, LEN as u64] {
        for words in [0, 8, 100, 1000] {
            number += 1;
            let bytes = pattern(len as usize, number);
            raws[0].work.write(0, &bytes).unwrap();
            let before = doorbells(&mut raws);
            rma_write_relaxed(&mut raws, len);
            message(&mut raws, words, number as u64);
            assert_eq!(doorbells(&mut raws) - before, 1, "{len} and {words} bytes");
            arrives(&mut raws, number, &bytes);
            until(&mut raws, "its memory is free", |r| {
                r[0].seen(EventKind::SendEnd, QUIET) == (number, 0)
                    && r[0].seen(EventKind::SendEnd, LOUD) == (number, 0)
            });
        }
    }
    close(raws);
}

/// A write that nothing follows leaves in the next poll; one that another write or a put follows leaves before it.
#[test]
fn device_a_write_that_nothing_tells_of_leaves_too() {
    let Some(mut raws) = connected() else { return };
    let bytes = pattern(5000, 1);
    raws[0].work.write(0, &bytes).unwrap();
    rma_write_relaxed(&mut raws, 5000);
    until(&mut raws, "it has left", |r| {
        r[0].seen(EventKind::SendEnd, QUIET) == (1, 0)
    });
    arrives(&mut raws, 0, &bytes);
    for turn in 0..3 {
        rma_write_relaxed(&mut raws, 100 + turn);
        // Copied by the post.
        let there = to(raws[1].id(), QUIET, 9000);
        raws[0].put(there, 8, AckRequest::Ack, 0);
        rma_write_relaxed(&mut raws, 300 + turn);
        rma_write_relaxed(&mut raws, 5000);
        // Not copied by it.
        let there = to(raws[1].id(), QUIET, 9000);
        raws[0].put(there, 1000, AckRequest::Ack, 0);
        let turn = turn as usize + 1;
        until(&mut raws, "all are done", |r| {
            r[0].seen(EventKind::Ack, QUIET) == (2 * turn, 0)
                && r[0].seen(EventKind::SendEnd, QUIET) == (1 + 5 * turn, 0)
        });
    }
    close(raws);
}

/// More of them than the send queue takes, with no poll between: those that find no room wait, in order.
#[test]
fn device_writes_and_messages_beyond_the_send_queue_arrive_in_order() {
    let Some(mut raws) = connected() else { return };
    let bytes = pattern(3000, 9);
    raws[0].work.write(0, &bytes).unwrap();
    for number in 0..1000 {
        rma_write_relaxed(&mut raws, 2000 + number);
        message(&mut raws, 8, number);
    }
    arrives(&mut raws, 1000, &bytes[..2999]);
    let loud = raws[1].events.iter();
    let numbers: Vec<u64> = loud
        .filter(|e| e.kind == EventKind::PutEnd && e.match_bits == LOUD)
        .map(|e| e.hdr_data)
        .collect();
    assert!(numbers.iter().copied().eq(0..1000));
    until(&mut raws, "all memory is free", |r| {
        r[0].seen(EventKind::SendEnd, QUIET) == (1000, 0)
            && r[0].seen(EventKind::SendEnd, LOUD) == (1000, 0)
    });
    close(raws);
}

/// The connection breaks with pairs under way and one write kept back: each is there, once, when its message is.
#[test]
fn device_writes_and_messages_survive_a_broken_connection() {
    let Some(mut raws) = connected() else { return };
    let mut number = 0;
    for round in 0..10 {
        let bytes = pattern(20_000, round);
        raws[0].work.write(0, &bytes).unwrap();
        for _ in 0..5 {
            number += 1;
            rma_write_relaxed(&mut raws, 20_000);
            message(&mut raws, 8, number);
        }
        let kept = round % 2 == 0;
        if kept {
            rma_write_relaxed(&mut raws, 10_000);
        }
        let peer = raws[0].nal().peer(1).unwrap();
        peer.sq.qp().unwrap().to_error().unwrap();
        if round % 4 == 0 {
            // It is known to be broken before the write has left.
            until(&mut raws, "it is seen", |r| {
                r[0].library.nal.peers.get(1).is_some_and(|p| !p.is_open())
            });
        }
        if kept {
            number += 1;
            message(&mut raws, 8, number);
        }
        arrives(&mut raws, number as usize, &bytes);
        let writes = 5 * (round + 1) + round / 2 + 1;
        until(&mut raws, "all memory is free", |r| {
            r[0].seen(EventKind::SendEnd, QUIET) == (writes, 0)
        });
        // Mended before the next one breaks.
        until(&mut raws, "it is mended", |r| {
            let peer = r[0].library.nal.peers.get(1);
            peer.is_some_and(|p| p.is_open() && !p.adverts.of(4).is_empty())
        });
    }
    close(raws);
}

/// The bytes of a message are written where it is sent from: its region is not read, there is one doorbell with a write
/// before it, and what finds no room is left to its caller.
#[test]
fn device_messages_are_made_where_they_are_sent_from() {
    let Some(mut raws) = connected() else { return };
    let (source, there) = (raws[0].source, to(raws[1].id(), BELL, 0));
    let loud = to(raws[1].id(), LOUD, 0);
    raws[0].work.fill(0, LEN, 0xEE).unwrap();
    let mut number = 0;
    // Until the peer says that the message before is done, one might overtake it.
    raws[0].put(there, 0, AckRequest::NoAck, 0);
    for len in [1usize, 16, 150, 255, 256, 300, 2048] {
        for relaxed in [false, true] {
            number += 1;
            let bytes = pattern(len, number);
            raws[0].put(there, 0, AckRequest::NoAck, 0);
            let before = doorbells(&mut raws);
            if relaxed {
                rma_write_relaxed(&mut raws, 5000);
            }
            let mut fill = |room: &mut [u8]| room.copy_from_slice(&bytes);
            let library = &mut raws[0].library;
            let put = Put::new(source, loud).region(0, len as u64).hdr_data(7);
            let posted = library.put(&mut put.silent().pack(&mut fill));
            assert_eq!(posted, Ok(Posted::Taken), "{len}");
            assert_eq!(doorbells(&mut raws) - before, 1);
            until(&mut raws, "it arrives", |r| {
                r[1].seen(EventKind::PutEnd, LOUD) == (number, 0)
            });
            let mut seen = vec![0; len];
            raws[1].loud.read(0, &mut seen).unwrap();
            assert!(seen == bytes, "{len} bytes");
        }
    }
    assert_eq!(raws[0].seen(EventKind::SendEnd, LOUD).0, 0);
    // Without a poll the peer's slots are soon full.
    let mut took = 0;
    let put = || Put::new(source, loud).region(0, 8).hdr_data(8).silent();
    let library = &mut raws[0].library;
    while library.put(&mut put().pack(&mut |room| room.fill(1))) == Ok(Posted::Taken) {
        took += 1;
    }
    let mut calls = 0;
    let declined = library.put(&mut put().pack(&mut |_| calls += 1));
    assert_eq!((declined, calls), (Ok(Posted::Declined), 0));
    until(&mut raws, "those that were taken arrive", |r| {
        r[1].seen(EventKind::PutEnd, LOUD) == (number + took, 0)
    });
    close(raws);
}
