//! Confirmations of withdrawals that wait for reads.

use super::raw::{Raw, adverts, close, connect_all, drained, frame, get_first, looking, raws_of};
use super::*;
use crate::connect;
use crate::frame::Kind;
use crate::proto::select::ShortGets;
use crate::settings::Settings;

const LEN: usize = 4096;

fn requests(raw: &Raw) -> u32 {
    raw.library.nal.peers.get(1).unwrap().sq.requests()
}

/// A new list is found while a read by the old one is under way: behind the read a mark is posted, which has an adapter find
/// out that the answer was lost, and the confirmation when the read is done. Without a read there is the confirmation alone.
#[test]
fn device_something_follows_a_read_that_a_withdrawal_waits_for() {
    let Some(device) = device() else { return };
    let settings = Settings {
        short_gets: ShortGets::RmaRead,
        ..Settings::from_env().unwrap()
    };
    let mut raws = raws_of(connect::in_parts_by(2, &device, settings).unwrap(), LEN);
    connect_all(&mut raws);
    get_first(&mut raws, 4);
    let there = to(raws[1].id(), QUIET, 0);
    let list = adverts(&raws[0]).to_vec();
    assert!(!list.is_empty());
    // A read that is quick is done before the list is found.
    let mut waited = 0;
    for token in 1..=40 {
        drained(&mut raws, "the round before ends");
        raws[0].events.clear();
        let before = requests(&raws[0]);
        let same = frame(Kind::Advertise, |w| {
            w.token(1 << 20 | token);
            w.adverts(4, &list);
        });
        raws[1].say(0, &same);
        let reads = token % 4 > 0;
        if reads {
            raws[0].get(there, 8);
        }
        let least = 1 + u32::from(reads);
        looking(&mut raws, "it ends", |r| {
            let ended = r[0].seen(EventKind::ReplyEnd, QUIET);
            ended == (usize::from(reads), 0) && requests(&r[0]) - before >= least
        });
        let more = requests(&raws[0]) - before - least;
        assert!(more <= u32::from(reads), "{more} more");
        waited += more;
    }
    assert!(waited > 0, "no read was under way");
    close(raws);
}
