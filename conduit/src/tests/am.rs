//! Every category, argument count and kind of size, as request and as reply.
// UNSAFETY: puts a fabric of its own under an interface, and promises what that does to memory.
#![expect(unsafe_code, reason = "`Trust::new` is unsafe")]

use super::{pattern, returned};
use crate::{
    AmError, AttachError, BarrierName, Conduit, HandlerEntry, MAX_ARGS, MAX_MEDIUM, Payload, Token,
    threads,
};
use portals_shim::core::{Limits, Ni, NiConfig, ReadyPut, Segment, Transmit};
use portals_shim::fabric::{Opened, Placement};
use portals_shim::nal::inproc::{Hub, InProc};
use portals_shim::nal::{Look, Nal, Outcome};
use portals_shim::{Capabilities, Interface, Mode, ProcessId, Put, RemoteKey, Trust};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ECHO: u8 = 128;
const SINK: u8 = 129;
const HALF: usize = 2 << 20;

/// What the reply handler saw last.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    source: u32,
    args: Vec<i32>,
    payload: Vec<u8>,
    count: usize,
}

/// How the echo handler replies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Same,
    LongFromSegment,
    Nothing,
}

fn args(n: usize, seed: usize) -> Vec<i32> {
    (0..n).map(|i| (seed * 1000 + i) as i32 - 5).collect()
}

/// Requests carry their payload in the lower half of the segment; replies go to the upper half.
fn handlers(how: Rc<Cell<How>>, seen: Rc<RefCell<Seen>>) -> Vec<HandlerEntry> {
    let echo = move |token: &mut Token<'_>, payload: Payload<'_>, args: &[i32]| {
        let conduit = token.conduit();
        let base = conduit.segment(token.source()).addr + HALF as u64;
        let back: Vec<i32> = args.iter().rev().copied().collect();
        match (how.get(), payload) {
            (How::Nothing, _) => {}
            (_, Payload::None) => token.reply_short(SINK, &back).unwrap(),
            (How::Same, Payload::Medium(bytes)) => {
                assert_eq!(bytes.as_ptr().addr() % 8, 0, "payload is not aligned");
                for b in bytes.iter_mut() {
                    *b = b.wrapping_add(1);
                }
                token.reply_medium(SINK, bytes, &back).unwrap();
            }
            (How::Same, Payload::Long { offset, len, addr }) => {
                assert_eq!(addr, conduit.segment(conduit.mynode()).addr + offset as u64);
                let mut bytes = vec![0; len];
                conduit
                    .local_segment()
                    .unwrap()
                    .read(offset, &mut bytes)
                    .unwrap();
                for b in &mut bytes {
                    *b = b.wrapping_add(1);
                }
                token.reply_long(SINK, &bytes, base, &back).unwrap();
            }
            (How::LongFromSegment, Payload::Long { offset, len, .. }) => {
                token
                    .reply_long_from_segment(SINK, offset, len, base, &back)
                    .unwrap();
            }
            (How::LongFromSegment, p) => panic!("{p:?}"),
        }
        if how.get() != How::Nothing {
            assert_eq!(token.reply_short(SINK, &[]), Err(AmError::Replied));
        }
        assert_eq!(
            conduit.am_request_short(0, SINK, &[]),
            Err(AmError::InHandler)
        );
    };
    let sink = move |token: &mut Token<'_>, payload: Payload<'_>, args: &[i32]| {
        let replied = token.reply_short(SINK, &[]);
        let is_request = token.is_request();
        assert_eq!(replied.err(), (!is_request).then_some(AmError::NotARequest));
        let bytes = match payload {
            Payload::None => vec![],
            Payload::Medium(b) => b.to_vec(),
            Payload::Long { offset, len, .. } => {
                let mut bytes = vec![0; len];
                token
                    .conduit()
                    .local_segment()
                    .unwrap()
                    .read(offset, &mut bytes)
                    .unwrap();
                bytes
            }
        };
        let mut seen = seen.borrow_mut();
        *seen = Seen {
            source: token.source(),
            args: args.to_vec(),
            payload: bytes,
            count: seen.count + 1,
        };
    };
    vec![HandlerEntry::new(ECHO, echo), HandlerEntry::new(SINK, sink)]
}

struct Rig<'c> {
    conduit: &'c Conduit,
    how: Rc<Cell<How>>,
    seen: Rc<RefCell<Seen>>,
}

impl<'c> Rig<'c> {
    fn new(conduit: &'c Conduit) -> Self {
        let how = Rc::new(Cell::new(How::Same));
        let seen = Rc::new(RefCell::new(Seen::default()));
        conduit
            .attach(handlers(how.clone(), seen.clone()), 2 * HALF)
            .unwrap();
        Self { conduit, how, seen }
    }

