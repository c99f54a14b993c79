//! Connections: made on demand, by both sides at once, broken and mended.

use super::*;
use std::process::Command;
use std::time::{Duration, Instant};

/// How often the tests of faults are repeated; `PORTOLAN_TEST_ROUNDS`.
fn rounds() -> u32 {
    let rounds = std::env::var("PORTOLAN_TEST_ROUNDS").ok();
    rounds.and_then(|r| r.parse().ok()).unwrap_or(2)
}

/// The network interface below the device, where it may be played with: in a guest.
fn netdev() -> Option<String> {
    let device = std::env::var("PORTOLAN_TEST_DEVICE").ok()?;
    if std::env::var_os("PORTOLAN_GUEST").is_none() {
        println!("skipped: faults of the network are made in a guest only");
        return None;
    }
    let name = std::fs::read_to_string(format!("/sys/class/infiniband/{device}/parent")).ok()?;
    Some(name.trim().to_owned())
}

fn ip(words: &[&str]) {
    let done = Command::new("ip").args(words).status().unwrap();
    assert!(done.success(), "ip {words:?}");
}

/// The address goes with some links and not with others.
fn set_link(netdev: &str, state: &str) {
    ip(&["link", "set", netdev, state]);
}

/// Everybody talks to everybody at once, out of the blue.
#[test]
fn device_everybody_connects_to_everybody_at_once() {
    const RANKS: u32 = 6;
    ranks(RANKS, 4096, |rank, o, s| {
        for peer in (0..RANKS).filter(|p| *p != rank) {
            ring(o, s, o.peers[peer as usize]);
        }
        for _ in 1..RANKS {
            wait(o, s.eq, EventKind::PutEnd, BELL);
        }
        assert_eq!(o.interface.status().unwrap().drop_count, 0);
    });
}

/// Resident memory of this process, bytes. Without that of files: how much of the program's code is in place depends on what
/// the system has read.
fn resident() -> usize {
    let mut sum = 0;
    let mut counts = false;
    // By the pages themselves: the count in `statm` lags by up to 64 pages for each thread (Linux before 6.2).
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap();
        if let Some(label) = first.strip_suffix(':') {
            let kib: usize = match words.next() {
                Some(word) if counts && label == "Rss" => word.parse().unwrap(),
                _ => 0,
            };
            sum += kib << 10;
        } else {
            // Range, rights, offset, device, inode, and a path if there is one.
            counts = words
                .nth(4)
                .is_none_or(|path| !path.starts_with('/') || path.starts_with("/dev/"));
        }
    }
    sum
}

/// A job of thousands: peers never talked to cost a few bytes, one that was talked to its slots.
#[test]
fn device_thousands_of_peers_cost_what_is_used() {
    const SIZE: u32 = 8192;
    const OFFLOADED: &str = "PORTOLAN_TEST_ALONE";
    let Some(device) = device() else { return };
    if std::env::var_os(OFFLOADED).is_none() {
        // In a process of its own: what tests before it gave back to the allocator is resident, and would be used again
        // uncounted.
        let name = "tests::links::device_thousands_of_peers_cost_what_is_used";
        let own = std::env::current_exe().unwrap();
        let args = [name, "--exact", "--nocapture"];
        let child = Command::new(own)
            .args(args)
            .env(OFFLOADED, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout);
        print!("{text}");
        assert!(
            child.status.success(),
            "{}",
            String::from_utf8_lossy(&child.stderr)
        );
        assert!(
            text.contains("bytes; a connection: "),
            "measured nothing: {text}"
        );
        return;
    }
    // Else the first byte of a thread's stack may cost 2 MiB, as the addresses fall.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let before = resident();
    let opened = portals_shim::fabric::interfaces(
        super::super::in_threads_of(2, SIZE, Some(&device)).unwrap(),
    );
    let open = resident();
    let s: Vec<Side> = opened.iter().map(|o| side(o, 4096)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| wait(&opened[1], s[1].eq, EventKind::PutEnd, BELL));
        ring(&opened[0], &s[0], opened[0].peers[1]);
        wait(&opened[0], s[0].eq, EventKind::SendEnd, BELL);
    });
    let talked = resident();
    let (each, link) = ((open - before) / 2, talked.saturating_sub(open) / 2);
    println!("a rank of {SIZE}: {each} bytes; a connection: {link} bytes");
    // The send buffers, the completion queue, and 24 bytes for each rank.
    assert!(each < 9 << 20, "{each} bytes for a rank");
    assert!(link < 256 << 10, "{link} bytes for a connection");
    for o in &opened {
        o.interface.close().unwrap();
    }
}

