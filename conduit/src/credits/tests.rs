use super::*;

fn plan(per_node: u16, bank: u64, dynamic: bool) -> Plan {
    Plan {
        flow_control: true,
        dynamic,
        per_node,
        one_more: 0,
        bank,
        buffers: 2,
        events: u64::from(per_node) * 2 + bank,
    }
}

fn three(per_node: u16, bank: u64, knobs: Knobs) -> [Credits; 3] {
    [0, 1, 2].map(|r| Credits::new(&plan(per_node, bank, true), knobs, r, 3))
}

/// A request and its reply.
fn round_trip(ranks: &mut [Credits], from: usize, to: usize, n: u16) {
    let extra = if ranks[from].take(to as u32, n) {
        0
    } else {
        panic!("no credits")
    };
    let byte = ranks[from].of_request(to as u32, n, extra);
    let reply = ranks[to].handle_request(from as u32, byte).unwrap();
    ranks[from].handle_reply(to as u32, reply).unwrap();
}

#[test]
fn costs() {
    for (bytes, credits) in [(0, 1), (1, 1), (256, 1), (257, 2), (2048, 8)] {
        assert_eq!(cost(bytes), credits);
    }
}

/// The seed's figure is about 40 bytes.
#[test]
fn the_state_of_a_peer_is_24_bytes() {
    assert_eq!(size_of::<Peer>(), 24);
}

/// A request waits exactly when it costs more than there is.
#[test]
fn the_last_credits_can_be_used() {
    let mut c = Credits::new(&plan(8, 0, false), Knobs::DEFAULT, 0, 3);
    assert!(c.take(1, 8));
    assert!(!c.take(1, 1));
    assert_eq!(c.stall(1, 1), 0, "static credits are not asked for");
    assert!(c.take(2, 8));
}

#[test]
fn without_flow_control_nothing_is_counted() {
    let off = Plan {
        flow_control: false,
        ..plan(8, 0, false)
    };
    let mut c = Credits::new(&off, Knobs::DEFAULT, 0, 3);
    for _ in 0..100 {
        assert!(c.take(1, 8));
        assert_eq!(c.of_request(1, 8, 3), CreditByte::default());
    }
}

#[test]
fn a_request_that_waited_is_lent_more() {
    let mut r = three(8, 20, Knobs::DEFAULT);
    assert!(r[0].take(1, 8));
    let first = r[0].of_request(1, 8, 0);
    assert!(!r[0].take(1, 3));
    let extra = r[0].stall(1, 3);
    assert_eq!(extra, 3);
    let reply = r[1].handle_request(0, first).unwrap();
    r[0].handle_reply(1, reply).unwrap();
    assert!(r[0].take(1, 3));
    let second = r[0].of_request(1, 3, extra);
    let reply = r[1].handle_request(0, second).unwrap();
    assert_eq!((reply.used, reply.extra), (3, 3));
    r[0].handle_reply(1, reply).unwrap();
    assert_eq!(r[0].available(1), 11);
    assert_eq!((r[1].bank, r[1].peers[0].loan), (17, 11));
}

fn ask(r: &mut [Credits], from: usize, to: usize, extra: u8) -> u8 {
    assert!(r[from].take(to as u32, 1));
    let byte = r[from].of_request(to as u32, 1, extra);
    let reply = r[to].handle_request(from as u32, byte).unwrap();
    r[from].handle_reply(to as u32, reply).unwrap();
    reply.extra
}

#[test]
fn loans_have_limits() {
    let limits = Knobs {
        most: 30,
        lend_limit: 10,
        epoch: 4,
        ..Knobs::DEFAULT
    };
    let mut r = three(8, 100, limits);
    let granted: Vec<u8> = (0..8).map(|_| ask(&mut r, 0, 1, 7)).collect();
    // 10 in the first epoch of four requests; 10 >> 2 weigh on the second; then 30 in all.
    assert_eq!(granted, [7, 3, 0, 0, 7, 1, 0, 0]);
    let rest: u16 = (0..20).map(|_| u16::from(ask(&mut r, 0, 1, 7))).sum();
    assert_eq!(8 + 18 + rest, 30);
    assert_eq!(r[1].bank, 100 - 22);
}