    /// Sends with `send` and checks what the echo of it brings.
    fn round(&self, node: u32, args: &[i32], payload: &[u8], send: impl FnOnce()) {
        let before = self.seen.borrow().count;
        send();
        self.conduit
            .block_until(|| self.seen.borrow().count > before);
        let seen = self.seen.borrow();
        let back: Vec<i32> = args.iter().rev().copied().collect();
        assert_eq!(
            (seen.source, &seen.args, seen.count),
            (node, &back, before + 1)
        );
        assert!(
            seen.payload == payload,
            "payload of {} bytes differs",
            payload.len()
        );
    }

    fn meet(&self) {
        self.conduit.barrier(BarrierName::Anonymous).unwrap();
    }
}

fn plus_one(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|b| b.wrapping_add(1)).collect()
}

pub(super) fn every_message(variables: &[(&str, &str)]) {
    every_message_over(threads::opened(3, variables).unwrap(), variables);
}

fn every_message_over(opened: Vec<Opened>, variables: &[(&str, &str)]) {
    let ends = threads::run_over(opened, variables, |conduit| {
        let rig = Rig::new(&conduit);
        let me = conduit.mynode();
        for node in [(me + 1) % 3, (me + 2) % 3, me] {
            let base = conduit.segment(node).addr;
            for n in 0..=MAX_ARGS {
                let a = args(n, n);
                rig.round(node, &a, &[], || {
                    conduit.am_request_short(node, ECHO, &a).unwrap()
                });
                for len in [0, 1, 7, 8, 255, MAX_MEDIUM] {
                    let p = pattern(n + len, len);
                    rig.round(node, &a, &plus_one(&p), || {
                        conduit.am_request_medium(node, ECHO, &p, &a).unwrap();
                    });
                }
                // Around the border between packed and not: 2048 - 8 - 4n.
                let border = 2040 - 4 * n;
                for len in [0, 1, 7, 8, border - 1, border, border + 1, 70_000] {
                    let p = pattern(n + len, len);
                    rig.round(node, &a, &plus_one(&p), || {
                        // One region per sender, so that requests do not meet.
                        let dest = base + 100_000 * u64::from(me) + 3;
                        conduit.am_request_long(node, ECHO, &p, dest, &a).unwrap();
                    });
                }
            }
            rig.meet();
        }
        drop(rig);
        conduit.finish();
    });
    returned(ends);
}

#[test]
fn every_category_count_and_size() {
    every_message(&[]);
}

/// What a [`Direct`] fabric was asked.
#[derive(Debug, Default)]
struct Asked {
    /// Payloads that were put in relaxed order.
    relaxed: AtomicU64,
    /// Of those, the ones whose headers did not follow at once.
    unfollowed: AtomicU64,
    made: AtomicU64,
    copied: AtomicU64,
}

impl Asked {
    fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The in-process fabric with what a fabric of adapters can do. It keeps the order of messages, and their data is in place
/// when the next one is looked at; it sends from memory of its own.
#[derive(Debug)]
struct Direct {
    inner: InProc,
    asked: Arc<Asked>,
    /// A payload was written whose header has not come.
    waits: bool,
    /// Whether it has a place for the next message.
    has_room: bool,
}

impl Direct {
    fn called(&mut self, is_header: bool) {
        if std::mem::take(&mut self.waits) && !is_header {
            Asked::add(&self.asked.unfollowed);
        }
    }
}

impl Nal for Direct {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, key: Option<&RemoteKey>) {
        self.called(false);
        self.inner.send(ni, tx, key);
    }

    fn put(&mut self, ni: &mut Ni, ready: &ReadyPut, put: &mut Put<'_>) -> Outcome {
        let header = &ready.header;
        let mut plain = Put::new(put.md, put.to);
        match &mut put.mode {
            Mode::Standard | Mode::AtOnce => {
                self.called(true);
                if header.payload_len() > 0 {
                    Asked::add(&self.asked.copied);
                }
                self.inner.put(ni, ready, &mut plain)
            }
            Mode::Relaxed if header.payload_len() == 0 => Outcome::Declined,
            Mode::Relaxed => {
                self.called(false);
                self.waits = true;
                Asked::add(&self.asked.relaxed);
                self.inner.put(ni, ready, &mut plain)
            }
            Mode::Pack(pack) => {
                // Full now and then.
                self.has_room = !self.has_room;
                if !self.has_room {
                    return Outcome::Declined;
                }
                self.called(true);
                Asked::add(&self.asked.made);
                let mut bytes = vec![0xA5; header.payload_len() as usize];
                pack(&mut bytes);
                let mut packed = ready.clone();
                packed.payload.clear();
                packed.payload.push(Segment {
                    addr: bytes.as_ptr().expose_provenance() as u64,
                    len: bytes.len() as u64,
                });
                self.inner.put(ni, &packed, &mut plain)
            }
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            packs: true,
            ..Capabilities::default()
        }
    }

