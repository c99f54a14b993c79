//! Peers that ask and give no credits for the answers.

use super::hostile::all_is_well;
use super::raw::{Raw, close, connect_all, frame, raws, until};
use super::*;
use crate::frame::Kind;
use portals_core::{Body, Header, MdHandle};

const MISER: usize = 0;
const TARGET: usize = 1;
const OTHER: usize = 2;

/// Steps in which nothing may be said, after which nothing will be.
const STALLED: u32 = 2_000;

/// A get of the target's memory.
fn get(raws: &[Raw]) -> Vec<u8> {
    let put = raws[MISER].header(raws[TARGET].id(), LOUD, 8, 0);
    let body = Body::Get {
        length: 8,
        remote_offset: 0,
        ac_index: 0,
        reply_md: MdHandle::from_raw(0),
        reply_offset: 0,
    };
    let header = Header { body, ..put };
    frame(Kind::Message, |w| w.header(&header, 0))
}

fn may_say(raws: &mut [Raw]) -> bool {
    let peer = raws[MISER].nal().peer(TARGET);
    peer.is_some_and(|peer| peer.sq.may_say())
}

fn answers_waiting(raws: &[Raw]) -> usize {
    let peer = raws[TARGET].library.nal.peers.get(MISER);
    peer.map_or(0, |peer| peer.sq.answers_waiting())
}

/// The miser asks as long as it has credits and gives none back; how often it asked.
fn ask_until_stalled(raws: &mut [Raw]) -> usize {
    let get = get(raws);
    if let Some(peer) = raws[MISER].nal().peer(TARGET) {
        peer.sq.keep_credits(true);
    }
    let (mut asked, mut stalled) = (0, 0);
    while stalled < STALLED {
        stalled += 1;
        while may_say(raws) {
            raws[MISER].say(TARGET, &get);
            (asked, stalled) = (asked + 1, 0);
        }
        assert!(asked < 100_000, "it may ask for ever");
        raws.iter_mut().for_each(Raw::step);
    }
    asked
}

/// What is owed to such a peer is bounded, others notice nothing, and once it gives credits all that it asked for is answered.
#[test]
fn device_a_peer_that_gives_no_credits_is_not_owed_ever_more() {
    let Some(mut raws) = raws(3, 8192) else {
        return;
    };
    connect_all(&mut raws);
    let lent = raws[TARGET].nal().peer(MISER).map(|peer| peer.sq.slots());
    let lent = usize::from(lent.unwrap());
    let asked = ask_until_stalled(&mut raws);
    let waiting = answers_waiting(&raws);
    println!("{asked} gets, {waiting} answers wait, {lent} slots");
    assert!((8 * lent..=10 * lent).contains(&waiting), "{waiting} wait");
    let taken = raws[TARGET].seen(EventKind::GetEnd, LOUD);
    assert_eq!(taken, (asked, 0), "each is taken once");
    all_is_well(&mut raws, &[(OTHER, TARGET), (TARGET, OTHER)]);
    if let Some(peer) = raws[MISER].nal().peer(TARGET) {
        peer.sq.keep_credits(false);
    }
    until(&mut raws, "all answers leave", |r| answers_waiting(r) == 0);
    all_is_well(&mut raws, &[(MISER, TARGET), (TARGET, MISER)]);
    close(raws);
}

/// One that asks without a credit even so is given up.
#[test]
fn device_a_peer_that_does_not_count_is_given_up_when_it_is_owed_too_much() {
    let Some(mut raws) = raws(3, 8192) else {
        return;
    };
    connect_all(&mut raws);
    ask_until_stalled(&mut raws);
    let get = get(&raws);
    raws[MISER].say(TARGET, &get);
    let failed = |r: &[Raw]| {
        let peer = r[TARGET].library.nal.peers.get(MISER);
        peer.is_some_and(crate::peer::Peer::is_failed)
    };
    until(&mut raws, "the target gives it up", failed);
    assert_eq!(answers_waiting(&raws), 0);
    all_is_well(&mut raws, &[(OTHER, TARGET), (TARGET, OTHER)]);
    close(raws);
}
