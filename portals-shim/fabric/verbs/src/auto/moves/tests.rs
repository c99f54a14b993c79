//! The rules one by one; `explore.rs` plays all of them together.

mod explore;
mod many;

use super::*;

const RULES: Rules = Rules {
    chatty: 3,
    window: 100,
    budget: 2,
    repeat: 50,
};

fn moves(own: usize) -> Moves {
    Moves::new(own, 5, RULES)
}

/// Whether a request makes a peer one to offer a connection to.
fn wants(m: &mut Moves, rank: usize, now: Time, long: bool) -> bool {
    m.count(rank, now, long);
    let next = m.next_wanted();
    assert!(next.is_none_or(|next| next == rank) && !m.has_wanted());
    next.is_some()
}

/// One that has offered to `rank`.
fn offering(own: usize, rank: usize) -> Moves {
    let mut m = moves(own);
    assert!(wants(&mut m, rank, 1, true));
    assert_eq!(m.offer(rank, true), Some(Word::Offer));
    m
}

#[test]
fn a_peer_is_chatty_by_many_requests_in_a_window_or_by_a_long_one() {
    let mut m = moves(0);
    assert!(!wants(&mut m, 1, 1000, false) && !wants(&mut m, 1, 1050, false));
    // The window is over: these two do not count any more.
    assert!(!wants(&mut m, 1, 1101, false) && !wants(&mut m, 1, 1102, false));
    assert!(!wants(&mut m, 2, 1102, false), "each peer is counted alone");
    assert!(wants(&mut m, 1, 1103, false));
    assert!(wants(&mut m, 3, 1103, true));
    assert!(!wants(&mut m, 0, 1103, true) && !wants(&mut m, 9, 1103, true));
}

#[test]
fn what_is_wanted_is_looked_at_again_when_its_turn_comes() {
    let mut m = Moves::new(0, 5, Rules { budget: 1, ..RULES });
    m.count(1, 1, true);
    m.count(2, 1, true);
    m.count(2, 1, true);
    let first = m.next_wanted().expect("one");
    assert_eq!(m.offer(first, true), Some(Word::Offer));
    // The only connection has been offered.
    assert_eq!((m.next_wanted(), m.counts().stayed), (None, 1));
    // A peer that has offered itself meanwhile needs no offer.
    let mut m = moves(0);
    m.count(1, 1, true);
    assert_eq!(m.handle(1, Word::Offer, 1), Todo::Prepare);
    assert_eq!(m.answer(1, true, 1), Some(Word::Agree));
    assert_eq!(m.next_wanted(), None);
}

#[test]
fn a_move_holds_requests_back_from_the_last_to_the_first() {
    let (mut a, mut b) = (offering(0, 1), moves(1));
    assert_eq!((a.way(1), b.way(0)), (Way::Datagrams, Way::Datagrams));
    assert_eq!(b.handle(0, Word::Offer, 1), Todo::Prepare);
    assert_eq!(b.answer(0, true, 1), Some(Word::Agree));
    assert_eq!((a.way(1), b.way(0)), (Way::Datagrams, Way::Waits));
    assert_eq!(a.handle(1, Word::Agree, 1), Todo::Say(Word::Last));
    assert_eq!((a.way(1), b.way(0)), (Way::Waits, Way::Waits));
    assert_eq!(b.handle(0, Word::Last, 1), Todo::Say(Word::Done));
    assert_eq!(b.way(0), Way::Waits);
    assert_eq!(a.handle(1, Word::Done, 1), Todo::Connect);
    assert!(b.arrived(0) && !b.arrived(0));
    assert_eq!((a.way(1), b.way(0)), (Way::Connection, Way::Connection));
    for m in [a, b] {
        let expected = Counts {
            connected: 1,
            moved: 1,
            ..Counts::default()
        };
        assert_eq!(m.counts(), expected);
    }
}

#[test]
fn of_two_offers_that_cross_the_lower_ranks_counts() {
    let (mut a, mut b) = (offering(0, 1), offering(1, 0));
    assert_eq!(a.handle(1, Word::Offer, 1), Todo::Nothing);
    assert_eq!(b.handle(0, Word::Offer, 1), Todo::Say(Word::Agree));
    assert_eq!(a.handle(1, Word::Agree, 1), Todo::Say(Word::Last));
    assert_eq!((a.used, b.used), (1, 1));
}