    fn progress(&mut self, ni: &mut Ni, look: Look) -> bool {
        self.called(false);
        self.inner.progress(ni, look)
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        self.inner.distance(to)
    }
}

/// Payloads put in relaxed order need no event at the target; all Longs but the empty and the packed go so, each with its
/// header right behind it. Headers are written where they are sent from whenever there is room.
#[test]
fn every_message_over_a_fabric_with_relaxed_puts_that_sends_from_its_own_memory() {
    // SAFETY: `Direct` makes no descriptor; what it sends besides what it was given is bytes of its own.
    let trust = unsafe { Trust::new() };
    for (packed, least) in [("1", 3 * 2 * 2 * 17), ("0", 3 * 2 * 7 * 2 * 17)] {
        let asked = Arc::new(Asked::default());
        let ids: Vec<ProcessId> = (0..3).map(|r| Placement::ONE.of(r)).collect();
        let hub = Hub::new(ids.clone(), Placement::ONE);
        let opened = (0..3).map(|own| {
            let config = NiConfig {
                id: ids[own as usize],
                uid: 1,
                jid: 1,
                interface: 0,
                limits: Limits::LIBRARY,
                get_send_events: false,
            };
            let nal = Direct {
                inner: InProc::new(hub.clone(), own, trust),
                asked: asked.clone(),
                waits: false,
                has_room: false,
            };
            Opened {
                interface: Interface::over(Ni::new(config), nal, trust),
                peers: ids.clone(),
            }
        });
        every_message_over(opened.collect(), &[("GASNET_PORTAL_PACKED_LONG", packed)]);
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let relaxed = count(&asked.relaxed);
        assert!(relaxed >= least, "{relaxed} of {least}");
        assert_eq!(count(&asked.unfollowed), 0);
        // A request and a reply for each of a Short, six Mediums and eight Longs; but not without arguments those of the
        // Short, the empty Medium and the empty Long, which have no bytes.
        let headers = 3 * 2 * 2 * (17 * 15 - 3);
        let (made, copied) = (count(&asked.made), count(&asked.copied));
        assert!(made >= headers / 2 - 10, "{made} of {headers}");
        assert!(copied <= headers / 2 + 100, "{copied} of {headers}");
    }
}

#[test]
fn every_message_without_packing_and_with_few_resources() {
    every_message(&[
        ("GASNET_PORTAL_PACKED_LONG", "0"),
        ("GASNET_PORTAL_MSG_LIMIT", "12"),
        ("GASNET_PORTAL_NUM_TMPMD", "2"),
        ("GASNET_PORTAL_SB_CHUNKS", "1"),
        ("GASNET_PORTAL_RPL_CHUNKS", "1"),
        ("GASNET_PORTAL_SYS_LIMIT", "1"),
        ("GASNET_PORTAL_SAFE_LIMIT", "1"),
        ("GASNET_PORTAL_AM_LIMIT", "1"),
    ]);
}

#[test]
fn longs_from_the_segment_both_ways() {
    longs_from_the_segment(&[]);
}

pub(super) fn longs_from_the_segment(variables: &[(&str, &str)]) {
    let ends = threads::run_in(2, variables, |conduit| {
        let rig = Rig::new(conduit);
        rig.how.set(How::LongFromSegment);
        let peer = 1 - conduit.mynode();
        let memory = conduit.local_segment().unwrap();
        let dest = conduit.segment(peer).addr;
        for (i, len) in [0usize, 1, 8, 2000, 2041, 1 << 20].into_iter().enumerate() {
            let p = pattern(i, len);
            let at = HALF - len;
            memory.write(at, &p).unwrap();
            let a = args(i, i);
            rig.meet();
            rig.round(peer, &a, &p, || {
                conduit
                    .am_request_long_from_segment(peer, ECHO, at, len, dest, &a)
                    .unwrap();
            });
            rig.meet();
            rig.round(peer, &a, &p, || {
                conduit
                    .am_request_long_async_from_segment(peer, ECHO, at, len, dest, &a)
                    .unwrap();
            });
            rig.meet();
        }
    });
    returned(ends);
}

#[test]
fn a_handler_that_does_not_reply_is_replied_for() {
    // One chunk: the second request needs the first's reply.
    let ends = threads::run_in(2, &[("GASNET_PORTAL_SB_CHUNKS", "1")], |conduit| {
        let rig = Rig::new(conduit);
        rig.how.set(How::Nothing);
        rig.meet();
        let peer = 1 - conduit.mynode();
        for i in 0..500 {
            conduit.am_request_short(peer, ECHO, &[i]).unwrap();
            conduit
                .am_request_medium(peer, ECHO, &pattern(1, 100), &[i])
                .unwrap();
        }
        assert_eq!(rig.seen.borrow().count, 0);
    });
    returned(ends);
}