/// Messages, gets and puts go on while the link goes down and comes back: messages arrive once each and in order,
/// every operation ends once, and what failed says so.
#[test]
fn device_a_broken_link_is_mended() {
    let Some(netdev) = netdev() else { return };
    if std::env::var_os("PORTOLAN_CONNECT").is_some() {
        println!(
            "skipped: SoftRoCE's connection manager connects nobody after it has met a link that is down"
        );
        return;
    }
    for round in 0..rounds() {
        let netdev = netdev.clone();
        ranks(2, 65_536, move |rank, o, s| {
            const MANY: u64 = 600;
            let ni = &o.interface;
            let peer = o.peers[1 - rank as usize];
            ring(o, s, peer);
            wait(o, s.eq, EventKind::PutEnd, BELL);
            if rank == 1 {
                // Long messages end later than short ones that began after them.
                let (mut begun, mut ended) = (0, 0);
                while ended < MANY {
                    let polled = ni.eq_poll(&[s.eq], PATIENCE).unwrap();
                    let polled = polled.expect("a message comes");
                    assert!(!polled.dropped);
                    let e = polled.event;
                    match (e.kind, e.match_bits) {
                        (EventKind::PutStart, LOUD) => {
                            assert_eq!((e.hdr_data, e.ni_fail), (begun, NiFail::OK));
                            begun += 1;
                        }
                        (EventKind::PutEnd, LOUD) => {
                            assert_eq!(e.ni_fail, NiFail::OK);
                            ended += 1;
                        }
                        _ => {}
                    }
                }
                assert_eq!(begun, MANY);
                ring(o, s, peer);
                // The end of the other side's counting.
                wait(o, s.eq, EventKind::PutEnd, BELL);
                return;
            }
            let (mut sent, mut ends, mut acks, mut puts, mut failed) = (0, 0, 0, 0u64, 0u64);
            let mut put_ends = (0u64, 0u64);
            let mut down: Option<Instant> = None;
            let mut replies = (0u64, 0u64);
            let mut rang = false;
            while acks < MANY
                || ends < MANY
                || put_ends.0 < puts
                || put_ends.1 < puts
                || replies.0 > replies.1
            {
                if sent < MANY && sent - acks < 16 {
                    let len = [8, 4000, 20_000][(sent % 3) as usize];
                    let there = to(peer, LOUD, 0);
                    ni.put_region(s.source, (0, len), AckRequest::Ack, there, sent)
                        .unwrap();
                    sent += 1;
                    if sent % 10 == 0 {
                        let quiet = to(peer, QUIET, 0);
                        let there = [8, 4096][(sent / 10 % 2) as usize];
                        ni.put_region(s.source, (0, there), AckRequest::Ack, quiet, 0)
                            .unwrap();
                        puts += 1;
                        ni.get_region(s.source, (0, 4096), to(peer, QUIET, 0))
                            .unwrap();
                        replies.0 += 1;
                    }
                }
                if sent == MANY / 2 && down.is_none() {
                    set_link(&netdev, "down");
                    down = Some(Instant::now());
                }
                if let Some(at) = down
                    && at.elapsed() > Duration::from_millis(700)
                    && !rang
                {
                    set_link(&netdev, "up");
                    rang = true;
                }
                while let Some(p) = ni.eq_poll(&[s.eq], Wait::Nanos(1_000_000)).unwrap() {
                    assert!(!p.dropped);
                    let e = p.event;
                    let bad = u64::from(e.ni_fail != NiFail::OK);
                    match (e.kind, e.match_bits) {
                        (EventKind::SendEnd, LOUD) => ends += 1,
                        (EventKind::Ack, LOUD) => acks += 1,
                        (EventKind::SendEnd, QUIET) => put_ends.0 += 1,
                        (EventKind::Ack, QUIET) => {
                            put_ends.1 += 1;
                            failed += bad;
                        }
                        (EventKind::ReplyEnd, QUIET) => {
                            replies.1 += 1;
                            assert_eq!(bad, 0, "a get can be made again");
                        }
                        _ => {}
                    }
                    if e.match_bits == LOUD {
                        assert_eq!(bad, 0, "messages are sent again: {e:?}");
                    }
                }
            }
            assert_eq!(
                (ends, acks, put_ends, replies.0),
                (MANY, MANY, (puts, puts), replies.1)
            );
            println!(
                "round {round}: {MANY} messages in order, {puts} one-sided puts of which {failed} failed"
            );
            ring(o, s, peer);
        });
    }
}