#[test]
fn the_budget_bounds_what_is_offered_and_agreed_to() {
    let mut m = offering(0, 1);
    assert_eq!(m.handle(2, Word::Offer, 1), Todo::Prepare);
    assert_eq!(m.answer(2, true, 1), Some(Word::Agree));
    assert!(!wants(&mut m, 3, 1, true) && !wants(&mut m, 3, 1, true));
    assert_eq!(m.handle(3, Word::Offer, 1), Todo::Say(Word::Decline));
    assert_eq!((m.counts().stayed, m.counts().declined), (1, 1));
    // A peer that is gone needs none.
    m.gone(2);
    m.gone(2);
    assert!(wants(&mut m, 3, 1, true));
    m.gone(1);
    assert_eq!(m.used, 0);
}

#[test]
fn a_peer_that_declines_is_not_asked_again_and_may_offer() {
    let mut m = offering(0, 1);
    assert_eq!(m.handle(1, Word::Decline, 1), Todo::Discard);
    assert_eq!((m.way(1), m.used), (Way::Datagrams, 0));
    assert!(!wants(&mut m, 1, 1, true));
    assert_eq!(m.counts().stayed, 1);
    assert_eq!(m.handle(1, Word::Offer, 1), Todo::Prepare);
    assert_eq!(m.answer(1, true, 1), Some(Word::Agree));
}

#[test]
fn what_the_device_cannot_do_is_not_tried_with_every_message() {
    let mut m = moves(0);
    assert!(wants(&mut m, 1, 1, true));
    assert_eq!(m.offer(1, false), None);
    assert!(!wants(&mut m, 1, 1, true));
    assert_eq!(m.handle(2, Word::Offer, 1), Todo::Prepare);
    assert_eq!(m.answer(2, false, 1), Some(Word::Decline));
    assert_eq!((m.used, m.way(2)), (0, Way::Datagrams));
}

#[test]
fn who_waits_repeats_its_word_until_it_is_answered() {
    let (mut a, mut b) = (offering(0, 1), moves(1));
    assert_eq!(a.next_timeout(), None);
    assert_eq!(b.handle(0, Word::Offer, 10), Todo::Prepare);
    assert_eq!(b.answer(0, true, 10), Some(Word::Agree));
    assert_eq!(b.next_timeout(), Some(60));
    assert_eq!(b.handle_timeout(59), None);
    assert_eq!(b.handle_timeout(60), Some((0, Word::Agree)));
    assert_eq!(b.handle_timeout(60), None);
    assert_eq!(b.next_timeout(), Some(110));
    a.handle(1, Word::Agree, 70);
    assert_eq!(a.handle(1, Word::Agree, 71), Todo::Nothing);
    assert_eq!(a.handle_timeout(120), Some((1, Word::Last)));
    b.handle(0, Word::Last, 120);
    assert_eq!(b.handle(0, Word::Last, 120), Todo::Nothing);
    assert_eq!(b.next_timeout(), None);
    a.handle(1, Word::Done, 120);
    assert_eq!((a.next_timeout(), a.counts().odd), (None, 0));
}

#[test]
fn a_close_lets_moves_end_and_begins_none() {
    let mut m = offering(0, 1);
    m.close();
    assert!(!wants(&mut m, 2, 1, true));
    assert_eq!(m.handle(2, Word::Offer, 1), Todo::Say(Word::Decline));
    assert_eq!(m.handle(1, Word::Agree, 1), Todo::Say(Word::Last));
    assert_eq!(m.handle(1, Word::Done, 1), Todo::Connect);
}

#[test]
fn words_that_cannot_be_meant_change_nothing_and_are_counted() {
    let fresh = moves(0);
    for word in [Word::Agree, Word::Decline, Word::Last, Word::Done] {
        let mut m = fresh.clone();
        assert_eq!(m.handle(1, word, 1), Todo::Nothing);
        assert_eq!(m.counts().odd, 1, "{word:?}");
        assert_eq!((m.way(1), m.used), (Way::Datagrams, 0));
    }
    let mut m = fresh;
    assert_eq!(m.handle(9, Word::Offer, 1), Todo::Nothing);
    m.gone(1);
    assert_eq!(m.handle(1, Word::Offer, 1), Todo::Nothing);
    for code in 0..=255 {
        if let Some(word) = Word::from_code(code) {
            assert_eq!(word.code(), code);
        }
    }
    assert_eq!(Word::from_code(5), None);
}
