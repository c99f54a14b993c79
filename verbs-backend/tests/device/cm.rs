//! Connections by the connection manager.

use super::{PATIENCE, device, wait};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use verbs_backend::cm::{CmError, CmEvent, Link, LinkKey, Listener, Manager, PRIVATE};
use verbs_backend::{
    Access, BufferPool, Cq, Device, Pd, Qp, QpOptions, QpState, SendFlags, SendOp, Window,
};

/// Longest time for a step of the manager.
const LIMIT: Duration = Duration::from_secs(5);

/// One side: takes requests at an address.
struct Side {
    manager: Manager,
    address: IpAddr,
    listener: Listener,
    device: Device,
}

impl Side {
    fn new() -> Option<Self> {
        let device = device()?;
        let manager = Manager::new().unwrap();
        let address = manager.address(&device, 1, None).unwrap();
        let listener = manager.listen(address).unwrap();
        assert_ne!(listener.port(), 0);
        Some(Self {
            manager,
            address,
            listener,
            device,
        })
    }

    fn at(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.listener.port())
    }

    fn event(&self) -> Option<CmEvent> {
        self.manager.take_event().unwrap()
    }
}

fn qp(pd: &Pd, cq: &Cq) -> Qp {
    let mut options = QpOptions::new(cq);
    options.access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let qp = Qp::new(pd, &options).unwrap();
    qp.init().unwrap();
    qp
}

/// What becomes of the asking side's connection.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Up,
    Failed(&'static str),
}

/// Both sides take their events, until the asking one knows how it ends. `answer` decides about requests.
fn play(
    asks: &Side,
    asked: &Side,
    link: &mut Link,
    qp: &Qp,
    private: &[u8],
    mut answer: impl FnMut(Link, &[u8]),
) -> End {
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "no end");
        if let Some(CmEvent::Request { link, private }) = asked.event() {
            answer(link, &private);
        }
        let own = link.key();
        match asks.event() {
            Some(CmEvent::Resolved(key)) => {
                assert_eq!(key, own);
                assert!(link.is_on(&asks.device, 1));
                link.route(LIMIT).unwrap();
            }
            Some(CmEvent::Routed(_)) => match link.connect(qp, private) {
                Ok(()) => {}
                // iWARP on one host knows at once that nobody listens.
                Err(CmError::Step { what, .. }) => return End::Failed(what),
                Err(other) => panic!("{other}"),
            },
            Some(CmEvent::Response(key, depths)) => {
                assert_eq!(key, own);
                link.finish(depths).unwrap();
                return End::Up;
            }
            Some(CmEvent::Established(_)) => return End::Up,
            Some(CmEvent::Failed { what, .. }) => return End::Failed(what),
            Some(other) => panic!("{other:?}"),
            None => std::thread::yield_now(),
        }
    }
}

/// Two sides connect; data goes both ways, by send, write and read; the end of one is told to the other.
#[test]
fn the_manager_makes_a_connection_and_tells_its_end() {
    let (Some(asks), Some(asked)) = (Side::new(), Side::new()) else {
        return;
    };
    let pd = Pd::new(&asks.device).unwrap();
    let cqs = [(); 2].map(|()| Cq::new(&asks.device, 64).unwrap());
    let qps = [0, 1].map(|side| qp(&pd, &cqs[side]));
    let pool = BufferPool::new(&pd, 4, 64).unwrap();
    for qp in &qps {
        qp.post_recv(pool.take()).unwrap();
    }
    let mut link = asks
        .manager
        .resolve(asks.address, asked.at(), LIMIT)
        .unwrap();
    let mut links: BTreeMap<LinkKey, Link> = BTreeMap::new();
    let end = play(
        &asks,
        &asked,
        &mut link,
        &qps[0],
        b"who I am",
        |mut it, private| {
            assert_eq!(private.get(..8), Some(&b"who I am"[..]));
            it.accept(&qps[1]).unwrap();
            links.insert(it.key(), it);
        },
    );
    assert_eq!(end, End::Up);
    // iWARP wants the asking side to speak first.
    for side in [0, 1] {
        qps[side]
            .post_inline(1, SendOp::Send, b"hello", SendFlags::SIGNALLED)
            .unwrap();
        let got = wait(&cqs[1 - side], 1);
        assert!(got[0].is_ok(), "{got:?}");
        assert_eq!(got[0].length(), 5);
        assert!(wait(&cqs[side], 1)[0].is_ok());
        // SoftiWARP tells no state.
        if !qps[side].is_iwarp() {
            assert_eq!(qps[side].state().unwrap(), QpState::RTS);
        }
    }
    // A read behind a write: where completions of writes say little, it says that the data is there.
    let there = Window::new(&pd, 4096).unwrap();
    let remote = there.remote(64).unwrap();
    qps[0]
        .post_inline(2, SendOp::Write(remote), b"written", SendFlags::SIGNALLED)
        .unwrap();
    let to = pool.take().unwrap();
    qps[0]
        .post_owned(3, SendOp::Read(remote), to, 0..7, SendFlags::empty())
        .unwrap();
    let ends = wait(&cqs[0], 2);
    assert!(
        ends.iter().all(verbs_backend::Completion::is_ok),
        "{ends:?}"
    );
    let read = ends.iter().find_map(|end| qps[0].take(end)).unwrap();
    assert_eq!(&read.0[..7], b"written");

    drop(link);
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "the end is not told");
        if let Some(CmEvent::Disconnected(key)) = asked.event() {
            assert!(links.contains_key(&key));
            break;
        }
    }
}

/// A request that is rejected, or dropped unanswered, fails where it was made, and neither side's manager minds.
#[test]
fn a_rejected_request_fails() {
    let (Some(asks), Some(asked)) = (Side::new(), Side::new()) else {
        return;
    };
    let pd = Pd::new(&asks.device).unwrap();
    let cq = Cq::new(&asks.device, 64).unwrap();
    for rejects in [true, false] {
        let qp = qp(&pd, &cq);
        let mut link = asks
            .manager
            .resolve(asks.address, asked.at(), LIMIT)
            .unwrap();
        let end = play(
            &asks,
            &asked,
            &mut link,
            &qp,
            &[7; PRIVATE],
            |it, private| {
                assert_eq!(private.get(..PRIVATE), Some(&[7; PRIVATE][..]));
                if rejects {
                    it.reject();
                }
            },
        );
        assert!(matches!(end, End::Failed(_)), "{end:?}");
    }
}

/// Where nobody listens, the request fails; an address that is not the device's is refused by name.
#[test]
fn nobody_there_is_an_answer() {
    let (Some(asks), Some(asked)) = (Side::new(), Side::new()) else {
        return;
    };
    let pd = Pd::new(&asks.device).unwrap();
    let cq = Cq::new(&asks.device, 64).unwrap();
    let qp = qp(&pd, &cq);
    let at = asked.at();
    drop(asked);
    let other = Side::new().unwrap();
    let mut link = asks.manager.resolve(asks.address, at, LIMIT).unwrap();
    let end = play(&asks, &other, &mut link, &qp, &[], |_, _| {});
    assert!(matches!(end, End::Failed(_)), "{end:?}");

    let wrong = asks
        .manager
        .address(&asks.device, 1, Some("192.0.2.1".parse().unwrap()));
    assert!(matches!(wrong, Err(CmError::NotHere { .. })), "{wrong:?}");
    assert!(matches!(
        link.connect(&qp, &[0; PRIVATE + 1]),
        Err(CmError::Private(57))
    ));
}
