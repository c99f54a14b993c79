//! A peer that announces data by datagrams and sends none: nothing of it is waited for without bound, and it hurts nobody else.

use super::auto::{SECONDS, autos};
use super::raw::{Raw, close, until};
use super::*;
use crate::auto::Auto;
use fabric_api::call::Call;

/// The one that announces, its target, and one that has to do with neither.
const EVIL: usize = 0;
const TARGET: usize = 1;
const OTHER: usize = 2;
/// More than a datagram holds.
const LONG: u64 = 8000;
/// Bits that no entry has.
const NOBODY: u64 = 0xdead;

fn three() -> Option<Vec<Raw<Auto>>> {
    let mut raws = autos(3, u32::MAX, 1, SECONDS)?;
    talks(&mut raws, EVIL);
    talks(&mut raws, OTHER);
    raws[TARGET].events.clear();
    Some(raws)
}

/// A message goes to the target and is answered.
fn talks(raws: &mut [Raw<Auto>], from: usize) {
    let there = to(raws[TARGET].id(), BELL, 0);
    let before = raws[from].seen(EventKind::Ack, BELL).0;
    raws[from].put(there, 0, AckRequest::Ack, 0);
    until(raws, "it is answered", |r| {
        r[from].seen(EventKind::Ack, BELL) == (before + 1, 0)
    });
}

/// Announces a put of these bits under this number.
fn announce(raws: &mut [Raw<Auto>], bits: u64, number: u32) {
    let target = raws[TARGET].id();
    let header = raws[EVIL].header(target, bits, LONG, u64::from(number));
    let nal = raws[EVIL].library.nal.datagrams();
    nal.say_header(TARGET, &header, number);
}

/// Every put that began has ended with a failure, and holds the descriptor no more.
fn all_failed(raws: &mut [Raw<Auto>], count: usize) {
    until(raws, "all have failed", |r| {
        r[TARGET].seen(EventKind::PutEnd, LOUD) == (count, count)
    });
    assert_eq!(raws[TARGET].seen(EventKind::PutStart, LOUD), (count, 0));
    talks(raws, OTHER);
    let loud = raws[TARGET].loud_md;
    assert!(raws[TARGET].library.execute(Call::MdUnlink(loud)).is_ok());
}

#[test]
fn device_a_peer_that_sends_nothing_of_what_it_announces_is_given_up() {
    let Some(mut raws) = three() else {
        return;
    };
    for number in 1000..1272 {
        announce(&mut raws, LOUD, number);
    }
    until(&mut raws, "272 are waited for", |r| {
        r[TARGET].seen(EventKind::PutStart, LOUD) == (272, 0)
    });
    talks(&mut raws, OTHER);
    talks(&mut raws, EVIL);
    assert_eq!(raws[TARGET].seen(EventKind::PutEnd, LOUD), (0, 0));
    announce(&mut raws, LOUD, 1272);
    all_failed(&mut raws, 273);
    close(raws);
}

#[test]
fn device_a_peer_that_announces_two_messages_under_one_number_is_given_up() {
    let Some(mut raws) = three() else {
        return;
    };
    announce(&mut raws, LOUD, 1000);
    announce(&mut raws, LOUD, 1000);
    all_failed(&mut raws, 2);
    close(raws);
}

/// Its own messages to nobody are dropped, as those of any peer are.
#[test]
fn device_data_that_nobody_wants_is_not_waited_for_without_bound() {
    let Some(mut raws) = three() else {
        return;
    };
    for number in 1000..1400 {
        announce(&mut raws, NOBODY, number);
    }
    talks(&mut raws, EVIL);
    talks(&mut raws, OTHER);
    close(raws);
}
