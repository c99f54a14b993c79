//! Flow control under load: request buffers wrap, credits run out, all ranks send at once.

use super::trace::Files;
use super::{pattern, returned};
use crate::{BarrierName, HandlerEntry, MAX_MEDIUM, Payload, threads};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

const TAKE: u8 = 128;
const DONE: u8 = 129;

/// Every rank sends `count` Mediums of changing size to every other; all arrive, unharmed.
pub(super) fn flood(ranks: u32, count: usize, variables: &[(&str, &str)]) {
    let ends = threads::run_in(ranks, variables, |conduit| {
        let (taken, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (t, d) = (taken.clone(), done.clone());
        let handlers = vec![
            HandlerEntry::new(TAKE, move |token, payload, args| {
                let Payload::Medium(bytes) = payload else {
                    panic!("not a Medium")
                };
                assert_eq!(bytes.len(), args[0] as usize);
                assert_eq!(
                    bytes,
                    pattern(args[1] as usize, bytes.len()),
                    "payload differs"
                );
                t.set(t.get() + 1);
                if args[1] % 3 == 0 {
                    token.reply_short(DONE, &[]).unwrap();
                }
            }),
            HandlerEntry::new(DONE, move |_, _, _| d.set(d.get() + 1)),
        ];
        conduit.attach(handlers, 0).unwrap();
        let me = conduit.mynode();
        for i in 0..count {
            let len = if i % 4 == 0 {
                MAX_MEDIUM
            } else {
                i * 37 % MAX_MEDIUM
            };
            let payload = pattern(i, len);
            for node in (0..ranks).filter(|n| *n != me) {
                conduit
                    .am_request_medium(node, TAKE, &payload, &[len as i32, i as i32])
                    .unwrap();
            }
        }
        let peers = ranks as usize - 1;
        conduit.block_until(|| {
            taken.get() == count * peers && done.get() == count.div_ceil(3) * peers
        });
        conduit.barrier(BarrierName::Anonymous).unwrap();
        (taken.get(), done.get())
    });
    for (taken, done) in returned(ends) {
        assert_eq!(taken, count * (ranks as usize - 1));
        assert_eq!(done, count.div_ceil(3) * (ranks as usize - 1));
    }
}

/// Each rank takes about 20 MB, ten times round its request buffers.
#[test]
fn request_buffers_wrap_many_times() {
    flood(2, 20_000, &[]);
}

#[test]
fn four_ranks_flood_each_other_with_few_credits() {
    flood(
        4,
        2_000,
        &[
            ("GASNET_PORTAL_CRED_PER_NODE", "8"),
            ("GASNET_PORTAL_MSG_LIMIT", "12"),
        ],
    );
}

/// 8184 credits back 1023 full messages; the next waits for a reply, and nothing overflows although
/// the receiver handles none of them meanwhile.
#[test]
fn a_sender_without_credits_waits() {
    const MESSAGES: usize = 4000;
    let sent = AtomicUsize::new(0);
    let variables = [
        ("GASNET_PORTAL_SB_CHUNKS", "4096"),
        ("GASNET_PORTAL_DYNAMIC_CREDITS", "0"),
    ];
    let ends = threads::run_in(2, &variables, |conduit| {
        let taken = Rc::new(Cell::new(0));
        let t = taken.clone();
        let take = HandlerEntry::new(TAKE, move |_, _, _| t.set(t.get() + 1));
        conduit.attach(vec![take], 0).unwrap();
        if conduit.mynode() == 0 {
            for _ in 0..MESSAGES {
                conduit
                    .am_request_medium(1, TAKE, &[0; MAX_MEDIUM], &[0; 16])
                    .unwrap();
                sent.fetch_add(1, Ordering::SeqCst);
            }
        } else {
            let (interface, queue) = (conduit.interface(), conduit.safe_queue());
            while sent.load(Ordering::SeqCst) < 1023 {
                interface.eq_peek(queue).unwrap();
            }
            for _ in 0..5000 {
                interface.eq_peek(queue).unwrap();
                std::thread::yield_now();
            }
            assert_eq!(sent.load(Ordering::SeqCst), 1023);
            conduit.block_until(|| taken.get() == MESSAGES);
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
    });
    returned(ends);
}

/// Messages of each sender of [`fifteen_ranks_flood_one`]; `PORTOLAN_FLOOD` says how many in all.
fn flood_size() -> usize {
    let all = std::env::var("PORTOLAN_FLOOD").map_or(6000, |n| n.parse().unwrap());
    all / 15
}

/// Messages of every size; the target takes its time, so that senders stall, ask for more and are
/// asked to give back. The catch basin would end the job.
#[test]
fn fifteen_ranks_flood_one() {
    let count = flood_size();
    let variables = [
        ("GASNET_PORTAL_CRED_PER_NODE", "500"),
        ("GASNET_PORTAL_BANKED_CREDITS", "0"),
        ("GASNET_PORTAL_MAX_CRED_PER_NODE", "700"),
        ("GASNET_PORTAL_EPOCH_DURATION", "100"),
        ("GASNET_PORTAL_AM_LIMIT", "2"),
    ];
    let ends = threads::run_in(16, &variables, |conduit| {
        let taken = Rc::new(Cell::new(0usize));
        let t = taken.clone();
        let take = HandlerEntry::new(TAKE, move |_, payload, args| {
            assert_eq!(payload.bytes().len(), args[0] as usize);
            t.set(t.get() + 1);
        });
        conduit.attach(vec![take], 0).unwrap();
        let me = conduit.mynode();
        if me == 0 {
            conduit.block_until(|| taken.get() == 15 * count);
        } else {
            // Some ranks send much at first and little later, others the other way round.
            for i in 0..count {
                let busy = (i * 4 / count) % 2 == me as usize % 2;
                let len = if busy { MAX_MEDIUM } else { i % 200 };
                conduit
                    .am_request_medium(0, TAKE, &[7; MAX_MEDIUM][..len], &[len as i32; 16])
                    .unwrap();
            }
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
        let counts = conduit.core.borrow().credits.counts();
        (taken.get(), counts)
    });
    let ends = returned(ends);
    assert_eq!(ends[0].0, 15 * count);
    let stalls: u64 = ends.iter().map(|(_, c)| c.stalls).sum();
    let c = ends[0].1;
    println!(
        "{} messages, {stalls} stalls, {} granted, {} recovered in {} epochs",
        15 * count,
        c.granted,
        c.recovered,
        c.epochs
    );
    assert!(c.epochs > 0);
}

/// Without flow control the catch basin ends the job, and says so.
#[test]
fn an_overflow_is_fatal() {
    let variables = [("GASNET_PORTAL_FLOW_CONTROL", "0")];
    let ends = threads::run_in(2, &variables, |conduit| {
        conduit
            .attach(vec![HandlerEntry::new(TAKE, |_, _, _| {})], 0)
            .unwrap();
        if conduit.mynode() == 0 {
            // One buffer of 1024 chunks at the target; it does not poll, so nothing is relinked and
            // no reply frees a chunk: all 2048 chunks are sent.
            for _ in 0..2048 {
                conduit
                    .am_request_medium(1, TAKE, &[0; MAX_MEDIUM], &[0; 16])
                    .unwrap();
            }
            conduit.block_until(|| false);
        } else {
            // Messages are taken from the wire, but no event is handled. Those of the start-up count
            // too, so that this is nearly all of the 2048: far more than the buffer holds, however
            // the two ranks are scheduled.
            let interface = conduit.interface();
            let (queue, sent) = (conduit.safe_queue(), 2048);
            while interface.status().unwrap().recv_count < sent {
                interface.eq_peek(queue).unwrap();
            }
            conduit.block_until(|| false);
        }
    });
    for end in ends {
        let threads::RankEnd::Aborted(message) = end else {
            panic!("{end:?}")
        };
        assert!(message.contains("flow control failed"), "{message}");
        assert!(message.contains("node 0"), "{message}");
    }
}

/// The first lines of the credit statistics of rank 0 of two, which sends nothing; `None` where none were written.
fn statistics(variables: &[(&str, &str)]) -> Option<String> {
    let files = Files::new();
    let folder = files.folder();
    let name = folder.display().to_string();
    let variables = [&[("GASNET_TMPDIR", name.as_str())], variables].concat();
    let ends = threads::run_in(2, &variables, |conduit| {
        conduit.attach(vec![], 0).unwrap();
    });
    returned(ends);
    let [text, other] = [0, 1]
        .map(|rank| std::fs::read_to_string(folder.join(format!("portals-credits.{rank}"))).ok());
    assert_eq!(other.is_some(), text.is_some(), "one file for each rank");
    let lines: Vec<_> = text?.lines().take(2).map(str::to_owned).collect();
    Some(lines.join("; "))
}

#[test]
fn statistics_of_credits_are_written_if_asked_for() {
    assert_eq!(statistics(&[]), None);
    let name = "GASNET_PORTAL_CREDIT_STATS";
    assert_eq!(statistics(&[(name, "no")]), None);
    let said = "# credits of rank 0 of 2: dynamic; # bank 7984 lent 200 total 8184";
    assert_eq!(statistics(&[(name, "1")]).as_deref(), Some(said));
}

/// Each row of the table of who starts with how many. A buffer backs 8184 credits of 256 bytes.
#[test]
fn who_starts_with_how_many_credits_is_what_the_variables_say() {
    let (each, bank, space, dynamic) = (
        |n| ("GASNET_PORTAL_CRED_PER_NODE", n),
        |n| ("GASNET_PORTAL_BANKED_CREDITS", n),
        |n| ("GASNET_PORTAL_AMRECV_SPACE", n),
        |n| ("GASNET_PORTAL_DYNAMIC_CREDITS", n),
    );
    for (variables, said) in [
        (
            &[each("16"), bank("9000")][..],
            "dynamic; # bank 9000 lent 16 total 9016",
        ),
        (
            &[each("16"), space("4M")],
            "dynamic; # bank 24536 lent 16 total 24552",
        ),
        (&[each("16")], "dynamic; # bank 8168 lent 16 total 8184"),
        (
            &[bank("9000"), space("4M")],
            "dynamic; # bank 17168 lent 7384 total 24552",
        ),
        (
            &[bank("20000")],
            "dynamic; # bank 24352 lent 200 total 24552",
        ),
        (
            &[space("4M")],
            "dynamic; # bank 8168 lent 16384 total 24552",
        ),
        (&[dynamic("0")], "static; # bank 0 lent 8184 total 8184"),
        (
            &[dynamic("0"), each("9000")],
            "static; # bank 0 lent 9000 total 9000",
        ),
        (
            &[dynamic("0"), space("4M")],
            "static; # bank 0 lent 24552 total 24552",
        ),
        (
            &[("GASNET_PORTAL_FLOW_CONTROL", "0")],
            "off; # bank 0 lent 0 total 0",
        ),
    ] {
        let asked = [&[("GASNET_PORTAL_CREDIT_STATS", "1")], variables].concat();
        let found = statistics(&asked).unwrap();
        assert_eq!(
            found,
            format!("# credits of rank 0 of 2: {said}"),
            "{variables:?}"
        );
    }
}

/// What does not fit ends the start on every rank.
#[test]
fn credits_that_cannot_be_end_the_start() {
    let (each, bank, space) = (
        |n| ("GASNET_PORTAL_CRED_PER_NODE", n),
        |n| ("GASNET_PORTAL_BANKED_CREDITS", n),
        |n| ("GASNET_PORTAL_AMRECV_SPACE", n),
    );
    let lends = |variable, each, least| {
        format!(
            "GASNET_PORTAL_{variable} lends each of 1 peers {each} credits, and a full message needs 8: \
             the least value is {least}"
        )
    };
    let holds = |space, held, wanted, least| {
        format!(
            "GASNET_PORTAL_AMRECV_SPACE={space} holds {held} credits of 256 bytes, and {wanted} were asked for: \
             the least value is {least}"
        )
    };
    for (variables, why) in [
        (
            &[each("7")][..],
            lends("CRED_PER_NODE=7", 7, 8),
        ),
        (
            &[space("1K")],
            lends("AMRECV_SPACE=1024", 4, 2048),
        ),
        (
            &[each("16"), space("1K")],
            holds(1024, 4, 16, 4096),
        ),
        (
            &[bank("41"), space("10K")],
            holds(10_240, 40, 41, 49 * 256),
        ),
        (
            &[bank("9G")],
            "GASNET_PORTAL_BANKED_CREDITS=9663676416 needs more request buffers than a job can have: \
             the most is 8581545784"
                .to_owned(),
        ),
    ] {
        let ends = threads::run_in(2, variables, |_| panic!("it started"));
        for end in ends {
            let threads::RankEnd::Aborted(said) = end else {
                panic!("{variables:?}: {end:?}")
            };
            // Whichever rank was first.
            let (rank, said) = said.split_at("rank 0: ".len());
            assert!(["rank 0: ", "rank 1: "].contains(&rank), "{rank}{said}");
            assert_eq!(said, why, "{variables:?}");
        }
    }
}
