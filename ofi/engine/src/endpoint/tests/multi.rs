//! Receives that take several messages.

use super::*;

const LONG: usize = 50_000;
const SHORT: usize = 300;

const ANY: Wanted = Wanted {
    from: None,
    tag: 0,
    ignore: u64::MAX,
};

/// Receives messages into a buffer until fewer bytes than these are left.
fn receive(at: &Side, region: &Region, len: usize, least: u64) {
    let op = at.op(1, flags::RECV | flags::MSG);
    at.endpoint
        .receive(false, ANY, buffer(region, 0, len), Some(least), op);
}

fn send(from: &Side, region: &Region, len: usize) {
    let message = Message {
        tag: None,
        data: Some(0xfeed),
        inject: false,
    };
    let op = from.op(2, flags::SEND | flags::MSG);
    let sent = from
        .endpoint
        .send(from.peers[1], message, buffer(region, 0, len), op);
    sent.unwrap();
}

/// Whether these bytes have come to this place.
fn has_at(region: &Region, at: usize, len: usize, seed: usize) -> bool {
    let mut seen = vec![0; len];
    region.read(at, &mut seen).unwrap();
    seen == bytes(len, seed)
}

#[test]
fn a_multi_receive_takes_messages_until_little_is_left() {
    let [a, b] = pair();
    let (from, to) = (filled(SHORT, 4), Region::new(1000).unwrap());
    receive(&b, &to, 1000, 200);
    for n in 0..3u64 {
        send(&a, &from, SHORT);
        let (entry, _) = next(&[&b, &a]).unwrap();
        let released = if n == 2 { flags::MULTI_RECV } else { 0 };
        let data = flags::REMOTE_CQ_DATA;
        assert_eq!(entry.flags, flags::RECV | flags::MSG | released | data);
        assert_eq!(
            (entry.data, entry.buf as u64),
            (0xfeed, to.addr() + 300 * n)
        );
        assert!(next(&[&a, &b]).is_ok());
    }
}

/// The program may free the buffer then: what is fetched into it later would be written to memory that is not ours.
#[test]
fn a_buffer_is_given_back_when_all_its_messages_are_there() {
    let [a, b] = pair();
    for [first, second] in [[LONG, SHORT], [SHORT, LONG], [LONG, LONG]] {
        for expected in [true, false] {
            let from = [filled(first, 1), filled(second, 2)];
            let to = Region::new(first + second).unwrap();
            if expected {
                receive(&b, &to, first + second, 100);
            }
            send(&a, &from[0], first);
            send(&a, &from[1], second);
            if !expected {
                let begun = Instant::now();
                while b.endpoint.core().lists[0].waiting() < 2 {
                    assert!(begun.elapsed() < LIMIT, "no messages wait");
                    a.endpoint.progress(Duration::ZERO);
                    b.endpoint.progress(Duration::ZERO);
                }
                receive(&b, &to, first + second, 100);
            }
            let released = [0; 2].map(|_| next(&[&b, &a]).unwrap().0.flags & flags::MULTI_RECV);
            assert_eq!(released, [0, flags::MULTI_RECV]);
            assert!(has_at(&to, 0, first, 1) && has_at(&to, first, second, 2));
            assert!(next(&[&a, &b]).is_ok() && next(&[&a, &b]).is_ok());
        }
    }
}

#[test]
fn a_multi_receive_that_is_cancelled_ends_behind_its_last_message() {
    let [a, b] = pair();
    let (from, to) = (filled(LONG, 3), Region::new(2 * LONG).unwrap());
    receive(&b, &to, 2 * LONG, 100);
    send(&a, &from, LONG);
    let begun = Instant::now();
    let left = || {
        let mut core = b.endpoint.core();
        core.lists[0].posted(0).map(|posted| posted.buffer.len())
    };
    while left() == Some(2 * LONG as u64) {
        assert!(begun.elapsed() < LIMIT, "no message comes");
        a.endpoint.progress(Duration::ZERO);
        b.endpoint.progress(Duration::ZERO);
    }
    assert!(b.endpoint.cancel(1));
    let (entry, _) = next(&[&b, &a]).unwrap();
    assert_eq!((entry.len, entry.flags & flags::MULTI_RECV), (LONG, 0));
    assert!(has_at(&to, 0, LONG, 3));
    let failed = next(&[&b, &a]).unwrap_err();
    let end = (failed.why, failed.entry.flags & flags::MULTI_RECV);
    assert_eq!(end, (Failure::Canceled, flags::MULTI_RECV));
    assert!(next(&[&a, &b]).is_ok());
}
