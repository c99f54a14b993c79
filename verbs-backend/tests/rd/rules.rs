//! The rules of the channel, one by one. `docs/src/mechanisms/reliable-datagrams.md` has the table of rules and tests.

use super::net::{End, Got, Net, Wire, small, token};
use verbs_backend::rd::{
    Channel, Config, Congestion, Event, HEAD, PeerId, Priority, Received, Retransmit, Time,
};

const MS: Time = 1_000_000;
const US: Time = 1_000;
const KIND: usize = 14;

/// Two ends, by hand.
struct Two {
    ends: [End; 2],
    now: Time,
    buffer: Vec<u8>,
}

fn fixed(window: u16) -> Config {
    let mut config = small(window);
    config.retransmit = Retransmit::Fixed(100 * MS);
    config.congestion = Congestion::None;
    config.reorder = 1;
    config.peer_credits = 10_000;
    config.data.depth = 10_000;
    config.command.depth = 10_000;
    config
}

impl Two {
    fn new(config: Config) -> Self {
        Self {
            ends: [0, 1].map(|own| {
                let mut end = End::new(config, own as u32, token(own));
                let _ = end.add_peer(1 - own as u32, token(1 - own));
                end
            }),
            now: MS,
            buffer: vec![0; 4096],
        }
    }

    fn peer(&self, own: usize) -> PeerId {
        self.ends[own].find(1 - own as u32).unwrap()
    }

    fn send(&mut self, own: usize, data: &[u8], tag: u64) {
        let peer = self.peer(own);
        let (now, len) = (self.now, data.len() as u64);
        self.ends[own]
            .send(now, peer, data.to_vec(), len, tag, Priority::InOrder)
            .unwrap();
    }

    /// All that an end has to send, which has left at once.
    fn take(&mut self, own: usize) -> Vec<(Channel, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(t) = self.ends[own].poll_transmit(self.now, &mut self.buffer) {
            self.ends[own].handle_sent(t.channel, 1);
            all.push((t.channel, self.buffer[..t.len].to_vec()));
        }
        all
    }

    /// Gives an end a datagram; what was handed up.
    fn give(&mut self, own: usize, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut got = Vec::new();
        if let Received::Fragment { data, .. } = self.ends[own].handle_datagram(self.now, datagram)
        {
            got.push(data.to_vec());
        }
        while let Some(event) = self.ends[own].poll_event() {
            if let Event::Fragment { data, .. } = event {
                got.push(data);
            }
        }
        got
    }

    fn tags(&mut self, own: usize) -> Vec<u64> {
        let events = std::iter::from_fn(|| self.ends[own].poll_event());
        events
            .filter_map(|e| match e {
                Event::Acked { tag, .. } => Some(tag),
                _ => None,
            })
            .collect()
    }

    fn pass(&mut self, time: Time) {
        self.now += time;
        for end in &mut self.ends {
            end.handle_timeout(self.now);
        }
    }
}

fn half(datagram: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([datagram[at], datagram[at + 1]])
}

fn seq(datagram: &[u8]) -> u16 {
    half(datagram, 8)
}

fn ack(datagram: &[u8]) -> u16 {
    half(datagram, 10)
}

fn kind(datagram: &[u8]) -> u8 {
    datagram[KIND] & 0x7f
}

const ACK: u8 = 1;

#[test]
fn every_segment_has_the_next_number_and_numbers_wrap() {
    let mut two = Two::new(fixed(4096));
    let mut expected = None;
    for i in 0..70_000u32 {
        two.send(0, &i.to_le_bytes(), 0);
        for (_, datagram) in two.take(0) {
            let number = seq(&datagram);
            assert_eq!(number, expected.unwrap_or(number));
            expected = Some(number.wrapping_add(1));
            assert_eq!(two.give(1, &datagram), [i.to_le_bytes()]);
        }
        for (_, datagram) in two.take(1) {
            two.give(0, &datagram);
        }
    }
}

#[test]
fn the_window_is_never_exceeded() {
    for window in [1, 4, 4096] {
        let mut two = Two::new(fixed(window));
        for i in 0..5000 {
            two.send(0, &[1], i);
        }
        let sent = two.take(0);
        assert_eq!(sent.len(), usize::from(window));
        // One acked makes room for one.
        two.give(1, &sent[0].1);
        two.pass(200 * US);
        for (_, datagram) in two.take(1) {
            two.give(0, &datagram);
        }
        assert_eq!(two.take(0).len(), 1);
    }
}

