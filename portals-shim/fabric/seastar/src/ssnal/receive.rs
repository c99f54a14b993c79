//! What arrives: headers, which are matched, and the data that follows them.

use super::super::header::{self, PACKET};
use super::super::lost::{self, Answered};
use super::super::process::Process;
use super::transmit::AfterTx;
use super::{KernelBuffer, Matched, PENDINGS, Ssnal, UPPER_PENDINGS, piece};
use nic_model::defs::command::{self, Command, OpCode, flags};
use nic_model::defs::pending::{MessageWord, UPPER_PENDING_LEN, UpperPending};
use portals_core::{Body, Deposit, Header, Incoming, NiFail, OpId, ReplyOut, Swap};
use zerocopy::{FromBytes, IntoBytes};

/// What waits for the end of a deposit.
#[derive(Debug)]
pub(super) enum AfterRx {
    /// With the answer to send if it fails.
    Deposit(OpId, Option<Header>),
    /// The data of a getput is in the kernel buffer.
    Swap {
        swap: Swap,
        buffer: u64,
        length: usize,
    },
}

/// A deposit at the chip.
#[derive(Debug)]
pub(super) struct Expected {
    process: usize,
    after: AfterRx,
    /// The list of pieces, where there is one.
    list: Option<KernelBuffer>,
}

/// The data of a message that a library has accepted.
struct Arrived<'a> {
    pending: u16,
    /// What rode in the header packet.
    inline: &'a [u8],
    /// Whether payload waits for a destination.
    follows: bool,
    /// The answer to send if the data cannot be placed.
    failure: Option<Header>,
}

impl Ssnal {
    pub(super) fn release(&mut self, pending: u16) {
        let release = command::Release {
            op: OpCode::RELEASE,
            reserved: [0; 15],
            pending_index: pending.into(),
            reserved2: [0; 46],
        };
        self.commands.push_back(release.to_entry());
    }

    /// Asks for the payload of a receive pending.
    fn receive(
        &mut self,
        pending: u16,
        pieces: &[command::Segment],
        length: u64,
        process: usize,
        after: AfterRx,
    ) {
        let mut list = None;
        let (address, byte, segments) = match pieces {
            [] => (0, 0, 0),
            [one] => (one.address.get(), one.byte.get() as u16, 0),
            many => {
                let bytes = many.as_bytes();
                let at = self.memory.alloc(bytes.len());
                if let Some(buffer) = self.memory.kernel(at, bytes.len()) {
                    buffer.copy_from_slice(bytes);
                }
                list = Some((at, bytes.len()));
                (at >> 2, 0, many.len() as u16)
            }
        };
        let receive = command::Receive {
            op: OpCode::RECEIVE,
            flags: flags::RELEASE,
            segments: segments.into(),
            length: (length as u32).into(),
            address: address.into(),
            pending_index: pending.into(),
            byte: byte.into(),
            reserved: [0; 44],
        };
        self.commands.push_back(receive.to_entry());
        self.rx[usize::from(pending)] = Some(Expected {
            process,
            after,
            list,
        });
    }

    pub(super) fn header_arrived(&mut self, processes: &mut [Process], pending: u16) {
        let at = UPPER_PENDINGS + UPPER_PENDING_LEN * u64::from(pending);
        let upper = self
            .memory
            .kernel(at, UPPER_PENDING_LEN as usize)
            .and_then(|bytes| UpperPending::read_from_bytes(bytes).ok());
        let Some(upper) = upper.filter(|_| pending < PENDINGS) else {
            self.counters.unknown_events += 1;
            return;
        };
        let message = MessageWord(upper.message.get());
        let packet = &upper.header[..usize::from(message.header_length()).min(PACKET)];
        let decoded = header::decode(packet, self.nid).ok();
        let found = decoded.and_then(|(header, data_at)| {
            let is = |p: &Process| p.ni.config().id.pid == header.target.pid;
            Some((header, data_at, processes.iter().position(is)?))
        });
        let Some((header, data_at, process)) = found else {
            self.counters.bad_headers += 1;
            return self.release(pending);
        };
        let inline = &packet[data_at..];
        let follows = message.has_payload();
        self.cost += self.costs.match_fixed;
        self.matched = Some(Matched {
            source: message.source(),
            bits: header.match_bits,
            searched: 0,
            outcome: "no match",
        });
        let flags = packet[header::FLAGS_AT];
        let failed = flags & header::FAILED != 0;
        if let Body::Ack { .. } | Body::Reply { .. } = header.body {
            let answered = self.answered(processes, process, &header, flags);
            if failed || matches!(answered, Answered::Over) {
                self.release(pending);
                if let Answered::Request(_) = answered
                    && let Some(request) = lost::request_of(&header)
                {
                    self.will_not_be_answered(processes, process, &request, NiFail::FAIL);
                }
                return;
            }
        }
        match processes[process].ni.handle_header(&header) {
            Incoming::Dropped(_) => {
                self.release(pending);
            }
            Incoming::Acked => {
                self.matched = None;
                self.cost += self.costs.event_post;
                self.release(pending);
            }
            Incoming::Deposit(d) => {
                self.searched(d.searched);
                let arrived = Arrived {
                    pending,
                    inline,
                    follows,
                    failure: lost::refusal(&header),
                };
                self.deposit(processes, process, &d, arrived);
            }
            Incoming::Reply(ReplyOut {
                op,
                header,
                segments,
                searched,
                ..
            }) => {
                self.searched(searched);
                self.release(pending);
                self.transmit(processes, process, &header, &segments, AfterTx::Reply(op));
            }
            Incoming::Swap(swap) => {
                self.searched(swap.searched);
                if follows {
                    let length = header.payload_len() as usize;
                    let buffer = self.memory.alloc(length);
                    self.receive(
                        pending,
                        &[piece(buffer, length as u64)],
                        length as u64,
                        process,
                        AfterRx::Swap {
                            swap,
                            buffer,
                            length,
                        },
                    );
                } else {
                    self.release(pending);
                    self.swap(processes, process, swap, inline);
                }
            }
        }
    }

