//! Connections made by the connection manager, and the rules of iWARP, whatever the device.

use super::raw::{Raw, close, connect_all, drained, raws_of, until};
use super::*;
use crate::connect;
use crate::mail::host_ports;
use crate::settings::{Connect, Settings};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use verbs_backend::cm::{CmEvent, Link, Manager};
use verbs_backend::{Access, Cq, Device, Pd, Qp, QpOptions};

const LEN: usize = 65_536;
const LIMIT: Duration = Duration::from_secs(40);

/// Ranks that are connected by the manager, or by the rules of iWARP, with each other.
fn connected(ranks: u32, by: Connect) -> Option<Vec<Raw>> {
    let device = device()?;
    let mut settings = Settings::from_env().unwrap();
    settings.connect = Some(by);
    let parts = connect::in_parts_by(ranks, &device, settings).unwrap();
    let mut raws = raws_of(parts, LEN);
    connect_all(&mut raws);
    drained(&mut raws, "the connections are made");
    Some(raws)
}

fn qpn(raw: &Raw, peer: usize) -> Option<u32> {
    let peer = raw.library.nal.peers.get(peer)?;
    Some(peer.sq.qp().filter(|_| peer.is_open())?.qpn())
}

/// Messages, puts and gets of all lengths, as they go over any connection.
fn talk(raws: &mut [Raw], rounds: u64) {
    let id = raws[1].id();
    let (loud, quiet) = (to(id, LOUD, 0), to(id, QUIET, 0));
    raws[0].events.clear();
    raws[1].events.clear();
    for round in 0..rounds {
        let text = [round as u8 + 1; LEN];
        raws[0].work.write(0, &text).unwrap();
        for len in [8, 300, 4096, 40_000] {
            raws[0].put(quiet, len, AckRequest::Ack, round);
            raws[0].put(loud, len, AckRequest::Ack, round);
        }
        let acks = 4 * (round as usize + 1);
        until(raws, "acknowledgements", |r| {
            r[0].seen(EventKind::Ack, QUIET) == (acks, 0)
                && r[0].seen(EventKind::Ack, LOUD) == (acks, 0)
                && r[1].seen(EventKind::PutEnd, LOUD) == (acks, 0)
        });
        for memory in [&raws[1].quiet, &raws[1].loud] {
            let mut there = [0; 40_000];
            memory.read(0, &mut there).unwrap();
            assert!(there == text[..40_000], "round {round}");
        }
        raws[0].work.write(0, &[0; LEN]).unwrap();
        raws[0].get(quiet, 40_000);
        raws[0].get(loud, 40_000);
        until(raws, "replies", |r| {
            let (one, other) = (
                r[0].seen(EventKind::ReplyEnd, QUIET),
                r[0].seen(EventKind::ReplyEnd, LOUD),
            );
            one == (round as usize + 1, 0) && other == one
        });
        let mut here = [0; 40_000];
        raws[0].work.read(0, &mut here).unwrap();
        assert!(here == text[..40_000], "round {round}");
    }
}

#[test]
fn device_connections_by_the_manager_carry_everything() {
    for by in [Connect::Manager, Connect::Iwarp] {
        let Some(mut raws) = connected(3, by) else {
            return;
        };
        talk(&mut raws, 20);
        raws.rotate_left(1);
        talk(&mut raws, 2);
        assert!(
            raws.iter_mut()
                .all(|raw| raw.nal().counters.bad_frames == 0)
        );
        drained(&mut raws, "all is sent");
        close(raws);
    }
}

/// An acknowledged one-sided put is over when a read behind it is, and not before.
#[test]
fn device_by_the_rules_of_iwarp_a_put_ends_with_the_read_behind_it() {
    let Some(mut raws) = connected(2, Connect::Iwarp) else {
        return;
    };
    let there = to(raws[1].id(), QUIET, 0);
    // The ack says that everything before has had its effect.
    let loud = to(raws[1].id(), LOUD, 0);
    raws[0].put(loud, 8, AckRequest::Ack, 0);
    until(&mut raws, "an ack", |r| {
        r[0].seen(EventKind::Ack, LOUD) == (1, 0) && qpn(&r[0], 1).is_some()
    });
    let posts = |raw: &mut Raw| raw.nal().peer(1).unwrap().sq.qp().unwrap().posts();
    let before = (
        posts(&mut raws[0]),
        raws[0].nal().counters.protocols.paths().one_sided,
    );
    raws[0].put(there, 8, AckRequest::Ack, 0);
    assert_eq!(
        raws[0].nal().counters.protocols.paths().one_sided,
        before.1 + 1
    );
    until(&mut raws, "its ack", |r| {
        r[0].seen(EventKind::Ack, QUIET) == (1, 0)
    });
    assert!(posts(&mut raws[0]) >= before.0 + 2, "a write and a read");
    close(raws);
}

