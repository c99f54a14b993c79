//! Libraries that a test drives itself, so that it can make one of them say what no library says.

use super::*;
use crate::frame::{Kind, RemoteMd, SLOT, Writer, stamp};
use crate::trusted::TRUST;
use crate::{Verbs, connect};
use fabric_api::call::{Answer, Call};
use fabric_api::library::Library;
use fabric_api::nal::Nal;
use fabric_api::op::{Get, Put};
use portals_core::{Body, Event, Header, MdDesc, MdHandle, MeHandle, Memory, Ni};
use std::time::{Duration, Instant};
use verbs_backend::{Remote, SendOp};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(40);

/// More looks than anything takes that ends.
pub(super) const LOOKS: u32 = 100_000_000;

/// A rank with the targets of [`super::Side`].
pub(super) struct Raw<N = Verbs> {
    pub(super) library: Library<N>,
    pub(super) work: Region,
    pub(super) quiet: Region,
    pub(super) loud: Region,
    pub(super) source: MdHandle,
    pub(super) loud_md: MdHandle,
    pub(super) eq: EqHandle,
    /// Taken from the queue by [`Raw::step`].
    pub(super) events: Vec<Event>,
}

pub(super) fn raws(n: u32, len: usize) -> Option<Vec<Raw>> {
    Some(raws_of(connect::in_parts(n, &device()?).unwrap(), len))
}

/// Those of these parts.
pub(super) fn raws_of<N: Nal>(parts: Vec<(Ni, N)>, len: usize) -> Vec<Raw<N>> {
    let parts = parts.into_iter();
    parts
        .map(|(ni, nal)| Raw::new(Library::new(ni, nal, TRUST), len))
        .collect()
}

fn desc(region: Option<&Region>, eq: Option<EqHandle>) -> MdDesc {
    let memory = region.map_or(Memory::contiguous(0, 0), |r| {
        Memory::contiguous(r.addr(), r.len() as u64)
    });
    MdDesc {
        memory,
        threshold: -1,
        max_size: 0,
        options: MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE,
        user_ptr: 0,
        eq,
    }
}

impl<N: Nal> Raw<N> {
    fn new(mut library: Library<N>, len: usize) -> Self {
        let Ok(Answer::Eq(eq)) = library.execute(Call::EqAlloc(4096)) else {
            panic!("no queue");
        };
        let [work, loud, quiet] = [0; 3].map(|_| Region::new(len).unwrap());
        let mut raw = Self {
            library,
            work,
            quiet,
            loud,
            source: MdHandle::from_raw(0),
            loud_md: MdHandle::from_raw(0),
            eq,
            events: Vec::new(),
        };
        let (loud, quiet) = (raw.loud.clone(), raw.quiet.clone());
        raw.loud_md = raw.attach(LOUD, Some(&loud), Some(eq));
        raw.attach(QUIET, Some(&quiet), None);
        raw.attach(BELL, None, Some(eq));
        let bind = Call::MdBind {
            desc: desc(Some(&raw.work), Some(eq)),
            unlink: Unlink::Retain,
        };
        let Ok(Answer::Md(source)) = raw.library.execute(bind) else {
            panic!("no descriptor");
        };
        raw.source = source;
        raw
    }

