//! Random programs on two interfaces, compared call by call with the naive [`model`].

mod model;
mod steps;

use model::{Model, Verdict};
use portals_core::{
    AckRequest, Advert, Body, EqHandle, Header, Incoming, InsertPosition, Limits, MdDesc, MdHandle,
    MdOptions, MeHandle, MeSpec, Memory, Ni, NiConfig, NiFail, OpId, ProcessId, Segment, Unlink,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use steps::{Desc, Step, To, step, unlink};

const LIMITS: Limits = Limits {
    max_mes: 9,
    max_mds: 14,
    max_eqs: 3,
    max_ac_index: 1,
    max_pt_index: 1,
    max_md_iovecs: 2,
    max_me_list: 6,
    max_getput_md: 16,
};

/// How an operation under way ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Send,
    Deposit,
    Reply(Header),
    Swap(Header),
}

struct Node {
    ni: Ni,
    model: Model,
    mes: Vec<MeHandle>,
    mds: Vec<MdHandle>,
    eqs: Vec<EqHandle>,
    under_way: Vec<(OpId, u64, End)>,
    next_addr: u64,
    /// What a peer knows that is told of changes only.
    adverts: Vec<Vec<Advert>>,
    /// How often there was something to know.
    advertised: u32,
}

fn flat(segments: &[Segment]) -> Vec<u64> {
    segments
        .iter()
        .flat_map(|s| s.addr..s.addr + s.len)
        .collect()
}

fn position(after: bool) -> InsertPosition {
    if after {
        InsertPosition::After
    } else {
        InsertPosition::Before
    }
}

impl Node {
    fn new(nid: u32) -> Self {
        let (id, uid, jid) = (ProcessId::new(nid, 7), 1000, nid);
        let config = NiConfig {
            id,
            uid,
            jid,
            interface: 2,
            limits: LIMITS,
            get_send_events: false,
        };
        Self {
            ni: Ni::new(config),
            model: Model::new(id, uid, jid, LIMITS),
            mes: vec![MeHandle::from_raw(u32::MAX)],
            mds: vec![MdHandle::from_raw(u32::MAX)],
            eqs: vec![EqHandle::from_raw(u32::MAX)],
            under_way: Vec::new(),
            next_addr: 0,
            adverts: vec![Vec::new(); LIMITS.max_pt_index as usize + 1],
            advertised: 0,
        }
    }

    /// The descriptor with events that takes a put by what its initiator was told, and where.
    fn told_to_write(&self, h: &Header) -> Option<(MdHandle, Segment)> {
        let Body::Put {
            length,
            remote_offset,
            ac_index,
            ..
        } = h.body
        else {
            return None;
        };
        let list = self.adverts.get(h.pt_index as usize)?;
        let first = list.iter().find(|a| {
            let end = remote_offset.checked_add(length);
            a.put
                && a.admits(h.source, h.pt_index, ac_index, h.match_bits)
                && end.is_some_and(|end| end <= a.region.len)
        })?;
        let place = Segment {
            addr: first.region.addr + remote_offset,
            len: length,
        };
        first.events.then_some((first.md, place))
    }

    /// Recent objects are likelier to live.
    fn me(&self, n: usize) -> MeHandle {
        self.mes[self.mes.len() - 1 - n % self.mes.len()]
    }

    fn md(&self, n: usize) -> MdHandle {
        self.mds[self.mds.len() - 1 - n % self.mds.len()]
    }

    /// A descriptor to start from: mostly one that can, or else any.
    fn source(&self, n: usize) -> MdHandle {
        let able: Vec<_> = self.model.active_mds().collect();
        match able[..] {
            [] => self.md(n),
            _ if n % 8 == 7 => self.md(n),
            _ => able[n % able.len()],
        }
    }

    fn eq(&self, n: usize) -> EqHandle {
        self.eqs[self.eqs.len() - 1 - n % self.eqs.len()]
    }

    fn desc(&mut self, d: &Desc) -> MdDesc {
        let segments: Vec<_> = d
            .lens
            .iter()
            .map(|len| {
                // Now and then at address 0, which is legal only without bytes.
                let addr = if self.next_addr % 17 == 16 {
                    0
                } else {
                    self.next_addr * 64 + 64
                };
                self.next_addr += 1;
                Segment { addr, len: *len }
            })
            .collect();
        let memory = match segments[..] {
            [one] => Memory::Contiguous(one),
            _ => Memory::Iovec {
                start: self.next_addr,
                segments,
            },
        };
        MdDesc {
            memory,
            threshold: d.threshold,
            max_size: d.max_size,
            options: MdOptions::from_bits_retain(d.options),
            user_ptr: self.next_addr,
            eq: d.eq.map(|n| self.eq(n)),
        }
    }
}

