//! A few interfaces, their memory, and a wire between them that the test turns by hand.

use crate::header::Header;
use crate::{
    AckRequest, EqHandle, Error, Event, EventKind, Incoming, Limits, MdDesc, MdHandle, MdOptions,
    MeHandle, MeSpec, Memory, Ni, NiConfig, NiFail, ProcessId, Segment, Segments,
    THRESHOLD_INFINITE, Transmit, Unlink,
};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

pub(super) use crate::AckRequest::{Ack, NoAck};
pub(super) use crate::EventKind::*;
pub(super) use crate::InsertPosition::{After, Before};

pub(super) const PUT: MdOptions = MdOptions::OP_PUT;
pub(super) const GET: MdOptions = MdOptions::OP_GET;
pub(super) const REMOTE: MdOptions = MdOptions::MANAGE_REMOTE;
pub(super) const TRUNCATE: MdOptions = MdOptions::TRUNCATE;
pub(super) const NO_START: MdOptions = MdOptions::EVENT_START_DISABLE;
pub(super) const NO_END: MdOptions = MdOptions::EVENT_END_DISABLE;
pub(super) const NONE: MdOptions = MdOptions::empty();

/// The event; `Ack` is the request.
pub(super) const ACKED: EventKind = EventKind::Ack;
/// The event; `Unlink` is the rule.
pub(super) const UNLINKED: EventKind = EventKind::Unlink;

/// What fills memory that nobody wrote.
const FILL: u8 = 0xee;
const RAM: u64 = 0x1000;

/// One process: an interface and memory from address [`RAM`] on.
pub(super) struct Node {
    pub(super) ni: Ni,
    bytes: Vec<u8>,
}

impl Node {
    /// New memory.
    pub(super) fn memory(&mut self, len: u64) -> Segment {
        let addr = RAM + self.bytes.len() as u64;
        self.bytes.resize(self.bytes.len() + len as usize, FILL);
        Segment { addr, len }
    }

    /// New memory that counts up from `first`.
    pub(super) fn counting(&mut self, len: u64, first: u8) -> Segment {
        let s = self.memory(len);
        let data: Vec<u8> = (0..len).map(|i| first.wrapping_add(i as u8)).collect();
        self.write(s, &data);
        s
    }

    pub(super) fn write(&mut self, at: Segment, data: &[u8]) {
        let from = (at.addr - RAM) as usize;
        self.bytes[from..from + data.len()].copy_from_slice(data);
    }

    pub(super) fn read(&self, at: Segment) -> Vec<u8> {
        let from = (at.addr - RAM) as usize;
        self.bytes[from..from + at.len as usize].to_vec()
    }

    fn gather(&self, segments: &Segments) -> Vec<u8> {
        segments
            .iter()
            .filter(|s| s.len > 0)
            .flat_map(|s| self.read(*s))
            .collect()
    }

    fn scatter(&mut self, segments: &Segments, mut data: &[u8]) {
        for s in segments.iter().filter(|s| s.len > 0) {
            let n = data.len().min(s.len as usize);
            self.write(*s, &data[..n]);
            data = &data[n..];
        }
    }

    pub(super) fn eq(&mut self, count: u64) -> EqHandle {
        self.ni.eq_alloc(count).unwrap()
    }

    /// An entry at the tail of `pt_index` for any initiator with exactly these bits.
    pub(super) fn me(&mut self, pt_index: u32, bits: u64) -> MeHandle {
        self.ni.me_attach(pt_index, spec(bits), After).unwrap()
    }

    pub(super) fn attach(&mut self, me: MeHandle, desc: MdDesc) -> MdHandle {
        self.ni.md_attach(me, desc, Unlink::Retain).unwrap()
    }

    pub(super) fn bind(&mut self, desc: MdDesc) -> MdHandle {
        self.ni.md_bind(desc, Unlink::Retain).unwrap()
    }