/// A rank vanishes in the middle of long puts: every operation on it ends, with a failure from some point on, and
/// other peers go on.
#[test]
fn device_a_vanished_rank_fails_what_was_for_it() {
    let Some(device) = device() else { return };
    for _ in 0..rounds() {
        const LEN: u64 = 1 << 20;
        let mut opened =
            portals_shim::fabric::interfaces(super::super::in_threads(3, Some(&device)).unwrap());
        let mut s: Vec<Side> = opened.iter().map(|o| side(o, LEN as usize)).collect();
        // Ranks 0 and 1 know each other and rank 2.
        for (from, to_whom) in [(0, 1), (0, 2), (1, 0)] {
            ring(&opened[from], &s[from], opened[from].peers[to_whom]);
            std::thread::scope(|scope| {
                scope.spawn(|| wait(&opened[from], s[from].eq, EventKind::SendEnd, BELL));
                wait(&opened[to_whom], s[to_whom].eq, EventKind::PutEnd, BELL);
            });
        }
        let victim = opened.pop().unwrap();
        let _side = s.pop();
        let (zero, one) = (&opened[0], &opened[1]);
        let ni = &zero.interface;
        let (mut ends, mut acks, mut failed) = (0, 0, 0);
        let mut victim = Some(victim);
        const MANY: u64 = 12;
        for n in 0..MANY {
            // Some the one-sided way, some by rendezvous.
            let bits = if n % 2 == 0 { QUIET } else { LOUD };
            let there = to(zero.peers[2], bits, 0);
            ni.put_region(s[0].source, (0, LEN), AckRequest::Ack, there, n)
                .unwrap();
            ni.get_region(s[0].source, (0, LEN), there).unwrap();
            if n == MANY / 2 {
                victim = None;
            }
        }
        assert!(victim.is_none());
        let mut replies = 0;
        let start = Instant::now();
        while ends < MANY || acks < MANY || replies < MANY {
            let polled = ni.eq_poll(&[s[0].eq], Wait::Nanos(60_000_000_000)).unwrap();
            let e = polled.expect("every operation ends").event;
            failed += u32::from(e.ni_fail != NiFail::OK);
            match e.kind {
                EventKind::SendEnd => ends += 1,
                EventKind::Ack => acks += 1,
                EventKind::ReplyEnd => replies += 1,
                _ => {}
            }
        }
        println!("{failed} events with a failure after {:?}", start.elapsed());
        assert!(failed > 0);
        // The first one that was under way at the end cannot have been acknowledged.
        assert_eq!((ends, acks, replies), (MANY, MANY, MANY));
        // A later one fails at once.
        ni.put_region(
            s[0].source,
            (0, 8),
            AckRequest::Ack,
            to(zero.peers[2], QUIET, 0),
            0,
        )
        .unwrap();
        let e = wait_any(zero, s[0].eq, EventKind::SendEnd);
        assert_eq!(e.ni_fail, NiFail::FAIL);
        // The others do not care.
        ring(zero, &s[0], zero.peers[1]);
        wait(one, s[1].eq, EventKind::PutEnd, BELL);
        for o in &opened {
            o.interface.close().unwrap();
        }
    }
}

fn wait_any(o: &Opened, eq: EqHandle, kind: EventKind) -> portals_core::Event {
    loop {
        let polled = o.interface.eq_poll(&[eq], PATIENCE).unwrap();
        let polled = polled.unwrap_or_else(|| panic!("no {kind:?} came"));
        assert!(!polled.dropped, "events were lost");
        if polled.event.kind == kind {
            return polled.event;
        }
    }
}

/// A process that was never there: operations on it fail when patience ends.
#[test]
fn device_a_rank_that_is_not_there_is_a_failure() {
    let Some(device) = device() else { return };
    let opened =
        portals_shim::fabric::interfaces(super::super::in_threads_of(1, 2, Some(&device)).unwrap());
    let o = &opened[0];
    let s = side(o, 4096);
    o.interface
        .put_region(
            s.source,
            (0, 8),
            AckRequest::Ack,
            to(o.peers[1], LOUD, 0),
            0,
        )
        .unwrap();
    let e = wait_any(o, s.eq, EventKind::SendEnd);
    assert_eq!(e.ni_fail, NiFail::FAIL);
    let e = wait_any(o, s.eq, EventKind::Ack);
    assert_eq!(e.ni_fail, NiFail::FAIL);
    o.interface.close().unwrap();
}

/// A process of another job is told of no descriptor, and each of its messages is checked.
#[test]
fn device_another_job_reaches_only_what_it_may() {
    let Some(device) = device() else { return };
    let opened = portals_shim::fabric::interfaces(
        super::super::connect::in_threads_as(&[1, 2], &device).unwrap(),
    );
    let s: Vec<Side> = opened.iter().map(|o| side(o, 4096)).collect();
    let (one, other) = (&opened[0], &opened[1]);
    // The first access control entry lets the own job in and nobody else.
    for (jid, o) in (1..).zip(&opened) {
        let own = AcEntry {
            match_id: ProcessId::ANY,
            uid: ANY,
            jid,
            pt_index: ANY,
        };
        o.interface.ac_entry(0, own).unwrap();
    }
    for bits in [QUIET, LOUD] {
        one.interface
            .put_region(
                s[0].source,
                (0, 8),
                AckRequest::NoAck,
                to(one.peers[1], bits, 0),
                0,
            )
            .unwrap();
        wait(one, s[0].eq, EventKind::SendEnd, bits);
    }
    let end = Instant::now() + Duration::from_secs(20);
    while other.interface.status().unwrap().drop_count < 2 {
        assert!(Instant::now() < end, "{:?}", other.interface.status());
        let _ = other
            .interface
            .eq_poll(&[s[1].eq], Wait::Nanos(1_000_000))
            .unwrap();
    }
    assert_eq!(one.interface.paths().unwrap().one_sided, 0);
    let mut seen = [0; 8];
    s[1].quiet.read(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 8]);
    for o in &opened {
        o.interface.close().unwrap();
    }
}
