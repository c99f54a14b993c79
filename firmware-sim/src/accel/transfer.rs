//! Messages of accelerated processes.

use nic_model::defs::accel::SMALL_BUFFER;
use nic_model::defs::niccb::Counter;
use nic_model::trace::What;
use nic_model::{
    Deposit, DmaSegment, FirmwareContext, NodeId, RxHeader, RxReport, SimDuration, TransferFault,
};
use portals_core::{Body, Header, Incoming, NiFail, OpId, Segment, Swap, Transmit};

use super::{Flight, TRIES};
use crate::answer;
use crate::awaited::Answered;
use crate::header::{self, PACKET};
use crate::program::SeaStarFirmware;
use crate::source::{Owner, Packet};
use crate::tx::TxOutcome;

/// A pending that has been taken for a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reserved {
    index: usize,
    pending: u16,
}

/// An ack or a reply names its descriptor; a request is looked for.
fn is_request(body: &Body) -> bool {
    matches!(
        body,
        Body::Put { .. } | Body::Get { .. } | Body::GetPut { .. }
    )
}

/// The pending of a header that needs none.
const NO_PENDING: u16 = u16::MAX;

fn total(segments: &[Segment]) -> u64 {
    segments.iter().map(|s| s.len).sum()
}

impl SeaStarFirmware {
    /// Pieces for an engine. The list of a descriptor with several pieces lies in host memory and is
    /// fetched; a transmit that does not start on a quad-byte costs a fetch too, of its edges.
    fn pieces(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        segments: &[Segment],
        transmit: bool,
    ) -> Vec<DmaSegment> {
        let Some(process) = &self.accels[index] else {
            return Vec::new();
        };
        let used = || segments.iter().filter(|s| s.len > 0);
        let mut fetches = 0;
        if used().count() > 1 {
            fetches += 1;
        }
        if transmit && used().any(|s| s.addr & 3 != 0) {
            fetches += 1;
        }
        let pieces: Vec<_> = used()
            .map(|s| DmaSegment {
                address: process.physical(s.addr),
                length: s.len as u32,
            })
            .collect();
        let read = ctx.machine().chip.ht_read_latency;
        if fetches > 0 {
            ctx.busy(read * fetches + self.costs.segment * pieces.len() as u64);
        }
        pieces
    }

    /// Reads a few bytes of a process; `None` on a fault.
    fn read_small(
        &self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        segments: &[Segment],
    ) -> Option<Vec<u8>> {
        let process = self.accels[index].as_ref()?;
        let mut out = Vec::new();
        for s in segments.iter().filter(|s| s.len > 0) {
            let at = out.len();
            out.resize(at + s.len as usize, 0);
            ctx.host_read(process.physical(s.addr), &mut out[at..])
                .ok()?;
        }
        Some(out)
    }

    /// Writes a few bytes of a process: all of them, or none where a piece cannot be written.
    fn write_small(
        &self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        segments: &[Segment],
        mut data: &[u8],
    ) -> bool {
        let Some(process) = &self.accels[index] else {
            return false;
        };
        let mut left = data.len();
        for s in segments {
            let n = left.min(s.len as usize);
            if n > 0 && !ctx.host_writable(process.physical(s.addr), n) {
                return false;
            }
            left -= n;
        }
        for s in segments {
            let n = data.len().min(s.len as usize);
            if n > 0 {
                ctx.host_write(process.physical(s.addr), &data[..n]);
            }
            data = &data[n..];
        }
        true
    }

    // ---- out ----