    /// All unread events.
    pub(super) fn events(&mut self, eq: EqHandle) -> Vec<Event> {
        let mut out = Vec::new();
        while let Some((event, lost)) = self.ni.eq_get(eq).unwrap() {
            assert!(!lost, "events before {event:?} were lost");
            out.push(event);
        }
        out
    }

    /// Kinds of all unread events.
    pub(super) fn kinds(&mut self, eq: EqHandle) -> Vec<EventKind> {
        self.events(eq).iter().map(|e| e.kind).collect()
    }

    pub(super) fn drops(&self) -> u64 {
        self.ni.status().drop_count
    }
}

pub(super) const fn spec(bits: u64) -> MeSpec {
    MeSpec {
        match_id: ProcessId::ANY,
        match_bits: bits,
        ignore_bits: 0,
        unlink: Unlink::Retain,
    }
}

/// A descriptor without limit or queue.
pub(super) const fn desc(memory: Segment, options: MdOptions) -> MdDesc {
    MdDesc {
        memory: Memory::Contiguous(memory),
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options,
        user_ptr: 0,
        eq: None,
    }
}

pub(super) const fn id(node: usize) -> ProcessId {
    ProcessId::new(node as u32, 7)
}

/// Where a request goes.
#[derive(Clone, Copy)]
pub(super) struct To {
    pub(super) node: usize,
    pub(super) pt: u32,
    pub(super) ac: u32,
    pub(super) bits: u64,
    pub(super) offset: u64,
}

/// Portal 4 of `node`, bits 0, access control entry 0, remote offset 0.
pub(super) const fn to(node: usize) -> To {
    To {
        node,
        pt: 4,
        ac: 0,
        bits: 0,
        offset: 0,
    }
}

pub(super) struct World {
    nodes: Vec<Node>,
    pub(super) wire: VecDeque<(Header, Vec<u8>)>,
}

impl core::ops::Index<usize> for World {
    type Output = Node;
    fn index(&self, node: usize) -> &Node {
        &self.nodes[node]
    }
}

impl core::ops::IndexMut<usize> for World {
    fn index_mut(&mut self, node: usize) -> &mut Node {
        &mut self.nodes[node]
    }
}

pub(super) fn config(node: usize) -> NiConfig {
    NiConfig {
        id: id(node),
        uid: 1000,
        jid: 5,
        interface: 0,
        limits: Limits::LIBRARY,
        get_send_events: false,
    }
}

impl World {
    /// Node 0 initiates, node 1 is the target in most tests.
    pub(super) fn new() -> Self {
        Self::of([config(0), config(1)])
    }

    pub(super) fn of(configs: impl IntoIterator<Item = NiConfig>) -> Self {
        let node = |c| Node {
            ni: Ni::new(c),
            bytes: vec![],
        };
        Self {
            nodes: configs.into_iter().map(node).collect(),
            wire: VecDeque::new(),
        }
    }

    /// Puts a request on the wire; the payload is read and SEND_END posted at once.
    pub(super) fn send(&mut self, from: usize, tx: Transmit) {
        let data = self.nodes[from].gather(&tx.payload);
        assert_eq!(data.len() as u64, tx.header.payload_len());
        self.wire.push_back((tx.header, data));
        if let Some(op) = tx.op {
            self.nodes[from].ni.send_end(op, NiFail::OK);
        }
    }

    pub(super) fn put(
        &mut self,
        from: usize,
        md: MdHandle,
        region: Option<(u64, u64)>,
        ack: AckRequest,
        to: To,
        hdr_data: u64,
    ) -> Result<(), Error> {
        let ni = &mut self.nodes[from].ni;
        let tx = ni.put(
            md,
            region,
            ack,
            id(to.node),
            to.pt,
            to.ac,
            to.bits,
            to.offset,
            hdr_data,
        )?;
        self.send(from, tx);
        Ok(())
    }

    pub(super) fn get(
        &mut self,
        from: usize,
        md: MdHandle,
        region: Option<(u64, u64)>,
        to: To,
    ) -> Result<(), Error> {
        let ni = &mut self.nodes[from].ni;
        let tx = ni.get(md, region, id(to.node), to.pt, to.ac, to.bits, to.offset)?;
        self.send(from, tx);
        Ok(())
    }

