//! A peer that announces whatever it likes, beside a list that forgets nothing.

use super::*;
use portals_core::Segment;
use std::collections::BTreeSet;

/// What the protocol's page states, apart from the constants.
const AT_MOST: usize = 272;
const AT_MOST_UNWANTED: usize = 256;

fn wanted(op: u32) -> Landing {
    Landing {
        op: Some(OpId(op)),
        segments: [Segment { addr: 1, len: 2 }].into_iter().collect(),
        first: 3,
        keep: 4,
    }
}

#[test]
fn a_peer_that_sends_nothing_of_what_it_announces_is_refused_the_273rd() {
    let mut landings = Landings::default();
    for n in 0..AT_MOST as u32 {
        assert_eq!(landings.open(n, wanted(n)), Ok(()));
    }
    assert_eq!(landings.open(5000, wanted(5000)), Err(Refused::TooMany));
    assert_eq!(landings.open_unwanted(5000), Err(Refused::TooMany));
    // One that is whole makes room for one.
    assert_eq!(landings.finish(7).unwrap().op, Some(OpId(7)));
    assert_eq!(landings.open(5000, wanted(5000)), Ok(()));
    assert_eq!(landings.open(5001, wanted(5001)), Err(Refused::TooMany));
}

#[test]
fn of_unwanted_data_256_messages_are_waited_for_and_16_places_stay_for_wanted_ones() {
    let mut landings = Landings::default();
    for n in 0..AT_MOST_UNWANTED as u32 {
        assert_eq!(landings.open_unwanted(n), Ok(true));
    }
    assert_eq!(landings.open_unwanted(300), Ok(false));
    assert!(landings.get(300).is_none());
    for n in 400..416 {
        assert_eq!(landings.open(n, wanted(n)), Ok(()));
    }
    assert_eq!(landings.open(416, wanted(416)), Err(Refused::TooMany));
    assert!(landings.finish(0).unwrap().op.is_none());
    assert_eq!(landings.open_unwanted(300), Ok(true));
}

/// The operation of the first is not lost, as it would hold its descriptor for ever.
#[test]
fn a_number_that_is_open_is_not_opened_again() {
    let mut landings = Landings::default();
    landings.open(1, wanted(10)).unwrap();
    assert_eq!(landings.open_unwanted(2), Ok(true));
    for number in [1, 2] {
        assert_eq!(landings.open(number, wanted(11)), Err(Refused::Twice));
        assert_eq!(landings.open_unwanted(number), Err(Refused::Twice));
    }
    assert_eq!(landings.unwanted(), 1);
    assert_eq!(landings.take().collect::<Vec<_>>(), [OpId(10)]);
    assert_eq!(landings.unwanted(), 0);
    landings.open(1, wanted(12)).unwrap();
}

#[test]
fn every_operation_comes_out_once_and_what_is_open_is_bounded() {
    const STEPS: u32 = 100_000;
    let mut random = fastrand::Rng::with_seed(40);
    let (mut landings, mut open) = (Landings::default(), Vec::<(u32, Option<u32>)>::new());
    let (mut begun, mut ended) = (BTreeSet::new(), BTreeSet::new());
    let (mut most, mut refused) = (0, [0; 2]);
    for step in 0..STEPS {
        let number = random.u32(0..2000);
        let is_open = open.iter().any(|(n, _)| *n == number);
        let unwanted = open.iter().filter(|(_, op)| op.is_none()).count();
        // Phases in which more is announced than sent, and the other way round.
        let announces = random.u32(0..8) < if step / 4000 % 2 == 0 { 7 } else { 2 };
        match (announces, random.bool()) {
            (true, true) => {
                let expected = match (is_open, open.len() >= AT_MOST) {
                    (true, _) => Err(Refused::Twice),
                    (false, true) => Err(Refused::TooMany),
                    (false, false) => Ok(()),
                };
                assert_eq!(landings.open(number, wanted(step)), expected);
                match expected {
                    Ok(()) => {
                        begun.insert(step);
                        open.push((number, Some(step)));
                    }
                    Err(refusal) => refused[usize::from(refusal == Refused::Twice)] += 1,
                }
            }
            (true, false) => {
                let expected = match (unwanted >= AT_MOST_UNWANTED, is_open, open.len() >= AT_MOST)
                {
                    (true, ..) => Ok(false),
                    (false, true, _) => Err(Refused::Twice),
                    (false, false, true) => Err(Refused::TooMany),
                    (false, false, false) => Ok(true),
                };
                assert_eq!(landings.open_unwanted(number), expected);
                if expected == Ok(true) {
                    open.push((number, None));
                }
            }
            (false, _) => {
                let at = open.iter().position(|(n, _)| *n == number);
                // Most of them end something.
                let at = at.or((!open.is_empty()).then(|| random.usize(0..open.len())));
                let Some((number, op)) = at.map(|at| open.swap_remove(at)) else {
                    assert!(landings.finish(number).is_none());
                    continue;
                };
                assert!(landings.get(number).is_some());
                let landing = landings.finish(number).unwrap();
                assert_eq!(landing.op, op.map(OpId));
                assert!(op.is_none_or(|op| ended.insert(op)));
            }
        }
        most = most.max(open.len());
        assert!(open.len() <= AT_MOST);
        assert_eq!(
            landings.unwanted(),
            open.iter().filter(|(_, op)| op.is_none()).count()
        );
    }
    for op in landings.take() {
        assert!(ended.insert(op.0), "{op:?} ends twice");
    }
    assert_eq!(begun, ended);
    assert_eq!(most, AT_MOST);
    assert!(refused.iter().all(|n| *n > 100), "{refused:?}");
}