    /// Sends the message of a put, get or getput; the caller has seen that a pending is free.
    pub(super) fn initiate(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        tx: Transmit,
        data: Option<&[u8]>,
    ) {
        let most = u64::from(ctx.machine().chip.max_message);
        let Some(process) = self.accels[index].as_deref_mut() else {
            return;
        };
        let length = total(&tx.payload);
        let reachable = process.node_of(tx.header.target.nid).map(NodeId);
        let (Some(node), true) = (reachable, length <= most) else {
            return self.not_sent(index, &tx, NiFail::FAIL);
        };
        let Some(pending) = process.tx_free.pop_front() else {
            return self.not_sent(index, &tx, NiFail::FAIL);
        };
        if let Some(request) = process.requests.get_mut(usize::from(pending)) {
            *request = Some(tx.header);
        }
        process.awaited.asked(node.0.into(), 0, &tx.header, tx.op);
        let (bytes, header_len) = header::encode(&tx.header);
        let mut packet = [0; PACKET];
        packet[..header_len].copy_from_slice(&bytes[..header_len]);
        if length <= (PACKET - header_len) as u64 {
            let read = match data {
                Some(data) if data.len() as u64 == length => Some(data.to_vec()),
                _ => self.read_small(ctx, index, &tx.payload),
            };
            let Some(data) = read else {
                if let Some(process) = self.accels[index].as_deref_mut() {
                    process.awaited.withdrawn(node.0.into(), 0, &tx.header);
                }
                self.put_back(index, pending);
                return self.not_sent(index, &tx, NiFail::SEGV);
            };
            let end = header_len + data.len();
            packet[header_len..end].copy_from_slice(&data);
            self.sent(index, tx.op, NiFail::OK);
            self.launch(
                ctx,
                index,
                pending,
                Flight::Message,
                node,
                (packet, end),
                Vec::new(),
            );
        } else {
            let pieces = self.pieces(ctx, index, &tx.payload, true);
            let flight = tx.op.map_or(Flight::Message, Flight::Send);
            self.launch(
                ctx,
                index,
                pending,
                flight,
                node,
                (packet, header_len),
                pieces,
            );
        }
    }

    /// A message cannot be sent, and will not be answered.
    fn not_sent(&mut self, index: usize, tx: &Transmit, fail: NiFail) {
        self.sent(index, tx.op, fail);
        if let Some(process) = &mut self.accels[index] {
            answer::fail(&mut process.ni, &tx.header, fail);
        }
    }

    /// The data of a message has left its memory, or never will.
    fn sent(&mut self, index: usize, op: Option<OpId>, fail: NiFail) {
        if let (Some(process), Some(op)) = (&mut self.accels[index], op) {
            process.ni.send_end(op, fail);
        }
    }

    /// Hands a message to the transport.
    #[expect(clippy::too_many_arguments, reason = "all of a message")]
    pub(super) fn launch(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
        flight: Flight,
        node: NodeId,
        packet: ([u8; PACKET], usize),
        pieces: Vec<DmaSegment>,
    ) {
        let pending = self.answer_place(ctx, index, pending);
        if let Some(process) = &mut self.accels[index]
            && let Some(slot) = process.flights.get_mut(usize::from(pending))
        {
            if matches!(flight, Flight::Send(_)) {
                process.sending.push_back(pending);
            }
            *slot = flight;
        }
        let (bytes, length) = packet;
        let body = crate::source::Body {
            header: Packet::Built {
                bytes,
                length: length as u8,
            },
            segments: pieces,
        };
        let owner = Owner::Pending {
            process: index,
            pending,
            interrupt: false,
        };
        if !ctx.node_exists(node) || self.send(ctx, node, owner, body).is_err() {
            self.message_ended(ctx, index, pending, TxOutcome::Failed);
        }
    }

    /// A message has been sent, or could not be.
    pub(crate) fn accel_sent(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
        outcome: TxOutcome,
    ) {
        self.message_ended(ctx, index, pending, outcome);
        self.pending_freed(ctx, index);
    }

    fn message_ended(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
        outcome: TxOutcome,
    ) {
        let fail = match outcome {
            TxOutcome::Done => NiFail::OK,
            TxOutcome::Fault => NiFail::SEGV,
            TxOutcome::Failed | TxOutcome::Undelivered => NiFail::FAIL,
        };
        let Some(process) = self.accels[index].as_deref_mut() else {
            return self.orphan_ended(ctx, index, pending, fail);
        };
        let request = process.requests.get_mut(usize::from(pending));
        let request = request.and_then(Option::take);
        process.sending.retain(|p| *p != pending);
        let mut again = None;
        let (mut sent, mut refused) = (false, false);
        match process.free(pending) {
            Flight::Send(op) => {
                process.ni.send_end(op, fail);
                sent = true;
            }
            Flight::Refused(op) => {
                process.ni.send_end(op, fail);
                refused = true;
            }
            Flight::Reply(op, answer) => {
                process.ni.reply_end(op, fail);
                again = Some((answer, 1));
            }
            Flight::Answer(answer, tries) if tries < TRIES => again = Some((answer, tries + 1)),
            _ => {}
        }
        if let Some(request) = request
            && let Some(node) = process.node_of(request.target.nid)
            && (refused
                || (fail != NiFail::OK || sent && process.failed.contains(&node.into()))
                    && process.awaited.forget(node.into(), 0, &request))
        {
            answer::fail(&mut process.ni, &request, fail.or_fail());
        }
        self.write_events(ctx, index);
        if outcome == TxOutcome::Undelivered
            && let Some((answer, tries)) = again
        {
            self.answer_again(ctx, index, &answer, tries);
        }
    }

