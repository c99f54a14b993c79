//! What the table of protocols says is what goes over a connection.

use super::raw::{Raw, close, connect_all, raws, until};
use super::*;
use crate::protocols::protocols;
use fabric_api::config::Channel;
use fabric_api::protocol::{Operation, Protocol, Reached};

const LEN: usize = 1 << 16;

/// Operations by the adapters alone, by messages, by both, and announcements that the peer has not answered.
fn counts(raw: &Raw) -> (u64, u64, u64, usize) {
    let nal = &raw.library.nal;
    let paths = nal.counters.paths;
    let announced = nal.announced.iter().count();
    (paths.one_sided, paths.two_sided, paths.written, announced)
}

/// Whether rank 0 is told of a descriptor of rank 1 with these bits.
fn is_told(raw: &Raw, bits: u64) -> bool {
    let peer = raw.library.nal.peers[1].as_deref();
    peer.is_some_and(|p| p.adverts.of(4).iter().any(|a| a.match_bits == bits))
}

/// Puts of a row's shortest and longest data.
fn lengths(raws: &mut [Raw], row: &Protocol) {
    let bits = match row.reached {
        Reached::Direct => QUIET,
        Reached::Told | Reached::Matched => LOUD,
    };
    for len in [row.from, row.to.unwrap_or(row.from + 1)] {
        let acks = |raw: &Raw| raw.seen(EventKind::Ack, bits);
        let (before, acked) = (counts(&raws[0]), acks(&raws[0]).0);
        let there = to(raws[1].id(), bits, 0);
        raws[0].put(there, len, AckRequest::Ack, 0);
        let after = counts(&raws[0]);
        let name = match (after.0 - before.0, after.2 - before.2, after.3 - before.3) {
            (1, 0, 0) => "rma write",
            (0, 1, 0) => "rma write, send",
            (0, 0, 1) => "rndv read",
            (0, 0, 0) if after.1 == before.1 + 1 => "eager",
            other => panic!("{len} bytes of {row:?}: {other:?}"),
        };
        let said = row
            .name
            .split_once(' ')
            .filter(|(first, _)| *first == "eager");
        let said = said.map_or(row.name, |(first, _)| first);
        assert_eq!(name, said, "{len} bytes of {row:?}");
        until(raws, "the ack", |r| acks(&r[0]) == (acked + 1, 0));
    }
}

#[test]
fn device_lengths_go_as_the_table_says() {
    let Some(mut raws) = raws(2, LEN) else { return };
    connect_all(&mut raws);
    let table = protocols(device().as_deref(), Channel::Rc)
        .unwrap()
        .remove(0);
    until(
        &mut raws,
        "the descriptor without events is advertised",
        |r| is_told(&r[0], QUIET),
    );
    let rows = |reached| {
        let rows = table.rows.iter().filter(move |row| row.reached == reached);
        rows.filter(|row| row.operation == Operation::Put)
    };
    for row in rows(Reached::Direct).chain(rows(Reached::Matched)) {
        lengths(&mut raws, row);
    }
    let there = to(raws[1].id(), LOUD, 0);
    for _ in 0..8 {
        raws[0].put(there, 4096, AckRequest::NoAck, 0);
    }
    until(&mut raws, "the one with events is told of", |r| {
        is_told(&r[0], LOUD)
    });
    for row in rows(Reached::Told) {
        lengths(&mut raws, row);
    }
    close(raws);
}
