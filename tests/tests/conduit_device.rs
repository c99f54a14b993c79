// UNSAFETY: the calls that say whether an operation was done at once take raw addresses.
#![expect(
    unsafe_code,
    reason = "the calls that say whether an operation was done at once take raw addresses"
)]
//! The conduit over an RDMA device, its ranks as threads: operations that the adapters make alone. Without a device
//! (`PORTOLAN_TEST_DEVICE`) the tests say that they skipped.

use conduit::threads::{RankEnd, run_over};
use conduit::{BarrierName, Conduit, Handle, HandlerEntry, Par};
use portals_shim::nal::verbs;
use std::cell::Cell;
use std::rc::Rc;

const SEGMENT: usize = 1 << 16;
const REQUEST: u8 = 200;
const REPLY: u8 = 201;

/// Runs the ranks; nothing without a device.
fn ranks<R: Send + std::fmt::Debug>(n: u32, rank: impl Fn(Conduit) -> R + Sync) -> Vec<R> {
    let device = std::env::var("PORTOLAN_TEST_DEVICE").unwrap_or_default();
    if device.is_empty() {
        println!("skipped: no RDMA device (PORTOLAN_TEST_DEVICE is not set)");
        return Vec::new();
    }
    let opened =
        portals_shim::fabric::interfaces(verbs::in_threads(n, Some(&device)).expect("the device"));
    let ends = run_over(opened, &[], rank);
    let returned = |end| match end {
        RankEnd::Returned(result) => result,
        other => panic!("a rank ended early: {other:?}"),
    };
    ends.into_iter().map(returned).collect()
}

fn attach(conduit: &Conduit, handlers: Vec<HandlerEntry>) {
    conduit.attach(handlers, SEGMENT).expect("a segment");
    conduit.barrier(BarrierName::Anonymous).expect("a barrier");
}

/// A rank that waits for what it gets, and does nothing but get, serves the messages that have to come before.
#[test]
fn a_rank_that_only_gets_serves_others() {
    const ROUNDS: u64 = 50;
    ranks(2, |conduit| {
        let replies = Rc::new(Cell::new(0));
        let seen = Rc::clone(&replies);
        attach(
            &conduit,
            vec![
                HandlerEntry::new(REQUEST, |token, _, _| {
                    token.reply_short(REPLY, &[]).expect("a reply");
                }),
                HandlerEntry::new(REPLY, move |_, _, _| seen.set(seen.get() + 1)),
            ],
        );
        let there = conduit.segment(1).addr;
        for round in 1..=ROUNDS {
            if conduit.mynode() == 0 {
                let mut flag = [0; 8];
                // The other may have got its reply and gone on before this one looks.
                while u64::from_ne_bytes(flag) < round {
                    conduit.get(&mut flag, 1, there).expect("a get");
                }
            } else {
                // Only the other's handler lets this one go on.
                conduit
                    .am_request_short(0, REQUEST, &[])
                    .expect("a request");
                conduit.block_until(|| replies.get() == round);
                let own = conduit.local_segment().expect("a segment");
                own.write(0, &round.to_ne_bytes()).expect("in the segment");
            }
        }
        conduit.finish();
    });
}

/// Every length, whether it ends by itself or not, both ranks at once, judged by a copy of what was put.
#[test]
fn blocking_puts_and_gets_of_all_lengths() {
    ranks(2, |conduit| {
        attach(&conduit, Vec::new());
        let me = conduit.mynode();
        let peer = 1 - me;
        let base = conduit.segment(peer).addr;
        let mut rng = fastrand::Rng::with_seed(u64::from(me) + 5);
        let mut model = vec![0; SEGMENT];
        for _ in 0..3000 {
            let most = *rng.choice(&[8, 64, 256, 300, 2100, 9000]).unwrap_or(&8);
            let len = rng.usize(..=most);
            let at = rng.usize(..=SEGMENT - len);
            if rng.bool() {
                let bytes: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
                conduit.put(peer, base + at as u64, &bytes).expect("a put");
                model[at..at + len].copy_from_slice(&bytes);
            } else {
                let mut bytes = vec![0xee; len];
                conduit
                    .get(&mut bytes, peer, base + at as u64)
                    .expect("a get");
                assert!(bytes == model[at..at + len], "{len} bytes at {at}");
            }
        }
        conduit.barrier(BarrierName::Anonymous).expect("a barrier");
        conduit.finish();
    });
}

/// Short blocking operations are over when their call returns, but for the first ones, and where the device takes longer than the
/// call looks.
#[test]
fn short_ones_need_no_wait() {
    const EACH: usize = 200;
    let done = ranks(2, |conduit| {
        attach(&conduit, Vec::new());
        let there = conduit.segment(1).addr;
        let (mut gets, mut puts) = (0, 0);
        if conduit.mynode() == 0 {
            let mut word = 7u64.to_ne_bytes();
            for _ in 0..EACH {
                // SAFETY: `word` is not touched until the handle is synchronised, which it is here.
                let put = unsafe { conduit.put_awaited_raw(1, there, word.as_ptr(), word.len()) };
                let put = put.expect("a put");
                puts += usize::from(put == Handle::DONE);
                conduit.wait(put);
                // SAFETY: as above.
                let get =
                    unsafe { conduit.get_awaited_raw(word.as_mut_ptr(), 1, there, word.len()) };
                let get = get.expect("a get");
                gets += usize::from(get == Handle::DONE);
                conduit.wait(get);
                assert_eq!(word, 7u64.to_ne_bytes());
            }
        }
        conduit.barrier(BarrierName::Anonymous).expect("a barrier");
        conduit.finish();
        (puts, gets)
    });
    // Without a device there is none.
    if let Some((puts, gets)) = done.first() {
        println!("{puts} puts and {gets} gets of {EACH} were done at once");
        assert!(*puts > EACH / 4 && *gets > EACH / 4, "{puts}, {gets}");
    }
}

/// Threads of one rank, each with words of its own in the other's segment.
#[test]
fn threads_put_and_get() {
    const THREADS: u64 = 3;
    ranks(2, |conduit| {
        let par = Par::share(conduit);
        par.attach(Vec::new(), SEGMENT).expect("a segment");
        par.with(|c| c.barrier(BarrierName::Anonymous))
            .expect("a barrier");
        let me = par.with(|c| u64::from(c.mynode()));
        let base = par.with(|c| c.segment(1 - c.mynode()).addr);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let par = &par;
                scope.spawn(move || {
                    let (peer, place) = (1 - me as u32, base + 8 * thread);
                    for round in 0..300u64 {
                        let word = (round << 8 | thread << 4 | me).to_ne_bytes();
                        par.put(peer, place, &word).expect("a put");
                        let mut back = [0; 8];
                        par.get(&mut back, peer, place).expect("a get");
                        assert_eq!(back, word);
                    }
                });
            }
        });
        par.with(|c| c.barrier(BarrierName::Anonymous))
            .expect("a barrier");
        par.finish();
    });
}