    pub(super) fn put_back(&mut self, index: usize, pending: u16) {
        if let Some(process) = &mut self.accels[index] {
            process.free(pending);
        }
    }

    /// What waits for a pending goes on. Only at the end of a piece of work: offering a header
    /// while another is being offered would take one twice.
    fn pending_freed(&mut self, ctx: &mut FirmwareContext<'_>, index: usize) {
        self.unstall(ctx, index);
        self.show_waiting(ctx);
    }

    // ---- in ----

    /// The accelerated process that a message is for.
    pub(crate) fn accel_for(&self, ctx: &FirmwareContext<'_>, arrived: &RxHeader) -> Option<usize> {
        if self.accels.iter().all(Option::is_none) {
            return None;
        }
        let packet = &arrived.bytes[..usize::from(arrived.length).min(PACKET)];
        let (header, _) = header::decode(packet, ctx.node().0.into()).ok()?;
        self.accel_of(header.target.pid)
    }

    /// What matching a header takes before anything comes of it: its payload waits for so long. The
    /// entries looked at come on top when their number is known.
    pub(crate) fn match_cost(&self, ctx: &FirmwareContext<'_>, arrived: &RxHeader) -> SimDuration {
        let packet = &arrived.bytes[..usize::from(arrived.length).min(PACKET)];
        let nid = ctx.node().0.into();
        let accelerated = self.accel_for(ctx, arrived).is_some();
        let request = || header::decode(packet, nid).is_ok_and(|(h, _)| is_request(&h.body));
        if accelerated && request() {
            self.nic.nic_match
        } else {
            SimDuration::ZERO
        }
    }

    /// Takes a receive pending for a header.
    pub(crate) fn accel_reserve(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
    ) -> Option<Reserved> {
        let process = self.accels[index].as_deref_mut()?;
        let pending = process.rx_free.pop_front();
        if pending.is_none() {
            ctx.count(Counter::ACCEL_RX_WAITS, 1);
        }
        pending.map(|pending| Reserved { index, pending })
    }

    /// Whether a header needs no pending: an answer that is over with its header packet.
    pub(crate) fn accel_passes(
        &self,
        ctx: &FirmwareContext<'_>,
        index: usize,
        arrived: &RxHeader,
    ) -> Option<Reserved> {
        let packet = &arrived.bytes[..usize::from(arrived.length).min(PACKET)];
        let (header, _) = header::decode(packet, ctx.node().0.into()).ok()?;
        let passes = arrived.payload.is_none() && !is_request(&header.body);
        passes.then_some(Reserved {
            index,
            pending: NO_PENDING,
        })
    }

    pub(crate) fn accel_unreserve(&mut self, reserved: Reserved) {
        self.put_back(reserved.index, reserved.pending);
    }