    /// Hands the oldest message to its target; the headers travel in byte form. `None` when the
    /// wire is empty.
    pub(super) fn arrive(&mut self) -> Option<(usize, Incoming, Vec<u8>)> {
        let (header, data) = self.wire.pop_front()?;
        let seen = Header::decode(&header.encode()).unwrap();
        assert_eq!(seen, header);
        let node = header.target.nid as usize;
        let incoming = self.nodes[node].ni.handle_header(&seen);
        Some((node, incoming, data))
    }

    /// Moves the bytes of a message that arrived and ends its operation.
    pub(super) fn complete(&mut self, node: usize, incoming: Incoming, data: &[u8]) {
        let n = &mut self.nodes[node];
        match incoming {
            Incoming::Deposit(d) => {
                n.scatter(&d.segments, &data[..d.length as usize]);
                if let Some(ack) = n.ni.deposit_end(d.op, NiFail::OK) {
                    self.wire.push_back((ack, vec![]));
                }
            }
            Incoming::Reply(r) => {
                let data = n.gather(&r.segments);
                n.ni.reply_end(r.op, NiFail::OK);
                self.wire.push_back((r.header, data));
            }
            Incoming::Swap(s) => {
                let old = n.gather(&s.segments);
                n.scatter(&s.segments, &data[..s.length as usize]);
                n.ni.swap_end(s.op, NiFail::OK);
                self.wire.push_back((s.header, old));
            }
            Incoming::Acked | Incoming::Dropped(_) => {}
        }
    }

    /// Delivers until the wire is empty.
    pub(super) fn run(&mut self) {
        while let Some((node, incoming, data)) = self.arrive() {
            self.complete(node, incoming, &data);
        }
    }

    /// A zero-byte put from node 0 with these bits, delivered; what it hit at node 1 is told by
    /// the queue's PUT_END events.
    pub(super) fn knock(&mut self, to: To) {
        let md = self.nodes[0].bind(desc(Segment { addr: 0, len: 0 }, NONE));
        self.put(0, md, None, NoAck, to, 0).unwrap();
        self.run();
        self.nodes[0].ni.md_unlink(md).unwrap();
    }

    /// A target at node 1, portal 4: memory, queue and descriptor.
    pub(super) fn target(&mut self, len: u64, options: MdOptions) -> Target {
        self.target_with(len, |d| d.options = options, Unlink::Retain)
    }

    pub(super) fn target_with(
        &mut self,
        len: u64,
        change: impl FnOnce(&mut MdDesc),
        unlink: Unlink,
    ) -> Target {
        let node = &mut self.nodes[1];
        let memory = node.memory(len);
        let eq = node.eq(64);
        let me = node.me(4, 0);
        let mut d = MdDesc {
            eq: Some(eq),
            ..desc(memory, PUT)
        };
        change(&mut d);
        let md = node.ni.md_attach(me, d, unlink).unwrap();
        Target { memory, eq, me, md }
    }

    /// A source (or destination) at node 0 that counts up from 1: memory, queue and descriptor.
    pub(super) fn source(&mut self, len: u64) -> Source {
        self.source_with(len, |_| (), Unlink::Retain)
    }

    pub(super) fn source_with(
        &mut self,
        len: u64,
        change: impl FnOnce(&mut MdDesc),
        unlink: Unlink,
    ) -> Source {
        let node = &mut self.nodes[0];
        let memory = node.counting(len, 1);
        let eq = node.eq(64);
        let mut d = MdDesc {
            eq: Some(eq),
            ..desc(memory, NONE)
        };
        change(&mut d);
        let md = node.ni.md_bind(d, unlink).unwrap();
        Source { memory, eq, md }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) memory: Segment,
    pub(super) eq: EqHandle,
    pub(super) me: MeHandle,
    pub(super) md: MdHandle,
}

#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) memory: Segment,
    pub(super) eq: EqHandle,
    pub(super) md: MdHandle,
}
