//! Answers of accelerated processes: acks and replies, said by the firmware of their target.

use nic_model::defs::accel::SMALL_BUFFER;
use nic_model::{DmaSegment, FirmwareContext, NodeId};
use portals_core::Header;

use super::{Accel, Flight};
use crate::answer;
use crate::header::{self, PACKET};
use crate::program::SeaStarFirmware;

impl SeaStarFirmware {
    /// Where an answer waits for its peer: in host memory, when it has the last receive pending.
    pub(super) fn answer_place(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
    ) -> u16 {
        let Some(process) = self.accels[index].as_deref_mut() else {
            return pending;
        };
        let receives = (process.pendings / 2..process.pendings).contains(&pending);
        if !receives || !process.rx_free.is_empty() {
            return pending;
        }
        let Some(place) = process.spill() else {
            return pending;
        };
        process.free(pending);
        // It is fetched from there.
        ctx.busy(ctx.machine().chip.ht_read_latency);
        place
    }

    /// The peer has not taken an answer: an ack goes again, a reply, whose data is gone, as a failure.
    pub(super) fn answer_again(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        answer: &Header,
        tries: u8,
    ) {
        let process = self.accels[index].as_deref_mut();
        let Some(place) = process.and_then(Accel::spill) else {
            return;
        };
        if answer::has_succeeded(&answer.body) {
            self.respond(ctx, index, place, answer, &[], tries);
        } else {
            self.say_failed(ctx, index, place, answer, tries);
        }
    }

    /// Tells an initiator that its request has failed.
    pub(super) fn say_failed(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
        answer: &Header,
        tries: u8,
    ) {
        let process = self.accels[index].as_ref();
        let Some(node) = process.and_then(|p| p.node_of(answer.target.nid)) else {
            return self.put_back(index, pending);
        };
        let (bytes, header_len) = header::encode(answer);
        let mut packet = [0; PACKET];
        packet[..header_len].copy_from_slice(&bytes[..header_len]);
        packet[header::FLAGS_AT] |= header::FAILED | header::again(tries);
        self.acknowledge_first(ctx, NodeId(node));
        let packet = (packet, header_len);
        self.launch(
            ctx,
            index,
            pending,
            Flight::Answer(*answer, tries),
            NodeId(node),
            packet,
            Vec::new(),
        );
    }

    /// The acknowledgement of a request goes before its answer, so that the initiator hears of the
    /// end of its send before it hears of the answer.
    pub(crate) fn acknowledge_first(&mut self, ctx: &mut FirmwareContext<'_>, node: NodeId) {
        let due = self.sources.known(node).is_some_and(|s| s.ack_queued);
        if due {
            ctx.busy(self.limits.control);
            self.send_ack(ctx, node);
        }
    }

    /// Sends an answer with a few bytes that the firmware has; more than a packet holds go through
    /// the small-message buffer.
    pub(super) fn respond(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        mut pending: u16,
        answer: &Header,
        data: &[u8],
        tries: u8,
    ) {
        let process = self.accels[index].as_ref();
        let node = process.and_then(|p| p.node_of(answer.target.nid));
        let Some(node) = node else {
            return self.put_back(index, pending);
        };
        let (bytes, header_len) = header::encode(answer);
        let mut packet = [0; PACKET];
        packet[..header_len].copy_from_slice(&bytes[..header_len]);
        packet[header::FLAGS_AT] |= header::again(tries);
        let mut end = header_len;
        let mut pieces = Vec::new();
        if data.len() <= PACKET - header_len {
            end += data.len();
            packet[header_len..end].copy_from_slice(data);
        } else {
            pending = self.answer_place(ctx, index, pending);
            let process = self.accels[index].as_ref();
            let address = process.map_or(0, |p| p.small_buffer(pending)) + SMALL_BUFFER / 2;
            ctx.host_write(address, data);
            pieces.push(DmaSegment {
                address,
                length: data.len() as u32,
            });
        }
        self.acknowledge_first(ctx, NodeId(node));
        self.launch(
            ctx,
            index,
            pending,
            Flight::Answer(*answer, tries),
            NodeId(node),
            (packet, end),
            pieces,
        );
    }
}
