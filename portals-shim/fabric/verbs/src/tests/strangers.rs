//! Datagrams of processes that are no members of the job, at the queue pair by which its members meet.

use super::hostile::{all_is_well, bad_frames};
use super::raw::{Raw, connect_all, raws, until};
use crate::handshake::{BYTES, Message, Refusal, Stage, Word};
use crate::link::NOWHERE;

/// Each word that could make, renew or end a connection, with a token that is not the target's; words for somebody else, and
/// noise. All are counted, and the connection stays.
#[test]
fn device_words_of_strangers_are_counted_and_change_nothing() {
    const WORDS: [Word; 8] = [
        Word::Connect,
        Word::Accept,
        Word::Ready,
        Word::Refuse(Refusal::Full),
        Word::Refuse(Refusal::GivenUp),
        Word::Bye { done: None },
        Word::Bye { done: Some(0) },
        Word::Look,
    ];
    let Some(mut raws) = raws(2, 4096) else {
        return;
    };
    connect_all(&mut raws);
    let address = raws[1].nal().conn.mail.address();
    let way = raws[0].nal().conn.mail.resolve(&address).unwrap();
    let attempt = raws[0].nal().conn.attempts;
    let qpn = |raws: &mut [Raw]| {
        let peer = raws[1].nal().peer(0).unwrap();
        (peer.session.stage(), peer.sq.qp().map(|qp| qp.qpn()))
    };
    let before = qpn(&mut raws);
    assert_eq!(before.0, Stage::Up);
    let mut bad: Vec<Vec<u8>> = Vec::new();
    for word in WORDS {
        let good = raws[0].nal().datagram(1, word, attempt, NOWHERE);
        for bit in [0, 31, 63] {
            let token = good.token ^ 1 << bit;
            bad.push(Message { token, ..good }.to_bytes().to_vec());
        }
        // The token is right, the rank is not.
        for (from, to) in [(0, 7), (1, 1)] {
            bad.push(Message { from, to, ..good }.to_bytes().to_vec());
        }
        let cut = good.to_bytes();
        bad.extend([1, 8, BYTES / 2, BYTES - 1].map(|end| cut[..end].to_vec()));
    }
    let mut noise = fastrand::Rng::with_seed(3);
    bad.extend((0..100).map(|_| (0..noise.usize(1..BYTES)).map(|_| noise.u8(..)).collect()));
    for (number, bytes) in (1..).zip(&bad) {
        raws[0].nal().conn.mail.send(&way, bytes).unwrap();
        until(&mut raws, "a bad word is counted", |r| {
            bad_frames(&r[1]) == number
        });
    }
    assert_eq!(qpn(&mut raws), before);
    all_is_well(&mut raws, &[(0, 1), (1, 0)]);
}
