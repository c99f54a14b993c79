use super::*;

const DEFAULT: Wishes = Wishes {
    flow_control: true,
    per_node: None,
    space: None,
};

#[test]
fn the_table_has_the_worked_values() {
    for (nodes, per_node, banked) in [
        (2, 200, 400),
        (64, 170, 12_800),
        (96, 170, 19_200),
        (256, 135, 25_600),
        (768, 48, 25_600),
        (1024, 32, 25_600),
        (1536, 24, 25_600),
        (8192, 8, 25_600),
        (60_000, 8, 25_600),
    ] {
        assert_eq!(table(nodes), (per_node, banked), "{nodes} nodes");
    }
}

#[test]
fn a_thousand_nodes_need_eight_buffers_and_a_spare() {
    let p = Plan::new(1024, DEFAULT).unwrap();
    assert_eq!(BUFFER_CREDITS, 8184);
    assert_eq!((p.buffers, p.events), (9, 65_472));
    assert_eq!((p.per_node, p.one_more), (64, 0));
}

#[test]
fn loans_add_up_to_the_queue_on_every_rank() {
    for nodes in [2u32, 3, 5, 64, 100, 777, 5000] {
        let p = Plan::new(nodes, DEFAULT).unwrap();
        for lender in [0, 1, nodes / 2, nodes - 1] {
            let sum: u64 = (0..nodes).map(|b| u64::from(p.loan(lender, b))).sum();
            assert_eq!(sum, p.events, "{nodes} nodes, lender {lender}");
        }
        let room = u64::from(p.buffers - 1) * BUFFER_CREDITS;
        assert!(p.events <= room);
        assert!(u64::from(p.per_node) >= MIN_CREDITS);
    }
}

#[test]
fn overrides() {
    let one = Plan::new(1, DEFAULT).unwrap();
    assert_eq!((one.flow_control, one.buffers, one.events), (false, 1, 10));
    let off = Plan::new(
        4,
        Wishes {
            flow_control: false,
            space: Some(5 << 20),
            ..DEFAULT
        },
    )
    .unwrap();
    assert_eq!((off.buffers, off.events), (3, 500 + 3 * 8184));
    assert!(
        Plan::new(
            4,
            Wishes {
                per_node: Some(7),
                ..DEFAULT
            }
        )
        .is_err()
    );
    let c = Plan::new(
        4,
        Wishes {
            per_node: Some(8),
            ..DEFAULT
        },
    )
    .unwrap();
    assert_eq!((c.per_node, c.one_more, c.buffers), (2728, 0, 2));
    let s = Plan::new(
        4,
        Wishes {
            space: Some(8 << 20),
            ..DEFAULT
        },
    )
    .unwrap();
    // 32768 credits for 3 peers, 10922 each: five buffers' worth.
    assert_eq!((s.buffers, s.per_node), (6, 13_640));
}

#[test]
fn costs() {
    for (bytes, credits) in [(0, 1), (1, 1), (256, 1), (257, 2), (2048, 8)] {
        assert_eq!(cost(bytes), credits);
    }
}

#[test]
fn a_byte_is_epoch_extra_used() {
    let b = CreditByte {
        epoch: true,
        extra: 5,
        used: 9,
    };
    assert_eq!(b.encode(), 0b1101_1001);
    for raw in 0..=255 {
        assert_eq!(CreditByte::decode(raw).encode(), raw);
    }
}

/// Two ranks exchange requests and replies at random; what is in use is what is in flight.
#[test]
fn credits_out_are_messages_in_flight() {
    let plan = Plan {
        flow_control: true,
        per_node: 20,
        one_more: 0,
        buffers: 2,
        events: 20,
    };
    let mut ranks = [Credits::new(&plan, 0, 2), Credits::new(&plan, 1, 2)];
    let mut flying: [Vec<CreditByte>; 2] = [vec![], vec![]];
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let me = rng.usize(0..2);
        let peer = 1 - me as u32;
        if rng.bool() {
            let n = rng.u16(1..=8);
            let out: u16 = flying[me].iter().map(|b| u16::from(b.used)).sum();
            assert_eq!(ranks[me].take(peer, n), out + n <= 20);
            if out + n <= 20 {
                flying[me].push(ranks[me].of_request(n));
            } else {
                ranks[me].stalled(peer);
            }
        } else if let Some(request) = flying[me].pop() {
            let reply = ranks[1 - me].handle_request(me as u32, request).unwrap();
            assert_eq!(ranks[me].handle_reply(peer, reply), Ok(()));
        }
    }
    let none_out = CreditByte {
        epoch: false,
        extra: 0,
        used: 15,
    };
    for byte in flying[0].drain(..) {
        ranks[0].handle_reply(1, byte).unwrap();
    }
    assert_eq!(ranks[0].handle_reply(1, none_out), Err(Overpaid));
    assert_eq!(ranks[0].available(1), ranks[1].lent(0));
    let self_sent = CreditByte {
        epoch: false,
        extra: 0,
        used: 1,
    };
    assert_eq!(ranks[0].handle_request(0, self_sent), Err(Overdrawn));
}