#[test]
fn a_segment_is_kept_until_it_is_acked_and_its_timer_runs() {
    let mut two = Two::new(fixed(16));
    two.send(0, b"a", 5);
    let first = two.take(0);
    for round in 1..5 {
        assert!(two.tags(0).is_empty());
        assert!(two.ends[0].next_timeout().is_some());
        two.pass(99 * MS);
        assert!(two.take(0).is_empty());
        two.pass(2 * MS);
        let again = two.take(0);
        assert_eq!(again.len(), 1);
        assert_eq!(seq(&again[0].1), seq(&first[0].1));
        assert_eq!(two.ends[0].stats().timeouts, round);
    }
    two.give(1, &first[0].1);
    two.pass(200 * US);
    for (_, datagram) in two.take(1) {
        two.ends[0].handle_datagram(two.now, &datagram);
    }
    assert_eq!(two.tags(0), [5]);
    assert_eq!(two.ends[0].next_timeout(), None);
    assert!(two.ends[0].is_idle());
}

#[test]
fn an_ack_covers_all_before_it_and_only_what_has_no_gap() {
    let mut two = Two::new(fixed(16));
    for i in 0..6 {
        two.send(0, &[i], u64::from(i));
    }
    let sent = two.take(0);
    let first = seq(&sent[0].1);
    // 0 and 1, then 3 to 5: the ack stays at 2.
    for i in [0, 1, 3, 4, 5] {
        two.give(1, &sent[i].1);
    }
    let acks = two.take(1);
    let last = &acks.last().unwrap().1;
    assert_eq!((kind(last), ack(last)), (ACK, first.wrapping_add(2)));
    // All acks but the last are lost.
    let got = two.give(1, &sent[2].1);
    assert_eq!(got, [[2], [3], [4], [5]]);
    let acks = two.take(1);
    let last = acks.last().unwrap().1.clone();
    assert_eq!(ack(&last), first.wrapping_add(6));
    two.ends[0].handle_datagram(two.now, &last);
    assert_eq!(two.tags(0), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn one_ack_waits_for_several_segments() {
    let mut two = Two::new(fixed(64));
    for _ in 0..5 {
        two.send(0, b"x", 0);
    }
    for (_, datagram) in two.take(0) {
        two.give(1, &datagram);
        assert!(two.take(1).is_empty(), "it waits");
    }
    let due = two.ends[1].next_timeout().unwrap() - two.now;
    assert!((50 * US..200 * US).contains(&due), "{due}");
    two.pass(due);
    let acks = two.take(1);
    assert_eq!(acks.len(), 1);
    assert_eq!(acks[0].0, Channel::Command);
    // But not for more than so many.
    for _ in 0..16 {
        two.send(0, b"x", 0);
    }
    for (_, datagram) in two.take(0) {
        two.give(1, &datagram);
    }
    assert_eq!(two.take(1).len(), 1);
}

#[test]
fn a_stale_segment_is_answered_at_once_and_not_handed_up() {
    let mut two = Two::new(fixed(16));
    two.send(0, b"x", 0);
    let sent = two.take(0);
    assert_eq!(two.give(1, &sent[0].1).len(), 1);
    two.pass(200 * US);
    assert_eq!(two.take(1).len(), 1);
    assert_eq!(two.give(1, &sent[0].1).len(), 0);
    let again = two.take(1);
    assert_eq!(again.len(), 1);
    assert_eq!(kind(&again[0].1), ACK);
    assert_eq!(two.ends[1].stats().window_low, 1);
}

#[test]
fn what_acks_say_is_lost_is_sent_again_at_once_and_only_once() {
    let mut two = Two::new(fixed(16));
    for i in 0..4 {
        two.send(0, &[i], 0);
    }
    let sent = two.take(0);
    two.give(1, &sent[1].1);
    let first = two.take(1);
    two.give(1, &sent[2].1);
    let second = two.take(1);
    two.give(0, &first[0].1);
    let again = two.take(0);
    assert_eq!(again.len(), 1);
    assert_eq!(seq(&again[0].1), seq(&sent[0].1));
    assert_eq!(again[0].0, Channel::Data, "never on the channel of acks");
    // A second report of the same gap, while the repetition is under way.
    two.give(0, &second[0].1);
    assert!(two.take(0).is_empty());
    assert_eq!(two.ends[0].stats().fast_resends, 1);
    assert_eq!(two.ends[0].stats().timeouts, 0);
}

#[test]
fn old_acks_are_ignored() {
    let mut two = Two::new(fixed(16));
    let mut acks = Vec::new();
    for i in 0..3 {
        two.send(0, &[i], u64::from(i));
        for (_, datagram) in two.take(0) {
            two.give(1, &datagram);
        }
        two.pass(200 * US);
        acks.extend(two.take(1));
    }
    acks.reverse();
    for (_, datagram) in &acks {
        two.ends[0].handle_datagram(two.now, datagram);
    }
    assert_eq!(two.tags(0), [0, 1, 2]);
    assert_eq!(two.ends[0].stats().old_acks, 2);
    assert!(two.take(0).is_empty());
}

#[test]
fn an_ack_rides_on_data() {
    let mut two = Two::new(fixed(16));
    for i in 0..50 {
        let (from, to) = (i % 2, 1 - i % 2);
        two.send(from, b"ping", 0);
        let sent = two.take(from);
        assert_eq!(sent.len(), 1);
        two.give(to, &sent[0].1);
    }
    assert_eq!(
        two.ends[0].stats().ack_sends + two.ends[1].stats().ack_sends,
        0
    );
}

#[test]
fn what_an_ack_ends_can_be_told_before_the_data_that_it_came_with() {
    let mut two = Two::new(fixed(64));
    two.send(0, &[7; 300], 9);
    for (_, datagram) in two.take(0) {
        two.give(1, &datagram);
    }
    // The answer carries the ack.
    two.send(1, b"answer", 0);
    let answer = two.take(1);
    let end = &mut two.ends[0];
    let received = end.handle_datagram(two.now, &answer.last().unwrap().1);
    assert!(matches!(
        received,
        Received::Fragment {
            data: b"answer",
            ..
        }
    ));
    assert!(matches!(
        end.poll_ended(),
        Some(Event::Acked { tag: 9, .. })
    ));
    assert_eq!(end.poll_ended(), None);
}

#[test]
fn acks_and_tiny_fragments_take_the_command_channel() {
    let mut two = Two::new(fixed(64));
    two.send(0, &[0; 64 - HEAD], 0);
    two.send(0, &[0; 65 - HEAD], 0);
    two.send(0, &[0; 500], 0);
    let channels: Vec<_> = two.take(0).into_iter().map(|d| (d.0, kind(&d.1))).collect();
    assert_eq!(channels[0], (Channel::Command, 2));
    assert_eq!(channels[1], (Channel::Data, 2));
    assert!(channels.len() > 5 && channels[2..].iter().all(|c| *c == (Channel::Data, 3)));
}

#[test]
fn credits_bound_what_is_posted_and_peers_take_turns() {
    let mut config = fixed(4096);
    config.data.depth = 40;
    config.peer_credits = 24;
    let mut end = End::new(config, 0, token(0));
    let peers: Vec<_> = (1..4).map(|n| end.add_peer(n, token(n as usize))).collect();
    for peer in &peers {
        end.send(MS, *peer, vec![0; 20_000], 20_000, 0, Priority::InOrder)
            .unwrap();
    }
    let mut buffer = [0; 128];
    let mut counts = [0; 3];
    while let Some(t) = end.poll_transmit(MS, &mut buffer) {
        counts[t.peer.index()] += 1;
    }
    assert_eq!(counts.iter().sum::<u32>(), 40);
    assert!(counts.iter().all(|c| (8..=24).contains(c)), "{counts:?}");
    // What leaves makes room for others.
    end.handle_sent(Channel::Data, 40);
    let mut more = 0;
    while end.poll_transmit(MS, &mut buffer).is_some() {
        more += 1;
    }
    assert_eq!(more, 40);
}

#[test]
fn a_timer_does_not_send_again_what_has_not_left() {
    let mut two = Two::new(fixed(16));
    two.send(0, b"x", 0);
    let mut buffer = [0; 128];
    assert!(two.ends[0].poll_transmit(two.now, &mut buffer).is_some());
    for _ in 0..3 {
        two.pass(101 * MS);
        assert!(two.ends[0].poll_transmit(two.now, &mut buffer).is_none());
    }
    assert_eq!(two.ends[0].stats().renewals, 3);
    // Unless it never seems to leave.
    two.pass(101 * MS);
    assert!(two.ends[0].poll_transmit(two.now, &mut buffer).is_some());
}

#[test]
fn the_channels_do_not_overtake_each_other_by_much() {
    let mut config = fixed(4096);
    config.cross = 2;
    config.reorder = 4;
    let mut two = Two::new(config);
    let mut buffer = [0; 128];
    two.send(0, &[0; 100], 0);
    for _ in 0..20 {
        two.send(0, b"tiny", 0);
    }
    // The large one does not leave.
    let mut command = 0;
    while let Some(t) = two.ends[0].poll_transmit(two.now, &mut buffer) {
        command += usize::from(t.channel == Channel::Command);
    }
    assert_eq!(command, 2);
}

#[test]
fn a_large_send_followed_by_many_small_ones_is_not_sent_twice() {
    let wire = Wire {
        per_kilobyte: 800,
        delay: 5 * US,
        ..Wire::default()
    };
    let mut net = Net::new(2, Config::default(), wire, 1);
    for i in 0..2000u64 {
        net.send(0, 1, vec![0; 60_000], i);
        for _ in 0..20 {
            net.send(0, 1, vec![1; 8], i);
            net.run(US);
        }
    }
    net.settle(1000 * MS);
    let stats = net.ends[0].stats();
    assert!(stats.chunk_sends > 20_000);
    assert_eq!(stats.resends, 0);
}

#[test]
fn urgent_fragments_go_first_but_not_for_ever() {
    let mut config = fixed(4096);
    config.overtake = 3;
    let mut two = Two::new(config);
    two.send(0, b"plain", 0);
    let peer = two.peer(0);
    for i in 0..10 {
        two.ends[0]
            .send(two.now, peer, vec![i], 1, 0, Priority::Urgent)
            .unwrap();
    }
    let mut got = Vec::new();
    for (_, datagram) in two.take(0) {
        got.extend(two.give(1, &datagram));
    }
    assert_eq!(got.iter().position(|d| d == b"plain"), Some(3));
    assert_eq!(got.len(), 11);
}

/// What is sent last comes after all that was sent before it, in either order, and no turn is given to it.
#[test]
fn what_is_last_comes_after_all_before_it() {
    let mut config = fixed(4096);
    config.overtake = 3;
    let mut two = Two::new(config);
    let peer = two.peer(0);
    two.send(0, b"plain", 0);
    let mut say = |data: &[u8], priority| {
        let len = data.len() as u64;
        let sent = two.ends[0].send(two.now, peer, data.to_vec(), len, 0, priority);
        assert!(sent.is_ok());
    };
    for i in 0..20 {
        say(&[i], Priority::Urgent);
    }
    say(b"last", Priority::Last);
    say(b"after", Priority::InOrder);
    let mut got = Vec::new();
    for (_, datagram) in two.take(0) {
        got.extend(two.give(1, &datagram));
    }
    assert_eq!(got.iter().position(|d| d == b"plain"), Some(3));
    assert_eq!(got[21..], [b"last".to_vec(), b"after".to_vec()]);
}

/// Data of a put that is urgent goes before requests, behind the fragment that announces it.
#[test]
fn an_urgent_put_goes_before_what_is_not_urgent() {
    let mut config = fixed(4096);
    config.overtake = 64;
    let mut two = Two::new(config);
    let peer = two.peer(0);
    for i in 0..100 {
        two.send(0, &[i], 1);
    }
    let (now, len) = (two.now, 300);
    let end = &mut two.ends[0];
    end.send(now, peer, vec![200], 1, 2, Priority::Urgent)
        .unwrap();
    end.put_urgent(now, peer, 1, vec![1; 300], len, 3).unwrap();
    let sent = two.take(0);
    let kinds: Vec<u8> = sent.iter().map(|(_, d)| d[KIND]).collect();
    let puts = kinds.iter().rposition(|kind| *kind != kinds[0]);
    assert!(puts.is_some_and(|last| last < 10), "{kinds:?}");
}

#[test]
fn puts_are_placed_where_they_belong_without_reassembly() {
    fn opens(_: &[u8]) -> Option<(u32, u64)> {
        Some((1, 10_000))
    }
    let wire = Wire {
        per_kilobyte: 800,
        delay: 5 * US,
        loss: 50_000,
        reorder: 200_000,
        late: 50 * US,
        ..Wire::default()
    };
    let mut net = Net::new(2, small(4096), wire, 5);
    net.opens = opens;
    let peer = net.peer(0, 1);
    let landing = net.ends[0].new_landing(peer);
    let data: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
    net.send(0, 1, b"here it comes".to_vec(), 1);
    net.ends[0]
        .put(net.now, peer, landing, data.clone(), 10_000, 2)
        .unwrap();
    net.settle(10_000 * MS);
    let mut placed = vec![0; 10_000];
    for (_, got) in &net.got[1] {
        if let Got::Put(_, _, offset, bytes, _) = got {
            placed[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }
    assert_eq!(placed, data);
    assert_eq!(net.ends[1].stats().chunk_receives, 0);
    assert!(net.ends[1].stats().held > 0, "some came out of order");
    // The sender learns of the end by the ack of the last byte.
    assert_eq!(net.acked(0, 1), [1, 2]);
}

#[test]
fn a_peer_that_does_not_answer_is_given_up_and_what_it_was_sent_fails() {
    let mut config = small(16);
    config.give_up = 500 * MS;
    let mut net = Net::new(
        2,
        config,
        Wire {
            loss: 1_000_000,
            ..Wire::default()
        },
        1,
    );
    net.send(0, 1, vec![1; 3000], 1);
    net.send(0, 1, vec![1; 3], 2);
    net.run(2000 * MS);
    let got: Vec<_> = net.got[0].iter().map(|g| g.1.clone()).collect();
    assert_eq!(
        got,
        [Got::Failed(1, 1), Got::Failed(1, 2), Got::Gone(1, false)]
    );
    let peer = net.peer(0, 1);
    assert!(
        net.ends[0]
            .send(net.now, peer, vec![], 0, 0, Priority::InOrder)
            .is_err()
    );
    assert!(net.ends[0].is_idle());
    // Not many were tried: the time between them doubles.
    assert!(
        net.ends[0].stats().resends < 40,
        "{:?}",
        net.ends[0].stats()
    );
}

#[test]
fn silence_while_nothing_was_sent_does_not_count_against_a_peer() {
    let mut config = fixed(16);
    config.give_up = 500 * MS;
    let mut two = Two::new(config);
    two.send(0, b"x", 1);
    let first = two.take(0);
    two.give(1, &first[0].1);
    two.pass(200 * US);
    for (_, datagram) in two.take(1) {
        two.give(0, &datagram);
    }
    two.pass(60_000 * MS);
    two.send(0, b"y", 2);
    let _ = two.take(0);
    // That was lost, and nothing has been heard for a minute.
    two.pass(101 * MS);
    assert_eq!(two.take(0).len(), 1);
    assert!(!two.ends[0].is_gone(two.peer(0)));
    two.pass(500 * MS);
    assert!(two.ends[0].is_gone(two.peer(0)));
}

#[test]
fn who_goes_to_sleep_leaves_no_ack_behind() {
    let mut two = Two::new(fixed(16));
    two.send(0, b"x", 0);
    for (_, datagram) in two.take(0) {
        two.give(1, &datagram);
    }
    assert!(two.take(1).is_empty(), "it waits");
    two.ends[1].ack_all();
    let acks = two.take(1);
    assert_eq!(acks.len(), 1);
    assert_eq!(kind(&acks[0].1), ACK);
    assert_eq!(two.ends[1].next_timeout(), None);
    assert!(two.ends[1].is_idle());
}

#[test]
fn a_receiver_that_computes_is_not_flooded_and_loses_nothing() {
    let wire = Wire {
        per_kilobyte: 800,
        delay: 5 * US,
        buffers: 100,
        ..Wire::default()
    };
    let mut net = Net::new(2, Config::default(), wire, 1);
    net.deaf[1] = true;
    for i in 0..500 {
        net.send(0, 1, vec![7; 8000], i);
    }
    net.run(3000 * MS);
    assert!(
        net.ends[0].stats().resends < 200,
        "{:?}",
        net.ends[0].stats()
    );
    net.listen(1);
    net.settle(5000 * MS);
    assert_eq!(net.fragments(1, 0).len(), 500);
}

#[test]
fn a_farewell_ends_what_its_acks_did_not() {
    let mut two = Two::new(fixed(16));
    two.send(0, b"last words", 3);
    for (_, datagram) in two.take(0) {
        two.give(1, &datagram);
    }
    // The ack is lost with all that was said before the farewell.
    let peer = two.peer(1);
    two.ends[1].farewell(peer);
    let bye = two.take(1);
    two.ends[0].handle_datagram(two.now, &bye.last().unwrap().1);
    let events: Vec<_> = std::iter::from_fn(|| two.ends[0].poll_event()).collect();
    let peer = two.peer(0);
    assert_eq!(
        events,
        [
            Event::Acked { peer, tag: 3 },
            Event::Gone {
                peer,
                said: true,
                unacked: 0
            }
        ]
    );
    assert_eq!(two.ends[0].next_timeout(), None);
}

#[test]
fn who_goes_leaves_a_count_of_what_it_has_not_acked() {
    let mut two = Two::new(fixed(16));
    let peer = two.peer(0);
    for tag in 0..3 {
        two.send(0, b"said", tag);
    }
    let now = two.now;
    two.ends[0]
        .put(now, peer, 1, vec![1; 10], 10, 3)
        .expect("the peer is there");
    // The first arrives, the third one beyond a gap; the last is not even sent.
    let sent = two.take(0);
    for at in [0, 2] {
        two.give(1, &sent[at].1);
    }
    two.send(0, b"said", 4);
    // An answer is not among those that were sent in order.
    let answer = b"answer".to_vec();
    let sent = two.ends[0].send(now, peer, answer, 6, 5, Priority::Urgent);
    assert!(sent.is_ok());
    let there = two.peer(1);
    two.ends[1].farewell(there);
    for (_, datagram) in two.take(1) {
        two.ends[0].handle_datagram(two.now, &datagram);
    }
    let events: Vec<_> = std::iter::from_fn(|| two.ends[0].poll_event()).collect();
    let failed = |tag| Event::Failed { peer, tag };
    let gone = Event::Gone {
        peer,
        said: true,
        unacked: 3,
    };
    assert_eq!(events[0], Event::Acked { peer, tag: 0 });
    assert_eq!(
        events[1..],
        [failed(1), failed(2), failed(3), failed(5), failed(4), gone]
    );
}

#[test]
fn an_adaptive_timer_recovers_sooner_than_the_fixed_one() {
    let late = |retransmit| {
        let mut config = fixed(16);
        config.retransmit = retransmit;
        let mut two = Two::new(config);
        // Round trips of 100 us are learned.
        for _ in 0..50 {
            two.send(0, b"x", 0);
            let sent = two.take(0);
            two.now += 50 * US;
            two.give(1, &sent[0].1);
            two.send(1, b"y", 0);
            let back = two.take(1);
            two.now += 50 * US;
            two.give(0, &back[0].1);
        }
        two.send(0, b"lost", 0);
        let _ = two.take(0);
        two.ends[0].next_timeout().unwrap() - two.now
    };
    let adaptive = Retransmit::Adaptive {
        initial: 5 * MS,
        least: 200 * US,
        most: 100 * MS,
    };
    assert!(late(adaptive) < MS);
    assert!(late(Retransmit::Fixed(5 * MS)) >= 5 * MS);
}

#[test]
fn a_larger_gap_needs_no_timer_even_if_the_repetition_is_lost() {
    let mut config = fixed(64);
    config.reorder = 3;
    let mut two = Two::new(config);
    for i in 0..20 {
        two.send(0, &[i], 0);
    }
    let sent = two.take(0);
    for (_, datagram) in &sent[1..5] {
        two.give(1, datagram);
    }
    let acks = two.take(1);
    two.give(0, &acks.last().unwrap().1);
    assert_eq!(two.take(0).len(), 1, "the repetition, which is lost");
    two.send(0, b"more", 0);
    two.send(0, b"more", 0);
    two.send(0, b"more", 0);
    let later = two.take(0);
    for (_, datagram) in &later {
        two.give(1, datagram);
    }
    let acks = two.take(1);
    two.give(0, &acks.last().unwrap().1);
    let again = two.take(0);
    assert!(again.iter().any(|d| seq(&d.1) == seq(&sent[0].1)));
    assert_eq!(two.ends[0].stats().timeouts, 0);
}
