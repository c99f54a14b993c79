//! What the table of protocols says is what goes over a connection.

use super::raw::{LOOKS, Raw, adverts, close, connect_all, raws, until};
use super::*;
use crate::proto::counts::Counts;
use crate::protocols::protocols;
use fabric_api::config::Channel;
use fabric_api::protocol::{Operation, Protocol, Reached, VARIABLE};
use std::process::Command;

const LEN: usize = 1 << 16;

/// Rendezvous whose ATS has not come.
fn unread_rts(raw: &Raw) -> usize {
    raw.library.nal.rndv_sends.iter().count()
}

/// The protocols that have carried something since then.
fn carried(raw: &Raw, before: Counts) -> Vec<&'static str> {
    let now = raw.library.nal.counters.protocols.each();
    let both = now.into_iter().zip(before.each());
    both.filter(|(now, before)| now != before)
        .map(|(now, _)| now.0)
        .collect()
}

/// Whether rank 1 advertises a descriptor with these bits to rank 0.
fn is_advertised(raws: &[Raw], bits: u64) -> bool {
    adverts(&raws[0]).iter().any(|a| a.match_bits == bits)
}

/// How rank 1 answers a get that was sent to it.
fn answer(raws: &mut [Raw], bits: u64) -> &'static str {
    let ends = raws[1].seen(EventKind::GetEnd, bits).0;
    for _ in 0..LOOKS {
        raws[1].step();
        if unread_rts(&raws[1]) > 0 {
            return "rndv read";
        }
        if raws[1].seen(EventKind::GetEnd, bits).0 > ends {
            return "eager";
        }
    }
    panic!("no answer")
}

/// Operations on a row's shortest and longest data.
fn lengths(raws: &mut [Raw], row: &Protocol) {
    let bits = match row.reached {
        Reached::Direct => QUIET,
        Reached::Notified | Reached::Matched => LOUD,
    };
    // Short data goes by a ring or a send, as the peer polls; a short get by message or RDMA READ, as was quicker.
    let alike = |name: &str| match name {
        "eager ring" | "eager send" => "eager".to_owned(),
        "get by active message" => "rma read".to_owned(),
        other => other.to_owned(),
    };
    for len in [row.from, row.to.unwrap_or(row.from + 1)] {
        let there = to(raws[1].id(), bits, 0);
        let before = raws[0].library.nal.counters.protocols;
        let unread = unread_rts(&raws[0]);
        let last = match row.operation {
            Operation::Put => EventKind::Ack,
            Operation::Get => EventKind::ReplyEnd,
        };
        let ended = raws[0].seen(last, bits).0;
        match row.operation {
            Operation::Put => raws[0].put(there, len, AckRequest::Ack, 0),
            Operation::Get => raws[0].get(there, len),
        }
        let carried = carried(&raws[0], before);
        let name = match (row.operation, carried.as_slice()) {
            // Of nothing the owner has no event.
            (Operation::Get, ["eager"]) if bits != QUIET => answer(raws, bits),
            (_, [name]) => *name,
            (_, other) => panic!("{len} bytes of {row:?}: {other:?}"),
        };
        let long = usize::from(row.operation == Operation::Put && name == "rndv read");
        assert_eq!(unread_rts(&raws[0]), unread + long);
        assert_eq!(name, alike(row.name), "{len} bytes of {row:?}");
        until(raws, "its end", |r| r[0].seen(last, bits) == (ended + 1, 0));
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
        |r| is_advertised(r, QUIET),
    );
    let rows = |reached| table.rows.iter().filter(move |row| row.reached == reached);
    for row in rows(Reached::Direct).chain(rows(Reached::Matched)) {
        lengths(&mut raws, row);
    }
    let there = to(raws[1].id(), LOUD, 0);
    for _ in 0..8 {
        raws[0].put(there, 4096, AckRequest::NoAck, 0);
    }
    until(&mut raws, "the one with events is advertised", |r| {
        is_advertised(r, LOUD)
    });
    for row in rows(Reached::Notified) {
        lengths(&mut raws, row);
    }
    close(raws);
}

/// Rank 0 of the two says it, once, and only to users that want it.
#[test]
fn device_the_first_rank_says_at_its_close_what_each_protocol_has_carried() {
    if device().is_none() {
        return;
    }
    for (value, lines) in [("1", 1), ("0", 0), ("", 0)] {
        let mut job = Command::new(std::env::current_exe().unwrap());
        job.args([
            "--exact",
            "tests::protocols::device_lengths_go_as_the_table_says",
        ]);
        let output = job.env(VARIABLE, value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let of_each = said
            .lines()
            .filter_map(|l| l.split_once("verbs, carried by: "));
        let of_each: Vec<&str> = of_each.map(|(_, counts)| counts).collect();
        assert_eq!(of_each.len(), lines, "{value:?}: {said}");
        for counts in of_each {
            let carried = counts.split("; ").filter(|c| !c.ends_with(" 0"));
            assert!(carried.count() >= 5, "{counts}");
        }
    }
}