#[test]
fn an_empty_bank_asks_the_quiet() {
    let mut r = three(12, 0, Knobs::DEFAULT);
    assert_eq!(ask(&mut r, 0, 1, 7), 0, "nothing to lend yet");
    assert_eq!(
        r[1].poll_notice(),
        Some((2, Notice::Revoke { epoch: false }))
    );
    assert_eq!(r[1].poll_notice(), None, "not the one that asks");
    ask(&mut r, 0, 1, 7);
    assert_eq!(r[1].poll_notice(), None, "one at a time");
    r[2].handle_notice(1, Notice::Revoke { epoch: false })
        .unwrap();
    let answer = Notice::Return {
        credits: 4,
        epoch: false,
    };
    assert_eq!(r[2].poll_notice(), Some((1, answer)));
    assert_eq!(r[2].available(1), 8, "a full message stays");
    r[1].handle_notice(2, answer).unwrap();
    assert_eq!(r[1].bank, 4);
    assert_eq!(ask(&mut r, 0, 1, 7), 4);
}

#[test]
fn who_needs_them_gives_none_and_is_left_alone_until_the_next_epoch() {
    let knobs = Knobs {
        epoch: 4,
        ..Knobs::DEFAULT
    };
    let mut r = three(12, 0, knobs);
    assert!(r[2].take(1, 12));
    ask(&mut r, 0, 1, 7);
    let (_, revoke) = r[1].poll_notice().unwrap();
    r[2].handle_notice(1, revoke).unwrap();
    let (_, answer) = r[2].poll_notice().unwrap();
    assert_eq!(
        answer,
        Notice::Return {
            credits: 0,
            epoch: false
        }
    );
    r[1].handle_notice(2, answer).unwrap();
    ask(&mut r, 0, 1, 7);
    assert_eq!(r[1].poll_notice(), None);
    ask(&mut r, 0, 1, 0);
    ask(&mut r, 0, 1, 0);
    ask(&mut r, 0, 1, 7);
    let told = Notice::Revoke { epoch: true };
    assert_eq!(r[1].poll_notice(), Some((2, told)));
}

/// The most in flight fades, what is in flight does not.
#[test]
fn credits_in_flight_are_never_given_back() {
    let mut r = three(30, 0, Knobs::DEFAULT);
    for _ in 0..5 {
        assert!(r[2].take(1, 4));
    }
    for _ in 0..8 {
        r[2].handle_notice(1, Notice::Revoke { epoch: true })
            .unwrap();
    }
    let given: u16 = std::iter::from_fn(|| r[2].poll_notice())
        .map(|(_, n)| match n {
            Notice::Return { credits, .. } => credits,
            Notice::Revoke { .. } => 0,
        })
        .sum();
    assert_eq!(given, 10);
    assert_eq!(r[2].available(1), 0);
}

/// Traffic that finds its credits moves none, whatever the epochs.
#[test]
fn static_traffic_moves_no_credits() {
    let mut r = three(
        16,
        100,
        Knobs {
            epoch: 8,
            ..Knobs::DEFAULT
        },
    );
    for i in 0..10_000 {
        round_trip(&mut r, i % 3, (i + 1) % 3, 1 + (i % 8) as u16);
    }
    for c in &r {
        assert_eq!((c.counts.granted, c.counts.revokes, c.bank), (0, 0, 100));
        assert!(c.counts.epochs > 100);
    }
}

#[test]
fn nonsense_is_refused() {
    let mut r = three(8, 0, Knobs::DEFAULT);
    let used = |used| CreditByte {
        used,
        ..CreditByte::default()
    };
    let before = r[0].clone();
    assert_eq!(r[0].handle_request(1, used(9)), Err(CreditFault::Overdrawn));
    assert_eq!(r[0].handle_request(3, used(1)), Err(CreditFault::Overdrawn));
    assert_eq!(r[0].handle_request(0, used(1)), Err(CreditFault::Overdrawn));
    assert_eq!(r[0].handle_reply(1, used(1)), Err(CreditFault::Overpaid));
    assert_eq!(r[0].handle_reply(7, used(0)), Err(CreditFault::Overpaid));
    let back = |credits| Notice::Return {
        credits,
        epoch: false,
    };
    for (peer, credits) in [(1, 0), (1, 4), (0, 0), (3, 0)] {
        let answer = r[0].handle_notice(peer, back(credits));
        assert_eq!(answer, Err(CreditFault::NotLent));
    }
    assert_eq!(r[0], before, "nothing changed");
}

#[test]
fn the_report_names_every_peer() {
    let mut r = three(8, 20, Knobs::DEFAULT);
    ask(&mut r, 0, 1, 7);
    let text = r[1].report().to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "# credits of rank 1 of 3: dynamic");
    assert_eq!(lines[1], "# bank 13 lent 23 total 36");
    assert_eq!(
        lines[2],
        "# stalls 0 granted 7 short 0 revokes 0 recovered 0 returned 0 epochs 0"
    );
    assert_eq!(lines[4], "0 15 7 8 0 0 0 0");
    assert_eq!(lines[5], "2 8 0 8 0 0 0 0");
}