struct World {
    nodes: [Node; 2],
    wire: VecDeque<Header>,
    accepted: u32,
    /// Of these, puts whose data a fabric has placed.
    written: u32,
}

impl World {
    fn new() -> Self {
        Self {
            nodes: [Node::new(0), Node::new(1)],
            wire: VecDeque::new(),
            accepted: 0,
            written: 0,
        }
    }

    fn request(&self, i: usize, to: &To, body: Body) -> Header {
        let target = if to.own { i } else { 1 - i };
        Header {
            target: ProcessId::new(target as u32, 7),
            source: ProcessId::new(i as u32, 7),
            uid: 1000,
            jid: i as u32,
            pt_index: to.pt,
            match_bits: to.bits,
            body,
        }
    }

    /// Executes a step on node `i` and compares.
    fn run(&mut self, i: usize, step: &Step) {
        let n = &mut self.nodes[i];
        match step {
            Step::Attach(pt, spec, after) => {
                let got = n.ni.me_attach(*pt, *spec, position(*after));
                n.mes.extend(got);
                let expected = n.model.attach(*pt, *spec, position(*after), got.ok());
                assert_eq!(got.map(|_| ()), expected);
            }
            Step::Insert(base, spec, after) => {
                let base = n.me(*base);
                let got = n.ni.me_insert(base, *spec, position(*after));
                n.mes.extend(got);
                let expected = n.model.insert(base, *spec, position(*after), got.ok());
                assert_eq!(got.map(|_| ()), expected);
            }
            Step::MeUnlink(me) => {
                let me = n.me(*me);
                assert_eq!(n.ni.me_unlink(me), n.model.me_unlink(me));
            }
            Step::MdAttach(me, d, stays) => {
                let (me, d) = (n.me(*me), n.desc(d));
                let got = n.ni.md_attach(me, d.clone(), unlink(*stays));
                n.mds.extend(got);
                let expected = n.model.md_attach(me, d, unlink(*stays), got.ok());
                assert_eq!(got.map(|_| ()), expected);
            }
            Step::MdBind(d, stays) => {
                let d = n.desc(d);
                let got = n.ni.md_bind(d.clone(), unlink(*stays));
                n.mds.extend(got);
                let expected = n.model.md_bind(d, unlink(*stays), got.ok());
                assert_eq!(got.map(|_| ()), expected);
            }
            Step::MdUnlink(md) => {
                let md = n.md(*md);
                assert_eq!(n.ni.md_unlink(md), n.model.md_unlink(md));
            }
            Step::Target(old, d) => {
                let any = MeSpec {
                    match_id: ProcessId::ANY,
                    match_bits: 0,
                    ignore_bits: u64::MAX,
                    unlink: Unlink::Unlink,
                };
                let d = Desc {
                    lens: d.lens.iter().map(|len| len + 60).collect(),
                    options: d.options | 3,
                    ..d.clone()
                };
                self.run(i, &Step::MdUnlink(*old));
                self.run(i, &Step::MeUnlink(*old));
                self.run(i, &Step::Attach(0, any, *old % 2 == 0));
                self.run(i, &Step::MdAttach(0, d, false));
            }
            Step::Loud(old, d) => {
                // Nothing but its queue keeps it from being advertised.
                let d = Desc {
                    lens: d.lens[..1].to_vec(),
                    threshold: -1,
                    options: d.options & !0x28 | 4,
                    eq: Some(0),
                    ..d.clone()
                };
                self.run(i, &Step::Target(*old, d));
                self.run(i, &Step::Open(0));
            }
            Step::Source(old, d) => {
                self.run(i, &Step::MdUnlink(*old));
                self.run(i, &Step::MdBind(d.clone(), false));
            }
            Step::MdUpdate(md, d, test) => {
                let (md, d) = (n.md(*md), n.desc(d));
                let test = test.map(|t| n.eq(t));
                assert_eq!(
                    n.ni.md_update(md, d.clone(), test),
                    n.model.md_update(md, d, test)
                );
            }
            Step::MdRenew(md, threshold, user_ptr, test) => {
                let (md, test) = (n.md(*md), test.map(|t| n.eq(t)));
                assert_eq!(
                    n.ni.md_renew(md, *threshold, *user_ptr, test),
                    n.model.md_renew(md, *threshold, *user_ptr, test)
                );
            }
            Step::Post(base, spec, after, d, stays, test) => {
                let (base, d) = (n.me(*base), n.desc(d));
                let (test, at) = (test.map(|t| n.eq(t)), position(*after));
                let u = unlink(*stays);
                let got = n.ni.me_md_post(base, *spec, at, d.clone(), u, test);
                if let Ok((me, md)) = got {
                    n.mes.push(me);
                    n.mds.push(md);
                }
                let expected = n.model.post(base, (*spec, at), d, u, test, got.ok());
                assert_eq!(got.map(|_| ()), expected);
            }
            // Nothing that a program sees comes of it.
            Step::Open(md) => {
                let md = n.md(*md);
                n.ni.open_to_writes(md);
            }
            Step::EqAlloc(count) => {
                let got = n.ni.eq_alloc(*count);
                n.eqs.extend(got);
                assert_eq!(got.map(|_| ()), n.model.eq_alloc(*count, got.ok()));
            }
            Step::EqFree(eq) => {
                let eq = n.eq(*eq);
                assert_eq!(n.ni.eq_free(eq), n.model.eq_free(eq));
            }
            Step::EqGet(eq) => {
                let eq = n.eq(*eq);
                assert_eq!(n.ni.eq_get(eq), n.model.eq_get(eq));
            }
            Step::AcEntry(index, entry) => {
                assert_eq!(
                    n.ni.ac_entry(*index, *entry),
                    n.model.ac_entry(*index, *entry)
                );
            }
            Step::Put(..) | Step::Get(..) | Step::GetPut(..) => self.send(i, step),
            Step::Pass(md, region, ack, to, hdr, ok) => {
                self.pass(i, *md, *region, *ack, to, *hdr, *ok);
            }
            Step::Arrive => self.arrive(),
            Step::ArriveWhole(ok) => self.arrive_whole(*ok),
            Step::Lose => drop(self.wire.pop_front()),
            Step::Duplicate => {
                if let Some(h) = self.wire.front().copied() {
                    self.wire.push_back(h);
                    self.arrive();
                }
            }
            Step::Finish(which, ok) => self.finish(i, *which, *ok),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of the step")]
    fn pass(
        &mut self,
        i: usize,
        md: usize,
        region: Option<(u64, u64)>,
        ack: bool,
        to: &To,
        hdr: u64,
        ok: bool,
    ) {
        let n = &mut self.nodes[i];
        let p = ProcessId::new(if to.own { i } else { 1 - i } as u32, 7);
        let md = n.source(md);
        let wanted = if ack {
            AckRequest::Ack
        } else {
            AckRequest::NoAck
        };
        let got =
            n.ni.ready_put(md, region, wanted, p, to.pt, to.ac, to.bits, to.offset, hdr);
        let part = n.model.part(md, region);
        let wants = ack && n.model.wants_ack(md);
        match (got, part) {
            (Ok(ready), Ok((offset, bytes))) => {
                let body = Body::Put {
                    length: bytes.len() as u64,
                    remote_offset: to.offset,
                    hdr_data: hdr,
                    ac_index: to.ac,
                    ack_md: wants.then_some(md),
                };
                let header = self.request(i, to, body);
                assert_eq!((ready.header, flat(&ready.payload)), (header, bytes));
                let n = &mut self.nodes[i];
                let fail = if ok { NiFail::OK } else { NiFail::FAIL };
                n.ni.pass_put(&ready, fail, false);
                let number = n.model.sent(md, &header, offset).unwrap();
                assert_eq!(n.model.end(number, fail), None);
                self.wire.push_back(header);
            }
            (got, part) => assert_eq!(got.map(|_| ()), part.map(|_| ())),
        }
    }

    fn arrive_whole(&mut self, ok: bool) {
        match self.wire.front() {
            Some(h) if matches!(h.body, Body::Put { .. }) => {}
            _ => return self.arrive(),
        }
        let Some(h) = self.wire.pop_front() else {
            return;
        };
        let n = &mut self.nodes[h.target.nid as usize];
        let (expected, number) = n.model.arrive(&h);
        let fail = if ok { NiFail::OK } else { NiFail::FAIL };
        let mut placed = None;
        // Its data may have been placed by what the initiator was told.
        let written = n.told_to_write(&h).filter(|_| ok);
        let taken = match written {
            Some((md, place)) => {
                placed = Some((flat(&[place]), place.len));
                n.ni.notified_put(&h, md, false)
            }
            None => n.ni.deposit_put(&h, |segments, length| {
                placed = Some((flat(segments), length));
                fail
            }),
        };
        self.written += u32::from(written.is_some());
        let ack = taken.and_then(|t| t.ack);
        match (expected, number) {
            (Verdict::Deposit(at, searched), Some(number)) => {
                let looked = taken.map(|t| t.searched);
                assert_eq!(looked, Some(if written.is_some() { 1 } else { searched }));
                let length = at.len() as u64;
                assert_eq!(placed, Some((at, length)), "{h:?}");
                assert_eq!(ack, n.model.end(number, fail));
                self.accepted += 1;
            }
            _ => assert!(taken.is_none() && (placed.is_none() || written.is_some())),
        }
        self.wire.extend(ack);
    }

    fn send(&mut self, i: usize, step: &Step) {
        let n = &mut self.nodes[i];
        let process = |to: &To| ProcessId::new(if to.own { i } else { 1 - i } as u32, 7);
        // The call, and what the rules make of it: header, descriptor, offset and bytes read.
        let (got, expected, bytes) = match step {
            Step::Put(md, region, ack, to, hdr) => {
                let md = n.source(*md);
                let ack = if *ack {
                    AckRequest::Ack
                } else {
                    AckRequest::NoAck
                };
                let p = process(to);
                let got =
                    n.ni.put(md, *region, ack, p, to.pt, to.ac, to.bits, to.offset, *hdr);
                let part = n.model.part(md, *region);
                let wants = ack == AckRequest::Ack && n.model.wants_ack(md);
                let expected = part.map(|(offset, bytes)| {
                    let body = Body::Put {
                        length: bytes.len() as u64,
                        remote_offset: to.offset,
                        hdr_data: *hdr,
                        ac_index: to.ac,
                        ack_md: wants.then_some(md),
                    };
                    (self.request(i, to, body), md, offset, bytes)
                });
                (got, expected, true)
            }
            Step::Get(md, region, to) => {
                let md = n.source(*md);
                let p = process(to);
                let got = n.ni.get(md, *region, p, to.pt, to.ac, to.bits, to.offset);
                let expected = n.model.part(md, *region).map(|(offset, bytes)| {
                    let body = Body::Get {
                        length: bytes.len() as u64,
                        remote_offset: to.offset,
                        ac_index: to.ac,
                        reply_md: md,
                        reply_offset: offset,
                    };
                    (self.request(i, to, body), md, offset, bytes)
                });
                (got, expected, false)
            }
            Step::GetPut(get, put, regions, to, hdr) => {
                let (get, put) = (n.source(*get), n.source(*put));
                let p = process(to);
                let got = n.ni.get_put(
                    get, put, *regions, p, to.pt, to.ac, to.bits, to.offset, *hdr,
                );
                let source = n.model.part(put, regions.map(|(_, p, l)| (p, l)));
                let landing = n
                    .model
                    .part(get, Some(regions.map_or((0, 0), |(g, _, l)| (g, l))));
                // Both handles are looked at before either region.
                let none = landing.as_ref().err().copied();
                let none = none.filter(|e| *e == portals_core::Error::MdInvalid);
                let source = none.map_or(source, Err);
                let expected = source.and_then(|(offset, bytes)| {
                    let (reply_offset, _) = landing?;
                    if bytes.len() > LIMITS.max_getput_md as usize {
                        return Err(portals_core::Error::MdIllegal);
                    }
                    let body = Body::GetPut {
                        length: bytes.len() as u64,
                        remote_offset: to.offset,
                        hdr_data: *hdr,
                        ac_index: to.ac,
                        reply_md: get,
                        reply_offset,
                    };
                    Ok((self.request(i, to, body), put, offset, bytes))
                });
                (got, expected, true)
            }
            _ => unreachable!("only the three requests come here"),
        };
        let n = &mut self.nodes[i];
        match (got, expected) {
            (Ok(tx), Ok((header, md, offset, moved))) => {
                assert_eq!(tx.header, header);
                if bytes {
                    assert_eq!(flat(&tx.payload), moved);
                    let number = n.model.sent(md, &header, offset).unwrap();
                    n.under_way.push((tx.op.unwrap(), number, End::Send));
                } else {
                    assert_eq!(flat(&tx.landing), moved);
                    assert!(tx.payload.is_empty() && tx.op.is_none());
                    n.model.asked(md);
                }
                self.wire.push_back(header);
            }
            (got, expected) => assert_eq!(got.map(|_| ()), expected.map(|_| ())),
        }
    }

    fn arrive(&mut self) {
        let Some(h) = self.wire.pop_front() else {
            return;
        };
        let h = Header::decode(&h.encode()).unwrap();
        let n = &mut self.nodes[h.target.nid as usize];
        let (expected, number) = n.model.arrive(&h);
        let (got, op, end) = match n.ni.handle_header(&h) {
            Incoming::Dropped(_) => (Verdict::Dropped, None, End::Send),
            Incoming::Acked => (Verdict::Acked, None, End::Send),
            Incoming::Deposit(d) => {
                let at = flat(&d.segments);
                assert_eq!(at.len() as u64, d.length);
                (Verdict::Deposit(at, d.searched), Some(d.op), End::Deposit)
            }
            Incoming::Reply(r) => (
                Verdict::Reply(r.header, flat(&r.segments), r.searched),
                Some(r.op),
                End::Reply(r.header),
            ),
            Incoming::Swap(s) => (
                Verdict::Swap(s.header, flat(&s.segments), s.searched),
                Some(s.op),
                End::Swap(s.header),
            ),
        };
        assert_eq!(got, expected, "{h:?}");
        self.accepted += u32::from(op.is_some());
        if let (Some(op), Some(number)) = (op, number) {
            n.under_way.push((op, number, end));
        }
    }

    fn finish(&mut self, i: usize, which: usize, ok: bool) {
        let n = &mut self.nodes[i];
        if n.under_way.is_empty() {
            return;
        }
        let (op, number, end) = n.under_way.remove(which % n.under_way.len());
        let fail = if ok { NiFail::OK } else { NiFail::FAIL };
        let expected = n.model.end(number, fail);
        let answer = match end {
            End::Send => {
                n.ni.send_end(op, fail);
                None
            }
            End::Deposit => {
                let ack = n.ni.deposit_end(op, fail);
                assert_eq!(ack, expected);
                ack
            }
            End::Reply(header) => {
                n.ni.reply_end(op, fail);
                Some(header)
            }
            End::Swap(header) => {
                n.ni.swap_end(op, fail);
                Some(header)
            }
        };
        self.wire.extend(answer);
    }

    fn compare(&mut self) {
        for n in &mut self.nodes {
            assert_eq!(n.ni.status(), n.model.status);
            assert_eq!(n.ni.has_events(), n.model.has_events());
            // Who looks only at the portals that are said to have changed knows all adverts.
            let dirty = n.ni.take_dirty_portals();
            for (pt, known) in (0..).zip(&mut n.adverts) {
                let adverts = n.ni.adverts(pt, 4096);
                if dirty >> pt & 1 == 1 {
                    known.clone_from(&adverts);
                }
                assert_eq!(*known, adverts, "portal {pt}");
                n.advertised += u32::from(!adverts.is_empty());
            }
        }
    }

    /// Everything under way ends, every message arrives, every event is read.
    fn settle(&mut self) {
        while !self.wire.is_empty() || self.nodes.iter().any(|n| !n.under_way.is_empty()) {
            self.arrive();
            self.finish(0, 0, true);
            self.finish(1, 0, true);
            self.compare();
        }
        for n in &mut self.nodes {
            for eq in n.eqs.clone() {
                loop {
                    let got = n.ni.eq_get(eq);
                    assert_eq!(got, n.model.eq_get(eq));
                    if !matches!(got, Ok(Some(_))) {
                        break;
                    }
                }
            }
            for md in n.mds.clone() {
                assert_eq!(n.ni.md_unlink(md), n.model.md_unlink(md));
            }
            for me in n.mes.clone() {
                assert_eq!(n.ni.me_unlink(me), n.model.me_unlink(me));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_interface_does_what_the_rules_say(
        steps in prop::collection::vec((0..2usize, step()), 20..300),
    ) {
        let mut world = World::new();
        for (i, step) in &steps {
            world.run(*i, step);
            world.compare();
        }
        world.settle();
    }
}

/// The programs above are worth something only if messages find takers in them.
#[test]
fn random_programs_exercise_delivery() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let programs = prop::collection::vec((0..2usize, step()), 300);
    let (mut accepted, mut advertised, mut written) = (0, 0, 0);
    for _ in 0..20 {
        let mut world = World::new();
        for (i, step) in &programs.new_tree(&mut runner).unwrap().current() {
            world.run(*i, step);
            world.compare();
        }
        advertised += world.nodes.iter().map(|n| n.advertised).sum::<u32>();
        accepted += world.accepted;
        written += world.written;
    }
    assert!(accepted > 120, "only {accepted} messages were accepted");
    assert!(written > 15, "only {written} puts were written");
    assert!(advertised > 120, "only {advertised} portals with adverts");
}