#[test]
fn bad_arguments_are_refused() {
    bad_arguments(&[]);
}

pub(super) fn bad_arguments(variables: &[(&str, &str)]) {
    let ends = threads::run_in(2, variables, |conduit| {
        assert_eq!(
            conduit.am_request_short(0, SINK, &[]),
            Err(AmError::NotAttached)
        );
        let rig = Rig::new(conduit);
        let peer = 1 - conduit.mynode();
        let seg = conduit.segment(peer);
        let short = |node, args: &[i32]| conduit.am_request_short(node, SINK, args);
        assert_eq!(short(2, &[]), Err(AmError::Node { node: 2, nodes: 2 }));
        assert_eq!(short(peer, &[0; 17]), Err(AmError::Args { count: 17 }));
        let medium = conduit.am_request_medium(peer, SINK, &[0; MAX_MEDIUM + 1], &[]);
        assert_eq!(
            medium,
            Err(AmError::Payload {
                len: 1985,
                max: 1984
            })
        );
        let end = seg.addr + seg.size;
        assert_eq!(
            conduit.am_request_long(peer, SINK, &[0; 8], end - 7, &[]),
            Err(AmError::Destination {
                node: peer,
                addr: end - 7,
                len: 8
            })
        );
        let own = seg.size as usize;
        assert_eq!(
            conduit.am_request_long_from_segment(peer, SINK, own - 1, 2, seg.addr, &[]),
            Err(AmError::Source {
                offset: own - 1,
                len: 2
            })
        );
        assert_eq!(
            conduit.am_request_long_from_segment(peer, SINK, 0, (1 << 30) + 1, seg.addr, &[]),
            Err(AmError::Payload {
                len: 1_073_741_825,
                max: 1_073_741_824
            })
        );
        rig.meet();
        assert_eq!(rig.seen.borrow().count, 0);
    });
    returned(ends);
}

#[test]
fn a_message_to_no_handler_names_rank_and_handler() {
    a_message_to_no_handler(&[]);
}

pub(super) fn a_message_to_no_handler(variables: &[(&str, &str)]) {
    let ends = threads::run_in(2, variables, |conduit| {
        conduit.attach(vec![], 0).unwrap();
        if conduit.mynode() == 0 {
            conduit.am_request_short(1, 200, &[]).unwrap();
        }
        conduit.block_until(|| false);
    });
    for end in ends {
        let threads::RankEnd::Aborted(message) = end else {
            panic!("{end:?}")
        };
        assert_eq!(
            message,
            "rank 1 of 2: polling: active message from node 0 to handler 200, which is not \
             registered here"
        );
    }
}

#[test]
fn tables_of_handlers_that_differ_end_the_job() {
    let ends = threads::run(2, |conduit| {
        let entry = |index| HandlerEntry::new(index, |_, _, _| {});
        let more = (conduit.mynode() == 1).then(|| entry(222));
        let table = more.into_iter().chain([entry(200)]).collect();
        conduit.attach(table, 4096).unwrap();
    });
    for end in ends {
        let threads::RankEnd::Aborted(message) = end else {
            panic!("{end:?}")
        };
        let said = |me: u32| {
            format!(
                "rank {me} of 2: attach: node {} has registered other handlers than this node",
                1 - me
            )
        };
        assert!(message == said(0) || message == said(1), "{message}");
    }
}

#[test]
fn a_handler_that_waits_ends_the_job() {
    a_handler_that_waits(&[]);
}

pub(super) fn a_handler_that_waits(variables: &[(&str, &str)]) {
    let ends = threads::run_in(2, variables, |conduit| {
        let wait = HandlerEntry::new(ECHO, |token, _, _| token.conduit().block_until(|| false));
        conduit.attach(vec![wait], 0).unwrap();
        if conduit.mynode() == 0 {
            conduit.am_request_short(1, ECHO, &[]).unwrap();
        }
        conduit.block_until(|| false);
    });
    for end in ends {
        let threads::RankEnd::Aborted(message) = end else {
            panic!("{end:?}")
        };
        assert_eq!(
            message,
            "rank 1 of 2: polling: a handler waits, which none may"
        );
    }
}

/// No memory for a segment is an answer, and the next try may succeed.
#[test]
fn a_segment_too_large_is_refused() {
    let ends = threads::run(2, |conduit| {
        for size in [usize::MAX, usize::MAX / 2, 1 << 60] {
            let refused = conduit.attach(vec![], size);
            assert!(
                matches!(refused, Err(AttachError::Segment { size: s, .. }) if s == size),
                "{refused:?}"
            );
        }
        conduit.attach(vec![], 4096).unwrap();
        conduit.barrier(BarrierName::Anonymous).unwrap();
    });
    returned(ends);
}