    pub(crate) fn searched(&mut self, entries: u32) {
        if let Some(matched) = &mut self.matched {
            matched.searched = entries;
            matched.outcome = "taken";
        }
        self.cost += self.costs.match_entry * u64::from(entries);
    }

    fn deposit(
        &mut self,
        processes: &mut [Process],
        process: usize,
        d: &Deposit,
        arrived: Arrived<'_>,
    ) {
        let Arrived {
            pending,
            inline,
            follows,
            failure,
        } = arrived;
        if follows && d.length > 0 {
            if let Some(pieces) = self.pieces(process, &d.segments) {
                let after = AfterRx::Deposit(d.op, failure);
                return self.receive(pending, &pieces, d.length, process, after);
            }
            self.counters.faults += 1;
            self.release(pending);
            return self.deposited(processes, process, d.op, NiFail::SEGV, failure);
        }
        self.release(pending);
        let keep = inline.len().min(d.length as usize);
        let whole = follows || keep as u64 == d.length;
        let placed = keep == 0 || self.scatter(process, &d.segments, &inline[..keep]);
        if !placed {
            self.counters.faults += 1;
        }
        let fail = match placed {
            false => NiFail::SEGV,
            true if whole => NiFail::OK,
            true => NiFail::FAIL,
        };
        self.deposited(processes, process, d.op, fail, failure);
    }

    pub(crate) fn deposited(
        &mut self,
        processes: &mut [Process],
        process: usize,
        op: OpId,
        fail: NiFail,
        failure: Option<Header>,
    ) {
        self.cost += self.costs.event_post;
        if let Some(ack) = processes[process].ni.deposit_end(op, fail) {
            self.transmit_bytes(process, &ack, &[]);
        }
        if fail != NiFail::OK
            && let Some(failure) = failure
        {
            self.say_failed(process, &failure);
        }
    }

    pub(crate) fn swap(
        &mut self,
        processes: &mut [Process],
        process: usize,
        swap: Swap,
        new: &[u8],
    ) {
        let new = new.get(..swap.length as usize);
        let old = new
            .and_then(|_| self.gather(process, &swap.segments))
            .filter(|_| new.is_some_and(|new| self.scatter(process, &swap.segments, new)));
        let fail = match (new, &old) {
            (Some(_), Some(_)) => NiFail::OK,
            (Some(_), None) => NiFail::SEGV,
            (None, _) => NiFail::FAIL,
        };
        self.cost += self.costs.event_post;
        processes[process].ni.swap_end(swap.op, fail);
        match old {
            Some(old) => self.transmit_bytes(process, &swap.header, &old),
            None => {
                self.counters.faults += 1;
                self.say_failed(process, &swap.header);
            }
        }
    }

    pub(super) fn rx_ended(&mut self, processes: &mut [Process], pending: u16, fail: NiFail) {
        let Some(expected) = self.rx.get_mut(usize::from(pending)).and_then(Option::take) else {
            self.counters.unknown_events += 1;
            return;
        };
        if let Some((at, len)) = expected.list {
            self.memory.free(at, len);
        }
        if fail != NiFail::OK {
            self.counters.faults += 1;
        }
        let process = expected.process;
        match expected.after {
            AfterRx::Deposit(op, failure) => {
                self.deposited(processes, process, op, fail, failure);
            }
            AfterRx::Swap {
                swap,
                buffer,
                length,
            } => {
                let data = self
                    .memory
                    .kernel(buffer, length)
                    .map(|b| b.to_vec())
                    .unwrap_or_default();
                self.memory.free(buffer, length);
                if fail == NiFail::OK {
                    self.swap(processes, process, swap, &data);
                } else {
                    processes[process].ni.swap_end(swap.op, fail);
                    self.say_failed(process, &swap.header);
                }
            }
        }
    }
}
