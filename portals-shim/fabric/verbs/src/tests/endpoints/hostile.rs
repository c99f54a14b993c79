//! What an endpoint does not believe.

use super::*;
use crate::handshake::{self, Card, Message, Refusal, Word};
use crate::link::NOWHERE;

fn bad_words(end: &End) -> u64 {
    end.library.nal.verbs.counters.bad_frames
}

/// Words with a token that is not the target's, or in the name of somebody else: none changes anything, and no table grows.
#[test]
fn device_words_of_strangers_change_nothing() {
    const WORDS: [Word; 8] = [
        Word::Connect,
        Word::Accept,
        Word::Ready,
        Word::Refuse(Refusal::Full),
        Word::Refuse(Refusal::Forgotten),
        Word::Bye { done: None },
        Word::Look,
        Word::Disconnect,
    ];
    let Some(mut ends) = ends(3) else { return };
    ends[0].connect(&ends[1]);
    ends[2].connect(&ends[1]);
    all_works(&mut ends, 0, 1);
    all_works(&mut ends, 2, 1);
    let [one, target, evil] = [0, 1, 2].map(|k: usize| ends[k].id());
    let verbs = &mut ends[2].library.nal.verbs;
    let index = verbs.index_of(target).unwrap();
    let (way, _) = verbs.peer(index).unwrap().session.way.clone().unwrap();
    let attempt = verbs.conn.attempts;
    let mut bad: Vec<Vec<u8>> = Vec::new();
    for word in WORDS {
        let good = verbs.datagram(index, word, attempt, NOWHERE);
        let mut say = |message: Message| {
            let whole = verbs.with_tail(index, &message.to_bytes()).unwrap();
            bad.push(whole.to_vec());
        };
        for bit in [0, 31, 63] {
            let token = good.token ^ 1 << bit;
            say(Message { token, ..good });
        }
        say(Message {
            to: one.nid,
            ..good
        });
        // No address of its own, which is the one in the book.
        for bit in [0, 63] {
            let token = good.card.token ^ 1 << bit;
            let card = Card { token, ..good.card };
            say(Message { card, ..good });
        }
        let whole = verbs.with_tail(index, &good.to_bytes()).unwrap();
        // A word of a rank, and all that is shorter.
        let ends = [1, handshake::BYTES, endpoint::WORD - 1];
        bad.extend(ends.map(|end| whole[..end].to_vec()));
        // Somebody else's name, the target's own, and names of nobody.
        for (nid, pid) in [
            (one.nid, one.pid),
            (target.nid, target.pid),
            (0, 7),
            (1 << 31, 7),
            (7, 0),
            (7, 0xffff),
        ] {
            let message = Message { from: nid, ..good };
            let mut named = verbs.with_tail(index, &message.to_bytes()).unwrap();
            named[handshake::BYTES..][..4].copy_from_slice(&pid.to_le_bytes());
            bad.push(named.to_vec());
        }
    }
    let before = (ends[1].peers(), bad_words(&ends[1]));
    for (number, bytes) in (1..).zip(&bad) {
        let verbs = &mut ends[2].library.nal.verbs;
        verbs.conn.mail.send(&way, bytes).unwrap();
        until(&mut ends, "a bad word is counted", |r| {
            bad_words(&r[1]) == before.1 + number
        });
    }
    assert_eq!(ends[1].peers(), before.0);
    assert!(ends[1].knows(one) && ends[1].knows(evil));
    all_works(&mut ends, 0, 1);
    all_works(&mut ends, 1, 2);
    close_all(ends);
}

/// Who has the token is unknown until it asks for a connection.
#[test]
fn device_only_a_request_makes_somebody_known() {
    let Some(mut ends) = ends(2) else { return };
    let [inbound, target] = [0, 1].map(|k: usize| ends[k].id());
    ends[0].connect(&ends[1]);
    let book = ends[0].library.nal.book().clone();
    let entry = book.entry(target).unwrap();
    let contact = endpoint::Contact::of(&entry.address).unwrap();
    let library = &mut ends[0].library;
    let verbs = &mut library.nal.verbs;
    let index = verbs.assign_index(&mut library.ni, target).unwrap();
    let way = verbs.conn.mail.resolve(&contact.address).unwrap();
    verbs.meet(index).unwrap().session.way = Some((way.clone(), contact.token));
    for word in [
        Word::Accept,
        Word::Ready,
        Word::Bye { done: None },
        Word::Look,
        Word::Disconnect,
    ] {
        let said = verbs.datagram(index, word, 1, NOWHERE).to_bytes();
        verbs.tell_peer(index, &said);
    }
    // It comes after the others, and is counted.
    let noise: &[u8] = b"noise";
    verbs.conn.mail.send(&way, noise).unwrap();
    until(&mut ends, "noise is counted", |r| bad_words(&r[1]) == 1);
    assert_eq!(ends[1].peers(), 0);
    assert!(!ends[1].knows(inbound));
    all_works(&mut ends, 0, 1);
    close_all(ends);
}