/// Each connection breaks with messages of which nobody has confirmed that they have come.
#[test]
fn device_by_the_rules_of_iwarp_messages_come_once_over_connections_that_break() {
    let Some(mut raws) = connected(2, Connect::Iwarp) else {
        return;
    };
    let there = to(raws[1].id(), LOUD, 0);
    let mut all = 0;
    for round in 0..10 {
        for len in [8, 5000, 40_000, 100, 8] {
            raws[0].put(there, len, AckRequest::Ack, 0);
            all += 1;
        }
        if round % 2 == 1 {
            // Some have left, or come.
            raws[0].step();
            raws[1].step();
        }
        let links = [0, 1].map(|rank| qpn(&raws[rank], 1 - rank));
        let who = (round / 2) % 2;
        let peer = raws[who].nal().peer(1 - who).unwrap();
        peer.sq.qp().unwrap().to_error().unwrap();
        raws[0].put(there, 8, AckRequest::Ack, 0);
        all += 1;
        until(&mut raws, "all messages, and a new connection", |r| {
            let now = [0, 1].map(|rank| qpn(&r[rank], 1 - rank));
            let new = [0, 1]
                .into_iter()
                .all(|k| now[k].is_some() && now[k] != links[k]);
            new && r[1].seen(EventKind::PutEnd, LOUD).0 >= all
                && r[0].seen(EventKind::Ack, LOUD).0 >= all
        });
        assert_eq!(raws[1].seen(EventKind::PutEnd, LOUD), (all, 0));
        assert_eq!(raws[0].seen(EventKind::Ack, LOUD), (all, 0));
    }
    drained(&mut raws, "all is sent");
    close(raws);
}

/// Somebody who talks to the manager alone.
struct Stranger {
    manager: Manager,
    qp: Qp,
    _cq: Cq,
}

impl Stranger {
    fn new() -> Self {
        let device = Device::open(device().as_deref()).unwrap();
        let (pd, cq) = (Pd::new(&device).unwrap(), Cq::new(&device, 16).unwrap());
        let mut options = QpOptions::new(&cq);
        options.access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let qp = Qp::new(&pd, &options).unwrap();
        qp.init().unwrap();
        Self {
            manager: Manager::new().unwrap(),
            qp,
            _cq: cq,
        }
    }

    /// Asks with these bytes, while the others make progress, until it is refused.
    fn is_refused(&self, at: SocketAddr, hello: &[u8], raws: &mut [Raw]) {
        let mut link: Link = self.manager.resolve(at.ip(), at, LIMIT).unwrap();
        let end = Instant::now() + LIMIT;
        loop {
            assert!(Instant::now() < end, "no answer");
            raws.iter_mut().for_each(Raw::step);
            match self.manager.take_event().unwrap() {
                Some(CmEvent::Resolved(_)) => link.route(LIMIT).unwrap(),
                Some(CmEvent::Routed(_)) => link.connect(&self.qp, hello).unwrap(),
                Some(CmEvent::Failed { .. }) => return,
                Some(CmEvent::Response(..) | CmEvent::Established(_)) => panic!("accepted"),
                _ => {}
            }
        }
    }
}

/// Requests that nobody has agreed on are rejected and counted: of strangers, for others, of attempts that are over.
/// Connections stay, and new ones are made.
#[test]
fn device_requests_that_were_not_agreed_on_are_rejected() {
    let Some(mut raws) = connected(2, Connect::Manager) else {
        return;
    };
    let links = [0, 1].map(|rank| qpn(&raws[rank], 1 - rank));
    let address = raws[1].nal().conn.mail.address();
    let (_, at) = host_ports(&address).unwrap();
    let (token, taken) = (raws[1].nal().conn.token, raws[0].nal().conn.attempts);
    let hello = |from: u32, to: u32, attempt: u32, token: u64| {
        let mut bytes = 0x5054_4c4d_u32.to_le_bytes().to_vec();
        for word in [from, to, attempt] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(token.to_le_bytes());
        bytes
    };
    let stranger = Stranger::new();
    let bad = [
        Vec::new(),
        vec![0xff; 24],
        hello(0, 1, taken, token ^ 1),
        hello(0, 7, taken, token),
        // The token is right, and the attempt is over: or the rank, or its attempt, is none.
        hello(0, 1, taken, token),
        hello(0, 1, taken.wrapping_add(1), token),
        hello(1, 1, taken, token),
        hello(9, 1, taken, token),
        hello(u32::MAX, 1, taken, token),
    ];
    for (number, bytes) in (1..).zip(&bad) {
        stranger.is_refused(at, bytes, &mut raws);
        assert_eq!(raws[1].nal().counters.bad_frames, number, "{bytes:?}");
    }
    assert_eq!([0, 1].map(|rank| qpn(&raws[rank], 1 - rank)), links);
    talk(&mut raws, 2);
    close(raws);
}

/// A peer whose words come, and whose manager takes no request, is given up when its time is over.
#[test]
fn device_a_peer_that_takes_no_request_is_given_up() {
    let Some(name) = device() else { return };
    let mut settings = Settings::from_env().unwrap();
    settings.connect = Some(Connect::Manager);
    settings.patience = Duration::from_millis(1500);
    let mut raws = raws_of(connect::in_parts_by(2, &name, settings).unwrap(), LEN);
    let there = to(raws[1].id(), LOUD, 0);
    // Nobody is behind the address that its words tell.
    raws[1].nal().conn.joiner = None;
    raws[0].put(there, 8, AckRequest::Ack, 0);
    until(&mut raws, "the put fails", |r| {
        r[0].seen(EventKind::Ack, LOUD) == (1, 1)
    });
    close(raws);
}