    /// Deals with a header for which a pending has been taken.
    pub(crate) fn accel_header(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        reserved: Reserved,
        arrived: &RxHeader,
    ) {
        let Reserved { index, pending } = reserved;
        let packet = &arrived.bytes[..usize::from(arrived.length).min(PACKET)];
        let nid = self.accels[index]
            .as_ref()
            .map_or(0, |p| p.ni.config().id.nid);
        // Whoever took the pending has decoded the header.
        let Ok((header, data_at)) = header::decode(packet, nid) else {
            return self.put_back(index, pending);
        };
        let (header, inline) = (&header, &packet[data_at..]);
        let flags = packet[header::FLAGS_AT];
        let failed = flags & header::FAILED != 0;
        let mut answered = Answered::Unknown;
        if let Body::Ack { .. } | Body::Reply { .. } = header.body
            && let Some(process) = &mut self.accels[index]
        {
            answered = process.answered(header, flags);
        }
        let request = answer::request_of(header).filter(|_| failed);
        if request.is_some() || matches!(answered, Answered::Over) {
            if let (Some(request), Answered::Request(_)) = (&request, answered)
                && let Some(process) = &mut self.accels[index]
            {
                answer::fail(&mut process.ni, request, NiFail::FAIL);
            }
            self.write_events(ctx, index);
            if let Some(payload) = arrived.payload {
                self.drain(ctx, payload);
            }
            return self.put_back(index, pending);
        }
        if is_request(&header.body) {
            ctx.count(Counter::ACCEL_MATCHED, 1);
        }
        let Some(process) = self.accels[index].as_deref_mut() else {
            return;
        };
        let incoming = process.ni.handle_header(header);
        let searched = match &incoming {
            Incoming::Deposit(d) => d.searched,
            Incoming::Reply(r) => r.searched,
            Incoming::Swap(s) => s.searched,
            Incoming::Acked | Incoming::Dropped(_) => 0,
        };
        if searched > 0 {
            ctx.busy(self.nic.nic_match_entry * u64::from(searched));
            ctx.count(Counter::ACCEL_SEARCHED, searched);
        }
        if !matches!(incoming, Incoming::Acked) {
            ctx.trace(What::Match {
                by: "firmware",
                source: arrived.source.0,
                bits: header.match_bits,
                searched,
                outcome: match incoming {
                    Incoming::Dropped(_) => "no match",
                    _ => "taken",
                },
            });
        }
        self.write_events(ctx, index);
        match incoming {
            Incoming::Dropped(_) | Incoming::Acked => {
                if let Some(payload) = arrived.payload {
                    self.drain(ctx, payload);
                }
                self.put_back(index, pending);
            }
            Incoming::Deposit(d) => {
                if let Some(payload) = arrived.payload {
                    if d.length > 0 {
                        let segments = self.pieces(ctx, index, &d.segments, false);
                        return self.deposit(
                            ctx,
                            index,
                            pending,
                            payload,
                            segments,
                            Flight::Deposit(d.op, answer::refusal(header)),
                        );
                    }
                    self.drain(ctx, payload);
                    return self.deposited(ctx, index, pending, d.op, NiFail::OK, None);
                }
                let keep = inline.len().min(d.length as usize);
                let placed = self.write_small(ctx, index, &d.segments, &inline[..keep]);
                let fail = match placed {
                    false => NiFail::SEGV,
                    true if keep as u64 == d.length => NiFail::OK,
                    true => NiFail::FAIL,
                };
                self.deposited(ctx, index, pending, d.op, fail, answer::refusal(header));
            }
            Incoming::Reply(reply) => {
                if let Some(payload) = arrived.payload {
                    self.drain(ctx, payload);
                }
                self.reply(
                    ctx,
                    index,
                    pending,
                    &reply.header,
                    &reply.segments,
                    reply.op,
                );
            }
            Incoming::Swap(swap) => match arrived.payload {
                Some(payload) => {
                    let buffer = self.accels[index]
                        .as_ref()
                        .map_or(0, |p| p.small_buffer(pending));
                    let length = (header.payload_len() as u32).min(SMALL_BUFFER as u32 / 2);
                    let segments = vec![DmaSegment {
                        address: buffer,
                        length,
                    }];
                    self.deposit(
                        ctx,
                        index,
                        pending,
                        payload,
                        segments,
                        Flight::Exchange(swap),
                    );
                }
                None => self.exchange(ctx, index, pending, swap, inline.to_vec()),
            },
        }
    }

    /// Gives a payload its place.
    fn deposit(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
        payload: nic_model::RxHandle,
        segments: Vec<DmaSegment>,
        flight: Flight,
    ) {
        if let Some(process) = &mut self.accels[index]
            && let Some(slot) = process.flights.get_mut(usize::from(pending))
        {
            *slot = flight;
        }
        self.watch(ctx);
        let token = (index as u64) << 16 | u64::from(pending);
        if ctx.deposit(payload, Deposit { segments, token }).is_err() {
            // It has ended early; nothing of it is left.
            let report = RxReport {
                deposited: 0,
                discarded: 0,
                fault: Some(TransferFault::Truncated),
            };
            self.deposit_ended(ctx, index, pending, report);
        }
    }

    /// A deposit has ended.
    pub(crate) fn accel_rx_end(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
        report: RxReport,
    ) {
        self.deposit_ended(ctx, index, pending, report);
        self.pending_freed(ctx, index);
    }