    fn entry(&mut self, bits: u64) -> MeHandle {
        let call = Call::MeAttach {
            pt_index: 4,
            spec: entry(bits),
            position: InsertPosition::After,
        };
        match self.library.execute(call) {
            Ok(Answer::Me(me)) => me,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn attach(
        &mut self,
        bits: u64,
        region: Option<&Region>,
        eq: Option<EqHandle>,
    ) -> MdHandle {
        let me = self.entry(bits);
        self.fill(me, region, eq)
    }

    /// Attaches a descriptor without events, for some operations.
    pub(super) fn attach_for(&mut self, bits: u64, operations: MdOptions, region: &Region) {
        let me = self.entry(bits);
        let options = operations | MdOptions::MANAGE_REMOTE;
        let desc = desc(Some(region), None);
        self.fill_with(me, MdDesc { options, ..desc });
    }

    /// Gives an entry a descriptor.
    pub(super) fn fill(
        &mut self,
        me: MeHandle,
        region: Option<&Region>,
        eq: Option<EqHandle>,
    ) -> MdHandle {
        self.fill_with(me, desc(region, eq))
    }

    fn fill_with(&mut self, me: MeHandle, desc: MdDesc) -> MdHandle {
        let unlink = Unlink::Unlink;
        match self.library.execute(Call::MdAttach { me, desc, unlink }) {
            Ok(Answer::Md(md)) => md,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn id(&self) -> ProcessId {
        self.library.ni.config().id
    }

    pub(super) fn put(&mut self, there: Target, len: u64, ack: AckRequest, number: u64) {
        let put = Put::new(self.source, there).region(0, len);
        let put = &mut put.ack(ack).hdr_data(number);
        self.library.put(put).unwrap();
    }

    pub(super) fn get(&mut self, there: Target, len: u64) {
        self.library
            .get(&Get::new(self.source, there).region(0, len))
            .unwrap();
    }

    /// The header of a put.
    pub(super) fn header(&self, target: ProcessId, bits: u64, length: u64, number: u64) -> Header {
        let config = self.library.ni.config();
        Header {
            target,
            source: config.id,
            uid: config.uid,
            jid: config.jid,
            pt_index: 4,
            match_bits: bits,
            body: Body::Put {
                length,
                remote_offset: 0,
                hdr_data: number,
                ac_index: 0,
                ack_md: None,
            },
        }
    }

    /// Progress, and the events that it made.
    pub(super) fn step(&mut self) {
        self.library.attend(true);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some((event, dropped)) = self.library.ni.eq_get(self.eq).unwrap() {
            assert!(!dropped, "the queue has room for all");
            self.events.push(event);
        }
    }

    /// A step of a rank that does not sleep afterwards.
    pub(super) fn look(&mut self) {
        self.library.attend(false);
        while self.library.progress() {}
        self.collect();
    }

    /// Looks as a wait does between its polls, and takes no part in anything else.
    pub(super) fn progress_likely(&mut self) {
        self.library.progress_likely();
        self.collect();
    }

    /// How many events of a kind for these bits there were, and how many of them failed.
    pub(super) fn seen(&self, kind: EventKind, bits: u64) -> (usize, usize) {
        let fits = |e: &&Event| e.kind == kind && e.match_bits == bits;
        let bad = |e: &&Event| e.ni_fail != NiFail::OK;
        let all = self.events.iter().filter(fits);
        (all.clone().count(), all.filter(bad).count())
    }
}

impl Raw {
    pub(super) fn nal(&mut self) -> &mut Verbs {
        &mut self.library.nal
    }

    /// Sends bytes as a frame to a connected peer, whether there is a credit or not.
    pub(super) fn say(&mut self, rank: usize, bytes: &[u8]) {
        self.say_as(rank, SendOp::Send, bytes);
    }

    /// The same, of a put without a header.
    pub(super) fn say_headless(&mut self, rank: usize, bytes: &[u8]) {
        self.say_as(rank, SendOp::SendImmediate(0), bytes);
    }

    /// Says that nothing was written, like the last time.
    pub(super) fn say_write_immediate(&mut self, rank: usize) {
        let nowhere = Remote {
            address: 0,
            rkey: 0,
        };
        self.say_as(rank, SendOp::WriteImmediate(nowhere, 0), &[]);
    }

    fn say_as(&mut self, rank: usize, op: SendOp, bytes: &[u8]) {
        let nal = self.nal();
        let mut buffer = nal.send_pool.take().expect("a send buffer");
        buffer[..bytes.len()].copy_from_slice(bytes);
        let peer = nal.peer(rank).expect("a link");
        peer.post_as_is(op, buffer, bytes.len());
    }
}

/// A frame as a library would make it.
pub(super) fn frame(kind: Kind, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; SLOT];
    let mut writer = Writer::new(&mut bytes, kind, false);
    body(&mut writer);
    let len = writer.len();
    bytes.truncate(len);
    stamp(&mut bytes, 0, 0);
    bytes
}

/// All make progress until it is so.
pub(super) fn until<N: Nal>(
    raws: &mut [Raw<N>],
    what: &str,
    mut so: impl FnMut(&[Raw<N>]) -> bool,
) {
    let end = Instant::now() + LIMIT;
    while !so(raws) {
        assert!(Instant::now() < end, "not in {LIMIT:?}: {what}");
        for raw in &mut *raws {
            raw.step();
        }
        std::thread::yield_now();
    }
}

/// All make progress until nothing of theirs is under way; data of an RTS may be unread.
pub(super) fn drained(raws: &mut [Raw], what: &str) {
    let end = Instant::now() + LIMIT;
    while !raws.iter_mut().all(|raw| raw.nal().all_is_sent()) {
        assert!(Instant::now() < end, "not in {LIMIT:?}: {what}");
        for raw in &mut *raws {
            raw.step();
        }
        std::thread::yield_now();
    }
}

/// Rank 0 knows that what it sent in frames is done.
pub(super) fn settle(raws: &mut [Raw]) {
    let there = to(raws[1].id(), BELL, 0);
    let before = raws[0].seen(EventKind::Ack, BELL).0;
    raws[0].put(there, 0, AckRequest::Ack, 0);
    until(raws, "the bell is answered", |r| {
        r[0].seen(EventKind::Ack, BELL) == (before + 1, 0)
    });
}

/// Both look, and neither sleeps, until it is so.
pub(super) fn looking(raws: &mut [Raw], what: &str, mut so: impl FnMut(&[Raw]) -> bool) {
    for _ in 0..LOOKS {
        if so(raws) {
            return;
        }
        for raw in &mut *raws {
            raw.look();
        }
    }
    panic!("never: {what}");
}

/// Connects each to each.
pub(super) fn connect_all(raws: &mut [Raw]) {
    let ids: Vec<ProcessId> = raws.iter().map(Raw::id).collect();
    for from in 0..raws.len() {
        for to_whom in (0..raws.len()).filter(|t| *t != from) {
            raws[from].put(to(ids[to_whom], BELL, 0), 0, AckRequest::NoAck, 0);
        }
        let rung = raws.len() - 1;
        until(raws, "bells ring", |r| {
            (0..r.len()).all(|k| k == from || r[k].seen(EventKind::PutEnd, BELL).0 > 0)
                && r[from].seen(EventKind::SendEnd, BELL).0 == rung
        });
        for raw in &mut *raws {
            raw.events.clear();
        }
    }
}

/// Rank 0 has made gets of rank 1's quiet memory, so that it knows that, and what its own gets need is registered.
pub(super) fn get_first(raws: &mut [Raw], gets: usize) {
    let there = to(raws[1].id(), QUIET, 0);
    for number in 1..=gets {
        raws[0].get(there, 8);
        until(raws, "a get ends", |r| {
            r[0].seen(EventKind::ReplyEnd, QUIET) == (number, 0)
        });
    }
    raws[0].events.clear();
}

/// What rank 1 has told of portal 4.
pub(super) fn adverts(raw: &Raw) -> &[RemoteMd] {
    let peer = raw.library.nal.peers.get(1).unwrap();
    peer.adverts.of(4)
}

/// Leaves in good order.
pub(super) fn close<N: Nal>(raws: Vec<Raw<N>>) {
    for mut raw in raws {
        raw.library.execute(Call::Close).unwrap();
    }
}
