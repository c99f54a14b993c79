//! Random use over a wire that loses, reorders, repeats, corrupts and cuts, with strangers' and old datagrams in between:
//! what is handed up is what a naive list says.

use super::net::{Got, Net, Wire, small};
use verbs_backend::rd::{Congestion, Priority, Retransmit};

/// The first byte of a fragment says what it is.
const PLAIN: u8 = 0;
const URGENT: u8 = 1;
/// Four bytes of landing and eight of length follow.
const ANNOUNCES: u8 = 2;

fn opens(data: &[u8]) -> Option<(u32, u64)> {
    let [ANNOUNCES, rest @ ..] = data else {
        return None;
    };
    let landing = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?);
    let len = u64::from_le_bytes(rest.get(4..12)?.try_into().ok()?);
    // Every fourth message is not wanted.
    (!landing.is_multiple_of(4)).then_some((landing, len))
}

#[derive(Default)]
struct Pair {
    sent: Vec<Vec<u8>>,
    urgent: Vec<Vec<u8>>,
    /// Data by landing.
    puts: Vec<(u32, Vec<u8>)>,
    tags: u64,
}

const ENDS: usize = 3;

fn play(seed: u64) -> (u64, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let million = |random: &mut fastrand::Rng, most: u32| random.u32(..=most);
    let wire = Wire {
        per_kilobyte: 800,
        delay: 5_000,
        loss: million(&mut random, 200_000),
        duplicate: million(&mut random, 100_000),
        reorder: million(&mut random, 300_000),
        late: random.u64(..100_000),
        corrupt: million(&mut random, 50_000),
        truncate: million(&mut random, 50_000),
        ..Wire::default()
    };
    let mut config = small([1, 2, 4, 16, 300, 4096][random.usize(..6)]);
    config.reorder = random.u16(1..6);
    config.peer_credits = random.u16(1..40);
    config.hold = random.usize(..4000);
    config.reassembly = random.usize(..8000);
    config.ack_every = random.u16(1..20);
    if random.bool() {
        config.congestion = Congestion::None;
    }
    if random.u32(..3) == 0 {
        config.retransmit = Retransmit::Fixed(1_000_000);
    }
    let mut net = Net::new(ENDS, config, wire, seed);
    net.opens = opens;
    net.tap = Some(Vec::new());
    let mut pairs: Vec<Pair> = (0..ENDS * ENDS).map(|_| Pair::default()).collect();
    for _ in 0..random.usize(20..200) {
        let from = random.usize(..ENDS);
        let to = (from + random.usize(1..ENDS)) % ENDS;
        let pair = &mut pairs[from * ENDS + to];
        pair.tags += 1;
        let tag = pair.tags;
        let len = [0, 10, 60, 200, 3000][random.usize(..5)];
        let len = random.usize(..=len);
        let data: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
        match random.u32(..10) {
            0..6 => {
                let data = [&[PLAIN][..], &data].concat();
                pair.sent.push(data.clone());
                net.send(from, to, data, tag);
            }
            6 | 7 => {
                let data = [&[URGENT][..], &data].concat();
                pair.urgent.push(data.clone());
                net.send_as(from, to, data, tag, Priority::Urgent);
            }
            _ => {
                let peer = net.peer(from, to);
                let landing = net.ends[from].new_landing(peer);
                let head = [
                    &[ANNOUNCES][..],
                    &landing.to_le_bytes(),
                    &(len as u64).to_le_bytes(),
                ]
                .concat();
                pair.sent.push(head.clone());
                net.send(from, to, head, tag);
                pair.tags += 1;
                pair.puts.push((landing, data.clone()));
                let now = net.now;
                net.ends[from]
                    .put(now, peer, landing, data, len as u64, tag + 1)
                    .unwrap();
            }
        }
        if random.u32(..8) == 0 {
            net.run(random.u64(..200_000));
        }
        // Old datagrams again, to whom they were sent and to others, and bytes of nobody.
        if random.u32(..10) == 0 {
            let tap = net.tap.as_ref().unwrap();
            if !tap.is_empty() {
                let (to, bytes) = tap[random.usize(..tap.len())].clone();
                net.arrive(to, &bytes);
                net.arrive((to + 1) % ENDS, &bytes);
            }
            let mut bytes = vec![0; random.usize(..60)];
            random.fill(&mut bytes);
            net.arrive(0, &bytes);
        }
    }
    net.settle(60_000_000_000);
    for got in net.got.iter().flatten() {
        let lost = matches!(got.1, Got::Gone(..) | Got::Failed(..));
        assert!(!lost, "seed {seed}: {got:?}");
    }
    for from in 0..ENDS {
        for to in (0..ENDS).filter(|to| *to != from) {
            let pair = &pairs[from * ENDS + to];
            let got = net.fragments(to, from);
            let (urgent, plain): (Vec<_>, Vec<_>) =
                got.into_iter().partition(|d| d.first() == Some(&URGENT));
            assert!(plain == pair.sent, "seed {seed}: {from} to {to}");
            assert_eq!(urgent, pair.urgent, "seed {seed}: urgent, {from} to {to}");
            for (landing, data) in &pair.puts {
                let mut placed = vec![None; data.len()];
                let mut complete = 0;
                for (_, got) in &net.got[to] {
                    if let Got::Put(who, l, offset, bytes, whole) = got
                        && (*who, l) == (from, landing)
                    {
                        complete += u32::from(*whole);
                        for (i, byte) in bytes.iter().enumerate() {
                            let place = &mut placed[*offset as usize + i];
                            assert_eq!(*place, None, "seed {seed}: placed twice");
                            *place = Some(*byte);
                        }
                    }
                }
                let wanted = !landing.is_multiple_of(4) && !data.is_empty();
                assert_eq!(
                    complete,
                    u32::from(wanted),
                    "seed {seed}: landing {landing}"
                );
                if wanted {
                    let whole: Option<Vec<u8>> = placed.into_iter().collect();
                    assert_eq!(whole.as_ref(), Some(data), "seed {seed}: landing {landing}");
                }
            }
            let mut acked = net.acked(from, to);
            acked.sort_unstable();
            assert_eq!(
                acked,
                (1..=pair.tags).collect::<Vec<_>>(),
                "seed {seed}: acked once each"
            );
        }
    }
    let count =
        |f: fn(&verbs_backend::rd::Stats) -> u64| net.ends.iter().map(|e| f(e.stats())).sum();
    (count(|s| s.resends), count(|s| s.dropped()))
}

#[test]
fn random_use_is_what_a_naive_list_says() {
    let first = std::env::var("PORTOLAN_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let seeds = first.map_or(0..1500, |seed: u64| seed..seed + 1);
    let (mut resends, mut dropped) = (0, 0);
    for seed in seeds.clone() {
        let of = play(seed);
        resends += of.0;
        dropped += of.1;
    }
    println!(
        "{} seeds: {resends} segments sent again, {dropped} datagrams dropped as bad",
        seeds.count()
    );
    assert!(first.is_some() || (resends > 0 && dropped > 0));
}