    fn deposit_ended(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
        report: RxReport,
    ) {
        let fail = match report.fault {
            None => NiFail::OK,
            Some(TransferFault::Header(_) | TransferFault::Payload(_)) => NiFail::SEGV,
            Some(_) => NiFail::FAIL,
        };
        let Some(process) = self.accels[index].as_deref_mut() else {
            return self.orphan_ended(ctx, index, pending, fail);
        };
        let slot = process.flights.get_mut(usize::from(pending));
        match slot.map(std::mem::take) {
            Some(Flight::Deposit(op, failure)) => {
                self.deposited(ctx, index, pending, op, fail, failure);
            }
            Some(Flight::Exchange(swap)) if fail == NiFail::OK => {
                let mut data = vec![0; swap.length as usize];
                let buffer = process.small_buffer(pending);
                if ctx.host_read(buffer, &mut data).is_err() {
                    data.clear();
                }
                self.exchange(ctx, index, pending, swap, data);
            }
            Some(Flight::Exchange(swap)) => {
                process.ni.swap_end(swap.op, fail);
                self.write_events(ctx, index);
                self.say_failed(ctx, index, pending, &swap.header, 0);
            }
            _ => {}
        }
    }

    /// Ends a deposit; its pending carries the ack, if there is one.
    fn deposited(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
        op: OpId,
        fail: NiFail,
        failure: Option<Header>,
    ) {
        let Some(process) = self.accels[index].as_deref_mut() else {
            return;
        };
        let ack = process.ni.deposit_end(op, fail);
        self.write_events(ctx, index);
        if fail != NiFail::OK
            && let Some(failure) = failure
        {
            return self.say_failed(ctx, index, pending, &failure, 0);
        }
        match ack {
            Some(ack) => self.respond(ctx, index, pending, &ack, &[], 0),
            None => {
                self.put_back(index, pending);
            }
        }
    }

    /// Sends the reply to a get; the pending of the get carries it.
    fn reply(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
        reply: &Header,
        segments: &[Segment],
        op: OpId,
    ) {
        let (bytes, header_len) = header::encode(reply);
        let length = total(segments);
        if length <= (PACKET - header_len) as u64 {
            let data = self.read_small(ctx, index, segments);
            if let Some(process) = &mut self.accels[index] {
                let fail = if data.is_some() {
                    NiFail::OK
                } else {
                    NiFail::SEGV
                };
                process.ni.reply_end(op, fail);
            }
            self.write_events(ctx, index);
            return match data {
                Some(data) => self.respond(ctx, index, pending, reply, &data, 0),
                None => self.say_failed(ctx, index, pending, reply, 0),
            };
        }
        let pieces = self.pieces(ctx, index, segments, true);
        let node = self.accels[index]
            .as_ref()
            .and_then(|p| p.node_of(reply.target.nid));
        let Some(node) = node else {
            if let Some(process) = &mut self.accels[index] {
                process.ni.reply_end(op, NiFail::FAIL);
            }
            self.write_events(ctx, index);
            return self.put_back(index, pending);
        };
        let mut packet = [0; PACKET];
        packet[..header_len].copy_from_slice(&bytes[..header_len]);
        let flight = Flight::Reply(op, *reply);
        self.acknowledge_first(ctx, NodeId(node));
        self.launch(
            ctx,
            index,
            pending,
            flight,
            NodeId(node),
            (packet, header_len),
            pieces,
        );
    }

    /// Exchanges the bytes of a getput and sends the old ones back.
    fn exchange(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
        swap: Swap,
        new: Vec<u8>,
    ) {
        let keep = swap.length as usize;
        let whole = new.len() >= keep;
        let old = self
            .read_small(ctx, index, &swap.segments)
            .filter(|_| whole)
            .filter(|_| self.write_small(ctx, index, &swap.segments, &new[..keep]));
        if let Some(process) = &mut self.accels[index] {
            let fail = match old {
                Some(_) => NiFail::OK,
                None if whole => NiFail::SEGV,
                None => NiFail::FAIL,
            };
            process.ni.swap_end(swap.op, fail);
        }
        self.write_events(ctx, index);
        match old {
            Some(old) => self.respond(ctx, index, pending, &swap.header, &old, 0),
            None => self.say_failed(ctx, index, pending, &swap.header, 0),
        }
    }
}
